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


def to_the_end(loader: Loader, read: list[Tensors]) -> Iterator[None]:
    """A loop through one epoch, all of it interrupted."""
    yield
    loop = iter(loader)
    while (batch := next(loop, None)) is not None:
        read.append(batch)


def left_early(loader: Loader, read: list[Tensors]) -> Iterator[None]:
    """A loop that is left after its first batch, interrupted from then on."""
    loop = cast("Generator[Tensors, None, None]", iter(loader))
    read.append(next(loop))
    yield
    loop.close()


Way = Callable[[Loader, list[Tensors]], Iterator[None]]


def run(way: Way, loader: Loader, read: list[Tensors], tracing: Bytecodes) -> None:
    """Go a way, and trace its second part."""
    steps = way(loader, read)
    next(steps)
    with tracing.traced():
        next(steps, None)


def settled() -> list[str]:
    """Reading threads that are left after a bounded wait."""
    until = time.monotonic() + SETTLED_S
    while left := [each.name for each in threading.enumerate() if each.name == "viewcache-loader"]:
        if time.monotonic() > until:
            break
        time.sleep(0.002)
    return left


@pytest.mark.parametrize("way", [to_the_end, left_early])
def test_an_interrupt_at_any_bytecode_ends_the_loop_and_nothing_else(
    own: Callable[..., Cache], truth: list[Tensors], way: Way
) -> None:
    """KeyboardInterrupt before each bytecode of a loop's start, batches and end, and of what they call: the loop's
    thread ends, and the loader's state is behind the last batch, or behind the one that was being handed out.
    """
    cache, known = own(), Bytecodes()
    run(way, cache.loader("train", epochs=1), [], Bytecodes())  # makes the clips, and imports what is imported late
    run(way, cache.loader("train", epochs=1), [], known)
    interrupted = 0
    for place, count in known.seen.items():
        what = f"{place[0].co_qualname}, offset {place[1]}, time {count}"
        loader, read = cache.loader("train", epochs=1), list[Tensors]()
        try:
            run(way, loader, read, Bytecodes((place, count)))
        except KeyboardInterrupt:
            interrupted += 1
        assert not settled(), what
        state = loader.state_dict()
        done = state["epoch"] * BATCHES + state["iteration"]
        assert done - len(read) in (0, 1), what
        loader.load_state_dict(state)
        if done < BATCHES:
            assert equal(loader, truth[done:BATCHES]), what
    assert interrupted > 0.8 * len(known.seen) > 50, "few depend on how the threads take turns"
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
