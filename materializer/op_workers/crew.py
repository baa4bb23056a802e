"""The processes of one op worker, as many as threads use at once, and what becomes of calls that end one.

A process that was ended is replaced. Deaths are bounded: after `DEATHS` calls of one operation in a row that ended a
process, the op worker is out of order for `REST_S` seconds, and calls fail at once instead of starting process after
process. A call that succeeds begins the count anew: clips that are to blame, among others that are well, are errors of
their own, however many they are.
"""

import contextlib
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput, OpWorkerFailed
from viewcache.materializer.op_workers import answers, asks
from viewcache.materializer.op_workers.answers import Answer, Described
from viewcache.materializer.op_workers.asks import Ask
from viewcache.materializer.op_workers.process import Ended, OpProcess
from viewcache.materializer.ops.fields import MAX_SIDE, Params
from viewcache.materializer.spec import OpWorkerSpec

__all__ = ["DEATHS", "REST_S", "Crew"]

_log = logging.getLogger("viewcache.op_workers")

DEATHS = 10
"""How many calls of one operation in a row may end their process before the op worker counts as out of order."""

REST_S = 60.0
"""How long it is out of order after the last of them; then one more call may try."""

MOST_BYTES = 1 << 30
"""Of shared memory for one call: an operation that wants more for its frames is wrong."""

_ALIGNED = 64

Picture = NDArray[np.uint8]

Kind = TypeVar("Kind", bound=Answer)
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class _Death:
    """A call that ended its process."""

    when: float
    """Of `time.monotonic`."""
    why: str
    thread: int
    """Who called."""
    frames: int
    """How many the call had; 0 = it was a question, or the start of the process."""


