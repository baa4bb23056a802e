"""Where one reader is in a generation of a task, and from where what it needs is sought.

Each reader has cursors of its own, so that nobody looks twice through rows that need nothing.
"""

from dataclasses import dataclass

__all__ = ["Reader"]


@dataclass(slots=True, order=True)
class Reader:
    """Where one reader is in a generation, and from where what it needs is sought."""

    from_rank: int
    """The rank of the first clip that it has not had."""
    batches: int
    """Batches of the task, counted over all epochs, that it has had."""
    pace_s: float
    cursor: int = 0
    """Nothing that is kept is to be made from `from_rank` to here."""
    near: int = 0
    """Nothing at all is to be made from `from_rank` to here."""

    def go_on(self, before: "list[Reader]") -> None:
        """Seek on from where others have got that were here, or before."""
        behind = [each for each in before if each.from_rank <= self.from_rank]
        self.cursor = max((each.cursor for each in behind), default=0)
        self.near = max((each.near for each in behind), default=0)
