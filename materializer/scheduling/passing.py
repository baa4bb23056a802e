"""Clips that pass through memory: places for them before they are made, and back again when they were read (0045)."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from viewcache.errors import ViewcacheError
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.scheduling.demand import Board
from viewcache.materializer.scheduling.evictor import Evictor
from viewcache.materializer.scheduling.passing_rules import Handling, OneUse, handling, leaving
from viewcache.materializer.scheduling.rules import Candidate, NextJob, wanted_keys
from viewcache.materializer.scheduling.work import Makeable, Work
from viewcache.materializer.storage.ledger import Copy, Ledger
from viewcache.materializer.workers.job import PassingTarget, Target
from viewcache.store import Reservation, Written
from viewcache.store.passing import Passage, PassingMemory
from viewcache.store.tier import LOCAL, MEMORY, PASSING

__all__ = ["Passing"]

_log = logging.getLogger("viewcache.passing")

AGAIN_S = 5.0
"""How often the measured costs are asked for at most."""

PATIENCE_S = 0.25
"""How long they are waited for, which else takes milliseconds; later they count from the next job on."""

OFF_S = 60.0
"""How long all clips are stored after a job failed that was to let some pass."""


class Passing:
    """The clips in memory, for one dispatcher. The board's lock guards it."""

    def __init__(
        self,
        memory: PassingMemory | None,
        ledger: Ledger,
        board: Board,
        evictor: Evictor,
        works: Callable[[], list[Work[str]]],
        cost: Callable[[], CostModel],
        is_short: Callable[[], bool],
        free_bytes: Callable[[], int],
    ) -> None:
        """Nothing passes yet.

        Args:
            memory: where clips lie; None = all are stored.
            ledger: what lies where.
            board: who waits for what, and who reads.
            evictor: the way in which copies leave.
            works: all work that somebody knows of.
            cost: what work costs, as measured.
            is_short: whether memory is short: then only what readers wait for passes.
            free_bytes: of the folder, where everything else goes.
        """
        self._is_short = is_short
        self._free_bytes = free_bytes
        self._memory = memory
        self._ledger = ledger
        self._board = board
        self._evictor = evictor
        self._works = works
        self._costs = cost
        self._cost, self._asked = CostModel(), -AGAIN_S
        self._learning: threading.Thread | None = None
        """Asks for them."""
        self._off_until = 0.0
        """Monotonic seconds."""
        self._had: dict[str, Copy] = {}
        """What readers have had, and may need again."""
        self._is_leaving = False
        """Whether jobs of a task that was left go on."""

    @property
    def bytes(self) -> int:
        """Of memory, that it takes now or has promised."""
        return 0 if self._memory is None else self._memory.counted_bytes

    # Before a job ---------------------------------------------------------------------------------------------------

    def of_job(
        self, choice: NextJob[str], candidates: list[Candidate[str]], memory: int
    ) -> tuple[list[Candidate[str]], dict[str, Reservation | Passage]]:
        """What a job can make, without what is better made later; and places for what passes.

        Args:
            choice: what the job is for.
            candidates: what it can make.
            memory: raw bytes that it may hold; 0 asks for no places.
        """
        if self._memory is None or time.monotonic() < self._off_until:
            return candidates, {}
        works, asked = self._works(), set(choice.work.keys(choice.rows))
        ahead = not self._is_short()
        tight = self._free_bytes() < sum(each.bytes_to_come() for each in works)
        beside = {other.video(row) for _, other, row, _ in candidates if other.rides}
        stays: list[Candidate[str]] = []
        places: dict[str, Reservation | Passage] = {}
        seen: dict[tuple[int, str], Handling] = {}
        for candidate in candidates:
            due_s, work, row, _ = candidate
            key = work.key(row)
            way = seen.get((id(work), key))
            is_first = way is None  # of the rows of a block the one that is needed first decides
            if way is None:
                way = Handling.STORE
                if key not in places and work.is_unkept(row) and self._board.objects.is_planned(key):
                    clip = self._one_use(work, row, works, choice, tight=tight)
                    way = handling(replace(clip, kept_beside=work.video(row) in beside), self._cost)
                seen[id(work), key] = way
            if way is Handling.LATER and key not in asked:
                continue
            stays.append(candidate)
            demanded = choice.demanded and key in asked
            if way is Handling.PASS and is_first and (ahead or demanded) and work.held(row) <= memory:
                place = self._place(work.bound(row), due_s, demanded=demanded)
                if place is not None:
                    places[key] = place
                    memory -= work.held(row)
        return stays, places

    def unused(self, places: Mapping[str, Reservation | Passage]) -> None:
        """No job has taken these."""
        for place in places.values():
            place.release()

    def _one_use(
        self, work: Work[str], row: int, works: Sequence[Work[str]], choice: NextJob[str], *, tight: bool
    ) -> OneUse:
        """What is known of a row's clip."""
        key = work.key(row)
        uses, pictures = sum(each.uses_to_come(key) for each in works), self._pictures_bytes(work, row)
        read = self._board.is_read(work.task_id) or (choice.demanded and choice.work is work)
        soon = work.is_soon(row) or (choice.demanded and work is choice.work and row in choice.rows)
        return OneUse(work.bound(row), True, uses, soon, read, pictures, tight)

    def _pictures_bytes(self, work: Work[str], row: int) -> int | None:
        """Of the kept pictures that a clip would be made from, if they are there."""
        if not isinstance(work, Makeable):
            return None
        for each in work.intermediates(row):
            if any(self._ledger.lies_in(each.key, tier) for tier in (MEMORY, LOCAL)):
                return each.recipe.bound // max(1, len(each.recipe.frames)) * work.pictures(row)
        return None

    def _place(self, size: int, due_s: float, *, demanded: bool) -> Passage | None:
        """A place, for which what is needed later leaves; None if there is none: then the clip is stored."""
        assert self._memory is not None
        place = self._memory.claim(size)
        if place is not None:
            return place
        # Readers that together want more than there is room for take turns, instead of taking each other's clips.
        spared = self._evictor.protected() if demanded else wanted_keys(self._board)
        lying = [
            (copy, self._evictor.next_due_in_s(key), copy.bytes)
            for key, copy in self._ledger.copies(PASSING).items()
            if key not in spared
        ]
        gone = leaving(lying, size, due_s)
        if gone:
            self._evictor.give_up(gone)
            place = self._memory.claim(size)
        return place

    def learn(self) -> None:
        """Ask for what work costs, now and then; a catalog that does not answer is not waited for."""
        now = time.monotonic()
        if self._memory is None or now - self._asked < AGAIN_S or (self._learning and self._learning.is_alive()):
            return
        self._asked = now
        asking = threading.Thread(target=self._learn, name="viewcache-costs", daemon=True)
        try:
            asking.start()
        except RuntimeError as error:  # the process has as many threads as it may
            _log.info("clips are handled by the costs of before: %s", error, extra={"action": "passing_costs"})
            return
        self._learning = asking
        asking.join(PATIENCE_S)

    def _learn(self) -> None:
        try:
            self._cost = self._costs()
        except ViewcacheError as error:  # the catalog is being opened again, say
            _log.info("clips are handled by the costs of before: %s", error, extra={"action": "passing_costs"})

    def close(self) -> None:
        """Ask for no costs any more."""
        if self._learning is not None:
            self._learning.join()

    def target(self, folder: Target, places: Mapping[str, Passage]) -> Target:
        """Where a job writes."""
        if not places or self._memory is None:
            return folder
        return PassingTarget(folder, self._memory.handle, {key: each.place for key, each in places.items()})

    # After it -------------------------------------------------------------------------------------------------------

    def arrived(self, passage: Passage, copy: Copy, written: Written) -> None:
        """A worker has made a clip that passes: its reader may have it."""
        passage.arrived(written.physical)
        here = replace(copy, tier=PASSING)
        self._ledger.let_pass(here)
        with self._board.changed:
            if self._evictor.next_due_in_s(copy.key) is None and copy.key not in wanted_keys(self._board):
                self._evictor.passed([here])  # its task was left, or its reader jumped, while it was being made

    def failed(self, why: str) -> None:
        """A job failed that had places: it may be that a worker cannot write there, so nothing passes for a while."""
        _log.warning(
            "clips are stored for %.0f s, as they did not pass: %s", OFF_S, why, extra={"action": "passing_off"}
        )
        self._off_until = time.monotonic() + OFF_S

    def had(self, copies: Sequence[Copy]) -> None:
        """Readers let go of copies: what passed and nobody needs any more gives its place back."""
        if any(copy.tier == LOCAL for copy in copies):
            self._evictor.reconsider()
        passed = {copy.key: copy for copy in copies if copy.tier == PASSING}
        if passed:
            with self._board.changed:
                self._had |= passed
                self.moved_on()

    def moved_on(self) -> None:
        """Readers have moved: the same for what was had before; the lock is held."""
        if not self._had:
            return
        done = [copy for key, copy in self._had.items() if self._evictor.next_due_in_s(key) is None]
        gone = self._evictor.passed(done)
        for copy in gone:
            del self._had[copy.key]
        for key in [key for key, copy in self._had.items() if self._ledger.find(key, PASSING) is not copy]:
            del self._had[key]

    def left(self) -> None:
        """A task was left: what only its readers needed goes, now or when its last job is over; the lock is held."""
        unneeded = [
            copy for key, copy in self._ledger.copies(PASSING).items() if self._evictor.next_due_in_s(key) is None
        ]
        self._evictor.passed(unneeded)
        self._is_leaving = any(work.task_id in self._board.gone for work in self._works())  # a job counts as a need

    def rest(self) -> None:
        """Give places that wait for a clip back to the machine, if none came for a while, or memory is short."""
        if self._is_leaving:
            with self._board.changed:
                self.left()
        if self._memory is not None and self._is_short():
            self._memory.trim()
        elif self._memory is not None:
            self._memory.trim_unused()
