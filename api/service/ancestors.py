"""From which processes another one comes: those of one training have the process in common that began it."""

from collections.abc import Iterator
from contextlib import suppress

__all__ = ["ancestors"]


def ancestors(pid: int) -> Iterator[int]:
    """The process that a thread belongs to, its parent, and so on."""
    while pid:
        facts: dict[str, str] = {}
        with suppress(OSError), open(f"/proc/{pid}/status") as file:  # it may have ended
            facts = dict(line.split(":", 1) for line in file if ":" in line)
        if not facts:
            return
        yield int(facts["Tgid"])
        pid = int(facts["PPid"])
