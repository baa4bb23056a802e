"""The folder that a mount lies over: whether it may, what an earlier mount has left there, and how it is unmounted."""

import errno
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from viewcache.api.config.load import Config
from viewcache.errors import BadInput, Busy, NotFound
from viewcache.materializer.dataset.roots import local_places

__all__ = ["KIND", "check_place", "unmount"]

KIND = "fuse.viewcache"
"""The file system's type in /proc/self/mountinfo."""

UNMOUNT_S = 10.0


def check_place(named: Path, config: Config, say: Callable[[str], None]) -> Path:
    """The real path of the folder that is to be mounted over; what a killed mount has left there is cleared.

    Args:
        named: the folder.
        config: of the cache; nothing is mounted inside its store or a dataset, which the service itself reads.
        say: tells a person something.

    Raises:
        NotFound: it does not exist.
        BadInput: it is no folder, not empty, not yours, or lies inside the store or a dataset.
        Busy: a cache is mounted there already.
    """
    folder = Path(os.path.realpath(named))
    if KIND in _mounted(folder):
        if not _is_stale(folder):
            raise Busy(f"{folder} shows a cache already: end that by `fusermount3 -u {folder}`, or name another folder")
        unmount(folder, lazy=True)
        say(f"cleared {folder} of a mount whose process was killed (fusermount3 -u -z {folder})")
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        raise NotFound(f"{folder} does not exist: make it by `mkdir -p {folder}`") from None
    except NotADirectoryError:
        raise BadInput(f"{folder} is no folder: name an empty one") from None
    except PermissionError:
        raise BadInput(f"{folder} is not yours to read: name a folder of your own") from None
    if names:
        raise BadInput(f"{folder} is not empty ({', '.join(sorted(names)[:3])}): name an empty folder")
    if not os.access(folder, os.W_OK):
        raise BadInput(f"{folder} is not yours to write: name a folder of your own")
    for what, path in _own(config):
        if path == folder or path in folder.parents:
            raise BadInput(f"{folder} lies inside {what}, {path}, which the service reads: name a folder elsewhere")
    return folder


def unmount(folder: Path, *, lazy: bool) -> bool:
    """Take a mount away; False if it is in use.

    Args:
        folder: what was mounted over.
        lazy: also if it is in use: nobody finds it any more, and who has a file open keeps it.
    """
    command = ["fusermount3", "-u", "-q", *(["-z"] if lazy else []), "--", str(folder)]
    return subprocess.run(command, timeout=UNMOUNT_S, check=False, stdin=subprocess.DEVNULL).returncode == 0


def _mounted(folder: Path) -> list[str]:
    """Types of the file systems that are mounted over a folder; the kernel is not asked to look into them."""
    with open("/proc/self/mountinfo") as file:
        lines = [line.split(" - ") for line in file]
    return [after.split()[0] for before, after in lines if _unescaped(before.split()[4]) == str(folder)]


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _is_stale(folder: Path) -> bool:
    """Whether nobody answers for a mounted folder; asked by what the kernel never answers from its memory."""
    try:
        os.statvfs(folder)
    except OSError as error:
        return error.errno in (errno.ENOTCONN, errno.ECONNABORTED)
    return False


def _own(config: Config) -> Iterator[tuple[str, Path]]:
    """What the service reads and writes on this machine."""
    yield "the store", Path(os.path.realpath(config.cache.local.url))
    for task in config.tasks:
        for place in local_places(task.dataset.uri):
            fixed = re.split(r"[*?\[]", place)[0]  # of a glob the part before its first sign
            yield f"the videos of task {task.name!r}", Path(os.path.realpath(fixed))
