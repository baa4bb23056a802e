"""An operation that an op worker serves, as planning and workers see it: an operation like any other.

What its class says was told once; what only its code can tell is asked. Choices are made there, too, from the same
addresses of random numbers, so that in which process an operation runs changes no byte.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from viewcache.errors import BadInput, OpWorkerFailed
from viewcache.materializer.op_workers import answers, asks
from viewcache.materializer.op_workers.answers import Described
from viewcache.materializer.op_workers.calls import CALL_BYTES, FRAMES
from viewcache.materializer.op_workers.crew import Crew
from viewcache.materializer.ops import ClipOp, Draw, FrameOp, Op, Params, Rows, Size
from viewcache.materializer.ops.base import Fixed
from viewcache.materializer.ops.fields import frozen

__all__ = ["RemoteClipOp", "RemoteOp", "remote_op"]

CLIPS = 2048
"""Whose choices are made by one question: what is said of them fits into the buffer of a socket."""


class _Remote(Op):
    """What operations of op workers have in common, whatever they are applied to."""

    out_of_process = True
    crew: ClassVar[Crew]
    described: ClassVar[Described]

    @property
    def fingerprint(self) -> str:
        """Of its code there."""
        return self.described.fingerprint

    def parse(self, value: object) -> Params:
        """See `Op.parse`; the operation itself reads it.

        Raises:
            BadInput: what is wrong, the value, and what is allowed.
            OpWorkerFailed: it failed on it.
        """
        ask = asks.Parse(self.name, value)
        return _params(self.crew.ask(answers.Parsed, ask).params)

    def key_params(self, params: Params) -> Params:
        """See `Op.key_params`."""
        if "key_params" not in self.described.own:
            return super().key_params(params)
        return _params(self.crew.ask(answers.Parsed, asks.KeyParams(self.name, params)).params)

    def out_size(self, params: Params, size: Size | None) -> Size | None:
        """See `Op.out_size`."""
        if "out_size" not in self.described.own:
            return super().out_size(params, size)
        return self.crew.ask(answers.Sized, asks.OutSize(self.name, params, size)).size

    def size_hint(self, params: Params) -> str:
        """See `Op.size_hint`."""
        if "size_hint" not in self.described.own:
            return super().size_hint(params)
        return self.crew.ask(answers.Text, asks.SizeHint(self.name, params)).text

    def resolve(self, params: Params, draw: Draw, h: np.ndarray, w: np.ndarray) -> tuple[Rows, Fixed, Fixed]:
        """See `Op.resolve`; some thousand clips are asked for at a time.

        Raises:
            BadInput: a frame does not fit.
            OpWorkerFailed: it failed on it, or gave nonsense.
        """
        if "resolve" not in self.described.own:
            return super().resolve(params, draw, h, w)
        parts = [self._resolve(params, draw, h, w, slice(k, k + CLIPS)) for k in range(0, max(len(h), 1), CLIPS)]
        rows, height, width = (np.concatenate(each) for each in zip(*parts, strict=True))
        return rows, height, width

    def _resolve(
        self, params: Params, draw: Draw, h: np.ndarray, w: np.ndarray, part: slice
    ) -> tuple[Rows, Fixed, Fixed]:
        count = len(h[part])
        ask = asks.Resolve(
            self.name,
            params,
            draw.seed,
            draw.scope,
            draw.ordinal,
            draw.independent,
            np.asarray(draw.video, "<u8")[part].tobytes(),
            *(np.asarray(each, "<i8")[part].tobytes() for each in (draw.epoch, draw.sample, h, w)),
        )
        drawn = self.crew.ask(answers.Resolved, ask)
        try:
            rows = np.frombuffer(drawn.rows, "<i4").reshape(count, len(self.columns)).astype(np.int32)
            height, width = (np.frombuffer(side, "<i8").astype(np.int64) for side in (drawn.height, drawn.width))
        except ValueError:
            height = width = np.zeros(0, np.int64)
        if len(height) != count or len(width) != count or (count and min(height.min(), width.min()) < 1):
            raise OpWorkerFailed(
                f"op worker {self.crew.spec.name!r}: operation {self.name!r} drew nonsense for {count} clips"
            )
        return rows, height, width


class RemoteOp(_Remote, FrameOp):
    """An operation on frames of an op worker; `remote_op` makes a class of it for each."""

    def apply(self, params: Params, row: np.ndarray, frame: np.ndarray) -> np.ndarray:
        """See `FrameOp.apply`; several frames at once by `run_all` cost less.

        Raises:
            OpWorkerFailed: it failed on it.
        """
        return self.run_all(params, row, [frame])[0]

    def run_all(self, params: Params, row: np.ndarray, frames: Sequence[np.ndarray]) -> list[np.ndarray]:
        """See `FrameOp.run_all`.

        Raises:
            OpWorkerFailed: it failed on one of them.
        """
        numbers = tuple(row.tolist())
        at_once = max(1, min(FRAMES, CALL_BYTES // max(1, frames[0].nbytes)))
        parts = (frames[k : k + at_once] for k in range(0, len(frames), at_once))
        return [made for part in parts for made in self.crew.apply(self.described, params, numbers, part)]


class RemoteClipOp(_Remote, ClipOp):
    """The same on whole clips."""

    def apply_clip(self, params: Params, row: np.ndarray, clip: np.ndarray) -> np.ndarray:
        """See `ClipOp.apply_clip`; ``clip`` is not written to.

        Raises:
            OpWorkerFailed: it failed on it.
        """
        return self.crew.apply_clip(self.described, params, tuple(row.tolist()), clip)

    def run_clip(self, params: Params, row: np.ndarray, clip: np.ndarray) -> np.ndarray:
        """See `ClipOp.run_clip`; what comes back has been checked."""
        return self.apply_clip(params, row, clip)


_KINDS: dict[str, type[RemoteOp | RemoteClipOp]] = {"frame": RemoteOp, "clip": RemoteClipOp}
"""By the stage of the operation."""


def remote_op(crew: Crew, described: Described) -> RemoteOp | RemoteClipOp:
    """The operation of an op worker that was described.

    Raises:
        BadInput: it is of a kind that is not served out of process.
    """
    base = _KINDS.get(described.stage)
    if base is None or described.native:
        kind = "a NativeOp" if described.native else f"of the stage {described.stage!r}"
        raise BadInput(
            f"op {described.name!r} is {kind}, and op workers serve operations on frames (FrameOp) and clips (ClipOp, "
            "transform); name its module in cache.op_modules"
        )
    if not described.fingerprint:
        raise BadInput(
            f"op {described.name!r} has no fingerprint: what it makes could not be told from that of other code"
        )
    space: dict[str, Any] = {
        "__module__": __name__,
        "__doc__": f"The operation {described.name!r} of an op worker.",
        "crew": crew,
        "described": described,
        "name": described.name,
        "scope": described.scope or described.name,
        "effect": described.effect or described.name,
        "columns": described.columns,
        "keyed": described.keyed,
        "sizes": described.sizes,
    }
    made: RemoteOp | RemoteClipOp = type(f"{base.__name__}_{described.name}", (base,), space)()
    return made


def _params(params: asks.Params) -> Params:
    return tuple((name, frozen(value)) for name, value in params)
