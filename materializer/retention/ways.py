"""The ways to keep a video's clips: which there are, and what they are chosen for (SAND §5.3)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog.kinds import ObjectKind
from viewcache.materializer.media.loss import LOSSY
from viewcache.materializer.media.media_index import MediaIndex
from viewcache.materializer.media.source import Stamp
from viewcache.materializer.ops import NativeOp, get
from viewcache.materializer.ops.lossy import LOSSY_OP
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.program import Instruction, InstructionKind
from viewcache.materializer.retention.horizon import epochs_left

__all__ = [
    "INTERMEDIATES",
    "ClipKind",
    "How",
    "Kept",
    "ToCome",
    "Way",
    "Where",
    "are_images",
    "kinds_of",
    "ways_of",
]

INTERMEDIATES = (None, ObjectKind.FRAMES, ObjectKind.AUG)
"""What may be kept for clips that are not: nothing, decoded frames, resized frames."""

MOST_KINDS = 4
"""With more kinds of clips than this either all are kept or none."""


How = tuple[tuple[Instruction, ...], bytes] | None
"""The resize that pictures have had, and the loss behind it, with the resize's numbers; None = as decoded."""


@dataclass(frozen=True, slots=True)
class Way:
    """A column of `Options`."""

    kept: int
    """The clips of so many kinds are kept, the small ones first."""
    intermediate: ObjectKind | None
    """One of `INTERMEDIATES`: what is kept for the others; None is nothing."""
    codec: str = ""
    """How pictures of all frames that clips can have are written, for this generation and those behind it; empty: only
    those that this generation needs are kept, until it is over."""

    @property
    def lasts(self) -> bool:
        """Whether what it keeps is of use behind the generation."""
        return self.codec != ""

    @property
    def keeps(self) -> bool:
        """Whether it keeps clips or pictures."""
        return self.kept > 0 or self.intermediate is not None


@dataclass(frozen=True, slots=True)
class ClipKind:
    """Clips that are made alike: of one task, or of several with the same steps."""

    plans: tuple[int, ...]
    """Which of the plans."""
    clip_bytes: int
    """Raw."""
    bound: int
    """Most bytes that one takes on disk, with its audio."""
    resize: Instruction | None
    """The resize that every clip begins with."""
    loss: Instruction | None = None
    """The loss that its task allows behind that."""

    @property
    def draws_its_size(self) -> bool:
        """Whether the resize is another one for each clip."""
        if self.resize is None:
            return False
        op = get(self.resize.name)
        return isinstance(op, NativeOp) and op.is_drawn

    def how(self, plan: GenerationPlan, row: int, intermediate: ObjectKind | None) -> "How":
        """What pictures for the clip of a row have been through."""
        steps, width = self._steps(intermediate)
        return (steps, plan.resolved.rows[row, :width].tobytes()) if steps else None

    def hows(
        self, plan: GenerationPlan, rows: NDArray[np.int64], intermediate: ObjectKind | None
    ) -> "list[tuple[How, NDArray[np.int64]]]":
        """The same of the clips of some rows, each once, with the places of those rows among them."""
        steps, width = self._steps(intermediate)
        if not steps or not len(rows):
            return [(None, np.arange(len(rows)))] if len(rows) else []
        numbers, which = np.unique(plan.resolved.rows[rows, :width], axis=0, return_inverse=True)
        order = np.argsort(which.reshape(-1), kind="stable")
        parts = np.split(order, np.cumsum(np.bincount(which.reshape(-1), minlength=len(numbers)))[:-1])
        return [((steps, each.tobytes()), part) for each, part in zip(numbers, parts, strict=True)]

    def _steps(self, intermediate: ObjectKind | None) -> tuple[tuple[Instruction, ...], int]:
        """What is done to each picture, and how many numbers of a row say how; nothing to those as decoded."""
        if self.resize is None or (intermediate != ObjectKind.AUG and self.loss is None):
            return (), 0
        return ((self.resize,) if self.loss is None else (self.resize, self.loss)), self.resize.width


@dataclass(frozen=True, slots=True)
class ToCome:
    """A plan, and how far its clips are."""

    plan: GenerationPlan
    index_of: Callable[[int], MediaIndex]
    """The packet index of a row of the plan's videos."""
    rows: NDArray[np.bool_]
    """(n,) clips that are still to be read."""
    ready: NDArray[np.bool_]
    """(n,) clips that are in the store."""
    far: Callable[[int], Stamp | None] | None = None
    """Tells the version of the file of a row of the plan's videos, if it lies far away; None = none does."""

    def batches(self) -> int:
        """How many have something that is to come."""
        plan = self.plan
        return len(np.unique(np.stack([plan.epoch[self.rows], plan.iteration[self.rows]]), axis=1).T)

    def anew(self) -> "ToCome":
        """A generation like this one of which nothing is made; of a task without further epochs nothing is to come."""
        plan = self.plan
        rows = np.full(len(plan), epochs_left(plan) > 0)
        return replace(self, rows=rows, ready=np.zeros(len(plan), np.bool_))


