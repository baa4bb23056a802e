"""Copies leave a cache that nobody has open, for `viewcache evict`, `gc` and `verify`: the order of steps, once.

Rows go before bytes, as in an open cache the ledger forgets a copy before it is deleted. While that lasts the cache
counts as one that did not end cleanly: killed in between, the next start looks at what lies there and takes it in or
deletes it. Bytes first would leave rows that are believed, and bytes that are counted, until somebody reads them: that
is done only where a full disk lets no row go before there is room, and then the next start looks at what lies there.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial

import pyarrow as pa

from viewcache.catalog import Catalog, schemas
from viewcache.catalog.records import CopyRow
from viewcache.catalog.rows import from_table
from viewcache.errors import Full, StoreUnreachable
from viewcache.failpoints import failpoint
from viewcache.store import Tier
from viewcache.store.tier import REMOTE

__all__ = ["remove"]

_PLACE = ["tier", "physical"]

_log = logging.getLogger("viewcache.storage")


def remove(catalog: Catalog, places: Iterable[tuple[Tier, list[str]]], forget: Callable[[], None]) -> None:
    """Remove copies.

    Args:
        catalog: nobody else has it open.
        places: what is deleted, by tier.
        forget: removes the rows; those of other copies may change with them.

    Raises:
        StoreUnreachable: a remote tier does not answer any more; what could not be deleted keeps its row.
    """
    places = list(places)
    clean = catalog.begin()
    known = catalog.load_copies() if any(tier.name == REMOTE for tier, _ in places) else schemas.COPY.empty_table()
    forget()
    recorded = _is_flushed(catalog)
    failpoint("removal.recorded")
    gone: set[tuple[str, str]] = set()
    try:
        for tier, physical in places:
            tier.each(partial(_delete, tier, gone), physical)
    except StoreUnreachable as error:
        stays = [(tier.name, each) for tier, physical in places for each in physical if (tier.name, each) not in gone]
        _record_again(catalog, known, stays)
        raise StoreUnreachable(
            f"{error}; {len(gone)} of {len(gone) + len(stays)} objects were removed, try again when it answers"
        ) from error
    if not recorded and not _is_flushed(catalog):
        _log.warning("what was removed is not recorded; the next start does it", extra={"action": "removed_full"})
    elif clean:
        catalog.end()


def _delete(tier: Tier, gone: set[tuple[str, str]], physical: str) -> None:
    tier.delete(physical)
    gone.add((tier.name, physical))


def _record_again(catalog: Catalog, known: pa.Table, stays: Iterable[tuple[str, str]]) -> None:
    """Have the rows of copies that could not be deleted once more; of which a part is gone is found when it is read."""
    ids = {(row["tier"], row["physical"]): number for number, row in enumerate(known.select(_PLACE).to_pylist())}
    rows = [ids[each] for each in stays if each in ids]
    catalog.mark_ready(from_table(CopyRow, known.take(rows)))
    _is_flushed(catalog)


def _is_flushed(catalog: Catalog) -> bool:
    """Commit what waits; False where a full disk does not let it, and it goes on waiting."""
    try:
        catalog.flush()
    except Full:
        return False
    return True
