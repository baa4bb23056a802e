"""How objects get into a client's hands: held for it, where it can read them, until it says that it has."""

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from viewcache.api.service import answers, asks
from viewcache.api.service.field_wire import field_of
from viewcache.api.service.sessions import Lease, Session
from viewcache.api.service.transit import TRANSIT, Transit
from viewcache.api.session.cache import Cache
from viewcache.catalog.records import IoSampleRow
from viewcache.errors import Broken, ChunkDamaged, StoreUnreachable
from viewcache.materializer.gate import Cancelled
from viewcache.materializer.reading.batch import Batch
from viewcache.materializer.reading.handle import OwnedTask
from viewcache.materializer.reading.held import Held
from viewcache.materializer.scheduling.demand import Fetched
from viewcache.materializer.scheduling.work import READ_TRIES
from viewcache.store import Stored
from viewcache.store.memory import MemoryTier
from viewcache.store.tier import LOCAL, MEMORY, PASSING

__all__ = ["READ_BY_CLIENTS", "Handing", "fetched_of"]

READ_BY_CLIENTS = (PASSING, MEMORY, LOCAL)
"""Tiers that clients read themselves."""

HELD_SHARE = 4
"""One client holds at most this part of the local tier, or one batch. Three quarters are left to be evicted for others,
while a quarter is many times what a loader holds: one batch for each thread that copies just now."""


