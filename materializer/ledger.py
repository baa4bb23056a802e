"""What lies in the store, as the running process knows it: copies, who reads them, and the rows that tell the catalog.

The catalog is written behind (batches, one writer); this is the truth between its commits. A reader holds a copy while
it reads, by count, in memory: a process that dies takes its holds with it.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from viewcache.catalog.records import CopyRow, EventRow, IoSampleRow
from viewcache.errors import ViewcacheError
from viewcache.store import Stored, Written

if TYPE_CHECKING:
    from viewcache.catalog import Catalog

__all__ = ["Copy", "Ledger"]


@dataclass(frozen=True, slots=True)
class Copy:
    """One object in the local tier."""

    object_id: int
    key: str
    stored: Stored
    """What the store's reader wants."""
    bytes: int
    """On disk."""


class Ledger:
    """Copies by content key, and the catalog behind them. Thread-safe."""

    def __init__(self, catalog: "Catalog", tier: str) -> None:
        """Start empty; `adopt` what the catalog remembers."""
        self._catalog = catalog
        self.tier = tier
        self._lock = threading.Lock()
        self._copies: dict[str, Copy] = {}
        self._keys: dict[int, str] = {}
        self._holds: Counter[str] = Counter()
        self.holds = 0
        """How often readers took hold of objects since the start."""
        self.gone: Counter[str] = Counter()
        """Objects that left the store since the start, by reason."""
        self._tick = 0

    def adopt(self, copies: Iterable[Copy]) -> None:
        """Take over what earlier runs left."""
        with self._lock:
            for copy in copies:
                self._copies[copy.key] = copy
                self._keys[copy.object_id] = copy.key

    def has(self, key: str) -> bool:
        """Whether an object is in the store."""
        return key in self._copies

    def __len__(self) -> int:
        """Number of objects in the store."""
        return len(self._copies)

    @property
    def held(self) -> int:
        """How many objects readers hold now."""
        return len(self._holds)

    def hold(self, keys: list[str]) -> list[Copy] | None:
        """Hold all objects, or none and return None if one is missing."""
        with self._lock:
            copies = [self._copies.get(key) for key in keys]
            found = [copy for copy in copies if copy is not None]
            if len(found) < len(keys):
                return None
            self._holds.update(keys)
            self.holds += 1
            return found

    def release(self, copies: list[Copy]) -> None:
        """Give holds back."""
        with self._lock:
            for copy in copies:
                self._holds[copy.key] -= 1
                if self._holds[copy.key] <= 0:
                    del self._holds[copy.key]

    def add(self, copy: Copy, written: Written) -> None:
        """An object was published: readers may have it at once, the catalog's row follows with the next batch."""
        with self._lock:
            self._tick += 1
            self._copies[copy.key] = copy
            self._keys[copy.object_id] = copy.key
            row = CopyRow(
                object_id=copy.object_id,
                tier=self.tier,
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
        with self._lock:
            gone = [copy for copy in copies if self._copies.get(copy.key) is copy]
            if unless_held:
                gone = [copy for copy in gone if copy.key not in self._holds]
            for copy in gone:
                del self._copies[copy.key]
                del self._keys[copy.object_id]
            self.gone[reason] += len(gone)
        if gone:
            self._catalog.mark_gone([copy.object_id for copy in gone], reason, tier=self.tier)
        return gone

    def victims(self, need: int, protected: set[str], may_leave: Callable[[Copy], bool]) -> list[Copy]:
        """Choose what leaves, in the order of the policy's SQL, and forget it; the caller deletes the bytes.

        Args:
            need: bytes to free.
            protected: keys that a reader waits for; what readers hold is protected anyway.
            may_leave: asked of every candidate.
        """
        self._catalog.flush()
        with self._lock:
            spared = [self._copies[key].object_id for key in (protected | self._holds.keys()) & self._copies.keys()]
        candidates = self._catalog.eviction_candidates(self.tier, need, spared)["object_id"].to_pylist()
        with self._lock:
            copies = [self._copies[self._keys[each]] for each in candidates if each in self._keys]
        return self._forget([copy for copy in copies if may_leave(copy)], "evict", unless_held=True)

    def add_samples(self, codec: str, seconds: dict[str, float], frames: dict[str, int], made: list[Written]) -> None:
        """Record what a job's stages cost, in the common currency of the planner's estimates.

        Args:
            codec: of the objects.
            seconds: busy seconds by stage.
            frames: `Report.frames`.
            made: its objects.
        """
        frame_bytes, clip_bytes = frames.get("frame_bytes", 0), sum(each.raw_bytes for each in made)
        work = {
            "decode": (frames.get("decoded", 0), frame_bytes),
            "convert": (frames.get("converted", 0), frame_bytes),
            "load": (frames.get("loaded", 0), frames.get("loaded_bytes", 0) // max(1, frames.get("loaded", 0))),
            "augment": (len(made), clip_bytes // max(1, len(made))),
            "store": (len(made), clip_bytes // max(1, len(made))),
        }
        self._catalog.add_io_samples(
            [
                IoSampleRow(op, max(each, 1).bit_length() - 1, codec, self.tier, n, seconds[op], n * each)
                for op, (n, each) in work.items()
                if n and seconds.get(op)
            ]
        )

    def add_error(self, task_id: int, rows: int, error: ViewcacheError) -> None:
        """Record why clips of a task were not made."""
        lines = str(error).splitlines()  # of a traceback, whose it is and what it ends with
        said = lines[0] if len(lines) < 2 else f"{lines[0]} {lines[-1]}"
        whose = task_id if task_id >= 0 else None
        self._catalog.add_events([EventRow("error", whose, count=rows, detail=f"{error.kind}: {said}")])
