"""How batches pass from the reading thread to the training loop, so that Ctrl-C may come between any two bytecodes.

The loop's side takes no lock of `threading`: those are Python code, and an interrupt in the midst of it leaves a lock
held for ever. It uses queues written in C, and need not even say that it ended: the reading thread sees that itself.
"""

import _thread
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Generator
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

__all__ = ["HandOver"]

POLL_S = 0.2
"""How soon a reading thread whose items nobody takes notices that the loop ended or the cache was closed, and a loop
that waits for an item an interrupt that did not wake it."""

JOIN_S = 5.0
"""How long the end of a loop waits for its thread. Bounded: the garbage collector may end a loop in any thread, also in
one that holds a lock which the reading thread waits for."""

Item = TypeVar("Item")


class HandOver(Generic[Item]):
    """A bounded queue between one loop, which is a generator, and one thread that reads ahead for it."""

    def __init__(self, ahead: int) -> None:
        """Leave room for ``ahead`` items that the loop has not asked for yet."""
        self._ready: SimpleQueue[Item | BaseException] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(ahead):
            self._room.put(None)
        self._started: SimpleQueue[threading.Thread | None] = SimpleQueue()
        self._launched = self._ended = False
        self._pid = os.getpid()
        self._loop: Callable[[], Generator[Any, Any, Any] | None] = lambda: None

    # The loop's side -----------------------------------------------------------------------------------------------

    def watch(self, loop: Generator[Any, Any, Any]) -> None:
        """Name the generator that takes the items: when it has ended, however it did, the thread ends too."""
        self._loop = weakref.ref(loop)

    def start(self, read: Callable[[], None], name: str) -> None:
        """Have a new thread call ``read``."""
        # Thread.start takes locks in Python, so another thread calls it: in that one no signal handler runs.
        _thread.start_new_thread(self._launch, (read, name))
        self._launched = True

    def get(self) -> Item | BaseException:
        """Wait for the next item; an error of starting the thread is one too."""
        while True:
            try:
                return self._ready.get(timeout=POLL_S)  # an interrupt that comes just before the wait does not end it
            except Empty:
                continue

    def let_go(self) -> None:
        """Say that an item is no longer in use, so that another may be read."""
        self._room.put(None)

    def end(self) -> None:
        """Stop the thread, wait for it and drop what it read."""
        self._ended = True
        self._room.put(None)
        if not self._launched or os.getpid() != self._pid:  # in a forked child the thread does not exist
            return
        try:
            thread = self._started.get(timeout=JOIN_S)
        except Empty:
            return
        if thread is not None and thread.ident != threading.get_ident():
            thread.join(JOIN_S)
        while not self._ready.empty():
            self._ready.get()

    # The thread's side ---------------------------------------------------------------------------------------------

    def _launch(self, read: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=read, name=name, daemon=True)
        try:
            thread.start()
        except Exception as error:  # the machine gives no more threads, or no memory for one
            self._ready.put(error)
            self._started.put(None)
        else:
            self._started.put(thread)

    def is_set(self) -> bool:
        """Whether nobody will ask for an item any more."""
        if self._ended:
            return True
        loop = self._loop()
        return loop is None or inspect.getgeneratorstate(loop) == inspect.GEN_CLOSED

    def put(self, item: Item | BaseException, goes_on: Callable[[], bool]) -> bool:
        """Hand an item over as soon as there is room; False when nobody will ask for it, or it does not go on."""
        while not self.is_set():
            try:
                self._room.get(timeout=POLL_S)
            except Empty:
                if not goes_on():
                    return False
            else:
                self._ready.put(item)
                return True
        return False