class Crew:
    """The processes of one op worker that serve this process. Thread-safe."""

    def __init__(self, spec: OpWorkerSpec, ops: tuple[Described, ...] | None = None) -> None:
        """Start none yet; ``ops`` is what they must serve, if that is known."""
        self.spec = spec
        self._ops = ops
        self._lock = threading.Lock()
        self._idle: list[OpProcess] = []
        self._deaths: dict[str, deque[_Death]] = {}
        """Operation → its deaths since a call of it succeeded; "" = of questions and starts."""
        _all.add(self)

    def ops(self) -> tuple[Described, ...]:
        """What it serves; asked once, so that an operation stays the same as long as this process lives.

        Raises:
            BadInput: a module or package is not to be had there, or is wrong.
            OpWorkerFailed: it cannot be started.
        """
        if self._ops is None:
            self._twice(self._greet)
        assert self._ops is not None
        return self._ops

    # Calls ---------------------------------------------------------------------------------------------------------

    def ask(self, kind: type[Kind], ask: Ask) -> Kind:
        """The answer to a question; one that ended the process, be it while it started, is asked once more.

        Raises:
            BadInput: what was given is wrong, says the operation.
            OpWorkerFailed: it failed on it, or is out of order.
        """
        answer = self._twice(partial(self._answer, ask))
        if isinstance(answer, answers.Failed):
            raise BadInput(answer.message) if answer.kind == BadInput.kind else self._failed(answer.message)
        if not isinstance(answer, kind):
            raise self._failed(f"it answered {type(ask).__name__} by {type(answer).__name__}")
        return answer

    def _answer(self, ask: Ask, fresh: bool) -> Answer:
        with self._process(fresh=fresh) as process:
            return process.answer(ask)

    def _greet(self, fresh: bool) -> None:
        with self._process(fresh=fresh):
            pass  # `_started` has asked what it serves

    def _twice(self, call: Callable[[bool], Made]) -> Made:
        """What a call gives, which is told whether it is to be of a fresh process; made once more if its process ends.

        Raises:
            OpWorkerFailed: the second process ended, too.
        """
        try:
            return call(False)
        except Ended:
            self._take_back("")
            try:
                return call(True)
            except Ended as again:
                raise self._failed(str(again)) from again

    def apply(self, op: Described, params: Params, row: tuple[int, ...], frames: Sequence[Picture]) -> list[Picture]:
        """Apply an operation to frames of one shape, (3, H, W) uint8; gives (3, h, w) uint8 for each.

        One frame is tried once more where that ended the process, by a new one: others that are idle may have been
        killed with it. Of several frames who calls tries each by itself.

        Raises:
            OpWorkerFailed: it failed on one of them (``of_clip``); or it cannot be started, serves other code than it
                did, or is out of order.
        """
        with self._blamed(op):
            return self._apply(asks.Apply, op, params, row, frames, calls=len(frames))

    def apply_clip(self, op: Described, params: Params, row: tuple[int, ...], clip: Picture) -> Picture:
        """Apply an operation to one clip, (T, 3, H, W) uint8; gives (T, 3, h, w) uint8; tried once more as `apply`.

        Raises:
            OpWorkerFailed: as `apply`; also for a clip that does not go into one call.
        """
        with self._blamed(op):
            return np.stack(self._apply(asks.ApplyClip, op, params, row, list(clip), calls=1))

    @contextmanager
    def _blamed(self, op: Described) -> Iterator[None]:
        try:
            yield
        except _NotStarted as error:
            raise self._failed(str(error)) from error  # no clip is to blame
        except (Ended, _Refused) as error:
            name = f"operation {op.name!r}"
            raise self._failed(f"{name}: {str(error).removeprefix(f'{name} ')}", of_clip=True) from error

    def _apply(
        self,
        kind: type[asks.Apply | asks.ApplyClip],
        op: Described,
        params: Params,
        row: tuple[int, ...],
        frames: Sequence[Picture],
        calls: int,
    ) -> list[Picture]:
        """Put frames where the operation sees them, and take those that it made; ``calls`` is as of `_process`."""
        _, height, width = frames[0].shape
        given = len(frames) * frames[0].nbytes
        out = -(-given // _ALIGNED) * _ALIGNED
        ask = kind(op.name, params, row, len(frames), height, width, out)
        need = out + given
        if need > MOST_BYTES:
            raise _Refused(
                f"{len(frames)} frames of {height}x{width} need {need} bytes of shared memory; at most {MOST_BYTES} "
                "are given: resize or crop before it"
            )
        tried = set[type[Ended]]()
        while True:
            try:
                return self._call(ask, op, frames, need, calls, fresh=bool(tried))
            except Ended as ended:  # by chance, perhaps: what an operation always dies of, it dies of again
                if type(ended) in tried or (calls > 1 and not isinstance(ended, _NotStarted)):
                    raise
                tried.add(type(ended))
                self._take_back("" if isinstance(ended, _NotStarted) else op.name)

    def _call(
        self,
        ask: asks.Apply | asks.ApplyClip,
        op: Described,
        frames: Sequence[Picture],
        need: int,
        calls: int,
        *,
        fresh: bool,
    ) -> list[Picture]:
        """Make one call; ``need`` is how many bytes of shared memory it has at first."""
        given = len(frames) * frames[0].nbytes
        with self._process(op.name, calls, fresh=fresh) as process:
            while True:
                arena = process.arena(need)
                there = arena.bytes[:given].reshape(len(frames), 3, ask.height, ask.width)
                for k, frame in enumerate(frames):
                    there[k] = frame
                answer = process.answer(ask)
                if not isinstance(answer, answers.TooSmall):
                    break
                if not arena.size < answer.size <= MOST_BYTES:
                    raise _Refused(f"asks for {answer.size} bytes of shared memory; at most {MOST_BYTES} are given")
                need = answer.size
            if isinstance(answer, answers.Failed):
                raise _Refused(answer.message)
            if not isinstance(answer, answers.Applied):
                raise _Refused(f"it answered {type(ask).__name__} by {type(answer).__name__}")
            sizes = answer.sizes
            if isinstance(ask, asks.ApplyClip):
                if len(sizes) != 1:
                    raise _Refused(f"it gave {len(sizes)} sizes for one clip")
                sizes *= len(frames)
            _check_sizes(op, sizes, frames, arena.size - ask.out)
            return list(_copies(arena.bytes, ask.out, sizes))

    # Processes -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _process(self, op: str = "", frames: int = 0, *, fresh: bool) -> Iterator[OpProcess]:
        """A process that is idle, or a new one; one that has ended in the block is counted, and is not used again.

        Args:
            op: the operation that is applied; empty for questions.
            frames: to how many frames.
            fresh: take none that is idle.
        """
        with self._lock:
            process = self._idle.pop() if self._idle and not fresh else None
        process = process or self._started()
        try:
            yield process
        except Ended as ended:
            self._died(str(ended), op, frames)
            raise
        except _Refused:
            self._put_back(process)
            raise
        except BaseException:
            process.end("the call was given up")
            raise
        else:
            with self._lock:
                self._deaths.pop(op, None)
                self._deaths.pop("", None)  # it starts and answers
            self._put_back(process)

    def _put_back(self, process: OpProcess) -> None:
        with self._lock:
            self._idle.append(process)

    def _started(self) -> OpProcess:
        with self._lock:
            last = [deaths[-1] for deaths in self._deaths.values() if len(deaths) == DEATHS]
        for death in last:
            if time.monotonic() - death.when < REST_S:
                raise self._failed(
                    f"it ended {DEATHS} times in a row, the last time because it {death.why}; it is not started again "
                    f"for {REST_S:.0f} s"
                )
        process = OpProcess(self.spec)
        try:
            answer = process.answer(asks.Hello(asks.PROTOCOL, self.spec.modules, self.spec.packages))
        except Ended as ended:
            self._died(str(ended))
            raise _NotStarted(f"its program {' '.join(self.spec.command[:1])} {ended}") from ended
        except BaseException:
            process.end("the call was given up")
            raise
        try:
            self._check(answer)
        except BaseException:
            process.end("it is of no use")
            raise
        return process

    def _check(self, answer: Answer) -> None:
        """Hold a process that has just started to what is known of the op worker."""
        if isinstance(answer, answers.Failed):
            raise BadInput(answer.message) if answer.kind == BadInput.kind else self._failed(answer.message)
        if not isinstance(answer, answers.Welcome) or answer.protocol != asks.PROTOCOL:
            raise self._failed(f"it does not speak protocol {asks.PROTOCOL} of op workers")
        found = _with_versions(answer)
        with self._lock:
            self._ops = self._ops or found
        if found != self._ops:
            raise self._failed(
                f"it has other code of {_different(self._ops, found)} than when the cache was opened: end the service "
                "by `viewcache stop`, or this process, so that the next one loads it"
            )

    def _died(self, why: str, op: str = "", frames: int = 0) -> None:
        _log.warning("op worker %r %s", self.spec.name, why, extra={"action": "op_worker_died"})
        me = threading.get_ident()
        with self._lock:
            deaths = self._deaths.setdefault(op, deque(maxlen=DEATHS))
            if frames == 1:
                # A call of several frames that failed is made again by the same thread with one of them: the same clip.
                first = next((death for death in deaths if death.thread == me and death.frames > 1), None)
                if first is not None:
                    deaths.remove(first)
            deaths.append(_Death(time.monotonic(), why, me, frames))

    def _take_back(self, op: str) -> None:
        """Do not count the last death of a call of this thread, which is made again and then counts, if it dies."""
        me = threading.get_ident()
        with self._lock:
            deaths = self._deaths.get(op, deque())
            last = next((death for death in reversed(deaths) if death.thread == me), None)
            if last is not None:
                deaths.remove(last)

    def _failed(self, why: str, *, of_clip: bool = False) -> OpWorkerFailed:
        return OpWorkerFailed(f"op worker {self.spec.name!r}: {why}", of_clip=of_clip)

    def pids(self) -> list[int]:
        """Process ids of those that nobody uses now."""
        with self._lock:
            return [process.pid for process in self._idle]

    def close(self) -> None:
        """End the processes that nobody uses; the next call starts another one."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.end("is not needed any more")

    def forget(self) -> None:
        """In a forked child: the processes are the parent's."""
        self._lock = threading.Lock()
        idle, self._idle = self._idle, []
        for process in idle:
            process.release()
        _of_parents.extend(idle)


class _NotStarted(Ended):
    """A process ended before it could be asked anything."""


class _Refused(Exception):
    """A call failed and its process goes on."""


def _check_sizes(op: Described, sizes: Sequence[tuple[int, int]], frames: Sequence[Picture], room: int) -> None:
    if len(sizes) != len(frames):
        raise _Refused(f"it gave {len(sizes)} frames for {len(frames)}")
    for size in sizes:
        if not all(1 <= side <= MAX_SIDE for side in size):
            raise _Refused(f"it gave a frame of {size[0]}x{size[1]} (height x width); sides go from 1 to {MAX_SIDE}")
        if not op.sizes and size != frames[0].shape[1:]:
            raise _Refused(
                f"it gave a frame of {size[0]}x{size[1]} for one of {frames[0].shape[1]}x{frames[0].shape[2]}, but "
                "says that it keeps sizes (sizes = False)"
            )
    if 3 * sum(h * w for h, w in sizes) > room:
        raise _Refused(f"it gave more frames than there is room for: {3 * sum(h * w for h, w in sizes)} bytes")


def _copies(memory: Picture, at: int, sizes: Sequence[tuple[int, int]]) -> Iterator[Picture]:
    """The frames that came back, out of reach of who wrote them."""
    for height, width in sizes:
        end = at + 3 * height * width
        yield memory[at:end].reshape(3, height, width).copy()
        at = end


def _with_versions(welcome: answers.Welcome) -> tuple[Described, ...]:
    """The operations, with the versions of packages as part of their fingerprints."""
    versions = "".join(f"+{package}-{version}" for package, version in welcome.versions)
    for op in welcome.ops:
        op.fingerprint += versions
    return welcome.ops


def _different(before: Sequence[Described], now: Sequence[Described]) -> str:
    known = {op.name: op for op in now}
    changed = [repr(op.name) for op in before if known.get(op.name) != op]
    return ", ".join(changed) or "operations that were not there"


_all: "weakref.WeakSet[Crew]" = weakref.WeakSet()
_of_parents: list[OpProcess] = []
"""Kept, or Python would warn that they still run."""


def _forget_all() -> None:
    for crew in list(_all):
        crew.forget()


with contextlib.suppress(AttributeError):
    os.register_at_fork(after_in_child=_forget_all)
