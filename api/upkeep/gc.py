"""`viewcache gc`: own a cache that nobody has open, and remove what nothing needs."""

from contextlib import ExitStack
from pathlib import Path

from viewcache.api.config.find import Located
from viewcache.api.upkeep.owned import lasting_tiers
from viewcache.catalog import Catalog
from viewcache.catalog.lock import OwnerLock
from viewcache.catalog.opening import is_postgresql
from viewcache.catalog.records import CLEAN
from viewcache.errors import NotFound
from viewcache.materializer.storage.gc import Garbage, collect, survey
from viewcache.store.local import MARKER

__all__ = ["collected"]


def collected(located: Located, *, quarantined: bool = False, dry_run: bool = False) -> Garbage:
    """Remove what no plan needs from a cache that nobody has open.

    Args:
        located: which.
        quarantined: also files that were moved aside because they could not be read.
        dry_run: only find it.

    Raises:
        NotFound: there is no catalog or no store.
        CatalogBusy: another process owns it.
        StoreUnreachable: a remote tier does not answer; the next start finds what is left there.
    """
    root = Path(located.root)
    if not (root / MARKER).is_file():
        raise NotFound(f"no store in {root}; `viewcache run` makes one")
    with ExitStack() as held:
        if is_postgresql(located.catalog):  # such a store has a lock of its own
            held.enter_context(OwnerLock(root / "owner.lock", exclusive=True))
        catalog = held.enter_context(
            Catalog.open(located.catalog, create=False, writable=not dry_run, beside=located.root)
        )
        tiers = held.enter_context(lasting_tiers(catalog, located))
        garbage = survey(catalog, tiers.values(), root)
        if not dry_run:
            # Killed before the end, the next start walks the store.
            before = catalog.setting(CLEAN) or "no"
            catalog.set_setting(CLEAN, "no")
            collect(catalog, garbage, quarantined=quarantined)
            catalog.set_setting(CLEAN, before)
    return garbage
