"""What opening a task would refuse of its label table, told by the names of the files alone.

No header is read, nothing is recorded, and no catalog is asked. So a condition that names what only headers tell, such
as ``frames > 100``, leaves open which videos are chosen, and then what must hold for the chosen ones is not looked at.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from viewcache.errors import BadInput, QueryRefused
from viewcache.materializer.dataset.classes import separated
from viewcache.materializer.dataset.columns import add_label
from viewcache.materializer.dataset.fields import Fields
from viewcache.materializer.dataset.labels import labels_for, taken
from viewcache.materializer.dataset.listed import Found
from viewcache.materializer.dataset.names import names_for
from viewcache.materializer.dataset.predicate import matching
from viewcache.materializer.dataset.rules import classes_of, part_of, refuse_below_zero, weights_of
from viewcache.materializer.dataset.said import Said
from viewcache.materializer.spec import ROOT, TaskSpec

__all__ = ["mistakes"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Listed:
    """What a label table says of listed files: each of its rows that names one, and each file that has none."""

    said: Said
    names: list[str]
    """Of each item's video."""
    paths: list[str]
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]


def mistakes(task: TaskSpec, files: Sequence[Found]) -> Iterator[tuple[str, BadInput]]:
    """What is wrong, each with the key of the dataset that it is about, in the order in which opening finds it.

    Args:
        task: whose table is looked at.
        files: of its dataset.

    Raises:
        DatasetNotFound: there is no such table.
        BadInput: it cannot be read, or names no video of the dataset.
    """
    spec = task.dataset
    listed = _listed(task, files)
    said = listed.said
    found: list[tuple[str, BadInput]] = []
    tried = partial(_tried, found)
    separator = spec.label_separator
    labels = said.labels if separator is None else tried("label_separator", lambda: separated(said.labels, separator))
    if labels is not None:
        classes = _tried(found, "labels", lambda: classes_of(spec, labels))
        fields = _tried(
            found, "fields", lambda: Fields(said.table, said.rows, said.further, spec.fields, grows=spec.grows)
        )
        weights = _tried(found, _weighted_by(task), lambda: weights_of(spec, said, labels))
        chosen = _chosen(task, listed, labels, found)
        if chosen is not None:
            clips = task.sampling.videos_per_batch * task.sampling.samples_per_video
            if classes is not None:
                tried("classes" if spec.classes else "labels", partial(classes.check, chosen))
                tried("labels", partial(refuse_below_zero, spec, said, classes.labels, chosen))
            if weights is not None:
                tried(_weighted_by(task), partial(weights.check, chosen, listed.names))
            if fields is not None:
                tried("fields", partial(fields.check, chosen, listed.names, clips))
    yield from found


def _tried(found: list[tuple[str, BadInput]], key: str, made: Callable[[], T]) -> T | None:
    try:
        return made()
    except BadInput as error:
        found.append((key, error))
        return None


def _chosen(
    task: TaskSpec, listed: _Listed, labels: pa.Array, found: list[tuple[str, BadInput]]
) -> NDArray[np.bool_] | None:
    """(items,) which the predicate and the split select; None if that cannot be told."""
    spec, said = task.dataset, listed.said
    selected = _selected(task, listed, labels)
    if selected is None or not selected.any():
        return None
    key = "part" if spec.split is not None and spec.split.column is not None else "split"
    part = _tried(found, key, lambda: part_of(spec, said, labels, listed.names, selected))
    return None if part is None else selected & part & (said.named | (not spec.grows))


def _weighted_by(task: TaskSpec) -> str:
    return "weight" if task.dataset.weight is not None else "mix" if task.dataset.mix else "balance"


def _listed(task: TaskSpec, files: Sequence[Found]) -> _Listed:
    spec = task.dataset
    paths = [each.path for each in files]
    names = names_for(paths)
    table = labels_for(
        paths,
        spec.labels,
        spec.label_video_column,
        spec.label_column,
        names,
        spec.label_start_column,
        spec.label_end_column,
    )
    without = np.setdiff1d(np.arange(len(files)), table.video)
    video = np.concatenate([table.video, without])
    entry = np.concatenate([np.arange(len(table.video)), np.full(len(without), -1)])
    named = entry >= 0
    start_s, end_s = np.full(len(video), -np.inf), np.full(len(video), np.inf)
    if table.segments is not None:
        start_s[named], end_s[named] = table.segments
    several = any(each.root for each in files) and ROOT not in table.others
    said = Said(
        taken(table.label, entry),
        table.table,
        np.concatenate([table.rows, np.full(len(without), -1)]),
        table.others,
        pa.array([files[row].root or None for row in video.tolist()]) if several else None,
        named,
        np.ones(len(video), bool),
        np.zeros(len(video), bool),
        pa.nulls(len(video), pa.string()),
    )
    of = video.tolist()
    return _Listed(said, [names[row] for row in of], [paths[row] for row in of], start_s, end_s)


def _selected(task: TaskSpec, listed: _Listed, labels: pa.Array) -> NDArray[np.bool_] | None:
    """(items,) which the predicate selects; None if only headers, or nobody, can tell."""
    where, said = task.dataset.where, listed.said
    if where is None:
        return np.ones(len(listed.names), bool)
    numbered = pa.types.is_integer(labels.type)
    if not (numbered or task.dataset.split or task.dataset.weighted or task.dataset.classes or task.dataset.fields):
        return None  # nothing depends on it
    columns = {
        "video": pa.array(listed.names),
        "name": pa.array(listed.names),
        "path": pa.array(listed.paths),
        "label": labels,
    }
    for name in sorted(said.others):
        columns.setdefault(name, said.column(name))
    if np.isfinite(listed.start_s).any() or np.isfinite(listed.end_s).any():
        columns.setdefault("start_s", pa.array(listed.start_s, mask=listed.start_s == -np.inf))
        columns.setdefault("end_s", pa.array(listed.end_s, mask=listed.end_s == np.inf))
    add_label(columns, task.dataset.label_column, labels)
    try:
        return matching(pa.table(columns), where)
    except (BadInput, QueryRefused):
        return None
