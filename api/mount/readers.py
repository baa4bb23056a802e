"""Who reads a task through a mount: a process that holds the task's folder open, until it closes it or ends.

Opening the folder registers its task: a session with the service begins, which `viewcache status` lists. The first
batch that the process or a child of it opens takes a seat, and each further one moves it, as a loader's would. Closing
the folder, which the kernel does for a process that died, ends it: when the last holder has gone nothing is made ahead
for the task any more. Reading without the folder is a look, as by `view://`.
"""

import copy
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from viewcache.api.port import TaskSeat
from viewcache.api.service.ancestors import ancestors
from viewcache.api.service.attached import AttachedCache
from viewcache.api.views.paths import ViewPath
from viewcache.errors import Closed, SeatTaken, ViewcacheError
from viewcache.materializer.gate import Cancelled
from viewcache.materializer.reading.batch import Batch, Buffers

__all__ = ["HELD_S", "Hold", "Readers"]

HELD_S = 0.25
"""A folder that is open for so long and is not being listed is held to read: `ls` opens folders, too."""


@dataclass(slots=True, eq=False)
class Hold:
    """A task's folder that a process has opened."""

    task: str
    process: int
    """Who opened it; 0 if it cannot be told."""
    seats: dict[tuple[int, int], TaskSeat | None] = field(default_factory=dict)
    """(rank, world) → the seat that its reading moves; None where another process has it."""
    sitting: dict[tuple[int, int], threading.Lock] = field(default_factory=dict)
    """(rank, world) → for who looks whether there is a seat and takes it: a taken one is waited for, for seconds."""
    registering: threading.Timer | None = None
    """Registers its task, unless it is closed before."""


class _Training:
    """A task that somebody holds, with a session of its own: what it has taken at the service goes with it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """For who begins or ends the session. All holds share it, so nobody waits for a seat under it."""
        self.holds: set[Hold] = set()
        self.session: AttachedCache | None = None


class Readers:
    """Who holds which task's folder. Thread-safe."""

    def __init__(
        self, cache: AttachedCache, later: Callable[[Callable[[], object]], object], say: Callable[[str], None]
    ) -> None:
        """Nobody reads yet.

        Args:
            cache: the mount's own.
            later: does work that nobody waits for.
            say: tells a person something.
        """
        self._cache = cache
        self._later = later
        self._say = say
        self._lock = threading.Lock()
        self._trainings: dict[str, _Training] = {}

    # Folders -------------------------------------------------------------------------------------------------------

    def open(self, task: str, pid: int) -> Hold:
        """A process has opened a task's folder, maybe to read."""
        hold = Hold(task, next(ancestors(pid), 0))
        with self._lock:
            self._trainings.setdefault(task, _Training()).holds.add(hold)
        hold.registering = threading.Timer(HELD_S, self._register, (hold,))
        hold.registering.daemon = True
        hold.registering.start()
        return hold

    def close(self, hold: Hold) -> None:
        """The folder is closed, or was opened only to be listed: it holds nothing. Harmless when done twice."""
        if hold.registering is not None:
            hold.registering.cancel()
        with self._lock:
            training = self._trainings.get(hold.task)
            if training is None or hold not in training.holds:
                return
            training.holds.remove(hold)
            if not training.holds:
                del self._trainings[hold.task]
        self._later(lambda: self._let_go(training, hold))

    def _register(self, hold: Hold) -> None:
        training = self._training(hold)
        if training is not None:
            try:
                self._session(training)
            except ViewcacheError as error:  # it is told to whoever reads a batch, too
                if not isinstance(error, Closed) or self._training(hold) is not None:  # else the hold is just over
                    self._say(f"task {hold.task!r} could not be registered: {error}")

    def _training(self, hold: Hold) -> _Training | None:
        """What a hold belongs to; None if it is over."""
        with self._lock:
            training = self._trainings.get(hold.task)
            return training if training is not None and hold in training.holds else None

    def _session(self, training: _Training) -> AttachedCache:
        """The session, begun now if there is none.

        Raises:
            Closed: everybody has gone meanwhile.
        """
        with training.lock:
            if not training.holds:
                raise Closed("the task's folder was closed")
            if training.session is None:
                training.session = copy.copy(self._cache)  # another client of the same service, with the same tasks
            return training.session

    @staticmethod
    def _let_go(training: _Training, hold: Hold) -> None:
        """Give back what a hold that is over has; nobody who still waits for a seat of it is waited for."""
        with training.lock:
            if training.holds:
                for seat in filter(None, hold.seats.values()):
                    seat.rise()
            elif training.session is not None:
                training.session.close()  # who waits in it for a seat is told that it is closed
                training.session = None

    # Batches -------------------------------------------------------------------------------------------------------

    def reading(self, task: str, pid: int) -> Hold | None:
        """For which hold of a task a process reads: its own, or that of the nearest ancestor that has one."""
        with self._lock:
            training = self._trainings.get(task)
            holds = {each.process: each for each in training.holds} if training is not None else {}
        if not holds:
            return None
        return next((holds[each] for each in ancestors(pid) if each in holds), None)

    def read(self, where: ViewPath, hold: Hold | None, buffers: Buffers, cancelled: Cancelled) -> Batch | None:
        """Read a batch, by a seat where its task is held; None if it was cancelled."""
        assert where.epoch is not None  # a view's path has one
        if hold is not None:
            try:
                seat = self._seat(where, hold)
                if seat is not None:
                    return seat.read(where.epoch, where.iteration, buffers, cancelled)
            except Closed:
                if self._training(hold) is not None or cancelled.is_set():
                    raise  # else the folder was closed while this was under way: it is only a look now
        task = self._cache.task(where.task)
        return task.read(where.epoch, where.iteration, where.rank, where.world, buffers, cancelled)

    def _seat(self, where: ViewPath, hold: Hold) -> TaskSeat | None:
        """The seat of a hold, taken now if it has none; None if another process reads the task from it.

        A seat that is taken is waited for at the service. Threads of the hold that read as the same rank wait with
        the first of them; other ranks and other holds do not.
        """
        key = where.rank, where.world
        with self._lock:
            sitting = hold.sitting.setdefault(key, threading.Lock())
        with sitting:
            training = self._training(hold)
            if training is None:
                return None
            return hold.seats[key] if key in hold.seats else self._sit(where, hold, training)

    def _sit(self, where: ViewPath, hold: Hold, training: _Training) -> TaskSeat | None:
        task, key = self._session(training).task(where.task), (where.rank, where.world)
        seat, why_not = None, ""
        try:
            seat = task.sit(*key, epoch=where.epoch or 0, iteration=where.iteration)
        except SeatTaken as taken:
            why_not = str(taken)
        with self._lock:
            if stays := hold in training.holds:
                hold.seats[key] = seat
        if not stays:  # it was closed meanwhile, and who let it go knows nothing of this seat
            if seat is not None:
                seat.rise()
            return None
        if seat is None:
            self._say(f"process {hold.process} only looks: {why_not}")
        return seat

    def end(self) -> None:
        """Leave everything."""
        with self._lock:
            trainings = list(self._trainings.values())
            self._trainings.clear()
        for training in trainings:
            if training.session is not None:
                training.session.close()
