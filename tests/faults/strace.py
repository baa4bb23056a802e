"""Faults put into single system calls of a living thread or of a new process, by strace; and how many were really hit.

The trade-off: strace needs no special build and no cooperation of the code under test, but it counts calls for each
thread and each system call on its own. So a test names one call at a time, and looks at what was hit afterwards.
"""

import re
import shutil
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.scheduling.harness import until

__all__ = ["MUTATING", "Fault", "Hits", "calls_below", "catalog_writer", "injected", "need_strace", "traced_command"]

MUTATING = (
    "openat,write,pwrite64,pwritev,writev,rename,unlink,unlinkat,mkdir,rmdir,ftruncate,fallocate,fsync,fdatasync,chmod"
)
"""Calls that change a file system, as Python, DuckDB and the C library make them."""

_INJECTED = re.compile(r"\(INJECTED\)|\(DELAYED\)")
_KILLED = re.compile(r"\+\+\+ killed by SIG(KILL|SEGV)")
_CALL = re.compile(r"^(\d+) (\w+)\((.*)")


def need_strace() -> None:
    """Skip where there is no strace; `.ci/run` installs it."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed (apt-get install strace)")


def catalog_writer() -> int:
    """The system's id of the thread that writes the catalog that was opened last; other tests may share open ones."""
    found = [each.native_id for each in threading.enumerate() if each.name == "viewcache-catalog-writer"][-1]
    assert found is not None
    return found


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a system call."""

    call: str
    """Name, or several with commas: each has a count of its own."""
    what: str
    """As strace has it: ``error=ENOSPC``, ``signal=SIGKILL``, ``delay_enter=50000`` (microseconds)."""
    when: str = "1+"
    """Which calls of a thread: ``3`` the third, ``3+`` from the third on."""
    paths: tuple[Path, ...] = ()
    """Only calls about these files; none = all."""

    def options(self, log: Path) -> list[str]:
        """For strace."""
        paths = [option for path in self.paths for option in ("-P", str(path))]
        return ["-qq", "-o", str(log), *paths, f"--inject={self.call}:{self.what}:when={self.when}"]

    def __str__(self) -> str:
        """For messages and test ids."""
        return f"{self.call}-{self.what.partition('=')[2]}-{self.when}"


_OUT_OF_STEP = re.compile(r"strace: pid \d+: (entering|exiting), ptrace_syscall_info\.op == \d+")
"""Of a thread that was in the middle of a call when strace attached: it waits for the next one."""


class Hits:
    """What strace wrote down."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def count(self) -> int:
        """Calls that got the fault."""
        text = self._log.read_text(errors="replace") if self._log.exists() else ""
        return len(_INJECTED.findall(text)) + len(_KILLED.findall(text))


@contextmanager
def injected(thread: int, fault: Fault, log: Path, *, follow: bool = False) -> Iterator[Hits]:
    """Put a fault into the calls of a living thread while the block runs.

    Args:
        thread: its id; a process's id is that of its main thread.
        fault: which.
        log: where strace writes; not there before.
        follow: also into the process's other threads.
    """
    status = Path(f"/proc/{thread}/status")
    tracer = subprocess.Popen(
        ["strace", *(["-f"] if follow else []), *fault.options(log), "-p", str(thread)], stderr=subprocess.PIPE
    )
    try:
        until(lambda: _traced(status) or tracer.poll() is not None, "strace to attach")
        yield Hits(log)
    finally:
        tracer.send_signal(signal.SIGTERM)
        _, said = tracer.communicate(timeout=30)
    wrong = [line for line in said.decode().splitlines() if not _OUT_OF_STEP.fullmatch(line)]
    assert not wrong, f"strace said {wrong}"


def _traced(status: Path) -> bool:
    return "TracerPid:\t0" not in status.read_text()


def traced_command(command: Sequence[str], fault: Fault, log: Path) -> list[str]:
    """A command with a fault in all of its threads, but not in the processes that it starts."""
    return ["strace", "-f", "-b", "execve", *fault.options(log), *command]


def calls_below(command: Sequence[str], folder: Path, log: Path, **how: object) -> list[tuple[str, int]]:
    """Run a command, and see which of its mutating calls are about files in a folder.

    Returns:
        (call, number) in the order in which they came, numbered for each thread as `Fault.when` counts.
    """
    subprocess.run(
        ["strace", "-f", "-b", "execve", "-qq", "-y", "-o", str(log), "-e", f"trace={MUTATING}", *command],
        check=True,
        timeout=60,
        stdout=subprocess.DEVNULL,
        **how,  # type: ignore[call-overload]  # cwd and env
    )
    number: Counter[tuple[str, str]] = Counter()
    found: dict[tuple[str, int], None] = {}
    for line in log.read_text(errors="replace").splitlines():
        if (match := _CALL.match(line)) is not None:
            thread, call, rest = match.groups()
            number[thread, call] += 1
            if str(folder) in rest and (call != "openat" or "O_CREAT" in rest):
                found[call, number[thread, call]] = None
    return list(found)
