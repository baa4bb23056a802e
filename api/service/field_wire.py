"""Further columns of a batch as they travel between the service and its clients."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from viewcache.api.service.answers import FieldOf
from viewcache.errors import Broken
from viewcache.materializer.field_values import FieldValues, Ragged

__all__ = ["field_of", "field_values"]

_DTYPES = ("<i8", "<f4", "<f8", "|b1")
"""What numbers travel as."""


def field_of(name: str, values: FieldValues) -> FieldOf:
    """A field as it travels."""
    if isinstance(values, Ragged):
        return FieldOf(name, *_numbers(values.values), values.offsets.astype("<i8").tobytes())
    if isinstance(values, np.ndarray):
        return FieldOf(name, *_numbers(values))
    lists = tuple(each for each in values if isinstance(each, tuple))
    if lists:
        return FieldOf(name, text_lists=lists)
    return FieldOf(name, texts=tuple(each for each in values if not isinstance(each, tuple)))


def field_values(field: FieldOf) -> FieldValues:
    """The field that was sent.

    Raises:
        Broken: its numbers are of a kind that none has.
    """
    if not field.dtype:
        return field.text_lists or field.texts
    if field.dtype not in _DTYPES:
        raise Broken(f"the service sent {field.name!r} as {field.dtype!r}, which is none of {', '.join(_DTYPES)}")
    values = np.frombuffer(field.values, field.dtype).reshape(field.shape).copy()
    return Ragged(values, np.frombuffer(field.offsets, "<i8").copy()) if field.offsets else values


def _numbers(values: NDArray[Any]) -> tuple[str, tuple[int, ...], bytes]:
    little = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"), copy=False))
    return little.dtype.str, values.shape, little.tobytes()
