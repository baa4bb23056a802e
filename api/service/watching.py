"""Looking at the service of a store without being one of its clients: who uses it, whether it is needed."""

import os
from pathlib import Path

from viewcache.api.service import answers, asks, files, wire
from viewcache.api.service.peer import peer
from viewcache.api.service.stopping import stop
from viewcache.errors import CatalogBusy, NotFound, ViewcacheError

__all__ = ["cure_of", "end_idle", "stats_of"]

PATIENCE_S = 5.0
"""How long the service may take to say how it is."""

SERVES = "viewcache.api.service.run"
"""What a service runs."""


def stats_of(root: Path) -> answers.StatsOf | None:
    """What the service of a store does; None if none runs, or it is ending. Asking keeps none alive."""
    try:
        line = files.connect(root, PATIENCE_S)
        if line is None:
            return None
        with line:
            if peer(line)[1] != os.getuid():
                return None
            wire.send(line, asks.Stats())
            answer = wire.decode_answer(wire.receive(line, wire.ANSWER_BYTES)[0])
    except (ViewcacheError, OSError, EOFError):
        return None
    return answer if isinstance(answer, answers.StatsOf) else None


def end_idle(error: CatalogBusy) -> bool:
    """End the service that owns a store, if it is one and nobody uses it; whether the store is free now."""
    root = _served_by(error.pid)
    if root is None:
        return False
    try:
        stop(Path(root), if_idle=True)
    except NotFound:
        return True  # it has ended by itself
    except ViewcacheError:
        return False
    return True


def cure_of(error: CatalogBusy) -> str:
    """What to do about a store that is owned by a service; empty if another process owns it."""
    root = _served_by(error.pid)
    if root is None:
        return ""
    return f"process {error.pid} is the service of this cache: `viewcache stop {root}` ends it, and no work is lost"


def _served_by(pid: int) -> str | None:
    """The store that a process serves; None if it is no service."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    return words[words.index(SERVES) + 1] if SERVES in words else None
