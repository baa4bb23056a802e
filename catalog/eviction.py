"""What an eviction policy is, and the cut: which of the copies that it puts in order leave for so many bytes.

A policy is one SELECT over the relation ``candidates`` (``sql/queries/candidates.sql``) that gives (object_id, bytes,
reason); the order of its rows is the order of leaving. It never sees what may not leave, so it cannot choose that. The
trade-off: the order is not a column, so that a policy reads as plain SQL; rows are counted here, one batch at a time.
"""

from collections.abc import Iterable, Sequence
from time import time

import numpy as np
import pyarrow as pa

from viewcache.catalog.engine import Engine, Session, arrow_schema
from viewcache.catalog.records import PolicyRow
from viewcache.catalog.rows import to_table
from viewcache.catalog.statements import load, load_policy

__all__ = ["CANDIDATES", "DEFAULT", "VICTIMS", "candidates", "cut", "record", "victims"]

DEFAULT = "demand"
"""The policy that stands when none is named, and when one that is named fails."""

CANDIDATES = arrow_schema(load("candidates", "duckdb").columns)
"""What a policy may go by; docs/policies.md says what each column means."""

VICTIMS = arrow_schema(load_policy(DEFAULT, "duckdb").columns)
"""(object_id, bytes, reason): what every policy gives."""


def candidates(engine: Engine, tier: str, spare: Sequence[int] = ()) -> pa.Table:
    """Every copy of a tier that may leave, ``CANDIDATES``, in no order.

    Args:
        engine: the database.
        tier: which.
        spare: object ids that may not.
    """
    return engine.query("candidates", *_of(tier, spare))


def victims(engine: Engine, policy: str, tier: str, need_bytes: int, spare: Sequence[int] = ()) -> pa.Table:
    """What a shipped policy gives up, ``VICTIMS``, first victim first; arguments as in ``candidates``.

    Args:
        engine: the database.
        policy: its name.
        tier: which.
        need_bytes: stop when their bytes reach this.
        spare: object ids that may not leave.

    Raises:
        NotFound: no such policy.
    """
    statement = load_policy(policy, engine.dialect)
    with engine.stream_ordered(statement, "candidates", *_of(tier, spare)) as batches:
        return cut(batches, need_bytes)


def cut(batches: Iterable[pa.Table], need_bytes: int, most_rows: int = 1 << 62) -> pa.Table:
    """The first rows whose bytes reach what is needed; all, or so many, if they do not."""
    kept, freed, rows = [VICTIMS.empty_table()], 0, 0
    if need_bytes > 0:
        for batch in batches:
            sums = freed + np.cumsum(batch["bytes"].to_numpy())
            enough = int(np.searchsorted(sums, need_bytes)) + 1
            kept.append(batch.slice(0, enough))
            rows += batch.num_rows
            if enough <= len(sums) or rows >= most_rows:
                break
            freed = int(sums[-1])
    return pa.concat_tables(kept)


def record(session: Session, rows: Sequence[PolicyRow]) -> None:
    """Put the policies that there are in place of those of the last opening."""
    session.run("delete_policies")
    if rows:
        session.run("insert_policies", given=to_table(rows))


def _of(tier: str, spare: Sequence[int]) -> tuple[dict[str, object], pa.Table]:
    return {"tier": tier, "now_s": time()}, pa.table({"object_id": pa.array(spare, pa.int64())})
