"""How many requests may be under way at once: additive increase, multiplicative decrease, as in TCP (RFC 5681).

A service that is asked for too much answers late or refuses, and how much is too much is not known beforehand. The
trade-off: the window finds it by going a little too far now and then; at its smallest it is one request at a time.
"""

__all__ = ["Window"]

_LATE = 4.0  # times the usual wait for an answer of that length: it stood in a queue
_DRIFT = 1.01  # by how much the usual wait may grow with each answer, so that a service may become slower for good
_AFTER_LATE = 0.8
_AFTER_FAILURE = 0.5


class Window:
    """Pure: it is told of answers and says a number. Not thread-safe."""

    def __init__(self, start: int = 8, most: int = 32):
        """Begin with ``start`` requests; never more than ``most``."""
        self._size, self._most = float(start), most
        self._deaf = 0  # answers to requests that were under way before the last decrease: they say nothing new
        self._usual: dict[int, float] = {}  # seconds, by the bit length of the answer's length

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
        if seconds > _LATE * usual:
            self._shrink(_AFTER_LATE)
        else:
            self._deaf = max(0, self._deaf - 1)
            if under_way >= self.size:
                self._size = min(self._most, self._size + 1 / self._size)

    def failed(self) -> None:
        """A request was refused or lost, and will be sent again."""
        self._shrink(_AFTER_FAILURE)

    def _shrink(self, factor: float) -> None:
        if self._deaf:
            self._deaf -= 1
            return
        self._size = max(1.0, self._size * factor)
        self._deaf = self.size
