"""What the service keeps for each client process: its seats and what it holds, until it lets go or ends.

A hold saves work and nothing depends on it: what is read without one is whole or fails its checksums. So a client that
is stopped loses what it holds after a while, and one that ended loses it at once.
"""

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from viewcache.api.service.ancestors import ancestors
from viewcache.api.service.answers import ClientOf, SeatOf
from viewcache.api.session.making import AheadOfTime
from viewcache.errors import Busy, Closed, Misuse, SeatTaken
from viewcache.materializer.gate import Cancelled
from viewcache.materializer.reading.handle import OwnedSeat, OwnedTask
from viewcache.materializer.reading.held import Held
from viewcache.store import Stored
from viewcache.store.tier import LOCAL

__all__ = ["Lease", "Session", "Sessions", "Sitting"]

HELD_S = 60.0
"""How long a client may hold what it was given."""

DOUBTED_S = 1.0
"""How long it holds what it has probably not been given: its line ended before it said anything else on it."""

MOST_LEASES = 64
"""Of one client: batches that it has been given and has not said to have read."""

ROOM_S = 30.0
"""How long a question waits for its own process to have read what it was given: copying a batch out takes milliseconds,
and at its worst, on a machine that swaps, seconds."""

REST_S = 600.0
"""So long a training that reads nothing just now keeps its seats, as while it validates or saves a checkpoint."""

LOOK_S = 0.2
"""How often one that waits looks whether it is given up."""


@dataclass(slots=True)
class Lease:
    """What is held for a client until it has read it."""

    task: OwnedTask
    held: Held | None
    """The clips of a batch; None for what is only in transit."""
    transit: list[Stored]
    since: float = field(default_factory=time.monotonic)

    @property
    def local_bytes(self) -> int:
        """Of the local tier that cannot be evicted meanwhile."""
        held = () if self.held is None else self.held.fetched.copies
        return sum({each.key: each.bytes for each in held if each.tier == LOCAL}.values())


@dataclass(slots=True)
class Sitting:
    """A seat that a client has taken."""

    task: str
    seat: OwnedSeat
    resting_since: float | None = None
    """Since when, of the monotonic clock, nobody reads from it; None while somebody does."""

    def is_over(self, epochs: int) -> bool:
        """Whether its training, of so many epochs, has read all of them, or nothing for `REST_S`."""
        since = self.resting_since
        return since is not None and (self.seat.place[0] >= epochs or time.monotonic() - since > REST_S)


