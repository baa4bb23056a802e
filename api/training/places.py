"""Where a loader is in its task, and which batches a pass of it reads."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Place", "Turns"]


class Place(NamedTuple):
    """Where a loader is: one value, so that no interrupt can part it."""

    epoch: int
    iteration: int
    """Of the batch that comes next."""
    exactly: bool
    """Whether the next pass begins exactly here. If not, a pass is under way or was left, and the next begins with an
    epoch."""

    def begins(self) -> tuple[int, int]:
        """Epoch and iteration of the pass that comes next: one that was left in the middle of an epoch is over."""
        if self.exactly or not self.iteration:
            return self.epoch, self.iteration
        return self.epoch + 1, 0


@dataclass(frozen=True, slots=True)
class Turns:
    """Which batches a loop reads: from a place to the end of an epoch, or every so many in turn with others."""

    epoch: int
    iteration: int
    last: int
    """The last epoch that is read."""
    turn: int = 0
    turns: int = 1
    in_worker: bool = False

    def places(self, epochs: int, iterations: Callable[[int], int]) -> Iterator[tuple[int, int, Place]]:
        """Epoch and iteration of all batches that are read, each with the place behind it.

        Args:
            epochs: those of the loader.
            iterations: epoch → batches in it.
        """
        begin = self.iteration
        for epoch in range(self.epoch, min(self.last + 1, epochs)):
            batches = iterations(epoch)
            for each in range(begin + self.turn, batches, self.turns):
                if self.in_worker:  # the same for all workers in a round, so that each finds its turn again
                    place = Place(epoch, min(each - self.turn + self.turns, batches), exactly=False)
                elif each + 1 < batches:
                    place = Place(epoch, each + 1, exactly=False)
                else:
                    place = Place(epoch + 1, 0, exactly=False)
                yield epoch, each, place
            begin = 0
