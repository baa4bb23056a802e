"""The service's ears: connections, their processes, and the end.

One thread for each connection, since a question may take as long as a decode. The main thread lets clients in, notices
that one has ended, and ends the service when nobody needs it any more. It waits for no lock of the cache, which a plan
or a decision may hold for a minute: what ends is ended by other threads.
"""

import logging
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from viewcache.api.service import answers, asks, wire
from viewcache.api.service.files import SOCKET, remove
from viewcache.api.service.peer import peer, process_file
from viewcache.api.service.sessions import Session
from viewcache.api.service.verbs import Verbs
from viewcache.errors import BadInput, Broken, Misuse, ViewcacheError
from viewcache.failpoints import failpoint

__all__ = ["Connection", "Server", "tell_waiting"]

_log = logging.getLogger("viewcache.service")

NOTE_S = 5.0
"""How often a client that waits is told that the work goes on."""

LOOKED_S = 0.2
"""How often one whose files are being looked at is told how far that is."""

POLL_S = 0.5
"""How often the service looks whether it is needed."""

SEND_S = 30.0
"""How long a client may take to take an answer."""

DRAIN_S = 10.0
"""How long what is under way may take when the service ends."""

HEARD_S = 1.0
"""How long the lines of a client that has ended are listened to: what it said last, on whichever, is heard first."""

FIRST_S = 30.0
"""How long it waits for its first client."""

LINES = 4096
"""Most connections."""


