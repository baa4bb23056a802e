"""Copies leave a cache that nobody has open, for `viewcache evict`, `gc` and `verify`: the order of steps, once.

Rows go before bytes, as in an open cache the ledger forgets a copy before it is deleted. While that lasts the cache
counts as one that did not end cleanly: killed in between, the next start looks at what lies there and takes it in or
deletes it. Bytes first would leave rows that are believed, and bytes that are counted, until somebody reads them.
"""

from collections.abc import Callable, Iterable

from viewcache.catalog import Catalog
from viewcache.catalog.records import CLEAN
from viewcache.failpoints import failpoint
from viewcache.store import Tier

__all__ = ["remove"]


def remove(catalog: Catalog, places: Iterable[tuple[Tier, list[str]]], forget: Callable[[], None]) -> None:
    """Remove copies.

    Args:
        catalog: nobody else has it open.
        places: what is deleted, by tier.
        forget: removes the rows; those of other copies may change with them.

    Raises:
        StoreUnreachable: a remote tier does not answer any more; the next start finds what lies there without a row.
    """
    before = catalog.setting(CLEAN) or "no"
    catalog.set_setting(CLEAN, "no")
    forget()
    catalog.flush()
    failpoint("removal.recorded")
    for tier, physical in places:
        tier.each(tier.delete, physical)
    catalog.set_setting(CLEAN, before)