class Session:
    """One client process. Thread-safe."""

    def __init__(self, pid: int, program: str, job: str = "") -> None:
        """Begin with nothing taken.

        Args:
            pid: of the process; 0 if it cannot be told.
            program: what the process runs.
            job: which training it belongs to.
        """
        self.number = 0
        """Of the session; 0 before it has begun."""
        self.pid, self.program, self.job = pid, program, job
        self.token = secrets.token_hex(16)
        self.training = pid
        """The first process that it comes from among those that were here before it; itself if there is none."""
        self.since = time.time()
        self.ahead: dict[tuple[tuple[str, ...], int | None], AheadOfTime] = {}
        """What is being made ahead for it: by tasks and epochs."""
        self.by_path: set[str] = set()
        """Tasks that it has read without a seat."""
        self.said_bye = False
        """Whether it ends because it wants to."""
        self.over = threading.Event()
        """Set when it has ended: what it waits for is given up."""
        self._lock = threading.Lock()
        self._fewer = threading.Condition(self._lock)
        """Told when it holds less."""
        self._count = 0
        self._leases: dict[int, Lease] = {}
        self._seats: dict[int, Sitting] = {}

    def begin(self, number: int) -> None:
        """Take a number."""
        self.number = number

    # What it holds -------------------------------------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """What it holds of the local tier."""
        return sum(each.local_bytes for each in list(self._leases.values()))

    def wait_for_room(self, most_bytes: int, cancelled: Cancelled) -> None:
        """Wait until it may hold another batch: it holds none, or less than ``most_bytes`` of the local tier.

        Waiting comes before refusing: threads of a process on a small store take turns. Only what was given to it is
        waited for, never what others of its questions wait for, so that none of them waits for another in a circle.
        What several of its threads ask for at the same moment may pass the bound, by a batch each.

        Raises:
            Closed: it was given up, or has ended.
            Busy: it has read nothing of what it holds for `ROOM_S`.
        """
        until = time.monotonic() + ROOM_S
        with self._fewer:
            while (held := self.held_bytes) >= most_bytes and held:
                if cancelled.is_set() or self.over.is_set():
                    raise Closed("the client has ended")
                left = until - time.monotonic()
                if left <= 0:
                    raise Busy(
                        f"this process holds {held} bytes of the local tier in {len(self._leases)} batches that it has "
                        f"not said to have read, and may hold {most_bytes}, or one batch: say `done` as soon as a "
                        "batch is copied out; the rest of the store is for others"
                    )
                self._fewer.wait(min(left, LOOK_S))

    def hold(self, lease: Lease, let_go: Callable[[Lease], None]) -> int:
        """Keep what was held for it; the lease's number.

        Raises:
            Closed: it has ended meanwhile.
            Busy: it holds too much.
        """
        with self._lock:
            if not self.over.is_set() and len(self._leases) < MOST_LEASES:
                self._count += 1
                self._leases[self._count] = lease
                return self._count
        let_go(lease)
        if self.over.is_set():
            raise Closed("the client has ended")
        raise Busy(f"this process holds {MOST_LEASES} batches that it has not said to have read; say so first")

    def end(self, number: int) -> Lease | None:
        """What a lease held, which is over; None if it was over before."""
        with self._lock:
            self._fewer.notify_all()
            return self._leases.pop(number, None)

    def doubt(self, number: int) -> None:
        """A line ended on which a lease was answered, and nothing came after that: it may never have been heard of."""
        with self._lock:
            lease = self._leases.get(number)
            if lease is not None:
                lease.since = min(lease.since, time.monotonic() - HELD_S + DOUBTED_S)

    def overdue(self, now: float) -> list[Lease]:
        """What it has held for too long, which is over now."""
        with self._lock:
            self._fewer.notify_all()
            late = [number for number, lease in self._leases.items() if now - lease.since > HELD_S]
            return [self._leases.pop(number) for number in late]

    # Where it sits -------------------------------------------------------------------------------------------------

    def sit(self, sitting: Sitting) -> int:
        """Keep a seat that it has taken, in place of one like it that it has stopped to read from; its number.

        Raises:
            Closed: it has ended meanwhile.
        """
        like = sitting.task, sitting.seat.key
        with self._lock:
            if self.over.is_set():
                raise Closed("the client has ended")
            for number, each in list(self._seats.items()):
                if each.resting_since is not None and (each.task, each.seat.key) == like:
                    del self._seats[number]
            self._count += 1
            self._seats[self._count] = sitting
            return self._count

    def seat(self, number: int) -> Sitting:
        """A seat that it has taken.

        Raises:
            Misuse: it has not.
        """
        with self._lock:
            found = self._seats.get(number)
        if found is None:
            raise Misuse(f"seat {number} is none of this process's: sit first")
        return found

    def rise(self, number: int) -> None:
        """Stop reading from a seat; its place stays known until another takes it, or the process ends."""
        with self._lock:
            sitting = self._seats.get(number)
        if sitting is not None:
            sitting.resting_since = time.monotonic()
            sitting.seat.rise()

    def reads(self, task: str) -> bool:
        """Whether it reads a task, from a seat or by path."""
        return task in self.by_path or any(sitting.task == task for sitting in self.sittings())

    def sittings(self) -> list[Sitting]:
        """Its seats."""
        with self._lock:
            return list(self._seats.values())

    def close(self) -> tuple[list[Lease], list[Sitting]]:
        """End it; returns what is to be given back."""
        with self._lock:
            self.over.set()
            leases, seats = list(self._leases.values()), list(self._seats.values())
            self._leases.clear()
            self._fewer.notify_all()
            self._seats.clear()
        return leases, seats

    def shown(self) -> ClientOf:
        """It in plain values."""
        with self._lock:
            leases, seats = list(self._leases.values()), list(self._seats.values())
        held = sum(len(lease.transit) if lease.held is None else len(lease.held.rows) for lease in leases)
        return ClientOf(self.number, self.pid, self.program, self.since, held, tuple(map(_shown, seats)), self.job)


