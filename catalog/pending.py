"""Small changes that wait for the next commit, as their net effect: the last word per row, sums per measure.

Batches of 64 rows cost as much as one, so readers and workers drop changes here and go on. Keeping
net effects makes a transaction touch each key once, which DuckDB's primary keys need.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from time import time

import numpy as np
import pyarrow as pa

from viewcache.catalog.engine import Session
from viewcache.catalog.records import WENT_WHILE_OPEN, CopyRow, EventRow, IoSampleRow, ProgressRow, UsageRow
from viewcache.catalog.rows import column_table, to_table

__all__ = ["Pending", "add_up"]

_COPY: dict[str, type] = {"object_id": int, "tier": str}
_LEASE: dict[str, type] = {"object_id": int, "holder": str}

_EventKey = tuple[str, int | None, int | None, str, int]


@dataclass(slots=True)
class Pending:
    """Changes since the last commit; not thread-safe, the writer's lock guards it."""

    copies: dict[tuple[int, str], CopyRow | None] = field(default_factory=dict)
    """By (object, tier); None = gone."""
    gone: list[tuple[int, str, str, float, str | None, str | None]] = field(default_factory=list)
    """(object, tier, reason, at_s, policy, detail) for the record of evictions."""
    touched: dict[tuple[int, str], int] = field(default_factory=dict)
    """Newest access tick by (object, tier)."""
    progress: dict[tuple[int, int, int], ProgressRow] = field(default_factory=dict)
    """By (task, rank, part)."""
    worlds: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Ranks that a task has now, and parts of a rank, where that changed."""
    leases: dict[tuple[int, str], float | None] = field(default_factory=dict)
    """Expiry by (object, holder); None = released."""
    io_samples: dict[tuple[str, int, str, str], IoSampleRow] = field(default_factory=dict)
    usage: dict[tuple[str, str], UsageRow] = field(default_factory=dict)
    """By (kind, stage)."""
    events: dict[_EventKey, EventRow] = field(default_factory=dict)
    facts: list[pa.Table] = field(default_factory=list)
    """What was found of files, one after the other."""
    missing: dict[int, bool] = field(default_factory=dict)
    """By video: whether its file went while the cache was open, or is back."""

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.rows)

    @property
    def adds(self) -> bool:
        """Whether writing it twice would differ from writing it once: sums and logs do, last words do not."""
        return bool(self.io_samples or self.usage or self.events)

    @property
    def only_statistics(self) -> bool:
        """Whether all of it is of the kind that each read changes, and that may be a second old."""
        if self.copies or self.gone or self.worlds or self.leases or self.facts or self.missing:
            return False
        return not any(event.kind == "error" for event in self.events.values())

    def without_statistics(self) -> "Pending":
        """Take out all but what `only_statistics` speaks of; that stays here."""
        taken = Pending(self.copies, self.gone, worlds=self.worlds, leases=self.leases, facts=self.facts)
        taken.missing, self.missing = self.missing, {}
        taken.events = {key: event for key, event in self.events.items() if event.kind == "error"}
        self.events = {key: event for key, event in self.events.items() if event.kind != "error"}
        self.copies, self.gone, self.worlds, self.leases, self.facts = {}, [], {}, {}, []
        return taken

    @property
    def rows(self) -> int:
        """How many rows the next commit will write."""
        return (
            len(self.copies)
            + len(self.touched)
            + len(self.progress)
            + len(self.worlds)
            + len(self.leases)
            + len(self.io_samples)
            + len(self.usage)
            + len(self.events)
            + sum(map(len, self.facts))
            + len(self.missing)
        )

    def mark_ready(self, rows: Iterable[CopyRow]) -> None:
        """The objects have these copies now."""
        for row in rows:
            self.copies[row.object_id, row.tier] = row
            self.touched.pop((row.object_id, row.tier), None)

    def mark_gone(self, why: Mapping[int, str | None], reason: str, tier: str, policy: str | None = None) -> None:
        """The objects have no copy in the tier any more; ``why`` says by object what the policy said."""
        now = time()
        for object_id, detail in why.items():
            self.copies[object_id, tier] = None
            self.touched.pop((object_id, tier), None)
            self.gone.append((object_id, tier, reason, now, policy, detail))

    def touch(self, object_ids: Iterable[int], tier: str, tick: int) -> None:
        """The copies were read at ``tick``."""
        for object_id in object_ids:
            waiting = self.copies.get((object_id, tier))
            if waiting is not None:
                self.copies[object_id, tier] = replace(waiting, access_tick=max(tick, waiting.access_tick))
            elif (object_id, tier) not in self.copies:
                self.touched[object_id, tier] = max(tick, self.touched.get((object_id, tier), tick))

    def advance(self, row: ProgressRow) -> None:
        """The reader needs this iteration next."""
        self.progress[row.task_id, row.rank, row.part] = row

    def limit_seats(self, task_id: int, world: int, parts: int) -> None:
        """The task has ``world`` ranks of so many parts from now on; what others said counts no more."""
        self.worlds[task_id] = world, parts
        for key in [key for key in self.progress if key[0] == task_id and (key[1] >= world or key[2] >= parts)]:
            del self.progress[key]

    def lease(self, object_ids: Iterable[int], holder: str, expires_at: float | None) -> None:
        """The holder has the objects until then; None gives them back."""
        for object_id in object_ids:
            self.leases[object_id, holder] = expires_at

    def add_io_samples(self, rows: Iterable[IoSampleRow]) -> None:
        """Add measures up."""
        add_up(self.io_samples, rows)

    def add_usage(self, rows: Iterable[UsageRow]) -> None:
        """Add up what work has cost."""
        for row in rows:
            key = row.kind, row.stage
            self.usage[key] = self.usage[key].plus(row) if key in self.usage else row

    def add_events(self, rows: Iterable[EventRow]) -> None:
        """Add up what happened within one second."""
        for row in rows:
            if not row.at_s:
                row = replace(row, at_s=time())
            key = row.kind, row.task_id, row.object_id, row.detail, int(row.at_s)
            old = self.events.get(key)
            if old is not None:
                row = replace(
                    old, count=old.count + row.count, bytes=old.bytes + row.bytes, seconds=old.seconds + row.seconds
                )
            self.events[key] = row

    def record_facts(self, facts: pa.Table) -> None:
        """These were looked into."""
        self.facts.append(facts)

    def mark_missing(self, video_ids: Iterable[int], *, missing: bool) -> None:
        """The files of these videos went, or are back."""
        self.missing.update(dict.fromkeys(video_ids, missing))

    def merge(self, later: "Pending") -> None:
        """Add changes that came after these."""
        self.gone.extend(later.gone)
        for (object_id, tier), copy in later.copies.items():
            self.copies[object_id, tier] = copy
            self.touched.pop((object_id, tier), None)
        for (object_id, tier), tick in later.touched.items():
            self.touch([object_id], tier, tick)
        for task_id, limits in later.worlds.items():
            self.limit_seats(task_id, *limits)
        self.progress.update(later.progress)
        self.facts += later.facts
        self.missing.update(later.missing)
        self.leases.update(later.leases)
        self.add_io_samples(later.io_samples.values())
        self.add_usage(later.usage.values())
        self.add_events(later.events.values())

    def write(self, session: Session) -> None:
        """Write all of it in the session's transaction."""
        if self.gone:
            evicted = column_table(self.gone, **_COPY, reason=str, at_s=float, policy=str, detail=str)
            session.run("log_evictions", given=evicted)
        removed = [key for key, copy in self.copies.items() if copy is None]
        if removed:
            session.run("delete_copies", given=column_table(removed, **_COPY))
        made = [copy for copy in self.copies.values() if copy is not None]
        if made:
            session.run("upsert_copies", given=to_table(made))
        if self.touched:
            rows = [(*key, tick) for key, tick in self.touched.items()]
            session.run("touch_copies", given=column_table(rows, **_COPY, access_tick=int))
        for task_id, (world, parts) in self.worlds.items():
            session.run("limit_seats", {"task_id": task_id, "world": world, "parts": parts})
        for row in self.progress.values():
            # An UPDATE by key takes half the time of an upsert, and this is the write that every iteration makes.
            if not session.count("move_progress", asdict(row)):
                session.run("insert_progress", asdict(row))
        if self.facts:
            session.run("record_facts", given=_last_words(pa.concat_tables(self.facts)))
        if self.missing:
            told = column_table([*self.missing.items()], video_id=int, missing=bool)
            session.run("mark_missing", {"why": WENT_WHILE_OPEN}, told)
        self._write_leases(session)
        self._write_log(session)

    def _write_leases(self, session: Session) -> None:
        held = [(*key, until) for key, until in self.leases.items() if until is not None]
        if held:
            session.run("upsert_leases", given=column_table(held, **_LEASE, expires_at=float))
        released = [key for key, until in self.leases.items() if until is None]
        if released:
            session.run("delete_leases", given=column_table(released, **_LEASE))

    def _write_log(self, session: Session) -> None:
        if self.io_samples:
            session.run("add_io_samples", given=to_table(list(self.io_samples.values())))
        if self.usage:
            session.run("add_usage", given=to_table(list(self.usage.values())))
        if self.events:
            session.run("load_events", given=to_table(list(self.events.values())))


def add_up(sums: dict[tuple[str, int, str, str], IoSampleRow], rows: Iterable[IoSampleRow]) -> None:
    """Add measured work to sums by its kind."""
    for row in rows:
        old = sums.get(row.key)
        sums[row.key] = row if old is None else old.plus(row)


def _last_words(facts: pa.Table) -> pa.Table:
    """The last row of each file."""
    ids = facts["video_id"].to_numpy()[::-1]
    return facts.take(len(ids) - 1 - np.unique(ids, return_index=True)[1])
