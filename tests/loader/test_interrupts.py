"""Ctrl-C in the loop: wherever it comes, the loop ends, its thread ends, and the cache goes on."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import cast

import pytest

from tests.loader.small import BATCHES, Tensors, equal
from viewcache.api.session.cache import Cache
from viewcache.api.training.loader import Loader

Place = tuple[CodeType, int]
"""A bytecode: the function and the offset in it."""

SETTLED_S = 10.0
"""Bound for a thread that was told to end: it looks five times a second."""


class Bytecodes:
    """A trace function for `sys.settrace` that counts the bytecodes of all that this thread calls."""

    def __init__(self, stop_at: tuple[Place, int] | None = None) -> None:
        """Raise KeyboardInterrupt before a bytecode is run for the given time."""
        self.seen: Counter[Place] = Counter()
        self._stop_at = stop_at

    def __call__(self, frame: FrameType, event: str, arg: object) -> "Bytecodes | None":
        if frame.f_code.co_filename.endswith(("_weakrefset.py", "weakref.py")):
            return None  # callbacks, in which Python only prints what is raised
        frame.f_trace_opcodes = True
        if event == "opcode":
            place = frame.f_code, frame.f_lasti
            self.seen[place] += 1
            if (place, self.seen[place]) == self._stop_at:
                raise KeyboardInterrupt
        return self

    @contextmanager
    def traced(self) -> Iterator[None]:
        """Trace what this thread calls meanwhile; not the caller itself."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(before)


def to_the_end(loader: Loader, read: list[Tensors]) -> None:
    """A loop through one epoch."""
    loop = iter(loader)
    while (batch := next(loop, None)) is not None:
        read.append(batch)


def left_early(loader: Loader, read: list[Tensors]) -> None:
    """A loop that is left after its first batch."""
    loop = cast("Generator[Tensors, None, None]", iter(loader))
    read.append(next(loop))
    loop.close()


def settled() -> list[str]:
    """Reading threads that are left after a bounded wait."""
    until = time.monotonic() + SETTLED_S
    while left := [each.name for each in threading.enumerate() if each.name == "viewcache-loader"]:
        if time.monotonic() > until:
            break
        time.sleep(0.002)
    return left


def stops(loader: Loader, loop: Callable[[Loader, list[Tensors]], None], last: bool) -> list[tuple[Place, int]]:
    """Each bytecode that a loop runs, with 1 or with how often it runs it, in a fixed order."""
    found = Bytecodes()
    with found.traced():
        loop(loader, [])
    each = [(place, count if last else 1) for place, count in found.seen.items()]
    return sorted(each, key=lambda stop: (stop[0][0].co_filename, stop[0][0].co_firstlineno, stop[0][1]))


@pytest.mark.parametrize(("loop", "last"), [(to_the_end, True), (left_early, False)], ids=["to the end", "left early"])
def test_an_interrupt_at_any_bytecode_ends_the_loop_and_nothing_else(
    own: Callable[..., Cache], truth: list[Tensors], loop: Callable[[Loader, list[Tensors]], None], last: bool
) -> None:
    """KeyboardInterrupt before each bytecode of a loop's start, batches and end, and of what they call: the loop's
    thread ends, and the next loop goes on behind the last batch, or behind the one that was being handed out.
    """
    cache = own()
    loop(cache.loader("train", epochs=1), [])  # makes the clips, and imports what is imported late
    interrupted = 0
    places = stops(cache.loader("train", epochs=1), loop, last)
    for place, time_ in places:
        what = f"{place[0].co_qualname}, offset {place[1]}, time {time_}"
        loader, read = cache.loader("train", epochs=1), list[Tensors]()
        tracing = Bytecodes((place, time_))
        try:
            with tracing.traced():
                loop(loader, read)
        except KeyboardInterrupt:
            interrupted += 1
        assert not settled(), what
        state = loader.state_dict()
        done = state["epoch"] * BATCHES + state["iteration"]
        assert done - len(read) in (0, 1), what
        if done < BATCHES:
            assert equal(loader, truth[done:BATCHES]), what
    assert interrupted > 0.8 * len(places) > 100, "few depend on how the threads take turns"
    cache.close()


@pytest.mark.usefixtures("no_leaks")
def test_a_loop_that_cannot_have_a_thread_says_so(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the machine gives no more threads, the loop ends with that error and does not wait for batches."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError(f"can't start {thread.name}")

    loader = cache.loader("train")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start viewcache-loader"):
            list(loader)
    assert loader.state_dict()["iteration"] == 0
