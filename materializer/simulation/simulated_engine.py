"""The dispatcher and its workers in a simulation: the rules of `Engine`, without threads, processes and pixels.

Demand first, then what is due soonest; a job makes what fits of one video. A worker's next object is one event.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field

from viewcache.errors import Full
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.scheduling.chooser import PATIENCE_S
from viewcache.materializer.simulation.simulated_room import MAKING, PLANNED, READY, Base, Item, Reading, Room
from viewcache.materializer.simulation.simulated_uses import Trace, groups_of
from viewcache.materializer.workers.pool import DEPTH

__all__ = ["Dispatcher", "Made", "Waiting", "Worker"]


@dataclass(slots=True)
class Made:
    """What workers have made, or are to make in one step; seconds are those of one core."""

    packets: int = 0
    """Fed to decoders."""
    read_bytes: int = 0
    """Of those packets."""
    frames: int = 0
    """Converted."""
    objects: int = 0
    groups: int = 0
    """Groups of pictures decoded, and kept pictures read."""
    decode_s: float = 0.0
    convert_s: float = 0.0
    augment_s: float = 0.0
    store_s: float = 0.0
    load_s: float = 0.0
    """Reading kept pictures."""

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.decode_s + self.convert_s + self.augment_s + self.store_s + self.load_s

    def add(self, other: "Made") -> None:
        """Count that too."""
        self.packets += other.packets
        self.read_bytes += other.read_bytes
        self.frames += other.frames
        self.objects += other.objects
        self.groups += other.groups
        self.decode_s += other.decode_s
        self.convert_s += other.convert_s
        self.augment_s += other.augment_s
        self.store_s += other.store_s
        self.load_s += other.load_s


@dataclass(slots=True, eq=False)
class Waiting:
    """A reader that waits for clips of a batch."""

    reading: Reading
    ranks: range
    missing: set[Item]
    """Clips that are not in the store."""


@dataclass(slots=True, eq=False)
class _Job:
    video: int
    items: "deque[tuple[Item, Made]]" = field(default_factory=deque)
    """What is left to be made, in the order of need, with what each takes."""
    held: list[Item] = field(default_factory=list)
    """Kept pictures that it starts from."""
    left_s: float = 0.0
    """Of the object that it is on, when it was begun or paused."""


@dataclass(slots=True, eq=False)
class Worker:
    """A worker process. It looks for other work between groups of pictures and after each object, as real ones do."""

    jobs: list[_Job] = field(default_factory=list)
    """What it was given, the newest last: that goes before the others."""
    on: _Job | None = None
    """What it is on: until it looks up, not yet the newest."""
    due_s: float = 0.0
    """When the object that it is on will be made."""
    yields: _Job | None = None
    """What it was asked to give up."""
    turn: int = 0
    """Tells the event that counts from those that were overtaken."""
    started: bool = False


Candidate = tuple[float, Item, bool]
"""When something is due, what, and whether it is of what its task needs next of the video."""


@dataclass(slots=True)
class Dispatcher:
    """Gives jobs to workers. ``wake_at`` is told when which worker is to be `step`-ped, and its turn."""

    trace: Trace
    room: Room
    cost: CostModel
    job_bytes: int
    demand_reserve: int
    start_s: float
    workers: list[Worker]
    wake_at: Callable[[float, Worker, int], None]
    made: Made = field(default_factory=Made)
    waiting: list[Waiting] = field(default_factory=list)
    """Readers, the oldest first."""
    ahead: list[Reading] = field(default_factory=list)
    """What is worth making before anybody waits."""
    bases: list[tuple[list[Base], int]] = field(default_factory=list)
    """Bases that are kept for each of these generations, soonest needed first, and the room they leave."""
    bases_of: dict[int, list[Base]] = field(default_factory=dict)
    """Number of a video → its bases, there or not."""
    full: bool = False
    """Look-ahead found no room; until a job ends or a reader moves on there will be none."""
    _stuck: tuple[int, int] | None = None
    _stuck_since: float = 0.0
    _lacks_room: bool = False

    def dispatch(self, now: float) -> None:
        """Give jobs to the workers, as `Engine._give_jobs` does.

        Raises:
            Full: a reader waits for what there will never be room for.
        """
        self._lacks_room = False
        stuck = self._give_jobs(now)
        if stuck != self._stuck:
            self._stuck, self._stuck_since = stuck, now
        if stuck is not None and (self._lacks_room or now - self._stuck_since >= PATIENCE_S):
            for worker in self.workers:
                if worker.on is not None and worker.on is worker.jobs[-1] and self._unwanted(worker):
                    worker.yields = worker.on
                    self._interrupt(worker, now)

    def step(self, worker: Worker, now: float) -> Item | None:
        """A worker looks up: it has made an object, which is returned, or a group of pictures."""
        job, item = worker.on, None
        assert job is not None  # otherwise there was nothing to wake it for
        job.left_s = max(0.0, worker.due_s - now)
        if not job.left_s:
            item, took = job.items.popleft()
            self.made.add(took)
            self._set_state(item, READY)
            self.room.add(item, self._bound(item))
            job.left_s = job.items[0][1].seconds if job.items else 0.0
        if worker.yields is job:
            for left, _ in job.items:
                self._put_back(left)
            job.items.clear()
        worker.on = worker.yields = None
        if not job.items:
            worker.jobs.remove(job)
            self.room.let_go(job.held)
            self.full = False
        if worker.jobs:
            self._go_on(worker, now)
        return item

    # Choosing ------------------------------------------------------------------------------------------------------

    def _give_jobs(self, now: float) -> tuple[int, int] | None:
        """Give out what there is; the oldest demand that nobody works on: identity of the generation, and rank."""
        tight = False
        while True:
            demand = self._next_demand()
            worker = self._worker_for(demand is not None)
            if worker is None:
                return None if demand is None else (id(demand[0]), demand[1][0])
            if demand is not None:
                reading, ranks = demand
                job = self._prepare(reading, ranks, demanded=True)
                if job is not None:
                    self._submit(worker, job, now)
                elif (
                    any(each.jobs for each in self.workers) or self.room.held or self.waiting[0].reading is not reading
                ):
                    self._lacks_room = True
                    return id(reading), ranks[0]
                else:
                    raise Full(f"no room for {len(ranks)} clips under a budget of {self.room.budget} bytes")
                continue
            ahead = None if self.full else self._next_ahead(tight)
            if ahead is None:
                self.full |= tight
                return None
            what, rank = ahead
            made = (
                self._prepare(what, [rank], demanded=False) if isinstance(what, Reading) else self._prepare_base(what)
            )
            if made is not None:
                self._submit(worker, made, now)
            elif not tight and not (isinstance(what, Reading) and what.is_soon(rank)):
                tight = True  # what is only kept evicts nothing, but what is read soon does
            else:
                self.full = True

    def _next_demand(self) -> tuple[Reading, list[int]] | None:
        """The oldest demand that nobody works on: uses of one video."""
        state, video_of = self.room.state, self.trace.clips.video
        for waiting in self.waiting:
            clips = waiting.reading.clips
            ranks = [rank for rank in waiting.ranks if state[clips[rank]] == PLANNED]
            if ranks:
                video = video_of[clips[ranks[0]]]
                return waiting.reading, [rank for rank in ranks if video_of[clips[rank]] == video]
        return None

    def _next_ahead(self, only_soon: bool) -> tuple[Reading | list[Base], int] | None:
        """What is due soonest of all that is not made."""
        best: tuple[tuple[float, bool], Reading | list[Base], int] | None = None
        if not only_soon:
            for bases, _ in self.bases:
                for number, base in enumerate(bases):
                    if base.state == PLANNED and not math.isinf(need := base.need_s()):
                        if best is None or (need, True) < best[0]:
                            best = (need, True), bases, number
                        break
        for reading in self.ahead:
            rank = reading.next_planned(self.room.state)
            if rank is None or (only_soon and not reading.is_soon(rank)):
                continue
            order = reading.when[rank], not reading.is_soon(rank)
            if best is None or order < best[0]:
                best = order, reading, rank
        return None if best is None else best[1:]

    def _worker_for(self, demanded: bool) -> Worker | None:
        """An idle worker, else for a demand the one with the fewest paused jobs of those that nobody waits for."""
        for worker in self.workers:
            if not worker.jobs:
                return worker
        able = [each for each in self.workers if len(each.jobs) < DEPTH and self._unwanted(each)] if demanded else []
        return min(able, key=lambda each: len(each.jobs), default=None)

    def _unwanted(self, worker: Worker) -> bool:
        items = [item for item, _ in worker.jobs[-1].items]
        return not any(item in waiting.missing for item in items for waiting in self.waiting)

    def _put_back(self, item: Item) -> None:
        self.room.reserved -= self._bound(item)
        if isinstance(item, int):
            self.room.unmake(item)
        else:
            item.state = PLANNED

    def _set_state(self, item: Item, state: int) -> None:
        if isinstance(item, int):
            self.room.state[item] = state
        else:
            item.state = state

    def _bound(self, item: Item) -> int:
        return self.trace.clips.bound[item] if isinstance(item, int) else item.needs.bound

    # Jobs ----------------------------------------------------------------------------------------------------------

    def _prepare(self, reading: Reading, ranks: list[int], *, demanded: bool) -> _Job | None:
        """A job for some uses of one video, and what else of it fits; None if there is no room."""
        room, soon = self.room, demanded or reading.is_soon(ranks[0])
        free = reading.free_bytes if reading.keeping is not None and reading.is_kept(ranks[0]) else 0
        keep_free = 0 if demanded else max(self.demand_reserve, free)
        before_s = None if demanded else reading.when[ranks[0]] if soon else math.inf
        video = self.trace.clips.video[reading.clips[ranks[0]]]
        asked = [(reading.when[rank], reading.clips[rank], reading.is_next(rank, video)) for rank in ranks]
        until_s = reading.when[-1]

        def wanted() -> list[Candidate]:
            return asked + self._siblings(video, reading.section.born, until_s, {each[1] for each in asked})

        least = sum(self._bound(item) for item in {each[1] for each in asked})
        candidates = wanted()
        whole = sum(self._bound(item) for item in {item for _, item, is_next in candidates if is_next or not soon})
        sizes = [max(least, min(whole, self.job_bytes))]
        if soon:
            sizes.append(least)
        for size in sizes:
            if room.free < size + keep_free and self._evict(size + keep_free - room.free, before_s):
                candidates = wanted()
            if room.free >= size + keep_free:
                return self._start(video, candidates, min(room.free - keep_free, max(least, self.job_bytes)))
        return None

    def _prepare_base(self, bases: list[Base]) -> _Job | None:
        """A job for the first of some bases that is not made; it takes only room that nothing needs."""
        free = next(free for each, free in self.bases if each is bases)
        base = next(each for each in bases if each.state == PLANNED and not math.isinf(each.need_s()))
        keep_free, video = max(self.demand_reserve, free), base.needs.video
        candidates = [(base.need_s(), base, False), *self._siblings(video, base.born, -math.inf, {base})]
        whole = sum(self._bound(item) for item in {item for _, item, _ in candidates})
        size = max(base.needs.bound, min(whole, self.job_bytes)) + keep_free
        if self.room.free < size:
            self._evict(size - self.room.free, math.inf)
        if self.room.free < size:
            return None
        return self._start(video, candidates, min(self.room.free - keep_free, max(base.needs.bound, self.job_bytes)))

    def _siblings(self, video: int, born: int, until_s: float, but: Set[Item]) -> list[Candidate]:
        """What else is worth making of a video, soonest first."""
        found: list[Candidate] = []
        readings = {id(each): each for each in (*self.ahead, *(waiting.reading for waiting in self.waiting))}
        for reading in readings.values():
            for rank in reading.planned_of(video, self.room.state):
                if reading.clips[rank] not in but and (reading.section.born == born or reading.when[rank] <= until_s):
                    is_next = reading.is_next(rank, video)
                    found.append((reading.when[rank], reading.clips[rank], is_next))
        for base in self.bases_of.get(video, ()):
            need = base.need_s() if base.state == PLANNED and base not in but else math.inf
            if not math.isinf(need) and (base.born == born or need <= until_s):
                found.append((need, base, False))
        found.sort(key=lambda each: each[0])
        return found

    def _start(self, video: int, candidates: Iterable[Candidate], room: int) -> _Job | None:
        """Reserve room for what fits, and describe the job."""
        chosen: dict[Item, float] = {}
        for when, item, _ in candidates:
            state = self.room.state[item] if isinstance(item, int) else item.state
            if state != PLANNED or (bound := self._bound(item)) > room:
                continue
            chosen[item] = when
            room -= bound
            self.room.reserve(bound)
            self._set_state(item, MAKING)
        if not chosen:
            return None
        order = sorted(chosen, key=chosen.__getitem__)
        held: list[Item] = [base for base in self.bases_of.get(video, ()) if base.state == READY]
        self.room.hold(held)
        return self._described(_Job(video, held=held), order)

    def _described(self, job: _Job, order: list[Item]) -> _Job:
        """Work out how long each object takes: its groups of pictures are decoded with the first that needs them."""
        clips, cost, videos = self.trace.clips, self.cost, self.trace.videos
        pixels, bases = videos.pixels[job.video], [each for each in job.held if isinstance(each, Base)]
        there = 0
        for base in bases:
            there |= base.frames
        needs = [
            (clips.frames[each], clips.runs[each], clips.raw[each])
            if isinstance(each, int)
            else (each.frames, each.runs, each.needs.raw)
            for each in order
        ]
        groups = groups_of(run for frames, runs, _ in needs if frames & ~there for run in runs)
        seen, decoded = 0, set[tuple[int, int]]()
        for item, (frames, runs, raw) in zip(order, needs, strict=True):
            fresh = frames & ~seen
            seen |= frames
            first = {groups[start] for start, _ in runs} - decoded if fresh & ~there else set[tuple[int, int]]()
            decoded |= first
            native = isinstance(item, Base) and item.needs.way.base == "frames"
            convert, loaded, load_s = 0 if native else fresh.bit_count(), 0, 0.0
            for base in bases if fresh & there else ():
                count = (fresh & base.frames).bit_count()
                fresh &= ~base.frames
                loaded += count
                load_s += base.needs.raw / base.frames.bit_count() * count * cost.load_s_per_byte
                if base.needs.way.base == "aug":
                    convert -= count
            packets = sum(stop - start for start, stop in first)
            took = Made(
                packets=packets,
                read_bytes=videos.bytes_of(job.video, first),
                frames=convert,
                objects=1,
                groups=len(first) + loaded,
                decode_s=packets * pixels * cost.decode_s_per_pixel,
                convert_s=convert * pixels * cost.convert_s_per_pixel,
                augment_s=0.0 if isinstance(item, Base) else raw * cost.augment_s_per_byte,
                store_s=raw * cost.store_s_per_byte,
                load_s=load_s,
            )
            job.items.append((item, took))
        job.left_s = job.items[0][1].seconds
        return job

    def _evict(self, short: int, before_s: float | None) -> bool:
        """Free some bytes in the order of the policy; True if anything left."""
        oldest = self.waiting[0] if self.waiting else None
        wanted = {oldest.reading.clips[rank] for rank in oldest.ranks} if oldest is not None else set[int]()
        # A good share at a time, as the engine does.
        gone = self.room.evict(max(short, self.room.budget // 20), before_s, wanted)
        for waiting in self.waiting:
            clips = {waiting.reading.clips[rank] for rank in waiting.ranks}
            waiting.missing.update(clip for clip in clips if clip in gone)
        return bool(gone)

    # Workers -------------------------------------------------------------------------------------------------------

    def _submit(self, worker: Worker, job: _Job, now: float) -> None:
        worker.jobs.append(job)
        if worker.on is not None:
            self._interrupt(worker, now)
            return
        if not worker.started:
            worker.started = True
            now += self.start_s
        self._go_on(worker, now)

    def _go_on(self, worker: Worker, now: float) -> None:
        worker.on = worker.jobs[-1]
        worker.due_s = now + worker.on.left_s
        self._wake_at(worker.due_s, worker)

    def _interrupt(self, worker: Worker, now: float) -> None:
        """Have a worker look up after the group of pictures that it is on."""
        assert worker.on is not None  # idle workers need not be interrupted
        took, left_s = worker.on.items[0][1], max(0.0, worker.due_s - now)
        part_s = took.seconds / max(1, took.groups)
        stop_s = now + (left_s % part_s if part_s else left_s)
        if now < stop_s < worker.due_s:
            self._wake_at(stop_s, worker)

    def _wake_at(self, when: float, worker: Worker) -> None:
        worker.turn += 1
        self.wake_at(when, worker, worker.turn)
