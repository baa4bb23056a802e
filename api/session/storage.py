"""Where an open cache keeps its bytes: its tiers, opened and made to agree with the catalog, and the ledger of them."""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from viewcache.api.config.load import Config
from viewcache.catalog import Catalog
from viewcache.catalog.records import TierRow
from viewcache.errors import BadInput, Full, ViewcacheError
from viewcache.materializer.planning.prices import Prices
from viewcache.materializer.scheduling.passing_rules import passing_bytes
from viewcache.materializer.storage.codecs import CodecChooser
from viewcache.materializer.storage.eviction import Eviction
from viewcache.materializer.storage.irreplaceable import IRREPLACEABLE, youngest
from viewcache.materializer.storage.ledger import Ledger
from viewcache.materializer.storage.recover import Recovery, recover
from viewcache.materializer.storage.tiers import Tiers
from viewcache.store import LocalTier, Tier, open_tier
from viewcache.store.passing import PassingMemory
from viewcache.store.tier import LOCAL

__all__ = ["Storage", "forget_volatile", "open_storage", "passing_memory", "shrink"]

_log = logging.getLogger("viewcache.storage")


@dataclass(frozen=True, slots=True)
class Storage:
    """The tiers of one cache."""

    config: Config
    """With the default budget filled in."""
    ledger: Ledger
    tiers: Tiers
    recovery: Recovery
    """Of the local tier; if it is not over, it is to be started."""

    def codecs(self, catalog: Catalog, prices: Callable[[], Prices]) -> CodecChooser:
        """What chooses codecs, given what says what bytes are worth."""
        fixed = {tier.name: tier.codec for tier in self.config.cache.tiers}
        return CodecChooser(fixed, catalog.load_io_samples, prices, catalog.add_io_samples)


def open_storage(config: Config, catalog: Catalog, local: LocalTier, *, clean: bool) -> Storage:
    """Open the further tiers and recover all of them.

    Args:
        config: names them.
        catalog: what we know.
        local: the local one, which is open already.
        clean: the last owner closed the catalog, so its rows can be trusted.

    Raises:
        BadInput: a tier's URL is not taken, what lies there is not ours, or the eviction policy cannot be used.
        Full: the machine has no such memory.
        StoreUnreachable: a remote tier refuses this process. One that does not answer is left alone for a while.
    """
    eviction = Eviction.of(catalog, config.cache.eviction)
    before = {row["tier"]: row["url"] for row in catalog.query("read_tiers").to_pylist()}
    with suppress(Full):  # a later start does it
        catalog.forget_unmade_packs()  # one that lies in the store after all is adopted when that is recovered
    ledger = Ledger(catalog, [spec.name for spec in config.cache.tiers], eviction)
    recovery = recover(catalog, local, ledger, clean=clean, wait=False)
    config = config.with_used_bytes(local.used_bytes)
    local.resize(config.cache.local.budget_bytes)
    opened: list[Tier] = []
    trusted: dict[str, bool] = {}
    try:
        for spec in config.cache.tiers:
            if spec.name == LOCAL:
                opened.append(local)
                continue
            tier = open_tier(spec.name, spec.url, spec.budget_bytes, spec.timeout, required=False)
            opened.append(tier)
            is_same = before.get(spec.name) == spec.url
            # What lies at another URL was counted by nobody, or by a session before the last: it is looked through.
            # So is that from which somebody has deleted the marker, and who knows what else.
            trusted[spec.name] = clean and (tier.volatile or is_same) and not tier.unmarked
            if tier.volatile or not is_same:
                try:
                    forget_tier(catalog, spec.name)
                except Full:
                    trusted[spec.name] = False  # its rows are still there, and a look forgets them one by one
            recover(catalog, tier, ledger, clean=trusted[spec.name])
    except BaseException:
        for tier in opened:
            tier.close()
        raise
    try:
        catalog.set_tiers([TierRow(tier.name, tier.url, tier.budget_bytes) for tier in config.cache.tiers])
    except Full:
        if before != {tier.name: tier.url for tier in config.cache.tiers}:  # else only budgets are not told to others
            raise
    tiers = Tiers(opened, ledger, passing_memory(config.cache.memory_bytes))
    for tier in opened:
        if tier.away:
            tiers.leave_alone(tier.name, recovered=trusted[tier.name] and not recovery.result.walked)
    return Storage(config, ledger, tiers, recovery)


def passing_memory(memory_bytes: int) -> PassingMemory | None:
    """Memory for clips that are read once and not stored; None where the system gives none, so that all are stored.

    Args:
        memory_bytes: that workers and such clips may take together.
    """
    try:
        return PassingMemory(passing_bytes(memory_bytes))
    except (BadInput, Full) as error:
        _log.info("all clips are stored, none passes through memory: %s", error, extra={"action": "passing_none"})
        return None


def forget_volatile(catalog: Catalog, tiers: Tiers) -> None:
    """Forget copies that end with this process, so that nobody is told of them; the next start does it otherwise."""
    for name in tiers.names():
        if tiers[name].volatile:
            with suppress(ViewcacheError):
                catalog.flush()  # what was moved last waits to be written
                forget_tier(catalog, name)


def forget_tier(catalog: Catalog, name: str) -> None:
    """Forget all that the catalog says of a tier whose bytes are gone, or lie elsewhere."""
    gone = catalog.query("read_stored", tier=name)["object_id"].to_pylist()
    if gone:
        catalog.mark_gone(gone, "missing", tier=name)
        catalog.flush()


def shrink(tiers: Tiers, ledger: Ledger) -> None:
    """Evict what a budget that was lowered since the last run has no room for, as far as it is counted."""
    for name in tiers.names():
        tier = tiers[name]
        if tier.away:
            continue  # the next start does it
        over = tier.used_bytes - tier.budget_bytes
        if over > 0:
            for copy in ledger.leave(ledger.choose(name, over, set())):
                tiers.delete(copy)
        over = tier.used_bytes - tier.budget_bytes
        if over > 0:  # of what no policy is offered
            for copy in ledger.leave(youngest(ledger.irreplaceable(name, set()), over), IRREPLACEABLE):
                tiers.delete(copy)
