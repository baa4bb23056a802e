"""Applies the rules of who is next to what stands on the board, with the memory and the patience of one dispatcher."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.recipe import KeptFile
from viewcache.materializer.scheduling.demand import Board
from viewcache.materializer.scheduling.pressure import Pace, Pressure, allowance, in_use
from viewcache.materializer.scheduling.rules import NextJob, Patience, abandoned, next_job, preempt, preemptible
from viewcache.materializer.scheduling.running import Running
from viewcache.materializer.scheduling.work import edges_of
from viewcache.materializer.storage.codecs import CodecChooser
from viewcache.materializer.workers.job import Target
from viewcache.materializer.workers.pool import Held
from viewcache.store.codec_trial import Trial

__all__ = ["Chooser", "DispatcherSettings"]


@dataclass(frozen=True, slots=True)
class DispatcherSettings:
    """What the cache's settings say about making things."""

    target: Target
    """Where and how objects are written."""
    codecs: CodecChooser
    """Says how each is packed."""
    job_bytes: int
    """Most raw bytes that one job holds in memory at a time."""
    demand_reserve: int
    """Bytes of the budget that look-ahead leaves free, so that a demand need not wait for an eviction."""
    memory_bytes: int = 8 << 30
    """Most raw bytes that all jobs hold in memory, and the clips that pass through it."""
    cost: Callable[[], CostModel] = CostModel
    """Says what work costs, as far as it was measured."""
    near_of: Callable[[str], KeptFile | None] = lambda _: None
    """Tells the copy of a video's file, by the video's content key; None if none is kept."""
    tried: Callable[[str, Sequence[Trial]], None] = lambda *_: None
    """Told how well pictures of a video were packed, with its content key."""

    def note_trials(self, video: str, trials: Sequence[Trial]) -> None:
        """Tell all who want to know how well something of a video, by its content key, was packed."""
        self.codecs.note(video, trials)
        self.tried(video, trials)


class Chooser:
    """Chooses by demand, then by deadline or, under pressure, by what is left. One dispatcher thread uses it."""

    def __init__(self, board: Board, settings: DispatcherSettings, pressure: Pressure | None = None) -> None:
        """Choose from what stands on the board, within the settings' memory; ``pressure`` says when that is short."""
        self._board = board
        self._job_bytes = settings.job_bytes
        self._declared_bytes = self._passing_bytes = 0
        self._pace = Pace()
        self.patience = Patience()
        self.pressure = pressure or Pressure(settings.memory_bytes)

    def next(self, *, ahead: bool, only_soon: bool) -> NextJob[str] | None:
        """What is made next, see `next_job`."""
        cost = self._pace.cost if self.pressure.on else None
        with self._board.changed:
            return next_job(self._board, ahead=ahead, only_soon=only_soon, job_bytes=self._job_bytes, cost=cost)

    def preemptible(self) -> frozenset[int]:
        """Numbers of the jobs that may be interrupted for a reader, see `preemptible`."""
        with self._board.changed:
            return preemptible(self._board)

    def to_preempt(self, begun: Iterable[Sequence[int]], *, at_once: bool) -> frozenset[int]:
        """Numbers of the jobs that are to give up their rest for a reader, see `preempt`."""
        at_once |= self.pressure.on
        with self._board.changed:
            return preempt(self._board, begun, self.patience, time.monotonic(), at_once=at_once)

    def abandoned(self) -> frozenset[int]:
        """Numbers of the jobs to cancel, see `abandoned`."""
        with self._board.changed:
            return abandoned(self._board)

    # Memory --------------------------------------------------------------------------------------------------------

    def measure(self, held: Iterable[Held], running: Mapping[int, Running], passing_bytes: int) -> None:
        """Take in what workers hold now, what their jobs declare, and what passes through memory."""
        declared = {number: each.declared for number, each in running.items()}
        self._declared_bytes = sum(declared.values())
        self._passing_bytes = passing_bytes
        self.pressure.note(in_use(held, declared) + passing_bytes)

    def allowance(self, least: int, *, demanded: bool) -> int:
        """Most raw bytes that a new job may hold, given what it cannot do without; 0 = it must wait for others."""
        limit, most = self.pressure.limit_bytes - self._passing_bytes, self._job_bytes
        return allowance(limit, self._declared_bytes, most, least, demanded=demanded)

    def learn(self, running: Running) -> None:
        """A job is over: note what its edges took."""
        made = [clip for clip in running.job.clips if clip.key not in running.wanted]
        if made:
            self._pace.note(running.job.video_key, sum(map(edges_of, made)), sum(running.seconds.values()))
