"""A process's connections to the service of a cache: asking, waiting, and finding it again when it has ended.

Any thread may ask; each question has a line of its own while it is answered. A child of a fork closes what it inherited
and says hello for itself. A service that died is started again by whoever asks first, and asking again is harmless,
because a question names what it wants.
"""

import os
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import viewcache
from viewcache.api.config.documents import TextSource
from viewcache.api.service import answers, asks, files, wire
from viewcache.api.service.peer import peer
from viewcache.api.service.starting import START_S, start, start_lock
from viewcache.errors import Broken, CatalogBusy, Closed, Full, ServiceDown, Timeout, ViewcacheError
from viewcache.materializer.gate import Cancelled
from viewcache.store.client_tiers import ClientTiers

if TYPE_CHECKING:
    from viewcache.materializer.dataset.listing import Progress

__all__ = ["Client", "Connected", "documents_of"]

SILENT_S = 30.0
"""How long the service may say nothing: it tells those who wait every five seconds that the work goes on."""

SLICE_S = 0.2
"""How soon a question that is cancelled ends."""

BETWEEN_S = 0.05
"""Between two looks whether somebody else has started the service."""

MOST_DEATHS = 10
"""So often a service may die on one and the same question: more than chance would have it, and yet not for ever."""

A = TypeVar("A", bound=answers.Answer)


class _Ended(Exception):
    """The service has ended, or is about to."""


@dataclass(slots=True, eq=False)
class Connected:
    """A session with one run of the service."""

    welcome: answers.Welcome
    tiers: ClientTiers
    control: socket.socket
    lines: list[socket.socket]
    """Further connections that nobody uses just now."""

    def close(self) -> None:
        """Close all connections and descriptors."""
        for line in (*self.lines, self.control):
            line.close()
        self.lines.clear()
        self.tiers.close()


