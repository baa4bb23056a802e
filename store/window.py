"""How many requests may be under way at once: additive increase, and a decrease by the share that failed or came late.

A service that is asked for too much answers late or refuses, and how much is too much is not known beforehand. This is
DCTCP's rule (RFC 8257, 3.3) by rounds of as many answers as the window is wide: it halves where all of them fail, as
TCP does, but a service that loses one request in five for other reasons keeps a window near ten and not near one. The
trade-off: it finds the limit by going a little too far now and then.
"""

__all__ = ["RequestWindow"]

_LATE = 4.0  # times the usual wait for an answer of that length: it stood in a queue
_DRIFT = 1.0002  # by how much the usual wait may grow with each answer: a service may become slower for good


class RequestWindow:
    """Pure: it is told of answers and says a number. Not thread-safe."""

    def __init__(self, start: int = 8, most: int = 32):
        """Begin with ``start`` requests; never more than ``most``."""
        self._size, self._most = float(start), most
        self._usual: dict[int, float] = {}  # seconds, by the bit length of the answer's length
        self._answers = self._bad = self._widest = 0  # of this round

    @property
    def size(self) -> int:
        """Requests that may be under way."""
        return int(self._size)

    def answered(self, seconds: float, size: int, under_way: int) -> None:
        """A request was answered well.

        Args:
            seconds: it took.
            size: bytes that were moved for it.
            under_way: requests at that time, this one included. A window that is not used does not grow.
        """
        usual = min(seconds, self._usual.get(size.bit_length(), seconds) * _DRIFT)
        self._usual[size.bit_length()] = usual
        self._widest = max(self._widest, under_way)
        self._count(bad=seconds > _LATE * usual)

    def failed(self) -> None:
        """A request was refused or lost, and will be sent again."""
        self._count(bad=True)

    def _count(self, bad: bool) -> None:
        self._answers += 1
        self._bad += bad
        if self._answers < self.size:
            return
        grown = 1 if self._widest >= self.size else 0
        shrunk = self._size * (1 - self._bad / self._answers / 2)
        self._size = min(float(self._most), max(1.0, shrunk + grown))
        self._answers = self._bad = self._widest = 0
