"""Looking at the service of a store without being one of its clients: who uses it, and whether it runs."""

import os
from pathlib import Path

from viewcache.api.service import answers, asks, files, wire
from viewcache.api.service.peer import peer
from viewcache.errors import CatalogBusy, ViewcacheError

__all__ = ["cure_of", "stats_of"]

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


def cure_of(error: CatalogBusy) -> str:
    """What to do about a store that is owned by a service; empty if another process owns it."""
    try:
        words = Path(f"/proc/{error.pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    if SERVES not in words:
        return ""
    root = words[words.index(SERVES) + 1]
    return f"process {error.pid} is the service of this cache: `viewcache stop {root}` ends it, and no work is lost"
