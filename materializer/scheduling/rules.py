"""Who is next, what a job makes, who is interrupted and what may leave (SAND §5.4): pure functions over one state.

The dispatcher drives them with workers and the wall clock, the simulation with an event heap. Demand comes before
look-ahead. Of look-ahead, what is due soonest comes first; while memory is short, what is done soonest, because what is
half made holds memory until it is done.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Generic, TypeVar

from viewcache.materializer.scheduling.work import Demand, Key, ObjectStates, RowState, Work

__all__ = [
    "PATIENCE_S",
    "SHARE",
    "Candidate",
    "Need",
    "NextJob",
    "Patience",
    "State",
    "Wanted",
    "abandoned",
    "evictable",
    "eviction_bytes",
    "fits",
    "in_order_of_need",
    "is_made",
    "missing_among",
    "missing_keys",
    "missing_rows",
    "need_of",
    "next_ahead",
    "next_demand",
    "next_job",
    "preempt",
    "preemptible",
    "protected_keys",
    "wanted_keys",
    "worth_making",
]  # fmt: skip

PATIENCE_S = 3.0
"""How long a reader waits for a worker before a job of look-ahead gives up its rest, and with it work half done: a
reader that always waits, because it reads as fast as it can, is served soonest by wasting nothing."""

SHARE = 20
"""An eviction frees at least one part of so many: the query costs the same for one object as for a hundred."""

Wanted = tuple[Work[Key], int]
"""A row of some work."""

Candidate = tuple[float, Work[Key], int, bool]
"""Seconds until a row is needed, the row, and whether it is of what its task needs next of the video."""

Promise = TypeVar("Promise")
"""What stands for room that is promised to an object."""


@dataclass(slots=True, eq=False)
class State(Generic[Key]):
    """All that the rules look at."""

    objects: ObjectStates[Key]
    demands: list[Demand[Key]] = field(default_factory=list)
    """The oldest reader first."""
    ahead: list[Work[Key]] = field(default_factory=list)
    """What is worth making before anybody waits."""
    jobs: dict[int, dict[Key, list[Wanted[Key]]]] = field(default_factory=dict)
    """Number of each job that a worker has begun → key → rows that need it; what is left to be made."""
    gone: set[int] = field(default_factory=set)
    """Tasks that left, until they are announced again."""
    given_up: set[Key] = field(default_factory=set)
    """Keys that a reader wanted who went away without them, until they are asked for again."""

    def works(self) -> list[Work[Key]]:
        """All work that readers or look-ahead know of."""
        return list({id(each): each for each in (*self.ahead, *(each.work for each in self.demands))}.values())


@dataclass(frozen=True, slots=True)
class NextJob(Generic[Key]):
    """What is made next."""

    work: Work[Key]
    rows: list[int]
    """Of one video."""
    demanded: bool
    """Whether a reader waits for them."""

    @property
    def objects(self) -> list[int]:
        """One row of each object: pictures of a block are one."""
        return list(dict(zip(self.work.keys(self.rows), self.rows, strict=True)).values())


# Who is next ----------------------------------------------------------------------------------------------------------


def next_job(
    state: State[Key],
    *,
    ahead: bool,
    only_soon: bool,
    job_bytes: int,
    cost: Callable[[Hashable, int], float] | None = None,
) -> NextJob[Key] | None:
    """What is made next; None if there is nothing.

    Args:
        state: all that is known.
        ahead: whether there may be room for what nobody waits for.
        only_soon: of that only what may evict.
        job_bytes: most raw bytes that one job holds; a demand for more is several jobs.
        cost: while memory is short, seconds that a video's edges take; the least is then next.
    """
    demand = next_demand(state)
    if demand is not None:
        work, rows = demand
        count, held, keys = 0, 0, set[Key]()
        while count < len(rows):
            more = 0 if work.key(rows[count]) in keys else work.held(rows[count])
            if count and held + more > job_bytes:
                break
            keys.add(work.key(rows[count]))
            count, held = count + 1, held + more
        return NextJob(work, rows[:count], demanded=True)
    if not ahead:
        return None
    chosen = next_ahead(state, only_soon) if cost is None else _shortest(state, cost, only_soon)
    return None if chosen is None else NextJob(chosen[0], [chosen[1]], demanded=False)


def next_demand(state: State[Key]) -> tuple[Work[Key], list[int]] | None:
    """The oldest demand that nobody works on: rows of one video."""
    for demand in state.demands:
        first = None if demand.error is not None else _first_open(state, demand)
        if first is None:
            continue
        work, rows, (key, _) = demand.work, demand.rows, first
        places = demand.places()
        same = [
            place
            for other in demand.together(key)
            if other == key or state.objects.is_missing(other)
            for place in places[other]
            if work.state(rows[place]) != RowState.MAKING
        ]
        return work, [rows[place] for place in sorted(same)]
    return None


def _first_open(state: State[Key], demand: Demand[Key]) -> tuple[Key, int] | None:
    """The first of a demand's rows that is not there and that nobody works on: its key, and which it is."""
    found: tuple[Key, int] | None = None
    for key, places in demand.places().items():
        if found is not None and places[0] > found[1]:
            break  # keys come in the order of their first rows
        if state.objects.is_missing(key):
            opens = (place for place in places if demand.work.state(demand.rows[place]) != RowState.MAKING)
            place = next(opens, None)
            if place is not None and (found is None or place < found[1]):
                found = key, place
    return found


