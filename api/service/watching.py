"""Looking at the service of a store without being one of its clients for long: who uses it, and whether it runs."""

from pathlib import Path

from viewcache.api.service import answers, asks
from viewcache.api.service.client import Client
from viewcache.errors import CatalogBusy, ViewcacheError

__all__ = ["cure_of", "stats_of"]

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
    return answers.StatsOf(stats.pid, stats.version, stats.since, stats.cpu_s, stats.work, others)


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
