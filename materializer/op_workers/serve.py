"""What runs in an op worker: import the modules of operations, say what they are, and apply them to frames.

It runs in another environment, from viewcache's own files, so it imports nothing but NumPy and msgspec. One frame in,
one answer out: a call that takes too long is ended from outside, with the process.
"""

import importlib.metadata
import mmap
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput, OpFailed
from viewcache.framing import decode, receive, send
from viewcache.materializer.limits import end_with_parent_thread, keep_freed_memory
from viewcache.materializer.op_workers import answers, asks
from viewcache.materializer.op_workers.answers import Answer
from viewcache.materializer.op_workers.asks import Ask
from viewcache.materializer.ops import ClipOp, Draw, FrameOp, Op, get, load_modules
from viewcache.materializer.ops.fields import Params, frozen

__all__ = ["OWN", "serve"]

OWN = ("resolve", "out_size", "size_hint", "key_params")
"""Methods that are asked for only if an operation has its own."""

_decoder: "msgspec.msgpack.Decoder[Ask]" = msgspec.msgpack.Decoder(cast(Any, asks.ALL))


def serve(fd: int) -> None:
    """Answer until the other side closes the line, or ends."""
    keep_freed_memory()
    _end_with(os.getppid())
    with socket.socket(fileno=fd) as line:
        _Server(line).run()


def _end_with(parent: int) -> None:
    """End when the process ends that started this one, also in the middle of a call."""
    if os.environ.pop("VIEWCACHE_OP_WORKER_WITH_THREAD", ""):
        end_with_parent_thread()  # also when native code holds the interpreter

    def watch() -> None:
        while os.getppid() == parent:
            never.wait(1.0)
        os._exit(1)

    never = threading.Event()
    threading.Thread(target=watch, name="parent", daemon=True).start()


