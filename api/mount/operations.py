"""What is done when the kernel asks: the callbacks that libfuse calls, each in one of its threads.

A callback either knows its answer or has `Requests` look for it, so that no reader is ever stuck in the kernel. What
does not exist is answered as such; any other error is told to people, and its text can be read as an attribute.
"""

import errno
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Protocol, TypeVar

from viewcache.api.mount import attributes
from viewcache.api.mount.errnos import Failures, Refused, errno_of
from viewcache.api.mount.files import NEVER, OpenFile, OpenFiles, Piece
from viewcache.api.mount.names import view_path
from viewcache.api.mount.readers import Hold, Readers
from viewcache.api.mount.requests import Interrupted, Requests
from viewcache.api.views.paths import parse_path
from viewcache.api.views.tree import Entry, ViewTree
from viewcache.errors import is_unforeseen
from viewcache.materializer.gate import Cancelled

__all__ = ["KNOWN_S", "Operations"]

KNOWN_S = 60.0
"""How long the kernel may answer from what it was told of names and sizes."""

DESCRIBED_S = 1.0
"""How long the metadata of a path is remembered for the next attribute of it."""

MOST_LISTED = 8
"""Folders whose content is remembered, for who looks at each entry of a listing."""

MOST_TIMES = 10_000
"""Videos and epochs whose time is remembered."""

FOLDER, FILE = stat.S_IFDIR | 0o500, stat.S_IFREG | 0o400
"""Modes: nobody but the user who mounted looks at anything, and nobody writes."""

BLOCK = 1 << 20
"""What a reader should ask for at a time: Python's buffered files go by it."""

_log = logging.getLogger("viewcache.mount")

T = TypeVar("T")


class _Handle(Protocol):
    """libfuse's facts of an open file."""

    fh: int
    keep_cache: int
    direct_io: int


