"""How much memory this process may still take: the machine's, and that of the control groups that hold it.

Asked before memory is claimed for objects, since the kernel answers too late: it kills a process. The trade-off: others
take memory between the question and the claim, so a share is always left.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["Headroom", "headroom"]

_UNLIMITED = 1 << 60  # version 1 says "no limit" by a number near 2**63


@dataclass(frozen=True, slots=True)
class Headroom:
    """Memory in bytes; of all limits the one that leaves the least."""

    total: int
    available: int
    """Free, or taken by file contents that the kernel can drop."""

    @property
    def grantable(self) -> int:
        """What may be claimed now: all but a thirty-second of the total, which is left to what the process does."""
        return self.available - self.total // 32


def headroom(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> Headroom | None:
    """What is left now, None where the system does not say.

    Args:
        proc: where processes and memory are described.
        groups: where control groups are mounted, of version 2, version 1 or both.
    """
    limits = list(_limits(_groups(proc, groups)))
    numbers = _numbers(f"{proc}/meminfo")
    if b"MemTotal:" in numbers and b"MemAvailable:" in numbers:
        limits.append(Headroom(numbers[b"MemTotal:"] << 10, numbers[b"MemAvailable:"] << 10))
    return min(limits, key=lambda limit: limit.grantable, default=None)


def _limits(groups: tuple[tuple[str, str, str], ...]) -> Iterator[Headroom]:
    for most, used, kept in groups:
        limit = _read(most).strip()
        if not limit.isdigit() or int(limit) >= _UNLIMITED:
            continue
        current, numbers = _read(used).strip(), _numbers(kept)
        if current.isdigit():
            # Version 1 has the group's own number beside that with the groups below, as the usage is counted.
            names = (b"active_file", b"inactive_file")
            files = sum(numbers.get(b"total_" + name, numbers.get(name, 0)) for name in names)
            yield Headroom(int(limit), max(0, int(limit) - int(current)) + files)


@cache
def _groups(proc: Path, groups: Path) -> tuple[tuple[str, str, str], ...]:
    """Files of this process's group and of all above it: the limit, what is used, and of what kinds."""
    found = []
    for line in _read(f"{proc}/self/cgroup").decode().splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            root, most, used = groups, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            root, most, used = groups / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        group = root / path.strip("/")
        for folder in (group, *group.parents):
            found.append((f"{folder}/{most}", f"{folder}/{used}", f"{folder}/memory.stat"))
            if folder == root:
                break
    return tuple(found)


def _numbers(path: str) -> dict[bytes, int]:
    """The first number of each line, by the line's first word."""
    rows = (line.split() for line in _read(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""
