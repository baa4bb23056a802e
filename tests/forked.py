"""Python processes that are forked from one that has imported everything: they start in 20 ms, not in 300 to 600.

`Popen` and `run` are in the place of those of `subprocess`, for `python -m module` and `python -c code`; any other
command, or one with options that are not known here, starts as usual. Workers, scanners and confined queries are forked
in all tests but those that ask for the fixture ``spawned``, and below processes that tests start. Arguments,
environment, streams, folder, signals and exit status are those of a new process: `tests/house/test_forked.py` compares.
The trade-offs: what a new interpreter does first (finding modules, importing no more than it needs) is not seen; limits
of the system, umask and the order of sets are those of the server; and on macOS everything starts as usual.
"""

import atexit
import fcntl
import gc
import os
import pickle
import random
import re
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
import types
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import import_module
from subprocess import DEVNULL, PIPE, CalledProcessError, CompletedProcess, TimeoutExpired
from typing import Any, NoReturn
from unittest.mock import patch

from tests.house.tree import ROOT
from viewcache.catalog import confined
from viewcache.materializer import child

__all__ = [
    "DEVNULL",
    "PIPE",
    "CalledProcessError",
    "Popen",
    "TimeoutExpired",
    "forked",
    "run",
    "servers",
    "spawned",
]

WORKER = ("viewcache.materializer.workers.worker", "viewcache.materializer.dataset.scan_worker")
"""Its processes load little, and how much memory they have is looked at."""
REST = (
    *WORKER,
    "viewcache.api.cli.main",
    "viewcache.api.session.cache",
    "viewcache.catalog.duck",
    "viewcache.catalog.readonly",
)
MESSAGE = 1 << 18
"""Most bytes of a request: the environment and the code are in it."""
_HIGH = 400  # descriptors from here on are nobody's
_LOADED = re.compile(r"ARROW_|JE_|MIMALLOC_|OMP_|OPENBLAS_|PYTHON(?!PATH$|UNBUFFERED$|DONTWRITEBYTECODE$)")
"""Variables that are read while an interpreter or a library is loaded."""
_USUAL = {(restore, None, None, None, -1, False, -1) for restore in (True, False)}
"""(restore_signals, gid, gids, uid, umask, start_new_session, process_group) of a process that asks for nothing."""


class _Server:
    """A process that forks, and our end of its line."""

    def __init__(self, modules: tuple[str, ...], loaded: tuple[tuple[str, str], ...]) -> None:
        self._lock = threading.Lock()
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked", str(theirs.fileno()), *modules],
                pass_fds=[theirs.fileno()],
                stdin=DEVNULL,
                cwd=ROOT,
                env={**{name: value for name, value in os.environ.items() if not _LOADED.match(name)}, **dict(loaded)},
            )
        self.pid = self._process.pid
        atexit.register(self.close)

    def ask(self, what: Mapping[str, object], fds: tuple[int, ...] = ()) -> tuple[int, int]:
        """Send a request and wait for its answer: (process id, status)."""
        with self._lock:
            socket.send_fds(self._line, [pickle.dumps(what)], fds)
            answer = self._line.recv(64)
        if not answer:
            raise RuntimeError("the fork server has ended; what it said stands in the test's output")
        pid, status = map(int, answer.split())
        if pid < 0:
            raise OSError(status, os.strerror(status))
        return pid, status

    def close(self) -> None:
        """End it, and with it what it forked and asked the kernel for that, as workers do."""
        self._line.close()
        self._process.wait()


@cache
def _server(modules: tuple[str, ...], loaded: tuple[tuple[str, str], ...]) -> _Server:
    return _Server(modules, loaded)


def _server_for(module: str, env: Mapping[str, str]) -> _Server:
    """The server that has loaded what a program needs, under the variables that are read while it loads."""
    loaded = {name: value for name, value in env.items() if _LOADED.match(name)}
    # Of a process that forks one thread goes on. What is left are those of DuckDB's own default database, which sleep:
    # nobody uses it, and each database that is opened later has threads of its own.
    loaded |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
    server = _server(WORKER if module in WORKER else REST, tuple(sorted(loaded.items())))
    _pids.add(server.pid)
    return server


_pids: set[int] = set()


