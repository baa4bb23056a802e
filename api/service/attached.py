"""A cache that another process owns, with the interface of one that this process owns.

This module and what it imports load no database and no decoder, so that a DataLoader's worker starts quickly and stays
small.
"""

import atexit
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viewcache.api.arguments import integer, text
from viewcache.api.config.documents import TextSource, load_texts, texts_of, with_code
from viewcache.api.config.load import Config, ConfigSource
from viewcache.api.service import answers, asks
from viewcache.api.service.attached_task import AttachedTask
from viewcache.api.service.client import Client
from viewcache.api.service.counted import making_of, snapshot_of
from viewcache.api.service.facts import TaskFacts, Told
from viewcache.api.service.renewal import documents_of
from viewcache.api.session import opened
from viewcache.api.session.made import Making
from viewcache.api.session.reads import CacheReads
from viewcache.api.session.sql import select
from viewcache.errors import ViewcacheError
from viewcache.materializer.ops import hold
from viewcache.materializer.reading.batch_memory import BatchMemory
from viewcache.materializer.telemetry.snapshot import Snapshot

if TYPE_CHECKING:
    import pyarrow as pa

    from viewcache.materializer.dataset.listing import Progress

__all__ = ["AttachedCache"]

_log = logging.getLogger("viewcache.service")


