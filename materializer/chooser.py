"""Who is next: what the dispatcher makes, and which jobs it may interrupt for that (SAND §5.4).

Demand comes before look-ahead, and of look-ahead what is due soonest comes first.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from viewcache.materializer.board import Board
from viewcache.materializer.running import Running
from viewcache.materializer.work import Work

__all__ = ["Choice", "Chooser"]


@dataclass(frozen=True, slots=True)
class Choice:
    """What is made next."""

    work: Work
    rows: list[int]
    """Of one video."""
    demanded: bool
    """Whether a reader waits for them."""


class Chooser:
    """Chooses by demand, then by deadline. The dispatcher's thread alone uses it."""

    def __init__(self, board: Board) -> None:
        """Choose from what stands on the board."""
        self._board = board

    def next(self, *, ahead: bool, only_soon: bool) -> Choice | None:
        """What is made next; None if there is nothing.

        Args:
            ahead: whether there may be room for what nobody waits for.
            only_soon: of that only what may evict.
        """
        demand = self._board.next_demand()
        if demand is not None:
            return Choice(*demand, demanded=True)
        chosen = self._board.next_ahead(only_soon) if ahead else None
        return None if chosen is None else Choice(*chosen, demanded=False)

    def unwanted(self, running: Mapping[int, Running]) -> frozenset[int]:
        """Numbers of the jobs that make nothing that a reader waits for: they may be interrupted for one."""
        wanted = self._board.wanted_keys()
        return frozenset(number for number, each in running.items() if not wanted & each.wanted.keys())
