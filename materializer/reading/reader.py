"""Reading a task's batches: wait until the clips are there, copy them out, rebuild what turns out damaged (law 5)."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.records import EventRow, ProgressRow
from viewcache.errors import BadInput, Broken, Closed
from viewcache.materializer.clock import Clock
from viewcache.materializer.ops import ReadOp, get
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.program import grow, source_frames
from viewcache.materializer.reading.batch import Batch, Buffers, rank_share
from viewcache.materializer.reading.frames import Singles
from viewcache.materializer.reading.learning import Learning
from viewcache.materializer.scheduling.demand import Cancelled, Fetched
from viewcache.materializer.scheduling.dispatcher import Dispatcher
from viewcache.materializer.scheduling.generation import PlannedClips
from viewcache.materializer.scheduling.work import READ_TRIES, Position
from viewcache.materializer.storage.tiers import Tiers, load_samples
from viewcache.materializer.tasks.task import Task
from viewcache.materializer.telemetry.observer import Observer
from viewcache.materializer.telemetry.stalls import NOTICED_S, Reading

__all__ = ["Reader", "Spent"]

PACE_WEIGHT = 0.2
"""Of the newest iteration in the smoothed seconds per iteration."""


@dataclass(slots=True)
class Spent:
    """Where a task's readers spent their time since the cache was opened."""

    batches: int = 0
    waited_s: float = 0.0
    """Until clips were made."""
    loaded_s: float = 0.0
    """Copying clips out of the store."""
    hits: int = 0
    """Clips that were in the store when they were asked for."""
    misses: int = 0
    """Clips that were not."""
    rebuilt: int = 0
    """Clips whose stored bytes were damaged."""
    stalls: Counter[str] = field(default_factory=Counter)
    """Seconds of reads by cause, see `stalls.CAUSES`."""


