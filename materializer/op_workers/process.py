"""One process of an op worker and the line to it: questions, answers, and its end.

Everything that it does wrong has one outcome, `Ended`: it is killed and what it said last is told. It may crash, hang,
talk nonsense, print without end, close its line or leave children behind; none of that holds this process up for longer
than the time of one call.
"""

import contextlib
import os
import select
import signal
import socket
import subprocess
import threading
import time
from typing import Any, TypeVar, cast

import msgspec

from viewcache.errors import Broken, OpWorkerFailed
from viewcache.framing import Inbox, decode, send
from viewcache.materializer.limits import limit_child
from viewcache.materializer.op_workers import answers, asks
from viewcache.materializer.op_workers.answers import Answer
from viewcache.materializer.op_workers.arena import Arena
from viewcache.materializer.op_workers.asks import Ask
from viewcache.materializer.spec import OpWorkerSpec

__all__ = ["FD", "START_S", "WITH_THREAD", "Ended", "OpProcess", "python_command"]

FD = "VIEWCACHE_OP_WORKER_FD"
"""Environment variable that tells an op worker the number of its line's descriptor."""

WITH_THREAD = "VIEWCACHE_OP_WORKER_WITH_THREAD"
"""Set where the thread that starts an op worker lives as long as its process: it may ask the kernel to end with it."""

START_S = 30.0
"""Seconds from a process's start to its `Welcome`; importing a large library takes a few."""

DYING_S = 1.0
"""How long a process that closes its line may take to end before that counts as another mistake."""

TOLD_BYTES = 2000
"""How much of the end of what it printed is told with an error."""

_NOT_INHERITED = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP")
"""They are meant for this Python."""

_AT_ONCE = 1 << 16

_decoder: "msgspec.msgpack.Decoder[Answer]" = msgspec.msgpack.Decoder(cast(Any, answers.ALL))

Kind = TypeVar("Kind", bound=Answer)


class Ended(Exception):
    """The process is gone, or was killed because it is of no use any more; says why."""


