"""Eviction policies by name: the shipped ones, and those of a folder, which are other people's text.

A policy of the user's own never meets the catalog. It runs in a child process with limits, over an export of the
candidates in a database of its own, and what it answers is checked row by row; whatever is wrong with it becomes a
``QueryRefused``, and its caller goes on without it. The price is the start of a process for each eviction.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from viewcache.catalog.confined import QueryLimits, ask_confined, check_one, confine, serve_confined
from viewcache.catalog.eviction import CANDIDATES, VICTIMS, cut
from viewcache.catalog.files import read_regular
from viewcache.catalog.statements import load_policy, policy_names
from viewcache.errors import BadInput, NotFound, QueryRefused

__all__ = ["LIMITS", "SHIPPED", "UNTRIED", "Policy", "all_policies", "ask", "check_policy", "find_policy", "sample"]

SHIPPED = "shipped"
"""Source of a policy that comes with viewcache."""

UNTRIED = "it was not tried, since another policy is active; viewcache evict --list tries all"
"""Problem of a policy of the user's own that nobody has chosen."""

LIMITS = QueryLimits(seconds=5.0, memory_bytes=1 << 30)
"""What a policy of the user's own may use: an eviction waits for it."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MOST_BYTES = 64 << 10
_LONGEST_REASON = 200
"""Characters."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy that a cache can use."""

    name: str
    source: str
    """``shipped``, or the file that it was read from."""
    purpose: str
    """The comment that its text begins with."""
    text: str
    """The SELECT."""
    problem: str | None = None
    """Why it cannot be used, or ``UNTRIED``; None if it can be used."""


def all_policies(folder: str | None = None, only: str | None = None) -> list[Policy]:
    """The shipped policies, then those of a folder by name, which are tried on a sample.

    Args:
        folder: of the user's own policies; None = there are none.
        only: the name of the one that is tried, since each trial starts a process; None = all are tried. Another one
            has ``UNTRIED`` as its problem, unless its name or its text has one already.
    """
    shipped = []
    for name in policy_names():
        statement = load_policy(name, "duckdb")
        shipped.append(Policy(name, SHIPPED, statement.purpose, statement.text))
    return shipped + [_read(path, only) for path in sorted(Path(folder).glob("*.sql"))] if folder else shipped


def find_policy(name: str, found: Sequence[Policy]) -> Policy:
    """The policy of that name.

    Raises:
        NotFound: there is none; the message lists those that there are.
        BadInput: it cannot be used; the message says why.
    """
    for policy in found:
        if policy.name == name:
            if policy.problem is not None:
                raise BadInput(f"eviction policy {name} ({policy.source}) cannot be used: {policy.problem}")
            return policy
    raise NotFound(f"no eviction policy named {name!r}; there are {', '.join(policy.name for policy in found)}")


def check_policy(name: str, folder: str | None = None) -> None:
    """Try a policy of a folder on a sample, and no other of that folder; a shipped one needs no trial.

    Raises:
        NotFound: there is none of that name.
        BadInput: it cannot be used; the message says why.
    """
    find_policy(name, all_policies(folder, only=name))


def _read(path: Path, only: str | None) -> Policy:
    name, text, problem = path.stem, "", None
    try:
        if not _NAME.fullmatch(name):
            raise QueryRefused("its name must be of letters, digits, '.', '_' and '-', and begin with one of the first")
        if name in policy_names():
            raise QueryRefused(f"{name} is the name of a shipped policy; rename the file")
        text = read_regular(path, _MOST_BYTES).decode()
        if only in (None, name):
            ask(text, sample(), 1 << 62)
        else:
            problem = UNTRIED
    except UnicodeDecodeError as error:
        problem = f"it is not valid UTF-8 at byte {error.start}"
    except OSError as error:
        problem = f"it cannot be read: {error.strerror}"
    except BadInput as refused:  # a refused query is one
        problem = str(refused)
    comment = [line[2:].strip() for line in text.splitlines()[: _comment_lines(text)]]
    return Policy(name, str(path), " ".join(comment), text, problem)


def _comment_lines(text: str) -> int:
    lines = text.splitlines()
    return next((k for k, line in enumerate(lines) if not line.startswith("--")), len(lines))


