"""Who waits for a seat delays nobody else; without a mount, and with a service that answers when it is told to."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

import pytest

from viewcache.api.mount.readers import Hold, Readers
from viewcache.api.service.attached import AttachedCache
from viewcache.api.views.paths import ViewPath, parse_path
from viewcache.errors import Closed, SeatTaken, ServiceDown, ViewcacheError
from viewcache.materializer.reading.batch import Batch, Buffers

WAIT_S = 20.0
NEVER = threading.Event()


class _Seat:
    """Notes what is done with it; a batch is told apart by who gives it."""

    def __init__(self) -> None:
        self.risen = threading.Event()

    def read(self, *_: object) -> object:
        return self

    def rise(self) -> None:
        self.risen.set()


class _Service:
    """A cache, a session, and a task in one: who sits in iteration 9 waits there until the test lets it go on."""

    def __init__(self) -> None:
        self.asked, self.answers = threading.Event(), threading.Event()
        self.error: ViewcacheError | None = None
        """What whoever waits is answered, if not a seat."""
        self.seats: list[_Seat] = []
        self.closed = threading.Event()
        self.begin: Callable[[], None] = lambda: None
        """What happens when a session begins."""

    def __copy__(self) -> "_Service":
        self.begin()
        return self

    def close(self) -> None:
        self.closed.set()

    def task(self, _name: str) -> "_Service":
        return self

    def sit(self, _rank: int, _world: int, *, epoch: int, iteration: int) -> _Seat:
        assert epoch == 0
        if iteration == 9:
            self.asked.set()
            assert self.answers.wait(WAIT_S)
            if self.error is not None:
                raise self.error
        self.seats.append(_Seat())
        return self.seats[-1]

    def read(self, *_: object) -> object:
        return self


@pytest.fixture
def service() -> Iterator[_Service]:
    """One for each test; nobody waits in it when the test has ended."""
    made = _Service()
    yield made
    made.answers.set()


@pytest.fixture
def threads(service: _Service) -> Iterator[ThreadPoolExecutor]:
    """Those that read, and those that do what nobody waits for."""
    with ThreadPoolExecutor(16) as pool:
        yield pool
        service.answers.set()


@pytest.fixture
def said() -> list[str]:
    """What people were told."""
    return []


def _cache(service: _Service) -> AttachedCache:
    return cast(AttachedCache, service)


@pytest.fixture
def readers(service: _Service, threads: ThreadPoolExecutor, said: list[str]) -> Readers:
    """Who reads by that service."""
    return Readers(_cache(service), threads.submit, said.append)


def _open(readers: Readers) -> Hold:
    return readers.open("train", os.getpid())


def _view(iteration: int, query: str = "") -> ViewPath:
    return parse_path(f"train/0/{iteration}/view{query}")


def _read(
    readers: Readers, threads: ThreadPoolExecutor, hold: Hold, iteration: int, query: str = ""
) -> "Future[Batch | None]":
    return threads.submit(readers.read, _view(iteration, query), hold, Buffers(), NEVER)


def _by(reading: "Future[Batch | None]") -> Any:
    """The seat or the task, which is the service, that a batch was read by."""
    return reading.result(WAIT_S)


def test_who_waits_for_a_seat_delays_no_other(service: _Service, threads: ThreadPoolExecutor, readers: Readers) -> None:
    """Another hold of the task, another rank of the same hold, and who leaves go on meanwhile."""
    waits, reads, leaves = _open(readers), _open(readers), _open(readers)
    assert isinstance(_by(_read(readers, threads, leaves, 0)), _Seat)
    waiting = _read(readers, threads, waits, 9)
    assert service.asked.wait(WAIT_S)
    assert isinstance(_by(_read(readers, threads, reads, 0)), _Seat)
    assert isinstance(_by(_read(readers, threads, waits, 0, "?rank=1&world=2")), _Seat)
    readers.close(leaves)
    assert service.seats[0].risen.wait(WAIT_S)
    assert not waiting.done()
    service.answers.set()
    assert _by(waiting) is service.seats[-1]


def test_all_who_look_wait_side_by_side(
    service: _Service, threads: ThreadPoolExecutor, readers: Readers, said: list[str]
) -> None:
    """However many holds wait for the same seat, each has asked before the first is answered."""
    service.error = SeatTaken("rank 0 is process 7")
    holds, reading = [_open(readers) for _ in range(6)], []
    for hold in holds:
        service.asked.clear()
        reading.append(_read(readers, threads, hold, 9))
        assert service.asked.wait(WAIT_S)
    service.answers.set()
    assert [_by(each) for each in reading] == [service] * len(holds)
    assert said == [f"process {os.getpid()} only looks: rank 0 is process 7"] * len(holds)


class _Counted:
    """A lock that tells when so many threads have come to it."""

    def __init__(self, count: int, all_here: threading.Event) -> None:
        self._lock, self._counting = threading.Lock(), threading.Lock()
        self._missing, self._all_here = count, all_here

    def __enter__(self) -> None:
        with self._counting:
            self._missing -= 1
            if not self._missing:
                self._all_here.set()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_threads_of_a_hold_take_one_seat(service: _Service, threads: ThreadPoolExecutor, readers: Readers) -> None:
    """Those that read as the same rank wait for the first of them, and read from its seat."""
    hold, count = _open(readers), 8
    hold.sitting[0, 1] = cast(Any, _Counted(count, service.answers))  # the first is answered once all have come
    found = [_by(each) for each in [_read(readers, threads, hold, 9) for _ in range(count)]]
    assert found == service.seats * count
    assert len(service.seats) == 1


def test_a_hold_that_is_over_keeps_no_seat(service: _Service, threads: ThreadPoolExecutor, readers: Readers) -> None:
    """A reader that is killed while it waits for a seat gives it back when it comes, since others still read."""
    killed, stays = _open(readers), _open(readers)
    reading = _read(readers, threads, killed, 9)
    assert service.asked.wait(WAIT_S)
    readers.close(killed)
    service.answers.set()
    assert _by(reading) is service, "it is only a look now"
    assert service.seats[0].risen.is_set()
    assert not service.closed.is_set()
    assert _by(_read(readers, threads, stays, 0)) is service.seats[1]
    assert not service.seats[1].risen.is_set()


def test_of_a_hold_that_is_over_nothing_is_said(
    service: _Service, threads: ThreadPoolExecutor, readers: Readers, said: list[str]
) -> None:
    """That a seat is taken does not matter to a reader that was killed while it waited for it."""
    killed, _stays = _open(readers), _open(readers)
    service.error = SeatTaken("rank 0 is process 7")
    reading = _read(readers, threads, killed, 9)
    assert service.asked.wait(WAIT_S)
    readers.close(killed)
    service.answers.set()
    assert _by(reading) is service
    assert said == []


def test_a_session_ends_while_somebody_waits(
    service: _Service, threads: ThreadPoolExecutor, readers: Readers, said: list[str]
) -> None:
    """When the last hold is closed its session ends at once, and who waits in it for a seat only looks."""
    hold = _open(readers)
    service.error = Closed("this cache was closed")
    reading = _read(readers, threads, hold, 9)
    assert service.asked.wait(WAIT_S)
    readers.close(hold)
    assert service.closed.wait(WAIT_S / 2), "before the service has given up to answer"
    service.answers.set()
    assert _by(reading) is service
    assert said == []


class _ClosedMeanwhile(Readers):
    """Each hold is closed between the look whether it still is one and the beginning of its session."""

    def _training(self, hold: Hold) -> Any:
        found = super()._training(hold)
        self.close(hold)
        return found


def _registered(hold: Hold) -> None:
    """Wait until the registering of a hold is over."""
    assert hold.registering is not None
    hold.registering.join(WAIT_S)
    assert not hold.registering.is_alive()


def test_registering_what_is_over_says_nothing(service: _Service, threads: ThreadPoolExecutor, said: list[str]) -> None:
    """A reader that was killed while it was about to be registered is no failure."""
    _registered(_open(_ClosedMeanwhile(_cache(service), threads.submit, said.append)))
    assert said == []


@pytest.mark.parametrize("is_over", [False, True])
def test_registering_that_fails_is_told(service: _Service, readers: Readers, said: list[str], *, is_over: bool) -> None:
    """What no reader is to blame for is told, also when the reader has gone meanwhile."""
    opened: list[Hold] = []
    known = threading.Event()

    def begin() -> None:
        assert known.wait(WAIT_S)
        if is_over:
            readers.close(opened[0])
        raise ServiceDown("none could be started")

    service.begin = begin
    opened.append(_open(readers))
    known.set()
    _registered(opened[0])
    assert said == ["task 'train' could not be registered: none could be started"]
