"""An open cache: one process's handle on store, catalog, tasks and workers.

Opening scans the datasets and repairs what an unclean end left; workers start with the first read. Closing commits what
waits; not closing loses nothing that was made.
"""

import atexit
import logging
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from viewcache.api.config.load import Config, Source, load, load_more
from viewcache.api.session.making import Making
from viewcache.api.session.placed import placed
from viewcache.api.session.storage import Storage, forget_volatile, open_storage
from viewcache.api.training.loader import Loader
from viewcache.catalog import Catalog
from viewcache.catalog.lock import OwnerLock
from viewcache.catalog.records import CLEAN, EventRow, ProgressRow
from viewcache.errors import BadInput, BadVideo, BudgetTooSmall, ViewcacheError, ViewNotFound
from viewcache.materializer.dataset.dataset import Progress
from viewcache.materializer.gate import Gate, gated
from viewcache.materializer.reading.batch import Batch
from viewcache.materializer.reading.frames import SingleWork
from viewcache.materializer.reading.handle import FrameRequest, OwnedTask
from viewcache.materializer.reading.reader import Reader, Spent
from viewcache.materializer.retention.chosen import KeepSettings
from viewcache.materializer.retention.keeper import Keeper
from viewcache.materializer.scheduling.bases import BaseWork
from viewcache.materializer.scheduling.dispatcher import Engine, EngineSettings
from viewcache.materializer.scheduling.migration import Mover, Watermarks
from viewcache.materializer.spec import Durability, TaskSpec
from viewcache.materializer.storage.recover import Recovered, claim
from viewcache.materializer.tasks.group import Group
from viewcache.materializer.tasks.look_ahead import LookAhead
from viewcache.materializer.tasks.opening import open_task, plan_again, share_among
from viewcache.materializer.telemetry.observer import Observer
from viewcache.materializer.telemetry.snapshot import Snapshot, TaskCounts, TierBytes, counter_tracks
from viewcache.materializer.telemetry.trace import Trace
from viewcache.materializer.workers.job import Place
from viewcache.materializer.workers.pool import job_bytes
from viewcache.materializer.workers.start import start_pool
from viewcache.store import LocalTier

__all__ = ["Cache", "open"]

_log = logging.getLogger("viewcache")

LEAVE_S = 10.0
"""How long closing waits for calls of other threads, which the end of the workers sends away."""

_open_caches: list["Cache"] = []


def open(
    source: Source | Iterable[Source],
    *,
    progress: Progress | None = None,
) -> "Cache":
    """Open the cache that a configuration describes, for this process.

    Args:
        source: path of a YAML file, YAML text, a mapping, or several of these.
        progress: called while files are scanned, with (done, in all, name).

    Raises:
        ConfigError: the configuration is wrong; with file, line and column.
        DatasetNotFound: a dataset's folder or label table is not there, or holds no videos.
        BadVideo: a video cannot be decoded and its task's policy is ``raise``.
        BudgetTooSmall: the budget cannot hold one batch; ``minimum`` says what would do.
        CatalogBusy: another process has the cache open; the message says who and how to proceed.
    """
    return Cache(load(source), progress=progress)


def opened() -> "Cache | None":
    """The cache that was opened last in this process and is open still."""
    return _open_caches[-1] if _open_caches and _open_caches[-1].gate.pid == os.getpid() else None


def open_caches() -> tuple["Cache", ...]:
    """The caches that are open in this process, the one that was opened last first.

    Raises:
        WrongProcess: only the parent of this process had some open; they did not survive the fork.
    """
    own = tuple(cache for cache in reversed(_open_caches) if cache.gate.pid == os.getpid())
    if _open_caches and not own:
        _open_caches[-1].check_open()
    return own


