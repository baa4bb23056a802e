"""What was drawn, read from where it was recorded: orders and frames from the catalog, crops from the stored recipes.

Nothing here is computed again from a configuration: a plan that is wrong would agree with itself. The price is that
crops are known only of clips that lie in the store.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.records import TaskRow
from viewcache.errors import BadInput
from viewcache.materializer.ops import get
from viewcache.materializer.ops.base import Size
from viewcache.materializer.ops.crop import free_places
from viewcache.materializer.randomness import Words, address_word, hash_address, uniform
from viewcache.materializer.sampling import ClipSelection, clip_span

__all__ = [
    "CropWindow",
    "Footage",
    "RecordedClips",
    "are_whole",
    "clip_places",
    "crop_places",
    "load_clips",
    "start_values",
    "whole_orders",
    "windows_of",
]

_SEED = 0
"""Of the numbers that choose among correlated draws and spread discrete ones: the same cache gives the same p again."""


@dataclass(frozen=True)  # no slots: row_of is cached
class Footage:
    """The videos of a dataset as they are now; arrays of length n, by id."""

    ids: NDArray[np.int64]
    words: Words
    """Addresses of their random numbers."""
    frames: NDArray[np.int64]
    """0 where a file could not be indexed."""
    sizes: Mapping[str, Size]
    """Content key → height and width in pixels as shown, rotation applied."""

    @classmethod
    def load(cls, catalog: Catalog, dataset_id: int) -> "Footage":
        """Read a dataset's videos."""
        rows = catalog.load_video_sizes(dataset_id)
        sizes: dict[str, Size] = {}
        for row in rows.to_pylist():
            if row["height"] is not None and row["width"] is not None:
                size = row["height"], row["width"]
                sizes[row["key"]] = size[::-1] if row["rotation"] in (90, 270) else size
        return cls(
            rows["video_id"].to_numpy(),
            np.array([address_word(name) for name in rows["name"].to_pylist()], np.uint64),
            np.array([frames or 0 for frames in rows["frames"].to_pylist()], np.int64),
            sizes,
        )

    def rows(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where videos stand in the arrays."""
        return np.searchsorted(self.ids, ids)


@dataclass(frozen=True, slots=True)
class Drawn:
    """What of a recorded task is drawn at random, and can be tested."""

    order: bool
    starts: bool
    """Also recorded: those of clips that are sampled by time are not."""
    weighted: bool = False
    """Whether videos come by weight, and not once an epoch."""

    @classmethod
    def of(cls, task: TaskRow) -> "Drawn":
        """By its recorded definition."""
        try:
            settings, _ = json.JSONDecoder().raw_decode(task.definition)
        except ValueError:  # of an earlier release: then all was
            settings = {}
        sampling = settings.get("sampling", {})
        starts = sampling.get("clips", ClipSelection.RANDOM) == ClipSelection.RANDOM and sampling.get("fps") is None
        dataset = settings.get("dataset", {})
        weighted = any(dataset.get(key) is not None for key in ("weight", "balance", "mix"))
        return cls(bool(settings.get("shuffle", True)) and not weighted, starts, weighted)


@dataclass(frozen=True)  # no slots: frames is cached
class RecordedClips:
    """Recorded clips of some epochs of a task; arrays of length n."""

    task: TaskRow
    epoch: NDArray[np.int64]
    sample: NDArray[np.int64]
    video: NDArray[np.int64]
    """Row of the dataset's `Footage`."""
    object_id: NDArray[np.int64]
    start: NDArray[np.int64]
    """First frame; -1 where the frames are not regular, as those of a short video."""
    lists: tuple[Sequence[int], ...]
    """The frames where they are not regular, in the order of the rows."""

    def __len__(self) -> int:
        """Number of clips."""
        return len(self.epoch)

    @cached_property
    def frames(self) -> NDArray[np.int64]:
        """(n, F) source frames."""
        steps = self.task.frame_stride * np.arange(self.task.frames_per_clip)
        out = np.asarray(self.start[:, None] + steps)
        out[self.start < 0] = np.array(self.lists, np.int64).reshape(-1, self.task.frames_per_clip)
        return out

    def subset(self, rows: NDArray[np.bool_]) -> "RecordedClips":
        """The clips of some rows."""
        kept = rows[self.start < 0].tolist()
        lists = tuple(each for each, keep in zip(self.lists, kept, strict=True) if keep)
        return RecordedClips(
            self.task,
            self.epoch[rows],
            self.sample[rows],
            self.video[rows],
            self.object_id[rows],
            self.start[rows],
            lists,
        )


def load_clips(catalog: Catalog, task: TaskRow, footage: Footage, first_epoch: int, last_epoch: int) -> RecordedClips:
    """The clips of epochs first…last (inclusive), each (video, epoch, sample) once: a stand-in repeats a clip."""
    rows = catalog.load_clips(task.task_id, first_epoch, last_epoch)
    columns = [rows[name].to_numpy().astype(np.int64) for name in ("epoch", "sample", "object_id")]
    video = footage.rows(rows["video_id"].to_numpy())
    start = rows["frame_start"].fill_null(-1).to_numpy().astype(np.int64)
    lists = tuple(rows["frame_list"].drop_null().to_pylist())
    clips = RecordedClips(task, columns[0], columns[1], video, columns[2], start, lists)
    once = np.zeros(len(clips), bool)
    once[_first_of_each(clips.video, clips.epoch, clips.sample)] = True
    return clips.subset(once)


def are_whole(catalog: Catalog, task: TaskRow, footage: Footage) -> bool:
    """Whether all that a task has drawn are whole videos; where clips of segments start says `segment_starts`."""
    return bool(np.isin(catalog.first_drawn(task.task_id)["video_id"].to_numpy(), footage.ids).all())


def whole_orders(catalog: Catalog, task: TaskRow) -> list[NDArray[np.int64]]:
    """The orders of the epochs that are drawn to their end: ids of items; an epoch that breaks law 1 is left out."""
    drawn = catalog.load_draws(task.task_id, 0, int(np.iinfo(np.int32).max))
    epoch, position, video = (drawn[name].to_numpy() for name in ("epoch", "position", "video_id"))
    settled = catalog.load_settled(task.task_id)
    numbers, begins = np.unique(epoch, return_index=True)
    ends = [*begins.tolist(), len(epoch)][1:]  # of no epoch there is none
    orders = []
    for number, begin, end in zip(numbers.tolist(), begins.tolist(), ends, strict=True):
        order = video[begin:end]
        whole = settled.get(number, len(order)) >= len(order)
        if whole and np.array_equal(position[begin:end], np.arange(len(order))) and len(np.unique(order)) == len(order):
            orders.append(order)
    return orders


def clip_places(clips: RecordedClips, footage: Footage, generation: int, grid: int) -> NDArray[np.float64]:
    """Where the clips of one generation start, as independent values that are uniform in [0, 1) if starts are.

    The epochs of a generation share a fraction of each (video, sample), so one epoch of them is taken by lot; and its
    samples share the phase of the grid, so the place on that phase counts: with N places on it, place j is the value
    (j + V) / N, V uniform.

    Args:
        clips: of one generation.
        footage: of its dataset.
        generation: its number.
        grid: frames between the starts of one phase.

    Returns:
        One value per (video, sample) that had a choice. A clip that would not fit its video, which has another content
        now, has none.
    """
    frames = footage.frames[clips.video]
    return start_values(clips.task, generation, grid, clips.video, clips.epoch, clips.sample, clips.start, frames)


def start_values(
    task: TaskRow,
    generation: int,
    grid: int,
    of: NDArray[np.int64],
    epoch: NDArray[np.int64],
    sample: NDArray[np.int64],
    start: NDArray[np.int64],
    frames: NDArray[np.int64],
) -> NDArray[np.float64]:
    """The same of whatever has shared fractions of its own; arrays have one entry a clip.

    Args:
        task: whose clips.
        generation: its number.
        grid: frames between the starts of one phase.
        of: whose clip each is: a number from 0 of a video, or of a segment.
        epoch: of each.
        sample: of each.
        start: first frame, counted from the first one of what it is of; below 0 where there is none.
        frames: of what it is of.
    """
    starts = frames - clip_span(task.frames_per_clip, task.frame_stride) + 1
    lot = hash_address(_SEED, "verify/epoch", generation, of, sample, epoch)
    order = np.lexsort((lot, sample, of))
    order = order[start[order] >= 0]
    chosen = order[_first_of_each(of[order], sample[order])]
    start, starts = start[chosen], starts[chosen]
    place, phase = np.divmod(start, grid)
    places = (starts - 1 - phase) // grid + 1
    use = (start < starts) & (places > 1)
    spread = uniform(_SEED, "verify/start", generation, of[chosen], sample[chosen])
    return np.asarray(((place + spread) / np.maximum(places, 1))[use])


@dataclass(frozen=True, slots=True)
class CropWindow:
    """Where one random crop of a stored clip was cut."""

    y: int
    """Top row in pixels."""
    rows: int
    """How many rows it could have been, each equally likely."""
    x: int
    columns: int


def windows_of(attributes: Mapping[str, object], size: Size | None) -> list[CropWindow]:
    """The random crops in the recipe of a stored object.

    Args:
        attributes: as stored beside the pixels.
        size: height and width of the video's frames; None = not known, which gives no windows.

    Returns:
        One per crop that had a choice, in the order of the recipe. What stands behind an operation that is not
        installed here is left out, since its size is not known.
    """
    found, sizes = list[CropWindow](), {0: size}
    recipe = attributes.get("recipe")
    for entry in recipe if isinstance(recipe, list) else ():
        sizes[entry["to"]] = before = sizes.get(entry["from"][0])
        if "op" not in entry or before is None:
            continue
        params = tuple(sorted((name, _frozen(value)) for name, value in entry.get("params", {}).items()))
        drawn = entry.get("drawn", {})
        if {"y", "x", "h", "w"} <= drawn.keys():
            places = free_places(entry["op"], params, (drawn["h"], drawn["w"]), before)
            found += [CropWindow(drawn["y"], places[0], drawn["x"], places[1])] if places else []
        try:
            op = get(entry["op"])
        except BadInput:
            sizes[entry["to"]] = None
            continue
        after = op.out_size(params, before)
        sizes[entry["to"]] = (drawn["h"], drawn["w"]) if after is None and {"h", "w"} <= drawn.keys() else after
    return found


def crop_places(
    clips: RecordedClips, windows: Mapping[int, Sequence[CropWindow]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where random crops of stored clips lie, rows and columns, as independent values that are uniform if crops are.

    Crops are drawn apart for each (video, epoch, sample), so every use of a stored clip counts. Offset y of N is the
    value (y + V) / N, V uniform.

    Args:
        clips: of a task.
        windows: object id → the random crops of its recipe.
    """
    uses = list(_uses(clips, windows))
    if not uses:
        return np.empty(0), np.empty(0)
    at = np.array([(int(clips.video[row]), int(clips.epoch[row]), int(clips.sample[row]), k) for row, k, _ in uses]).T
    sides = []
    for side, offset, places in (
        ("y", [each.y for *_, each in uses], [each.rows for *_, each in uses]),
        ("x", [each.x for *_, each in uses], [each.columns for *_, each in uses]),
    ):
        of = np.array(places)
        values = (np.array(offset) + uniform(_SEED, f"verify/{side}", *at)) / of
        sides.append(np.asarray(values[of > 1]))
    return sides[0], sides[1]


def _uses(clips: RecordedClips, windows: Mapping[int, Sequence[CropWindow]]) -> Iterator[tuple[int, int, CropWindow]]:
    for row, object_id in enumerate(clips.object_id.tolist()):
        for k, window in enumerate(windows.get(object_id, ())):
            yield row, k, window


def _first_of_each(*columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first row of each combination of values, which are not negative."""
    if not len(columns[0]):
        return np.empty(0, np.int64)
    one = np.ravel_multi_index(columns, tuple(int(column.max()) + 1 for column in columns))
    return np.unique(one, return_index=True)[1]


def _frozen(value: object) -> object:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
