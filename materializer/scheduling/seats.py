"""Who reads a task and how far each reader is: what the task still needs is what any of them needs.

A seat is one reader of a task: one rank of its training, or the part of that rank's batches that one worker of a
DataLoader reads. Where nobody sits, whoever reads by path moves the task; where somebody does, that is only looking.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from viewcache.materializer.scheduling.work import Position

__all__ = ["IDLE_BATCHES", "IDLE_S", "Seat", "SeatKey", "Seats"]

PACE_BATCHES = 16
"""How many of a reader's last batches its pace is the mean of.

A loader reads ahead, so the first batches of each epoch come at once and the next one takes the longer for it: the pace
is that of both together, over several epochs where they are short.
"""
IDLE_S, IDLE_BATCHES = 60.0, 20
"""A reader that has not read for so long, and for so many of its batches, is not reading."""


@dataclass(frozen=True, slots=True, order=True)
class SeatKey:
    """Which of a task's readers a seat is for."""

    rank: int = 0
    world: int = 1
    """Number of ranks."""
    part: int = 0
    """Iterations that leave this remainder when divided by ``parts``."""
    parts: int = 1


@dataclass(slots=True, eq=False)
class Seat:
    """One reader of a task, and how far it is. `Seats` makes it."""

    key: SeatKey
    position: Position
    """The batch that it needs next."""
    taken: bool = True
    """Whether it is being read from; a seat that is not says where its reader stopped."""
    had: tuple[int, int] | None = None
    """Epoch and iteration of the last batch that it read."""
    _last: tuple[tuple[int, int], float, int] | None = field(default=None, repr=False)
    """The batch that it reads next, when it read the one before, and how many of the task's iterations lie between."""
    _taken_s: deque[float] = field(default_factory=lambda: deque(maxlen=PACE_BATCHES), repr=False)
    """What each of its last iterations took."""


class Seats:
    """The seats of one task. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Nobody reads yet; ``clock`` says the time in seconds."""
        self._clock = clock
        self._lock = threading.Lock()
        self._seats: list[Seat] = []
        self.parts = 1
        """Parts of a rank in the training that sat down last."""

    def sit(self, key: SeatKey, epoch: int = 0, iteration: int = 0) -> Seat:
        """Take a seat, to read from a place on.

        Seats of another number of ranks or parts count no more: a training goes on with the number that came last.
        So does the seat of a reader that stopped, if it has the same key.
        """
        with self._lock:
            self.parts = key.parts
            return self._new(key, Position(epoch, iteration), taken=True)

    def by_path(self, rank: int, world: int) -> Seat | None:
        """The seat that a read by path moves; None where somebody sits, since looking moves nobody."""
        with self._lock:
            if any(each.taken for each in self._seats):
                return None
            key = SeatKey(rank, world)
            known = next((each for each in self._seats if each.key == key), None)
            return known or self._new(key, Position(), taken=False)

    def _new(self, key: SeatKey, position: Position, *, taken: bool) -> Seat:
        seat = Seat(key, position, taken)
        before = next((each for each in reversed(self._seats) if each.key == key), None)
        if before is not None:  # a loader sits down anew in each epoch
            seat.position = Position(*position.place, before.position.pace_s)
            seat._last, seat._taken_s = before._last, before._taken_s.copy()
        of_size = [each for each in self._seats if _size(each) == _size(seat)]
        self._seats = [*(each for each in of_size if each.taken or each.key != key), seat]
        return seat

    def rise(self, seat: Seat) -> None:
        """Stop reading: the seat stays at its place, until somebody takes it again, or the task is left."""
        with self._lock:
            seat.taken = False
            if any(each.key == seat.key and each.taken for each in self._seats):
                self._seats = [each for each in self._seats if each is not seat]

    def leave(self, seat: Seat | None = None) -> None:
        """A reader has gone for good, or all of them have: nothing is needed for them any more."""
        with self._lock:
            self._seats = [] if seat is None else [each for each in self._seats if each is not seat]

    def is_known(self, seat: Seat) -> bool:
        """Whether a seat counts: it has not left, and no training of another size took the task over."""
        with self._lock:
            return seat in self._seats

    def at(self, seat: Seat, epoch: int, iteration: int) -> None:
        """A reader asks for a batch: it needs that one now, wherever it was before, and although the task was left."""
        with self._lock:
            seat.position = Position(epoch, iteration, seat.position.pace_s)
            if seat not in self._seats and all(_size(each) == _size(seat) for each in self._seats):
                self._seats.append(seat)

    def read(self, seat: Seat, epoch: int, iteration: int, iterations: int) -> Position:
        """A reader has had a batch; returns the one that it needs next, and its pace, a mean over the last few."""
        now, parts = self._clock(), seat.key.parts
        epochs, following = 0, iteration + parts
        if following >= iterations:  # each part begins an epoch at its own remainder
            epochs, following = 1, seat.key.part
        with self._lock:
            pace_s = seat.position.pace_s
            if seat._last is not None and seat._last[0] == (epoch, iteration):
                at_most_s = max(IDLE_S, IDLE_BATCHES * pace_s)  # nobody read for the rest of the time
                seat._taken_s.append(min(now - seat._last[1], at_most_s) / seat._last[2])
                pace_s = sum(seat._taken_s) / len(seat._taken_s)
            seat.position = Position(epoch + epochs, following, pace_s)
            apart = following - iteration + epochs * iterations
            seat._last, seat.had = (seat.position.place, now, apart), (epoch, iteration)
            return seat.position

    def positions(self) -> tuple[Position, ...]:
        """Where all readers are."""
        with self._lock:
            return tuple(each.position for each in self._seats)

    def epochs(self) -> frozenset[int]:
        """The epochs that readers are in."""
        return frozenset(each.epoch for each in self.positions())

    def furthest(self) -> tuple[int, int] | None:
        """Epoch and iteration of the last batch that any reader had: who is ahead of all; None if none was read."""
        with self._lock:
            return max((each.had for each in self._seats if each.had is not None), default=None)

    def slowest(self, key: SeatKey) -> Position | None:
        """Where the reader of a seat is; if several in this process have it, who is furthest behind."""
        with self._lock:
            same = [each.position for each in self._seats if each.key == key]
        return min(same, key=lambda each: each.place, default=None)


def _size(seat: Seat) -> tuple[int, int]:
    """Of the training that a seat belongs to."""
    return seat.key.world, seat.key.parts
