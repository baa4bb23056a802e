"""What lies in the store, as the running process knows it: copies, who reads them, and the rows that tell the catalog.

The catalog is written behind (batches, one writer); this is the truth between its commits. A reader holds a copy while
it reads, by count, in memory: a process that dies takes its holds with it. An object may have a copy in each tier;
who asks for an object gets the one that is read fastest.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING

from viewcache.catalog.records import CopyRow, IoSampleRow
from viewcache.errors import Broken, CatalogBusy
from viewcache.materializer.storage.error_events import ErrorEvents
from viewcache.materializer.storage.eviction import Eviction, Victim
from viewcache.materializer.storage.leases import Leases
from viewcache.materializer.storage.shelf import Copy, Shelf, written_row
from viewcache.store import Written

if TYPE_CHECKING:
    from viewcache.catalog import Catalog

from viewcache.store.tier import LOCAL, MEMORY, PASSING

__all__ = ["Copy", "Ledger"]

_log = logging.getLogger("viewcache.ledger")

READS_AT_ONCE = 4096
"""So many copies that were read are noted in the catalog together: alone, each would cost a scan of its rows."""

PASSED_S = 5.0
"""So long an object that was read from memory counts among what lies there: what the catalog says of where readers are
is up to three seconds older than that (a second until it is written, two for which a snapshot is used again)."""

MISSING = "missing"
"""Why a copy is gone of which no bytes lie there."""

_ALL = 1 << 62
"""More bytes than any tier has."""


class Ledger:
    """Copies by content key, and the catalog behind them. Thread-safe."""

    def __init__(self, catalog: "Catalog", tiers: Sequence[str] = (LOCAL,), eviction: Eviction | None = None) -> None:
        """Start empty; `adopt` what the catalog remembers.

        Args:
            catalog: what is told of all that comes and goes.
            tiers: their names, the fastest first.
            eviction: chooses what leaves; None = by the default policy.
        """
        self._catalog = catalog
        self._lock = threading.Lock()
        self._copies = {tier: Shelf(tier) for tier in (PASSING, *tiers)}  # the catalog has no rows of the first
        self._keys: dict[int, str] = {}
        self._passed: dict[int, float] = {}
        """Object → when it was read from memory and forgotten, monotonic seconds; the last ones, in this order."""
        self._left: dict[str, set[str]] = {}
        """Tier that is being looked through → keys of what has left it since that began."""
        self._leaving: set[tuple[str, str]] = set()
        """By tier and key, what is forgotten and whose bytes are not deleted yet."""
        self._stuck: dict[tuple[str, str], int] = {}
        """The same of what could not be deleted: bytes that its tier counts still."""
        self._holds: Counter[tuple[str, str]] = Counter()
        """By tier and key."""
        self.holds = 0
        """How often readers took hold of objects since the start."""
        self.gone: Counter[tuple[str, str]] = Counter()
        """Copies that are gone since the start, by tier and reason."""
        self._eviction = eviction or Eviction(catalog)
        self._chosen: dict[tuple[str, int], Victim] = {}
        """By tier and object, what the policy said of it last, if it was ever a victim."""
        self._leases = Leases()
        self._read: dict[str, dict[int, int]] = {tier: {} for tier in tiers}
        """Tier → object → tick of its last read, where the catalog does not know it yet."""
        self._tick: int = catalog.query("last_tick")["tick"][0].as_py()
        catalog.forget_leases()  # whoever had some belonged to an earlier run
        self.errors = ErrorEvents(catalog)
        """Records what could not be made, or not as it should be."""
        self._down: dict[str, float] = {}
        """Tiers that are passed over → until when, monotonic seconds."""
        self.residents: Set[str] = frozenset()
        """Keys of what stays in memory for now, whatever a policy says."""

    def mark_unreachable(self, tier: str, until: float) -> bool:
        """Treat what lies in a tier as missing until then (monotonic seconds); False if it was so already."""
        with self._lock:
            before = self._down.get(tier, 0.0)
            self._down[tier] = until
            return before < time.monotonic()

    def is_reachable(self, tier: str) -> bool:
        """Whether a tier is not passed over just now."""
        return self._down.get(tier, 0.0) < time.monotonic()

    def _reachable(self) -> Iterator[Shelf]:
        """The copies of each tier that can be read, the fastest first."""
        if not self._down:
            return iter(self._copies.values())
        return (copies for tier, copies in self._copies.items() if self.is_reachable(tier))

    def adopt(self, shelf: Shelf) -> None:
        """Take over what earlier runs left in a tier, as the catalog has it."""
        with self._lock:
            self._copies[shelf.tier] = shelf
            self._keys.update(zip(shelf.recorded_ids, shelf.recorded_keys, strict=True))

    def look_through(self, tier: str, *, over: bool = False) -> None:
        """Remember from now on what leaves a tier, for `found`; no more when that is over."""
        with self._lock:
            self._left.pop(tier, None)
            if not over:
                self._left[tier] = set()

    def found(self, rows: Iterable[tuple[Copy, CopyRow]]) -> list[Copy]:
        """Take in copies that lie in a tier and had no row, and record them; returns those that have not left since."""
        with self._lock:
            taken = [each for each in rows if each[0].key not in self._left.get(each[0].tier, ())]
            for copy, _ in taken:
                self._copies[copy.tier].put(copy)
                self._keys[copy.object_id] = copy.key
            self._catalog.mark_ready([row for _, row in taken])
        return [copy for copy, _ in taken]

    def lost(self, tier: str, keys: Iterable[str]) -> list[Copy]:
        """Forget copies of which nothing lies in a tier, and return them; what has left already is left out."""
        shelf = self._copies[tier]
        with self._lock:
            copies = [copy for copy in map(shelf.get, keys) if copy is not None]
        gone = self._forget(copies, MISSING, unless_held=False)
        self._catalog.mark_gone([copy.object_id for copy in gone], MISSING, tier=tier)
        return gone

    def has(self, key: str) -> bool:
        """Whether an object is in the store, in any tier that can be read."""
        for copies in self._reachable():  # noqa: SIM110 - asked most of all, and `any` takes three times as long
            if key in copies:
                return True
        return False

    def size(self, key: str) -> int | None:
        """Bytes of an object's copy in the fastest tier that can be read; None if it is in none."""
        with self._lock:
            copy = self._best(key)
            return None if copy is None else copy.bytes

    def find(self, key: str, tier: str) -> Copy | None:
        """An object's copy in one tier."""
        with self._lock:
            shelf = self._copies.get(tier)
            return None if shelf is None else shelf.get(key)

    def lies_in(self, key: str, tier: str) -> bool:
        """Whether an object has a copy in a tier."""
        return key in self._copies.get(tier, ())

    def __len__(self) -> int:
        """Number of objects in the store."""
        return len(self._keys)

    def copies(self, tier: str = LOCAL) -> dict[str, Copy]:
        """What lies in a tier now, by key."""
        with self._lock:
            shelf = self._copies[tier]
            keys = list(shelf.keys())
            return {key: copy for key in keys if (copy := shelf.get(key)) is not None}

    def has_only(self, object_ids: Collection[int]) -> bool:
        """Whether nothing that is stored, in any tier, is another object than these."""
        with self._lock:
            stored = [shelf.keys() for tier, shelf in self._copies.items() if tier != PASSING]
            if max(map(len, stored), default=0) > len(object_ids):
                return False
            these = {self._keys.get(each) for each in object_ids}
            return all(keys <= these for keys in stored)

    @property
    def held(self) -> set[str]:
        """Keys of the objects that readers hold now."""
        with self._lock:
            return {key for _, key in self._holds}

    def hold(self, keys: list[str], tier: str | None = None) -> list[Copy] | None:
        """Hold all objects, or none and return None if one is missing.

        Args:
            keys: content keys.
            tier: only copies of this one will do; None = of the fastest that has one.
        """
        with self._lock:
            copies = [self._best(key) if tier is None else self._copies[tier].get(key) for key in keys]
            found = [copy for copy in copies if copy is not None]
            if len(found) < len(keys):
                return None
            self._holds.update((copy.tier, copy.key) for copy in found)
            self.holds += 1
            self._tick += 1
            for copy in found:
                if copy.tier != PASSING:
                    self._read[copy.tier][copy.object_id] = self._tick
            many = sum(map(len, self._read.values())) >= READS_AT_ONCE
        if many:
            self.note_reads()
        return found

    def note_reads(self) -> None:
        """Tell the catalog when copies were read last."""
        with self._lock:
            for tier, read in self._read.items():
                by_tick: dict[int, list[int]] = {}
                for object_id, tick in read.items():
                    by_tick.setdefault(tick, []).append(object_id)
                for tick, ids in by_tick.items():
                    self._catalog.touch(ids, tier=tier, tick=tick)
                read.clear()

    def lease(self, holder: str, keys: list[str], seconds: float) -> list[Copy] | None:
        """Keep objects from leaving for so many seconds, all or none; None if one is missing.

        What the holder has leased before stays leased as long. A lease is for who may vanish: it protects nothing
        after its time, nor after the cache was opened anew. `leases` shows it to people, by the machine's clock.
        """
        with self._lock:
            found = [copy for copy in map(self._best, keys) if copy is not None]
            if len(found) < len(keys):
                return None
            self._end_expired()
            self._leases.take(holder, [(copy.key, copy.object_id) for copy in found], seconds)
            self._publish(holder, seconds)
        return found

    def renew(self, holder: str, seconds: float) -> bool:
        """Keep what is leased for so many seconds from now; False if the lease is over, and with it the protection."""
        with self._lock:
            self._end_expired()
            return self._publish(holder, seconds)

    def end_lease(self, holder: str) -> None:
        """Let go of all that a holder has leased."""
        with self._lock:
            self._catalog.release(self._leases.end(holder), holder=holder)

    def _publish(self, holder: str, seconds: float) -> bool:
        ids = self._leases.renew(holder, seconds)
        if ids is not None:
            self._catalog.hold(ids, holder=holder, expires_at=time.time() + seconds)
        return ids is not None

    def _end_expired(self) -> None:
        for holder, ids in self._leases.expire().items():
            self._catalog.release(ids, holder=holder)

    def _best(self, key: str) -> Copy | None:
        for shelf in self._reachable():
            copy = shelf.get(key)
            if copy is not None:
                return copy
        return None

    def release(self, copies: list[Copy]) -> None:
        """Give holds back."""
        with self._lock:
            for copy in copies:
                place = copy.tier, copy.key
                self._holds[place] -= 1
                if self._holds[place] <= 0:
                    del self._holds[place]

    def add(self, copy: Copy, written: Written) -> None:
        """A copy was published: readers may have it at once, the catalog's row follows with the next batch."""
        with self._lock:
            self._tick += 1
            self._copies[copy.tier].put(copy)
            self._keys[copy.object_id] = copy.key
            row = written_row(copy.object_id, copy.tier, written, self._tick)
        self._catalog.mark_ready([row])

    def let_pass(self, copy: Copy) -> None:
        """An object lies in memory for its one reader."""
        with self._lock:
            self._copies[PASSING].put(copy)

    def passed(self, copies: list[Copy]) -> list[Copy]:
        """Forget copies that have passed, if nobody holds them, and return them; the caller gives their places back."""
        gone, now = self._forget(copies, None, unless_held=True), time.monotonic()
        with self._lock:
            for copy in gone:
                self._passed.pop(copy.object_id, None)
                self._passed[copy.object_id] = now
            self._forget_passed(now)
        return gone

    def _forget_passed(self, now: float) -> None:
        while self._passed and now - self._passed[first := next(iter(self._passed))] > PASSED_S:
            del self._passed[first]

    def in_memory(self) -> list[int]:
        """Objects that lie in memory for their one reader, or did so less than `PASSED_S` ago; no catalog has them."""
        with self._lock:
            self._forget_passed(time.monotonic())
            shelf = self._copies[PASSING]
            lying = [copy.object_id for key in list(shelf.keys()) if (copy := shelf.get(key)) is not None]
            return list(dict.fromkeys([*lying, *self._passed]))

    def drop(self, copy: Copy, reason: str) -> bool:
        """Forget a copy before its bytes are deleted; False if another thread was first."""
        if not self._forget([copy], reason, unless_held=False):
            return False
        if copy.tier != PASSING:
            self._chosen.pop((copy.tier, copy.object_id), None)
            self._catalog.mark_gone([copy.object_id], reason, tier=copy.tier)
        return True

    def deleted(self, copy: Copy, *, failed: bool = False) -> None:
        """The bytes of a copy that left are gone; or that ``failed``, and its tier counts them still."""
        with self._lock:
            if failed:
                self._stuck[copy.tier, copy.key] = copy.bytes
            self._leaving.discard((copy.tier, copy.key))

    def uncounted(self, key: str, tier: str, written: Written) -> int:
        """Bytes that a tier does not count yet of an object that was written there, or found; from now on it does."""
        with self._lock:
            if written.existed and self._copies[tier].get(key) is not None:
                return 0
            return max(0, written.bytes - self._stuck.pop((tier, key), 0))

    def none_leaves(self) -> None:
        """Nobody deletes anything: what an error has kept from being deleted may be made, and is found there."""
        self._leaving.clear()

    def is_leaving(self, key: str, tier: str = LOCAL) -> bool:
        """Whether a copy that left is about to be deleted: who made it again now would find the old bytes."""
        return (tier, key) in self._leaving

    def _forget(self, copies: list[Copy], reason: str | None, *, unless_held: bool) -> list[Copy]:
        with self._lock:
            gone = [copy for copy in copies if self._copies[copy.tier].get(copy.key) is copy]
            if unless_held:
                leased = self._leases.keys()
                gone = [copy for copy in gone if (copy.tier, copy.key) not in self._holds and copy.key not in leased]
                gone = [copy for copy in gone if copy.tier != MEMORY or copy.key not in self.residents]
            for copy in gone:
                if copy.tier != PASSING and reason != MISSING:
                    self._leaving.add((copy.tier, copy.key))  # first: who asks for both does so without the lock
                self._copies[copy.tier].remove(copy.key)
                if copy.tier in self._left:
                    self._left[copy.tier].add(copy.key)
                if reason is not None:
                    self.gone[copy.tier, reason] += 1
                if copy.tier == PASSING:
                    continue
                self._read[copy.tier].pop(copy.object_id, None)
                if not any(copy.key in shelf for tier, shelf in self._copies.items() if tier != PASSING):
                    del self._keys[copy.object_id]
        return gone

    def spared(self, tier: str, protected: set[str]) -> set[str]:
        """What may not leave a tier now: what is protected, held or leased, and in memory residents."""
        with self._lock:
            stays = set(self.residents if tier == MEMORY else ())
            return protected | {key for place, key in self._holds if place == tier} | self._leases.keys() | stays

    def leave(self, copies: list[Copy], reason: str | None = None) -> list[Copy]:
        """Forget copies of one tier that nobody holds, and return them; the caller has `Tiers` delete the bytes.

        The catalog is told why: the ``reason``, or what the policy said of each when it was asked last.
        """
        gone = self._forget(copies, "evict", unless_held=True)
        if not gone or gone[0].tier == PASSING:
            return gone
        why: dict[str | None, dict[int, str | None]] = {}
        for copy in gone:
            victim = self._chosen.pop((copy.tier, copy.object_id), None)
            policy, said = (None, reason) if victim is None or reason else (victim.policy, victim.reason)
            why.setdefault(policy, {})[copy.object_id] = said
        for policy, reasons in why.items():
            self._catalog.mark_evicted(reasons, policy, tier=gone[0].tier)
        return gone

    def candidates(self, tier: str, need: int, protected: set[str]) -> list[tuple[Copy, bool]]:
        """What would leave a tier for so many bytes, in the order of the policy, and whether it is wanted still.

        Nothing is forgotten.
        """
        chosen = self.choose(tier, need, protected)
        wanted = self._catalog.wanted_among([copy.object_id for copy in chosen])
        return [(copy, copy.object_id in wanted) for copy in chosen]

    def choose(self, tier: str, need: int, protected: set[str]) -> list[Copy]:
        """What the policy would have leave, in its order; nothing is forgotten.

        Args:
            tier: which.
            need: bytes to free.
            protected: keys that a reader waits for; what readers hold, and what is leased, is protected anyway.
        """
        self.note_reads()
        with self._lock:
            self._end_expired()
        behind = False
        try:
            self._catalog.flush()
        except (Broken, CatalogBusy) as failure:  # most likely its disk is full, and the store's may be another one
            _log.warning("evicting by what the catalog has: %s", failure, extra={"action": "evict_behind"})
            behind = True
        kept = self.spared(tier, protected)
        with self._lock:
            copies = self._copies[tier]
            spared = [copy.object_id for copy in map(copies.get, kept) if copy is not None]
        chosen = self._behind(tier, need, spared) if behind else self._eviction.choose(tier, need, spared)
        with self._lock:
            self._chosen.update(((tier, victim.object_id), victim) for victim in chosen)
            keys = [self._keys.get(victim.object_id, "") for victim in chosen]
            return [copy for copy in map(copies.get, keys) if copy is not None]

    def irreplaceable(self, tier: str, protected: set[str]) -> list[Copy]:
        """What cannot be made again, the oldest first: until it is read, no policy is offered it."""
        spared = self.spared(tier, protected)
        copies = {copy.object_id: copy for key, copy in self.copies(tier).items() if key not in spared}
        return [copies[each] for each in sorted(self._catalog.lost_among([*copies]))]

    def _behind(self, tier: str, need: int, spared: Sequence[int]) -> list[Victim]:
        """Choose when the catalog cannot be written: it offers what has left, and does not know what was made since.

        What it does not know leaves after what it offers, the oldest first.
        """
        offered = self._eviction.choose(tier, _ALL, spared)
        known = {*spared, *self._catalog.query("read_copy_ids", tier=tier)["object_id"].to_pylist()}
        with self._lock:
            by_id = {copy.object_id: copy for copy in self._copies[tier]}
        offered += [Victim(each, "made while the catalog was full", None) for each in by_id if each not in known]
        chosen, freed = [], 0
        for victim in offered:
            if freed >= need:
                break
            if victim.object_id in by_id:
                chosen.append(victim)
                freed += by_id[victim.object_id].bytes
        return chosen

    def add_samples(self, rows: Sequence[IoSampleRow]) -> None:
        """Record what work has cost, see `work_rows`."""
        self._catalog.add_io_samples(rows)
