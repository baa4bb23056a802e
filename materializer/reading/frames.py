"""Single frames by name: frame i of a video, and the same after the first d augmentation steps (SAND Table 1).

They are planned like clips of one frame and made by the same dispatcher, so a frame after its last step is, to the bit,
what the batch holds. A step has a single-frame meaning as long as no merge lies before it.
"""

import logging
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.kinds import ObjectKind
from viewcache.catalog.records import ObjectRow
from viewcache.catalog.rows import object_table
from viewcache.errors import Broken, ViewNotFound
from viewcache.materializer.choices import BranchType
from viewcache.materializer.dataset.clock import nearest, ticks_of
from viewcache.materializer.dataset.video_file import VideoFile
from viewcache.materializer.keys import content_key
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.media.pixels import frame_from_planes, to_rgb
from viewcache.materializer.ops import get
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.program import Instruction, InstructionKind, Program
from viewcache.materializer.planning.recipe import Recipe, VideoSource
from viewcache.materializer.planning.resolve import ResolvedStream, resolve_stream
from viewcache.materializer.planning.size import clip_bound
from viewcache.materializer.reading.learning import Learning
from viewcache.materializer.sampling import TICKS_PER_S
from viewcache.materializer.scheduling.dispatcher import Dispatcher
from viewcache.materializer.scheduling.work import READ_TRIES, SECONDS_PER_FRAME, Makeable, RowState
from viewcache.materializer.spec import StepSpec
from viewcache.materializer.storage.ledger import Copy
from viewcache.materializer.storage.tiers import Tiers
from viewcache.materializer.tasks.task import Task
from viewcache.materializer.workers.job import Made

__all__ = ["Moment", "SingleFrame", "SingleWork", "Singles"]

_log = logging.getLogger("viewcache.read")

KNOWN_IDS = 4096
"""Object ids of single frames that stay in memory."""

NAMED_ITEMS = 10
"""Of a video, that a message names."""

_registering = threading.Lock()
"""Two threads that ask for the same new frame must not give it two ids."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The frame that is shown nearest to a time; of two equally near ones the earlier."""

    at_s: float
    """Presentation time in seconds."""


