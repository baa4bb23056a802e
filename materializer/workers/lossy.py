"""The loss that tasks allow, in one job: frames are gathered in groups of their video, encoded and decoded again.

A clip needs some frames of a group; for the encoder all of them are decoded. So what comes out is the same whichever
clips ask for it, and a clip that is made alone has the pixels of one that is made with all others (law 3).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadVideo, Broken
from viewcache.materializer.media.loss import GROUP, LOSSY, encoding_order
from viewcache.materializer.media.lossy import Group, encode
from viewcache.materializer.ops import get
from viewcache.materializer.ops.lossy import LOSSY_OP, loss_of, stride_of
from viewcache.materializer.planning.program import FrameStep, grow
from viewcache.materializer.planning.recipe import Recipe
from viewcache.materializer.workers.encoding import Packed, as_pixels
from viewcache.store import join_packets
from viewcache.store.codec_trial import Trial

__all__ = ["LossyEncoding", "LossySteps", "lossy_step"]

Bytes = NDArray[np.uint8]


class Frame(Protocol):
    """A frame and what has been made of it."""

    was_read: bool
    """Whether it comes from what is kept: with all that is wanted of it, and valid until the next one is read."""

    def at(self, node: FrameStep | None) -> np.ndarray:
        """uint8 (3,H,W) after the chain that ends in ``node``."""

    def put(self, node: FrameStep, picture: np.ndarray) -> None:
        """Note what it is there."""

    def settle(self, nodes: Iterable[FrameStep]) -> None:
        """Make it at some nodes, and let go of the decoded frame."""


AFrame = TypeVar("AFrame", bound=Frame)


def lossy_step(node: FrameStep | None) -> FrameStep | None:
    """The step on the way to a node behind which pictures have a loss; None if they have none."""
    while node is not None and node.name != LOSSY_OP:
        node = node.parent
    return node


def _step_of(recipe: Recipe) -> FrameStep:
    """The lossy step of an object of packets."""
    step = lossy_step(grow(recipe.program, recipe.frames[:1], recipe.row).nodes[0])
    assert step is not None  # the recipe's codec says so
    return step


def _in_this_process(nodes: Iterable[FrameStep | None]) -> list[FrameStep] | None:
    """Those without a loss; None if one is the decoded frame itself, or made by op workers, which take it later."""
    found: list[FrameStep] = []
    for node in nodes:
        if node is None or get(node.name).out_of_process:
            return None
        if node.name != LOSSY_OP:
            found.append(node)
    return found


@dataclass(slots=True)
class _Step:
    """One step, and what is wanted of it."""

    order: NDArray[np.int32]
    """All frames as they are encoded."""
    place: NDArray[np.int64]
    """Frame → where it is in that."""
    wanted: dict[int, set[int]] = field(default_factory=dict)
    """Group → frames that are wanted."""
    packed: Counter[int] = field(default_factory=Counter)
    """Groups of which packets are stored → in how many objects."""

    @classmethod
    def of(cls, step: FrameStep, frames: int) -> "_Step":
        order = encoding_order(frames, stride_of(step.params))
        return cls(order, np.argsort(order))

    def group(self, number: int) -> int:
        return int(self.place[number]) // GROUP

    def members(self, group: int) -> list[int]:
        found: list[int] = self.order[group * GROUP : (group + 1) * GROUP].tolist()
        return found


class LossySteps:
    """Of one job."""

    def __init__(
        self,
        frames: int,
        lost: Callable[[FrameStep, list[int], str], None],
        unencoded: Callable[[FrameStep, list[int], str], None],
        lap: Callable[[str], object],
    ) -> None:
        """Want nothing yet.

        Args:
            frames: of the video.
            lost: told of a step that cannot be done on some frames, and why.
            unencoded: the same where the encoder failed, which says nothing about the video.
            lap: charges the time since it was called last to a stage.
        """
        self._end, self._lost, self._unencoded, self._lap = frames, lost, unencoded, lap
        self._steps: dict[FrameStep, _Step] = {}
        self._groups: dict[tuple[FrameStep, int], Group] = {}
        """Those whose packets are stored, until all objects have asked for them."""
        self._psnr_db: dict[tuple[FrameStep, int], float] = {}
        self.trials: list[Trial] = []
        """What encoding and decoding took."""

    def __bool__(self) -> bool:
        """Whether anything is wanted."""
        return bool(self._steps)

    def want(self, number: int, node: FrameStep | None) -> None:
        """What a chain makes of a source frame is wanted."""
        step = lossy_step(node)
        if step is not None:
            of = self._step(step)
            of.wanted.setdefault(of.group(number), set()).add(number)

    def are_whole(self, recipe: Recipe) -> bool:
        """Whether an object of packets has whole groups of the video as it is."""
        of = self._step(_step_of(recipe))
        starts = range(0, len(recipe.frames), GROUP)
        groups = (recipe.frames[start : start + GROUP].tolist() for start in starts)
        return all(of.members(of.group(mine[0])) == mine for mine in groups)

    def keep_packets(self, step: FrameStep, frames: Iterable[int]) -> None:
        """The packets of these frames are to be stored."""
        of = self._step(step)
        of.packed.update(set(map(of.group, frames)))

    def must_encode(self, number: int) -> bool:
        """Whether packets of a frame are to be stored: pictures that were read have none."""
        return any(of.packed and of.group(number) in of.packed for of in self._steps.values())

    def whole(self, due: Mapping[int, int]) -> dict[int, int]:
        """The frames that must be decoded so that some of them can be had.

        Args:
            due: frame → its priority; lower first.

        Returns:
            The same with those that are encoded together with them, which are as urgent.
        """
        found = dict(due)
        for number, urgency in due.items():
            for of in self._steps.values():
                group = of.group(number)
                for other in of.members(group) if group in of.wanted else ():
                    found[other] = min(urgency, found.get(other, urgency))
        return found

    def frames(
        self,
        given: Iterable[tuple[int, AFrame]],
        failed: Mapping[int, str],
        roots: Mapping[int, Set[FrameStep | None]],
    ) -> Iterator[tuple[int, AFrame]]:
        """The same frames, each when all its steps are made.

        Args:
            given: source frames and their numbers.
            failed: frames that cannot be decoded, and why, as far as is known by then.
            roots: frame → the first step of each way that is wanted of it, as `root_of` says.
        """
        held: dict[tuple[FrameStep, int], dict[int, AFrame]] = {}
        parked: dict[int, tuple[AFrame, set[FrameStep]]] = {}
        """Frames of which steps are still to be made."""

        def done(step: FrameStep, numbers: Iterable[int]) -> Iterator[tuple[int, AFrame]]:
            for number in sorted(numbers):
                frame, missing = parked[number]
                missing.discard(step)
                if not missing:
                    del parked[number]
                    yield number, frame

        for number, frame in given:
            missing: set[FrameStep] = set()
            whole: list[FrameStep] = []
            needs: set[FrameStep | None] = set()
            for step, of in () if frame.was_read else self._steps.items():
                group = of.group(number)
                if group not in of.wanted:
                    continue
                there = held.setdefault((step, group), {})
                there[number] = frame
                needs.add(step.parent)
                if number in of.wanted[group]:
                    missing.add(step)
                if len(there) == len(of.members(group)):
                    whole.append(step)
            # Until its group is whole a frame waits, beside as many others as the stride is long.
            if needs and (ways := _in_this_process(needs | roots.get(number, set()))) is not None:
                frame.settle(ways)
            if not missing:
                yield number, frame
            else:
                parked[number] = frame, missing
            for step in whole:
                of = self._steps[step]
                group = of.group(number)
                self._encode(step, group, held.pop((step, group)))
                yield from done(step, of.wanted[group])
        for (step, group), there in held.items():
            of = self._steps[step]
            lost = [number for number in of.members(group) if number in failed]
            if lost:  # otherwise the job was ended before them
                why = f"frame {lost[0]}, which is encoded with it, {failed[lost[0]]}"
                self._lost(step, sorted(of.wanted[group]), why)
                yield from done(step, of.wanted[group] & there.keys())

    def taken(self, step: FrameStep, number: int) -> Group:
        """The group of a frame, for whoever stores its packets; once for each object."""
        of = self._steps[step]
        group = of.group(number)
        of.packed[group] -= 1
        return self._groups[step, group] if of.packed[group] else self._groups.pop((step, group))

    def psnr_db(self, nodes: Iterable[tuple[int, FrameStep | None]]) -> float | None:
        """The least luma PSNR of some frames at nodes behind a loss; None if not all of them were encoded here."""
        found = [self._psnr_db.get((step, number)) for number, node in nodes if (step := lossy_step(node)) is not None]
        known = [each for each in found if each is not None]
        return min(known) if known and len(known) == len(found) else None

    def _step(self, step: FrameStep) -> _Step:
        if step not in self._steps:
            self._steps[step] = _Step.of(step, self._end)
        return self._steps[step]

    def _encode(self, step: FrameStep, group: int, frames: Mapping[int, AFrame]) -> None:
        of = self._steps[step]
        members = of.members(group)
        pictures = np.stack([frames[number].at(step.parent) for number in members])
        self._lap("augment")
        try:
            made = encode(pictures, loss_of(step.params))
        except (BadVideo, Broken, MemoryError) as failed:
            tell = self._lost if isinstance(failed, BadVideo) else self._unencoded
            tell(step, sorted(of.wanted[group]), str(failed) or "no memory to encode it")
            return
        finally:
            self._lap("loss")
        for number, picture, psnr_db in zip(members, made.pictures, made.psnr_db.tolist(), strict=True):
            frames[number].put(step, picture)
            self._psnr_db[step, number] = psnr_db
        size, packed = pictures[0].size, sum(map(len, made.packets))
        self.trials.append(Trial(LOSSY, size, pictures.size, packed, made.pack_s + made.unpack_s, made.unpack_s))
        if group in of.packed:
            self._groups[step, group] = made


class LossyEncoding:
    """The packets of one object; it stands where `Encoding` does."""

    failure = ""
    """Never: who cannot encode makes no such picture at all."""

    def __init__(self, recipe: Recipe, steps: LossySteps) -> None:
        """Take nothing yet.

        Args:
            recipe: of whole groups, in the order in which they are encoded.
            steps: of the job.
        """
        self._recipe, self._steps = recipe, steps
        self._step = _step_of(recipe)
        self._groups: dict[int, Group] = {}
        steps.keep_packets(self._step, recipe.frames.tolist())

    def put(self, place: int, picture: Bytes) -> None:
        """Take the group of the picture at a place in the object; the picture itself is in it."""
        if place // GROUP not in self._groups:
            self._groups[place // GROUP] = self._steps.taken(self._step, int(self._recipe.frames[place]))

    def finished(self, attributes: dict[str, object]) -> Packed | None:
        """What to write, once all pictures were put; see `Encoding.finished`."""
        groups = [self._groups[number] for number in sorted(self._groups)]
        parts = [join_packets(group.packets) for group in groups]
        psnr_db = np.concatenate([group.psnr_db for group in groups])
        about = {
            **dict(self._step.params),
            "codec": LOSSY,
            "factors": [group.factor for group in groups],
            "psnr_db": {"least": round(float(psnr_db.min()), 2), "mean": round(float(psnr_db.mean()), 2)},
            "steps": ["RGB to YUV 4:4:4 by BT.709, full range", "H.264"],
        }
        packed = Packed(self._recipe, list(parts), max(part.size for part in parts), {"encoded": about})
        if packed.fits(attributes):
            return packed
        return as_pixels(self._recipe, np.concatenate([group.pictures for group in groups]))

    def measured(self) -> tuple[Trial, ...]:
        """Nothing more than `LossySteps.trials` has."""
        return ()
