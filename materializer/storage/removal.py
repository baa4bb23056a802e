"""Copies leave a cache that nobody has open, for `viewcache evict`, `gc` and `verify`: the order of steps, once.

Rows go before bytes, as in an open cache the ledger forgets a copy before it is deleted. While that lasts the cache
counts as one that did not end cleanly: killed in between, the next start looks at what lies there and takes it in or
deletes it. Bytes first would leave rows that are believed, and bytes that are counted, until somebody reads them: that
is done only where a full disk lets no row go before there is room, and then the next start looks at what lies there.
"""

import logging
from collections.abc import Callable, Iterable

from viewcache.catalog import Catalog
from viewcache.errors import Full
from viewcache.failpoints import failpoint
from viewcache.store import Tier

__all__ = ["remove"]

_log = logging.getLogger("viewcache.storage")


def remove(catalog: Catalog, places: Iterable[tuple[Tier, list[str]]], forget: Callable[[], None]) -> None:
    """Remove copies.

    Args:
        catalog: nobody else has it open.
        places: what is deleted, by tier.
        forget: removes the rows; those of other copies may change with them.

    Raises:
        StoreUnreachable: a remote tier does not answer any more; the next start finds what lies there without a row.
    """
    clean = catalog.begin()
    forget()
    recorded = _is_flushed(catalog)
    failpoint("removal.recorded")
    for tier, physical in places:
        tier.each(tier.delete, physical)
    if not recorded and not _is_flushed(catalog):
        _log.warning("what was removed is not recorded; the next start does it", extra={"action": "removed_full"})
    elif clean:
        catalog.end()


def _is_flushed(catalog: Catalog) -> bool:
    """Commit what waits; False where a full disk does not let it, and it goes on waiting."""
    try:
        catalog.flush()
    except Full:
        return False
    return True