def servers() -> set[int]:
    """Process ids of all servers: whose children are ours. Those that a test usually needs are started by that."""
    if sys.platform == "linux":
        for module in ("viewcache.materializer.workers.worker", "viewcache.api.session.cache"):
            _server_for(module, os.environ)
    return set(_pids)


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen`, by fork where that is possible."""

    _server: _Server | None = None

    def _execute_child(self, *how: Any) -> None:
        args, executable, preexec_fn, _, pass_fds, cwd, env, _, _, shell, *pipes = how
        known = not shell and not preexec_fn and not executable and tuple(pipes[6:]) in _USUAL
        program = _program(args, env) if known else None
        if program is None:
            super()._execute_child(*how)  # type: ignore[misc]
            return
        kind, what, arguments = program
        self._server = _server_for(what, os.environ if env is None else env)
        if what == WORKER[0]:  # it ends when the process does that started it, and that is the server
            arguments[2] = str(self._server.pid)
        stdin, _, _, stdout, _, stderr, *_ = pipes
        fds = {number: number if fd == -1 else fd for number, fd in enumerate((stdin, stdout, stderr))}
        fds |= {fd: fd for fd in pass_fds}
        request = {
            "kind": kind,
            "what": what,
            "arguments": arguments,
            "cwd": os.getcwd() if cwd is None else os.fspath(cwd),
            "env": dict(os.environ if env is None else env),
            "safe": "-P" in args,
            "fds": tuple(fds),
        }
        self.pid, _ = self._server.ask(request, tuple(fds.values()))
        self._child_created = True
        self._close_pipe_fds(*pipes[:6])  # type: ignore[attr-defined]

    def _internal_poll(self, _deadstate: int | None = None, **_: Any) -> int | None:
        if self._server is None:
            return super()._internal_poll(_deadstate)  # type: ignore[misc, no-any-return]
        if _deadstate is not None:
            return self.returncode  # the collector of garbage has found it, perhaps in the middle of another question
        lock: threading.Lock = self._waitpid_lock  # type: ignore[attr-defined]
        if self.returncode is None and lock.acquire(blocking=False):
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                lock.release()
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._server is None:
            return super()._try_wait(wait_flags)  # type: ignore[misc, no-any-return]
        if not wait_flags & os.WNOHANG:  # wait here: the server has others to serve
            fd = os.pidfd_open(self.pid)
            try:
                select.select([fd], [], [])
            finally:
                os.close(fd)
        return self._server.ask({"kind": "wait", "pid": self.pid})


def _program(args: Any, env: Mapping[str, str] | None) -> tuple[str, str, list[str]] | None:
    """(``-m`` or ``-c``, module or code, arguments) of a command that can be forked; None for any other."""
    environ = os.environ if env is None else env
    if sys.platform != "linux" or isinstance(args, str) or args[0] != sys.executable or "LD_PRELOAD" in environ:
        return None
    rest = [os.fspath(each) for each in args[1:]]
    if rest[:1] == ["-P"]:
        rest = rest[1:]
    return (rest[0], rest[1], rest[2:]) if rest[:1] in (["-m"], ["-c"]) else None


def run(
    args: Any,
    *,
    input: Any = None,  # its name in subprocess.run
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> "CompletedProcess[Any]":
    """`subprocess.run`, by fork where that is possible."""
    options |= {"stdin": PIPE} if input is not None else {}
    options |= {"stdout": PIPE, "stderr": PIPE} if capture_output else {}
    with Popen(args, **options) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
    done = CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


@contextmanager
def forked() -> Iterator[None]:
    """Fork what the product starts meanwhile."""
    with ExitStack() as stack:
        for module in (child, confined):
            stack.enter_context(patch.object(module, "subprocess", sys.modules[__name__]))
        yield


@contextmanager
def spawned() -> Iterator[None]:
    """Start it as usual."""
    with patch.object(child, "subprocess", subprocess), patch.object(confined, "subprocess", subprocess):
        yield


# In the server --------------------------------------------------------------------------------------------------------


def _serve(line: socket.socket, modules: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started us
    for module in modules:
        import_module(module)
    path = [each for each in sys.path if each not in os.environ.get("PYTHONPATH", "").split(os.pathsep)][1:]
    gc.collect()
    gc.freeze()
    while True:
        message, fds, _, _ = socket.recv_fds(line, MESSAGE, 16)
        if not message:
            return
        request = pickle.loads(message)
        try:
            pid, status = os.waitpid(request["pid"], os.WNOHANG) if request["kind"] == "wait" else (os.fork(), 0)
        except OSError as error:
            pid, status = -1, error.errno or 0
        if request["kind"] != "wait" and pid == 0:
            line.close()
            _become(request, fds, path)
        for fd in fds:
            os.close(fd)
        line.send(b"%d %d" % (pid, status))


def _become(request: dict[str, Any], fds: list[int], path: list[str]) -> NoReturn:
    """Be the program that is asked for, and end as it does."""
    status, interrupted = 1, False
    try:
        _take_over(request, fds, path)
        status, interrupted = _ended(request)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                status = status or 120  # as the interpreter does when nobody reads what it says last
        if interrupted:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        os._exit(status)


def _take_over(request: dict[str, Any], fds: list[int], path: list[str]) -> None:
    import numpy as np

    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, _HIGH) for fd in fds]
    for fd in fds:
        os.close(fd)
    for fd, number in zip(high, request["fds"], strict=True):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    here = [] if request["safe"] else [request["cwd"] if request["kind"] == "-m" else ""]
    sys.path[:] = [*here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *path]
    sys.argv[:] = [request["kind"], *request["arguments"]]
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  # they live as long as the process
    sys.stdout = open(1, "w", closefd=False, buffering=1 if os.isatty(1) else -1)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, buffering=1, errors="backslashreplace")  # noqa: SIM115
    random.seed()
    np.random.seed()  # others may use the one that all share
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _ended(request: dict[str, Any]) -> tuple[int, bool]:
    """Run it; its exit status, and whether it was interrupted."""
    status, interrupted = 0, False
    try:
        if request["kind"] == "-m":
            sys.modules.pop(request["what"], None)
            runpy.run_module(request["what"], run_name="__main__", alter_sys=True)
        else:
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(request["what"], "<string>", "exec"), main.__dict__)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if not isinstance(end.code, int | None):
            print(end.code, file=sys.stderr)
    except BaseException as error:
        traceback.print_exc()
        status, interrupted = 1, isinstance(error, KeyboardInterrupt)
    threading._shutdown()  # type: ignore[attr-defined]  # wait for threads, as the interpreter does
    atexit._run_exitfuncs()
    return status, interrupted


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        _serve(connection, sys.argv[2:])
