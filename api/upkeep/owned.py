"""The tiers of a cache that nobody has open whose bytes outlive a process, for the commands that care for them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from viewcache.api.config.find import Located
from viewcache.catalog import Catalog
from viewcache.store import LocalTier, Tier, open_tier
from viewcache.store.tier import LOCAL, REMOTE

__all__ = ["lasting_tiers"]


@contextmanager
def lasting_tiers(catalog: Catalog, located: Located) -> Iterator[dict[str, Tier]]:
    """The local tier, and the remote one where the last run had one. They count, read and delete; nothing is reserved.

    Args:
        catalog: of the cache.
        located: which; its configuration, if it is given, says how long to wait for a remote tier.

    Raises:
        StoreUnreachable: a remote tier does not answer.
    """
    timeouts = {spec.name: spec.timeout for spec in located.config.cache.tiers} if located.config is not None else {}
    with ExitStack() as opened:
        tiers: dict[str, Tier] = {LOCAL: LocalTier(located.root, 1)}
        for row in catalog.query("read_tiers").to_pylist():
            if row["tier"] == REMOTE:
                tiers[REMOTE] = open_tier(REMOTE, row["url"], 1, timeouts.get(REMOTE, 60.0), make=False)
                opened.callback(tiers[REMOTE].close)
        yield tiers
