"""Copies that cannot be made again, as the file of their video is gone, another one, or bad.

No policy is offered them until they are read. Plans count on the oldest of them, as far as half of a budget holds
these; the youngest leave where a reader's batch finds no room otherwise, or where a budget was lowered. That asks
nobody whether they are still to be read: a plan that is made meanwhile may just have let go of them.
"""

from collections.abc import Sequence

from viewcache.materializer.storage.shelf import Copy

__all__ = ["IRREPLACEABLE", "counted_on", "youngest"]

IRREPLACEABLE = "it cannot be made again, and there was no room for it"
"""The reason of such an eviction, which no policy has chosen."""


def counted_on(budget_bytes: int) -> int:
    """Most bytes of such copies that plans count on; what is left of the budget must do for all else."""
    return budget_bytes // 2


def youngest(copies: Sequence[Copy], need: int) -> list[Copy]:
    """Those that leave for so many bytes, given all of them, the oldest first; see `Ledger.irreplaceable`."""
    leaving: list[Copy] = []
    for copy in reversed(copies):
        if need <= 0:
            break
        leaving.append(copy)
        need -= copy.bytes
    return leaving
