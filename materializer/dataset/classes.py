"""Classes of a dataset's videos: the distinct text labels, and the number that each label gets.

A label is one value, or a list of them. The names are those of the labels themselves, or a list that is given, which
makes the numbers the same for every task that has it, whatever labels it happens to see.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from viewcache.errors import BadInput
from viewcache.materializer.dataset.table import as_text, is_list, typed
from viewcache.suggest import did_you_mean

__all__ = ["Classes", "are_whole_numbers", "class_names", "first_epochs", "separated"]

_NAMED = 5
"""Labels that an error names."""


def class_names(labels: pa.Array, drawn: Mapping[str, int] | None = None) -> tuple[str, ...]:
    """The distinct text labels; a label's number is its place here. Empty if labels are whole numbers or none.

    Args:
        labels: of all videos, one value each.
        drawn: label → first epoch that has a video of it. These come first and in that order, so that a label keeps
            its number when others come later; labels of one epoch, and those that are not drawn, are sorted.
    """
    if pa.types.is_integer(labels.type) or pa.types.is_null(labels.type):
        return ()
    first = drawn or {}
    names = set(pc.unique(as_text(labels.drop_null())).to_pylist()) | first.keys()
    return tuple(sorted(names, key=lambda name: (name not in first, first.get(name, 0), name)))


def are_whole_numbers(names: Sequence[str]) -> bool:
    """Whether there are names of classes and all are whole numbers, among which labels that are such are looked up."""
    return bool(names) and all(name.removeprefix("-").isdecimal() for name in names)


def first_epochs(drawn: Iterable[Mapping[str, Any]], label_of: Mapping[int, object]) -> dict[str, int]:
    """Label → first epoch that has a video of it.

    Args:
        drawn: rows of `Catalog.first_drawn`.
        label_of: ``video_id`` → label; of videos that are gone the label on record holds.
    """
    first: dict[str, int] = {}
    for row in drawn:
        label = label_of.get(row["video_id"], row["label"])
        if label is not None:
            first[str(label)] = min(row["epoch"], first.get(str(label), row["epoch"]))
    return first


def separated(labels: pa.Array, separator: str) -> pa.Array:
    """Labels of text as lists: what stands between the separators, without blanks around it.

    An empty cell stays null, which is no label; a separator alone is an empty list: the video is known to have none.

    Raises:
        BadInput: they are lists already.
    """
    if is_list(labels.type):
        raise BadInput(f"label_separator: {separator!r} is for labels of text, and these are lists already")
    parts = pc.split_pattern(as_text(labels), separator)
    found = [_words(each) for each in parts.to_pylist()]
    flat = typed(word for each in found for word in each or ())
    ends = np.cumsum([len(each or ()) for each in found])
    offsets = pa.array(np.concatenate([[0], ends]), pa.int64())
    return pa.LargeListArray.from_arrays(offsets, flat, mask=pa.array([each is None for each in found], pa.bool_()))


def _words(parts: list[str] | None) -> list[str] | None:
    words = [word for part in parts or () if (word := part.strip())]
    return words if words or (parts is not None and len(parts) > 1) else None


@dataclass(frozen=True)  # no slots: the numbers are cached
class Classes:
    """The classes of a dataset and the numbers of its videos' labels."""

    labels: pa.Array
    """(videos,) one value each, or a list each; null where there is none."""
    names: tuple[str, ...]
    """A label's number is its place here; empty if labels are whole numbers, which stand for themselves, or none."""
    given: bool = False
    """Whether the names come from the configuration."""

    @property
    def is_multi(self) -> bool:
        """Whether a video may have several labels."""
        return is_list(self.labels.type)

    @property
    def is_numbered(self) -> bool:
        """Whether labels are whole numbers that stand for themselves, or there are none."""
        return not self.names

    @cached_property
    def count(self) -> int:
        """How many classes there are, which is how wide the labels of several classes are."""
        return len(self.names) or int(self._flat.max(initial=-1)) + 1

    @cached_property
    def _offsets(self) -> NDArray[np.int64]:
        """(videos + 1,) where the labels of each video begin among all."""
        if not self.is_multi:
            return np.arange(len(self.labels) + 1)
        lengths = pc.fill_null(pc.list_value_length(self.labels), 0).to_numpy(zero_copy_only=False)
        return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])

    @cached_property
    def _values(self) -> pa.Array:
        """All labels, one after the other."""
        return pc.list_flatten(self.labels) if self.is_multi else self.labels

    @cached_property
    def _flat(self) -> NDArray[np.int64]:
        """The number of each label; -1 where there is none, or it is none of the classes."""
        values = self._values
        if pa.types.is_null(values.type):
            return np.full(len(values), -1, np.int64)
        if pa.types.is_integer(values.type) and not self._looks_up_numbers:
            numbers: NDArray[np.int64] = pc.fill_null(values, -1).to_numpy(zero_copy_only=False)
            return np.where(numbers < len(self.names), numbers, -1) if self.names else numbers
        found = pc.index_in(as_text(values), pa.array(self.names, pa.large_string()))
        return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), np.int64)

    @property
    def _looks_up_numbers(self) -> bool:
        """Whether whole numbers are looked up among the names, because all of these are whole numbers."""
        return are_whole_numbers(self.names)

    def check(self, chosen: NDArray[np.bool_]) -> None:
        """Refuse labels of chosen videos that are none of the classes.

        Args:
            chosen: (videos,) which are looked at.

        Raises:
            BadInput: the message names the labels.
        """
        of_video = np.repeat(chosen, np.diff(self._offsets))
        there = ~self._values.is_null().to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(of_video & there & (self._flat < 0))
        if not len(wrong) or not (self.given or self.is_multi):
            return
        values = sorted(set(as_text(self._values.take(pa.array(wrong))).to_pylist()))
        are_places = pa.types.is_integer(self._values.type) and not self._looks_up_numbers
        shown = values if are_places else [*map(repr, values)]
        told = ", ".join(shown[:_NAMED]) + (f" and {len(values) - _NAMED} more" if values[_NAMED:] else "")
        if not self.given:
            raise BadInput(f"the labels {told} are below 0: several labels of a video are names, or numbers from 0")
        hint = did_you_mean(values[0], self.names)
        labels = "is a label" if len(values) == 1 else "are labels"
        names = ", ".join(map(repr, self.names[:_NAMED])) + (", …" if self.names[_NAMED:] else "")
        if are_places:
            raise BadInput(
                f"{told} {labels} of the table: whole numbers are places among the names of classes, from 0 to "
                f"{len(self.names) - 1} ({names})"
            )
        raise BadInput(
            f"{told} {labels} of the table and not among the {len(self.names)} names of classes ({names})"
            + (f"; {hint}" if hint else "")
        )

    def numbers(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """The labels of some videos: int64 (n,) class numbers, -1 for none.

        Where a video may have several, float32 (n, `count`), 1 for each that it has: what losses such as
        ``BCEWithLogitsLoss`` take.
        """
        if not self.is_multi:
            return self._flat[rows]
        out = np.zeros((len(rows), self.count), np.float32)
        for k, row in enumerate(rows.tolist()):
            out[k, self.of(row)] = 1
        return out

    def of(self, row: int) -> tuple[int, ...]:
        """The class numbers of one video, each once; none where it has no label."""
        mine = self._flat[self._offsets[row] : self._offsets[row + 1]]
        return tuple(np.unique(mine[mine >= 0]).tolist())
