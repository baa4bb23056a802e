"""How much memory this process may still take: the machine's, and that of the control groups that hold it.

Asked before memory is claimed for objects, since the kernel answers too late: it kills a process. The trade-off: others
take memory between the question and the claim, so a share is always left.
"""

from collections.abc import Iterator
from dataclasses import dataclass
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
    limits = list(_groups(proc, groups))
    numbers = _numbers(proc / "meminfo")
    if "MemTotal:" in numbers and "MemAvailable:" in numbers:
        limits.append(Headroom(numbers["MemTotal:"] << 10, numbers["MemAvailable:"] << 10))
    return min(limits, key=lambda limit: limit.grantable, default=None)


def _groups(proc: Path, groups: Path) -> Iterator[Headroom]:
    """The limits of this process's group and of all above it."""
    for line in _text(proc / "self" / "cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            root, most, used = groups, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            root, most, used = groups / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        group = root / path.strip("/")
        for folder in (group, *group.parents):
            limit, current = _text(folder / most).strip(), _text(folder / used).strip()
            if limit.isdecimal() and current.isdecimal() and int(limit) < _UNLIMITED:
                kept = _numbers(folder / "memory.stat")
                files = sum(kept.get(f"total_{name}", kept.get(name, 0)) for name in ("active_file", "inactive_file"))
                yield Headroom(int(limit), max(0, int(limit) - int(current)) + files)
            if folder == root:
                break


def _numbers(path: Path) -> dict[str, int]:
    """The first number of each line, by the line's first word."""
    rows = (line.split() for line in _text(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
