"""The steps of a job's clips that op workers do: several frames to a call, and one clip's failure is that clip's alone.

A call costs a tenth of a millisecond, so frames are gathered in windows: as many as one call takes, or until a clip has
all of its frames. Each step still runs once for a frame, however many clips share it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np

from viewcache.errors import BadVideo, OpWorkerFailed
from viewcache.materializer.op_workers.calls import CALL_BYTES, FRAMES
from viewcache.materializer.ops import FrameOp, get
from viewcache.materializer.planning.program import FrameStep

__all__ = ["Frame", "RemoteSteps", "remote_steps"]


class Frame(Protocol):
    """A frame and what has been made of it."""

    def at(self, node: FrameStep | None) -> np.ndarray:
        """uint8 (3,H,W) after the chain that ends in ``node``."""

    def put(self, node: FrameStep, picture: np.ndarray) -> None:
        """Note what it is there."""


AFrame = TypeVar("AFrame", bound=Frame)


def remote_steps(node: FrameStep | None) -> list[FrameStep]:
    """The steps on the way to a node that op workers do, the first one first."""
    found: list[FrameStep] = []
    while node is not None:
        if get(node.name).out_of_process:
            found.insert(0, node)
        node = node.parent
    return found


class RemoteSteps:
    """Of one job."""

    def __init__(self, is_open: Callable[[str], bool], drop: Callable[[str, OpWorkerFailed], None]) -> None:
        """Want nothing yet.

        Args:
            is_open: whether a clip, by its key, is still to be made.
            drop: told that a clip cannot be.
        """
        self._is_open = is_open
        self._drop = drop
        self._any = False
        self._wanted: dict[int, dict[FrameStep, tuple[int, set[str]]]] = {}
        """Source frame → step → how many such steps come before it, and keys of the clips that want it."""

    def __bool__(self) -> bool:
        """Whether there are any, done ones too."""
        return self._any

    def want(self, key: str, number: int, node: FrameStep | None) -> None:
        """A clip wants what a chain makes of a source frame."""
        for before, step in enumerate(remote_steps(node)):
            self._any = True
            self._wanted.setdefault(number, {}).setdefault(step, (before, set()))[1].add(key)

    def windows(
        self, frames: Iterable[tuple[int, AFrame]], pixels: int, completes: Callable[[int], bool]
    ) -> Iterator[list[tuple[int, AFrame]]]:
        """The same frames, several at a time where a call may have several.

        Args:
            frames: source frames and their numbers.
            pixels: of one of them.
            completes: told the number of each, once; whether a clip has all its frames with it.
        """
        if not self:
            for each in frames:
                yield [each]
            return
        most = max(1, min(FRAMES, CALL_BYTES // (5 * pixels)))
        window: list[tuple[int, AFrame]] = []
        try:
            for number, frame in frames:
                window.append((number, frame))
                if completes(number) or len(window) >= most:
                    yield window
                    window = []
        except BadVideo:
            if window:  # what came before is well
                yield window
            raise
        if window:
            yield window

    def run(self, window: Sequence[tuple[int, AFrame]]) -> None:
        """Do all such steps of some frames.

        Raises:
            OpWorkerFailed: an op worker is out of order.
        """
        waves: dict[int, dict[FrameStep, list[tuple[int, AFrame]]]] = {}
        for number, frame in window:
            for step, (before, _) in self._wanted.get(number, {}).items():
                waves.setdefault(before, {}).setdefault(step, []).append((number, frame))
        for _, wave in sorted(waves.items()):
            for step, frames in wave.items():
                self._step(step, frames)
        for number, _ in window:
            self._wanted.pop(number, None)

    def _step(self, step: FrameStep, frames: Sequence[tuple[int, AFrame]]) -> None:
        alike: dict[tuple[int, ...], list[tuple[int, AFrame]]] = {}
        for number, frame in frames:
            if self._keys(step, number):
                alike.setdefault(frame.at(step.parent).shape, []).append((number, frame))
        for same in alike.values():
            try:
                self._call(step, same)
            except OpWorkerFailed as failed:
                if not failed.of_clip:
                    raise
                self._one_by_one(step, same, failed)

    def _one_by_one(self, step: FrameStep, frames: Sequence[tuple[int, AFrame]], failed: OpWorkerFailed) -> None:
        """After a call that failed: find which frames are to blame. What only their clips want is not tried."""
        for number, frame in frames:
            keys = self._keys(step, number)
            if not keys:
                continue
            try:
                if len(frames) > 1:
                    self._call(step, [(number, frame)])
                    continue
            except OpWorkerFailed as again:
                if not again.of_clip:
                    raise
                failed = again
            for key in keys:
                self._drop(key, failed)

    def _call(self, step: FrameStep, frames: Sequence[tuple[int, AFrame]]) -> None:
        op = get(step.name)
        assert isinstance(op, FrameOp)  # chains are made of these
        made = op.run_all(step.params, np.array(step.row, np.int32), [frame.at(step.parent) for _, frame in frames])
        for (_, frame), picture in zip(frames, made, strict=True):
            frame.put(step, picture)

    def _keys(self, step: FrameStep, number: int) -> list[str]:
        """The clips that want a step of a frame, of those that are still to be made."""
        return [key for key in self._wanted[number][step][1] if self._is_open(key)]
