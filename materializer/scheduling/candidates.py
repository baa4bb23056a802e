"""What would leave next, asked for by a thread, and kept ready where the policy takes long: no job waits for it.

A policy's query looks at every copy of a tier: seconds, at a million of them. Who may not wait that long hears after a
moment that there is no answer yet, goes on with other work, and is told when there is one.
"""

import heapq
import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence, Set

from viewcache.errors import ViewcacheError
from viewcache.materializer.storage.ledger import Copy

__all__ = ["Candidates", "rest_s"]

_log = logging.getLogger("viewcache.evictor")

SLOW_S = 0.25
"""A policy that takes longer to ask is asked ahead, and is not waited for longer than that."""
FRESH_S = 10.0
"""Older candidates are still good, but others are asked for: reads and drawn orders have moved on."""
REST, LONGEST_REST_S = 20, 5.0
"""After an answer of which nothing could leave, who can wait has the policy asked again when so many times as long has
gone by as that took, and at most so many seconds: each reader that moves on is an occasion, and asking a small catalog
takes 20 ms."""
SHARE = 10
"""One part of so many of the tier is asked for ahead; when half of it has left, the policy is asked again."""


def rest_s(took_s: float) -> float:
    """How long a policy is not asked again, of whose answer nothing could leave."""
    return min(REST * took_s, LONGEST_REST_S)