class OpProcess:
    """A process and its line. One thread at a time."""

    def __init__(self, spec: OpWorkerSpec) -> None:
        """Start it; nothing is asked yet.

        Raises:
            OpWorkerFailed: its program cannot be run.
        """
        self._spec = spec
        self._said = bytearray()
        """The end of what it printed."""
        self._asked = 0
        """How many questions."""
        self._is_silent = False
        """It can print no more."""
        self._arena: Arena | None = None
        self._inbox = Inbox(answers.ANSWER_BYTES)
        try:
            self._line, self._log, self._process = _started(spec.command)
        except (OSError, ValueError) as error:
            raise OpWorkerFailed(f"op worker {spec.name!r} cannot be started: {spec.command[0]}: {error}") from error
        os.set_blocking(self._log, False)
        self._death = _pidfd(self._process.pid)
        self._waiting = select.poll()
        for fd in (self._line.fileno(), self._log, self._death):
            if fd >= 0:
                self._waiting.register(fd, select.POLLIN)
        limit_child(self._process.pid, spec.memory_bytes)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def arena(self, size: int) -> Arena:
        """Shared memory of at least ``size`` bytes, which it has, too.

        Raises:
            Ended: it would not take it.
            OSError: there is none to be had.
        """
        if self._arena is None or self._arena.size < size:
            arena = Arena(size)
            try:
                self.ask(answers.Ok, asks.Memory(arena.size), (arena.descriptor,))
            finally:
                arena.sent()
            self._arena = arena
        return self._arena

    def ask(self, kind: type[Kind], ask: Ask, descriptors: tuple[int, ...] = ()) -> Kind:
        """The answer to a question, of the kind that it must have.

        Raises:
            Ended: there is none; the process is gone.
        """
        answer = self.answer(ask, descriptors)
        if not isinstance(answer, kind):
            said = answer.message if isinstance(answer, answers.Failed) else type(answer).__name__
            raise self._end(f"answered {type(ask).__name__} by {said}")
        return answer

    def answer(self, ask: Ask, descriptors: tuple[int, ...] = ()) -> Answer:
        """The answer to a question, whatever kind it is; see `ask`."""
        limit_s = START_S if isinstance(ask, asks.Hello) else self._spec.timeout_s
        until = time.monotonic() + limit_s
        self._asked += 1
        ask.number = self._asked
        try:
            self._line.settimeout(limit_s)
            send(self._line, ask, descriptors)
            while (body := self._inbox.take()) is None:
                self._hear(until, limit_s)
            if not self._inbox.is_empty:
                raise self._end("said more than it was asked")
            answer = decode(_decoder, body, f"protocol {asks.PROTOCOL} of op workers")
            if answer.number != ask.number:  # an operation forked, say, and the child came back, too
                raise self._end(f"answered question {answer.number} when it was asked question {ask.number}")
            return answer
        except Broken as nonsense:
            raise self._end(f"talked nonsense: {nonsense}") from nonsense
        except TimeoutError as error:
            raise self._end(f"took no question within {limit_s:g} s") from error
        except OSError as error:
            raise self._end("") from error

    def _hear(self, until: float, limit_s: float) -> None:
        """Wait for anything that it says, prints or does."""
        ready = {fd for fd, _ in self._waiting.poll(max(0.0, 1e3 * (until - time.monotonic())))}
        if self._log in ready:
            self._listen_to_prints()
        if self._line.fileno() in ready:
            piece = self._line.recv(_AT_ONCE, socket.MSG_DONTWAIT)
            if not piece:
                raise self._end("" if self._has_ended(DYING_S) else "closed its line")
            self._inbox.feed(piece)
        elif self._death in ready:
            raise self._end("")
        elif time.monotonic() >= until:
            raise self._end(f"gave no answer within {limit_s:g} s")

    def _listen_to_prints(self) -> None:
        """Pass on what it printed, as what an operation of this process prints, and keep the end."""
        try:
            piece = os.read(self._log, _AT_ONCE)
        except BlockingIOError:
            return
        if not piece and not self._is_silent:  # it closed both ends, which is its own affair
            self._is_silent = True
            self._waiting.unregister(self._log)
        self._said = (self._said + piece)[-TOLD_BYTES:]
        with contextlib.suppress(OSError):
            os.write(2, piece)

    def _end(self, why: str) -> Ended:
        return Ended(self.end(why))

    def end(self, why: str) -> str:
        """Kill it and its children, for certain.

        Args:
            why: it is ended; empty if it ended by itself, or is about to.

        Returns:
            Why, how it ended if it did so by itself, and what it printed last.
        """
        ended_by_itself = self._has_ended(0.0 if why else DYING_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # not reaped yet: the number is its own
        status = self._process.wait()
        self._listen_to_prints()
        self.release()
        words = [why] if why else []
        if ended_by_itself or not why:
            words.append(_how(status))
        said = self._said.decode(errors="replace").strip()
        return ", ".join(words) + (f"; it printed last: {said}" if said else "")

    def _has_ended(self, within_s: float = 0.0) -> bool:
        """Whether it has ended, without reaping it."""
        until = time.monotonic() + within_s
        with contextlib.suppress(ChildProcessError):  # this process ignores SIGCHLD: the kernel reaps for it
            while os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                if time.monotonic() >= until:
                    return False
                time.sleep(0.005)
        return True

    def release(self) -> None:
        """Close what this process has of it."""
        self._line.close()
        for fd in (self._log, self._death):
            if fd >= 0:
                os.close(fd)
        self._log = self._death = -1
        self._arena = None


def _started(command: tuple[str, ...]) -> "tuple[socket.socket, int, subprocess.Popen[bytes]]":
    """A process, our end of its line, and where what it prints comes out."""
    with contextlib.ExitStack() as failed, contextlib.ExitStack() as given:
        line, theirs = socket.socketpair()
        failed.callback(line.close)
        given.callback(theirs.close)
        out, into = os.pipe2(os.O_CLOEXEC)
        failed.callback(os.close, out)
        given.callback(os.close, into)
        process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=into,
            stderr=into,
            start_new_session=True,  # Ctrl-C is for this process, and the group's end is that of its children
            env=_environment(theirs.fileno()),
        )
        failed.pop_all()
        return line, out, process


def python_command(python: str, folders: tuple[str, ...]) -> tuple[str, ...]:
    """What runs an op worker with another Python, which finds its modules in these folders too.

    It is isolated (``-I``): neither the working folder nor variables of the environment give it modules. What it prints
    is passed on at once (``-u``), as it may be ended at any time.
    """
    return (python, "-I", "-u", os.path.join(os.path.dirname(os.path.abspath(__file__)), "boot.py"), *folders)


def _how(status: int) -> str:
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-status).name}"
    return f"ended with exit status {status}"


def _pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError:  # an old kernel: the end of its line tells, unless a child of it keeps that open
        return -1


def _environment(fd: int) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    stays = threading.current_thread() is threading.main_thread()
    ours = {FD: str(fd), WITH_THREAD: "1" if stays else ""}
    return {**kept, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **ours}
