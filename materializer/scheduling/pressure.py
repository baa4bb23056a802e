"""Memory pressure: how much workers hold, when that is too much, and whose work is then the shortest (SAND §5.4).

Pure logic over numbers that others measure. What a job may come to hold is declared before it starts, and the sum is
bounded, so pressure is rare; what nobody declares (a decoder's own frames, an operation's scratch) is measured.
"""

from collections.abc import Hashable, Iterable, Mapping

from viewcache.materializer.workers.pool import Held

__all__ = ["Pace", "Pressure", "allowance", "in_use"]

HIGH, LOW = 0.8, 0.7
"""Parts of the limit: above the first there is pressure, until less than the second is in use (SAND §5.4)."""


class Pressure:
    """Whether memory is short, with hysteresis: a single line would have the choice flicker around it."""

    def __init__(self, limit_bytes: int, high: float = HIGH, low: float = LOW) -> None:
        """Set the limit in bytes, and the parts of it where pressure begins and ends."""
        self.limit_bytes = limit_bytes
        self.on = False
        """Whether there is pressure."""
        self._high, self._low = high * limit_bytes, low * limit_bytes

    def note(self, used_bytes: int) -> None:
        """Take a new measurement."""
        self.on = used_bytes > self._high or (self.on and used_bytes >= self._low)


def in_use(held: Iterable[Held], declared: Mapping[int, int]) -> int:
    """Bytes that workers hold or are about to.

    Args:
        held: what was measured of each worker.
        declared: number of a job → most bytes that what is left of it may hold; counts where it is more, because a job
            that has just begun holds little yet.
    """
    return sum(max(each.bytes, sum(declared.get(number, 0) for number in each.jobs)) for each in held)


def allowance(limit_bytes: int, declared_bytes: int, most: int, least: int, *, demanded: bool) -> int:
    """Most bytes that a new job may hold; 0 = it must wait until another ends.

    Args:
        limit_bytes: of memory, for all jobs.
        declared_bytes: what the jobs that have begun may hold.
        most: for any one job.
        least: what the job cannot do without.
        demanded: a reader waits: it gets what it cannot do without in any case, as the first job does.
    """
    free = min(most, limit_bytes - declared_bytes)
    if free >= least:
        return free
    return least if demanded or not declared_bytes else 0


class Pace:
    """What an edge of the graph takes, a frame decoded or one operation on it: measured for each video, else as usual.

    Only the order matters: where nothing is known, the number of edges decides.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._seconds: dict[Hashable, float] = {}
        self._edges: dict[Hashable, int] = {}
        self._all_seconds, self._all_edges = 0.0, 0

    def note(self, video: str, edges: int, seconds: float) -> None:
        """A job of a video did so many edges in so many busy seconds."""
        self._seconds[video] = self._seconds.get(video, 0.0) + seconds
        self._edges[video] = self._edges.get(video, 0) + edges
        self._all_seconds += seconds
        self._all_edges += edges

    def cost(self, video: Hashable, edges: int) -> float:
        """Seconds that so many edges of a video should take; in units of an edge when nothing was measured at all."""
        seconds, known = self._seconds.get(video, 0.0), self._edges.get(video, 0)
        if not known:
            seconds, known = self._all_seconds, self._all_edges
        return edges * (seconds / known if known and seconds else 1.0)
