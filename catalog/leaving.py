"""Verbs of the door about what leaves the store, and what may not: copies gone, policies, leases.

A part of ``door.Catalog``, which has the others; it stands here because a policy, its order and its victims are one
subject.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import pyarrow as pa

from viewcache import errors
from viewcache.catalog import eviction, plans
from viewcache.catalog.engine import Engine, Session
from viewcache.catalog.pending import Pending
from viewcache.catalog.records import PolicyRow
from viewcache.catalog.rows import from_table

__all__ = ["Leaving"]

T = TypeVar("T")


class Leaving(ABC):
    """See ``door.Catalog``."""

    def mark_gone(self, object_ids: Iterable[int], reason: str, *, tier: str) -> None:
        """The objects have no copy in the tier any more (small); ``reason`` is what ``evictions`` will say."""
        why = dict.fromkeys(int(object_id) for object_id in object_ids)
        self._note(lambda pending: pending.mark_gone(why, reason, tier))

    def mark_evicted(self, why: Mapping[int, str | None], policy: str | None, *, tier: str) -> None:
        """The same of copies that a policy gave up for room, with its reason for each (small)."""
        self._note(lambda pending: pending.mark_gone(why, "evict", tier, policy))

    def forget_unmade_packs(self) -> int:
        """Forget packs that were formed and never made, and say how many; only while nobody makes any."""
        if not self._reading().query("read_unmade_packs").num_rows:
            return 0  # mostly: then nothing is committed
        return self._call(plans.forget_unmade_packs)

    def victims(
        self, tier: str, need_bytes: int, spare: Sequence[int] = (), policy: str = eviction.DEFAULT
    ) -> pa.Table:
        """Copies to give up for so many bytes, ``eviction.VICTIMS``; arguments as for `eviction.victims`."""
        return eviction.victims(self._reading(), policy, tier, need_bytes, spare)

    def candidates(self, tier: str, spare: Sequence[int] = ()) -> pa.Table:
        """Every copy that may be given up, ``eviction.CANDIDATES``; arguments as for `eviction.candidates`."""
        return eviction.candidates(self._reading(), tier, spare)

    def wanted_among(self, object_ids: Sequence[int]) -> set[int]:
        """Which of these objects are still to be read, themselves or by what would have to be made from them."""
        return self._among("wanted_among", object_ids)

    def lost_among(self, object_ids: Sequence[int]) -> set[int]:
        """Which of these objects cannot be made again: their video is gone, or bad."""
        return self._among("lost_among", object_ids)

    def _among(self, query: str, object_ids: Sequence[int]) -> set[int]:
        asked = pa.table({"object_id": pa.array(object_ids, pa.int64())})
        return set(self._reading().query(query, None, asked)["object_id"].to_pylist())

    def outlived(self, going: Sequence[tuple[int, int | None, bool]]) -> pa.Table:
        """(object_id, key, tier, last_epoch) of copies of generations that are over while training goes on.

        Args:
            going: the tasks that are open: id, the first epoch that a reader is in, if there is one, and whether it is
                known which pictures their epochs to come need.
        """
        ids, epochs, weighed = zip(*going, strict=True) if going else ((), (), ())
        columns = {"task_id": pa.array(ids, pa.int64()), "epoch": pa.array(epochs, pa.int64())}
        return self._reading().query("outlived", None, pa.table(columns | {"weighed": pa.array(weighed, pa.bool_())}))

    def set_policies(self, rows: Sequence[PolicyRow]) -> None:
        """Record the eviction policies that there are, in place of earlier ones.

        Nothing is written when they are the same: a cache opens on a full disk too, and DuckDB 1.5.6 ends the process
        when it cannot commit a row that was deleted and put in again under one key.
        """
        known = from_table(PolicyRow, self._reading().query("read_policies"))
        if known != sorted(rows, key=lambda row: row.name):
            self._call(lambda session: eviction.record(session, rows))

    def hold(self, object_ids: Iterable[int], *, holder: str, expires_at: float) -> None:
        """Publish that ``holder`` has the objects until then, seconds since 1970 UTC (small)."""
        ids = [int(object_id) for object_id in object_ids]
        self._note(lambda pending: pending.lease(ids, holder, expires_at))

    def release(self, object_ids: Iterable[int], *, holder: str) -> None:
        """Publish that ``holder`` has them no more (small)."""
        ids = [int(object_id) for object_id in object_ids]
        self._note(lambda pending: pending.lease(ids, holder, None))

    def forget_leases(self) -> None:
        """Nobody holds anything: those who did are gone. On a full disk what they held is held until its time ends."""
        with suppress(errors.Full):
            self._call(lambda session: session.run("delete_all_leases"))

    @abstractmethod
    def _reading(self) -> Engine:
        """The database, to read from."""

    @abstractmethod
    def _note(self, change: Callable[[Pending], None]) -> None:
        """Make a small change."""

    @abstractmethod
    def _call(self, work: Callable[[Session], T]) -> T:
        """Make a change and wait until it is committed."""
