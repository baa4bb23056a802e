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
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import viewcache
from viewcache.api.config.documents import TextSource
from viewcache.api.config.load import Config
from viewcache.api.service import answers, asks, files, wire
from viewcache.api.service.asking import SILENT_S, Died, Ended, Told, ask_on, check_there, expect, named, wait_calmly
from viewcache.api.service.connected import Connected
from viewcache.api.service.peer import peer
from viewcache.api.service.renewal import Renewal, documents_of, explained, is_of_others, settings_stay
from viewcache.api.service.starting import START_S, Documents, start_lock, start_renewed
from viewcache.errors import Broken, CatalogBusy, Closed, Full, ServiceDown, ViewcacheError
from viewcache.materializer.gate import Cancelled
from viewcache.store.client_tiers import ClientTiers

if TYPE_CHECKING:
    from viewcache.materializer.dataset.listing import Progress

__all__ = ["Client", "ask_to_end", "end_if_idle"]

LEAVING_S = 0.5
"""So long a service that is to end if nobody uses it is asked again who does: some have said goodbye just now."""

BETWEEN_S = 0.05
"""Between two looks whether somebody else has started the service."""

MOST_DEATHS = 3
"""So often a service may die of one and the same question."""

MOST_ENDS = 30
"""So often it may end, for whatever reason, while one and the same question waits for its answer: others may kill it
more often than chance would have it, and yet not for ever."""

CALM_S = 2.0
"""How long a service has to live before it is asked for the last time what two before it may have died of. One that
does not dies of something else, such as a question of another process: so may those two have, and do not count."""

