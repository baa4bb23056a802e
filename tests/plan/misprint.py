"""JOADER's Algorithm 1 as it is printed: line 12 takes all of a job's elements, also those that were looked at."""

import pytest

from viewcache.materializer.planning import joint_order
from viewcache.materializer.planning.joint_order import EpochDraw

__all__ = ["print_line_12"]


def print_line_12(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let orders be drawn with c ← |D|, without taking |S| away, until the test ends."""

    def printed(self: joint_order.Part, todo: list[EpochDraw], common: int, seen: int) -> int:
        together, wins = 0, common
        for job in todo:
            of = job.left - seen
            if wins < of and not (wins and self.chance.coin(job, wins, of)):
                break
            together, wins = together + 1, job.left
        return together

    monkeypatch.setattr(joint_order.Part, "drawn_together", printed)
