"""Workers that are threads of this process: they start at once and share its memory, and nothing protects it from them.

The same job function runs in them as in worker processes, and a decoder releases the interpreter's lock while it works.
What threads cannot do: a decoder that crashes ends the process, one that hangs cannot be killed (it is left behind, and
its jobs are given to a new thread), and no memory limit holds for one of them. So they are for files of one's own.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue

from viewcache.materializer.workers.job import Job
from viewcache.materializer.workers.pool import GRACE_S, Event, JobObserver, Message, Pool, Worker
from viewcache.materializer.workers.worker import serve

__all__ = ["ThreadPool"]

_log = logging.getLogger("viewcache.pool")

CLOSE_S = 10.0
"""How long closing waits for threads: they stop after the group of pictures that they are on."""


class _Channel:
    """What a thread hears and says."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.messages: deque[Message] = deque()
        self.requests: SimpleQueue[Job | int | None] = SimpleQueue()
        self.closed = False
        self._wake = wake

    def poll(self) -> bool:
        return self.closed or not self.requests.empty()

    def recv(self) -> Job | int:
        message = None if self.closed else self.requests.get()
        if message is None:
            raise EOFError
        return message

    def send(self, obj: Message) -> None:
        if self.closed:
            raise BrokenPipeError
        self.messages.append(obj)
        self._wake()

    def close(self) -> None:
        self.closed = True
        self.requests.put(None)  # it may be waiting


class _Thread(Worker):
    """A thread; `end` can but ask it to stop."""

    def __init__(self, wake: Callable[[], None]) -> None:
        super().__init__()
        self.channel = _Channel(wake)
        self.failure = ""
        self._wake = wake
        self.thread = threading.Thread(target=self._run, name="viewcache-worker", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            serve(self.channel)
        except BaseException as error:
            if not self.channel.closed:  # it was not told to end: an operation called sys.exit, say
                self.failure = f"{type(error).__name__}: {error}"
                self._wake()

    @property
    def id(self) -> int:
        return self.thread.native_id or 0  # never None: `start` waits until it runs

    def send(self, what: Job | int) -> None:
        self.channel.requests.put(what)

    def receive(self) -> Iterator[Message]:
        over = bool(self.failure)  # looked at first: nothing is said after it
        while self.channel.messages:
            yield self.channel.messages.popleft()
        if over:
            raise EOFError

    def end(self) -> str:
        self.channel.close()
        return f"a thread ended by {self.failure}" if self.failure else "a thread was left behind: none can be killed"


class ThreadPool(Pool):
    """Worker threads: no start-up time and nothing to send, but no protection either."""

    def __init__(self, workers: int, *, grace_s: float = GRACE_S, observer: JobObserver | None = None) -> None:
        """Set how many workers."""
        super().__init__(workers, grace_s, observer)
        self._left: list[threading.Thread] = []
        """Threads that were told to end."""

    def _start(self) -> Worker:
        return _Thread(self.wake)

    def _remove_dead(self, worker: Worker, before: str) -> list[Event]:
        assert isinstance(worker, _Thread)
        self._left.append(worker.thread)
        return super()._remove_dead(worker, before)

    def close(self) -> bool:
        """Tell all threads to end and wait, not for ever; False if some are still at it, which may publish objects."""
        threads = [*self._left, *(worker.thread for worker in self._workers if isinstance(worker, _Thread))]
        super().close()
        until = time.monotonic() + CLOSE_S
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        left = sum(thread.is_alive() for thread in threads)
        if left:
            _log.warning("%d worker threads hang and were left behind", left, extra={"action": "threads_left"})
        return not left