class Handing:
    """What clients are given to read. Thread-safe."""

    def __init__(self, cache: Cache) -> None:
        """Nothing is held yet.

        Args:
            cache: whose objects.
        """
        self._cache = cache
        self._lock = threading.Lock()
        self._transit: Transit | None = None

    def tiers(self) -> tuple[str, ...]:
        """Names of what clients read themselves, the memory for all else last."""
        tiers = self._cache.owner.tiers
        passing = () if tiers.passing is None else (PASSING,)
        return (*passing, *(name for name in READ_BY_CLIENTS if name in tiers), TRANSIT)

    def descriptor(self, tier: str) -> int:
        """A new descriptor by which clients read a tier: of its folder, or of its memory; the caller closes it."""
        if tier == TRANSIT:
            return self.transit().descriptor()
        passing = self._cache.owner.tiers.passing
        if tier == PASSING and passing is not None:
            return passing.descriptor()
        found = self._cache.tiers[tier]
        if isinstance(found, MemoryTier):
            return found.descriptor()
        return os.open(self._cache.tier.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def transit(self) -> Transit:
        """The memory for what clients cannot read themselves, made when it is asked for first."""
        with self._lock:
            if self._transit is None:
                local = self._cache.owner.tier.budget_bytes
                self._transit = Transit(min(1 << 30, max(local // 4, 64 << 20)))
            return self._transit

    def fetched(
        self, session: Session, task: OwnedTask, hold: Callable[[], Held], cancelled: Cancelled
    ) -> answers.Fetched:
        """Hold a batch for a client.

        Args:
            session: of the client.
            task: whose batch.
            hold: holds it; asked again when a clip turns out damaged.
            cancelled: ends the wait for room.

        Raises:
            Busy: the client holds too much that it has not said to have read.
            Broken: clips were damaged again and again.
            ViewcacheError: what ``hold`` raises.
        """
        session.wait_for_room(self._cache.owner.tier.budget_bytes // HELD_SHARE, cancelled)
        for _ in range(READ_TRIES):
            held, transit = hold(), dict[int, Stored]()
            try:
                transit = self._bring_near(held.fetched)
                facts = task.facts(held)
            except (ChunkDamaged, StoreUnreachable):  # it is made again, or read from where it is whole
                held.fetched.give_back()
                continue
            except BaseException:
                self.let_go(Lease(task, held, list(transit.values())))
                raise
            places = tuple(
                _place_of(TRANSIT, transit[k]) if k in transit else _place_of(copy.tier, copy.stored)
                for k, copy in enumerate(held.fetched.copies)
            )
            number = session.hold(Lease(task, held, list(transit.values())), self.let_go)
            waited_s, stalls = held.fetched.waited_s, {**held.reading.stalls, **held.fetched.stalls}
            facts = replace(facts, waited_s=waited_s, stalls=stalls)
            told = fetched_of(facts, held.shape, number, places, held.audio_shape or ())
            missed = held.fetched.missed
            return msgspec.structs.replace(told, hits=held.fetched.clips - missed, misses=missed)
        raise Broken(f"clips of task {task.name!r} were damaged {READ_TRIES} times in a row; run `viewcache doctor`")

    def frames(self, session: Session, task: OwnedTask, frames: Sequence[NDArray[np.uint8]]) -> answers.Held:
        """Hold single frames, (3,H,W) each, for a client."""
        stored = self.transit().put([each[None] for each in frames])
        number = session.hold(Lease(task, None, stored), self.let_go)
        return answers.Held(number, tuple(_place_of(TRANSIT, each) for each in stored))

    def done(self, session: Session, done: asks.Done) -> None:
        """A client has read what was held for it."""
        lease = session.end(done.lease)
        if lease is None:
            return
        if lease.transit:
            self.transit().remove(lease.transit)
        if lease.held is None:
            return
        held = lease.held
        copies = held.fetched.copies
        wrong: dict[int, Exception] = {
            k: ChunkDamaged(f"{copies[k].stored.physical} was found damaged by process {session.pid}")
            for k in done.damaged
            if 0 <= k < len(copies)
        }
        samples = [
            IoSampleRow(
                "load", each.size_bits, each.codec, each.tier, each.count, each.seconds, each.bytes, each.seconds
            )
            for each in done.loaded  # all of it core seconds: a client reads memory and local files
        ]
        lease.task.end(held, wrong, samples, done.seconds)

    def drop(self, session: Session, number: int) -> None:
        """A client has not read what was held for it, and will not."""
        lease = session.end(number)
        if lease is not None:
            self.let_go(lease)

    def let_go(self, lease: Lease) -> None:
        """Give back what was held for a client that has not said to have read it."""
        if lease.held is not None:
            lease.held.fetched.give_back()
        if lease.transit and self._transit is not None:
            self._transit.remove(lease.transit)

    def close(self) -> None:
        """Give back the memory."""
        if self._transit is not None:
            self._transit.close()

    def _bring_near(self, fetched: Fetched) -> dict[int, Stored]:
        """Put copies that clients cannot read into memory that they can; by position.

        Raises:
            ChunkDamaged: one is damaged, and made again.
            StoreUnreachable: the tier does not answer, and is passed over for a while.
        """
        copies = fetched.copies
        far = [k for k, copy in enumerate(copies) if copy.tier not in READ_BY_CLIENTS]
        if not far:
            return {}
        owner, chosen = self._cache.owner, [copies[k] for k in far]
        arrays = [np.empty(copy.stored.shape, np.uint8) for copy in chosen]
        wrong, _ = owner.tiers.read_slots(chosen, arrays)
        if wrong:
            owner.dispatcher_now().evictor.rebuild([fetched.originals[k] for k in far], wrong)
            raise next(iter(wrong.values()))
        return dict(zip(far, self.transit().put(arrays), strict=True))


def fetched_of(
    batch: Batch,
    shape: tuple[int, ...],
    lease: int,
    places: tuple[answers.PlaceOf, ...],
    audio: tuple[int, ...],
) -> answers.Fetched:
    """What is said of a batch, and where its clips lie."""
    return answers.Fetched(
        lease,
        places,
        shape,
        batch.keys,
        batch.videos,
        batch.label.astype("<i8" if batch.label.ndim == 1 else "<f4").tobytes(),
        batch.index.astype("<i8").tobytes(),
        batch.frame.astype("<i8").tobytes(),
        batch.time_s.astype("<f8").tobytes(),
        batch.sample.astype("<i8").tobytes(),
        batch.item.astype("<i8").tobytes(),
        batch.start_s.astype("<f8").tobytes(),
        batch.end_s.astype("<f8").tobytes(),
        batch.waited_s,
        dict(batch.stalls),
        audio,
        0 if batch.label.ndim == 1 else batch.label.shape[1],
        tuple(map(field_of, batch.fields, batch.fields.values())),
    )


def _place_of(tier: str, stored: Stored) -> answers.PlaceOf:
    return answers.PlaceOf(
        tier, stored.physical, stored.shape, stored.chunk_rows, stored.codec, stored.table.to_bytes()
    )
