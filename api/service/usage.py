"""What a process and those that it started have taken of the CPU: a service is nobody's child and tells it itself."""

import os
from pathlib import Path

__all__ = ["cpu_seconds"]

_FIRST_TIME = 11
"""Of ``/proc/PID/stat``, counted behind the name: utime, then stime, cutime, cstime."""


def cpu_seconds(pid: int | None = None) -> float:
    """CPU seconds, user and system, of a process and its descendants, also of those that have ended.

    Args:
        pid: of the process; None = this one. 0.0 if it is not there, or the system does not tell.
    """
    folder = Path(f"/proc/{os.getpid() if pid is None else pid}")
    try:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        ticks = sum(map(int, fields[_FIRST_TIME : _FIRST_TIME + 4]))
        children = [int(child) for task in (folder / "task").iterdir() for child in _children(task)]
    except OSError:
        return 0.0
    return ticks / os.sysconf("SC_CLK_TCK") + sum(map(cpu_seconds, children))


def _children(task: Path) -> list[str]:
    try:
        return (task / "children").read_text().split()
    except OSError:  # the thread has ended
        return []