class Client:
    """The service of one store, as this process reaches it. Thread-safe."""

    def __init__(
        self,
        root: Path,
        documents: Iterable[TextSource],
        job: str = "",
        *,
        may_start: bool,
        progress: "Progress | None" = None,
    ) -> None:
        """Connect now; see `connected`.

        Args:
            root: the store's folder.
            documents: of the configuration.
            job: which training this process belongs to.
            may_start: whether a service is to be started where there is none.
            progress: called with (done, in all, name) while the service looks at the files of new tasks.
        """
        self.root = root
        self._documents = documents_of(documents)
        self.job = job
        self._may_start = may_start
        self._lock = threading.RLock()
        self._connected: Connected | None = None
        self._closed = False
        _clients.add(self)
        self.connected(progress)

    # Connections ---------------------------------------------------------------------------------------------------

    def connected(self, progress: "Progress | None" = None) -> Connected:
        """The session, begun now if there is none.

        Raises:
            ServiceDown: none runs and none may be, or can be, started.
            ViewcacheError: what the service refused.
        """
        with self._lock:
            self.check_open()
            if self._connected is None:
                self._connected = self._connect(progress)
            return self._connected

    def _connect(self, progress: "Progress | None") -> Connected:
        until = time.monotonic() + START_S  # also for the last service to end, which still owns the store
        while True:
            line = files.connect(self.root, SILENT_S)
            if line is not None:
                try:
                    return self._hello(line, progress)
                except _Told as told:
                    raise told.error from None
                except _Ended:
                    pass  # it was about to end: look again
            elif not self._may_start:
                raise ServiceDown(
                    f"no service runs for {self.root}: start one by `viewcache serve`, or set cache.service: auto"
                )
            else:
                self._start()
            if time.monotonic() > until:
                raise ServiceDown(f"no service of {self.root} could be reached within {START_S:.0f} s")
            time.sleep(BETWEEN_S)

    def _start(self) -> None:
        """Start the service, unless another process is about to."""
        with start_lock(self.root) as mine:
            if mine and (line := files.connect(self.root, SILENT_S)) is None:
                try:
                    start(self.root, self._documents)
                except CatalogBusy as busy:
                    before = files.read_facts(self.root)
                    if before is None or before.pid != busy.pid:
                        raise
            elif mine and line is not None:
                line.close()

    def _hello(self, line: socket.socket, progress: "Progress | None") -> Connected:
        try:
            _, uid = peer(line)
            if uid != os.stat(self.root).st_uid and uid != os.getuid():
                raise ServiceDown(f"the service of {self.root} is user {uid}'s, not yours")
            program = os.path.basename(sys.argv[0] or "python")[:80]
            hello = asks.Hello(wire.PROTOCOL, viewcache.__version__, program, self._documents, self.job)
            answer, descriptors = _ask(line, hello, None, progress)
            welcome = _expect(answers.Welcome, answer)
            if len(descriptors) != len(welcome.tiers):
                for each in descriptors:
                    os.close(each)
                raise Full("this process has no descriptor left for the cache: close files, or raise ulimit -n")
            return Connected(welcome, ClientTiers(dict(zip(welcome.tiers, descriptors, strict=True))), line, [])
        except BaseException:
            line.close()
            raise

    def _line(self) -> tuple[Connected, socket.socket]:
        """A connection that nobody uses."""
        connected = self.connected()
        with self._lock:
            if connected.lines:
                return connected, connected.lines.pop()
        return connected, self._new_line(connected)

    def _new_line(self, connected: Connected) -> socket.socket:
        line = files.connect(self.root, SILENT_S)
        if line is None:
            raise _Ended
        try:
            answer, _ = _ask(line, asks.Line(connected.welcome.session, connected.welcome.token), None)
            if not isinstance(answer, answers.Ok):
                raise _Ended  # another run of the service does not know the session
        except BaseException:
            line.close()
            raise
        return line

    # Asking --------------------------------------------------------------------------------------------------------

    def ask(self, kind: type[A], ask: asks.Ask, progress: "Progress | None" = None) -> A:
        """Ask, and ask again if the service has ended meanwhile.

        Raises:
            ViewcacheError: what the service says.
        """
        return self.asking(lambda _: (kind, ask), None, progress)[1]

    def asking(
        self,
        question: "Callable[[Connected], tuple[type[A], asks.Ask]]",
        cancelled: Cancelled | None = None,
        progress: "Progress | None" = None,
    ) -> tuple[Connected, A]:
        """The same for a question that depends on the session, which may be another one the next time.

        Args:
            question: what is to be asked, and what kind of answer is expected.
            cancelled: set by another thread, it ends the wait.
            progress: called with (done, in all, name) while files are looked at.

        Returns:
            The session that it was asked in, and the answer.

        Raises:
            Closed: it was cancelled.
        """
        deaths = 0
        while True:
            line: socket.socket | None = None
            connected: Connected | None = None
            try:
                connected, line = self._line()
                kind, ask = question(connected)
                answer, _ = _ask(line, ask, cancelled, progress)
                found = _expect(kind, answer)
            except _Ended:
                self._lost(connected, line)
                deaths += connected is not None
                if deaths >= MOST_DEATHS:
                    raise Broken(
                        f"the service of {self.root} ended {deaths} times on the same question; its log, "
                        f"{self.root / files.LOG}, says more"
                    ) from None
                continue
            except BaseException as error:
                keep = line is not None and isinstance(error, _Told)
                if line is not None and connected is not None:
                    self._put_back(connected, line) if keep else line.close()
                if isinstance(error, _Told):
                    raise error.error from None
                raise
            self._put_back(connected, line)
            return connected, found

    def tell(self, connected: Connected, message: asks.Ask) -> None:
        """Say something that has no answer; if the session is over it has no meaning any more."""
        with self._lock:
            if connected is not self._connected:
                return
            line = connected.lines.pop() if connected.lines else None
        try:
            line = line or self._new_line(connected)
        except (_Ended, OSError, ViewcacheError):
            return
        try:
            wire.send(line, message)
        except OSError:
            line.close()
        else:
            self._put_back(connected, line)

    def remember(self, documents: Iterable[asks.Document]) -> None:
        """Further tasks have joined: the next run of the service is told of them, too."""
        with self._lock:
            self._documents = (*self._documents, *documents)

    def check_open(self) -> None:
        """Refuse use after `close`.

        Raises:
            Closed: it was closed.
        """
        if self._closed:
            raise Closed("this cache was closed; open it again")

    def _put_back(self, connected: Connected, line: socket.socket) -> None:
        with self._lock:
            if connected is self._connected:
                connected.lines.append(line)
            else:
                line.close()

    def _lost(self, connected: Connected | None, line: socket.socket | None) -> None:
        """The service has ended: forget the session, so that the next question begins another."""
        if line is not None:
            line.close()
        with self._lock:
            if self._connected is not None and connected in (None, self._connected):
                self._connected.close()
                self._connected = None

    # Ends ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Say goodbye; harmless when done twice."""
        with self._lock:
            connected, self._connected, self._closed = self._connected, None, True
        if connected is not None:
            with suppress(OSError):
                wire.send(connected.control, asks.Bye())
            connected.close()

    def forget(self) -> None:
        """In a forked child: close what belongs to the parent, without a word, and begin anew when asked."""
        self._lock = threading.RLock()
        connected, self._connected = self._connected, None
        if connected is not None:
            connected.close()


