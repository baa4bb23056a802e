"""`viewcache gc`: own a cache that nobody has open, and remove what nothing needs."""

from pathlib import Path

from viewcache.api.config.find import Located
from viewcache.api.upkeep.owned import owned_cache
from viewcache.errors import StoreUnreachable
from viewcache.materializer.storage.gc import Garbage, collect, survey

__all__ = ["collected"]


def collected(located: Located, *, quarantined: bool = False, dry_run: bool = False) -> Garbage:
    """Remove what no plan needs from a cache that nobody has open.

    Args:
        located: which.
        quarantined: also files that were moved aside because they could not be read.
        dry_run: only find it.

    Raises:
        NotFound: there is no catalog or no store.
        BadInput: the catalog is of another store.
        CatalogBusy: another process owns it.
        StoreUnreachable: a remote tier does not answer; the others are rid of what nothing needs.
    """
    with owned_cache(located, writable=not dry_run) as owned:
        tiers, away = [], None
        for name in owned.tier_names:
            try:
                tiers.append(owned.tier(name))
            except StoreUnreachable as error:
                away = error
        garbage = survey(owned.catalog, tiers, Path(located.root))
        if not dry_run:
            collect(owned.catalog, garbage, quarantined=quarantined)
    if away is not None:
        done = "can be" if dry_run else "were"
        raise StoreUnreachable(f"{away}; of the folder {garbage.objects} objects {done} removed") from away
    return garbage