@dataclass(frozen=True, slots=True)
class SingleFrame:
    """One frame, decided but not made."""

    video_id: int
    video: str
    """The video's name in paths."""
    uri: str
    video_key: str
    index: VideoIndex
    frame: int
    depth: int
    """Augmentation steps done."""
    shape: tuple[int, int, int]
    """(3,H,W)."""
    recipe: Recipe
    """Of a clip of one frame, (1,3,H,W), or of the decoder's planes, (1, bytes): half of RGB's."""

    def pixels(self, stored: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Stored bytes, (1,3,H,W) or (1, bytes), as RGB (3,H,W)."""
        if not self.recipe.native:
            rgb: NDArray[np.uint8] = stored[0]
            return rgb
        frame = frame_from_planes(stored[0], self.index)
        return to_rgb(frame, rotation=self.index.rotation, mirrored=self.index.mirrored)

    @property
    def time_s(self) -> float:
        """Presentation time in seconds."""
        return float(self.index.times_s(np.array([self.frame]))[0])


class SingleWork(Makeable):
    """Single frames to be made for one reader; each row is a frame."""

    def __init__(self, task_id: int, wanted: Sequence[SingleFrame], object_ids: dict[str, int]) -> None:
        """Take the frames and the ids of their objects by key."""
        self.task_id = task_id
        self._wanted = wanted
        self._object_ids = object_ids
        self._states = [RowState.PLANNED] * len(wanted)

    def bound(self, row: int) -> int:
        """Most bytes that a row's object takes on disk."""
        return self._wanted[row].recipe.bound

    def key(self, row: int) -> str:
        """Content key of a row's object."""
        return self._wanted[row].recipe.key

    def video(self, row: int) -> str:
        """Content key of the video that a row is made of."""
        return self._wanted[row].video_key

    def state(self, row: int) -> RowState:
        """How far a row is."""
        return self._states[row]

    def set_state(self, row: int, state: RowState) -> None:
        """Note how far a row is."""
        self._states[row] = state

    def rows_of(self, key: str) -> list[int]:
        """The rows that need an object; empty if none does."""
        return [row for row, each in enumerate(self._wanted) if each.recipe.key == key]

    def source(self, row: int) -> VideoSource:
        """The video that a row is made of."""
        each = self._wanted[row]
        return VideoSource(each.uri, each.video, each.video_key, each.index.to_bytes(), each.index.frames)

    def recipe(self, row: int) -> Recipe:
        """How a row's frame is made."""
        return self._wanted[row].recipe

    def copy(self, made: Made, row: int) -> Copy:
        """The catalog's and the store's view of an object that was just made for a row."""
        return Copy(self._object_ids[made.key], made.key, made.stored, made.written.bytes)


class Singles:
    """The single frames of one task. Thread-safe."""

    def __init__(
        self, task: Task, catalog: Catalog, tiers: Tiers, dispatcher: Callable[[], Dispatcher], learning: Learning
    ) -> None:
        """Find frames of ``task``, in these tiers or made by the dispatcher."""
        self._learning = learning
        self._task = task
        self._catalog = catalog
        self._tiers = tiers
        self._dispatcher = dispatcher
        self._ids: dict[str, int] = {}

    # Deciding ------------------------------------------------------------------------------------------------------

    def look(self, videos: Iterable[str]) -> None:
        """Look into some videos together, by name, rather than into each by itself when a frame of it is asked for.

        What is wrong with one is told then.
        """
        dataset = self._task.dataset
        found = (dataset.files.row_of_name.get(each) for each in videos)
        rows = [row for row in found if row is not None]
        dataset.files.headers.look(rows)
        self._learning.look(dataset, dataset.files.ids[rows].tolist())

    def frame(self, video: str, place: int | Moment) -> SingleFrame:
        """A frame as decoded, by its number or by its time.

        Raises:
            ViewNotFound: no such video or frame, or nothing is shown then; the message has the range.
            BadVideo: the video cannot be decoded.
        """
        found, index, i = self._video(video, place)
        return _single(found, index, i, 0, Program(()), np.zeros(0, np.int32), index.shown_size)

    def aug(
        self,
        video: str,
        place: int | Moment,
        depth: int,
        *,
        epoch: int | None = None,
        sample: int = 0,
        output: str | None = None,
        item: int | None = None,
    ) -> SingleFrame:
        """A frame after the first ``depth`` steps, with the numbers that a clip of the video drew.

        Args:
            video: its name in paths.
            place: number or time of any frame of it, in the clip or not.
            depth: steps in the order in which they run, from 1.
            epoch: of the clip; None = the first use in the generation that the task is in.
            sample: ordinal of the clip among the video's clips in its epoch.
            output: which output of a step that has several; None = the first.
            item: ``item_id`` of what the clip is of, a segment or the whole video; None = the first in the plan.

        Raises:
            ViewNotFound: no such video, frame, time, step, output, epoch, item or sample, a step after a merge, or the
                video is not drawn in that epoch; the message has what there is.
            BadVideo: the video cannot be decoded.
        """
        found, index, i = self._video(video, place)
        step, stream = self._step(depth, output)
        plan, row = self._clip(found.video_id, video, epoch, sample, item)
        resolved = resolve_stream(
            self._task.graph, depth, stream, self._task.spec.sampling.frames_per_video, plan.clip(row)
        )
        chain = _chain(resolved)
        if chain is None:
            raise ViewNotFound(
                f"step {depth} ({step.name!r}) of task {self._task.spec.name!r} sees whole clips, or comes after a "
                f"merge or such a step; single frames have a meaning after steps {_listed(self.depths())}"
            )
        return _single(found, index, i, depth, *chain, (resolved.height, resolved.width))

    def depths(self) -> tuple[int, ...]:
        """The steps, from 1, after which single frames have a meaning."""
        joined: set[str] = set()
        depths = []
        for depth, step in enumerate(self._task.graph.steps, 1):
            if step.branch_type == BranchType.MERGE or joined.intersection(step.inputs) or _needs_clips(step):
                joined.update(step.outputs)
            else:
                depths.append(depth)
        return tuple(depths)

    def _video(self, video: str, place: int | Moment) -> tuple[VideoFile, VideoIndex, int]:
        dataset = self._task.dataset
        found = dataset.one(video)
        index = self._learning.index_of(dataset, found.video_id)
        if isinstance(place, Moment):
            return found, index, _shown_at(video, index, place.at_s)
        if not 0 <= place < index.frames:
            raise ViewNotFound(f"video {video!r} has frames 0 to {index.frames - 1}; asked for {place}")
        return found, index, place

    def _step(self, depth: int, output: str | None) -> tuple[StepSpec, str]:
        steps, name = self._task.graph.steps, self._task.spec.name
        if not steps:
            raise ViewNotFound(f"task {name!r} has no augmentation steps; asked for step {depth}")
        if not 1 <= depth <= len(steps):
            raise ViewNotFound(f"task {name!r} has augmentation steps 1 to {len(steps)}; asked for {depth}")
        step = steps[depth - 1]
        if output is not None and output not in step.outputs:
            raise ViewNotFound(f"step {depth} ({step.name!r}) makes {', '.join(step.outputs)}; asked for {output!r}")
        return step, output or step.outputs[0]

    def _clip(
        self, video_id: int, video: str, epoch: int | None, sample: int, item: int | None
    ) -> tuple[GenerationPlan, int]:
        """The plan and the row of the clip that is meant."""
        task = self._task
        samples = task.spec.sampling.samples_per_video
        if sample < 0 or (sample >= samples and task.spec.dataset.weighted is None):
            raise ViewNotFound(f"task {task.spec.name!r} has samples 0 to {samples - 1} of a video; asked for {sample}")
        if item is not None:
            self._check_item(video_id, video, item)
        plan = task.generation(self._current() if epoch is None else task.generation_of(epoch)).plan
        place = plan.videos.row_of.get(video_id, -1)
        rows = np.flatnonzero((plan.video == place) & (plan.ordinal == sample))
        if item is not None:
            rows = rows[plan.items.ids[plan.item[rows]] == item]
        drawn = np.unique(plan.epoch[rows])
        if epoch is not None:
            rows = rows[plan.epoch[rows] == epoch]
        if not len(rows):
            where = f"epochs {plan.first_epoch} to {plan.last_epoch}" if epoch is None else f"epoch {epoch}"
            hint = f"; of epochs {plan.first_epoch} to {plan.last_epoch} it is in {_listed(drawn.tolist())}"
            of = "" if item is None else f"item {item} of "
            raise ViewNotFound(
                f"{of}video {video!r} is not drawn in {where} of task {task.spec.name!r}{hint if len(drawn) else ''}"
            )
        return plan, int(rows[0])

    def _check_item(self, video_id: int, video: str, item: int) -> None:
        files, items = self._task.dataset.files, self._task.dataset.items
        mine = items.ids[items.file == files.row_of[video_id]].tolist()
        if item not in mine:
            more = f", and {len(mine) - NAMED_ITEMS} more: the relation items has all" if mine[NAMED_ITEMS:] else ""
            raise ViewNotFound(f"video {video!r} has the items {_listed(mine[:NAMED_ITEMS])}{more}; asked for {item}")

    def _current(self) -> int:
        """The generation that the task's readers have reached."""
        reached = max((row.epoch for row in self._catalog.load_progress(self._task.task_id)), default=0)
        return self._task.generation_of(min(reached, self._task.spec.epochs - 1))

    # Reading -------------------------------------------------------------------------------------------------------

    def read(self, wanted: Sequence[SingleFrame]) -> list[NDArray[np.uint8]]:
        """Pixels of some frames, uint8 (3,H,W) each; those that are not in the store are made now, a video at a time.

        Raises:
            BadVideo: a video cannot give a frame.
            Broken: frames were damaged again and again.
        """
        out = [np.empty(each.recipe.shape, np.uint8) for each in wanted]
        if not wanted:
            return []
        dispatcher, work = self._dispatcher(), SingleWork(self._task.task_id, wanted, self._object_ids(wanted))
        for _ in range(READ_TRIES):
            with dispatcher.fetch(work, range(len(wanted))) as fetched:
                wrong, _ = self._tiers.read_slots(fetched.copies, out)
            if not wrong:
                return [each.pixels(array) for each, array in zip(wanted, out, strict=True)]
            dispatcher.evictor.rebuild(fetched.copies, wrong)
        raise Broken(
            f"frames of {wanted[0].video!r} were damaged {READ_TRIES} times in a row after being made anew; check the "
            "disk, then run `viewcache doctor`"
        )

    def _object_ids(self, wanted: Sequence[SingleFrame]) -> dict[str, int]:
        """Id of each frame's object by key; new ones get a row in the catalog."""
        fresh = {each.recipe.key: each for each in wanted}
        with _registering, self._catalog.naming:
            ids = {key: self._ids[key] for key in fresh if key in self._ids}
            missing = [key for key in fresh if key not in ids]
            if missing:
                found = self._catalog.objects_by_key(missing).to_pylist()
                ids |= {row["key"]: row["object_id"] for row in found}
                known = {row["key"] for row in found if not row["adopted"]}
                new = [key for key in missing if key not in ids]
                first = self._catalog.next_object_id(len(new))
                ids |= {key: first + k for k, key in enumerate(new)}
                if missing := [key for key in missing if key not in known]:
                    self._catalog.record_objects(_rows([fresh[key] for key in missing], ids))
            self._ids |= ids
            while len(self._ids) > KNOWN_IDS:
                del self._ids[next(iter(self._ids))]
        return ids


def _shown_at(video: str, index: VideoIndex, at_s: float) -> int:
    first, last = index.times_s(np.array([0, index.frames - 1])).tolist()
    end = last + (1 / index.fps if index.fps > 0 else 0.0)
    if not first <= at_s <= end:
        raise ViewNotFound(f"video {video!r} is shown from {first:g} s to {end:g} s; asked for {at_s:g} s")
    return int(nearest(np.array([round((at_s - first) * TICKS_PER_S)]), ticks_of(index))[0])


def _single(
    found: VideoFile,
    index: VideoIndex,
    i: int,
    depth: int,
    program: Program,
    drawn: NDArray[np.int32],
    size: tuple[int, int],
) -> SingleFrame:
    frames = np.array([i], np.int32)
    parts = bytes.fromhex(found.key), program.signature, frames.astype("<i4").tobytes(), drawn.astype("<i4").tobytes()
    # After steps that change no pixel of this frame it is the frame as decoded, under the same key.
    decoded = not program.instructions
    planes = index.native_bytes if decoded else None
    stored = (1, 3, *size) if planes is None else (1, planes)
    key, bound = content_key("single", *parts), clip_bound(math.prod(stored), 1)
    kind = ObjectKind.FRAMES if decoded else ObjectKind.AUG
    recipe = Recipe(key, program, drawn, frames, stored, 0, bound, kind, native=planes is not None)
    return SingleFrame(found.video_id, found.name, found.uri, found.key, index, i, depth, (3, *size), recipe)


def _needs_clips(step: StepSpec) -> bool:
    """Whether an operation of a step sees all frames of a clip together."""
    return any(get(call.name).stage == "clip" for call in step.calls)


def _chain(resolved: ResolvedStream) -> tuple[Program, NDArray[np.int32]] | None:
    """The frame operations that lead to the stream, numbered anew, and their part of the row; None behind whole clips.

    Operations on the order of frames are left out: they move a frame and do not change it.
    """
    made = {each.target: each for each in resolved.program.instructions}
    way: list[Instruction] = []
    stream = resolved.number
    while stream:
        instruction = made[stream]
        if instruction.kind != InstructionKind.OP:
            return None
        stage = get(instruction.name).stage
        if stage == "clip":
            return None
        if stage == "frame":
            way.append(instruction)
        (stream,) = instruction.sources
    instructions, drawn, column = [], [np.zeros(0, np.int32)], 0
    for k, each in enumerate(reversed(way)):
        instructions.append(Instruction(InstructionKind.OP, (k,), k + 1, each.name, each.params, column, each.width))
        drawn.append(resolved.row[each.column : each.column + each.width])
        column += each.width
    return Program(tuple(instructions)), np.concatenate(drawn)


def _rows(fresh: list[SingleFrame], ids: dict[str, int]) -> pa.Table:
    """The frames as the catalog records them."""
    return object_table(
        [
            ObjectRow(
                object_id=ids[each.recipe.key],
                key=each.recipe.key,
                kind=each.recipe.kind,
                video_id=each.video_id,
                depth=each.depth if each.recipe.kind == ObjectKind.AUG else 0,
                est_bytes=math.prod(each.recipe.shape),
                cost_s=SECONDS_PER_FRAME,
                keep=False,
                shape="x".join(map(str, each.recipe.shape)),
                frame_start=each.frame,
                frame_stride=1,
                frame_count=1,
            )
            for each in fresh
        ]
    )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"
