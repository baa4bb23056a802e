"""A cache that this process owns: one process's handle on store, catalog, tasks and workers.

Opening scans the datasets and repairs what an unclean end left; workers start with the first read. Closing commits what
waits; not closing loses nothing that was made.
"""

import atexit
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from viewcache.api.arguments import integer, text
from viewcache.api.config.load import Config, ConfigSource
from viewcache.api.session import opened
from viewcache.api.session.made import Making
from viewcache.api.session.making import AheadOfTime
from viewcache.api.session.owner import assemble
from viewcache.api.session.reads import CacheReads
from viewcache.api.session.sql import select
from viewcache.catalog import Catalog
from viewcache.materializer.dataset.listing import Progress
from viewcache.materializer.gate import Gate, gated
from viewcache.materializer.reading.batch_memory import BatchMemory
from viewcache.materializer.reading.handle import OwnedTask
from viewcache.materializer.storage.tiers import Tiers
from viewcache.materializer.telemetry.snapshot import Snapshot
from viewcache.store import LocalTier

if TYPE_CHECKING:
    import pyarrow as pa


__all__ = ["Cache"]

LEAVE_S = 10.0
"""How long closing waits for calls of other threads, which the end of the workers sends away."""


class Cache(CacheReads):
    """An open cache. Use it as a context manager; all methods may be called from any thread of the process."""

    def __init__(self, config: Config, *, progress: Progress | None = None, serves: bool = False) -> None:
        """Own the store of a configuration in this process; see `viewcache.open`.

        Args:
            config: the settings and the tasks.
            progress: called while files are scanned, with (done, in all, name).
            serves: whether all other processes read through this one.
        """
        self.gate = Gate()
        """What callers ask for goes through here."""
        self.owner = assemble(config, self.gate, progress, serves=serves)
        """The parts: catalog, tiers, dispatcher and the like, for whoever looks inside."""
        self._making: Making | None = None
        self.batch_memory = BatchMemory()
        self.gate.start()
        opened.enter(self)
        atexit.register(self.close)

    @property
    def pid(self) -> int:
        """The process that owns the store: a forked child cannot use it."""
        return self.gate.pid

    @property
    def where(self) -> str:
        """Its store, and that this process owns it."""
        return f"{self.config.cache.local.url}, owned by this process"

    @property
    def config(self) -> Config:
        """The settings and the tasks, also those that joined."""
        return self.owner.config

    @property
    def catalog(self) -> Catalog:
        """What is known: `Catalog.query` and the like."""
        return self.owner.catalog

    @property
    def tier(self) -> LocalTier:
        """The local tier, in which objects are made."""
        return self.owner.tier

    @property
    def tiers(self) -> Tiers:
        """All tiers by name."""
        return self.owner.tiers

    @property
    def warnings(self) -> tuple[str, ...]:
        """Classes whose numbers are other ones since the last opening, and bad files that end a training later.

        Of a service also settings, see `AttachedCache`.

        Raises:
            Closed: `close` was called.
        """
        return self._task_warnings(self.tasks)

    @property
    def making(self) -> Making | None:
        """What `materialize` has made so far; None before it was asked."""
        return self._making

    @gated
    def join(
        self, source: ConfigSource | Iterable[ConfigSource], *, progress: Progress | None = None
    ) -> tuple[str, ...]:
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
        return self.owner.join(source, progress)

    @gated
    def leave(self, name: str) -> None:
        """A task has ended, also in the middle of an epoch: nothing is drawn, made or kept for it any more.

        What it has drawn stays drawn; reading it again lets it go on.

        Raises:
            ViewNotFound: there is no such task.
        """
        self.owner.leave(text("name", name))

    # Reading -------------------------------------------------------------------------------------------------------

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks, in the order of the configuration."""
        return self.owner.tasks

    def task(self, name: str) -> OwnedTask:
        """One task: its batches, frames, videos and classes.

        Raises:
            BadInput: the name is no text.
            ViewNotFound: there is no such task; the message lists those that there are.
        """
        self.check_open()
        return self.owner.handle(text("task", name))

    def materialize(self, epochs: int | None = None) -> Iterator[dict[str, int]]:
        """Make ahead what the budget keeps of the first epochs of all tasks, and say how far it is.

        Args:
            epochs: how many, or as many as a task has; None = all.

        Returns:
            Counts of clips: ``ready``, ``planned`` (to be made; in the end those that the budget does not keep, and
            those that readers are past) and ``failed``, about twice a second. Who asks no more gives up the rest.

        Raises:
            BadInput: ``epochs`` is less than one, or no whole number.
        """
        epochs = None if epochs is None else integer("epochs", epochs, least=1)
        ahead = self.gate.run(lambda: self._begin_ahead(epochs))
        return self._made(ahead)

    def _begin_ahead(self, epochs: int | None) -> AheadOfTime:
        owner = self.owner
        return AheadOfTime.begin(owner.opened, epochs, owner.keeper, owner.look_ahead, owner.dispatcher_now())

    def _made(self, ahead: AheadOfTime) -> Iterator[dict[str, int]]:
        with closing(ahead.progress(self.gate)) as steps:
            for self._making in steps:
                yield dict(self._making.clips)

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
        self.gate.run(self.owner.publish)
        return self.gate.run(lambda: select(self.config.cache, query, seconds, rows))

    # What it did ---------------------------------------------------------------------------------------------------

    def busy_seconds(self) -> dict[str, float]:
        """Seconds that workers were busy since the cache was opened, by stage: decode, convert, augment, store."""
        return dict(self.owner.dispatcher.tally.busy) if self.owner.dispatcher is not None else {}

    def snapshot(self) -> Snapshot:
        """All counters, now; a closed cache goes on saying what it had counted."""
        return self.owner.snapshot()

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
        opened.leave(self)
        self.batch_memory.close()
        self.owner.close(LEAVE_S)
        atexit.unregister(self.close)