class Cache:
    """An open cache. Use it as a context manager; all methods may be called from any thread of the process."""

    def __init__(self, config: Config, *, progress: Progress | None = None) -> None:
        """See `viewcache.open`."""
        self.gate = Gate()
        """What callers ask for goes through here."""
        self._lock = threading.RLock()
        self._starting = threading.RLock()
        """Held while workers are started, and when closing looks whether there are any."""
        self._engine: Engine | None = None
        self._mover: Mover | None = None
        self.making: Making | None = None
        """What `materialize` is making or has made."""
        self.observer = Observer()
        """Told of jobs, reads, plans and evictions."""
        self._readers: dict[str, Reader] = {}
        self._handles: dict[str, OwnedTask] = {}
        spec = config.cache
        root = spec.local.url
        where = root if spec.catalog == "duckdb" else spec.catalog
        tier = LocalTier(root, spec.local.budget_bytes)
        # A DuckDB catalog has its own lock in the same folder; a store beside PostgreSQL has one owner too.
        self._owner = None if spec.catalog == "duckdb" else OwnerLock(Path(root) / "owner.lock", exclusive=True)
        try:
            self.catalog = Catalog.open(where, beside=root)
        except BaseException:
            if self._owner is not None:
                self._owner.release()
            raise
        storage: Storage | None = None
        try:
            if self._owner is not None:
                claim(self.catalog, tier)
            clean = self.catalog.setting(CLEAN) == "yes"
            self.catalog.set_setting(CLEAN, "no")
            storage = open_storage(config, self.catalog, tier, clean=clean)
            self.recovered: Recovered = storage.recovered
            self.config, self.tier, self.tiers, self._ledger = storage.config, tier, storage.tiers, storage.ledger
            self._groups: dict[int, Group] = {}
            if spec.trace is not None:
                self.observer = Trace(spec.trace, lambda: counter_tracks(self.snapshot()))
            self._readers |= {task.name: self._reader(task, progress) for task in config.tasks}
            self._share()
            self._check_budget()
            plan_again(self.catalog, [reader.task for reader in self._readers.values()])
        except BaseException:
            if storage is not None:
                storage.tiers.close()
            self._let_go(clean=storage is not None)
            raise
        self._keeper = Keeper(self.catalog, KeepSettings.of(self.config.cache), self._ledger.has, self.observer)
        self._codecs = storage.codecs(self.catalog, self._keeper.byte_s)
        self._ahead = LookAhead(self._engine_now, self._keeper)
        self.gate.start()
        _open_caches.append(self)
        atexit.register(self.close)

    def _reader(self, spec: TaskSpec, progress: Progress | None) -> Reader:
        with placed(spec):
            task = open_task(
                self.config.cache,
                spec,
                self.catalog,
                budget_bytes=self.tier.budget_bytes,
                progress=progress,
                observer=self.observer,
                tasks=self.config.tasks,
            )
        return Reader(
            task,
            self.catalog,
            self.tiers,
            self._engine_now,
            lambda *place: self._ahead.reading(task, *place),
            self.observer,
        )

    def _share(self) -> None:
        """Let tasks that have videos in common share them."""
        tasks = [reader.task for reader in self._readers.values()]
        share_among(tasks, self.catalog, self.config.cache, self._groups, lambda: self._engine_now().guard())

    def _check_budget(self) -> None:
        """A budget must hold the largest batch: less could never be read (law 7)."""
        for reader in self._readers.values():
            with placed(reader.spec):
                need, clips = reader.task.batch_bound()
            if need > self.tier.budget_bytes:
                raise BudgetTooSmall(
                    f"a batch of task {reader.spec.name!r} has {clips} clips that take up to {need} bytes, but "
                    f"cache.budget is {self.tier.budget_bytes}; the minimum is {need}",
                    need,
                )

    @gated
    def join(self, source: Source | Iterable[Source], *, progress: Progress | None = None) -> tuple[str, ...]:
        """Let further tasks join while others run; their generations end with those of the others.

        Args:
            source: what describes them, as for `viewcache.open`; a ``cache`` section must name the same store.
            progress: called while files are scanned, with (done, in all, name).

        Returns:
            Their names.

        Raises:
            ConfigError: the description is wrong, belongs to another cache, or a name is taken.
            BadInput: the catalog has draws of another definition under a name.
            BudgetTooSmall: the budget cannot hold one of their batches. The other tasks go on, after any error.
        """
        with self._lock:
            before = self.config, dict(self._readers)
            self.config = load_more(source, self.config)
            try:
                names = [task.name for task in self.config.tasks if task.name not in self._readers]
                for name in names:
                    self._readers[name] = self._reader(self.config.task(name), progress)
                self._check_budget()
                self._share()
            except BaseException:
                self.config, self._readers = before
                raise
            if self._engine is not None:
                self._engine.demand_reserve = self._reserve()
            return tuple(names)

    @gated
    def leave(self, name: str) -> None:
        """A task has ended, also in the middle of an epoch: nothing is drawn, made or kept for it any more.

        What it has drawn stays drawn; reading it again lets it go on.

        Raises:
            ViewNotFound: there is no such task.
        """
        task = self._reader_of(name).task
        if task.group is not None:
            task.group.leave(task)
        last = task.spec.epochs * task.iterations(0)
        self.catalog.limit_ranks(task.task_id, 1)
        self.catalog.advance(ProgressRow(task.task_id, 0, task.spec.epochs, 0, last, 0.0))
        self._ahead.forget(task)
        if self._engine is not None:
            self._engine.forget(task.task_id)

    # Reading -------------------------------------------------------------------------------------------------------

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks, in the order of the configuration."""
        return tuple(self._readers)

    def task(self, name: str) -> OwnedTask:
        """One task: its batches, frames, videos and classes.

        Raises:
            ViewNotFound: there is no such task; the message lists those that there are.
        """
        self.check_open()
        if name not in self._handles:
            self._handles[name] = OwnedTask(self._reader_of(name), self.catalog, self.gate)
        return self._handles[name]

    def classes(self, task: str) -> tuple[str, ...]:
        """The distinct text labels of a task, sorted; a label's number is its place here. Empty without text labels.

        Raises:
            ViewNotFound: no such task.
        """
        return self.task(task).classes

    def _reader_of(self, name: str) -> Reader:
        if name not in self._readers:
            raise ViewNotFound(f"no task {name!r} in this cache; it has {', '.join(self._readers)}")
        return self._readers[name]

    def loader(self, task: str, **options: Any) -> Loader:
        """Batches of a task as PyTorch tensors; see `Loader` for the options."""
        return Loader(self, task, **options)

    def read(self, task: str, epoch: int, iteration: int, rank: int = 0, world: int = 1) -> Batch:
        """One batch as NumPy arrays.

        Raises:
            ViewNotFound: no such task, epoch or iteration.
            BadVideo: a video cannot be decoded and the policy is ``raise``.
        """
        batch = self.task(task).read(epoch, iteration, rank, world)
        assert batch is not None  # only a cancelled read gives none
        return batch

    def frame(self, task: str, video: str, i: int) -> NDArray[np.uint8]:
        """Frame ``i`` of a video as decoded, uint8 (3,H,W).

        Raises:
            ViewNotFound: no such task, video or frame.
            BadVideo: the video cannot give it.
        """
        return self.task(task).frames([FrameRequest(video, i)])[0]

    def aug(
        self,
        task: str,
        video: str,
        i: int,
        depth: int,
        *,
        epoch: int | None = None,
        sample: int = 0,
        output: str | None = None,
    ) -> NDArray[np.uint8]:
        """Frame ``i`` of a video after the first ``depth`` augmentation steps, uint8 (3,H,W); see `Singles.aug`.

        Raises:
            ViewNotFound: no such task, video, frame, step, output, epoch or sample.
            BadVideo: the video cannot give it.
        """
        return self.task(task).frames([FrameRequest(video, i, depth, epoch, sample, output)])[0]

    def video(self, task: str, name: str) -> tuple[str, str]:
        """Where a video's file is (absolute path or URL), and the file's extension, ``.mp4``.

        Raises:
            ViewNotFound: no such task or video.
        """
        video = self.task(task).video(name)
        return video.uri, video.extension

    def materialize(self, epochs: int | None = None) -> Iterator[dict[str, int]]:
        """Make ahead what the budget keeps of the first epochs of all tasks, and say how far it is.

        Args:
            epochs: how many, or as many as a task has; None = all.

        Returns:
            Counts of clips: ``ready``, ``planned`` (to be made) and ``failed``, about twice a second.

        Raises:
            BadInput: ``epochs`` is less than one.
        """
        if epochs is not None and epochs < 1:
            raise BadInput(f"materialize(epochs={epochs}): at least 1")
        self.making = self.gate.run(lambda: self._make(epochs))
        return self.making.progress(self.gate)

    def _make(self, epochs: int | None) -> Making:
        tasks = [reader.task for reader in self._readers.values()]
        return Making.begin(tasks, epochs, self._keeper, self._engine_now())

    # Making --------------------------------------------------------------------------------------------------------

    def failure(self) -> str:
        """Why the last job failed as a whole, such as a full disk; empty when it did not."""
        return self._engine.failure if self._engine is not None else ""

    def busy_seconds(self) -> dict[str, float]:
        """Seconds that workers were busy since the cache was opened, by stage: decode, convert, augment, store."""
        return dict(self._engine.busy) if self._engine is not None else {}

    def snapshot(self) -> Snapshot:
        """All counters, now; a closed cache goes on saying what it had counted."""
        engine, observer = self._engine, self.observer
        tiers = {name: self.tiers[name] for name in self.tiers.names()}
        return Snapshot(
            tasks={name: _counts(reader.spent) for name, reader in list(self._readers.items())},
            tiers={
                name: TierBytes(tier.used_bytes, tier.reserved_bytes, tier.budget_bytes) for name, tier in tiers.items()
            },
            objects=len(self._ledger),
            evictions=dict(self._ledger.gone),
            readers_waiting=0 if engine is None else engine.evictor.waiting(),
            worker_seconds=self.busy_seconds(),
            work={} if engine is None else dict(engine.frames),
            jobs=observer.jobs,
            jobs_running=observer.running,
            jobs_died=observer.deaths,
            generations=dict(observer.generations),
            planning_s=dict(observer.planning_s),
            catalog_backlog=self.catalog.backlog(),
        )

    def _engine_now(self) -> Engine:
        with self._starting:
            self.gate.check()
            if self._engine is None:
                cache = self.config.cache
                workers, memory = cache.worker_count, cache.memory_bytes
                pool = start_pool(cache, self.observer)
                place = Place(self.tier.root, cache.durability == Durability.DURABLE)
                settings = EngineSettings(place, self._codecs, job_bytes(memory, workers), self._reserve(), memory)
                watermarks = Watermarks(cache.eviction.high_water, cache.eviction.low_water)
                engine = Engine(self._ledger, self.tiers, pool, settings, self._on_bad, self.observer)
                mover = Mover(self.tiers, self._ledger, engine, self._codecs, watermarks, durable=place.durable)
                mover.start()
                self._engine, self._mover = engine, mover
            return self._engine

    def _reserve(self) -> int:
        tasks = [reader.task for reader in self._readers.values()]
        return max((task.demand_reserve(task.batch_bound()[0]) for task in tasks), default=0)

    def _on_bad(self, work: Any, rows: list[int], why: str) -> ViewcacheError | None:
        if isinstance(
            work, SingleWork | BaseWork
        ):  # a frame asked for by name has no substitute; nobody waits for bases
            return BadVideo(f"{why}; the frame cannot be made")
        task = next(reader.task for reader in self._readers.values() if reader.task.task_id == work.task_id)
        self.catalog.add_events([EventRow("error", work.task_id, count=len(rows), detail=why)])
        return task.substitute(work, rows, why)

    # Ending --------------------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Refuse use after close, and in a forked child.

        Raises:
            Closed: `close` was called.
            WrongProcess: this is another process than the one that opened it.
        """
        self.gate.check()

    def close(self) -> None:
        """Stop the workers, commit what waits, let go. Harmless when done twice, or in a forked child."""
        self.gate.close(self._end)

    def _end(self) -> None:
        if self in _open_caches:
            _open_caches.remove(self)
        self._ahead.close()
        with self._starting:
            engine, mover = self._engine, self._mover
        if mover is not None:
            mover.close()
        clean = engine is None or engine.close()
        self.gate.wait_left(LEAVE_S)
        self._ledger.note_reads()
        self.tiers.close()
        forget_volatile(self.catalog, self.tiers)
        self._let_go(clean=clean and not self.tiers.strays)
        atexit.unregister(self.close)

    def _let_go(self, *, clean: bool) -> None:
        """Commit what waits and give the locks back; after a clean end the next start need not walk the store."""
        self.observer.close()
        try:
            if clean:
                self.catalog.set_setting(CLEAN, "yes")
        finally:
            self.catalog.close()
            if self._owner is not None:
                self._owner.release()

    def __enter__(self) -> Self:
        """The cache itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


def _counts(spent: Spent) -> TaskCounts:
    return TaskCounts(spent.batches, spent.hits, spent.misses, spent.rebuilt, dict(spent.stalls))