def _shown(sitting: Sitting) -> SeatOf:
    key, place = sitting.seat.key, sitting.seat.place
    return SeatOf(sitting.task, key.rank, key.world, key.part, key.parts, *place)


class Sessions:
    """All client processes. Thread-safe."""

    def __init__(self) -> None:
        """Nobody is there yet."""
        self._lock = threading.Lock()
        self._sessions: dict[int, Session] = {}
        self._count = 0
        self._told: dict[tuple[int, str], int] = {}
        """Training, by its first process, and task → how many lines of `untold` it has."""
        self.left_at: float | None = None
        """When the last one left, of the monotonic clock; None while none was there yet."""

    def begin(self, session: Session) -> None:
        """A process has said hello."""
        with self._lock:
            trainings = {each.pid: each.training for each in self._sessions.values()}
            found = (trainings[pid] for pid in ancestors(session.pid) if pid in trainings)
            session.training = next(found, session.pid)
            self._count += 1
            self._sessions[self._count] = session
            session.begin(self._count)

    def find(self, number: int, token: str) -> Session:
        """The session that a further connection belongs to.

        Raises:
            Misuse: there is none, or the token is another one.
        """
        with self._lock:
            session = self._sessions.get(number)
        if session is None or not secrets.compare_digest(session.token.encode(), token.encode()):
            raise Misuse("there is no such session: say hello first")
        return session

    def remove(self, session: Session) -> bool:
        """A session is over; False if it was before."""
        with self._lock:
            known = self._sessions.pop(session.number, None) is not None
            if not any(each.training == session.training for each in self._sessions.values()):
                self._told = {key: count for key, count in self._told.items() if key[0] != session.training}
            self.left_at = time.monotonic()
        return known

    def untold(self, session: Session, task: str, after: Callable[[int], tuple[str, ...]]) -> tuple[str, ...]:
        """Lines about a task that no process of the session's training was told, which counts them as told now.

        Args:
            session: of the process that is to be told.
            task: its name.
            after: gives the lines behind the first so many.
        """
        with self._lock:
            count = self._told.get((session.training, task), 0)
            lines = after(count)
            if lines:
                self._told[session.training, task] = count + len(lines)
        return lines

    def all(self) -> Sequence[Session]:
        """Those that are there."""
        with self._lock:
            return list(self._sessions.values())

    def have_orphans(self, task: str) -> bool:
        """Whether workers of a training sit there whose first process has ended: soon they notice, and end, too."""
        there = {each.training for each in self.all() if any(sitting.task == task for sitting in each.sittings())}
        return any(next(ancestors(pid), None) is None for pid in there)

    def check_free(self, asking: Session, task: str, epochs: int, rank: int, world: int, part: int, parts: int) -> None:
        """Refuse a seat that another process has, or that does not belong to the same training.

        One from which nobody reads just now is free for processes of its own training: the workers of a DataLoader
        begin and end with each pass. Others take it when that training is over.

        Raises:
            SeatTaken: the message says by whom, and what to do.
        """
        for session in self.all():
            for sitting in session.sittings() if session is not asking else ():
                key = sitting.seat.key
                if sitting.task != task or sitting.is_over(epochs):
                    continue
                if sitting.resting_since is not None and session.training == asking.training:
                    continue
                who = f"process {session.pid} ({session.program})"
                if (key.world, key.parts) != (world, parts):
                    raise SeatTaken(
                        f"task {task!r} is read by {key.world} ranks of {key.parts} workers, one of which is {who}; "
                        f"rank {rank} of {world} with {parts} workers does not belong to them: end that training, or "
                        "name another job by VIEWCACHE_JOB or viewcache.open(job=…)"
                    )
                if (key.rank, key.part) == (rank, part):
                    since = time.strftime("%H:%M:%S", time.localtime(session.since))
                    raise SeatTaken(
                        f"rank {rank} of {world} of task {task!r} is {who} already, since {since}: end it, or read as "
                        "another job by VIEWCACHE_JOB or viewcache.open(job=…)"
                    )
