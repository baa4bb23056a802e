"""Reads the headers of a dataset's new files while others train already: those that are asked for before the rest.

Orders need names alone; what is planned of a video needs its header. So a reader waits for the headers of its own
batch, and what plans a whole generation for all of them.
"""

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import Broken, Closed, ViewcacheError
from viewcache.materializer.choices import ProbeMode
from viewcache.materializer.dataset.listed import Found
from viewcache.materializer.dataset.recording import Batches, Behind
from viewcache.materializer.dataset.scan import AT_ONCE, Keep, scan_queue
from viewcache.materializer.media.facts import Scanned

__all__ = ["Headers", "Looked"]

_log = logging.getLogger("viewcache.dataset")

Looked = tuple[int, Found, Scanned]
"""The row of a file, the file as it was listed, and what was found."""

TAKE_IN_EVERY_S = 5.0
"""How long what was found waits to be recorded; with the process it would be lost, and be read again.

A reader decides which come first, so a batch lies anywhere in the table, and takes as long as ten times as many rows.
"""


class Headers:
    """The headers of some files that nobody has read yet. A thread reads them, once somebody asks. Thread-safe."""

    def __init__(
        self,
        unread: NDArray[np.int64],
        files_of: Callable[[Sequence[int]], list[Found]],
        learn: Callable[[Sequence[Looked]], None],
        record: Callable[[Sequence[Looked]], None],
        max_pixels: int,
        probe: ProbeMode,
        workers: int,
        keep: Keep | None = None,
    ) -> None:
        """Read nothing yet.

        Args:
            unread: rows of the files, in the order in which they are read.
            files_of: the files of some rows.
            learn: told what was found, before anybody who waits for it goes on.
            record: told the same later, many files at a time, to record it.
            max_pixels: a frame with more makes a video bad.
            probe: how thoroughly files are looked into, not ``full``.
            workers: processes that read; 0 = one per core.
            keep: given the files that lie far away and were read whole.
        """
        self._files_of = files_of
        self._learn = learn
        self._record = record
        self._max_pixels = max_pixels
        self._probe = probe
        self._workers = workers
        self._keep = keep
        self._changed = threading.Condition()
        rows = unread.tolist()  # the same numbers twice: of a million they are tens of megabytes
        self._left = set(rows)
        """Rows that are not read yet."""
        self._queue = deque(rows)
        """The same in order; some come twice, or were read meanwhile."""
        self._rows: dict[str, int] = {}
        """URI of a file that a process is on → its row."""
        self._given: set[int] = set()
        """The same rows."""
        self._thread: threading.Thread | None = None
        self._error: ViewcacheError | None = None
        self._closed = False

    def __len__(self) -> int:
        """How many are left."""
        return len(self._left)

    def begin(self) -> None:
        """Start reading, unless all is read, or somebody has."""
        with self._changed:
            self._start()

    def prefer(self, rows: Iterable[int]) -> None:
        """Read these first, in this order: they are needed soonest."""
        with self._changed:
            self._queue.extendleft([row for row in rows if row in self._left][::-1])
            if len(self._queue) > 2 * len(self._left):  # a reader that jumps names the same ones again
                self._queue = deque(dict.fromkeys(row for row in self._queue if row in self._left))

    def look(self, rows: Iterable[int]) -> None:
        """Wait until these are read; all others wait for them.

        Raises:
            Closed: the cache was closed.
            Full: no disk space, or too many open files.
        """
        wanted = [row for row in rows if row in self._left]
        if wanted:
            with self._changed:
                self._queue.extendleft(row for row in reversed(wanted) if row in self._left)
            self._wait(lambda: self._left.isdisjoint(wanted))

    def wait(self) -> None:
        """Wait until all are read; raises as `look`."""
        if self._left or self._thread is not None:
            self._wait(lambda: not self._left and self._thread is None)

    def close(self) -> None:
        """Read no more; who waits gets `Closed`."""
        with self._changed:
            self._closed = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None:
            thread.join()

    # The thread ----------------------------------------------------------------------------------------------------

    def _wait(self, over: Callable[[], bool]) -> None:
        with self._changed:
            while not over():
                if self._closed:
                    raise Closed("the cache was closed while headers were read; open it again")
                if self._error is not None:
                    error, self._error = self._error, None
                    raise error
                self._start()
                self._changed.wait()

    def _start(self) -> None:
        """Start the thread if there is something to read and nobody reads; the lock is held."""
        if self._thread is None and self._left and not self._closed:
            # What another thread was on when it ended is read again.
            self._rows.clear()
            self._given.clear()
            self._queue.extend(sorted(self._left.difference(self._queue)))
            thread = threading.Thread(target=self._run, name="viewcache-headers", daemon=True)
            thread.start()
            self._thread = thread

    def _run(self) -> None:
        try:
            self._read()
            with self._changed:
                self._error = None
        except ViewcacheError as error:  # a full disk, say; who asks next has it tried again
            _log.warning("headers are not read for now: %s", error, extra={"action": "headers_failed"})
            with self._changed:
                self._error = error
        except Exception as error:  # whatever it is, nobody must wait for ever
            _log.exception("headers are not read", extra={"action": "headers_failed"})
            with self._changed:
                self._error = Broken(f"headers could not be read: {type(error).__name__}: {error}; report this")
        finally:
            with self._changed:
                self._thread = None
                self._changed.notify_all()

    def _read(self) -> None:
        running = scan_queue(
            self._take,
            self._max_pixels,
            probe=self._probe,
            workers=self._workers,
            over=lambda: self._closed,
            keep=self._keep,
        )
        with (
            Behind(self._record) as record,
            Batches(record, TAKE_IN_EVERY_S) as batches,
            contextlib.closing(running) as answers,
        ):
            for answer in answers:
                looked = [(self._rows.pop(file.uri), file, found) for file, found in answer]
                self._learn(looked)
                with self._changed:
                    read = [row for row, *_ in looked]
                    self._left.difference_update(read)
                    self._given.difference_update(read)
                    self._changed.notify_all()
                batches.add(looked)

    def _take(self) -> list[Found]:
        """The files that a process is given next; none if all are taken."""
        with self._changed:
            taken: list[int] = []
            while self._queue and len(taken) < AT_ONCE:
                row = self._queue.popleft()
                if row in self._left and row not in self._given:
                    taken.append(row)
                    self._given.add(row)
            files = self._files_of(taken)
            self._rows.update((file.uri, row) for file, row in zip(files, taken, strict=True))
            return files