A = TypeVar("A", bound=answers.Answer)


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
        config: Config | None = None,
    ) -> None:
        """Connect now; see `connected`.

        Args:
            root: the store's folder.
            documents: of the configuration.
            job: which training this process belongs to.
            may_start: whether a service is to be started where there is none.
            progress: called with (done, in all, name) while the service looks at the files of new tasks.
            config: what the documents say, whose files are read again when a service is started later on.
        """
        self.root = root
        self.renewal = Renewal(documents, config)
        self.joined: tuple[tuple[TextSource, ...], ...] = ()
        """What joined since: each a configuration of its own, which may have a cache section and tags of the first."""
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
        started: Documents | None = None
        yields, stays = self._may_start, False
        while True:
            line = files.connect(self.root, SILENT_S)
            if line is not None:
                try:
                    found = self._hello(line, progress)
                    if started is not None or not (yields and found.welcome.warnings):
                        return found
                    yields = False
                    if not _made_way(self.root, found, self.renewal):
                        return found
                except Told as told:
                    has_room = self.renewal.has_room(told.error)
                    if started is not None and not has_room:  # it was started for this process
                        self._end_if_idle()
                        if started == self.renewal.before:
                            raise told.error from None
                        settings_stay(told.error)
                        started, stays = None, True
                    elif (
                        yields
                        and (has_room or is_of_others(told.error))
                        and (ended := self._end_if_idle(begun_by_hand=False)) is not False
                    ):
                        # Another process may be about to end it; others may begin with as small a budget meanwhile.
                        started, yields = None, has_room or ended is None
                    else:
                        raise explained(told.error, self.root) from None
                except Ended:
                    pass  # it was about to end: look again
            elif not self._may_start:
                raise ServiceDown(
                    f"{files.absent(self.root)}: start one by `viewcache serve`, or set cache.service: auto"
                )
            else:
                started = self._start(stays) or started
            if time.monotonic() > until:
                raise ServiceDown(f"no service of {self.root} could be reached within {START_S:.0f} s")
            time.sleep(BETWEEN_S)

    def _end_if_idle(self, **how: bool) -> bool | None:
        """End a service that refused this client; False if it stays, None if another process is starting or ending one.

        Two who ask at once would keep it by asking.
        """
        with start_lock(self.root) as mine:
            return end_if_idle(self.root, **how) if mine else None

    def _start(self, stays: bool) -> Documents | None:
        """Start the service, unless another process is about to; with which configuration it was.

        Args:
            stays: whether it is to begin as the cache was opened, whatever files say by now.
        """
        with start_lock(self.root) as mine:
            if mine and (line := files.connect(self.root, SILENT_S)) is None:
                try:
                    before = self.renewal.before
                    return start_renewed(self.root, before if stays else self.renewal.now(), before)
                except CatalogBusy as busy:
                    if far := files.elsewhere(self.root, busy.pid):
                        raise CatalogBusy(far, busy.pid, busy.folder) from None
                    facts = files.read_facts(self.root)
                    if (facts is None or facts.pid != busy.pid) and files.served_by(busy.pid) != str(self.root):
                        raise  # no service has it, neither one that ends nor one that begins
            elif mine and line is not None:
                line.close()
        return None

    def _hello(self, line: socket.socket, progress: "Progress | None") -> Connected:
        try:
            _, uid = peer(line)
            if uid != os.getuid():
                raise files.of_another_user(self.root, uid)
            program = os.path.basename(sys.argv[0] or "python")[:80]
            hello = asks.Hello(wire.PROTOCOL, viewcache.__version__, program, self.renewal.before, self.job)
            answer, descriptors = ask_on(line, hello, None, progress)
            welcome = expect(answers.Welcome, answer)
            if len(descriptors) != len(welcome.tiers):
                for each in descriptors:
                    os.close(each)
                raise Full("this process has no descriptor left for the cache: close files, or raise ulimit -n")
            connected = Connected(welcome, ClientTiers(dict(zip(welcome.tiers, descriptors, strict=True))), line, [])
        except BaseException:
            line.close()
            raise
        try:
            for sources in self.joined:
                ask = asks.Join(documents_of(sources), self.job)
                expect(answers.Joined, ask_on(line, ask, None, progress)[0])
        except BaseException:
            connected.close()
            raise
        return connected

    def _line(self) -> tuple[Connected, socket.socket]:
        """A connection that nobody uses."""
        connected = self.connected()
        with self._lock:
            if connected.lines:
                return connected, connected.lines.pop()
        try:
            return connected, self._new_line(connected)
        except Ended:
            self._lost(connected, None)
            raise

    def _new_line(self, connected: Connected) -> socket.socket:
        line = files.connect(self.root, SILENT_S)
        if line is None:
            raise Ended
        try:
            answer, _ = ask_on(line, asks.Line(connected.welcome.session, connected.welcome.token), None)
            if not isinstance(answer, answers.Ok):
                raise Ended  # another run of the service does not know the session
        except BaseException:
            line.close()
            raise
        connected.all_lines.add(line)
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
        what: str = "",
    ) -> tuple[Connected, A]:
        """The same for a question that depends on the session, which may be another one the next time.

        Args:
            question: what is to be asked, and what kind of answer is expected.
            cancelled: set by another thread, it ends the wait.
            progress: called with (done, in all, name) while files are looked at.
            what: is asked for, for an error; empty = as the question says itself.

        Returns:
            The session that it was asked in, and the answer.

        Raises:
            Closed: it was cancelled.
            Broken: services died of it.
        """
        deaths = ends = 0
        while True:
            line: socket.socket | None = None
            connected: Connected | None = None
            ask: asks.Ask | None = None
            try:
                connected, line = self._line()
                if deaths == MOST_DEATHS - 1:
                    # A service that dies meanwhile has not died of this question: then the count begins anew.
                    deaths = 0
                    wait_calmly(connected.control, CALM_S, cancelled)
                    deaths = MOST_DEATHS - 1
                kind, ask = question(connected)
                check_there(line)  # what has ended by now has not died of this question
                answer, _ = ask_on(line, ask, cancelled, progress)
                found = expect(kind, answer)
            except Ended as ended:
                self._lost(connected, line)
                ends += connected is not None
                deaths += connected is not None and isinstance(ended, Died)
                if deaths >= MOST_DEATHS or ends >= MOST_ENDS:
                    raise Broken(self._fatal(what or named(ask), deaths, ends)) from None
                continue
            except BaseException as error:
                keep = line is not None and isinstance(error, Told)
                if line is not None and connected is not None:
                    self._put_back(connected, line) if keep else line.close()
                if isinstance(error, Told):
                    raise error.error from None
                raise
            self._put_back(connected, line)
            return connected, found

    def _fatal(self, what: str, deaths: int, ends: int) -> str:
        """Why nobody asks for something any more, and what to do."""
        how = f"died {deaths} times in a row when" if deaths >= MOST_DEATHS else f"ended {ends} times while"
        told = f"the service of {self.root} {how} it was asked for {what}; its log, {self.root / files.LOG}, says more"
        if deaths < MOST_DEATHS:
            return told
        return (
            f"{told}. Leave out the video or the operation that it dies of, let workers be processes "
            "(cache.worker_kind), which take no service with them, or give it more memory; all else can be read"
        )

    def tell(self, connected: Connected, message: asks.Ask) -> None:
        """Say something that has no answer; if the session is over it has no meaning any more."""
        with self._lock:
            if connected is not self._connected:
                return
            line = connected.lines.pop() if connected.lines else None
        try:
            line = line or self._new_line(connected)
        except (Ended, OSError, ViewcacheError):
            return
        try:
            wire.send(line, message)
        except OSError:
            line.close()
        else:
            self._put_back(connected, line)

    def remember(self, sources: Iterable[TextSource]) -> None:
        """Further tasks have joined: the next run of the service is told of them, too, as they joined."""
        joined = tuple(sources)
        with self._lock:
            if joined not in self.joined:
                self.joined = (*self.joined, joined)

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
        """The service has ended: forget the session, so that the next question begins another, unless it has begun."""
        if line is not None:
            line.close()
        with self._lock:
            if connected is not None and connected is self._connected:
                connected.close()
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
            connected.close_inherited()


