"""Who is next: what the dispatcher makes, and which jobs are interrupted or given up (SAND §5.4).

Demand comes before look-ahead. Of look-ahead, what is due soonest comes first; while memory is short, what is done
soonest, because what is half made holds memory until it is done.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from viewcache.materializer.scheduling.demand import Board
from viewcache.materializer.scheduling.pressure import Pace, Pressure, allowance, in_use
from viewcache.materializer.scheduling.running import Running
from viewcache.materializer.scheduling.work import Work, edges_of
from viewcache.materializer.storage.codecs import CodecChooser
from viewcache.materializer.workers.job import Place
from viewcache.materializer.workers.pool import Held

__all__ = ["PATIENCE_S", "Choice", "Chooser", "EngineSettings"]

PATIENCE_S = 3.0
"""How long a reader waits for a worker before a job of look-ahead gives up its rest, and with it work half done: a
reader that always waits, because it reads as fast as it can, is served soonest by wasting nothing."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What the cache's settings say about making things."""

    place: Place
    """Where and how objects are written."""
    codecs: CodecChooser
    """Says how each is packed."""
    job_bytes: int
    """Most raw bytes that one job holds in memory at a time."""
    demand_reserve: int
    """Bytes of the budget that look-ahead leaves free, so that a demand need not wait for an eviction."""
    memory_bytes: int = 8 << 30
    """Most raw bytes that all jobs hold in memory."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is made next."""

    work: Work
    rows: list[int]
    """Of one video."""
    demanded: bool
    """Whether a reader waits for them."""


class Chooser:
    """Chooses by demand, then by deadline or, under pressure, by what is left. One dispatcher thread uses it."""

    def __init__(self, board: Board, settings: EngineSettings) -> None:
        """Choose from what stands on the board, within the settings' memory."""
        self._board = board
        self._job_bytes = settings.job_bytes
        self._declared_bytes = 0
        self._pace = Pace()
        self._stuck: tuple[int, int] | None = None
        """The oldest demand that no worker could be given: identity of the work, and row."""
        self._stuck_since = 0.0
        self._buried_since: dict[int, float] = {}
        """Paused jobs that a reader waits for, under what nobody waits for."""
        self.pressure = Pressure(settings.memory_bytes)

    def next(self, *, ahead: bool, only_soon: bool) -> Choice | None:
        """What is made next; None if there is nothing.

        Args:
            ahead: whether there may be room for what nobody waits for.
            only_soon: of that only what may evict.
        """
        demand = self._board.next_demand()
        if demand is not None:
            work, rows = demand
            return Choice(work, self._fitting(work, rows), demanded=True)
        if not ahead:
            return None
        chosen = self._shortest(only_soon) if self.pressure.on else self._board.next_ahead(only_soon)
        return None if chosen is None else Choice(*chosen, demanded=False)

    def _fitting(self, work: Work, rows: list[int]) -> list[int]:
        """As many rows as one job may hold, at least one; the others are the next job's."""
        count, held = 0, 0
        while count < len(rows) and (not count or held + work.held(rows[count]) <= self._job_bytes):
            held += work.held(rows[count])
            count += 1
        return rows[:count]

    def _shortest(self, only_soon: bool) -> tuple[Work, list[int]] | None:
        """The soonest row of the video of which the least is left to be done."""
        again = True
        with self._board.changed:
            while again:
                again = False
                left = [(work, row, edges) for work in self._board.ahead for row, edges in work.unmade()]
                for work, row, _ in sorted(left, key=lambda each: self._pace.cost(each[0].video(each[1]), each[2])):
                    if only_soon and not work.is_soon(row):
                        continue
                    if not self._board.is_made(work, row):
                        return work, [row]
                    again = True
        return None

    # Interrupting --------------------------------------------------------------------------------------------------

    def unwanted(self, running: Mapping[int, Running]) -> frozenset[int]:
        """Numbers of the jobs that make nothing that a reader waits for: they may be interrupted for one."""
        wanted = self._board.wanted_keys()
        return frozenset(number for number, each in running.items() if not wanted & each.wanted.keys())

    def to_yield(
        self, running: Mapping[int, Running], begun: Iterable[Sequence[int]], *, at_once: bool
    ) -> frozenset[int]:
        """Numbers of the jobs that are to give up their rest for a reader, which has waited a while for a worker.

        Args:
            running: all jobs.
            begun: numbers of each worker's jobs, the one it is on last (`Pool.begun`).
            at_once: the reader lacks room and not a worker; waiting would not help it. So it is while memory is short.
        """
        demand, now = self._board.next_demand(), time.monotonic()
        stuck = None if demand is None else (id(demand[0]), demand[1][0])
        if stuck != self._stuck:
            self._stuck, self._stuck_since = stuck, now
        at_once |= self.pressure.on
        if stuck is None or (not at_once and now - self._stuck_since < PATIENCE_S):
            return self._over_wanted(running, begun, now, 0.0 if at_once else PATIENCE_S)
        return self.unwanted(running)

    def _over_wanted(
        self, running: Mapping[int, Running], begun: Iterable[Sequence[int]], now: float, patience_s: float
    ) -> frozenset[int]:
        """Jobs that nobody waits for, over a paused one that somebody has waited for so long."""
        several = [stack for stack in begun if len(stack) > 1]
        unwanted = self.unwanted(running) if several else frozenset[int]()
        over = {each: top for *below, top in several if top in unwanted for each in below if each not in unwanted}
        self._buried_since = {each: self._buried_since.get(each, now) for each in over}
        return frozenset(top for each, top in over.items() if now - self._buried_since[each] >= patience_s)

    def forsaken(self, running: Mapping[int, Running]) -> frozenset[int]:
        """Numbers of the jobs to give up: their task has left or their reader has gone, and nobody else needs them."""
        with self._board.changed:
            left = [number for number, each in running.items() if self._lost_somebody(each)]
            self._board.given_up.intersection_update(key for each in running.values() for key in each.wanted)
            wanted = self._board.wanted_keys() if left else set()
            return frozenset(number for number in left if not self._is_needed(running[number], wanted))

    def _lost_somebody(self, running: Running) -> bool:
        gone, given_up = self._board.gone, self._board.given_up
        if not gone and not given_up:
            return False
        rows = (work.task_id in gone for same in running.wanted.values() for work, _ in same)
        return not given_up.isdisjoint(running.wanted) or any(rows)

    def _is_needed(self, running: Running, wanted: set[str]) -> bool:
        """Whether a reader waits for something of a job, or it is worth making ahead."""
        if not wanted.isdisjoint(running.wanted):
            return True
        return any(work.next_need_s(key) is not None for key in running.wanted for work in self._board.ahead)

    # Memory --------------------------------------------------------------------------------------------------------

    def measure(self, held: Iterable[Held], running: Mapping[int, Running]) -> None:
        """Take in what workers hold now, and what their jobs declare."""
        declared = {number: each.declared for number, each in running.items()}
        self._declared_bytes = sum(declared.values())
        self.pressure.note(in_use(held, declared))

    def allowance(self, least: int, *, demanded: bool) -> int:
        """Most raw bytes that a new job may hold, given what it cannot do without; 0 = it must wait for others."""
        limit, most = self.pressure.limit_bytes, self._job_bytes
        return allowance(limit, self._declared_bytes, most, least, demanded=demanded)

    def learn(self, running: Running) -> None:
        """A job is over: note what its edges took."""
        made = [clip for clip in running.job.clips if clip.key not in running.wanted]
        if made:
            self._pace.note(running.job.video_key, sum(map(edges_of, made)), sum(running.seconds.values()))
