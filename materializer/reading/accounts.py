"""Where a task's readers spend their time: counted for who asks, and noted in the catalog."""

import threading
from collections.abc import Mapping

from viewcache.catalog import Catalog
from viewcache.catalog.records import EventRow
from viewcache.materializer.reading.values import Spent
from viewcache.materializer.scheduling.demand import Fetched
from viewcache.materializer.telemetry.stalls import Reading

__all__ = ["Accounts"]


class Accounts:
    """What the reads of one task took. Thread-safe."""

    def __init__(self, catalog: Catalog, task_id: int) -> None:
        """Nothing was read yet."""
        self.spent = Spent()
        self._catalog = catalog
        self._task_id = task_id
        self._lock = threading.Lock()

    def loaded(self, reading: Reading, fetched: Fetched, loaded_s: float, damaged: int) -> None:
        """Note hits, misses and where the time went."""
        hits = fetched.clips - fetched.missed
        # Whatever happened to a clip that had to be made again, its damage is why the reader waited.
        stalls = {"rebuild": fetched.waited_s} if reading.rebuilt and fetched.waited_s else dict(fetched.stalls)
        stalls["load"] = stalls.get("load", 0.0) + loaded_s
        with self._lock:
            self.spent.loaded_s += loaded_s
            for total in (self.spent, reading):
                total.waited_s += fetched.waited_s
                total.hits += hits
                total.misses += fetched.missed
                total.rebuilt += damaged
        self.stalled(reading, stalls)
        counts = {"hit": hits, "miss": fetched.missed, "rebuild": damaged}
        self._catalog.add_events(
            [EventRow(kind, self._task_id, count=count) for kind, count in counts.items() if count]
        )

    def stalled(self, reading: Reading, stalls: Mapping[str, float]) -> None:
        """Note seconds of a read by cause."""
        if not stalls:
            return
        reading.stalls.update(stalls)
        with self._lock:
            self.spent.stalls.update(stalls)
        self._catalog.add_events([EventRow("stall", self._task_id, seconds=s, detail=why) for why, s in stalls.items()])

    def ended(self, epoch: int, spent_s: float) -> None:
        """All readers are through with an epoch; ``spent_s`` are the core seconds of all tasks since one ended last."""
        self._catalog.add_events([EventRow("epoch", self._task_id, seconds=spent_s, detail=str(epoch))])

    def read(self) -> None:
        """A batch was read whole."""
        with self._lock:
            self.spent.batches += 1
