"""Several places as one dataset: their URIs as one, so that a dataset has one identity wherever its files lie."""

import json
from collections.abc import Iterable

__all__ = ["joined", "places_of"]


def joined(places: Iterable[str]) -> str:
    """The URI of the dataset of some places, at least one: of several a JSON list, whose order means nothing."""
    different = sorted(set(places))
    return different[0] if len(different) == 1 else json.dumps(different, ensure_ascii=False)


def places_of(uri: str) -> tuple[str, ...]:
    """The places of a dataset, by its URI; a path that begins with a bracket is absolute, so it is no list."""
    return tuple(json.loads(uri)) if uri.startswith("[") else (uri,)