class Reader:
    """Reads one task's batches. Thread-safe."""

    def __init__(
        self,
        task: Task,
        catalog: Catalog,
        tiers: Tiers,
        dispatcher: Callable[[], Dispatcher],
        ahead: Callable[[int, int], None],
        observer: Observer,
        learning: Learning,
    ) -> None:
        """Read ``task`` out of some tiers.

        Args:
            task: whose batches.
            catalog: gets the progress.
            tiers: where objects lie.
            dispatcher: makes what is missing; started on the first call.
            ahead: told the number of the generation and the epoch being read, so that what follows is made in time.
            observer: told of batches that were read.
            learning: knows videos that nobody has decoded yet.
        """
        self.task = task
        self.spec = task.spec
        self.spent = Spent()
        self.singles = Singles(task, catalog, tiers, dispatcher, learning)
        """Single frames of the task's videos."""
        self._catalog = catalog
        self._tiers = tiers
        self._dispatcher = dispatcher
        self._ahead = ahead
        self._observer = observer
        self._learning = learning
        self._lock = threading.Lock()
        self._last: tuple[int, float] | None = None
        self._pace_s = 0.0
        self._world = 0

    def read(
        self,
        epoch: int,
        iteration: int,
        rank: int = 0,
        world: int = 1,
        buffers: Buffers | None = None,
        cancelled: Cancelled | None = None,
    ) -> Batch | None:
        """Read one batch, or one rank's share of it; what is not in the store is made now.

        Args:
            epoch: of the task.
            iteration: in the epoch.
            rank: whose share.
            world: number of shares.
            buffers: where the pixels' memory comes from; None allocates.
            cancelled: set by another thread, it ends the wait; then None is returned.

        Raises:
            ViewNotFound: no such epoch or iteration.
            BadVideo: a video cannot be decoded and the policy is ``raise``.
            BadInput: the batch is too small for so many ranks.
        """
        reading = self._begin(epoch, iteration, rank)
        self.task.check_iteration(epoch, iteration)
        planned_s = reading.clock.lap("plan")
        active, rows = self.rows(epoch, iteration, rank, world)
        drawn_s = reading.clock.lap("draw")
        self._ahead(active.plan.number, epoch)
        planned_s += reading.clock.lap("plan")
        self._stalled(reading, {cause: s for cause, s in (("plan", planned_s), ("draw", drawn_s)) if s >= NOTICED_S})
        out = (buffers or Buffers()).take((len(rows), *active.plan.shape))
        for _ in range(READ_TRIES):
            try:
                keys = self._fill(active, rows, out, cancelled, reading)
            except Closed:
                if cancelled is not None and cancelled.is_set():
                    return None
                raise
            if keys is not None:
                self._note_progress(active, epoch, iteration, rank, world)
                batch = self._batch(active.plan, rows, out, keys, reading)
                self._observer.read(reading)
                return batch
        raise self._too_damaged(epoch, iteration)

    def clips(
        self, epoch: int, iteration: int, which: range, rank: int = 0, world: int = 1, buffers: Buffers | None = None
    ) -> NDArray[np.uint8]:
        """Some clips of a batch, uint8 (len(which), T,C,H,W), for whoever looks at a part; it does not count as read.

        Raises:
            ViewNotFound: no such epoch or iteration.
            BadVideo: a video cannot be decoded and the policy is ``raise``.
            BadInput: the batch is too small for so many ranks.
        """
        reading = self._begin(epoch, iteration, rank)
        active, rows = self.rows(epoch, iteration, rank, world)
        rows = rows[which.start : which.stop]
        out = (buffers or Buffers()).take((len(rows), *active.plan.shape))
        for _ in range(READ_TRIES):
            if self._fill(active, rows, out, None, reading) is not None:
                return out
        raise self._too_damaged(epoch, iteration)

    def describe(self, epoch: int, iteration: int, rank: int = 0, world: int = 1) -> Batch:
        """A batch as planned, without its pixels: ``video`` has the shape but takes no memory and holds zeros.

        Videos that nobody has decoded yet are looked into now, so that what is said of them holds.

        Raises:
            ViewNotFound: no such epoch or iteration.
            BadVideo: a video cannot be decoded and the policy is ``raise``.
            BadInput: the batch is too small for so many ranks.
        """
        reading = self._begin(epoch, iteration, rank)
        active, rows = self.rows(epoch, iteration, rank, world)
        self._look(active, rows)
        plan = active.plan
        nothing = np.broadcast_to(np.uint8(0), (len(rows), *plan.shape))
        return self._batch(plan, rows, nothing, tuple(plan.key(row) for row in rows), reading)

    def _look(self, active: PlannedClips, rows: list[int]) -> None:
        """Look into the videos of some clips; for one that turns out bad another stands in, by the task's policy."""
        while bad := [
            (row, why) for row in rows if (why := self._learning.look(self.task.dataset, active.video_id(row)))
        ]:
            for row, why in bad:
                error = self.task.substitute(active, [row], why)
                if error is not None:
                    raise error

    def _too_damaged(self, epoch: int, iteration: int) -> Broken:
        return Broken(
            f"view {self.spec.name}/{epoch}/{iteration}: its clips were damaged {READ_TRIES} times in a row after "
            "being made anew; check the disk, then run `viewcache doctor`"
        )

    def rows(self, epoch: int, iteration: int, rank: int = 0, world: int = 1) -> tuple[PlannedClips, list[int]]:
        """The generation and the rows of a batch, or of one rank's share; draws the order up to there.

        Raises:
            ViewNotFound: no such epoch or iteration.
            BadInput: the batch is too small for so many ranks, or they would have different orders.
        """
        self.check_world(world)
        active = self.task.batch(epoch, iteration)
        samples = self.spec.sampling.samples_per_video
        rows = active.rows(epoch, iteration)
        return active, rows[rank_share(len(rows) // samples, samples, rank, world)]

    def check_world(self, world: int) -> None:
        """Refuse several ranks of a task that draws its order with others.

        That order depends on the paces of all their readers. Ranks that are processes have a cache each, so each would
        draw another order, and nothing would tell them.

        Raises:
            BadInput: the message says what to change.
        """
        if world > 1 and self.task.draws_together:
            raise BadInput(
                f"task {self.spec.name!r} draws its order with other tasks, which no other process can know, so "
                f"{world} ranks would read different batches; set coordination: independent under its sampling, or "
                "open it alone"
            )

    def _begin(self, epoch: int, iteration: int, rank: int) -> Reading:
        return Reading(self.spec.name, epoch, iteration, rank, time.monotonic(), Clock(laps=self._observer.laps))

    def _fill(
        self,
        active: PlannedClips,
        rows: list[int],
        out: NDArray[np.uint8],
        cancelled: Cancelled | None,
        reading: Reading,
    ) -> tuple[str, ...] | None:
        """Read the clips into ``out``; returns their keys, unless some were damaged."""
        dispatcher = self._dispatcher()
        reading.clock.skip()
        with dispatcher.fetch(active, rows, cancelled=cancelled) as fetched:
            if fetched.waited_s:
                reading.clock.lap("wait")
            reading.clock.skip()
            wrong, loaded = self._tiers.read_slots(fetched.copies, out)
            loaded_s = reading.clock.lap("load")
        damaged = dispatcher.evictor.rebuild(fetched.copies, wrong)
        self._catalog.add_io_samples(load_samples(loaded))
        self._account(reading, fetched, loaded_s, damaged)
        return None if wrong else tuple(copy.key for copy in fetched.copies)

    def _account(self, reading: Reading, fetched: Fetched, loaded_s: float, damaged: int) -> None:
        """Note hits, misses and where the time went."""
        task_id, hits = self.task.task_id, len(fetched.copies) - fetched.missed
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
        self._stalled(reading, stalls)
        counts = {"hit": hits, "miss": fetched.missed, "rebuild": damaged}
        self._catalog.add_events([EventRow(kind, task_id, count=count) for kind, count in counts.items() if count])

    def _stalled(self, reading: Reading, stalls: Mapping[str, float]) -> None:
        """Note seconds of a read by cause."""
        if not stalls:
            return
        reading.stalls.update(stalls)
        with self._lock:
            self.spent.stalls.update(stalls)
        self._catalog.add_events(
            [EventRow("stall", self.task.task_id, seconds=s, detail=cause) for cause, s in stalls.items()]
        )

    def _note_progress(self, active: PlannedClips, epoch: int, iteration: int, rank: int, world: int) -> None:
        """The next iteration is needed next; pace is smoothed over the last few."""
        seq, now = epoch * active.plan.iterations + iteration + 1, time.monotonic()
        with self._lock:
            self.spent.batches += 1
            if self._last is not None and self._last[0] == seq - 1:
                taken = now - self._last[1]
                self._pace_s += (taken - self._pace_s) * (PACE_WEIGHT if self._pace_s else 1.0)
            self._last = (seq, now)
            pace_s = self._pace_s
            changed, self._world = world != self._world, world
        if changed:
            self._catalog.limit_ranks(self.task.task_id, world)
        last = iteration + 1 >= active.plan.iterations
        next_needed = Position(*((epoch + 1, 0) if last else (epoch, iteration + 1)), pace_s)
        self._catalog.advance(ProgressRow(self.task.task_id, rank, *next_needed.place, seq, pace_s))
        self._dispatcher().progressed(active, next_needed)
        self.task.reached(epoch, iteration)

    def _batch(
        self,
        plan: GenerationPlan,
        rows: list[int],
        out: NDArray[np.uint8],
        keys: tuple[str, ...],
        reading: Reading,
    ) -> Batch:
        videos = plan.video[rows]
        planned = zip(rows, plan.frames(np.array(rows)), strict=True)
        frames = np.stack([source_frames(grow(plan.program(row), each, plan.drawn(row))) for row, each in planned])
        dataset, ids = self.task.dataset, plan.videos.ids[videos]
        of_each = zip(ids.tolist(), frames, strict=True)
        times = np.stack([self._learning.times_s(dataset, video_id, shown) for video_id, shown in of_each])
        return Batch(
            task=self.spec.name,
            epoch=reading.epoch,
            iteration=reading.iteration,
            video=out,
            label=dataset.labels(ids),
            index=ids,
            frame=frames.astype(np.int64),
            time_s=times,
            videos=tuple(plan.videos.names[v] for v in videos.tolist()),
            keys=keys,
            waited_s=reading.waited_s,
            stalls=dict(reading.stalls),
        )

    def finish(self, video: Any) -> Any:
        """Apply the operations that run at reading (normalize, dtype) to (..., C, H, W), an array or a tensor."""
        for call in self.task.graph.read_ops:
            op = get(call.name)
            assert isinstance(op, ReadOp)  # the graph was checked
            video = op.apply_batch(call.params, video)
        return video
