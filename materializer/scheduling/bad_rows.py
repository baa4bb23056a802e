"""Rows whose video cannot give them, until their task has decided what becomes of them.

A task decides at once, unless one of its generations is being planned: the plan must know of every replacement, so the
decision waits for it. The dispatcher does not, and serves everybody else meanwhile.
"""

from collections.abc import Callable
from dataclasses import dataclass

from viewcache.errors import ViewcacheError
from viewcache.materializer.scheduling.demand import Board
from viewcache.materializer.scheduling.work import RowState, Work

__all__ = ["BadClip", "BadRows", "Undecided"]

BadClip = Callable[[Work[str], list[int], str], ViewcacheError | None]


class Undecided(Exception):
    """It cannot be said yet; ask again."""


@dataclass(frozen=True, slots=True)
class _Case:
    work: Work[str]
    rows: list[int]
    """They count as being made, so that nobody begins them anew."""
    why: str
    failure: ViewcacheError | None


class BadRows:
    """The dispatcher's own; used on its thread."""

    def __init__(self, board: Board, on_bad_clip: BadClip) -> None:
        """``on_bad_clip`` as for `Dispatcher`."""
        self._board = board
        self._on_bad_clip = on_bad_clip
        self._undecided: list[_Case] = []

    def __len__(self) -> int:
        """How many cases wait for a decision."""
        return len(self._undecided)

    def add(self, work: Work[str], rows: list[int], why: str, failure: ViewcacheError | None = None) -> None:
        """Let the task's policy decide; ``failure`` is what readers get if it gives up."""
        self._decide(_Case(work, rows, why, failure))

    def ask_again(self) -> None:
        """Ask for what was not decided."""
        cases, self._undecided = self._undecided, []
        for case in cases:
            self._decide(case)

    def _decide(self, case: _Case) -> None:
        try:
            error = self._on_bad_clip(case.work, case.rows, case.why)
        except Undecided:
            self._undecided.append(case)
            return
        self._board.mark(case.work, case.rows, RowState.PLANNED if error is None else RowState.FAILED)
        if error is not None:
            self._board.fail(case.work, case.rows, case.failure or error)
