"""Reading under a budget, simulated: planned uses, the dispatcher's rules, and the seconds that work is known to take.

An event is a batch that is asked for or read, or an object that a worker has made. For u uses, o objects made and b
objects in the store a run is O((u + o) log b), decisions of what is kept apart (docs/design/0015).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush
from itertools import count

import numpy as np

from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.retention.chosen import KeepSettings
from viewcache.materializer.retention.horizon import epochs_left
from viewcache.materializer.retention.settled import Settled
from viewcache.materializer.retention.ways import Kept, Way
from viewcache.materializer.scheduling.intermediate_work import IntermediateSchedule
from viewcache.materializer.scheduling.work import Demand, Position
from viewcache.materializer.simulation.simulated_dispatcher import SimulatedDispatcher, SimulatedWork, SimulatedWorker
from viewcache.materializer.simulation.simulated_keeping import Decision, IntermediateNeeds, decide
from viewcache.materializer.simulation.simulated_store import (
    Item,
    SimulatedGeneration,
    SimulatedIntermediate,
    SimulatedStore,
)
from viewcache.materializer.simulation.simulated_uses import UseTrace, groups_of, stored_bytes

__all__ = ["EpochFigures", "Figures", "Setting", "decodes_more", "simulate"]

START_S = 0.33
"""Until a worker process that was just started begins its first job; measured."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a simulation is of."""

    keep: KeepSettings
    cost: CostModel
    workers: int
    demand_reserve: int
    """As in `DispatcherSettings`."""
    paces_s: tuple[float, ...]
    """Of each task: seconds that its consumer takes a batch."""
    prefetch: int = 0
    """Batches that the loader reads before they are asked for; 0 = `Cache.read`."""
    disk_share: float = 1.0
    """Packed bytes for a byte of pixels, metadata apart."""
    start_s: float = START_S
    passing_bytes: int = 0
    """Of memory, for clips that pass through it, see `passing_bytes`."""


@dataclass(slots=True)
class EpochFigures:
    """One epoch, all tasks together."""

    uses: int = 0
    hits: int = 0
    """Clips that were in the store when they were asked for."""
    waited_s: float = 0.0
    """In which consumers waited for clips that were being made."""
    wall_s: float = 0.0
    """From the end of the epoch before to its own, added up over tasks."""
    begun_s: float = math.inf
    """When its first batch was asked for."""

    @property
    def stall(self) -> float:
        """Part of the time that is waited."""
        return self.waited_s / self.wall_s if self.wall_s else 0.0


@dataclass(slots=True)
class Figures:
    """What a simulation counted."""

    epochs: dict[int, EpochFigures] = field(default_factory=dict)
    made: SimulatedWork = field(default_factory=SimulatedWork)
    load_s: float = 0.0
    """Readers spent copying clips out of the store."""
    wall_s: float = 0.0
    """Until the last consumer is done."""
    first_batch_s: float = 0.0
    """Until the last of the tasks has its first batch."""
    most_bytes: int = 0
    """The most that was used and reserved at once."""
    evictions: int = 0
    decision: Decision | None = None
    """The first one."""


@dataclass(slots=True, eq=False)
class _Consumer:
    """A task's reader and what consumes its batches."""

    readings: list[SimulatedGeneration]
    pace_s: float
    batches: Iterator[tuple[int, int, int, range]]
    """(generation, epoch, iteration, ranks)."""
    ends: list[float] = field(default_factory=list)
    """When the consumer was done with each batch."""
    number: int = 0
    """Of the generation that it is in."""
    epoch: int = 0
    iteration: int = 0
    ranks: range = range(0)
    asked_s: float = 0.0
    waited_s: float = 0.0

    @property
    def reading(self) -> SimulatedGeneration:
        """The generation that it is in."""
        return self.readings[self.number]

    @property
    def clips(self) -> list[int]:
        """Of its batch."""
        return self.reading.clips[self.ranks.start : self.ranks.stop]

    def to_next(self) -> bool:
        """Go to the next batch; False if there is none."""
        found = next(self.batches, None)
        if found is not None:
            self.number, self.epoch, self.iteration, self.ranks = found
        return found is not None

    def pass_batch(self) -> None:
        """The reader has had its batch, and needs the next one."""
        last = self.iteration + 1 >= self.reading.iterations
        place = (self.epoch + 1, 0) if last else (self.epoch, self.iteration + 1)
        for reading in self.readings[self.number : self.number + 2]:
            reading.at(Position(*place))


