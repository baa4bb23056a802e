"""Who owns a store: its locks, catalog, tiers, workers and open tasks, assembled in one readable order."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace

from viewcache.api.config.load import Config, ConfigSource, load_more
from viewcache.api.config.placed import placed
from viewcache.api.session.admitting import check_same
from viewcache.api.session.counting import counted
from viewcache.api.session.observing import observer_of, usage_of
from viewcache.api.session.storage import Storage, forget_volatile, open_storage, shrink
from viewcache.catalog import Catalog
from viewcache.catalog.lock import OwnerLock
from viewcache.catalog.opening import own_store
from viewcache.catalog.records import ProgressRow
from viewcache.errors import BudgetTooSmall, ViewNotFound
from viewcache.materializer.choices import Durability, WorkerKind
from viewcache.materializer.dataset.files import Files
from viewcache.materializer.dataset.growing import Growing
from viewcache.materializer.dataset.listing import Progress
from viewcache.materializer.dataset.listing_spec import files_of
from viewcache.materializer.gate import Gate
from viewcache.materializer.media.facts import Scanned
from viewcache.materializer.op_workers.crews import end_idle_op_workers
from viewcache.materializer.ops import check_importable, hold
from viewcache.materializer.reading.deciding import Deciding
from viewcache.materializer.reading.handle import OwnedTask
from viewcache.materializer.reading.learning import Learning
from viewcache.materializer.reading.reader import Reader
from viewcache.materializer.retention.chosen import KeepSettings
from viewcache.materializer.retention.keeper import Keeper
from viewcache.materializer.scheduling.bad_rows import Undecided
from viewcache.materializer.scheduling.chooser import DispatcherSettings
from viewcache.materializer.scheduling.dispatcher import Dispatcher
from viewcache.materializer.scheduling.migration import Mover, Watermarks
from viewcache.materializer.scheduling.moves import Moves
from viewcache.materializer.scheduling.trim import Trim
from viewcache.materializer.spec import DatasetSpec, TaskSpec
from viewcache.materializer.storage.recover import Recovered, bind_store
from viewcache.materializer.tasks.group import Group
from viewcache.materializer.tasks.look_ahead import LookAhead
from viewcache.materializer.tasks.opening import need_no_plan, open_task, plan_again, share_among
from viewcache.materializer.tasks.scanned_files import keeps_scanned
from viewcache.materializer.tasks.task import Task
from viewcache.materializer.telemetry.snapshot import Snapshot
from viewcache.materializer.telemetry.usage import Usage
from viewcache.materializer.workers.job import FolderTarget
from viewcache.materializer.workers.pool import job_bytes
from viewcache.materializer.workers.start import start_pool
from viewcache.store import LocalTier

__all__ = ["Owner", "assemble"]


def assemble(config: Config, gate: Gate, progress: Progress | None = None, *, serves: bool = False) -> "Owner":
    """Take a store into possession: lock it, recover it, open its tasks. Workers start with the first read.

    Args:
        config: the cache and its tasks.
        gate: what callers come through; closed, it lets no worker be started any more.
        progress: called while files are scanned, with (done, in all, name).
        serves: whether all other processes read through this one.

    Raises:
        CatalogBusy: another process owns the store.
        DatasetNotFound: a dataset's folder or label table is not there, or holds no videos.
        BadInput: the store and the catalog do not belong together, or a task is drawn otherwise.
        BudgetTooSmall: the budget cannot hold one batch; ``minimum`` says what would do.
    """
    usage = usage_of(config, serves=serves)
    spec = config.cache
    root = spec.local.url
    local = LocalTier(root, spec.local.budget_bytes)
    lock = own_store(spec.catalog, root)
    try:
        catalog = Catalog.open(root if spec.catalog == "duckdb" else spec.catalog, beside=root)
    except BaseException:
        if lock is not None:
            lock.release()
        raise
    storage: Storage | None = None
    owner: Owner | None = None
    try:
        if lock is not None:
            bind_store(catalog, local)
        storage = open_storage(config, catalog, local, clean=catalog.begin())
        owner = Owner(storage, catalog, local, lock, gate, usage, serves=serves)
        storage.recovery.start(owner.counted)
        owner.open_tasks(owner.config.tasks, progress)
        plan_again(catalog, owner.opened)
    except BaseException:
        if storage is not None:
            storage.recovery.close()
            storage.tiers.close()
        if owner is not None:
            owner.held.release()
            owner.end_headers()
            owner.observer.close()
        end_idle_op_workers()
        _let_go(catalog, lock, clean=storage is not None and storage.recovery.is_over)
        raise
    return owner


def _let_go(catalog: Catalog, lock: OwnerLock | None, *, clean: bool) -> None:
    """Commit what waits and give the locks back; after a clean end the next start need not walk the store."""
    try:
        if clean:
            catalog.end()
    finally:
        catalog.close()
        if lock is not None:
            lock.release()


class Owner:
    """The parts of an open cache. Made by `assemble`; users have `Cache`. Thread-safe."""

    def __init__(
        self,
        storage: Storage,
        catalog: Catalog,
        local: LocalTier,
        lock: OwnerLock | None,
        gate: Gate,
        usage: Usage,
        *,
        serves: bool = False,
    ) -> None:
        """Put together what `assemble` opened; no task is open yet."""
        self.config = storage.config
        """With the default budget filled in, and the tasks that joined."""
        self.catalog = catalog
        self.tier = local
        """The local tier, in which objects are made."""
        self.tiers = storage.tiers
        self.ledger = storage.ledger
        """What lies where, and who reads it."""
        self.recovery = storage.recovery
        """Makes the catalog and the local tier agree after an unclean end."""
        self.observer = observer_of(self.config, catalog, usage, self.snapshot)
        """Told of jobs, reads, plans and evictions."""
        self.keeper = Keeper(catalog, KeepSettings.of(self.config.cache), self.ledger.size, self.observer)
        self._moves = Moves()
        self.look_ahead = LookAhead(self.dispatcher_now, self.keeper, self._moves.turn)
        self.dispatcher: Dispatcher | None = None
        """The dispatcher; None until something is to be made."""
        self.mover: Mover | None = None
        """Moves objects between tiers; there with the dispatcher."""
        self.held = hold(())
        """The operations that its tasks use."""
        self._learning = Learning(catalog, lambda: self.opened)
        self._deciding = Deciding(catalog, lambda: self.opened)
        self._codecs = storage.codecs(catalog, self.keeper.prices)
        self._lock = lock
        self._gate = gate
        self._serves = serves
        self._joining = threading.RLock()
        self._starting = threading.RLock()
        """Held while workers are started, and when closing looks whether there are any."""
        self._readers: dict[str, Reader] = {}
        self._batch_bytes: dict[str, int] = {}
        """Task → most bytes of a batch in the store, looked up once: to look at each of dozens of jobs takes long."""
        self._admitted, self._fits = frozenset[str](), False
        """Names of the tasks that are open and share already, and whether the budget holds a batch of each."""
        self._handles: dict[str, OwnedTask] = {}
        self._groups: dict[int, Group] = {}
        self._grown: dict[DatasetSpec, Growing] = {}

    @property
    def recovered(self) -> Recovered:
        """What was found in the local tier so far."""
        return self.recovery.result

    # Tasks ---------------------------------------------------------------------------------------------------------

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks, in the order of the configuration."""
        return tuple(self._readers)

    @property
    def opened(self) -> list[Task]:
        """The tasks themselves."""
        return [reader.task for reader in list(self._readers.values())]

    def handle(self, name: str) -> OwnedTask:
        """One task as its users see it.

        Raises:
            ViewNotFound: there is no such task; the message lists those that there are.
        """
        reader, found = self._readers.get(name), self._handles.get(name)
        if reader is None:
            raise ViewNotFound(f"no task {name!r} in this cache; it has {', '.join(self._readers)}")
        if found is None or found.task is not reader.task:  # of a join that was refused, or of a task that has retired
            self._handles[name] = found = OwnedTask(reader, self.catalog, self._gate)
        return found

    def open_tasks(self, specs: Sequence[TaskSpec], progress: Progress | None = None) -> None:
        """Open the tasks of the configuration and let them share; see `assemble` for the errors."""
        listed: dict[DatasetSpec, Files] = {}
        self._hold(specs)
        for spec in specs:
            self._readers[spec.name] = self._reader(spec, progress, listed)
        self._share()  # first: the check may plan what was drawn, and what is shared decides the clips' starts
        self._check_budget(specs)
        for task in self.opened:
            task.dataset.files.headers.begin()
        self._admitted, self._fits = frozenset(self._readers), True
        self.counted()

    def _hold(self, specs: Iterable[TaskSpec]) -> None:
        names = {name for spec in specs for name in spec.op_names}
        if self.config.cache.worker_kind == WorkerKind.PROCESSES:
            check_importable(names)
        self.held.add(names)

    def _share(self) -> None:
        cache = self.config.cache
        share_among(self.opened, self.catalog, cache, self._groups, lambda: self.dispatcher_now().lock)

    def join(self, source: ConfigSource | Iterable[ConfigSource], progress: Progress | None = None) -> tuple[str, ...]:
        """See `Cache.join`."""
        with self._joining:
            return self._add(load_more(source, self.config), progress)

    def admit(self, more: Config, progress: Progress | None = None) -> tuple[str, ...]:
        """Let the tasks of a client's configuration join; those that are open already only have to be the same.

        Returns:
            The names of all of them.

        Raises:
            ConfigError: a task of the name is open with another definition, other keys of its dataset, or fewer epochs.
            BadInput: see `Cache.join`; so are the other errors.
        """
        names = tuple(task.name for task in more.tasks)
        if self._admitted.issuperset(names):  # without waiting for others whose datasets are being listed
            self._check_known(more)
            return names
        with self._joining:
            self._check_known(more)
            fresh = tuple(task for task in more.tasks if task.name not in self._admitted)
            if fresh:
                self._add(replace(self.config, tasks=(*self.config.tasks, *fresh)), progress)
            return names

    def _check_known(self, more: Config) -> None:
        known = {task.name: task for task in self.config.tasks if task.name in self._admitted}
        for task in more.tasks:
            if task.name in known:
                check_same(known[task.name], task, self.config, more)

    def _add(self, config: Config, progress: Progress | None) -> tuple[str, ...]:
        """Open the tasks of a configuration that are not open, and let them share."""
        before = self.config, dict(self._readers)
        self.config = config
        try:
            fresh = [task for task in config.tasks if task.name not in self._readers]
            self._hold(fresh)
            listed = self._listed_of_jobs(fresh)
            for task in fresh:
                self._readers[task.name] = self._reader(task, progress, listed)
            self._check_budget(fresh)  # before the others share with a task that is refused
            self._share()
        except BaseException:
            self.config, self._readers = before
            raise
        plan_again(self.catalog, [self._readers[task.name].task for task in fresh])
        self._admitted = frozenset(self._readers)
        if self.dispatcher is not None:
            self.dispatcher.leave_to_readers(self._reserve())
        return tuple(task.name for task in fresh)

    def _listed_of_jobs(self, fresh: Iterable[TaskSpec]) -> dict[DatasetSpec, Files]:
        """The files of open tasks that are the same but for the name: another job reads the files that these read."""
        nameless = {replace(task, name="") for task in fresh}
        same = (task for task in self.opened if replace(task.spec, name="") in nameless)
        return {files_of(task.spec): task.dataset.files for task in same}

    def leave(self, name: str) -> None:
        """See `Cache.leave`."""
        task = self.handle(name).task
        last = task.spec.epochs * task.outline.most_iterations()
        self.catalog.limit_seats(task.task_id, 1)
        self.catalog.advance(ProgressRow(task.task_id, 0, task.spec.epochs, 0, last, 0.0))
        self.look_ahead.leave(task)
        self.suspend(name)

    def suspend(self, name: str) -> None:
        """Nobody reads a task for now: nothing is drawn or made ahead for it. Where its readers were stays known."""
        task = self.handle(name).task
        if task.group is not None:
            task.group.leave(task)
        task.seats.leave()
        if not self.look_ahead.forget(task) and self.dispatcher is not None:
            self.dispatcher.forget(task.task_id)

    def retire(self, name: str) -> bool:
        """Close a task that has ended; False if other tasks are being opened just now, or it is being planned.

        What it has drawn stays, and describing it again lets it go on.
        """
        if not self._joining.acquire(blocking=False):
            return False
        try:
            if name in self._readers:
                self.suspend(name)
                task = self._readers[name].task
                if self.look_ahead.is_planning(task):
                    return False  # what that needs is recorded when it is done, behind what is forgotten here
                del self._readers[name]
                self._handles.pop(name, None)
                self._batch_bytes.pop(name, None)
                self.config = replace(self.config, tasks=tuple(each for each in self.config.tasks if each.name != name))
                self._admitted = frozenset(self._readers)
                self.catalog.forget_uses(task.task_id)
                need_no_plan(self.catalog, [task.task_id])
                self.keeper.forget(task.task_id)
        finally:
            self._joining.release()
        return True

    def _reader(self, spec: TaskSpec, progress: Progress | None, listed: dict[DatasetSpec, Files]) -> Reader:
        with placed(spec):
            task = open_task(
                self.config.cache,
                spec,
                self.catalog,
                budget_bytes=self.tier.budget_bytes,
                progress=progress,
                observer=self.observer,
                tasks=self.config.tasks,
                listed=listed,
                grown=self._grown,
                keep=keeps_scanned(self.config.cache, self.catalog, self.tier, self.ledger),
            )
        return Reader(
            task,
            self.catalog,
            self.tiers,
            self.dispatcher_now,
            lambda number: self.look_ahead.reading(task, number),
            self.observer,
            self._learning,
            draws_for_all=self._serves,
        )

    def _check_budget(self, specs: Iterable[TaskSpec]) -> None:
        """A budget must hold the largest batch: less could never be read (law 7)."""
        for reader in (self._readers[spec.name] for spec in specs):
            with placed(reader.spec):
                need, clips = reader.task.outline.batch_bound()
            if need > self.tier.budget_bytes:
                raise BudgetTooSmall(
                    f"a batch of task {reader.spec.name!r} has {clips} clips that take up to {need} bytes, but "
                    f"cache.budget is {self.tier.budget_bytes}; the minimum is {need}",
                    need,
                )
            self._batch_bytes[reader.spec.name] = need

    # Making --------------------------------------------------------------------------------------------------------

    def dispatcher_now(self) -> Dispatcher:
        """The dispatcher, started now if it is the first time.

        Raises:
            Closed: the cache was closed.
        """
        with self._starting:
            self._gate.check()
            if self.dispatcher is None:
                cache = self.config.cache
                pool = start_pool(cache, self.observer)
                target = FolderTarget(self.tier.root, cache.durability == Durability.DURABLE, self.tiers.memory)
                most, reserve = job_bytes(cache.memory_bytes, cache.worker_count), self._reserve()
                known = self.keeper.cost, self.keeper.files.near_of, self.keeper.densities.note
                settings = DispatcherSettings(target, self._codecs, most, reserve, cache.memory_bytes, *known)
                watermarks = Watermarks.of(cache)
                moves, on_bad, found = self._moves, self._deciding.on_bad, self._on_scanned
                dispatcher = Dispatcher(self.ledger, self.tiers, pool, settings, on_bad, found, self.observer, moves)
                over = (lambda: self.look_ahead.going(self.opened)), moves.has_turned, self.keeper.lying.may_last
                trim = Trim(self.ledger, dispatcher.evictor, self.catalog, *over, self.keeper.expected)
                moved = self.tiers, self.ledger, dispatcher, moves, self._codecs, watermarks
                self.mover = Mover(*moved, trim if cache.eviction.trim else None, durable=target.durable)
                self.mover.start()
                self.dispatcher = dispatcher
            return self.dispatcher

    def counted(self) -> None:
        """The local tier is counted, or never will be: what there is no room for leaves, and jobs may begin."""
        with self._starting:
            if self.recovery.is_over and self._fits:  # a budget that is refused costs nothing
                shrink(self.tiers, self.ledger)
        if (dispatcher := self.dispatcher) is not None:
            dispatcher.counted()

    def _reserve(self) -> int:
        known = self._batch_bytes  # of a task that is just joining nothing is known yet
        return max((task.demand_reserve(known.get(task.spec.name, 0)) for task in self.opened), default=0)

    def _on_scanned(self, key: str, found: Scanned) -> None:
        if self._learning.is_planning(key, found):
            raise Undecided
        self._learning.learn(key, found)

    def publish(self) -> None:
        """Let SQL see all that has been done until now."""
        self.observer.settle()
        if self.config.cache.catalog == "duckdb":
            self.catalog.publish_snapshot()
        else:
            self.catalog.flush()

    def snapshot(self) -> Snapshot:
        """All counters, now; a closed cache goes on saying what it had counted."""
        spent = {name: reader.accounts.spent for name, reader in list(self._readers.items())}
        return counted(spent, self.tiers, self.ledger, self.dispatcher, self.observer, self.catalog)

    # Ending --------------------------------------------------------------------------------------------------------

    def end_headers(self) -> None:
        """Read no more headers; the next opening goes on there."""
        for task in self.opened:
            task.dataset.files.headers.close()

    def close(self, leave_s: float) -> None:
        """End planner, movers and workers, wait for callers at most ``leave_s`` seconds, commit and let go."""
        self.catalog.hasten()
        self.observer.usage.look()  # while the threads are there
        self.end_headers()
        self.recovery.close()
        self.look_ahead.close()
        with self._starting:
            dispatcher, mover = self.dispatcher, self.mover
        if mover is not None:
            mover.close()
        clean = dispatcher is None or dispatcher.close()
        self._gate.wait_left(leave_s)
        self.ledger.note_reads()
        self.tiers.close()
        forget_volatile(self.catalog, self.tiers)
        self.observer.close()
        end_idle_op_workers()
        self.held.release()
        _let_go(self.catalog, self._lock, clean=clean and self.recovery.is_over and not self.tiers.orphans)
