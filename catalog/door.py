"""The only door to the database: verbs in, values out.

Every write goes through the writer's thread; reads come from any thread of the owning process. Verbs marked *small*
return at once and are committed within a moment (``flush`` waits); the others return when they are committed.
"""

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from socket import gethostname
from types import TracebackType
from typing import TypeVar

import pyarrow as pa

from viewcache import errors
from viewcache.catalog import plans, schemas, snapshot, tasks
from viewcache.catalog.blobs import BlobFile
from viewcache.catalog.draws import Draws
from viewcache.catalog.ends import Ends
from viewcache.catalog.engine import Engine, Session
from viewcache.catalog.leaving import Leaving
from viewcache.catalog.measures import Measures
from viewcache.catalog.opening import Opened, open_catalog
from viewcache.catalog.pending import Pending
from viewcache.catalog.records import (
    CLEAN,
    CopyRow,
    GenerationRow,
    PlanTables,
    ProgressRow,
    TaskRow,
    TierRow,
)
from viewcache.catalog.rows import from_table, to_table
from viewcache.catalog.videos import Videos
from viewcache.catalog.writer import Writer

__all__ = ["ID_BLOCK", "Catalog"]

T = TypeVar("T")

ID_BLOCK = 4096
"""So many ids of objects are claimed at once: a claim is a commit, which costs more than making a frame."""


