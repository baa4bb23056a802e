"""The loss that tasks allow, in one job: frames are gathered in groups of their video, encoded and decoded again.

A clip needs some frames of a group; for the encoder all of them are decoded. So what comes out is the same whichever
clips ask for it, and a clip that is made alone has the pixels of one that is made with all others (law 3).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import Broken
from viewcache.materializer.media.loss import GROUP, LOSSY
from viewcache.materializer.media.lossy import Group, encode
from viewcache.materializer.ops.lossy import LOSSY_OP, loss_of
from viewcache.materializer.planning.program import FrameStep, grow
from viewcache.materializer.planning.recipe import Recipe
from viewcache.materializer.workers.encoding import INSTEAD, Packed
from viewcache.store import bound_bytes, join_packets
from viewcache.store.codec_trial import Trial

__all__ = ["LossyEncoding", "LossySteps", "lossy_step"]

Bytes = NDArray[np.uint8]


class Frame(Protocol):
    """A frame and what has been made of it."""

    def at(self, node: FrameStep | None) -> np.ndarray:
        """uint8 (3,H,W) after the chain that ends in ``node``."""

    def has(self, node: FrameStep) -> bool:
        """Whether it was made, or read."""

    def put(self, node: FrameStep, picture: np.ndarray) -> None:
        """Note what it is there."""


AFrame = TypeVar("AFrame", bound=Frame)


def lossy_step(node: FrameStep | None) -> FrameStep | None:
    """The step on the way to a node behind which pictures have a loss; None if they have none."""
    while node is not None and node.name != LOSSY_OP:
        node = node.parent
    return node


class LossySteps:
    """Of one job."""

    def __init__(self, frames: int, lost: Callable[[FrameStep, list[int], str], None]) -> None:
        """Want nothing yet.

        Args:
            frames: of the video.
            lost: told of a step that cannot be done on some frames, and why.
        """
        self._end, self._lost = frames, lost
        self._wanted: dict[int, dict[FrameStep, set[int]]] = {}
        """Group → step → frames that are wanted behind it."""
        self._packed: dict[FrameStep, set[int]] = {}
        """Steps of which packets are stored, and the groups."""
        self._groups: dict[tuple[FrameStep, int], Group] = {}
        """Those groups, until they are asked for."""
        self._psnr_db: dict[tuple[FrameStep, int], float] = {}
        self.trials: list[Trial] = []
        """What encoding and decoding took."""

    def __bool__(self) -> bool:
        """Whether anything is wanted."""
        return bool(self._wanted)

    def want(self, number: int, node: FrameStep | None) -> None:
        """What a chain makes of a source frame is wanted."""
        step = lossy_step(node)
        if step is not None:
            self._wanted.setdefault(number // GROUP, {}).setdefault(step, set()).add(number)

    def keep_packets(self, step: FrameStep, frames: Iterable[int]) -> None:
        """The packets of these frames are to be stored."""
        self._packed.setdefault(step, set()).update(number // GROUP for number in frames)

    def must_encode(self, number: int) -> bool:
        """Whether packets of a frame are to be stored: pictures that were read have none."""
        return any(number // GROUP in groups for groups in self._packed.values())

    def whole(self, numbers: Iterable[int]) -> set[int]:
        """The frames that must be decoded so that some of them can be had."""
        found = set(numbers)
        for group in {number // GROUP for number in found} & self._wanted.keys():
            found.update(self._members(group))
        return found

    def frames(self, given: Iterable[tuple[int, AFrame]], failed: dict[int, str]) -> Iterator[tuple[int, AFrame]]:
        """The same frames, each when all its steps are made.

        Args:
            given: source frames and their numbers.
            failed: frames that cannot be decoded, and why, as far as is known by then.
        """
        held: dict[int, dict[int, AFrame]] = {}
        for number, frame in given:
            group = number // GROUP
            steps = self._wanted.get(group, {})
            mine = [step for step, wanted in steps.items() if number in wanted]
            if not steps or (mine and all(map(frame.has, mine))):
                yield number, frame  # it has no loss, or was read
                continue
            held.setdefault(group, {})[number] = frame
            if len(held[group]) == len(self._members(group)):
                yield from self._encoded(group, held.pop(group))
        for group, there in held.items():
            missing = [number for number in self._members(group) if number in failed]
            if missing:  # otherwise the job was ended before them
                why = f"frame {missing[0]}, which is encoded with it, {failed[missing[0]]}"
                for step, wanted in self._wanted[group].items():
                    self._lost(step, sorted(wanted), why)
                yield from sorted(there.items())

    def taken(self, step: FrameStep, number: int) -> Group:
        """The group of a frame, for whoever stores its packets; once."""
        return self._groups.pop((step, number // GROUP))

    def psnr_db(self, nodes: Iterable[tuple[int, FrameStep | None]]) -> float | None:
        """The least luma PSNR of some frames at nodes behind a loss; None if not all of them were encoded here."""
        found = [self._psnr_db.get((step, number)) for number, node in nodes if (step := lossy_step(node)) is not None]
        known = [each for each in found if each is not None]
        return min(known) if known and len(known) == len(found) else None

    def _members(self, group: int) -> range:
        return range(group * GROUP, min((group + 1) * GROUP, self._end))

    def _encoded(self, group: int, frames: dict[int, AFrame]) -> Iterator[tuple[int, AFrame]]:
        members = self._members(group)
        for step, wanted in self._wanted[group].items():
            pictures = np.stack([frames[number].at(step.parent) for number in members])
            try:
                made = encode(pictures, loss_of(step.params))
            except Broken as failed:
                self._lost(step, sorted(wanted), str(failed))
                continue
            for number, picture, psnr_db in zip(members, made.pictures, made.psnr_db.tolist(), strict=True):
                frames[number].put(step, picture)
                self._psnr_db[step, number] = psnr_db
            packed = sum(map(len, made.packets))
            size = pictures[0].size
            self.trials.append(Trial(LOSSY, size, pictures.size, packed, made.pack_s, made.unpack_s))
            if group in self._packed.get(step, ()):
                self._groups[step, group] = made
        yield from sorted(frames.items())


class LossyEncoding:
    """The packets of one object; it stands where `Encoding` does."""

    failure = ""
    """Never: who cannot encode makes no such picture at all."""

    def __init__(self, recipe: Recipe, steps: LossySteps) -> None:
        """Take nothing yet.

        Args:
            recipe: of whole groups, the first frame first.
            steps: of the job.
        """
        self._recipe, self._steps = recipe, steps
        step = lossy_step(grow(recipe.program, recipe.frames[:1], recipe.row).nodes[0])
        assert step is not None  # the recipe's codec says so
        self._step = step
        self._groups: dict[int, Group] = {}
        steps.keep_packets(step, recipe.frames.tolist())

    def put(self, place: int, picture: Bytes) -> None:
        """Take the group of the picture at a place in the object; the picture itself is in it."""
        if place // GROUP not in self._groups:
            self._groups[place // GROUP] = self._steps.taken(self._step, int(self._recipe.frames[place]))

    def finished(self, attributes: dict[str, object]) -> Packed:
        """What to write, once all pictures were put; see `Encoding.finished`."""
        groups = [self._groups[number] for number in sorted(self._groups)]
        parts = [join_packets(group.packets) for group in groups]
        psnr_db = np.concatenate([group.psnr_db for group in groups])
        about = {
            **dict(self._step.params),
            "codec": LOSSY,
            "factors": [group.crf for group in groups],
            "psnr_db": {"least": round(float(psnr_db.min()), 2), "mean": round(float(psnr_db.mean()), 2)},
            "steps": ["RGB to YUV 4:4:4 by BT.709, full range", "H.264"],
        }
        packed = Packed(self._recipe, list(parts), max(part.size for part in parts), {"encoded": about})
        size = int(np.prod(self._recipe.shape[1:]))
        if (
            packed.width <= GROUP * size
            and bound_bytes(packed.meta(attributes), self._recipe.key) <= self._recipe.bound
        ):
            return packed
        pictures = np.concatenate([group.pictures for group in groups])
        return Packed(replace(self._recipe, codec=INSTEAD), pictures, 0, {})

    def measured(self) -> tuple[Trial, ...]:
        """Nothing more than `LossySteps.trials` has."""
        return ()