Progress = tuple[tuple[int, int], ...]
"""Which generations were weighed, and how many epochs of them were read."""


def simulate(trace: UseTrace, setting: Setting) -> Figures:
    """Read everything in order, with an empty store at the beginning.

    Raises:
        Full: the budget cannot hold what one batch needs.
    """
    run = _Run(trace, setting)
    run.go()
    return run.figures()


def decodes_more(trace: UseTrace, setting: Setting, packets: int) -> bool:
    """Whether more packets are decoded than so many: of what reads too much, no more is simulated than tells that.

    Raises:
        Full: the budget cannot hold what one batch needs.
    """
    return not _Run(trace, setting).go(packets)


class _Run:
    """One simulation."""

    def __init__(self, trace: UseTrace, setting: Setting) -> None:
        self._figures = Figures()
        self._trace, self._setting = trace, setting
        clips = trace.clips
        self._consumers = []
        for sections, pace_s in zip(trace.tasks, setting.paces_s, strict=True):
            # Without a pace, deadlines only have an order.
            begin = Position(sections[0].first_epoch, 0, pace_s or 1.0)
            readings = [SimulatedGeneration(trace, each, begin) for each in sections]
            batches = ((k, *each) for k, section in enumerate(sections) for each in section.batches())
            self._consumers.append(_Consumer(readings, pace_s, batches))
        uses: list[list[tuple[float, SimulatedGeneration, int]]] = [[] for _ in clips.video]
        for reading in (each for consumer in self._consumers for each in consumer.readings):
            for rank, clip in enumerate(reading.clips):
                uses[clip].append((reading.due_in_s(rank), reading, rank))
        if len(trace.tasks) > 1:
            for of_clip in uses:
                of_clip.sort(key=lambda use: use[0])
        sizes = zip(clips.bound, clips.raw, clips.objects, strict=True)
        stored = [min(bound, stored_bytes(raw * setting.disk_share, n)) for bound, raw, n in sizes]
        self._store = SimulatedStore(setting.keep.budget_bytes, stored, uses, passing_budget=setting.passing_bytes)
        self._work = SimulatedDispatcher(
            trace,
            self._store,
            setting.cost,
            setting.keep.most_bytes,
            setting.demand_reserve,
            setting.start_s,
            setting.workers,
            self._at,
        )
        self._settled: Mapping[str, Way] = {}
        self._decided: dict[int, tuple[Progress, list[SimulatedIntermediate], IntermediateSchedule[Item]]] = {}
        """Generation of the group → what was weighed, and the intermediates that are kept."""
        self._lasting: dict[tuple[int, Way], SimulatedIntermediate] = {}
        """Those that are of use behind their generation, by the number of the video."""
        self._waiting: list[tuple[Demand[Item], _Consumer]] = []
        self._events: list[tuple[float, int, _Consumer | SimulatedWorker, int]] = []
        self._order = count()
        self._now = 0.0

    def go(self, most_packets: float = math.inf) -> bool:
        """Run until every consumer is done; False if more packets than so many were decoded, and it ended there."""
        for consumer in self._consumers:
            self._next_batch(consumer)
        while self._events:
            self._now, _, who, turn = heappop(self._events)
            if isinstance(who, SimulatedWorker):
                if turn == who.turn:
                    self._step(who)
                    if self._work.made.packets > most_packets:
                        return False
            elif turn:
                self._loaded(who)
            else:
                self._ask(who)
        return True

    def figures(self) -> Figures:
        """What was counted, when every consumer is done."""
        figures = self._figures
        figures.made, figures.most_bytes, figures.evictions = self._work.made, self._store.most, self._store.evictions
        figures.wall_s = max(consumer.ends[-1] for consumer in self._consumers)
        return figures

    def _at(self, when: float, who: _Consumer | SimulatedWorker, turn: int) -> None:
        heappush(self._events, (when, next(self._order), who, turn))

    # Readers -------------------------------------------------------------------------------------------------------

    def _next_batch(self, consumer: _Consumer) -> None:
        if consumer.to_next():
            # The loader goes on when the consumer has left no more than so many batches.
            before = len(consumer.ends) - 1 - self._setting.prefetch
            self._at(max(self._now, consumer.ends[before] if before >= 0 else 0.0), consumer, 0)

    def _ask(self, consumer: _Consumer) -> None:
        if consumer.ranks.start % consumer.reading.clips_per_epoch == 0:
            self._begin_epoch()
        clips = consumer.clips
        missed = [clip for clip in clips if clip not in self._store.ready]
        epoch = self._figures.epochs.setdefault(consumer.epoch, EpochFigures())
        epoch.uses += len(clips)
        epoch.hits += len(clips) - len(missed)
        epoch.begun_s = min(epoch.begun_s, self._now)
        consumer.asked_s = self._now
        if missed:
            demand = Demand[Item](consumer.reading, list(consumer.ranks))
            self._waiting.append((demand, consumer))
            self._work.state.demands.append(demand)
            self._wake()
        else:
            self._load(consumer)

    def _wake(self) -> None:
        self._work.full = False
        self._work.dispatch(self._now)

    def _step(self, worker: SimulatedWorker) -> None:
        item = self._work.step(worker, self._now)
        for each in list(self._waiting) if item is not None else ():
            demand, consumer = each
            if all(clip in self._store.ready for clip in map(demand.work.key, demand.rows)):
                self._waiting.remove(each)
                self._work.state.demands.remove(demand)
                self._load(consumer)
        self._work.dispatch(self._now)

    def _load(self, consumer: _Consumer) -> None:
        consumer.waited_s = self._now - consumer.asked_s
        self._store.hold(consumer.clips)
        loaded = [clip for clip in consumer.clips if clip not in self._store.passing]  # what passes was paid when made
        seconds = sum(map(self._trace.clips.raw.__getitem__, loaded)) * self._setting.cost.load_s_per_byte
        self._figures.load_s += seconds
        self._at(self._now + seconds, consumer, 1)

    def _loaded(self, consumer: _Consumer) -> None:
        clips = consumer.clips
        self._store.let_go(clips)
        consumer.pass_batch()
        for clip in dict.fromkeys(clips):
            self._store.note(clip)
        self._note_intermediates(map(self._trace.clips.video.__getitem__, clips))
        before = consumer.ends[-1] if consumer.ends else 0.0
        consumed = max(self._now, before)
        consumer.ends.append(consumed + consumer.pace_s)
        epoch = self._figures.epochs[consumer.epoch]
        epoch.waited_s += min(consumed - before, consumer.waited_s)
        epoch.wall_s += consumer.ends[-1] - before
        if len(consumer.ends) == 1:
            self._figures.first_batch_s = max(self._figures.first_batch_s, self._now)
        self._next_batch(consumer)
        self._wake()

    # What is kept --------------------------------------------------------------------------------------------------

    def _begin_epoch(self) -> None:
        """Decide for the generations that are read and the ones after them, where an epoch more has been read."""
        ahead = [each for consumer in self._consumers for each in consumer.readings[consumer.number :][:2]]
        together: dict[int, list[SimulatedGeneration]] = {}
        for reading in ahead:
            together.setdefault(reading.group_generation, []).append(reading)
        for generation in self._decided.keys() - together.keys():
            self._choose_intermediates(self._decided.pop(generation)[1], ())
        # As they are planned, the sooner ones come first; what was decided before follows the newest.
        newest = max(together, default=0)
        fresh = sorted(together.keys() - self._decided.keys())
        for generation in (*fresh, *sorted(together.keys() - set(fresh), reverse=True)):
            readings = together[generation]
            place = tuple((id(each), each.epochs_read()) for each in readings)
            if generation in fresh or self._decided[generation][0] != place:
                settled = Settled(self._settled, later=generation not in fresh and generation < newest)
                self._decide(generation, readings, place, settled)
        decided = (intermediates for _, (*_, intermediates) in sorted(self._decided.items(), key=lambda each: each[0]))
        self._work.state.ahead = [*decided, *ahead]
        self._work.full = False

    def _decide(self, generation: int, readings: list[SimulatedGeneration], place: Progress, settled: Settled) -> None:
        ready, making = self._store.ready, self._work.state.objects.making
        old = {each.needs.video: each for each in self._decided[generation][1]} if generation in self._decided else {}
        before = {
            video: Kept(b.needs.way, b.needs.bound, b in ready) for video, b in old.items() if not b.needs.way.lasts
        }
        lasting = [each.needs for each in self._lasting.values() if each in ready]
        made = np.zeros(len(self._trace.clips.video), bool)
        made[[item for item in (*ready, *making) if isinstance(item, int)]] = True
        works = [(each.section, each.from_rank) for each in readings]
        setting = self._setting
        decision = decide(self._trace, works, made, before, lasting, setting.keep, setting.cost, settled)
        if decision.chosen is not None and not settled.later:
            self._settled = {**self._settled, **decision.chosen.way_of()}
        self._figures.decision = self._figures.decision or decision
        for reading, keeping in zip(readings, decision.sections, strict=True):
            reading.keep(keeping)
        stays = {video: each for video, each in old.items() if decision.ways.get(video) == each.needs.way}
        fresh = {needs.video: self._intermediate(needs, readings) for needs in decision.intermediates}
        for video, intermediate in fresh.items():
            known = self._work.intermediates_of.setdefault(video, [])
            if intermediate not in known:
                known.append(intermediate)
        for video, way in decision.ways.items():
            if way.lasts and video not in fresh:
                stays[video] = self._lasting[video, way]
        chosen = stays | fresh
        for each in chosen.values():
            if each.needs.way.lasts:
                each.users = [*(user for user in each.users if not (user in readings or user.is_read)), *readings]
                self._lasting[each.needs.video, each.needs.way] = each
        order = [chosen[video] for video in decision.ways if video in chosen]
        self._choose_intermediates(old.values(), order)
        objects = [(each, each.needs.video, each.needs.bound) for each in order]
        due = [reading.unkept_due_in_s for reading in readings]
        later = any(epochs_left(each.plan) for each, _ in works)
        keys = frozenset[Item](each for each in order if each.needs.way.lasts and later)
        intermediates = IntermediateSchedule[Item](generation, objects, due, decision.free_bytes, keys)
        intermediates.mark_present(ready.__contains__)
        self._decided[generation] = place, order, intermediates

    def _choose_intermediates(
        self, before: Iterable[SimulatedIntermediate], now: Sequence[SimulatedIntermediate]
    ) -> None:
        stays = set(map(id, now))
        elsewhere = {id(each) for _, order, _ in self._decided.values() for each in order if each.needs.way.lasts}
        for intermediate in (*before, *now):  # of these some were kept only by a generation that is over
            intermediate.chosen = id(intermediate) in stays or id(intermediate) in elsewhere
            if intermediate in self._store.ready:
                self._store.note(intermediate)

    def _intermediate(self, needs: IntermediateNeeds, readings: list[SimulatedGeneration]) -> SimulatedIntermediate:
        if needs.way.lasts:  # of whichever generation, it is one object
            return self._lasting.get((needs.video, needs.way)) or self._whole(needs, readings)
        clips, frames, runs = self._trace.clips, 0, set[tuple[int, int]]()
        for reading in readings:
            for clip in map(reading.key, reading.unkept_ranks(needs.video)):
                frames |= clips.frames[clip]
                runs.update(clips.runs[clip])
        return SimulatedIntermediate(needs, frames, tuple(sorted(set(groups_of(runs).values()))), readings)

    def _whole(self, needs: IntermediateNeeds, readings: list[SimulatedGeneration]) -> SimulatedIntermediate:
        """What lasts: all frames, whichever clips need them, so the video is fed whole."""
        key = self._trace.videos.keys[needs.video]
        found = ((each.section, each.section.plan.videos.row_of_key.get(key)) for each in readings)
        section, row = next((section, row) for section, row in found if row is not None)
        packets = len(section.index_of(row).packet_bytes)
        return SimulatedIntermediate(needs, self._all_frames[needs.video], ((0, packets),), list(readings))

    @cached_property
    def _all_frames(self) -> dict[int, int]:
        """Video → a bit for each frame that any of its clips needs, worked out once for all videos."""
        found: dict[int, int] = {}
        for video, frames in zip(self._trace.clips.video, self._trace.clips.frames, strict=True):
            found[video] = found.get(video, 0) | frames
        return found

    def _note_intermediates(self, videos: Iterable[int]) -> None:
        for video in self._work.intermediates_of.keys() & set(videos):
            for intermediate in self._work.intermediates_of[video]:
                if intermediate in self._store.ready:
                    self._store.note(intermediate)
