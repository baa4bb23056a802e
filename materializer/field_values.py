"""What a batch has of further columns of the label table: arrays, lists of text, and lists of different lengths.

Any process may have these values, so nothing here knows of a table.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

__all__ = ["FieldValues", "Ragged", "TextLists", "Texts", "as_lists", "filled_field", "in_batch", "is_text"]


class Ragged(NamedTuple):
    """Lists of different lengths, one for each clip, as Arrow and ``torch.nested`` have them.

    ``torch.nested.nested_tensor_from_jagged(*batch["boxes"])`` makes the nested tensor of it.
    """

    values: Any
    """(n, ...) the elements of all lists, one list after the other."""
    offsets: Any
    """int64 (b + 1,): the list of clip k is ``values[offsets[k] : offsets[k + 1]]``."""


Texts = tuple[str | None, ...]
"""(b,) one for each clip; None where the table has none."""
TextLists = tuple[tuple[str, ...], ...]
"""(b,) a list of texts for each clip; empty where the table has none."""
FieldValues = NDArray[Any] | Ragged | Texts | TextLists
"""What a batch has of a column; arrays are (b, ...) of int64, float32, float64 or bool."""


def is_text(values: FieldValues) -> bool:
    """Whether a field is texts, or lists of them."""
    return isinstance(values, tuple) and not isinstance(values, Ragged)


def in_batch(values: FieldValues, made: Callable[[NDArray[Any]], Any]) -> Any:
    """A field as a loader hands it out: its arrays as those of a framework, texts as lists."""
    if isinstance(values, Ragged):
        return Ragged(made(values.values), made(values.offsets))
    if isinstance(values, tuple):
        return [list(each) if isinstance(each, tuple) else each for each in values]
    return made(values)


def filled_field(values: FieldValues, clips: int) -> FieldValues:
    """A field filled up to so many clips: with zeros, empty texts and empty lists."""
    if isinstance(values, Ragged):
        more = clips + 1 - len(values.offsets)
        return Ragged(values.values, np.concatenate([values.offsets, np.repeat(values.offsets[-1:], more)]))
    if isinstance(values, tuple):
        nothing = () if any(isinstance(each, tuple) for each in values) else ""
        return cast(FieldValues, (*values, *[nothing] * (clips - len(values))))
    return np.concatenate([values, np.zeros((clips - len(values), *values.shape[1:]), values.dtype)])


def as_lists(values: FieldValues) -> list[Any]:
    """A field as plain lists, one element for each clip; NaN as None."""
    if isinstance(values, Ragged):
        edges = zip(values.offsets[:-1].tolist(), values.offsets[1:].tolist(), strict=True)
        return [_plain(values.values[first:last]) for first, last in edges]
    if isinstance(values, tuple):
        return [list(each) if isinstance(each, tuple) else each for each in values]
    return _plain(values)


def _plain(array: NDArray[Any]) -> list[Any]:
    if array.dtype.kind == "f":
        missing = np.isnan(array)
        array = array.astype(object)
        array[missing] = None
    plain: list[Any] = array.tolist()
    return plain
