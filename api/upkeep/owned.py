"""Owning a cache that nobody has open: the one way in for the commands that check, repair or empty it.

A DuckDB catalog has a lock of its own; a store whose catalog is in PostgreSQL has ``owner.lock`` in its folder. Either
is held from before the catalog is opened until after it is closed, exclusively by who changes something.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from viewcache.api.config.find import Located
from viewcache.catalog import Catalog
from viewcache.catalog.opening import is_postgresql, own_store
from viewcache.errors import NotFound
from viewcache.materializer.storage.recover import check_bound
from viewcache.store import MARKER, LocalTier, Tier, open_tier
from viewcache.store.tier import LOCAL, REMOTE

__all__ = ["Owned", "owned_cache", "owner_lock"]


@dataclass(frozen=True)  # no slots: the URL is cached
class Owned:
    """A closed cache while it is owned."""

    catalog: Catalog
    located: Located
    _opened: ExitStack

    @cached_property
    def remote_url(self) -> str | None:
        """Of the bucket, if the last run had one."""
        rows = self.catalog.query("read_tiers").to_pylist()
        return next((row["url"] for row in rows if row["tier"] == REMOTE), None)

    @property
    def tier_names(self) -> tuple[str, ...]:
        """The tiers whose bytes outlive a process: local, and remote where the last run had one."""
        return (LOCAL,) if self.remote_url is None else (LOCAL, REMOTE)

    def tier(self, name: str) -> Tier:
        """One of them, opened now: who does not need the bucket works without it.

        It counts, reads and deletes; nothing is reserved.

        Raises:
            StoreUnreachable: the remote tier does not answer.
        """
        if name == LOCAL:
            return LocalTier(self.located.root, 1)
        assert name == REMOTE
        assert self.remote_url is not None
        config = self.located.config
        timeouts = {spec.name: spec.timeout for spec in config.cache.tiers} if config is not None else {}
        remote = open_tier(REMOTE, self.remote_url, 1, timeouts.get(REMOTE, 60.0), make=False)
        self._opened.callback(remote.close)
        return remote


@contextmanager
def owned_cache(located: Located, *, writable: bool) -> Iterator[Owned]:
    """Own a cache that nobody has open.

    Args:
        located: which; its configuration, if it is given, says how long to wait for a remote tier.
        writable: False only reads; others may do so at the same time.

    Raises:
        NotFound: there is no catalog or no store.
        BadInput: the catalog is of another store.
        CatalogBusy: another process owns it.
    """
    root = Path(located.root)
    if not (root / MARKER).is_file():
        raise NotFound(f"no store in {root}; `viewcache run` makes one")
    with ExitStack() as held:
        held.enter_context(owner_lock(located, exclusive=writable))
        catalog = held.enter_context(
            Catalog.open(located.catalog, create=False, writable=writable, beside=located.root)
        )
        if is_postgresql(located.catalog):
            check_bound(catalog, root)
        yield Owned(catalog, located, held)


@contextmanager
def owner_lock(located: Located, *, exclusive: bool) -> Iterator[None]:
    """Hold the lock of a store whose catalog is in PostgreSQL; that of a DuckDB catalog is taken when it is opened.

    Where the store's folder is not there, as on another machine, there is nothing to be held.

    Raises:
        CatalogBusy: another process holds it.
    """
    is_here = Path(located.root).is_dir()
    lock = own_store(located.catalog, located.root, exclusive=exclusive) if is_here else None
    with lock or nullcontext():
        yield
