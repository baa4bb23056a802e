"""Python processes that are forked from one that has imported everything: they start in 20 ms, not in 300 to 600.

`Popen` and `run` are in the place of those of `subprocess`, for `python -m module` and `python -c code`; any other
command starts as usual. Workers, scanners and confined queries are of that kind in all tests, but in those that ask for
the fixture ``spawned``, and below processes that tests start. What runs in such a process is the same: arguments,
environment, streams, limits, and how it ends. The trade-off: what a new interpreter does first (finding modules, and
importing no more than it needs) is not seen; and on macOS everything starts as usual.
"""

import atexit
import gc
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import import_module
from subprocess import DEVNULL, PIPE, CompletedProcess, TimeoutExpired
from typing import Any, NoReturn
from unittest.mock import patch

from viewcache.catalog import confined
from viewcache.materializer import child

__all__ = ["DEVNULL", "PIPE", "Popen", "TimeoutExpired", "forked", "run", "servers", "spawned"]

WORKER = ("viewcache.materializer.worker", "viewcache.materializer.scan_worker")
"""Its processes load little, and how much memory they have is looked at."""
REST = (*WORKER, "viewcache.api.cli", "viewcache.api.session", "viewcache.catalog.duck", "viewcache.catalog.readonly")
MESSAGE = 1 << 18
"""Most bytes of a request: the environment and the code are in it."""
_HIGH = 400  # descriptors from here on are nobody's


class _Server:
    """A process that forks, and our end of its line."""

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._lock = threading.Lock()
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked", str(theirs.fileno()), *modules],
                pass_fds=[theirs.fileno()],
                stdin=DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )
        self.pid = self._process.pid
        atexit.register(self.close)

    def ask(self, what: Mapping[str, object], fds: tuple[int, ...] = ()) -> tuple[int, int]:
        """Send a request and wait for its answer: (process id, status)."""
        with self._lock:
            socket.send_fds(self._line, [pickle.dumps(what)], fds)
            pid, status = self._line.recv(64).split()
            return int(pid), int(status)

    def close(self) -> None:
        """End it; what it forked and has a line of its own goes on."""
        self._line.close()
        self._process.wait()


@cache
def _server(modules: tuple[str, ...]) -> _Server:
    return _Server(modules)


def servers() -> set[int]:
    """Process ids of all servers, which are started by that: whose children are ours."""
    return {_server(modules).pid for modules in (WORKER, REST)} if sys.platform == "linux" else set()


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen`, by fork where that is possible."""

    _server: _Server | None = None

    def _execute_child(self, *how: Any) -> None:
        args, executable, preexec_fn, _, pass_fds, cwd, env, _, _, shell, *pipes = how
        program = None if shell or preexec_fn or executable else _program(args, env)
        if program is None:
            super()._execute_child(*how)  # type: ignore[misc]
            return
        self._server = _server(WORKER if program[1] in WORKER else REST)
        kind, what, arguments = program
        if what in WORKER:  # they end when the process does that started them, and that is the server
            arguments = [str(self._server.pid) if each == str(os.getpid()) else each for each in arguments]
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
        if request["kind"] == "wait":
            pid, status = os.waitpid(request["pid"], os.WNOHANG)
        elif pid := os.fork():
            status = 0
        else:
            line.close()
            _become(request, fds, path)
        for fd in fds:
            os.close(fd)
        line.send(b"%d %d" % (pid, status))


def _become(request: dict[str, Any], fds: list[int], path: list[str]) -> NoReturn:
    """Be the program that is asked for, and end as it does."""
    status = 1
    try:
        _take_over(request, fds, path)
        status = _ended(request)
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                status = status or 120  # as the interpreter does when nobody reads what it says last
        os._exit(status)


def _take_over(request: dict[str, Any], fds: list[int], path: list[str]) -> None:
    import fcntl
    import random

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


def _ended(request: dict[str, Any]) -> int:
    """Run it; its exit status."""
    import runpy
    import traceback
    import types

    status = 0
    try:
        if request["kind"] == "-m":
            sys.modules.pop(request["what"], None)
            runpy.run_module(request["what"], run_name="__main__", alter_sys=True)
        else:
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(request["what"], "<string>", "exec"), main.__dict__)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]  # wait for threads, as the interpreter does
    atexit._run_exitfuncs()
    return status


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        _serve(connection, sys.argv[2:])
