"""What leaves the tiers for what: eviction in the order of the policy, and what that means for who needs it.

What is needed sooner may take the place of what is needed later, never the other way round (docs/design/0014).
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from viewcache.errors import ChunkDamaged
from viewcache.materializer.scheduling.demand import Board
from viewcache.materializer.scheduling.work import Work
from viewcache.materializer.storage.ledger import Copy, Ledger
from viewcache.materializer.storage.tiers import Tiers
from viewcache.materializer.telemetry.observer import Observer
from viewcache.store.tier import LOCAL, REMOTE

__all__ = ["Room"]

_log = logging.getLogger("viewcache.room")

SHARE = 20
"""An eviction frees at least one part of so many: the query costs the same for one object as for a hundred."""


class Room:
    """Frees bytes of tiers. Thread-safe."""

    def __init__(
        self,
        ledger: Ledger,
        tiers: Tiers,
        board: Board,
        works: Callable[[], list[Work]],
        freed: Callable[[], None],
        observer: Observer,
    ) -> None:
        """Work on these tiers.

        Args:
            ledger: what lies where.
            tiers: the tiers.
            board: who waits for what.
            works: all work that somebody knows of.
            freed: called, with the board's lock held, when bytes were freed or an object has to be made again.
            observer: told of evictions.
        """
        self.observer = observer
        self._ledger = ledger
        self._tiers = tiers
        self._board = board
        self._works = works
        self._freed = freed

    def evict(self, need: int, before_s: float | None, *, only_copied: bool = False) -> None:
        """Free ``need`` bytes of the local tier.

        Args:
            need: bytes that shall be free.
            before_s: only what is needed later than that leaves, in seconds from now; None = anything that nobody
                holds and the oldest reader does not wait for.
            only_copied: only what lies in the remote tier too.
        """
        begun, tier = time.monotonic(), self._tiers.local

        def may_leave(copy: Copy) -> bool:
            if only_copied and self._ledger.find(copy.key, REMOTE) is None:
                return False
            if before_s is None:
                return True
            need_s = self.need_s(copy.key)
            return need_s is None or need_s > before_s

        share = max(need - tier.free_bytes, tier.budget_bytes // SHARE)
        self._gone(begun, need, self._ledger.victims(LOCAL, share, self._board.protected_keys(), may_leave))

    def drop(self, copies: list[Copy]) -> None:
        """Let copies of one tier leave it, unless somebody reads them."""
        begun = time.monotonic()
        self._gone(begun, sum(copy.bytes for copy in copies), self._ledger.leave(copies))

    def _gone(self, begun: float, need: int, victims: list[Copy]) -> None:
        """Delete what the ledger has forgotten, and tell who needs it or watches."""
        for copy in victims:
            self._tiers.delete(copy)
        self._left(victims)
        self.observer.evicted(begun, need, victims)

    def damaged(self, copy: Copy) -> None:
        """Forget a copy whose bytes are not what they were; whoever needs it has it made again."""
        with self._board.changed:  # no job may make the object again before its old bytes are gone
            if self._ledger.drop(copy, "rebuild"):
                self._tiers.delete(copy)
                self._left([copy])

    def rebuild(self, copies: Sequence[Copy], wrong: Mapping[int, Exception]) -> int:
        """Drop what a reader found damaged of some copies; returns how many those were.

        What could not be reached stays: its tier is passed over meanwhile.
        """
        damaged = {k: error for k, error in wrong.items() if isinstance(error, ChunkDamaged)}
        for k, error in damaged.items():
            _log.warning("rebuilding an object: %s", error, extra={"action": "rebuild"})
            self.damaged(copies[k])
        return len(damaged)

    def _left(self, copies: Sequence[Copy]) -> None:
        """Copies have left their tiers: what lies in no other one is to be made again for who needs it."""
        if not copies:
            return
        with self._board.changed:
            works = self._works()
            for copy in copies:
                if not self._ledger.has(copy.key):
                    self._board.unmake(copy, works)
            self._freed()

    def rested(self) -> None:
        """Nothing is to be moved: who waits for that may go on."""
        with self._board.changed:
            self._board.changed.notify_all()

    def coming(self, count: int) -> list[str]:
        """Keys of the next objects that readers will need, the soonest first; about ``count`` of each task."""
        with self._board.changed:
            return self._board.coming(count)

    def waiting(self) -> int:
        """How many readers wait now."""
        return self._board.waiting()

    def protected(self) -> set[str]:
        """Keys of all that the oldest waiting reader wants."""
        return self._board.protected_keys()

    def need_s(self, key: str) -> float | None:
        """Seconds until an object is needed next by work that is known; None if it is not."""
        with self._board.changed:
            return min((need for work in self._works() if (need := work.next_need_s(key)) is not None), default=None)
