"""What lies in the store, as the running process knows it: copies, who reads them, and the rows that tell the catalog.

The catalog is written behind (batches, one writer); this is the truth between its commits. A reader holds a copy while
it reads, by count, in memory: a process that dies takes its holds with it. An object may have a copy in each tier;
who asks for an object gets the one that is read fastest.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from viewcache.catalog.records import CopyRow, EventRow, IoSampleRow
from viewcache.errors import ViewcacheError
from viewcache.store import Stored, Written

if TYPE_CHECKING:
    from viewcache.catalog import Catalog

__all__ = ["LOCAL", "MEMORY", "REMOTE", "Copy", "Ledger"]

MEMORY, LOCAL, REMOTE = "memory", "local", "remote"
"""Names of the tiers, the fastest first. Objects are made in the local one."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One object in one tier."""

    object_id: int
    key: str
    stored: Stored
    """What the tier's reader wants."""
    bytes: int
    """That it takes there."""
    tier: str = LOCAL


class Ledger:
    """Copies by content key, and the catalog behind them. Thread-safe."""

    def __init__(self, catalog: "Catalog", tiers: Sequence[str] = (LOCAL,)) -> None:
        """Start empty, with these tiers, the fastest first; `adopt` what the catalog remembers."""
        self._catalog = catalog
        self._lock = threading.Lock()
        self._copies: dict[str, dict[str, Copy]] = {tier: {} for tier in tiers}
        """Tier → key → copy."""
        self._keys: dict[int, str] = {}
        self._holds: Counter[tuple[str, str]] = Counter()
        """By tier and key."""
        self.holds = 0
        """How often readers took hold of objects since the start."""
        self.gone: Counter[tuple[str, str]] = Counter()
        """Copies that are gone since the start, by tier and reason."""
        self._tick = 0
        self._down: dict[str, float] = {}
        """Tiers that are passed over → until when, monotonic seconds."""

    def pass_over(self, tier: str, until: float) -> bool:
        """Treat what lies in a tier as missing until then (monotonic seconds); False if it was so already."""
        with self._lock:
            before = self._down.get(tier, 0.0)
            self._down[tier] = until
            return before < time.monotonic()

    def _reachable(self) -> Iterator[dict[str, Copy]]:
        """The copies of each tier that can be read, the fastest first."""
        if not self._down:
            return iter(self._copies.values())
        now = time.monotonic()
        return (copies for tier, copies in self._copies.items() if self._down.get(tier, 0.0) < now)

    def adopt(self, copies: Iterable[Copy]) -> None:
        """Take over what earlier runs left."""
        with self._lock:
            for copy in copies:
                self._copies[copy.tier][copy.key] = copy
                self._keys[copy.object_id] = copy.key

    def has(self, key: str) -> bool:
        """Whether an object is in the store, in any tier that can be read."""
        return any(key in copies for copies in self._reachable())

    def find(self, key: str, tier: str) -> Copy | None:
        """An object's copy in one tier."""
        return self._copies.get(tier, {}).get(key)

    def __len__(self) -> int:
        """Number of objects in the store."""
        return len(self._keys)

    def copies(self, tier: str = LOCAL) -> dict[str, Copy]:
        """What lies in a tier now, by key."""
        with self._lock:
            return dict(self._copies[tier])

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
            return found

    def _best(self, key: str) -> Copy | None:
        return next((copies[key] for copies in self._reachable() if key in copies), None)

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
            self._copies[copy.tier][copy.key] = copy
            self._keys[copy.object_id] = copy.key
            row = CopyRow(
                object_id=copy.object_id,
                tier=copy.tier,
                physical=written.physical,
                bytes=written.bytes,
                codec=written.codec,
                chunk_rows=written.chunk_rows,
                table_blob=written.table,
                crc=written.crc,
                created_tick=self._tick,
                access_tick=self._tick,
            )
        self._catalog.mark_ready([row])

    def drop(self, copy: Copy, reason: str) -> bool:
        """Forget a copy before its bytes are deleted; False if another thread was first."""
        return bool(self._forget([copy], reason, unless_held=False))

    def _forget(self, copies: list[Copy], reason: str, *, unless_held: bool) -> list[Copy]:
        """Forget copies of one tier."""
        with self._lock:
            gone = [copy for copy in copies if self._copies[copy.tier].get(copy.key) is copy]
            if unless_held:
                gone = [copy for copy in gone if (copy.tier, copy.key) not in self._holds]
            for copy in gone:
                del self._copies[copy.tier][copy.key]
                if not any(copy.key in copies for copies in self._copies.values()):
                    del self._keys[copy.object_id]
                self.gone[copy.tier, reason] += 1
        if gone:
            self._catalog.mark_gone([copy.object_id for copy in gone], reason, tier=gone[0].tier)
        return gone

    def victims(self, tier: str, need: int, protected: set[str], may_leave: Callable[[Copy], bool]) -> list[Copy]:
        """Choose what leaves a tier, in the order of the policy's SQL, and forget it; the caller deletes the bytes.

        Args:
            tier: which.
            need: bytes to free.
            protected: keys that a reader waits for; what readers hold is protected anyway.
            may_leave: asked of every candidate.
        """
        candidates = self.candidates(tier, need, protected)
        return self.leave([copy for copy, _ in candidates if may_leave(copy)])

    def leave(self, copies: list[Copy]) -> list[Copy]:
        """Forget copies of one tier that nobody holds, and return them; the caller deletes the bytes."""
        return self._forget(copies, "evict", unless_held=True)

    def candidates(self, tier: str, need: int, protected: set[str]) -> list[tuple[Copy, bool]]:
        """What would leave a tier for so many bytes, in the order of the policy's SQL, and whether it is wanted still.

        Nothing is forgotten.
        """
        self._catalog.flush()
        copies = self._copies[tier]
        with self._lock:
            held = {key for place, key in self._holds if place == tier}
            spared = [copies[key].object_id for key in (protected | held) & copies.keys()]
        found = self._catalog.eviction_candidates(tier, need, spared)
        rows = zip(found["object_id"].to_pylist(), found["refs"].to_pylist(), strict=True)
        with self._lock:
            keys = [(self._keys[each], refs > 0) for each, refs in rows if each in self._keys]
            return [(copies[key], wanted) for key, wanted in keys if key in copies]

    def add_samples(
        self,
        seconds: dict[str, float],
        frames: dict[str, int],
        made: list[Written],
        loaded_codec: str,
        further: Sequence[IoSampleRow] = (),
    ) -> None:
        """Record what a job's stages cost, in the common currency of the planner's estimates.

        Args:
            seconds: busy seconds by stage.
            frames: `Report.frames`.
            made: its objects.
            loaded_codec: of the kept pictures that it read.
            further: what was measured beside.
        """
        frame_bytes, clip_bytes = frames.get("frame_bytes", 0), sum(each.raw_bytes for each in made)
        loaded = frames.get("loaded", 0)
        work = {
            "decode": (frames.get("decoded", 0), frame_bytes),
            "convert": (frames.get("converted", 0), frame_bytes),
            "load": (loaded, frames.get("loaded_bytes", 0) // max(1, loaded)),
            "augment": (len(made), clip_bytes // max(1, len(made))),
        }
        rows = [
            IoSampleRow(op, max(each, 1).bit_length() - 1, loaded_codec, LOCAL, n, seconds[op], n * each)
            for op, (n, each) in work.items()
            if n and seconds.get(op)
        ]
        for codec in sorted({each.codec for each in made}):
            sizes = [each.raw_bytes for each in made if each.codec == codec]
            share = seconds.get("store", 0.0) * sum(sizes) / max(1, clip_bytes)
            bucket = (sum(sizes) // len(sizes)).bit_length() - 1
            rows.append(IoSampleRow("store", bucket, codec, LOCAL, len(sizes), share, sum(sizes)))
        self._catalog.add_io_samples([*rows, *further])

    def add_error(self, task_id: int, rows: int, error: ViewcacheError) -> None:
        """Record why clips of a task were not made."""
        lines = str(error).splitlines()  # of a traceback, whose it is and what it ends with
        said = lines[0] if len(lines) < 2 else f"{lines[0]} {lines[-1]}"
        whose = task_id if task_id >= 0 else None
        self._catalog.add_events([EventRow("error", whose, count=rows, detail=f"{error.kind}: {said}")])