class AttachedCache(CacheReads):
    """A cache that a service owns. Use it as a context manager; all methods may be called from any thread."""

    pid = None
    """A child of a fork may use it: it says hello for itself."""

    def __init__(
        self,
        config: Config,
        sources: Sequence[TextSource],
        job: str = "",
        *,
        may_start: bool,
        progress: "Progress | None" = None,
    ) -> None:
        """Attach; see `viewcache.open`.

        Args:
            config: what ``sources`` say.
            sources: its text.
            job: which training this process belongs to.
            may_start: whether a service is to be started where there is none.
            progress: called with (done, in all, name) while the service looks at the files of new tasks.
        """
        self._config = config
        self._sources, self._may_start = with_code(sources, config), may_start
        if config.cache.op_workers:
            from viewcache.materializer.op_workers.crews import end_idle_op_workers

            end_idle_op_workers()  # they have said what they serve, and the service has its own
        root = Path(config.cache.local.url)
        self._making: Making | None = None
        self.batch_memory = BatchMemory()
        self._known: dict[str, str] = {}
        """Name of each task here → its name at the service."""
        self._layouts: dict[str, str] = {}
        """The latter → the layout that this process gave it; another process may have given it another."""
        self._held = hold(_op_names(config))
        try:
            self._client = Client(root, self._sources, job, may_start=may_start, progress=progress, config=config)
            self._know(config, self._client.connected().welcome.tasks)
        except BaseException:
            self._held.release()
            raise
        self._tasks: dict[str, AttachedTask] = {}
        opened.enter(self)
        atexit.register(self.close)

    @property
    def where(self) -> str:
        """Its store, and that a service owns it."""
        return f"{self._config.cache.local.url}, owned by a service"

    @property
    def config(self) -> Config:
        """The settings and the tasks that this process described."""
        return self._config

    @property
    def differing(self) -> tuple[str, ...]:
        """Settings of the configuration, as its files are by now, that the running service has otherwise."""
        return self._client.renewal.differing(self._client.connected().welcome.settings)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The same, and what `changes` tells: classes that have other numbers, bad files that end a training later.

        Raises:
            ViewcacheError: as `task` of one of the tasks.
        """
        return (*self.differing, *self._task_warnings(self.tasks))

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks that this process described, in the order of the configuration."""
        return tuple(self._known)

    def task(self, name: str) -> AttachedTask:
        """One task, also one that another process described.

        Raises:
            BadInput: the name is no text.
            ViewNotFound: there is no such task; the message lists those that there are.
            Closed: `close` was called.
        """
        self.check_open()
        name = text("task", name)
        if name not in self._tasks:
            self._tasks[name] = self._attached(TaskFacts.of(self._client, self._known.get(name, name)))
            for warning in self._task_warnings([name]):
                _log.warning("%s", warning, extra={"action": "files_changed"})
        return self._tasks[name]

    def sql(self, query: str, *, seconds: float = 10.0, rows: int = 1_000_000) -> "pa.Table":
        """The answer to one SELECT over the relations of docs/catalog.md, as an Arrow table.

        ``cache.sql(…).to_pandas()`` and ``polars.from_arrow(cache.sql(…))`` give data frames. It is read-only, and sees
        all that was done before it was asked.

        Args:
            query: the statement.
            seconds: most time for it.
            rows: most rows; further ones are left out.

        Raises:
            BadInput: an argument is of another type, or out of range.
            QueryRefused: it is not one SELECT, is wrong, or went over a limit.
        """
        self._client.ask(answers.Ok, asks.Publish())
        return select(self._config.cache, query, seconds, rows)

    def materialize(self, epochs: int | None = None) -> Iterator[dict[str, int]]:
        """Make ahead what the budget keeps of the first epochs of this process's tasks; see `Cache.materialize`."""
        epochs = None if epochs is None else integer("epochs", epochs, least=1)
        return self._made(asks.Make(tuple(self._known.values()), epochs))

    def _made(self, ask: asks.Make) -> Iterator[dict[str, int]]:
        over = False
        try:
            while not over:
                counts = self._client.ask(answers.Counts, ask)
                over, self._making = counts.over, making_of(counts)
                yield counts.clips
        finally:
            if not over:
                with suppress(ViewcacheError):  # the cache was closed, or the service has ended: so has this
                    self._client.ask(answers.Ok, asks.EndMake(ask.tasks, ask.epochs))

    @property
    def making(self) -> Making | None:
        """What `materialize` has made so far; None before it was asked."""
        return self._making

    def join(
        self, source: ConfigSource | Iterable[ConfigSource], *, progress: "Progress | None" = None
    ) -> tuple[str, ...]:
        """Let further tasks join; see `Cache.join`. Those that are open already only have to be the same."""
        self.check_open()  # before files are read that may be wrong
        return self._join(texts_of(source), progress)

    def _join(self, sources: Sequence[TextSource], progress: "Progress | None" = None) -> tuple[str, ...]:
        config = load_texts(sources)
        sources = with_code(sources, config)
        self._held.add(_op_names(config))
        ask = asks.Join(documents_of(sources), self._client.job)
        names = self._client.ask(answers.Joined, ask, progress).tasks
        self._client.remember(sources)
        self._know(config, names)
        return tuple(task.name for task in config.tasks)

    def _know(self, config: Config, at_service: Sequence[str]) -> None:
        """This process has described tasks, which have these names at the service."""
        for task, name in zip(config.tasks, at_service, strict=True):
            self._known[task.name], self._layouts[name] = name, str(task.layout)

    def _attached(self, facts: TaskFacts) -> AttachedTask:
        return AttachedTask(self._client, facts, self._layouts)

    def leave(self, name: str) -> None:
        """A task has ended; see `Cache.leave`."""
        name = text("name", name)
        self._client.ask(answers.Ok, asks.Leave(self._known.get(name, name)))

    def stats(self) -> answers.StatsOf:
        """The service: its process, its CPU seconds, its clients and what each holds."""
        return self._client.ask(answers.StatsOf, asks.Stats())

    def snapshot(self) -> Snapshot:
        """All counters of the service, of all its clients; see `Cache.snapshot`."""
        return snapshot_of(self._client.ask(answers.CountersOf, asks.Counters()))

    def busy_seconds(self) -> dict[str, float]:
        """Seconds that the service's workers were busy, by stage; see `Cache.busy_seconds`."""
        return dict(self.snapshot().worker_seconds)

    def check_open(self) -> None:
        """Refuse use after close.

        Raises:
            Closed: `close` was called.
        """
        self._client.check_open()

    def close(self) -> None:
        """Let go; the service goes on for others. Harmless when done twice."""
        opened.leave(self)
        self.batch_memory.close()
        atexit.unregister(self.close)
        self._client.close()
        self._held.release()

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to another process, which says hello for itself."""
        told = {name: task.facts.latest for name, task in self._tasks.items()}
        return _again, (self._sources, self._client.job, self._may_start, self._client.joined, told)


def _op_names(config: Config) -> Iterator[str]:
    return (name for task in config.tasks for name in task.op_names)


def _again(
    sources: Sequence[TextSource],
    job: str,
    may_start: bool,
    joined: Sequence[Sequence[TextSource]],
    told: Mapping[str, Told],
) -> AttachedCache:
    """The cache that was sent to this process, with what had joined it; labels mean here what they did there."""
    cache = AttachedCache(load_texts(sources), sources, job, may_start=may_start)
    try:
        for each in joined:
            cache._join(each)
        for name, facts in told.items():
            cache._tasks[name] = cache._attached(TaskFacts(cache._client, facts))
    except BaseException:
        cache.close()
        raise
    return cache
