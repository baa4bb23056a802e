"""The dispatcher and its workers in a simulation: the rules of the real one, without threads, processes and pixels.

`Driver` decides; here is what it drives: workers of whom an object is one event, and bytes under a budget.
"""

from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field

from viewcache.catalog.kinds import ObjectKind
from viewcache.errors import Full
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.scheduling.driver import Driver
from viewcache.materializer.scheduling.intermediate_work import IntermediateSchedule
from viewcache.materializer.scheduling.rules import (
    NextJob,
    Patience,
    State,
    Wanted,
    eviction_bytes,
    in_order_of_need,
    missing_among,
    next_job,
    preempt,
    preemptible,
    protected_keys,
)
from viewcache.materializer.scheduling.work import ObjectStates, RowState
from viewcache.materializer.simulation.simulated_passing import SimulatedPassing
from viewcache.materializer.simulation.simulated_store import Item, SimulatedIntermediate, SimulatedStore
from viewcache.materializer.simulation.simulated_uses import UseTrace, groups_of
from viewcache.materializer.workers.pool import DEPTH
from viewcache.store.codec import ENCODED

__all__ = ["SimulatedDispatcher", "SimulatedWork", "SimulatedWorker"]


@dataclass(slots=True)
class SimulatedWork:
    """What workers have made, or are to make in one step; seconds are those of one core."""

    packets: int = 0
    """Fed to decoders."""
    read_bytes: int = 0
    """Of those packets."""
    frames: int = 0
    """Converted."""
    objects: int = 0
    groups: int = 0
    """Groups of pictures decoded, and intermediates read."""
    decode_s: float = 0.0
    convert_s: float = 0.0
    augment_s: float = 0.0
    store_s: float = 0.0
    load_s: float = 0.0
    """Reading intermediates."""

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.decode_s + self.convert_s + self.augment_s + self.store_s + self.load_s

    def add(self, other: "SimulatedWork") -> None:
        """Count that too."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True, eq=False)
class SimulatedJob:
    """What a worker is given to make of one video."""

    number: int
    video: int
    wanted: dict[Item, list[Wanted[Item]]]
    """Key → rows that need it; what is left to be made."""
    promises: dict[Item, int]
    """Key → bytes that are promised to it."""
    held: list[SimulatedIntermediate]
    """Intermediates that it starts from."""
    items: "deque[tuple[Item, SimulatedWork]]" = field(default_factory=deque)
    """What is left to be made, in the order of need, with what each takes."""
    left_s: float = 0.0
    """Of the object that it is on, when it was begun or paused."""


@dataclass(slots=True, eq=False)
class SimulatedWorker:
    """A worker process. It looks for other work between groups of pictures and after each object, as real ones do."""

    jobs: list[SimulatedJob] = field(default_factory=list)
    """What it was given, the newest last: that goes before the others."""
    on: SimulatedJob | None = None
    """What it is on: until it looks up, not yet the newest."""
    due_s: float = 0.0
    """When the object that it is on will be made."""
    yields: SimulatedJob | None = None
    """What it was asked to give up."""
    turn: int = 0
    """Tells the event that counts from those that were overtaken."""
    started: bool = False


class SimulatedDispatcher(Driver[Item, int]):
    """Gives jobs to simulated workers."""

    def __init__(
        self,
        trace: UseTrace,
        store: SimulatedStore,
        cost: CostModel,
        job_bytes: int,
        demand_reserve: int,
        start_s: float,
        workers: int,
        wake_at: Callable[[float, SimulatedWorker, int], None],
    ) -> None:
        """Start with idle workers.

        Args:
            trace: what is read.
            store: what lies under the budget.
            cost: seconds of each kind of work.
            job_bytes: most raw bytes that a job holds.
            demand_reserve: as in `DispatcherSettings`.
            start_s: until a worker that was just started begins its first job.
            workers: how many.
            wake_at: told when which worker is to be `step`-ped, and its turn.
        """
        self.state = State(ObjectStates[Item](store.ready.__contains__))
        self.lock = nullcontext()
        self.demand_reserve = demand_reserve
        self.full = False
        self.made = SimulatedWork()
        self.intermediates_of: dict[int, list[SimulatedIntermediate]] = {}
        """Number of a video → its intermediates, there or not."""
        self._trace, self._store, self._cost = trace, store, cost
        self.passing = SimulatedPassing(trace, store, self.state, cost, self.intermediates_of)
        self.space = store
        self._job_bytes, self._start_s, self._wake = job_bytes, start_s, wake_at
        self._workers = [SimulatedWorker() for _ in range(workers)]
        self._jobs: dict[int, SimulatedJob] = {}
        self._given = 0
        self._patience = Patience()
        self._worker: SimulatedWorker | None = None
        """Who gets the job that is being chosen."""
        self._now = 0.0

    def dispatch(self, now: float) -> None:
        """Give jobs to the workers, and ask for what has to give way.

        Raises:
            Full: a reader waits for what there will never be room for.
        """
        self._now = now
        lacks_room = self.give_jobs()
        if not self.state.demands and self._patience.stuck is None:
            return
        begun = [[job.number for job in worker.jobs] for worker in self._workers if worker.jobs]
        asked = preempt(self.state, begun, self._patience, now, at_once=lacks_room)
        for worker in self._workers:
            on = worker.on
            if on is not None and on is worker.jobs[-1] and on.number in asked and worker.yields is not on:
                worker.yields = on
                self._interrupt(worker)

    def step(self, worker: SimulatedWorker, now: float) -> Item | None:
        """A worker looks up: it has made an object, which is returned, or a group of pictures."""
        job, item, self._now = worker.on, None, now
        assert job is not None  # otherwise there was nothing to wake it for
        job.left_s = max(0.0, worker.due_s - now)
        if not job.left_s:
            item, took = job.items.popleft()
            self.made.add(took)
            del self.state.objects.making[item]
            for work, row in job.wanted.pop(item):
                work.set_state(row, RowState.READY)
            self._store.add(item, job.promises.pop(item))
            job.left_s = job.items[0][1].seconds if job.items else 0.0
        if worker.yields is job:
            job.items.clear()
        worker.on = worker.yields = None
        if not job.items:
            worker.jobs.remove(job)
            self._end(job)
        if worker.jobs:
            self._go_on(worker, now)
        return item

    def _end(self, job: SimulatedJob) -> None:
        self._put_back(job.number)
        del self._jobs[job.number]
        self._store.reserved -= sum(job.promises.values())
        self.passing.unused(job.promises)
        self._store.let_go(job.held)
        self.full = False

    # What the rules are driven with --------------------------------------------------------------------------------

    def _choose(self, *, only_soon: bool) -> NextJob[Item] | None:
        return next_job(self.state, ahead=not self.full, only_soon=only_soon, job_bytes=self._job_bytes)

    def _has_worker(self, choice: NextJob[Item]) -> bool:
        self._worker = next((worker for worker in self._workers if not worker.jobs), None)
        if self._worker is None and choice.demanded:
            may = preemptible(self.state)
            able = [each for each in self._workers if len(each.jobs) < DEPTH and each.jobs[-1].number in may]
            self._worker = min(able, key=lambda each: len(each.jobs), default=None)
        return self._worker is not None

    def _allowance(self, choice: NextJob[Item]) -> int:
        return max(self._job_bytes, sum(map(choice.work.held, choice.rows)))

    def _make_room(self, need: int, before_s: float | None, choice: NextJob[Item]) -> None:
        store = self._store
        size = eviction_bytes(need, store.free_bytes, store.budget)
        for item in store.evict(size, before_s, protected_keys(self.state)):
            for intermediates in self.state.ahead if isinstance(item, SimulatedIntermediate) else ():
                if isinstance(intermediates, IntermediateSchedule):
                    intermediates.mark_missing(item)

    def _describe(
        self, choice: NextJob[Item], wanted: dict[Item, list[Wanted[Item]]], promises: dict[Item, int]
    ) -> int:
        self._given += 1
        video = choice.work.video(choice.rows[0])
        assert isinstance(video, int)  # of a trace all are
        held = [
            intermediate for intermediate in self.intermediates_of.get(video, ()) if intermediate in self._store.ready
        ]
        self._store.hold(held)
        job = self._jobs[self._given] = SimulatedJob(self._given, video, wanted, promises, held)
        self._work_out(job, in_order_of_need(wanted, missing_among(self.state, wanted)))
        return job.number

    def _submit(self, number: int) -> bool:
        worker, now = self._worker, self._now
        assert worker is not None  # `has_worker` found one
        worker.jobs.append(self._jobs[number])
        if worker.on is not None:
            self._interrupt(worker)
            return True
        if not worker.started:
            worker.started = True
            now += self._start_s
        self._go_on(worker, now)
        return True

    def _lacks_room(self, choice: NextJob[Item]) -> None:
        if not self._jobs and not self._store.held and self.state.demands[0].work is choice.work:
            raise Full(f"no room for {len(choice.rows)} clips under a budget of {self._store.budget} bytes")

    # Workers ------------------------------------------------------------------------------------------------------

    def _work_out(self, job: SimulatedJob, order: list[Item]) -> None:
        """Work out how long each object takes: its groups of pictures are decoded with the first that needs them."""
        clips, cost, videos = self._trace.clips, self._cost, self._trace.videos
        pixels, intermediates = videos.pixels[job.video], job.held
        there = 0
        for intermediate in intermediates:
            there |= intermediate.frames
        needs = [
            (clips.frames[each], clips.runs[each], clips.raw[each], clips.audio_s[each])
            if isinstance(each, int)
            else (each.frames, each.runs, each.needs.raw, 0.0)
            for each in order
        ]
        groups = groups_of(run for frames, runs, *_ in needs if frames & ~there for run in runs)
        seen, decoded = 0, set[tuple[int, int]]()
        for item, (frames, runs, raw, audio_s) in zip(order, needs, strict=True):
            fresh = frames & ~seen
            seen |= frames
            first = {groups[start] for start, _ in runs} - decoded if fresh & ~there else set[tuple[int, int]]()
            decoded |= first
            native = isinstance(item, SimulatedIntermediate) and item.needs.way.intermediate == ObjectKind.FRAMES
            packed = isinstance(item, SimulatedIntermediate) and item.needs.way.codec in ENCODED
            convert, loaded, load_s = 0 if native else fresh.bit_count(), 0, 0.0
            for intermediate in intermediates if fresh & there else ():
                count = (fresh & intermediate.frames).bit_count()
                fresh &= ~intermediate.frames
                loaded += count
                rung, picture = intermediate.needs.rung, intermediate.needs.raw / intermediate.needs.frames
                load_s += picture * (count + rung.lead) * (rung.unpack_s + rung.packed * cost.load_s_per_byte)
                if intermediate.needs.way.intermediate == ObjectKind.AUG:
                    convert -= count
            packets = sum(stop - start for start, stop in first)
            took = SimulatedWork(
                packets=packets,
                read_bytes=videos.bytes_of(job.video, first),
                frames=convert,
                objects=1,
                groups=len(first) + loaded,
                decode_s=packets * pixels * cost.decode_s_per_pixel + audio_s,
                convert_s=convert * pixels * cost.convert_s_per_pixel,
                augment_s=0.0 if packed else raw * cost.augment_s_per_byte,
                store_s=raw * self._store_s_per_byte(item),
                load_s=load_s,
            )
            job.items.append((item, took))
        job.left_s = job.items[0][1].seconds

    def _store_s_per_byte(self, item: Item) -> float:
        cost = self._cost
        if item in self._store.passing:
            return cost.pass_s_per_byte
        if isinstance(item, int):
            return cost.store_s_per_byte
        return item.needs.rung.pack_s + item.needs.rung.packed * cost.store_s_per_byte

    def _go_on(self, worker: SimulatedWorker, now: float) -> None:
        worker.on = worker.jobs[-1]
        worker.due_s = now + worker.on.left_s
        self._wake_at(worker.due_s, worker)

    def _interrupt(self, worker: SimulatedWorker) -> None:
        """Have a worker look up after the group of pictures that it is on."""
        assert worker.on is not None  # idle workers need not be interrupted
        now = self._now
        took, left_s = worker.on.items[0][1], max(0.0, worker.due_s - now)
        part_s = took.seconds / max(1, took.groups)
        stop_s = now + (left_s % part_s if part_s else left_s)
        if now < stop_s < worker.due_s:
            self._wake_at(stop_s, worker)

    def _wake_at(self, when: float, worker: SimulatedWorker) -> None:
        worker.turn += 1
        self._wake(when, worker, worker.turn)