def next_ahead(state: State[Key], only_soon: bool = False) -> Wanted[Key] | None:
    """The row that is due soonest of all that are not made; ``only_soon``: of those that may evict."""
    best: tuple[tuple[float, bool], Work[Key], int] | None = None
    for work in state.ahead:
        row = work.next_planned()
        while row is not None and is_made(state, work, row):
            row = work.next_planned()
        if row is None or (only_soon and not work.is_soon(row)):
            continue
        rank = work.due_in_s(row), not work.is_soon(row)
        if best is None or rank < best[0]:
            best = rank, work, row
    return None if best is None else best[1:]


def _shortest(state: State[Key], cost: Callable[[Hashable, int], float], only_soon: bool) -> Wanted[Key] | None:
    """The soonest row of the video of which the least is left to be done."""
    again = True
    while again:
        again = False
        left = [(work, row, edges) for work in state.ahead for row, edges in work.edges_left()]
        for work, row, _ in sorted(left, key=lambda each: cost(each[0].video(each[1]), each[2])):
            if only_soon and not work.is_soon(row):
                continue
            if not is_made(state, work, row):
                return work, row
            again = True
    return None


def is_made(state: State[Key], work: Work[Key], row: int) -> bool:
    """Whether a row's object is there, made for somebody else; if so that is noted."""
    made = state.objects.has(work.key(row))
    if made:
        work.set_state(row, RowState.READY)
    return made


def missing_rows(state: State[Key], demand: Demand[Key]) -> list[int]:
    """What a reader waits for and is not there."""
    places = (places for key, places in demand.places().items() if not state.objects.has(key))
    return [demand.rows[place] for place in sorted(chain.from_iterable(places))]


def missing_keys(state: State[Key]) -> set[Key]:
    """Keys of all that readers wait for and is not there."""
    return {key for key in wanted_keys(state) if not state.objects.has(key)}


def missing_among(state: State[Key], keys: Iterable[Key]) -> set[Key]:
    """Which of some keys readers wait for and are not there; a batch of images has far more than a job."""
    waiting = [demand.places() for demand in state.demands]
    return {key for key in keys if any(key in places for places in waiting) and not state.objects.has(key)}


def wanted_keys(state: State[Key]) -> set[Key]:
    """Keys of all that readers wait for, there or not: what is there waits for the rest."""
    return {key for demand in state.demands for key in demand.places()}


