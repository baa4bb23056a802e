"""Trims tiers: clips of generations that are over leave while nothing urgent is done (docs/design/0048).

The mover calls it between its moves. It asks the catalog when a reader comes to another generation, an epoch later, and
when something was given up, and lets few copies leave at a time; while a reader waits, none. The trade-off: what is
trimmed is made again if somebody goes back behind the generation that is being read.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from itertools import islice

from viewcache.catalog import Catalog
from viewcache.errors import ViewcacheError
from viewcache.materializer.scheduling.evictor import READY_BYTES, READY_COPIES, Evictor
from viewcache.materializer.storage.ledger import Copy, Ledger

__all__ = ["REASON", "Trim"]

_log = logging.getLogger("viewcache.trim")

REASON = "nothing wants it any more: its generation is over"
"""What ``evictions`` says of each."""

ASKED_COPIES = 16 * READY_COPIES
"""Of so many it is asked at once."""

FRESH_S = 1.0
"""After so long it is asked again whether nothing wants what is still to leave: a task may have come, a file gone."""


class Trim:
    """Lets leave what nothing wants any more. One thread uses it."""

    def __init__(
        self,
        ledger: Ledger,
        evictor: Evictor,
        catalog: Catalog,
        going: Callable[[], Sequence[tuple[int, int | None, bool]]],
        has_turned: Callable[[], bool],
        may_last: Callable[[str, int], bool],
        expected: Callable[[], Collection[int]],
    ) -> None:
        """Nothing is to leave yet.

        Args:
            ledger: what lies where.
            evictor: lets it leave.
            catalog: knows what is over.
            going: tells which tasks are open, see `Catalog.outlived`.
            has_turned: whether a reader has come to another epoch since this was asked last.
            may_last: whether pictures may last behind their generation, by content key and number of the video.
            expected: tells which objects are of use in epochs that are not planned, see `Catalog.expect_uses`: they are
                not over, and where nothing else lies the catalog need not be asked.
        """
        self._ledger = ledger
        self._evictor = evictor
        self._catalog = catalog
        self._going = going
        self._has_turned = has_turned
        self._may_last = may_last
        self._expected = expected
        self._waiting: deque[Copy] = deque()
        """What is to leave, the oldest first."""
        self._is_due = False
        """Whether it is to be asked what is over: a reader came to another generation, say."""
        self._asked_at = 0.0
        """When it was asked last whether nothing wants it, monotonic seconds."""
        self._fresh = 0
        """Of so many that leave next it was asked then."""

    def some(self) -> bool:
        """Let a few copies leave, unless a reader waits; returns whether there may be more."""
        if self._evictor.waiting():
            return False
        try:
            self._is_due = self._has_turned() or self._is_due
            if self._is_due:
                if self._ledger.has_only(self._expected()):
                    self._waiting.clear()
                else:
                    self._ask()
                self._is_due = False
            if not self._waiting:
                return False
            if not self._fresh or time.monotonic() - self._asked_at > FRESH_S:
                self._ask_again()
            self._leave()
        except ViewcacheError as error:  # the catalog's disk is full, say: when room is short the policy is asked
            _log.warning("nothing is trimmed for now: %s", error, extra={"action": "trim_failed"})
            self._waiting.clear()
            return False
        return True

    def _ask(self) -> None:
        """What is over now."""
        self._catalog.flush()  # how far readers are
        rows = self._catalog.outlived(self._going())
        self._asked_at, self._fresh = time.monotonic(), rows.num_rows  # after it: that may have taken long
        columns = ("key", "tier", "last_epoch", "pictures_of")
        places = zip(*(rows[name].to_pylist() for name in columns), strict=True)
        # What lasts is replaced, or stays: where no epoch is left it may be of use to another training.
        leaving = (
            (key, tier) for key, tier, epoch, of in places if epoch < 0 or of is None or not self._may_last(key, of)
        )
        found = (self._ledger.find(*place) for place in leaving)
        self._waiting = deque(copy for copy in found if copy is not None and self._ledger.is_reachable(copy.tier))

    def _ask_again(self) -> None:
        some = list(islice(self._waiting, ASKED_COPIES))
        ids = [copy.object_id for copy in some]
        stays = self._catalog.wanted_among(ids) | self._catalog.lost_among(ids)  # a file may have gone since
        for _ in some:
            self._waiting.popleft()
        still = [copy for copy in some if copy.object_id not in stays]
        self._waiting.extendleft(reversed(still))
        self._asked_at, self._fresh = time.monotonic(), len(still)

    def _leave(self) -> None:
        """The next few, all of one tier."""
        ready = list(islice(self._waiting, min(READY_COPIES, self._fresh)))
        some: list[Copy] = []
        size = 0
        for copy in ready:
            if copy.tier != ready[0].tier or size >= READY_BYTES:
                break
            self._waiting.popleft()
            self._fresh -= 1
            if self._evictor.next_due_in_s(copy.key) is None:
                some.append(copy)
                size += copy.bytes
        if some:
            self._evictor.give_up(some, REASON)