@dataclass(frozen=True, slots=True)
class Where:
    """V videos in the order in which they are needed, and where some plans have them."""

    videos: tuple[str, ...]
    """Content keys."""
    plan: NDArray[np.int64]
    """(V,) the number of the first plan that has each."""
    row: NDArray[np.int64]
    """(V,) its row among the videos of that plan."""
    places: tuple[NDArray[np.int64], ...]
    """Of each plan: which of the V each of its videos is, -1 if none."""

    @classmethod
    def of(cls, plans: Sequence[ToCome]) -> "Where":
        """The videos that have clips to come."""
        codes: dict[str, int] = {}
        for number, each in enumerate(plans):
            rows, first = np.unique(each.plan.video[each.rows], return_index=True)
            rows = rows[np.argsort(first)]
            for key, code in zip(each.plan.videos.keys.taken(rows), (rows * len(plans) + number).tolist(), strict=True):
                codes.setdefault(key, code)
        row, plan = np.divmod(np.fromiter(codes.values(), np.int64, len(codes)), max(1, len(plans)))
        place = dict(zip(codes, range(len(codes)), strict=True))
        return cls(tuple(codes), plan, row, tuple(_places(place, each.plan.videos.keys) for each in plans))

    def places_of(self, some: Sequence[Iterable[str]]) -> list[NDArray[np.int64]]:
        """Which of the V each of some tasks' videos is, by their content keys; -1 if none."""
        place = dict(zip(self.videos, range(len(self.videos)), strict=True)) if some else {}  # there may be a million
        return [_places(place, keys) for keys in some]

    def first(self, place: int) -> tuple[int, int]:
        """The number of the first plan that has a video, and the video's row there."""
        return int(self.plan[place]), int(self.row[place])


def _places(place: Mapping[str, int], keys: Iterable[str]) -> NDArray[np.int64]:
    return np.array([place.get(key, -1) for key in keys], np.int64)


def are_images(plans: Sequence[ToCome], videos: Sequence[str]) -> NDArray[np.bool_]:
    """(videos,) whether each of some videos of these plans, by its content key, is an image: mostly all are, or none.

    Then no set of a million keys is made.
    """
    of_images = [each.plan.blocks is not None for each in plans]
    if all(of_images) or not any(of_images):
        return np.full(len(videos), all(of_images))
    images = {key for each in plans if each.plan.blocks is not None for key in each.plan.videos.keys}
    return np.array([video in images for video in videos], np.bool_)


@dataclass(frozen=True, slots=True)
class Kept:
    """What was chosen for a video before: it need not be made again."""

    way: Way
    bytes: int
    """Of its intermediates, all of them."""
    made: bool
    """Whether they are in the store."""
    share: float = 1.0
    """Part of their pictures that is, where not all are."""
    is_coming: bool = False
    """Whether they are yet to be made, for an earlier generation."""


def kinds_of(plans: Sequence[GenerationPlan]) -> tuple[ClipKind, ...]:
    """Which plans make the same clips, the kinds with small clips first."""
    members: dict[tuple[object, ...], list[int]] = {}
    for number, plan in enumerate(plans):
        sampling = plan.task.sampling
        steps = tuple(sorted({program.signature for program in plan.resolved.programs}))
        alike = (
            steps,
            sampling.frames_per_video,
            sampling.pitch,
            sampling.by_time,
            plan.shape,
            _resize(plan),
            plan.room,
        )
        members.setdefault(alike, []).append(number)
    found = []
    for each in members.values():
        plan = plans[each[0]]
        found.append(ClipKind(tuple(each), plan.clip_bytes, plan.room, _resize(plan), _loss(plan)))
    return tuple(sorted(found, key=lambda kind: kind.clip_bytes))


def _resize(plan: GenerationPlan) -> Instruction | None:
    """The first operation, if it is the same resize in all programs; its numbers are then the row's first."""
    first = {program.instructions[:1] for program in plan.resolved.programs}
    if len(first) == 1:
        for instruction in next(iter(first)):
            if instruction.kind == InstructionKind.OP and isinstance(get(instruction.name), NativeOp):
                return instruction
    return None


def _loss(plan: GenerationPlan) -> Instruction | None:
    """The loss behind the resize: it is part of the definition, so all programs have it or none has."""
    second = next(iter(plan.resolved.programs)).instructions[1:2]
    return second[0] if second and second[0].name == LOSSY_OP else None


def ways_of(kinds: Sequence[ClipKind], codecs: Sequence[str]) -> tuple[Way, ...]:
    """All ways to keep clips of some kinds; ``codecs`` are those of what lasts, none where no epoch comes behind.

    Where all clips that are not kept have a loss, their packets are one more; where some have, nothing is kept as
    decoded: the others could be made of it, and these could not.
    """
    counts = range(len(kinds) + 1) if len(kinds) <= MOST_KINDS else (0, len(kinds))
    found = []
    for kept in counts:
        lossy = [kind.loss is not None for kind in kinds[kept:]]
        for each in INTERMEDIATES:
            if (each is not None and not lossy) or (each == ObjectKind.FRAMES and any(lossy)):
                continue
            packets = (LOSSY,) if codecs and all(lossy) else ()
            found += [Way(kept, each, codec) for codec in ("", *((*codecs, *packets) if each is not None else ()))]
    return tuple(found)