# What a job makes -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Need:
    """The room that a job wants."""

    sizes: tuple[int, ...]
    """Bytes; where there is no room for the first, the next will do."""
    keep_free: int
    """Bytes that it leaves to others."""
    before_s: float | None
    """Only what is needed later than that may leave for it, in seconds from now; None = anything."""
    beside: int = 0
    """Bytes of the intermediates that the same decode gives: they take the room of what nobody needs any more."""


def need_of(
    state: State[Key],
    choice: NextJob[Key],
    candidates: Sequence[Candidate[Key]],
    memory: int,
    demand_reserve: int,
    passing: Set[Key] = frozenset(),
) -> Need:
    """The room that a job for ``choice`` wants.

    One decode for all that is needed next of the video, or that is kept of it, and not one for each clip. What is only
    kept waits until there is room for all of it, and evicts nothing that is needed.

    Args:
        state: all that is known.
        choice: what the job is for.
        candidates: from `worth_making`.
        memory: raw bytes that the job may hold.
        demand_reserve: bytes that look-ahead leaves to readers.
        passing: keys of what has a place in memory, and takes no room.
    """
    work, row = choice.work, choice.rows[0]
    soon = choice.demanded or work.is_soon(row)
    least = sum(work.bound(row) for row in choice.objects if work.key(row) not in passing)
    sizes = {each.key(row): each.bound(row) for _, each, row, is_next in candidates if is_next or not soon}
    stored = (size for key, size in sizes.items() if key not in passing and not state.objects.has(key))
    whole = max(least, min(sum(stored), memory))
    beside = {each.key(row): each.bound(row) for _, each, row, _ in candidates if soon and each.rides}
    rest = max(0, min(sum(size for key, size in beside.items() if not state.objects.has(key)), memory - whole))
    if choice.demanded:
        return Need((whole, least), 0, None, rest)
    keep_free = max(demand_reserve, work.free_bytes(row))
    return Need((whole, least), keep_free, work.due_in_s(row), rest) if soon else Need((whole,), keep_free, math.inf)


def worth_making(state: State[Key], choice: NextJob[Key]) -> list[Candidate[Key]]:
    """What a job can make: first what it is for, then what is worth making of the video meanwhile, soonest first.

    Of other tasks only what belongs to the same generation of the group, or is needed before that of the job's work
    ends: more would fill the budget with what is needed late.
    """
    work, rows = choice.work, choice.rows
    asked: list[Candidate[Key]] = [(work.due_in_s(row), work, row, work.is_next(row)) for row in rows]
    video, until_s, mine = work.video(rows[0]), work.last_due_in_s(), set(rows)
    siblings = [(due, work, row, near) for due, row, near in work.worth_making(video) if row not in mine]
    for other in state.works():
        if other is not work:
            together = other.group_generation == work.group_generation
            found = other.worth_making(video)
            siblings += [(due, other, row, near) for due, row, near in found if together or due <= until_s]
    siblings.sort(key=lambda each: each[0])
    return asked + siblings


def fits(
    state: State[Key],
    candidates: Iterable[Candidate[Key]],
    promise: Callable[[int], Promise | None],
    room: int,
    memory: int,
    passing: Mapping[Key, Promise] = MappingProxyType({}),
) -> tuple[dict[Key, list[Wanted[Key]]], dict[Key, Promise]]:
    """Take what fits of what a job can make, and promise room to it.

    Args:
        state: all that is known.
        candidates: from `worth_making`.
        promise: promises bytes where objects go; None if there are none.
        room: most bytes of them on disk.
        memory: most raw bytes of them in the worker.
        passing: key → a place in memory, which takes no room.

    Returns:
        Key → rows that need it, and key → room for its object.
    """
    wanted: dict[Key, list[Wanted[Key]]] = {}
    promises: dict[Key, Promise] = {}
    for _, work, row, _ in candidates:
        key, size = work.key(row), work.bound(row)
        if key in wanted:
            wanted[key].append((work, row))
            continue
        place = passing.get(key)
        taken = size if place is None else 0
        if taken <= room and (held := work.held(row)) <= memory and state.objects.is_planned(key):
            promised = promise(size) if place is None else place
            if promised is not None:
                wanted[key], promises[key] = [(work, row)], promised
                room, memory = room - taken, memory - held
    return wanted, promises


