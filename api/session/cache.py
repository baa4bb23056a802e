"""An open cache: one process's handle on store, catalog, tasks and workers (DESIGN §9).

Opening scans the datasets and repairs what an unclean end left; workers start with the first read. Closing commits what
waits; not closing loses nothing that was made.
"""

import atexit
import logging
import os
import threading
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from viewcache.api.config.load import Config, Source, load, load_more
from viewcache.api.metrics.metrics import observer_of
from viewcache.api.session.making import Making
from viewcache.api.session.storage import Storage, forget_volatile, open_storage
from viewcache.api.training.loader import Loader
from viewcache.catalog import Catalog
from viewcache.catalog.lock import OWNER_LOCK, OwnerLock
from viewcache.catalog.records import EventRow, ProgressRow, TaskRow
from viewcache.errors import BadInput, BadVideo, BudgetTooSmall, Closed, ViewcacheError, ViewNotFound, WrongProcess
from viewcache.materializer.dataset.dataset import Dataset, Progress
from viewcache.materializer.dataset.names import stem
from viewcache.materializer.reading.batch import Batch
from viewcache.materializer.reading.frames import SingleWork
from viewcache.materializer.reading.reader import Reader
from viewcache.materializer.retention.keeper import Keeper, KeepSettings
from viewcache.materializer.scheduling.bases import BaseWork
from viewcache.materializer.scheduling.dispatcher import Engine, EngineSettings
from viewcache.materializer.scheduling.migration import Mover, Water
from viewcache.materializer.spec import TaskSpec
from viewcache.materializer.storage.recover import Recovered, claim, plan_again
from viewcache.materializer.tasks.group import Group, shares
from viewcache.materializer.tasks.look_ahead import LookAhead
from viewcache.materializer.tasks.task import Task, TaskSettings
from viewcache.materializer.telemetry.observer import Observer
from viewcache.materializer.workers.job import Place
from viewcache.materializer.workers.pool import job_bytes, start_pool
from viewcache.store import LocalTier

__all__ = ["Cache", "open"]

_log = logging.getLogger("viewcache")

CLEAN = "clean_end"
"""Setting: ``yes`` while rows and files are known to agree, because the last owner said so in the end."""

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
    return _open_caches[-1] if _open_caches and _open_caches[-1]._pid == os.getpid() else None


def open_task(
    config: Config, spec: TaskSpec, catalog: Catalog, budget_bytes: int, progress: Progress | None = None
) -> Task:
    """Scan a task's dataset and register the task in a catalog; nothing is planned yet, nor shared: see `shares`.

    Raises:
        BadInput: the catalog has draws of another definition under this name.
        DatasetNotFound: the dataset's folder or label table is not there, or holds no videos.
    """
    cache = config.cache
    try:
        dataset = Dataset.open(spec.dataset, catalog, workers=cache.workers, progress=progress)
    except BadInput as error:
        if type(error) is not BadInput:
            raise
        raise BadInput(f"task {spec.name!r}: {error}") from error  # labels and predicates know no task
    seed = cache.seed if spec.seed is None else spec.seed
    # How many epochs are planned at once decides the clips' starts, so it is part of what a path means.
    definition = f"{config.canonical(spec)} epochs_per_generation={cache.epochs_per_generation}"
    row = catalog.ensure_task(
        TaskRow(
            name=spec.name,
            dataset_id=dataset.dataset_id,
            definition_key=blake2b(definition.encode(), digest_size=16).hexdigest(),
            definition=definition,
            epochs=spec.epochs,
            videos_per_batch=spec.sampling.videos_per_batch,
            samples_per_video=spec.sampling.samples_per_video,
            frames_per_clip=spec.sampling.frames_per_video,
            frame_stride=spec.sampling.frame_stride,
            seed=seed,
            drop_last=spec.drop_last,
        )
    )
    settings = TaskSettings(seed, cache.epochs_per_generation, budget_bytes)
    return Task(spec, config.graph(spec), settings, catalog, dataset, row.task_id)


def open_caches() -> tuple["Cache", ...]:
    """The caches that are open in this process, the one that was opened last first.

    Raises:
        WrongProcess: only the parent of this process had some open; they did not survive the fork.
    """
    own = tuple(cache for cache in reversed(_open_caches) if cache._pid == os.getpid())
    if _open_caches and not own:
        _open_caches[-1].check_open()
    return own


