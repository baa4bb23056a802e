"""The tiers of an open cache: which there are, and reading an object wherever its copy lies.

A tier that cannot be reached is passed over for a while: what lies there counts as missing and is made again, since
no reader must wait for a network that is down (law 5).
"""

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog.records import IoSampleRow
from viewcache.errors import Broken, ChunkDamaged, Full, StoreUnreachable
from viewcache.materializer.clock import WorkClock
from viewcache.materializer.storage.ledger import Copy, Ledger
from viewcache.store import LocalTier, MemoryHandle, MemoryTier, Tier
from viewcache.store.passing import PassingMemory
from viewcache.store.tier import LOCAL, MEMORY, PASSING, REMOTE

__all__ = ["Loaded", "Slots", "Tiers", "load_samples"]

_log = logging.getLogger("viewcache.tiers")

AT_ONCE = 64
"""Of what could not be deleted, so many are tried again between two looks at what else there is to do."""

RETRY_S = 30.0
"""How long a tier that could not be reached is passed over."""

Change = Literal["write", "delete"]
Slots = NDArray[np.uint8] | Sequence[NDArray[np.uint8]]
Loaded = dict[tuple[str, str], list[tuple[int, float, float]]]
"""Tier and codec → raw bytes, seconds and core seconds of each object that was read."""


def load_samples(loaded: Loaded) -> list[IoSampleRow]:
    """The same as measured work, in the common currency of the planner's estimates."""
    rows = []
    for (tier, codec), objects in loaded.items():
        for bucket in {size.bit_length() - 1 for size, *_ in objects}:
            mine = [each for each in objects if each[0].bit_length() - 1 == bucket]
            sizes, seconds, cpu_s = (sum(each) for each in zip(*mine, strict=True))
            rows.append(IoSampleRow("load", bucket, codec, tier, len(mine), seconds, int(sizes), cpu_s))
    return rows