def in_order_of_need(wanted: Mapping[Key, Sequence[Wanted[Key]]], urgent: Set[Key]) -> list[Key]:
    """In which order a job makes its objects: first what readers wait for, then what is needed soonest."""
    return sorted(wanted, key=lambda key: (key not in urgent, wanted[key][0][0].due_in_s(wanted[key][0][1])))


# Who is interrupted ---------------------------------------------------------------------------------------------------


def preemptible(state: State[Key]) -> frozenset[int]:
    """Numbers of the jobs that make nothing that a reader waits for: they may be interrupted for one."""
    return frozenset(number for number, left in state.jobs.items() if not missing_among(state, left))


@dataclass(slots=True)
class Patience:
    """Since when readers have waited for a worker."""

    stuck: tuple[int, int] | None = None
    """The oldest demand that no worker could be given: identity of the work, and row."""
    stuck_since: float = 0.0
    below_since: dict[int, float] = field(default_factory=dict)
    """Paused jobs that a reader waits for, below what nobody waits for."""


def preempt(
    state: State[Key],
    begun: Iterable[Sequence[int]],
    patience: Patience,
    now: float,
    *,
    at_once: bool,
) -> frozenset[int]:
    """Numbers of the jobs that are to give up their rest for a reader, which has waited a while for a worker.

    Args:
        state: all that is known.
        begun: numbers of each worker's jobs, the one it is on last.
        patience: what is remembered from call to call.
        now: seconds.
        at_once: the reader lacks room and not a worker; waiting would not help it. So it is while memory is short.
    """
    demand = next_demand(state)
    stuck = None if demand is None else (id(demand[0]), demand[1][0])
    if stuck != patience.stuck:
        patience.stuck, patience.stuck_since = stuck, now
    if stuck is not None and (at_once or now - patience.stuck_since >= PATIENCE_S):
        return preemptible(state)
    several = [stack for stack in begun if len(stack) > 1]
    may = preemptible(state) if several else frozenset[int]()
    over = {each: top for *below, top in several if top in may for each in below if each not in may}
    patience.below_since = {each: patience.below_since.get(each, now) for each in over}
    limit_s = 0.0 if at_once else PATIENCE_S
    return frozenset(top for each, top in over.items() if now - patience.below_since[each] >= limit_s)


def abandoned(state: State[Key]) -> frozenset[int]:
    """Numbers of the jobs to cancel: their task has left or their reader has gone, and nobody else needs them."""
    state.given_up.intersection_update([key for left in state.jobs.values() for key in left])
    if not state.gone and not state.given_up:
        return frozenset()
    lost = [
        number
        for number, left in state.jobs.items()
        if not state.given_up.isdisjoint(left)
        or any(work.task_id in state.gone for same in left.values() for work, _ in same)
    ]
    wanted = missing_keys(state) if lost else set[Key]()

    def is_needed(key: Key) -> bool:
        return key in wanted or any(work.next_due_in_s(key) is not None for work in state.ahead)

    return frozenset(number for number in lost if not any(map(is_needed, state.jobs[number])))


# What leaves ----------------------------------------------------------------------------------------------------------


def protected_keys(state: State[Key]) -> set[Key]:
    """Keys that must not be evicted: all that the oldest reader wants.

    So two readers that together want more than the budget holds take turns instead of evicting each other's clips.
    """
    return {key for demand in state.demands[:1] for key in demand.places()}


def eviction_bytes(need: int, free: int, budget: int) -> int:
    """How many bytes leave when ``need`` shall be free: a good share of the budget at a time."""
    return max(need - free, budget // SHARE)


def evictable(due_in_s: float | None, before_s: float | None) -> bool:
    """Whether what is needed in so many seconds (None = never) may leave for what is needed in ``before_s``.

    What is needed sooner may take the place of what is needed later, never the other way round. None = anything may.
    """
    return before_s is None or due_in_s is None or due_in_s > before_s
