"""Run a function where no signal handler can raise, for libraries that lose or mistake what one raises.

DuckDB tries to import pandas at each statement with parameters and drops any exception from there, Ctrl-C too, and an
interrupt while it is imported itself ends the process. Handlers run in the main thread only, so there another thread
runs the function, which costs some 0.1 ms.
"""

import _thread
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

__all__ = ["uninterrupted"]

Result = TypeVar("Result")

LOOK_S = 0.2
"""How soon an interrupt is noticed that came when the main thread was about to wait, and so did not wake it."""


def uninterrupted(function: Callable[[], Result], stop: Callable[[], None] | None = None) -> Result:
    """Call ``function``; what a signal handler raises meanwhile is raised when it has ended.

    Args:
        function: takes no part in the caller's thread: no thread-local state.
        stop: called when a handler has raised, to make the function end sooner.
    """
    if threading.get_ident() != threading.main_thread().ident:
        return function()
    results: list[Result] = []
    failures: list[BaseException] = []
    interrupts: list[BaseException] = []
    ended: SimpleQueue[None] = SimpleQueue()
    turn: SimpleQueue[None] = SimpleQueue()  # one call, though an interrupt may hide that the thread was started
    turn.put(None)

    def run() -> None:
        try:
            turn.get_nowait()
        except Empty:
            return
        try:
            results.append(function())
        except BaseException as error:
            failures.append(error)
        ended.put(None)

    def start() -> None:
        try:
            _thread.start_new_thread(run, ())
        except RuntimeError:  # the machine gives no more threads
            run()

    started = False
    while True:
        try:  # all that waits is in here: also a jump back to the loop's head is where a handler may raise
            while not results and not failures:
                if not started:
                    start()
                    started = True
                with suppress(Empty):
                    ended.get(timeout=LOOK_S)
            break
        except BaseException as interrupt:
            interrupts.append(interrupt)
            if stop is not None:
                stop()
    try:
        if interrupts:
            raise interrupts[0]
        if failures:
            raise failures[0]
        return results[0]
    finally:
        interrupts.clear()  # their tracebacks refer to this frame
        failures.clear()