def ask_to_end(root: Path, *, if_idle: bool, begun_by_hand: bool = True) -> None:
    """Ask the service of a store to end.

    Raises:
        ServiceDown: it was about to end by itself.
        Busy: it is used, and was to end only if idle.
        Misuse: it was begun by hand, and was to end only if not.
    """
    client = Client(root, (), may_start=False)
    try:
        if if_idle:
            _let_leave(lambda: client.ask(answers.StatsOf, asks.Stats()))
        client.ask(answers.Ok, asks.Stop(if_idle, begun_by_hand))
    finally:
        client.close()


def end_if_idle(root: Path, *, begun_by_hand: bool = True) -> bool:
    """End the service of a store unless somebody uses it, and wait until it has; whether it has. See `asks.Stop`."""
    facts = files.read_facts(root)
    try:
        with suppress(ServiceDown):  # it was about to end by itself
            ask_to_end(root, if_idle=True, begun_by_hand=begun_by_hand)
        if facts is not None:
            files.wait_ended(root, facts)
    except ViewcacheError:  # others use it by now, or it was begun by hand
        return False
    return True


def _made_way(root: Path, mine: Connected, renewal: Renewal) -> bool:
    """End a service that has other settings than the files say, if only ``mine`` uses it; whether it has."""
    facts = files.read_facts(root)
    try:
        stats = _stats_on(mine.control)
        if not renewal.differing(stats.settings):
            return False
        _let_leave(lambda: _stats_on(mine.control))
        expect(answers.Ok, ask_on(mine.control, asks.Stop(if_idle=True, begun_by_hand=False), None)[0])
    except Told:
        return False
    except BaseException:
        mine.close()
        raise
    mine.close()
    if facts is not None:
        files.wait_ended(root, facts)
    return True


def _stats_on(line: socket.socket) -> answers.StatsOf:
    return expect(answers.StatsOf, ask_on(line, asks.Stats(), None)[0])


def _let_leave(stats: Callable[[], answers.StatsOf]) -> None:
    """Wait a moment while others than who asks use a service: what they say last is heard a little later."""
    until = time.monotonic() + LEAVING_S
    while len(stats().clients) > 1 and time.monotonic() < until:
        time.sleep(BETWEEN_S)


def _forget_in_child() -> None:
    for client in list(_clients):
        client.forget()


_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()
os.register_at_fork(after_in_child=_forget_in_child)
