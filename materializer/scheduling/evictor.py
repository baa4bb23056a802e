"""Evicts copies to make room, in the order of the policy, and tells who still needs them (docs/design/0014)."""

import logging
import math
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence

from viewcache.errors import ChunkDamaged, ViewcacheError
from viewcache.materializer.scheduling.candidates import Candidates
from viewcache.materializer.scheduling.demand import Board
from viewcache.materializer.scheduling.rules import evictable, eviction_bytes, protected_keys
from viewcache.materializer.scheduling.work import Work
from viewcache.materializer.storage.irreplaceable import IRREPLACEABLE, youngest
from viewcache.materializer.storage.ledger import Copy, Ledger
from viewcache.materializer.storage.tiers import Tiers
from viewcache.materializer.telemetry.observer import Observer
from viewcache.store.tier import LOCAL, REMOTE

__all__ = ["Evictor"]

_log = logging.getLogger("viewcache.evictor")

READY_BYTES = 16 << 20
"""Bytes that leave at a time where it is known already what leaves next. Else more leave at once, for asking takes
long."""

READY_COPIES = 64
"""So many at most: of small ones more would be so many files that deleting them takes as long as asking."""


class Evictor:
    """Frees bytes of tiers. Thread-safe."""

    def __init__(
        self,
        ledger: Ledger,
        tiers: Tiers,
        board: Board,
        works: Callable[[], list[Work[str]]],
        freed: Callable[[], None],
        answered: Callable[[], None],
        observer: Observer,
    ) -> None:
        """Work on these tiers.

        Args:
            ledger: what lies where.
            tiers: the tiers.
            board: who waits for what.
            works: all work that somebody knows of.
            freed: called, with the board's lock held, when bytes were freed or an object has to be made again.
            answered: called when a policy has answered for which `evict` did not wait.
            observer: told of evictions.
        """
        self.observer = observer
        self._ledger = ledger
        self._tiers = tiers
        self._board = board
        self._works = works
        self._freed = freed
        self._counting = threading.Lock()
        self._leaving = 0
        """Calls of `_leave` that are on."""
        self._candidates = Candidates(
            lambda need: ledger.choose(LOCAL, need, self.protected()),
            lambda copy: ledger.find(copy.key, LOCAL) is copy,
            tiers.local.budget_bytes,
            answered,
        )

    def evict(
        self,
        need: int,
        before_s: float | None,
        *,
        only_copied: bool = False,
        occasion: Hashable = None,
        who: Hashable = None,
    ) -> bool:
        """Free ``need`` bytes of the local tier, as far as that goes.

        Args:
            need: bytes that shall be free.
            before_s: only what is needed later than that leaves, in seconds from now; None = anything that nobody
                holds and the oldest reader does not wait for.
            only_copied: only what lies in the remote tier too.
            occasion: who gives one does not wait for a policy that takes long, see `Candidates.answer`; None waits.
            who: the reader whom it is for, see there.

        Returns:
            Whether the policy has yet to answer: then there may be room soon, and ``answered`` is called.

        Raises:
            ViewcacheError: the policy could not be asked; what it named before has left.
        """
        tier, later = self._tiers.local, False
        failure: ViewcacheError | None = None
        stays: list[Copy] = []

        def may_leave(copy: Copy) -> bool:
            if only_copied and self._ledger.find(copy.key, REMOTE) is None:
                return False
            return before_s is None or evictable(self.next_due_in_s(copy.key), before_s)

        def forget(gone: list[Copy]) -> None:
            nonlocal later, failure
            share = eviction_bytes(need, tier.free_bytes, tier.budget_bytes)
            lacking = max(need - tier.free_bytes, 1)  # whoever asks has found no room
            spared = self._ledger.spared(LOCAL, self.protected())
            found = seen = 0
            asked = False
            # As many as if the policy had been asked now are looked at, but no more leave than are needed soon.
            while found < lacking and seen < share and not asked:
                some = self._candidates.take(READY_BYTES, spared, READY_COPIES, occasion)
                try:
                    if not some and occasion is None:
                        asked, some = True, self._candidates.ask(share)
                    elif not some:
                        can_wait = before_s == math.inf
                        answer = self._candidates.answer(share, spared, occasion, can_wait=can_wait, who=who)
                        later, asked, some = answer is None, not answer, answer or []
                except ViewcacheError as error:  # what the ledger has forgotten by then must be deleted first
                    failure = error
                    break
                mine = [copy for copy in some if may_leave(copy)]
                gone += (left := self._ledger.leave(mine))  # before the policy is asked for others
                found, seen = found + _bytes(left), seen + _bytes(some)
                keys = {copy.key for copy in mine}
                stays.extend(copy for copy in some if copy.key not in keys)
            self._candidates.put_back(stays)
            if before_s == math.inf and not (gone or later or failure):
                self._candidates.in_vain()

        self._leave(need, forget)
        if failure is not None:
            raise failure
        return later

    def reconsider(self) -> None:
        """Readers have let go of what is stored: something may leave that could not."""
        self._candidates.reconsider()

    def is_awaited(self) -> bool:
        """Whether a policy has yet to answer for somebody who did not wait for it."""
        return self._candidates.is_awaited()

    def is_leaving(self) -> bool:
        """Whether some thread may have forgotten copies whose bytes are still there; ``freed`` is called after that."""
        return self._leaving > 0

    def close(self) -> None:
        """Ask no policy any more."""
        self._candidates.close()

    def give_up(self, copies: list[Copy], reason: str | None = None) -> list[Copy]:
        """Let copies of one tier leave it, unless somebody reads them; ``reason`` in the place of the policy's.

        Returns:
            What has left.
        """
        return self._leave(_bytes(copies), lambda gone: gone.extend(self._ledger.leave(copies, reason)))

    def give_up_irreplaceable(self, need: int) -> bool:
        """Let what cannot be made again leave for so many bytes, see `youngest`, where a reader finds no room without.

        Returns:
            Whether anything left.
        """
        try:
            found = self._ledger.irreplaceable(LOCAL, self.protected())
        except ViewcacheError as error:
            _log.warning("what cannot be made again stays: %s", error, extra={"action": "evict_irreplaceable"})
            return False
        copies = youngest(found, need)
        return bool(copies and self.give_up(copies, IRREPLACEABLE))

    def passed(self, copies: list[Copy]) -> list[Copy]:
        """Give up copies that have passed through memory, unless somebody reads them; returns those that are gone."""
        return self._leave(None, lambda gone: gone.extend(self._ledger.passed(copies)))

    def damaged(self, copy: Copy) -> None:
        """Give up a copy whose bytes are not what they were; whoever needs it has it made again."""
        self._leave(None, lambda gone: gone.extend([copy] if self._ledger.drop(copy, "rebuild") else []))

    def _leave(self, need: int | None, forget: Callable[[list[Copy]], None]) -> list[Copy]:
        """The one way in which copies leave: they are forgotten, then deleted, then who needs or watches them is told.

        Until they are deleted nobody makes them again (`Ledger.is_leaving`): he would find the old bytes, and these
        would go when readers have them.

        Args:
            need: bytes that were to be free; None = this is no eviction.
            forget: has the ledger forget copies, so that nobody takes hold of them any more, and adds these to a list.

        Returns:
            What has left.
        """
        begun = time.monotonic()
        with self._counting:
            self._leaving += 1
        copies: list[Copy] = []
        try:
            try:
                forget(copies)
            finally:
                for copy in copies:
                    self._tiers.delete(copy)
            if copies:
                with self._board.changed:
                    works = self._works()
                    for copy in copies:
                        if not self._ledger.has(copy.key):  # else it lies in another tier
                            for work in works:
                                work.mark_missing(copy.key)
                    self._freed()
        finally:
            with self._counting:
                self._leaving -= 1
                if not self._leaving:
                    self._ledger.none_leaves()
        if need is not None:
            self.observer.evicted(begun, need, copies)
        return copies

    def rebuild(self, copies: Sequence[Copy], wrong: Mapping[int, Exception]) -> int:
        """Give up what a reader found damaged of some copies; returns how many those were.

        What could not be reached stays: its tier counts as unreachable meanwhile.
        """
        damaged = {k: error for k, error in wrong.items() if isinstance(error, ChunkDamaged)}
        objects: dict[str, tuple[Copy, ChunkDamaged]] = {}
        for k, error in damaged.items():
            objects.setdefault(copies[k].key, (copies[k], error))  # a block has many pictures
        for copy, error in objects.values():
            _log.warning("rebuilding an object: %s", error, extra={"action": "rebuild"})
            self.damaged(copy)
        return len(damaged)

    def rested(self) -> None:
        """Nothing is to be moved: who waits for that may go on."""
        with self._board.changed:
            self._board.changed.notify_all()

    def next_needed(self, count: int) -> list[str]:
        """Keys of the next objects that readers will need, the soonest first; about ``count`` of each task."""
        with self._board.changed:
            return self._board.next_needed(count)

    def recurring_work(self) -> list[Work[str]]:
        """Work with objects that are read in each epoch, of generations which have begun first."""
        with self._board.changed:
            return self._board.recurring_work()

    def waiting(self) -> int:
        """How many readers wait now."""
        return self._board.waiting()

    def protected(self) -> set[str]:
        """Keys of all that the oldest waiting reader wants."""
        with self._board.changed:
            return protected_keys(self._board)

    def next_due_in_s(self, key: str) -> float | None:
        """Seconds until an object is needed next by work that is known; None if it is not."""
        with self._board.changed:
            return min((due for work in self._works() if (due := work.next_due_in_s(key)) is not None), default=None)


def _bytes(copies: list[Copy]) -> int:
    return sum(copy.bytes for copy in copies)
