"""Looking at the service of a store without being one of its clients for long: who uses it, whether it is needed."""

from pathlib import Path

from viewcache.api.service import answers, asks
from viewcache.api.service.client import Client
from viewcache.api.service.stopping import stop
from viewcache.errors import CatalogBusy, NotFound, ViewcacheError

__all__ = ["cure_of", "end_idle", "stats_of"]

SERVES = "viewcache.api.service.run"
"""What a service runs."""


def stats_of(root: Path) -> answers.StatsOf | None:
    """What the service of a store does, without this process among its clients; None if none runs, or it is ending."""
    try:
        client = Client(root, (), may_start=False)
    except ViewcacheError:
        return None
    try:
        stats = client.ask(answers.StatsOf, asks.Stats())
        mine = client.connected().welcome.session
    except ViewcacheError:
        return None
    finally:
        client.close()
    others = tuple(each for each in stats.clients if each.session != mine)
    return answers.StatsOf(stats.pid, stats.version, stats.since, stats.cpu_s, others)


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
