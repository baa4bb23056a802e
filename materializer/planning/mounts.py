"""Which device a file lies on, in words, and whether that is memory.

The system's list of mounts is read, since `os.stat` gives numbers that say neither of both. The trade-off: that list is
of Linux only.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from viewcache.errors import Broken

__all__ = ["Mount", "mount_of"]

_MEMORY = ("tmpfs", "ramfs")
_OCTAL = {r"\040": " ", r"\011": "\t", r"\012": "\n", r"\134": "\\"}


@dataclass(frozen=True, slots=True)
class Mount:
    """A file system as it is mounted."""

    point: str
    device: str
    """Major and minor number of the device, ``254:0``."""
    options: str
    system: str
    """Type of the file system, what it is mounted from, and its own options."""

    @property
    def kind(self) -> str:
        """Such as ``ext4``, ``xfs``, ``nfs4`` or ``tmpfs``."""
        return self.system.split()[0]

    @property
    def is_memory(self) -> bool:
        """Whether its files lie in memory: there is no device to be waited for."""
        return self.kind in _MEMORY

    @property
    def words(self) -> str:
        """For people."""
        return f"{self.kind} {self.device} ({self.options})"


def mount_of(path: str, table: str = "/proc/self/mountinfo") -> Mount:
    """The mount that a file or folder lies on.

    Args:
        path: it need not be there; its nearest folder counts then.
        table: the system's list of mounts.

    Raises:
        Broken: the system has no such list.
    """
    real = os.path.realpath(path)
    try:
        lines = Path(table).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError as error:
        raise Broken(f"cannot read {table}: {error.strerror}; rates are measured on Linux only") from error
    if not lines:
        raise Broken(f"{table} lists no mounts; rates are measured on Linux only")
    found = [each for each in map(_mount, lines) if os.path.commonpath([real, each.point]) == each.point]
    # Of two that are mounted on one folder the later one is seen.
    return max(enumerate(found), key=lambda each: (len(each[1].point), each[0]))[1]


def _mount(line: str) -> Mount:
    """A line of proc_pid_mountinfo(5): two numbers, device, root, mount point, options, tags, ``-``, then the type."""
    own, _, of_system = line.partition(" - ")
    fields = own.split()
    point = fields[4]
    for code, character in _OCTAL.items():
        point = point.replace(code, character)
    return Mount(point, fields[2], fields[5], of_system)