def documents_of(sources: Iterable[TextSource]) -> tuple[asks.Document, ...]:
    """The sources of a configuration as they travel."""
    return tuple(asks.Document(each.name, each.folder, each.text, each.ops) for each in sources)


class _Told(Exception):
    """The service has answered with an error."""

    def __init__(self, error: Exception) -> None:
        """Keep the error, which is raised once the line is put back."""
        self.error = error
        super().__init__()


def _ask(
    line: socket.socket, ask: asks.Ask, cancelled: Cancelled | None, progress: "Progress | None" = None
) -> tuple[answers.Answer, list[int]]:
    """Ask on a line and wait for the answer."""
    packed = wire.encode(ask)
    if len(packed) > wire.ASK_BYTES:
        raise _Told(Broken(f"what is asked has more than {wire.ASK_BYTES} bytes: ask for less at a time"))
    try:
        wire.send_body(line, packed)
        while True:
            _wait(line, cancelled)
            line.settimeout(SILENT_S)
            body, descriptors = wire.receive(line, wire.ANSWER_BYTES)
            answer = wire.decode_answer(body)
            if not isinstance(answer, answers.Note):
                return answer, descriptors
            if progress is not None and answer.total:
                progress(answer.done, answer.total, answer.name)
    except TimeoutError:
        pid, _ = peer(line)
        raise Timeout(
            f"the service, process {pid}, has said nothing for {SILENT_S:.0f} s: is it stopped? `viewcache stop --now` "
            "ends it, and the next question starts another"
        ) from None
    except (EOFError, ConnectionError) as error:
        raise _Ended from error


def _wait(line: socket.socket, cancelled: Cancelled | None) -> None:
    """Wait for the first byte, in slices, so that a question can be cancelled.

    Raises:
        Closed: it was.
        TimeoutError: nothing came for too long.
    """
    if cancelled is None:
        return
    until = time.monotonic() + SILENT_S
    line.settimeout(SLICE_S)
    while True:
        if cancelled.is_set():
            raise Closed("the reader was cancelled")
        try:
            if not line.recv(1, socket.MSG_PEEK):
                raise EOFError
            return
        except TimeoutError:
            if time.monotonic() > until:
                raise


def _expect(kind: type[A], answer: answers.Answer) -> A:
    if isinstance(answer, kind):
        return answer
    if isinstance(answer, answers.Going):
        raise _Ended
    if isinstance(answer, answers.Failed):
        raise _Told(wire.error_of(answer))
    raise _Told(Broken(f"the service answered with {type(answer).__name__} where {kind.__name__} was expected"))


def _forget_in_child() -> None:
    for client in list(_clients):
        client.forget()


_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()
os.register_at_fork(after_in_child=_forget_in_child)