@dataclass(slots=True, eq=False)
class Connection:
    """One line of a client."""

    socket: socket.socket
    pid: int
    session: Session | None = None
    is_control: bool = False
    asked_at: float = 0.0
    """When the question came that is being answered; 0 = none is. Of the monotonic clock."""
    noted_at: float = 0.0
    lease: int = 0
    """Of the last answer, until something else comes, which shows that the client has taken the answer; 0 = none."""
    thread: threading.Thread | None = None
    """That answers on it."""
    gone: threading.Event = field(default_factory=threading.Event)
    """Set when nobody waits for the answer any more."""
    sending: threading.RLock = field(default_factory=threading.RLock)

    def is_set(self) -> bool:
        """Whether what is asked on it is given up."""
        return self.gone.is_set() or (self.session is not None and self.session.over.is_set())

    def looked(self, done: int, total: int, name: str) -> None:
        """Tell it how far the files of a new dataset were looked at, a few times a second and at the end."""
        now = time.monotonic()
        if done == total or now - self.noted_at >= LOOKED_S:
            self.note(answers.Note(now - self.asked_at, done, total, name))

    def note(self, note: answers.Note) -> None:
        """Tell it that the work goes on; if its line is full or gone, nobody waits any more.

        Never waits: the main thread sends notes for all clients, and one that reads nothing must not hold it up.
        """
        self.noted_at = self.asked_at + note.seconds
        try:
            with self.sending:
                taken = wire.send_now(self.socket, note)
        except OSError:
            taken = False
        if not taken:
            self.give_up()

    def give_up(self) -> None:
        """Let its thread end, whatever it waits for: what is asked, or the next question."""
        self.gone.set()
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class Server:
    """Serves one cache until nobody needs it."""

    def __init__(
        self, verbs: Verbs, listener: socket.socket, root: Path, idle_s: float, awaited: int | None = None
    ) -> None:
        """Take over the socket.

        Args:
            verbs: what is answered.
            listener: bound and listening.
            root: the store's folder.
            idle_s: how long it goes on without clients, seconds.
            awaited: a descriptor that can be read once the process has ended for which it was started.
        """
        self._verbs = verbs
        self._listener = listener
        self._root = root
        self._idle_s = idle_s
        self._awaited = awaited
        self._uid = os.getuid()
        self._poll = select.epoll()
        self._lock = threading.Lock()
        self._connections: dict[int, Connection] = {}
        """By the socket's descriptor."""
        self._processes: dict[int, Session] = {}
        """By the descriptor that tells of a process's end."""
        self._going = threading.Event()
        self._place = _place_of(root)
        self._began = time.monotonic()
        self._told_at = 0.0

    def run(self) -> None:
        """Serve until nobody needs it, it is told to stop, or the store is gone."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._verbs.stopping.set())
        self._listener.setblocking(False)
        self._poll.register(self._listener, select.EPOLLIN)
        threading.Thread(target=self._expire, name="viewcache-expiry", daemon=True).start()
        while not self._is_over():
            try:
                self._look()
            except Exception:  # whatever it is, it concerns one client, and the others go on
                _log.exception("a client could not be seen to", extra={"action": "server_failed"})
                time.sleep(POLL_S)
        self._end()

    def _look(self) -> None:
        """See what has happened to clients since the last time."""
        ready = {descriptor for descriptor, _ in self._poll.poll(POLL_S)}
        letting_in = self._listener.fileno() in ready
        for descriptor in ready - {self._listener.fileno()}:
            self._ended(descriptor)
        if letting_in:  # last: a new client's descriptor may have the number of one that has just ended
            self._let_in()
        tell_waiting(list(self._connections.values()))

    def _expire(self) -> None:
        """End what clients hold for too long, and jobs that nobody comes back to, until the service ends."""
        while not self._going.wait(POLL_S):
            try:
                self._verbs.expire()
            except ViewcacheError as error:  # a full disk, say, or the cache is being closed; it is tried again
                self._tell(f"a task could not be closed: {error}")
            except Exception:
                _log.exception("what clients hold could not be ended", extra={"action": "server_failed"})

    def _is_over(self) -> bool:
        why = self._why_over()
        if why:
            _log.info("ending: %s", why, extra={"action": "service_ends"})
        return bool(why)

    def _why_over(self) -> str:
        if self._verbs.stopping.is_set():
            return "told to stop"
        if not self._is_there():
            return f"the store {self._root} is gone"
        sessions, now = self._verbs.sessions, time.monotonic()
        if any(each.asked_at for each in list(self._connections.values())):
            return ""  # a hello may take long: datasets of many files are listed
        if sessions.left_at is None and not sessions.all() and not self._connections and self._is_awaited_in_vain():
            return "who it was started for has ended, and nobody else has come"
        # Who started it is about to come.
        since, patience_s = (
            (self._began, max(self._idle_s, FIRST_S)) if sessions.left_at is None else (sessions.left_at, self._idle_s)
        )
        return f"no client for {patience_s:.0f} s" if not sessions.all() and now - since > patience_s else ""

    def _is_awaited_in_vain(self) -> bool:
        return self._awaited is not None and _is(select.POLLIN, self._awaited)

    def _is_there(self) -> bool:
        """Whether the store and the socket are those that it began with: where both were deleted another may serve."""
        try:
            return _place_of(self._root) == self._place
        except OSError:
            return False

    # Connections ---------------------------------------------------------------------------------------------------

    def _let_in(self) -> None:
        try:
            line, _ = self._listener.accept()
        except OSError as error:  # no descriptor is left, or the client has gone
            self._tell(f"a client could not be let in: {error}")
            time.sleep(0.01)
            return
        pid, uid = peer(line)
        if uid != self._uid or len(self._connections) >= LINES:
            self._tell(f"process {pid} of user {uid} was turned away")
            line.close()
            return
        line.settimeout(SEND_S)
        connection = Connection(line, pid)
        with self._lock:
            self._connections[line.fileno()] = connection
        connection.thread = threading.Thread(target=self._serve, args=(connection,), name="viewcache-line", daemon=True)
        try:
            connection.thread.start()
        except RuntimeError as error:  # the system gives no more
            self._tell(f"process {pid} was turned away: {error}")
            self._close(connection)

    def _serve(self, connection: Connection) -> None:
        """Answer what comes on one connection."""
        try:
            while not self._going.is_set():
                connection.socket.settimeout(SEND_S if connection.session is None else None)
                body, descriptors = wire.receive(connection.socket, wire.ASK_BYTES)
                for each in descriptors:
                    os.close(each)
                connection.socket.settimeout(SEND_S)
                try:
                    ask = wire.decode_ask(body)
                except BadInput as error:  # it is for the asker, whose other questions are answered
                    self._send(connection, wire.failed_of(error))
                    if connection.session is None:
                        break
                    continue
                failpoint(f"service.before-{asks.verb_of(type(ask))}")
                if not self._answer(connection, ask):
                    break
        except (EOFError, OSError):
            pass  # the client has gone, or takes nothing
        except Broken as error:
            self._tell(f"process {connection.pid} was cut off: {error}")
        finally:
            self._close(connection)

    def _answer(self, connection: Connection, ask: asks.Ask) -> bool:
        """Answer one question; False if it was the last."""
        connection.lease = 0
        if isinstance(ask, asks.Bye):
            if connection.is_control and connection.session is not None:
                connection.session.said_bye = True
            return False
        if isinstance(ask, asks.Done | asks.Drop | asks.Rise):
            self._told(connection, ask)
            return True
        if self._going.is_set():
            self._send(connection, answers.Going())
            return False
        connection.asked_at = connection.noted_at = time.monotonic()
        descriptors: list[int] = []
        try:
            answer, descriptors = self._asked(connection, ask)
        except Exception as error:
            if not isinstance(error, ViewcacheError):
                _log.exception("a question could not be answered", extra={"action": "verb_failed"})
            if connection.is_set():
                return False
            answer = answers.Going() if self._going.is_set() else wire.failed_of(error)
        finally:
            connection.asked_at = 0.0
        failpoint(f"service.after-{asks.verb_of(type(ask))}")
        connection.lease = getattr(answer, "lease", 0)
        try:
            self._send(connection, answer, descriptors)
        finally:
            for each in descriptors:
                os.close(each)
        return connection.session is not None

    def _told(self, connection: Connection, told: asks.Done | asks.Drop | asks.Rise) -> None:
        session = connection.session
        if session is not None:
            with suppress(ViewcacheError):  # the cache is being closed
                if isinstance(told, asks.Done):
                    self._verbs.done(session, told)
                elif isinstance(told, asks.Drop):
                    self._verbs.drop(session, told)
                else:
                    self._verbs.rise(session, told)

    def _asked(self, connection: Connection, ask: asks.Ask) -> tuple[answers.Answer, list[int]]:
        if isinstance(ask, asks.Hello):
            if connection.session is not None:
                raise Misuse("this connection has said hello already")
            session, welcome = self._verbs.hello(ask, connection.pid, connection)
            self._begin(connection, session, is_control=True)
            return welcome, self._descriptors(welcome.tiers)
        if isinstance(ask, asks.Line):
            self._begin(connection, self._verbs.sessions.find(ask.session, ask.token), is_control=False)
            return answers.Ok(), []
        if connection.session is None:
            if isinstance(ask, asks.Stats):
                return self._verbs.stats(), []  # who only looks is no client, and keeps no service alive
            raise Misuse("say hello first")
        return self._verbs.answer(connection.session, ask, connection), []

    def _begin(self, connection: Connection, session: Session, *, is_control: bool) -> None:
        connection.session, connection.is_control = session, is_control
        with self._lock:
            self._poll.register(connection.socket, select.EPOLLRDHUP)
            if is_control:
                ended = process_file(connection.socket, connection.pid)
                if ended is not None:
                    self._processes[ended] = session
                    self._poll.register(ended, select.EPOLLIN)

    def _descriptors(self, tiers: tuple[str, ...]) -> list[int]:
        """One for each tier that clients read: of the folder, or of the memory."""
        opened: list[int] = []
        try:
            opened.extend(map(self._verbs.descriptor, tiers))
        except BaseException:
            for each in opened:
                os.close(each)
            raise
        return opened

    def _send(self, connection: Connection, answer: answers.Answer, descriptors: list[int] | None = None) -> None:
        with connection.sending:
            wire.send(connection.socket, answer, descriptors or ())

    # Ends ----------------------------------------------------------------------------------------------------------

    def _ended(self, descriptor: int) -> None:
        """A process or a connection has ended: but its number may be another one's by now, so it is looked at again."""
        with self._lock:
            session, connection = self._processes.get(descriptor), self._connections.get(descriptor)
            if session is not None and not _is(select.POLLIN, descriptor):
                session = None
            if connection is not None and not _is(select.POLLRDHUP, descriptor):
                connection = None
        if session is not None:  # although a child of it may have its connections still
            threading.Thread(target=self._over, args=(session,), name="viewcache-over", daemon=True).start()
            self._forget_process(session)
        if connection is not None:
            connection.give_up()  # its thread may be waiting for the next question
            with suppress(OSError, ValueError):  # it is closed by now
                self._poll.unregister(connection.socket)

    def _close(self, connection: Connection) -> None:
        with self._lock:
            self._connections.pop(connection.socket.fileno(), None)
            with suppress(OSError):  # it said no hello, or hung up
                self._poll.unregister(connection.socket)
            connection.socket.close()
        session = connection.session
        if session is not None and connection.lease:
            session.doubt(connection.lease)
        if session is not None and connection.is_control:
            self._over(session)

    def _over(self, session: Session) -> None:
        """A session has ended: its other connections are closed, and what it held is given back."""
        self._forget_process(session)
        with self._lock:
            lines = [each for each in self._connections.values() if each.session is session]
        _hear_out(lines)
        with suppress(ViewcacheError):  # the cache is being closed
            self._verbs.end(session)

    def _forget_process(self, session: Session) -> None:
        with self._lock:
            for ended in [each for each, mine in self._processes.items() if mine is session]:
                del self._processes[ended]
                self._poll.unregister(ended)
                os.close(ended)

    def _end(self) -> None:
        """Let nobody in, let what is under way end, and close all connections; the socket goes first."""
        if self._is_there():  # else it is another's
            with suppress(OSError):
                remove(self._root)
        self._listener.close()
        self._going.set()
        until = time.monotonic() + DRAIN_S
        while time.monotonic() < until and any(each.asked_at for each in list(self._connections.values())):
            time.sleep(0.01)
        _hear_out(list(self._connections.values()))
        self._verbs.close()

    def _tell(self, what: str) -> None:
        """A line in the log, at most one a minute: whoever sends nonsense must not fill the disk."""
        now = time.monotonic()
        if now - self._told_at >= 60 or not self._told_at:
            self._told_at = now
            _log.warning("%s", what, extra={"action": "client_refused"})


def _hear_out(connections: Sequence[Connection]) -> None:
    """End connections, and wait a moment until their threads have read what was sent on them before."""
    for each in connections:
        each.give_up()
    until = time.monotonic() + HEARD_S
    for each in connections:
        if each.thread is not None and each.thread is not threading.current_thread():
            each.thread.join(max(0.0, until - time.monotonic()))


def tell_waiting(connections: Iterable[Connection]) -> None:
    """Tell clients that wait for long that the work goes on."""
    now = time.monotonic()
    for connection in connections:
        asked_at = connection.asked_at
        if asked_at and now - connection.noted_at >= NOTE_S and connection.sending.acquire(blocking=False):
            try:
                if connection.asked_at == asked_at and not connection.gone.is_set():
                    connection.note(answers.Note(now - asked_at))
            finally:
                connection.sending.release()


def _place_of(root: Path) -> tuple[int, int]:
    """The folder of a store and its socket, by numbers that no others have while they are open."""
    return os.stat(root).st_ino, os.lstat(root / SOCKET).st_ino


def _is(event: int, descriptor: int) -> bool:
    """Whether something has happened to a descriptor, or it is over altogether."""
    found = select.poll()
    found.register(descriptor, event)
    return bool(found.poll(0))
