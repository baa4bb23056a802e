"""One frame of a job and what has been made of it: each operation runs once, however many clips share it."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from viewcache.materializer.clock import Clock, Span, queued_s
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.media.lossy import Unconverted
from viewcache.materializer.media.pixels import planes_of, to_rgb
from viewcache.materializer.ops import FrameOp, NativeOp, get
from viewcache.materializer.planning.program import FrameStep

if TYPE_CHECKING:
    from av import VideoFrame

__all__ = ["Frame", "PhaseClock", "copy_picture"]


def copy_picture(out: np.ndarray, picture: np.ndarray) -> None:
    """Copy a picture, or a view of one, into its place in a clip.

    NumPy copies a view that is mirrored left to right byte by byte. Words whose bytes are exchanged on the way have the
    same result in a quarter of the time.

    Args:
        out: uint8 (3,h,w), contiguous.
        picture: uint8 (3,h,w), with any strides.
    """
    word = next((size for size in (8, 4, 2) if picture.shape[-1] % size == 0), 0)
    if word and picture.strides[-1] == -1:
        forward = np.ascontiguousarray(picture[..., ::-1])
        out.view(f"<u{word}")[:] = forward.view(f">u{word}")[..., ::-1]
    else:
        out[:] = picture


class PhaseClock(Clock):
    """Of one job."""

    converted = 0
    """Conversions to RGB so far."""
    owes = False
    """Whether operations have run since the last lap."""

    def __init__(self, *, laps: bool = False) -> None:
        """Begin now."""
        super().__init__(laps=laps)
        self._queued_s = queued_s()

    def lap(self, stage: str) -> float:
        """See `Clock.lap`."""
        self.owes = False
        return super().lap(stage)

    def settle(self) -> None:
        """Charge operations that have run, if any, before something else begins."""
        if self.owes:
            self.lap("augment")

    def take(self) -> tuple[dict[str, float], Span]:
        """The same without what the thread waited for a core: that says how busy the machine is, not what work costs.

        It is known of all stages together, and taken from each by its share.
        """
        seconds, span = super().take()
        before, self._queued_s = self._queued_s, queued_s()
        work = max(0.0, 1 - (self._queued_s - before) / max(span.ended - span.begun, 1e-9))
        return {stage: each * work for stage, each in seconds.items()}, span


class Frame:
    """One frame and what has been made of it: each operation runs once, however many clips share it."""

    def __init__(
        self,
        picture: "VideoFrame | None",
        index: VideoIndex,
        clock: PhaseClock,
        made: "Mapping[FrameStep | None, np.ndarray | Unconverted] | None" = None,
    ):
        """A decoded frame, or what was kept of it: then all that is asked for comes after ``made``."""
        self._picture = picture
        self._index = index
        self._clock = clock
        self._made: dict[FrameStep | None, np.ndarray | Unconverted] = dict(made or {})
        self.was_read = made is not None
        """Whether it comes from what is kept: then it is valid until the next one is read."""

    def at(self, node: FrameStep | None) -> np.ndarray:
        """uint8 (3,H,W) after the chain that ends in ``node``.

        What operations take is charged before the next conversion, or by the caller, who has more to do at that stage.
        """
        array = self._made.get(node)
        if array is None:
            array = self._made[node] = self._apply(node)
        elif isinstance(array, Unconverted):
            self._clock.settle()
            array = self._made[node] = array.whole()
            self._clock.lap("load")
        return array

    def put(self, node: FrameStep, picture: np.ndarray) -> None:
        """Note what an op worker made of it, or an encoder."""
        self._made[node] = picture

    def settle(self, nodes: Iterable[FrameStep]) -> None:
        """Make what is wanted at some nodes, then let go of the decoded frame, which may be many times as large."""
        for node in nodes:
            array = self.at(node)
            if array.base is not None:  # a part of a whole picture, as after a crop, would hold that
                self._made[node] = array.copy()
        self._clock.lap("augment")
        self._made.pop(None, None)
        self._picture = None

    def planes(self) -> np.ndarray:
        """uint8 (bytes,): the decoder's own planes."""
        return planes_of(self._decoded)

    @property
    def _decoded(self) -> "VideoFrame":
        assert self._picture is not None  # `IntermediateReader.read` gave all that is wanted, or the planes
        return self._picture

    def _apply(self, node: FrameStep | None) -> np.ndarray:
        rotation, mirrored = self._index.rotation, self._index.mirrored
        if node is None:
            self._clock.settle()
            array = to_rgb(self._decoded, rotation=rotation, mirrored=mirrored)
            self._clock.converted += 1
            self._clock.lap("convert")
            return array
        op, row = get(node.name), np.array(node.row, np.int32)
        assert isinstance(op, FrameOp)  # grow() makes nodes of these only
        if node.parent is None and isinstance(op, NativeOp):
            # Always in the decoder's own step, also where full-size RGB is at hand: the bytes must not depend on that.
            height, width, interpolation = op.target(node.params, row)
            self._clock.settle()
            array = to_rgb(self._decoded, height, width, interpolation, rotation, mirrored)
            self._clock.converted += 1
            self._clock.lap("convert")
            return array
        before = self._made.get(node.parent)
        if isinstance(before, Unconverted) and (window := op.window(row)) is not None:
            self._clock.settle()
            array = before.part(*window)
            self._clock.lap("load")
            return array
        array = op.run(node.params, row, self.at(node.parent))
        self._clock.owes = True
        return array
