"""Which part of a split dataset each video is in: by its name, by a column, or as a column says.

A share is a keyed hash of the name, or of the column's value, and of nothing else: what is added or removed changes no
other video's part, and a larger share takes from ``train`` alone. The price is that shares are kept on average only.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from viewcache.errors import BadInput
from viewcache.materializer.randomness import address_word, uniform
from viewcache.materializer.spec import DatasetSpec, SplitSpec

__all__ = ["part_mask", "parts_of", "selection_words", "split_words"]

_NAMED = 6
"""Values of a column that an error names."""


def parts_of(split: SplitSpec, texts: Sequence[str]) -> list[str]:
    """The part that each text falls into, by shares.

    Args:
        split: with shares.
        texts: names of videos, or values of a column.
    """
    distinct = sorted(set(texts))
    words = np.array([address_word(text) for text in distinct], np.uint64)
    place = uniform(split.seed, "dataset/split", words)
    val, test = split.val or 0.0, split.test or 0.0
    part = np.where(place < val, "val", np.where(place < val + test, "test", "train"))
    of = dict(zip(distinct, part.tolist(), strict=True))
    return [of[text] for text in texts]


def part_mask(
    split: SplitSpec,
    part: str,
    names: Sequence[str],
    selected: NDArray[np.bool_],
    column: pa.Array | None,
    *,
    may_be_empty: bool = False,
) -> NDArray[np.bool_]:
    """(videos,) whether each is in a part.

    Args:
        split: of the dataset.
        part: which.
        names: of the videos.
        selected: (videos,) those that the parts share.
        column: (videos,) text, the column that the split is by, or that names the parts.
        may_be_empty: whether videos of an empty part may still come.

    Raises:
        BadInput: a video has no value in the column that the split is by, or a part has no video.
    """
    if split.column is not None:
        assert column is not None
        mine = np.asarray(pc.fill_null(pc.equal(column, part), False).to_numpy(zero_copy_only=False))
        if not (mine & selected).any() and not may_be_empty:
            values = sorted(set(column.filter(pa.array(selected)).drop_null().to_pylist()))
            there = ", ".join(map(repr, values[:_NAMED])) + (", …" if values[_NAMED:] else "")
            raise BadInput(
                f"part: {part!r} of the split by column {split.column!r} has no video; it has {there or 'none'}"
            )
        return mine
    if column is not None:
        lacking = np.flatnonzero(selected & column.is_null().to_numpy(zero_copy_only=False))
        if len(lacking):
            raise BadInput(
                f"split: column {split.by!r} has no value for {names[int(lacking[0])]!r} ({len(lacking)} videos): fill "
                f"it in, or leave them out by where: {split.by} is not null"
            )
    texts = names if column is None else ["" if each is None else each for each in column.to_pylist()]
    found = np.array(parts_of(split, texts))
    for each in split.parts:
        if not may_be_empty and not (selected & (found == each)).any():
            chosen = {texts[row] for row in np.flatnonzero(selected).tolist()}
            of = f"{int(selected.sum())} videos" if column is None else f"{len(chosen)} values of {split.by!r}"
            raise BadInput(
                f"split: {split_words(split)} leaves the part {each!r} empty, of {of}: take a larger share or another "
                "seed, or name the parts in a column of the label table"
            )
    return np.asarray(found == part)


def selection_words(spec: DatasetSpec) -> str:
    """What chooses a task's videos, as it is written."""
    where = [] if spec.where is None else [f"where: {spec.where!r}"]
    part = [] if spec.split is None else [f"part: {spec.part!r} of split: {split_words(spec.split)}"]
    return " with ".join([*where, *part])


def split_words(split: SplitSpec) -> str:
    """A split as it is written."""
    keys = ("val", "test", "by", "column")
    given = {key: value for key in keys if (value := getattr(split, key)) is not None}
    return "{" + ", ".join(f"{key}: {value}" for key, value in given.items()) + f", seed: {split.seed}" + "}"