class _Server:
    """One line and what was asked on it."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._memory: mmap.mmap | None = None
        self._descriptors: list[int] = []
        """That came with what is being answered."""
        self._verbs: dict[type[Ask], Callable[[Any], Answer]] = {
            asks.Hello: self._hello,
            asks.Parse: self._parse,
            asks.KeyParams: self._key_params,
            asks.OutSize: self._out_size,
            asks.SizeHint: self._size_hint,
            asks.Resolve: self._resolve,
            asks.Memory: self._use_memory,
            asks.Apply: self._apply,
            asks.ApplyClip: self._apply_clip,
        }

    def run(self) -> None:
        while True:
            try:
                body, self._descriptors = receive(self._line, asks.ASK_BYTES)
                ask = decode(_decoder, body, f"protocol {asks.PROTOCOL} of op workers")
                answer = self._answer(ask)
                answer.number = ask.number
                send(self._line, answer)
            except (EOFError, OSError):
                return
            finally:
                for descriptor in self._descriptors:
                    os.close(descriptor)
                self._descriptors = []

    def _answer(self, ask: Ask) -> Answer:
        try:
            return self._verbs[type(ask)](ask)
        except BadInput as bad:
            return answers.Failed(BadInput.kind, str(bad))
        except OpFailed as failed:
            return answers.Failed("failed", str(failed))
        except Exception as error:  # an operation of the user's own may raise anything
            return answers.Failed("failed", f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-3)}")

    # Verbs ---------------------------------------------------------------------------------------------------------

    def _hello(self, ask: asks.Hello) -> Answer:
        # It runs isolated: what reaches it is `path`, and never PYTHONPATH.
        hint = f"is it installed for {sys.executable}, or its folder in the op worker's `path`?"
        names = load_modules(ask.modules, key="modules", hint=hint)
        runtime = f"Python {sys.version.split()[0]}, NumPy {np.__version__}"
        versions = tuple((package, _version(package)) for package in ask.packages)
        return answers.Welcome(asks.PROTOCOL, runtime, tuple(described(get(name)) for name in names), versions)

    def _parse(self, ask: asks.Parse) -> Answer:
        return answers.Parsed(get(ask.op).parse(ask.value))

    def _key_params(self, ask: asks.KeyParams) -> Answer:
        return answers.Parsed(get(ask.op).key_params(_params(ask.params)))

    def _out_size(self, ask: asks.OutSize) -> Answer:
        return answers.Sized(get(ask.op).out_size(_params(ask.params), ask.size))

    def _size_hint(self, ask: asks.SizeHint) -> Answer:
        return answers.Text(get(ask.op).size_hint(_params(ask.params)))

    def _resolve(self, ask: asks.Resolve) -> Answer:
        video = np.frombuffer(ask.video, "<u8")
        epoch, sample, h, w = (np.frombuffer(each, "<i8") for each in (ask.epoch, ask.sample, ask.height, ask.width))
        draw = Draw(ask.seed, ask.scope, ask.ordinal, video, epoch, sample, ask.independent)
        op = get(ask.op)
        rows, height, width = op.resolve(_params(ask.params), draw, h, w)
        if rows.dtype != np.int32 or rows.shape != (len(h), len(op.columns)):
            wanted = f"int32 ({len(h)}, {len(op.columns)})"
            raise BadInput(f"operation {ask.op!r} drew rows of {rows.dtype} {rows.shape}: it must give {wanted}")
        sides = (np.broadcast_to(np.asarray(side, "<i8"), len(h)).tobytes() for side in (height, width))
        return answers.Resolved(rows.astype("<i4").tobytes(), *sides)

    def _use_memory(self, ask: asks.Memory) -> Answer:
        (descriptor,) = self._descriptors
        self._memory = mmap.mmap(descriptor, ask.size)  # the last one goes when nothing refers to it any more
        return answers.Ok()

    def _given(self, ask: asks.Apply | asks.ApplyClip) -> tuple[mmap.mmap, NDArray[np.uint8]]:
        """The memory, and the frames in it."""
        memory = self._memory
        assert memory is not None
        shape = ask.frames, 3, ask.height, ask.width
        return memory, np.frombuffer(memory, np.uint8, int(np.prod(shape))).reshape(shape)

    def _apply_clip(self, ask: asks.ApplyClip) -> Answer:
        op = get(ask.op)
        assert isinstance(op, ClipOp)
        memory, clip = self._given(ask)
        made = op.run_clip(_params(ask.params), np.array(ask.row, np.int32), clip)
        if ask.out + made.nbytes > len(memory):
            return answers.TooSmall(ask.out + made.nbytes)
        np.frombuffer(memory, np.uint8, made.size, ask.out).reshape(made.shape)[...] = made
        return answers.Applied(((made.shape[2], made.shape[3]),))

    def _apply(self, ask: asks.Apply) -> Answer:
        op = get(ask.op)
        assert isinstance(op, FrameOp)
        memory, frames = self._given(ask)
        params, row = _params(ask.params), np.array(ask.row, np.int32)
        at, sizes = ask.out, list[tuple[int, int]]()
        for number, frame in enumerate(frames):
            made = op.run(params, row, frame)
            if at + made.nbytes > len(memory):
                return answers.TooSmall(at + made.nbytes * (len(frames) - number))
            np.frombuffer(memory, np.uint8, made.size, at).reshape(made.shape)[...] = made
            at += made.nbytes
            sizes.append((made.shape[1], made.shape[2]))
        return answers.Applied(tuple(sizes))


def described(op: Op) -> answers.Described:
    """What an operation's class says of it."""
    own = tuple(name for name in OWN if getattr(type(op), name) is not getattr(Op, name))
    return answers.Described(
        op.name,
        op.fingerprint,
        op.stage,
        op.native,
        op.effect,
        op.scope,
        tuple(op.columns),
        op.keyed,
        op.sizes,
        own,
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise BadInput(f"packages: {package!r} is not installed in {sys.prefix}") from None


def _params(params: Sequence[tuple[str, object]]) -> Params:
    return tuple((name, frozen(value)) for name, value in params)
