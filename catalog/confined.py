"""Other people's SQL in a child process: how it is asked, what it may use, and what it is refused.

The child loads what it needs, gives up everything else (``confine``), and only then looks at the SQL. The price is the
start of a process, a third of a second. ``readonly.py`` asks the catalog so, ``policies.py`` a user's own policy.
"""

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viewcache import errors

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["QueryLimits", "ask_confined", "check_one", "confine", "serve_confined"]

_REFUSED = 3
"""Exit status of a child that refused or failed the query; the reason is on stderr as JSON."""
_KINDS = {
    each.kind: each
    for each in (
        errors.QueryRefused,
        errors.BadInput,
        errors.MissingExtra,
        errors.CatalogBusy,
        errors.CatalogDamaged,
        errors.CatalogVersion,
        errors.NotFound,
    )
}
"""What a child may raise here."""
_START_S = 10.0
"""Allowed for the start of the child, seconds."""
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What one query may use."""

    seconds: float = 10.0
    """Wall clock, from the start of the query."""
    memory_bytes: int = 1 << 30
    """Of the child, on top of what it needs to start."""
    rows: int = 10_000
    """Rows that come back; more are cut off."""
    result_bytes: int = 64 << 20
    """Bytes that come back; more are cut off at a batch of rows."""


def ask_confined(module: str, request: Mapping[str, object], limits: QueryLimits, data: bytes = b"") -> bytes:
    """Run a module in a child process with limits and return what it answers: Arrow IPC streams, one after the other.

    Args:
        module: its name; run as a program it calls ``serve_confined``.
        request: plain values for it.
        limits: what it may use.
        data: follows the request on its stdin.

    Raises:
        QueryRefused: it refused the request, failed, or went over a limit; the message says which.
        BadInput, MissingExtra, CatalogBusy, CatalogDamaged, CatalogVersion, NotFound: what the child asks cannot be
            reached or read, or is not there.
        Full: this process has no descriptor left for it.
    """
    head = json.dumps({**request, "limits": asdict(limits)}).encode()
    try:
        with errors.within_limits("no process can be started for a query"):
            # -P: the folder that a person stands in must not provide modules.
            child = subprocess.run(
                [sys.executable, "-P", "-m", module],
                input=head + b"\n" + data,
                capture_output=True,
                timeout=limits.seconds + _START_S,
                # Arrow's own allocator takes a GiB of addresses at once, which the limit on memory may not have.
                env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},
                check=False,
            )
    except subprocess.TimeoutExpired as error:
        raise errors.QueryRefused(f"the query took more than {limits.seconds:g} s and was stopped") from error
    if child.returncode == _REFUSED:
        told = json.loads(child.stderr.splitlines()[-1])
        raise _KINDS.get(told["kind"], errors.QueryRefused)(told["error"])
    if child.returncode == -signal.SIGALRM:
        raise errors.QueryRefused(f"the query took more than {limits.seconds:g} s and was stopped")
    if child.returncode:
        reason = child.stderr.decode(errors="replace").strip().rpartition("\n")[2] or "it said nothing"
        raise errors.QueryRefused(
            f"the query's process ended with status {child.returncode} ({reason}), most likely for want of memory "
            f"(limit {limits.memory_bytes >> 20} MiB): ask for less at once"
        )
    return child.stdout


def serve_confined(answer: "Callable[[Mapping[str, Any], QueryLimits], Iterable[pa.Table]]") -> None:
    """The child's whole life: read a request, answer it, end."""
    import pyarrow as pa

    request = json.loads(sys.stdin.buffer.readline())
    try:
        for table in answer(request, QueryLimits(**request["limits"])):
            with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as writer:
                writer.write_table(table)
    except errors.ViewcacheError as error:
        sys.stderr.write("\n" + json.dumps({"error": str(error), "kind": error.kind}) + "\n")
        sys.exit(_REFUSED)


def confine(limits: QueryLimits, *, files: int) -> None:
    """Take away what a query does not need; modules must be loaded by now."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (used + limits.memory_bytes,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    # The default action ends the process even while C++ code holds the interpreter.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limits.seconds)


def check_one(kinds: Sequence[str]) -> None:
    """Refuse anything but one statement.

    Raises:
        QueryRefused: there are none or several.
    """
    if len(kinds) != 1:
        raise errors.QueryRefused(f"{len(kinds)} statements were given; send exactly one SELECT")