class Catalog(Draws, Ends, Leaving, Measures, Videos):
    """One open catalog.

    Use it in the process that opened it; a forked child gets ``WrongProcess``. Any thread may call any method.

    Attributes:
        quarantined: files that could not be used and were moved aside at open. When there are any, rows that told of
            copies may be lost and the store must be walked.
        backlog: gives the number of small changes that wait to be committed.
    """

    def __init__(self, opened: Opened, *, writable: bool):
        """For ``open``."""
        self._opened, self._pid, self._closed = opened, os.getpid(), False
        self.quarantined = opened.quarantined
        self._upkeep: snapshot.Upkeep | None = None
        if opened.layout and writable:
            self._upkeep = snapshot.Upkeep(opened.engine, opened.layout, self._between)
        name = "writer" if opened.layout else f"writer {gethostname()} {self._pid}"
        upkeep = self._upkeep.tick if self._upkeep else lambda: None
        self._writer = Writer(opened.engine, opened.journal, name, opened.make_room, upkeep) if writable else None
        if self._writer and opened.layout:  # a DuckDB file has one process
            self._write_alone()
        self.backlog: Callable[[], int] = self._writer.backlog if self._writer else lambda: 0
        self.naming = threading.RLock()
        """Held by who looks for the ids of objects and records those that have none, so that no key gets two."""
        self._free_ids = range(0)
        """Claimed and not given out yet."""

    @classmethod
    def open(
        cls,
        where: str | Path,
        *,
        create: bool = True,
        writable: bool = True,
        wait_s: float = 1.0,
        memory_bytes: int = 1 << 30,
        beside: str | Path | None = None,
    ) -> "Catalog":
        """Open a catalog, making it or bringing its schema up to date if need be.

        Args:
            where: a folder (DuckDB; it holds the database, its lock and its snapshot) or a ``postgresql://`` URL.
            create: make it if there is none.
            writable: own it; False reads one that nobody owns.
            wait_s: how long to wait for an owner that is about to end, or a reader that makes its copy, seconds.
            memory_bytes: most memory for DuckDB's buffers.
            beside: folder of the store, for the journal of a PostgreSQL catalog; None = none is kept.

        Raises:
            CatalogBusy: another process owns it; the message has its pid and the ways on.
            CatalogVersion: a newer release made it, or (PostgreSQL) it must be upgraded first.
            CatalogDamaged: the database file cannot be read and ``create`` is False; else it is moved aside.
            NotFound: there is none and ``create`` is False.
            Full: no disk space to make it.
        """
        opened = open_catalog(
            where, create=create, writable=writable, wait_s=wait_s, memory_bytes=memory_bytes, beside=beside
        )
        catalog = cls(opened, writable=writable)
        if writable and opened.layout:
            catalog.forget_leases()
        return catalog

    def hasten(self) -> None:
        """Wait no longer for a database that fails over than closing may take; who closes says so first of all."""
        self._opened.engine.hasten()

    def close(self) -> None:
        """Commit what waits, fold the log into the file, and let go; harmless when done twice."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        self.hasten()
        if self._writer is not None:
            self._writer.close()
        if self._upkeep is not None:
            self._upkeep.close()
        self._opened.close()

    def __enter__(self) -> "Catalog":
        """The catalog itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    @property
    def dialect(self) -> str:
        """``duckdb`` or ``postgresql``."""
        return self._opened.engine.dialect

    @property
    def where(self) -> str:
        """The folder or the ``postgresql://`` URL that was opened; a URL may hold a password."""
        return self._opened.where

    @property
    def failure(self) -> Exception | None:
        """Why small changes are not being committed (a full disk, say); None when they are. They go on being tried."""
        return self._writer.failure if self._writer else None

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every earlier change is committed.

        Raises:
            Full: the disk is full; the changes are kept and tried again.
            Timeout: not within ``timeout_s`` seconds.
        """
        self._own().flush(timeout_s)

    # --- tasks ---

    def ensure_task(self, task: TaskRow, *, keeps_views: bool = False) -> TaskRow:
        """Register a task, or find it by name; ids of 0 are filled in.

        A known name with the same definition takes the new number of epochs. With another definition it takes the new
        one if nothing was drawn yet; its plans are forgotten then.

        Args:
            task: as it is now.
            keeps_views: another definition means the same by every path that was drawn, so its draws stay.

        Raises:
            BadInput: another definition under this name has draws, so its paths have a meaning already.
        """
        return self._call(lambda session: tasks.ensure_task(session, task, keeps_views=keeps_views))

    def forget_task(self, name: str) -> TaskRow:
        """Forget a task with its draws, plans and progress, so that its name can be given a new definition.

        Objects stay in the store until they are evicted: another task, or the same one defined again, may need them.
        Those that were planned for it alone and never made are forgotten with it, but for what something is made from
        that lies there or was evicted.

        Raises:
            NotFound: no such task.
        """
        return self._call(lambda session: tasks.forget_task(session, name))

    def forget_uses(self, task_id: int) -> None:
        """Nobody needs what a task was to read. Its draws stay, and planning it again brings its uses back."""
        self._call(lambda session: session.run("delete_uses", {"task_id": task_id}))

    def load_tasks(self) -> list[TaskRow]:
        """Every task by id."""
        return from_table(TaskRow, self._query("read_tasks"))

    def move_uses(self, uses: pa.Table) -> None:
        """Give clips other objects, ``schemas.MOVE``, since another video gives them; uses on record only."""
        table = schemas.conform(uses, schemas.MOVE, "moved uses")
        self._plan(lambda session: session.run("move_uses", given=table))

    # --- plans ---

    def next_object_id(self, n: int) -> int:
        """The first of ``n`` consecutive object ids that are the caller's from now on.

        Most calls are no transaction: ids are claimed by the thousand, and what was not given out is when it is closed
        never will be.
        """
        with self.naming:
            if n < 0 or n > len(self._free_ids):
                count = n if n < 0 else max(n, ID_BLOCK)
                first = self._plan(lambda session: tasks.claim_ids(session, "object", count))
                self._free_ids = range(first, first + count)
            taken, self._free_ids = self._free_ids[:n], self._free_ids[n:]
            return taken.start

    def record_plan(self, plan: PlanTables) -> GenerationRow:
        """Record a generation in one transaction, in place of an earlier plan of the same task and number.

        An earlier plan is replaced when videos have changed; its objects stay, for whoever else needs them.

        Raises:
            BadInput: the tables do not have the columns of ``schemas``, or the task is not known.
        """
        prepared = plans.prepare(plan)
        return self._plan(lambda session: plans.record(session, prepared))

    def begin_generation(self, generation: GenerationRow) -> None:
        """Record what clips of a generation depend on before it is planned; nothing changes if it is recorded.

        Raises:
            BadInput: the task is not known.
        """
        self._plan(lambda session: plans.begin(session, generation))

    def record_objects(self, objects: pa.Table) -> None:
        """Record objects outside any generation, ``schemas.OBJECT``: single frames, and clips that replace bad ones."""
        table = schemas.conform(objects, schemas.OBJECT, "objects")
        self._plan(lambda session: plans.objects(session, table, 0))

    def adopt_objects(self, found: pa.Table) -> None:
        """Record what the store has and nobody knows, ``schemas.FOUND``; a plan that names one replaces its row."""
        self._call(lambda session: session.run("insert_adopted", given=found))

    def record_keeping(self, keep: pa.Table, edges: pa.Table, given_up: Sequence[int] = ()) -> None:
        """Say what is kept, ``schemas.KEEP``, and made from what, ``schemas.EDGE``; nothing more from ``given_up``."""
        prepared = schemas.conform(keep, schemas.KEEP, "what is kept"), schemas.conform(edges, schemas.EDGE, "edges")
        gone = pa.table({"object_id": pa.array(given_up, pa.int64())})
        self._plan(lambda session: plans.keep(session, *prepared, gone))

    def record_packs(self, parts: pa.Table) -> None:
        """Say which pictures of images some packs have, ``schemas.PACK_PART``; they stand in place of what was said."""
        table = schemas.conform(parts, schemas.PACK_PART, "pictures of packs")
        self._plan(lambda session: plans.packs(session, table))

    def pack_parts(self, object_ids: Sequence[int]) -> pa.Table:
        """(object_id, pack, key, video_key, first_byte) of each picture of some packs."""
        return self._query("read_pack_parts", given=pa.table({"object_id": pa.array(object_ids, pa.int64())}))

    def expect_uses(self, refs: Mapping[int, int]) -> None:
        """Say which objects are kept for epochs that are not planned, and for how many uses; of all others none is."""
        columns = {"object_id": pa.array(list(refs), pa.int64()), "refs": pa.array(list(refs.values()), pa.int64())}
        expected = schemas.conform(pa.table(columns), schemas.EXPECTED, "expected uses")
        self._plan(lambda session: plans.expect(session, expected))

    def keep_all(self, task_id: int, first_epoch: int, last_epoch: int) -> None:
        """Say that every clip of epochs first…last (inclusive) is kept."""
        span = {"task_id": task_id, "first_epoch": first_epoch, "last_epoch": last_epoch}
        self._plan(lambda session: session.run("keep_all", span))

    def load_use_ids(self, task_id: int, first_epoch: int, last_epoch: int) -> pa.Table:
        """(object_id) of each clip of epochs first…last (inclusive) in reading order."""
        return self._query("read_use_ids", task_id=task_id, first_epoch=first_epoch, last_epoch=last_epoch)

    def load_clips(self, task_id: int, first_epoch: int, last_epoch: int) -> pa.Table:
        """The uses of epochs first…last (inclusive) in reading order, each with the video and frames of its object."""
        return self._query("read_clips", task_id=task_id, first_epoch=first_epoch, last_epoch=last_epoch)

    def load_generations(self, task_id: int) -> list[GenerationRow]:
        """A task's generations in order."""
        return from_table(GenerationRow, self._query("read_generations", task_id=task_id))

    def load_plan(self, task_id: int, number: int) -> PlanTables | None:
        """A generation with every object that its batches need, also of earlier plans; None if it is not recorded."""
        for generation in self.load_generations(task_id):
            if generation.number == number:
                span = {"task_id": task_id, "first_epoch": generation.first_epoch, "last_epoch": generation.last_epoch}
                return PlanTables(
                    generation,
                    self._query("read_plan_objects", **span),
                    self._query("read_plan_edges", **span),
                    self._query("read_plan_uses", **span),
                )
        return None

    def objects_by_key(self, keys: pa.Array | pa.ChunkedArray | Sequence[str]) -> pa.Table:
        """(key, object_id, adopted) of the known ones; what was ``adopted`` from the store no plan has named yet."""
        column = keys if isinstance(keys, pa.Array | pa.ChunkedArray) else pa.array(keys, pa.string())
        return self._query("objects_by_key", given=pa.table({"key": column}))

    # --- copies ---

    def mark_ready(self, rows: Sequence[CopyRow]) -> None:
        """The objects have these copies (small)."""
        self._note(lambda pending: pending.mark_ready(rows))

    def touch(self, object_ids: Iterable[int], *, tier: str, tick: int) -> None:
        """The copies were read at ``tick`` of the owner's logical clock (small)."""
        ids = [int(object_id) for object_id in object_ids]
        self._note(lambda pending: pending.touch(ids, tier, tick))

    def load_copies(self) -> pa.Table:
        """Every copy, ``schemas.COPY`` by (object_id, tier)."""
        return self._query("read_copies")

    def recount_copies(self, counted: pa.Table) -> None:
        """Correct how many bytes copies take: (object_id, tier, bytes) of those that differ."""
        self._call(lambda session: session.run("recount_copies", given=counted))

    def copies_of_videos(self, video_ids: Sequence[int]) -> pa.Table:
        """(object_id, key, kind, tier, physical, bytes) of the copies of these videos' objects."""
        return self._query("copies_of_videos", given=pa.table({"video_id": pa.array(video_ids, pa.int64())}))

    # --- progress, demand ---

    def advance(self, row: ProgressRow) -> None:
        """The reader needs this iteration next (small); uses before it are past."""
        self._note(lambda pending: pending.advance(row))

    def limit_seats(self, task_id: int, world: int, parts: int = 1) -> None:
        """The task has ``world`` ranks of so many parts from now on (small): where others were holds nothing back."""
        self._note(lambda pending: pending.limit_seats(task_id, world, parts))

    def load_progress(self, task_id: int) -> list[ProgressRow]:
        """Where each reader is, by rank and part."""
        return from_table(ProgressRow, self._query("read_progress", task_id=task_id))

    def due_next(self, n: int = 64, window: int = 40) -> pa.Table:
        """What is needed soonest and has no copy, over all tasks.

        Args:
            n: rows at most.
            window: look so many iterations ahead of each task.

        Returns:
            (object_id, task_id, seq, iterations_ahead, need_s) by need_s: a task of another pace counts in seconds.
        """
        return self._query("due_next", n=n, window=window)

    # --- settings ---

    def set_tiers(self, rows: Sequence[TierRow]) -> None:
        """Record the tiers as they are configured."""
        if rows:
            table = to_table(rows)
            self._call(lambda session: session.run("upsert_tiers", given=table))

    def setting(self, name: str) -> str | None:
        """The value of a setting; None when it was never set."""
        values: list[str] = self._query("read_setting", name=name)["value"].to_pylist()
        return values[0] if values else None

    def set_setting(self, name: str, value: str) -> None:
        """Change a setting."""
        self._call(lambda session: session.run("write_setting", {"name": name, "value": value}))

    def query(self, name: str, /, **parameters: object) -> pa.Table:
        """Run a named SELECT of ``sql/queries``.

        Raises:
            NotFound: no such name.
            BadInput: parameters that it does not take.
        """
        self._check()
        return self._opened.engine.query(name, parameters)

    def publish_snapshot(self) -> Path:
        """Write the snapshot that other processes read, now.

        Raises:
            Misuse: the catalog is on PostgreSQL, where other processes read the database itself.
        """
        if self._upkeep is None:
            raise errors.Misuse("only a writable DuckDB catalog has a snapshot; connect to PostgreSQL itself")
        self.flush()
        return self._upkeep.publish()

    def before_snapshots(self, note: Callable[[], None]) -> None:
        """Let something be noted before each snapshot that another process asks for, in a thread of the catalog.

        On PostgreSQL, where other processes read the database itself, it is never called.
        """
        if self._upkeep is not None:
            self._upkeep.before = note

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise errors.WrongProcess(
                f"the catalog was opened by process {self._pid}, this is {os.getpid()}: open the cache in this process"
            )
        if self._closed:
            raise errors.Closed("this catalog was closed; open the cache again")

    def _own(self) -> Writer:
        self._check()
        if self._writer is None:
            raise errors.Misuse("this catalog was opened to read only; open it with writable=True")
        return self._writer

    def _reading(self) -> Engine:
        self._check()
        return self._opened.engine

    @property
    def _token(self) -> Path | None:
        return None if self._opened.journal is None else self._opened.journal.path.with_name(CLEAN)

    @property
    def _blobs(self) -> BlobFile | None:
        return self._opened.blobs

    def _between(self, work: Callable[[], bool]) -> bool:
        return self._own().between(work)

    def _note(self, change: Callable[[Pending], None]) -> None:
        self._own().note(change)

    def _call(self, work: Callable[[Session], T]) -> T:
        return self._own().call(work)

    def _plan(self, work: Callable[[Session], T]) -> T:
        """The same of what is planned and kept."""
        return self._own().call(work, after_statistics=False)

    def _query(self, name: str, /, given: pa.Table | None = None, **parameters: object) -> pa.Table:
        self._check()
        return self._opened.engine.query(name, parameters, given)
