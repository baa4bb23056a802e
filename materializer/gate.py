"""The gate of an open cache: callers come through here, so that closing and Ctrl-C leave nothing halfway.

Python runs signal handlers in the main thread, between any two of its instructions: an interrupt can leave the lock of
a `Condition`, a future or a queue taken for ever, and a change half done. So the main thread only waits, and what it
asks for is done in a thread of the gate; that costs some 50 µs a call. Other threads are not interrupted: they do it
themselves.
"""

import os
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from queue import Empty, SimpleQueue
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast

from viewcache.errors import Closed, WrongProcess

__all__ = ["CALLER_THREAD", "Cancelled", "Gate", "gated"]

T = TypeVar("T")
P = ParamSpec("P")

CALLER_THREAD = "viewcache-caller"
"""Name of the threads that do what the main thread asks for."""

SPARE = 2
"""Most threads of the gate that wait for a call: an interrupted call may go on for a while, and the next has one."""

LOOK_S = 1.0
"""How often a waiting main thread looks whether the gate's threads have ended."""


class Cancelled(Protocol):
    """Says whether a reader has lost interest: a `threading.Event`, or anything else that knows."""

    def is_set(self) -> bool:
        """Whether it has."""
        ...


class Gate:
    """Lets calls in while the cache is open, and counts those that are under way. Thread-safe."""

    def __init__(self) -> None:
        """Open, in this process; until `start` the main thread does everything itself."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._left = threading.Condition(self._lock)
        self._inside: Counter[int] = Counter()
        """Thread → its calls that are under way."""
        self._closing = False
        self._closer = 0
        """The thread that closes."""
        self._over = threading.Event()
        """Set when closing is done."""
        self._asked: SimpleQueue[Callable[[], Callable[[], None]] | None] = SimpleQueue()
        """What the main thread wants to be done; each gives what hands over its answer. None = nothing more comes."""
        self._started = False
        self._idle = 0

    def start(self) -> None:
        """From now on the main thread only waits."""
        threading.Thread(target=self._serve, name=CALLER_THREAD, daemon=True).start()
        self._idle += 1
        self._started = True

    @property
    def pid(self) -> int:
        """The process that opened the cache."""
        return self._pid

    def check(self) -> None:
        """Refuse use after close, and in a forked child.

        Raises:
            Closed: `close` was called.
            WrongProcess: this is another process than the one that opened the cache.
        """
        if os.getpid() != self._pid:
            raise WrongProcess(
                f"the cache was opened by process {self._pid}, this is its child {os.getpid()}; a cache does not "
                "survive a fork: read it in the process that opened it (the loader needs no DataLoader workers)"
            )
        if self._closing:
            raise Closed("this cache was closed; open it again")

    def run(self, call: Callable[[], T]) -> T:
        """Do what a caller asks for, and return what it gives.

        Raises:
            Closed: the cache is closed, or was closed meanwhile; what that did to the call is its cause.
            WrongProcess: this is another process than the one that opened the cache.
        """
        self.check()
        return self._aside(lambda: self._enter(call))

    def _enter(self, call: Callable[[], T]) -> T:
        thread = threading.get_ident()
        with self._lock:
            self.check()
            self._inside[thread] += 1
        try:
            return call()
        except Closed:
            raise
        except Exception as error:
            if self._closing:
                raise Closed("the cache was closed while something was asked of it; open it again") from error
            raise
        finally:
            with self._left:
                self._inside[thread] -= 1
                if not self._inside[thread]:
                    del self._inside[thread]
                    self._left.notify_all()

    # Closing -------------------------------------------------------------------------------------------------------

    def close(self, work: Callable[[], None]) -> None:
        """Let nobody in any more and do ``work``; whoever closes meanwhile waits until it is done.

        Harmless when done twice, or in a forked child.
        """
        if os.getpid() == self._pid and not self._over.is_set():
            self._aside(lambda: self._close(work))

    def _close(self, work: Callable[[], None]) -> None:
        thread = threading.get_ident()
        with self._lock:
            first, self._closing = not self._closing, True
            if first:
                self._closer = thread
        if not first:
            if self._closer != thread:
                self._over.wait()
            return
        try:
            work()
        finally:
            self._over.set()
            self._asked.put(None)

    def wait_left(self, timeout_s: float) -> None:
        """Wait until all calls of other threads have ended, at most so long."""
        thread = threading.get_ident()
        with self._left:
            self._left.wait_for(lambda: not self._inside.keys() - {thread}, timeout_s)

    # The main thread's calls ---------------------------------------------------------------------------------------

    def _aside(self, call: Callable[[], T]) -> T:
        """Run ``call`` where no signal handler runs."""
        if not self._started or threading.get_ident() != threading.main_thread().ident:
            return call()
        answer: SimpleQueue[tuple[T, None] | tuple[None, BaseException]] = SimpleQueue()

        def answered() -> Callable[[], None]:
            try:
                result = call()
            except BaseException as error:  # it belongs to the main thread, which waits for it
                return partial(answer.put, (None, error))
            return partial(answer.put, (result, None))

        self._asked.put(answered)
        while True:
            try:
                result, error = answer.get(timeout=LOOK_S)
                break
            except Empty:
                if self._over.is_set():  # the threads may have ended before they came to this call
                    return call()
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame
        return result  # type: ignore[return-value]  # there is one where there is no error

    def _serve(self) -> None:
        while (call := self._asked.get()) is not None:
            with self._lock:
                self._idle -= 1
                if not self._idle and not self._over.is_set():
                    with suppress(RuntimeError):  # the system has no more threads: the next call waits for this one
                        self.start()  # before the call, which may take long: whoever comes next finds a thread
            hand_over = call()
            with self._lock:
                spare = self._idle >= SPARE
                self._idle += not spare
            # Counted as idle before the answer is there: who asks again at once must not start another thread.
            hand_over()
            del call, hand_over
            if spare:
                return
        self._asked.put(None)  # for the next thread


class _Gated(Protocol):
    @property
    def gate(self) -> Gate | None: ...


S = TypeVar("S", bound=_Gated)


def gated(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Let calls of a method go through the gate of its object, where there is one."""

    @wraps(method)
    def through(self: S, *args: P.args, **kwargs: P.kwargs) -> T:
        if self.gate is None:
            return method(self, *args, **kwargs)
        return self.gate.run(lambda: method(self, *args, **kwargs))

    return cast(Callable[Concatenate[S, P], T], through)