class Operations:
    """The callbacks, by the names that mfusepy looks for. Thread-safe."""

    use_ns = True
    """Times are whole nanoseconds."""

    def __init__(
        self,
        tree: ViewTree,
        files: OpenFiles,
        readers: Readers,
        requests: Requests,
        reader: Callable[[], int],
        say: Callable[[str], None],
    ) -> None:
        """Answer for a tree.

        Args:
            tree: what there is.
            files: what is open.
            readers: who reads.
            requests: where readers wait.
            reader: process or thread that the calling thread answers.
            say: tells a person something.
        """
        self._tree, self._files, self._readers, self._requests = tree, files, readers, requests
        self._reader = reader
        self._say = say
        self.ready = threading.Event()
        """Set when the kernel has begun to ask."""
        self._failures = Failures()
        self._said = ""
        self._since_ns = time.time_ns()
        self._owner = {"st_uid": os.getuid(), "st_gid": os.getgid(), "st_blksize": BLOCK}
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._open: dict[int, OpenFile] = {}
        self._folders: dict[int, tuple[str, Hold | None]] = {}
        self._listed: dict[str, tuple[float, dict[str, Entry]]] = {}
        self._times: dict[tuple[str, str, int | None], tuple[float, int]] = {}
        """Task, video and epoch → when it was asked, and when they came to be."""
        self._described: dict[str, tuple[float, dict[str, Any]]] = {}

    def init_with_config(self, connection: Any, _config: Any) -> None:
        """The kernel has begun to ask: let it ask for as much at once as it can."""
        connection.max_background = 256
        connection.congestion_threshold = 192
        self.ready.set()

    # Names ---------------------------------------------------------------------------------------------------------

    def getattr(self, path: str, _handle: object = None) -> dict[str, Any]:
        """What `stat` says."""
        inside = view_path(path)
        return self._answer(inside, lambda _: self._status(inside))

    def _status(self, path: str) -> dict[str, Any]:
        entry = self._remembered(path) or self._tree.entry(path)
        if entry.is_folder:
            changed_ns, facts = self._since_ns, {"st_mode": FOLDER, "st_nlink": 2}
        else:
            size = entry.size or 0
            changed_ns = self._changed_ns(path)
            facts = {"st_mode": FILE, "st_nlink": 1, "st_size": size, "st_blocks": -(-size // 512)}
        return facts | self._owner | {"st_mtime": changed_ns, "st_ctime": changed_ns, "st_atime": changed_ns}

    def _changed_ns(self, path: str) -> int:
        """When a file came to be; asked once for all frames of a video, and for all views of an epoch."""
        where, now = parse_path(path), time.monotonic()
        key = where.task, where.video, where.epoch
        with self._lock:
            asked_at, changed_ns = self._times.get(key, (0.0, 0))
        if not asked_at or now - asked_at >= KNOWN_S:
            changed_ns = int(self._tree.modified(path).timestamp() * 1e9)
            with self._lock:
                if len(self._times) >= MOST_TIMES:
                    self._times.clear()
                self._times[key] = now, changed_ns
        return changed_ns

    def _remembered(self, path: str) -> Entry | None:
        """An entry as it was listed just now."""
        folder, _, _ = path.rpartition("/")
        with self._lock:
            listed_at, entries = self._listed.get(folder, (0.0, {}))
        return entries.get(path) if time.monotonic() - listed_at < KNOWN_S else None

    def opendir(self, path: str) -> int:
        """A folder is opened: a task's folder may be so to read its batches."""
        inside = view_path(path)
        hold = self._readers.open(inside, self._reader()) if inside and "/" not in inside else None
        number = next(self._numbers)
        self._folders[number] = inside, hold
        return number

    def readdir(self, _path: str, number: int) -> Iterator[tuple[str, int, int]]:
        """Names and modes of what a folder has."""
        inside, hold = self._folders[number]
        if hold is not None:
            self._readers.close(hold)
        entries = self._answer(inside, lambda _: self._tree.children(inside))
        with self._lock:
            self._listed.pop(inside, None)
            self._listed[inside] = time.monotonic(), {each.path: each for each in entries}
            while len(self._listed) > MOST_LISTED:
                del self._listed[next(iter(self._listed))]
        begin = len(inside) + 1 if inside else 0
        return iter(
            [
                (".", FOLDER, 0),
                ("..", FOLDER, 0),
                *((each.path[begin:], FOLDER if each.is_folder else FILE, 0) for each in entries),
            ]
        )

    def releasedir(self, _path: str, number: int) -> int:
        """A folder is closed by all who had it open."""
        _, hold = self._folders.pop(number)
        if hold is not None:
            self._readers.close(hold)
        return 0

    # Bytes ---------------------------------------------------------------------------------------------------------

    def open(self, path: str, handle: _Handle) -> int:
        """Open a file, once it is made."""
        inside, pid = view_path(path), self._reader()
        file = self._answer(inside, lambda cancelled: self._files.open(inside, pid, cancelled))
        with self._lock:
            self._described.pop(inside, None)  # making it may have put another video in a bad one's place
        number = next(self._numbers)
        self._open[number] = file
        handle.fh, handle.keep_cache, handle.direct_io = number, int(file.keeps), int(file.direct)
        return 0

    def read(self, path: str, size: int, offset: int, handle: _Handle) -> Piece:
        """A piece of a file."""
        file = self._open[handle.fh]
        if file.has(offset, size):
            return file.read(offset, size, NEVER)
        return self._answer(view_path(path), lambda cancelled: file.read(offset, size, cancelled))

    def release(self, _path: str, handle: _Handle) -> int:
        """A file is closed by all who had it open."""
        self._open.pop(handle.fh).close()
        return 0

    # Metadata ------------------------------------------------------------------------------------------------------

    def getxattr(self, path: str, name: str, _position: int = 0) -> bytes:
        """One value of a path's metadata."""
        inside = view_path(path)
        if name == attributes.ERROR:
            text = self._failures.last(inside)
            if text is not None:
                return text.encode("utf-8", "replace")
        elif name.startswith(attributes.PREFIX):
            about = self._answer(inside, lambda _: self._about(inside))
            wanted = name.removeprefix(attributes.PREFIX)
            if wanted in about:
                return attributes.encode(about[wanted])
        raise Refused(errno.ENODATA)

    def listxattr(self, path: str) -> list[str]:
        """The names of all values."""
        inside = view_path(path)
        return attributes.listed(self._answer(inside, lambda _: self._about(inside)))

    def _about(self, path: str) -> dict[str, Any]:
        now = time.monotonic()
        with self._lock:
            described_at, about = self._described.get(path, (0.0, {}))
        if now - described_at < DESCRIBED_S:
            return about
        about = self._tree.describe(path)
        with self._lock:
            for old in [old for old, (then, _) in self._described.items() if now - then >= DESCRIBED_S]:
                del self._described[old]
            self._described[path] = now, about
        return about

    # Errors --------------------------------------------------------------------------------------------------------

    def _answer(self, path: str, work: Callable[[Cancelled], T]) -> T:
        """Do some work for a reader.

        Raises:
            Refused: with the number of what went wrong.
        """
        try:
            return self._requests.do(work)
        except Interrupted:
            raise Refused(errno.EINTR) from None
        except Exception as error:
            self._tell(path, error)
            raise Refused(errno_of(error)) from error

    def _tell(self, path: str, error: Exception) -> None:
        text = str(error)
        self._failures.note(path, text)
        if errno_of(error) in (errno.ENOENT, errno.ENOTCONN):
            return  # shells and libraries look for many a name, and the end of the mount is told once
        if is_unforeseen(error):
            _log.exception("%s: unexpected error", path, exc_info=error)
        if text != self._said:
            self._said = text
            self._say(f"{path or '/'}: {text}")
