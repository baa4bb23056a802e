"""The process that mounts: it answers the kernel until the folder is unmounted, or a signal ends it."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Full, Queue

from viewcache.api.config.load import Config
from viewcache.api.mount.files import OpenFiles
from viewcache.api.mount.library import Fuse, load
from viewcache.api.mount.operations import KNOWN_S, Operations
from viewcache.api.mount.place import check_place, unmount
from viewcache.api.mount.readers import Readers
from viewcache.api.mount.requests import Requests
from viewcache.api.service.attached import AttachedCache
from viewcache.api.service.opening import open as open_cache
from viewcache.api.signals import handled
from viewcache.api.views.tree import ViewTree

__all__ = ["mount"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Each ends the mount, unless the process was started to ignore it."""

MOST_WORDS = 100
"""Lines that wait to be told; further ones are dropped."""

WORDS_S = 1.0
"""How long the end waits for the last of them."""

END_S = 2.0
"""How long libfuse may take to notice that its folder is unmounted: while files are open it does not."""


def mount(config: Config, named: Path, *, job: str | None, say: Callable[[str], None]) -> bool:
    """Mount the views of a cache over a folder and answer until that is over; call it in the main thread.

    Args:
        config: of the cache, from files.
        named: the folder.
        job: which training reads through it; see `viewcache.open`.
        say: tells a person something.

    Returns:
        Whether libfuse has ended. If not, somebody has files open, and the process should end at once.

    Raises:
        MissingExtra: libfuse or its Python part is not installed.
        UnsupportedPlatform: there is no FUSE here.
        BadInput: nothing may be mounted over that folder.
        ViewcacheError: what `viewcache.open` raises.
    """
    fuse = load()
    folder = check_place(named, config, say)
    cache: object = open_cache([Path(each) for each in config.files], service="auto", job=job)
    assert isinstance(cache, AttachedCache)
    with cache, _told(say) as say_later:
        return _Mount(fuse, folder, cache, say_later).run()


class _Mount:
    """A mounted cache."""

    def __init__(self, fuse: Fuse, folder: Path, cache: AttachedCache, say: Callable[[str], None]) -> None:
        self._fuse, self._folder, self._say = fuse, folder, say
        self._requests = Requests(fuse.interrupted)
        self._readers = Readers(cache, self._requests.later, say)
        tree = ViewTree(cache)
        files = OpenFiles(tree, self._readers)
        self._operations = Operations(tree, files, self._readers, self._requests, fuse.reader, say)
        self._failed: BaseException | None = None
        self._is_over = False
        """Whether libfuse has ended, since the folder was unmounted or never was mounted over."""
        # Signals may reach any thread, and wake nobody: each also writes a byte here, and so does libfuse's end.
        self._awake, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    def run(self) -> bool:
        serving = threading.Thread(target=self._serve, name="viewcache-fuse", daemon=True)
        with handled(SIGNALS, _noted):
            woken = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
            try:
                serving.start()
                os.read(self._awake, 1)
                self._operations.ready.wait(END_S)  # a folder that is not mounted yet cannot be unmounted
                self._requests.end()
                # What lies over the folder once libfuse has ended may be somebody else's.
                if not self._is_over and not unmount(self._folder, lazy=False):
                    unmount(self._folder, lazy=True)
                serving.join(END_S)
                self._readers.end()
            finally:
                signal.set_wakeup_fd(woken)
        if self._failed is not None:
            raise self._failed
        return not serving.is_alive()

    def _serve(self) -> None:
        threading.Thread(target=self._tell_when_ready, name="viewcache-ready", daemon=True).start()
        try:
            self._fuse.serve(self._operations, self._folder, KNOWN_S)
        except BaseException as error:
            self._failed = error
        self._is_over = True
        self._operations.ready.set()
        with suppress(BlockingIOError):
            os.write(self._wake, b"\0")

    def _tell_when_ready(self) -> None:
        self._operations.ready.wait()
        if self._failed is None:
            self._say(f"the cache is mounted on {self._folder}; Ctrl-C or `fusermount3 -u {self._folder}` ends it")


@contextmanager
def _told(say: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """Tell people something by a thread of its own: no reader waits because nobody looks at what a terminal shows."""
    waiting: Queue[str | None] = Queue(MOST_WORDS)

    def run() -> None:
        while (text := waiting.get()) is not None:
            with suppress(OSError, ValueError):  # the pipe or the terminal is gone
                say(text)

    def later(text: str) -> None:
        with suppress(Full):
            waiting.put_nowait(text)

    telling = threading.Thread(target=run, name="viewcache-words", daemon=True)
    telling.start()
    try:
        yield later
    finally:
        with suppress(Full):
            waiting.put(None, timeout=WORDS_S)
        telling.join(WORDS_S)


def _noted(_number: int, _frame: object) -> None:
    """A signal that ends the mount: the main thread is woken by the byte that comes with it."""