class Candidates:
    """The copies of one tier that a policy would have leave first, in its order. Thread-safe."""

    def __init__(
        self,
        ask: Callable[[int], list[Copy]],
        is_there: Callable[[Copy], bool],
        budget_bytes: int,
        answered: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is ready yet, and no thread runs.

        Args:
            ask: asks the policy for copies of so many bytes.
            is_there: whether a copy is still in the tier.
            budget_bytes: of the tier.
            answered: called by the thread when there is an answer that somebody went away without.
            clock: seconds that only grow.
        """
        self._ask = ask
        self._is_there = is_there
        self._ahead = budget_bytes // SHARE
        self._told = answered
        self._clock = clock
        self._changed = threading.Condition()
        self._ready: list[tuple[int, Copy]] = []
        """A heap, by place in the policy's order."""
        self._taken: dict[str, int] = {}
        """Key of what was taken since the policy was asked → its place."""
        self._bytes = 0
        """Of those that are ready."""
        self._asked_at = self._took_s = 0.0
        self._rests_until = 0.0
        """Until then who can wait has nobody asked."""
        self._asking = self._is_urgent = False
        self._is_begun = False
        """The policy is being asked the question; until then another may take its place."""
        self._question: tuple[int, Hashable] = (0, None)
        """Bytes that the thread asks for, 0 = it asks ahead; and the occasion, if there is one."""
        self._answered: tuple[int, Hashable] = (0, None)
        """The question that was answered last."""
        self._error: ViewcacheError | None = None
        """Why the policy gave no answer to it."""
        self._waiting: set[Hashable] = set()
        """Who has gone away without an answer; None is nobody who reads."""
        self._telling = False
        """They are being told of it."""
        self._owed: dict[Hashable, ViewcacheError] = {}
        """What he is to hear: an answer that failed may have taken long, and on his next occasion it would again."""
        self._is_slow = False
        """Asking took long the last time."""
        self._thread: threading.Thread | None = None
        self._closed = False

    def take(self, need: int, spared: Set[str], most: int = 1 << 30, occasion: Hashable = None) -> list[Copy]:
        """Take the first of what was asked for ahead: so many bytes, or all; nothing where nothing is asked ahead.

        Args:
            need: bytes.
            spared: keys of what may not leave now; it stays in its place.
            most: copies at most.
            occasion: as in `answer`; what was asked on it is not asked again because little is left.
        """
        with self._changed:
            if not self._is_slow:
                return []
            taken = self._first(need, spared, most)
            again = occasion is None or self._answered[1] != occasion
            if (again and self._bytes < self._ahead // 2) or self._clock() - self._asked_at > FRESH_S:
                self._start(0, occasion)
            return taken

    def answer(
        self, need: int, spared: Set[str], occasion: Hashable, *, can_wait: bool = False, who: Hashable = None
    ) -> list[Copy] | None:
        """Take the first of what the policy says on an occasion, asked by the thread; None = it has yet to answer.

        On the same occasion it is asked once. What it gave and was taken and put back is given again, the rest of it
        too; when there is nothing more, that is final.

        Args:
            need: bytes.
            spared: keys of what may not leave now.
            occasion: changes when another answer can be expected; not None.
            can_wait: whether it may take longer, where the last answer was in vain.
            who: the reader whom it is for; None = nobody waits.

        Raises:
            ViewcacheError: the policy could not be asked; on this occasion, or when it was asked last for a reader who
                went away without an answer, and asks again.
        """
        with self._changed:
            if (owed := self._owed.pop(who, None)) is not None:
                raise owed
            rests = can_wait and self._clock() < self._rests_until
            patience = 0.0 if self._is_slow or rests else SLOW_S
            while not self._is_answered(need, occasion):
                self._is_urgent = self._is_urgent or not can_wait
                self._start(need, occasion)  # when it is asking something else: once that is over
                if self._closed or not self._changed.wait_for(lambda: not self._asking, patience):
                    if not self._closed:
                        self._waiting.add(who)
                    return None
            if self._error is not None:
                raise self._error
            return self._first(need, spared)

    def is_awaited(self) -> bool:
        """Whether somebody has gone away without an answer and was not told yet that there is one."""
        return bool(self._waiting) or self._telling

    def in_vain(self) -> None:
        """Of the last answer nothing could leave."""
        with self._changed:
            self._rests_until = self._asked_at + rest_s(self._took_s)

    def reconsider(self) -> None:
        """Something may leave that could not."""
        with self._changed:
            if self._clock() < self._rests_until:
                self._rests_until, self._is_urgent = 0.0, self._asking
                self._changed.notify_all()

    def put_back(self, copies: Sequence[Copy]) -> None:
        """These were taken, and stay for now."""
        with self._changed:
            self._put(copies)

    def ask(self, need: int) -> list[Copy]:
        """Ask the policy now and wait for it; if that takes long, the thread begins to ask ahead."""
        begun = self._clock()
        found = self._ask(need)
        with self._changed:
            self._is_slow = self._clock() - begun > SLOW_S
            if self._is_slow:
                self._start()
        return found

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until the thread is not asking; False when the time is over."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._asking, timeout_s)

    def close(self) -> None:
        """End the thread; what it is asking comes to its end first."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _first(self, need: int, spared: Set[str], most: int = 1 << 30) -> list[Copy]:
        """Take the first that are there and may leave; the lock is held."""
        taken: list[Copy] = []
        kept: list[Copy] = []
        found = 0
        while self._ready and found < need and len(taken) < most:
            copy = self._pop()
            if copy.key in spared:
                kept.append(copy)
            elif self._is_there(copy):
                taken.append(copy)
                found += copy.bytes
        self._put(kept)
        return taken

    def _is_answered(self, need: int, occasion: Hashable) -> bool:
        asked, then = self._answered
        return then == occasion and need <= asked

    def _pop(self) -> Copy:
        place, copy = heapq.heappop(self._ready)
        self._taken[copy.key] = place
        self._bytes -= copy.bytes
        return copy

    def _put(self, copies: Iterable[Copy]) -> None:
        """In their places, unless the policy was asked again meanwhile: then they are among the others."""
        for copy in copies:
            place = self._taken.pop(copy.key, None)
            if place is not None:
                heapq.heappush(self._ready, (place, copy))
                self._bytes += copy.bytes

    def _start(self, need: int = 0, occasion: Hashable = None) -> None:
        """Have the thread ask, unless it is asking; the lock is held."""
        if self._closed or (self._asking and (self._is_begun or not need)):
            return
        if self._asking and self._question[1] == occasion:
            need = max(need, self._question[0])
        self._asking, self._question = True, (need, occasion)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="viewcache-candidates", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asking or self._closed)
                self._changed.wait_for(
                    lambda: self._is_urgent or self._closed, max(0.0, self._rests_until - self._clock())
                )
                if self._closed:
                    return
                self._is_begun, self._is_urgent = True, False
                need, occasion = self._question
                if not need or self._is_slow:
                    need = max(need, self._ahead)
            begun = self._clock()
            error: ViewcacheError | None = None
            found: list[Copy] = []
            try:
                found = self._ask(need)
            except ViewcacheError as failure:  # who needs room is told
                _log.warning("candidates could not be asked for ahead: %s", failure, extra={"action": "evict_ahead"})
                error = failure
            with self._changed:
                self._ready, self._bytes = list(enumerate(found)), sum(copy.bytes for copy in found)
                self._taken.clear()
                self._answered, self._error = (need, occasion), error
                self._owed = {} if error is None else dict.fromkeys(self._waiting - {None}, error)
                self._telling = bool(self._waiting)
                self._waiting.clear()
                self._asked_at, self._asking, self._is_begun = self._clock(), False, False
                self._took_s = self._asked_at - begun
                # Once was chance, a busy machine for example: who needs room asks again, which is more exact.
                self._is_slow = self._took_s > SLOW_S
                self._changed.notify_all()
            if self._telling:
                self._told()
                self._telling = False
