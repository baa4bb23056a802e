"""Names of unfinished folders in ``tmp/``, from which the owner can tell whether somebody still works on one.

A pid alone is not enough, since pids come round again: the name also carries the process's start time.
"""

import contextlib
import os
import re
import secrets
from functools import cache
from pathlib import Path

__all__ = ["TEMPORARY", "abandoned", "is_abandoned", "is_temporary", "make_temporary_folder", "temporary_name"]

TEMPORARY = "tmp"
"""The folder below the store's root in which every unfinished or dying thing lies."""

_NAME = re.compile(r"[0-9a-f]{32}\.(\d+)\.(\d+)-[0-9a-f]+", re.ASCII)


def temporary_name(key: str) -> str:
    """A new path below the root for an object's unfinished folder: ``tmp/{key}.{pid}.{start}-{nonce}``."""
    pid = os.getpid()
    return f"{TEMPORARY}/{key}.{pid}.{_own_start(pid)}-{secrets.token_hex(6)}"


def make_temporary_folder(root: str | os.PathLike[str]) -> None:
    """Make ``tmp/`` again if somebody emptied the store; of several that do so each goes on.

    Raises:
        FileNotFoundError: the store itself is gone. So is its owner's lock, and nothing is to be written.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(os.path.join(root, TEMPORARY), 0o700)


def abandoned(root: str | os.PathLike[str], dead: int | None = None) -> list["os.DirEntry[str]"]:
    """The entries of a store's ``tmp/`` that dead writers left; nothing where ``tmp`` is a link to another folder.

    Args:
        root: the store's folder.
        dead: as for `is_abandoned`.
    """
    folder = os.path.join(root, TEMPORARY)
    if os.path.islink(folder):
        return []
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if is_abandoned(entry.name, dead)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def is_temporary(name: str) -> bool:
    """Whether an entry of ``tmp/`` has a name that a writer gives."""
    return _NAME.fullmatch(name) is not None


def is_abandoned(name: str, dead: int | None = None) -> bool:
    """Whether an entry of ``tmp/`` was made by a writer that is dead; an entry with any other name is not ours.

    Args:
        name: the entry's name, without folder.
        dead: a pid that the caller knows to have died, though the system may still list it as a zombie.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return False
    pid, start = int(found[1]), int(found[2])
    return pid == dead or _start_of(pid) != start


@cache
def _own_start(pid: int) -> int:
    # Keyed by pid, so that a forked child asks again.
    return _start_of(pid) or 0


def _start_of(pid: int) -> int | None:
    """Start of a living process in clock ticks since boot, None if there is none, 0 where the system has no /proc."""
    try:
        # The second field is the program's name in parentheses and may itself hold spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0 if not Path("/proc/self/stat").exists() and _is_listed(pid) else None
    return None if fields[0] in {b"Z", b"X"} else int(fields[19])


def _is_listed(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
