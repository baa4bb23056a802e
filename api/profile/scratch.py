"""A store of a configuration, owned while something is measured in it, and a folder there that leaves nothing behind.

The folder lies among unfinished objects under a name that says whose it is: a killed profile leaves it, and whoever
opens the cache next removes it as what any dead writer left. The trade-off: nobody can train with the cache meanwhile,
which would spoil both anyway.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from viewcache.api.config.load import Config
from viewcache.catalog import Catalog
from viewcache.catalog.lock import OwnerLock
from viewcache.catalog.opening import is_postgresql, own_store, owner_lock_of
from viewcache.errors import BudgetTooSmall, Full
from viewcache.materializer.storage.recover import bind_store
from viewcache.store import LocalTier
from viewcache.store.temporary import make_temporary_folder, temporary_name

__all__ = ["LAYOUT_BYTES", "check_free", "owned_store", "scratch_folder"]

LAYOUT_BYTES = 2 << 20
"""A store takes so much beside its objects: a folder for each two digits of their names, and its marker."""
ENDING_S = 1.0
"""How long an owner is waited for that is about to end, as where the catalog is opened."""


def check_free(config: Config) -> None:
    """Refuse a store that another process owns, before anything is read for it: its owner may come and go meanwhile.

    Raises:
        CatalogBusy: another process owns it.
    """
    lock = owner_lock_of(config.cache.catalog, config.cache.local.url)
    if lock.exists():
        OwnerLock(lock, exclusive=False, wait_s=ENDING_S).release()


@contextmanager
def owned_store(config: Config) -> Iterator[tuple[Catalog, LocalTier]]:
    """Own a configuration's catalog and store, made if they are not there; what lies there is counted.

    Raises:
        CatalogBusy: another process owns it.
        BadInput: the folder is no store, or the catalog is of another one.
        Full: the disk has no room.
        Broken: the folder cannot be written.
    """
    root, where = config.cache.local.url, config.cache.catalog
    tier = LocalTier(root, config.cache.local.budget_bytes)
    with ExitStack() as held:
        held.callback(tier.close)
        lock = own_store(where, root)
        if lock is not None:
            held.enter_context(lock)
        catalog = held.enter_context(Catalog.open(where if is_postgresql(where) else root, beside=root))
        if lock is not None:
            bind_store(catalog, tier)
        tier.sweep()
        tier.settle(sum(size for _, size in tier.iter_objects()))
        tier.resize(config.with_used_bytes(tier.used_bytes).cache.local.budget_bytes)
        yield catalog, tier


@contextmanager
def scratch_folder(tier: LocalTier, size: int) -> Iterator[str]:
    """A folder laid out as a store, of at most so many bytes, which are promised to it; gone in the end.

    Raises:
        BudgetTooSmall: the budget has no room for it.
        Full: the disk has none.
    """
    reservation = tier.reserve(size)
    if reservation is None:
        least, evict = tier.used_bytes + size, ", or evict (`viewcache evict`)" if tier.used_bytes else ""
        raise BudgetTooSmall(
            f"measuring takes {size} bytes of the local tier for a moment, and {tier.used_bytes} of its "
            f"{tier.budget_bytes} bytes are in use; raise cache.budget{evict}",
            least,
        )
    with reservation:
        make_temporary_folder(tier.root)
        folder = f"{tier.root}/{temporary_name(secrets.token_hex(16))}"
        try:
            try:
                os.mkdir(folder, 0o700)
            except OSError as error:
                raise Full(f"cannot make {folder}: {error.strerror}; free disk space, or check its rights") from error
            LocalTier(folder, size)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