class Tiers:
    """All tiers of an open cache by name, the fastest first. Thread-safe."""

    def __init__(self, tiers: Iterable[Tier], ledger: Ledger, passing: PassingMemory | None = None) -> None:
        """Take tiers over, and the memory for clips that pass if there is one; `close` closes them."""
        self.passing = passing
        """Where clips lie that go from a worker to their one reader; None = all are stored."""
        self._tiers = {tier.name: tier for tier in tiers}
        self._ledger = ledger
        local = self._tiers[LOCAL]
        assert isinstance(local, LocalTier)
        self.local = local
        """Where objects are made."""
        self._readers = ThreadPoolExecutor(len(self._tiers) + 1, thread_name_prefix="viewcache-tiers")
        """One batch may lie in several tiers, of which the slow ones are waited for together."""
        self._orphans = False
        self._later: dict[str, Copy] = {}
        """By key, what is to be deleted from the remote tier when it answers again; it counts until then."""
        self._refused: dict[Change, float] = {}
        """Changes that the remote tier has refused, though it can be read → until when they are not asked for."""

    @property
    def memory(self) -> MemoryHandle | None:
        """Of the memory tier, for other processes; None if there is none."""
        tier = self._tiers.get(MEMORY)
        return tier.handle if isinstance(tier, MemoryTier) else None

    def get(self, name: str) -> Tier | None:
        """A tier, if there is one of that name."""
        return self._tiers.get(name)

    def __getitem__(self, name: str) -> Tier:
        """A tier that there is."""
        return self._tiers[name]

    def __contains__(self, name: str) -> bool:
        """Whether there is a tier of that name."""
        return name in self._tiers

    def names(self) -> tuple[str, ...]:
        """Their names, the fastest first."""
        return tuple(self._tiers)

    def read_slots(self, copies: Sequence[Copy], slots: Slots) -> tuple[dict[int, Exception], Loaded]:
        """Read objects into consecutive slots of one buffer, from all their tiers at once.

        Returns:
            What was wrong by position (`ChunkDamaged`, or `StoreUnreachable` for the objects of a tier that does not
            answer; the other slots are valid), and what reading took.
        """
        groups: dict[str, list[int]] = defaultdict(list)
        for position, copy in enumerate(copies):
            groups[copy.tier].append(position)
        loaded: Loaded = {}
        if len(groups) == 1:
            (only,) = groups
            return self._read(only, copies, range(len(copies)), slots, loaded), loaded
        here = [tier for tier in (PASSING, LOCAL) if tier in groups]  # as fast as each other: not worth a thread
        waiting = [
            self._readers.submit(self._read, tier, copies, positions, slots, loaded)
            for tier, positions in groups.items()
            if tier not in here
        ]
        wrong: dict[int, Exception] = {}
        for tier in here:
            wrong |= self._read(tier, copies, groups[tier], slots, loaded)
        for each in waiting:
            wrong |= each.result()
        return wrong, loaded

    def _read(
        self,
        name: str,
        copies: Sequence[Copy],
        positions: Sequence[int],
        slots: Slots,
        loaded: Loaded,
    ) -> dict[int, Exception]:
        clock = WorkClock(name)
        wrong: dict[int, Exception] = {
            k: ChunkDamaged(f"{copies[k].stored.physical} in {name} has shape {copies[k].stored.shape}, not as planned")
            for k in positions
            if copies[k].stored.shape != slots[k].shape
        }
        positions = [position for position in positions if position not in wrong]
        chosen = [copies[position] for position in positions]
        whole = len(chosen) == len(slots)
        try:
            found = self._place(name).read_slots(
                [copy.stored for copy in chosen], slots if whole else [slots[position] for position in positions]
            )
        except StoreUnreachable as error:
            self.mark_unreachable(name, error)
            return wrong | dict.fromkeys(positions, error)
        seconds, cpu_s = clock.took()
        total = sum(slots[position].nbytes for position in positions)
        for position, copy in zip(positions, chosen, strict=True):
            size = slots[position].nbytes
            if not copy.stored.is_blank:
                loaded.setdefault((name, copy.stored.codec), []).append(
                    (size, seconds * size / total, cpu_s * size / total)
                )
        return wrong | {positions[k]: damage for k, damage in found.items()}

    def _place(self, name: str) -> Tier | PassingMemory:
        if name == PASSING and self.passing is not None:
            return self.passing
        return self._tiers[name]

    @property
    def orphans(self) -> bool:
        """Whether something lies in a tier that the catalog has forgotten, or may, since it could not be reached."""
        return self._orphans or bool(self._later)

    def takes(self, change: Change, tier: str) -> bool:
        """Whether a tier can be reached, and has not refused such a change just now."""
        refused = tier == REMOTE and self._refused.get(change, 0.0) >= time.monotonic()
        return self._ledger.is_reachable(tier) and not refused

    def mark_refusing(self, change: Change, tier: str, error: Full | StoreUnreachable) -> None:
        """Ask for no such change for a while where it was refused; and for nothing, where there was no answer."""
        if isinstance(error, StoreUnreachable) and not error.refused:
            self.mark_unreachable(tier, error)
            return
        if self.takes(change, tier):
            what = "tier %s refuses to %s, and is not asked to for %.0f s: %s"
            _log.warning(what, tier, change, RETRY_S, error, extra={"action": "tier_refuses"})
        self._refused[change] = time.monotonic() + RETRY_S

    def mark_unreachable(self, name: str, error: StoreUnreachable) -> None:
        """Let nothing that lies in a tier be read for a while; what is needed meanwhile is made again."""
        if self._ledger.mark_unreachable(name, time.monotonic() + RETRY_S):
            _log.warning("tier %s is passed over for %.0f s: %s", name, RETRY_S, error, extra={"action": "tier_down"})

    def leave_alone(self, name: str, *, recovered: bool) -> None:
        """Begin without a tier that did not answer when it was opened.

        Args:
            name: of the tier.
            recovered: the catalog's rows of it can be trusted; if not, the next start looks at every object there.
        """
        self._orphans = self._orphans or not recovered
        self._ledger.mark_unreachable(name, time.monotonic() + RETRY_S)

    def delete(self, copy: Copy) -> None:
        """Delete a copy that the ledger has forgotten, or later, if its tier does not answer; see `delete_some`."""
        if copy.tier == PASSING and self.passing is not None:
            self.passing.delete(copy.stored)
            return
        failed = True
        try:
            if not self.takes("delete", copy.tier):  # each would wait for as long as the first one did
                self.delete_later(copy)
                failed = False
            else:
                failed = not self._deleted(copy)
        finally:
            self._ledger.deleted(copy, failed=failed)

    def _deleted(self, copy: Copy) -> bool:
        """Delete a copy, now or later; False if it stays, and is found at a later start."""
        try:
            self._tiers[copy.tier].delete(copy.stored.physical, copy.bytes)
        except StoreUnreachable as error:
            self.mark_refusing("delete", copy.tier, error)
            self.delete_later(copy)
        except Broken as error:
            self._orphans = True
            _log.warning("what was to leave stays for now: %s", error, extra={"action": "delete_failed"})
            return False
        return True

    def delete_later(self, copy: Copy) -> None:
        """Have what lies in the remote tier, or may lie there, deleted when that answers; it counts until then.

        If that is not before the end, the next start looks at all that lies there.
        """
        self._later[copy.key] = copy

    def is_to_leave(self, key: str) -> bool:
        """Whether an object is yet to be deleted from the remote tier: what is written there now would go with it."""
        return key in self._later

    def delete_some(self) -> None:
        """Delete what could not be deleted before, as far as the tier answers; one thread does, which also writes."""
        for key, copy in list(self._later.items())[:AT_ONCE]:
            if not self.takes("delete", copy.tier):
                return
            del self._later[key]
            if self._ledger.find(key, copy.tier) is None:  # else it was found there, and is of use
                self._ledger.deleted(copy, failed=not self._deleted(copy))

    def hasten(self) -> None:
        """See `Tier.hasten`, of all tiers."""
        for tier in self._tiers.values():
            tier.hasten()

    def close(self) -> None:
        """Let go of memory, connections and threads."""
        self._readers.shutdown()
        for tier in self._tiers.values():
            tier.close()
        if self.passing is not None:
            self.passing.close()