def ask(text: str, candidates: pa.Table, need_bytes: int, limits: QueryLimits = LIMITS) -> pa.Table:
    """What a policy of the user's own gives up, first victim first, until there are bytes enough.

    Args:
        text: its SELECT, in DuckDB's dialect whatever the catalog is.
        candidates: ``CANDIDATES``, what it may choose from.
        need_bytes: stop when the victims' bytes reach this.
        limits: what it may use.

    Returns:
        ``VICTIMS``; fewer bytes than needed if the policy leaves candidates out.

    Raises:
        QueryRefused: it is not one SELECT, failed, took too long, or gave rows that are none of the candidates.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, CANDIDATES) as writer:
        writer.write_table(candidates.select(CANDIDATES.names).cast(CANDIDATES))
    request = {"text": text, "need_bytes": need_bytes}
    answer = ask_confined(__name__, request, limits, sink.getvalue().to_pybytes())
    return _checked(pa.ipc.open_stream(answer).read_all(), candidates)


def _checked(chosen: pa.Table, candidates: pa.Table) -> pa.Table:
    """Refuse rows that no candidate has, or that come twice: the child's word is not enough."""
    if chosen.schema != VICTIMS:
        raise QueryRefused(f"the policy gave {chosen.schema.names}; a policy gives {VICTIMS.names}")
    ids = chosen["object_id"]
    if any(column.null_count for column in chosen.columns):
        raise QueryRefused("the policy gave a row with a null; object_id, bytes and reason have a value in every row")
    if len(pc.unique(ids)) < len(ids):
        raise QueryRefused("the policy gave an object twice; each candidate leaves once")
    at = pc.index_in(ids, candidates["object_id"].combine_chunks())
    if at.null_count:
        unknown = ids.filter(pc.is_null(at))[0].as_py()
        raise QueryRefused(f"the policy gave object {unknown}, which is none of the candidates")
    if not pc.all(pc.equal(candidates["bytes"].take(at), chosen["bytes"]), min_count=0).as_py():
        raise QueryRefused("the policy gave other bytes than the candidate has; pass the column on as it is")
    if len(chosen) and pc.max(pc.utf8_length(chosen["reason"])).as_py() > _LONGEST_REASON:
        raise QueryRefused(f"the policy gave a reason of more than {_LONGEST_REASON} characters; a few words will do")
    return chosen


def sample() -> pa.Table:
    """Candidates of every sort, to try a policy on: wanted and not, drawn and not, measured and not."""
    rows = []
    for k in range(12):
        drawn = k % 3 if k % 4 else 0
        rows.append(
            {
                "object_id": k + 1,
                "key": f"{k:032x}",
                "kind": ("clip", "frames", "aug")[k % 3],
                "video_id": k // 2 + 1,
                "video": f"video{k // 2}",
                "bytes": 1000 * (k + 1),
                "codec": "raw" if k % 2 else "lz4",
                "keep": k % 2 == 0,
                "refs": k % 4,
                "drawn_refs": min(drawn, k % 4),
                "next_need_s": float(k) if k % 4 else None,
                "created_tick": k // 3,
                "access_tick": 12 - k,
                "cost_s": 0.1 * k,
                "load_s": 0.01 * k if k % 2 else None,
            }
        )
    return pa.Table.from_pylist(rows, CANDIDATES)


def _answer(request: Mapping[str, Any], limits: QueryLimits) -> list[pa.Table]:
    """What the child does: the policy over the candidates, then the cut."""
    import duckdb

    from viewcache.catalog.duck import locked_down

    candidates = pa.ipc.open_stream(sys.stdin.buffer).read_all()
    confine(limits, files=64)
    config = {**locked_down(limits.memory_bytes // 2, 1), "temp_directory": ""}
    connection = duckdb.connect(":memory:", config=dict(config))
    connection.register("candidates", candidates)
    try:
        statements = [statement.type.name for statement in connection.extract_statements(request["text"])]
        check_one(statements)
        if statements != ["SELECT"]:
            raise QueryRefused(f"this is {statements[0]}; a policy is one SELECT")
        connection.execute("begin transaction read only")
        reader = connection.execute(request["text"]).to_arrow_reader(4096)
        if reader.schema.names != VICTIMS.names:
            raise QueryRefused(f"the policy gives {reader.schema.names}; a policy gives {VICTIMS.names}")
        # More rows than there are candidates cannot be right, however many more there would be.
        batches = (pa.Table.from_batches([batch]).cast(VICTIMS) for batch in reader)
        return [cut(batches, request["need_bytes"], most_rows=len(candidates) + 1)]
    except (duckdb.Error, pa.ArrowInvalid, pa.ArrowNotImplementedError, MemoryError) as error:
        raise QueryRefused(f"the policy failed: {error}") from error


if __name__ == "__main__":
    serve_confined(_answer)