class Cache:
    """An open cache. Use it as a context manager; all methods may be called from any thread of the process."""

    def __init__(self, config: Config, *, progress: Progress | None = None) -> None:
        """See `viewcache.open`."""
        self._pid = os.getpid()
        self._closed = False
        self._lock = threading.RLock()
        self._engine: Engine | None = None
        self._mover: Mover | None = None
        self.making: Making | None = None
        """What `materialize` is making or has made."""
        self.observer = Observer()
        """Told of jobs, reads, plans and evictions."""
        self._readers: dict[str, Reader] = {}
        spec = config.cache
        root = spec.local.url
        where = root if spec.catalog == "duckdb" else spec.catalog
        tier = LocalTier(root, spec.local.budget_bytes)
        # A DuckDB catalog has its own lock in the same folder; a store beside PostgreSQL has one owner too.
        self._owner = None if spec.catalog == "duckdb" else OwnerLock(Path(root) / OWNER_LOCK, exclusive=True)
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
            self.observer = observer_of(self)
            self._readers |= {task.name: self._reader(task, progress) for task in config.tasks}
            self._share()
            self._check_budget()
            plan_again(self.catalog, [reader.task for reader in self._readers.values()])
        except BaseException:
            if storage is not None:
                storage.tiers.close()
            self._let_go(clean=storage is not None)
            raise
        self._keeper = Keeper(self.catalog, KeepSettings.of(self.config.cache), self._ledger.has)
        self._keeper.observer = self.observer
        self._codecs = storage.codecs(self.catalog, self._keeper.byte_s)
        self._ahead = LookAhead(self._engine_now, self._keeper)
        _open_caches.append(self)
        atexit.register(self.close)

    def _reader(self, spec: TaskSpec, progress: Progress | None) -> Reader:
        task = open_task(self.config, spec, self.catalog, self.tier.budget_bytes, progress)
        task.observer = self.observer
        return Reader(
            task, self.catalog, self.tiers, self._engine_now, lambda *place: self._ahead.reading(task, *place)
        )

    def _share(self) -> None:
        """Let tasks that have videos in common share them."""
        cache, tasks = self.config.cache, [reader.task for reader in self._readers.values()]
        for task, share in zip(tasks, shares(tasks), strict=True):
            group = None
            if share.together:
                group = self._groups.get(task.dataset.dataset_id)
                if group is None:
                    group = Group(self.catalog, cache.seed, cache.draw_ahead, lambda: self._engine_now().guard())
                    self._groups[task.dataset.dataset_id] = group
                group.add(task)
            task.share(share, group)

    def _check_budget(self) -> None:
        """A budget must hold the largest batch: less could never be read (law 7)."""
        for reader in self._readers.values():
            need, clips = reader.task.batch_bound()
            if need > self.tier.budget_bytes:
                raise BudgetTooSmall(
                    f"a batch of task {reader.spec.name!r} has {clips} clips that take up to {need} bytes, but "
                    f"cache.budget is {self.tier.budget_bytes}; the minimum is {need}",
                    need,
                )

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
        self.check_open()
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

    def leave(self, name: str) -> None:
        """A task has ended, also in the middle of an epoch: nothing is drawn, made or kept for it any more.

        What it has drawn stays drawn; reading it again lets it go on.

        Raises:
            ViewNotFound: there is no such task.
        """
        task = self.task(name).task
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

    def task(self, name: str) -> Reader:
        """What reads one task.

        Raises:
            ViewNotFound: there is no such task; the message lists those that there are.
        """
        self.check_open()
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
        singles = self.task(task).singles
        return singles.read([singles.frame(video, i)])[0]

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
        singles = self.task(task).singles
        return singles.read([singles.aug(video, i, depth, epoch=epoch, sample=sample, output=output)])[0]

    def video(self, task: str, name: str) -> tuple[str, str]:
        """Where a video's file is (absolute path or URL), and the file's extension, ``.mp4``.

        Raises:
            ViewNotFound: no such task or video.
        """
        _, found = self.task(task).task.dataset.one(name)
        return found.uri, found.path[len(stem(found.path)) :]

    def materialize(self, epochs: int | None = None) -> Iterator[dict[str, int]]:
        """Make ahead what the budget keeps of the first epochs of all tasks, and say how far it is.

        Args:
            epochs: how many; None = all.

        Returns:
            Counts of clips: ``ready``, ``planned`` (to be made) and ``failed``, about twice a second.
        """
        self.making = Making.begin(
            [reader.task for reader in self._readers.values()], epochs, self._keeper, self._engine_now()
        )
        return self.making.progress(self.check_open)

    # Making --------------------------------------------------------------------------------------------------------

    def failure(self) -> str:
        """Why the last job failed as a whole, such as a full disk; empty when it did not."""
        return self._engine.failure if self._engine is not None else ""

    def busy_seconds(self) -> dict[str, float]:
        """Seconds that workers were busy since the cache was opened, by stage: decode, convert, augment, store."""
        return dict(self._engine.busy) if self._engine is not None else {}

    def _engine_now(self) -> Engine:
        self.check_open()
        with self._lock:
            if self._engine is None:
                cache = self.config.cache
                workers, memory = cache.worker_count, cache.memory_bytes
                pool = start_pool(cache)
                pool.observer = self.observer
                place = Place(self.tier.root, cache.durability == "durable")
                settings = EngineSettings(place, self._codecs, job_bytes(memory, workers), self._reserve(), memory)
                water = Water(cache.eviction.high_water, cache.eviction.low_water)
                engine = self._engine = Engine(self._ledger, self.tiers, pool, settings, self._on_bad)
                self._mover = Mover(self.tiers, self._ledger, engine, self._codecs, water, durable=place.durable)
                self._mover.start()
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
        if os.getpid() != self._pid:
            raise WrongProcess(
                f"the cache was opened by process {self._pid}, this is its child {os.getpid()}; a cache does not "
                "survive a fork: read it in the process that opened it (the loader needs no DataLoader workers)"
            )
        if self._closed:
            raise Closed("this cache was closed; open it again")

    def close(self) -> None:
        """Stop the workers, commit what waits, let go. Harmless when done twice, or in a forked child."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        atexit.unregister(self.close)
        if self in _open_caches:
            _open_caches.remove(self)
        self._ahead.close()
        if self._mover is not None:
            self._mover.close()
        clean = self._engine is None or self._engine.close()
        self._ledger.note_reads()
        self.tiers.close()
        forget_volatile(self.catalog, self.tiers)
        self._let_go(clean=clean and not self.tiers.strays)

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
