"""Control groups whose processes get so many bytes a second of a disk, and a page cache of a stated size.

Of version 1 (``blkio``, ``memory``, ``cpu``) and of version 2 (``io``, ``memory``, ``cpu``). It takes root. The
trade-off: what processes need for themselves changes while they run, and the page cache gets what is left of a limit,
so it has more at times than it was meant to.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["GROUPS", "Group", "group", "refusal"]

GROUPS = Path("/sys/fs/cgroup")
"""Where the system mounts them."""


FAVOURED = {True: ("cpu.shares", "32768"), False: ("cpu.weight", "3200")}
"""By whether controllers are of version 1: 32 times what another session has of the cores. With much more the
kernel's own threads would wait, too, which read and write for everybody.
"""


@dataclass(frozen=True, slots=True)
class Group:
    """A group, in one folder for each controller, or in one for all."""

    disk: Path
    memory: Path
    cores: Path
    device: str
    """Major and minor number of the disk."""
    is_first: bool
    """Whether the controllers are of version 1."""

    @property
    def folders(self) -> tuple[Path, ...]:
        """Each folder once."""
        return tuple(dict.fromkeys((self.disk, self.memory, self.cores)))

    def join(self) -> None:
        """Bring this process in; those that it starts from now on are in it too."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(os.getpid()))

    def leave(self) -> None:
        """Take this process out again, into the group above."""
        for folder in self.folders:
            (folder.parent / "cgroup.procs").write_text(str(os.getpid()))

    def read_bytes(self) -> int:
        """That its processes have read of the disk so far."""
        if self.is_first:
            rows = (self.disk / "blkio.throttle.io_service_bytes").read_text().splitlines()
            return sum(int(row.split()[2]) for row in rows if row.startswith(f"{self.device} Read "))
        rows = (self.disk / "io.stat").read_text().splitlines()
        fields = (each.split("=") for row in rows if row.startswith(f"{self.device} ") for each in row.split()[1:])
        return sum(int(size) for name, size in fields if name == "rbytes")

    def needed_bytes(self) -> int:
        """Of memory that its processes take themselves: all but the pages of files."""
        used = int((self.memory / ("memory.usage_in_bytes" if self.is_first else "memory.current")).read_text())
        stat = dict(line.split() for line in (self.memory / "memory.stat").read_text().splitlines())
        names = ("total_active_file", "total_inactive_file") if self.is_first else ("active_file", "inactive_file")
        return used - sum(int(stat[name]) for name in names)

    def limit_memory(self, size: int) -> None:
        """Let processes and the page cache have so many bytes; what is cached beyond that is given up."""
        (self.memory / ("memory.limit_in_bytes" if self.is_first else "memory.max")).write_text(str(size))

    def pause(self) -> None:
        """Stop all its processes where they are."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let them go on."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        for pid in (self.disk / "cgroup.procs").read_text().split():
            os.kill(int(pid), number)

    def favour(self) -> None:
        """Give its processes more of the cores than others, so that what else the machine does hardly slows them."""
        name, share = FAVOURED[self.is_first]
        (self.cores / name).write_text(share)


@contextmanager
def group(name: str, folder: Path, bytes_per_s: int) -> Iterator[Group]:
    """A new group without processes; when it ends, those that joined must have ended or left.

    Args:
        name: of the group; the number of this process is added.
        folder: on the disk that is limited.
        bytes_per_s: that all its processes together may read.

    Raises:
        OSError: this process may not make one, or there are no such controllers.
    """
    number, name = os.stat(folder).st_dev, f"viewcache-{name}-{os.getpid()}"
    is_first = (GROUPS / "blkio").is_dir()
    disk, memory, cores = (GROUPS / each / name if is_first else GROUPS / name for each in ("blkio", "memory", "cpu"))
    found = Group(disk, memory, cores, f"{os.major(number)}:{os.minor(number)}", is_first)
    with ExitStack() as made:
        for each in found.folders:
            each.mkdir()
            made.callback(each.rmdir)
        limit, text = ("blkio.throttle.read_bps_device", "") if is_first else ("io.max", "rbps=")
        (found.disk / limit).write_text(f"{found.device} {text}{bytes_per_s}")
        yield found


def refusal(folder: Path, bytes_per_s: int) -> str:
    """Why this process cannot limit the disk of a folder, and its page cache; empty if it can."""
    try:
        with group("try", folder, bytes_per_s):
            return ""
    except OSError as error:
        return str(error)
