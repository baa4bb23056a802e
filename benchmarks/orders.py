"""Orders of several jobs: what dependent sampling saves, counted against JOADER's figures (Table 2, Fig. 11 and 12).

Nothing is timed here: misses of a model cache, so the figures are the same on every machine. A pick that jobs share in
one round is one access. ISA is independent sampling, each job a permutation of its own; DSA is ours.
"""

from argparse import ArgumentParser, Namespace
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks.cache_model import Cache, Known, misses
from benchmarks.harness import Aim, Figure, Result, main
from viewcache.materializer.planning.joint_order import DependentOrder, KeyedChance

Sets = list[NDArray[np.int64]]

PACES = {
    "2 jobs at 1 : 0.5": (1.0, 0.5),
    "5 jobs at 1 : 0.7 : 0.5 : 0.35 : 0.25": (1.0, 0.7, 0.5, 0.35, 0.25),
}


def bench(args: Namespace) -> Iterator[Result]:
    """Table 2, then Fig. 11 and 12, then paces."""
    size = args.elements
    yield from _table(size, args.seed)
    yield from _policies(size, args.seed)
    yield from _paces(size // 5, args.seed)


def _cases(size: int, seed: int) -> Iterator[tuple[str, Sets, str]]:
    """(title, data sets, what the paper has)."""
    for overlap in (100, 75, 50, 25):
        start = size - size * overlap // 100
        yield f"2 jobs, overlap {overlap} %", [np.arange(size), np.arange(start, start + size)], "always the minimum"
    for part in (75, 50, 25):
        yield f"2 jobs, the second {part} % of the first", [np.arange(size), np.arange(size * part // 100)], ""
    random = np.random.default_rng(seed)
    drawn = [np.sort(random.choice(size * 4 // 3, size, replace=False)) for _ in range(4)]
    yield "4 jobs, random 3/4 of a dataset", drawn, "-50 %"
    nested = [np.arange(size * part // 100) for part in (100, 75, 50, 25)]
    yield "4 jobs, nested", nested, "-30 %"


def _rounds(sets: Sets, seed: int) -> Iterator[set[int]]:
    """Distinct picks of each round of one epoch, every job one pick a round."""
    order = DependentOrder(1 + max(int(each.max()) for each in sets), KeyedChance(seed))
    names = [str(k) for k in range(len(sets))]
    for name, each in zip(names, sets, strict=True):
        order.insert(name, each)
    while picks := order.draw(names):
        yield {pick.element for pick in picks}


def dependent(sets: Sets, seed: int) -> list[int]:
    """The accesses of one epoch under dependent sampling."""
    return [element for picks in _rounds(sets, seed) for element in sorted(picks)]


def independent(sets: Sets, seed: int) -> list[int]:
    """The same when each job has a permutation of its own."""
    random = np.random.default_rng(seed)
    orders = [random.permutation(each) for each in sets]
    return [
        int(element)
        for k in range(max(map(len, orders)))
        for element in sorted({int(order[k]) for order in orders if k < len(order)})
    ]


def _table(size: int, seed: int) -> Iterator[Figure]:
    for title, sets, paper in _cases(size, seed):
        requests, least = sum(map(len, sets)), len(np.unique(np.concatenate(sets)))
        ours, theirs = len(dependent(sets, seed)), len(independent(sets, seed))
        unit = (
            f"misses of {requests} requests with 1 slot; minimum {least}; ISA {theirs}; ours ÷ ISA {ours / theirs:.2f}"
        )
        minimal = Aim(at_most=least) if paper == "always the minimum" else None
        yield Figure(f"Table 2, {title}", ours, f"{unit}{f'; paper: {paper}' if paper else ''}", minimal)


def _policies(size: int, seed: int) -> Iterator[Figure]:
    for title, sets, _ in list(_cases(size, seed))[-2:]:
        elements = size * 4 // 3
        trace, alone = dependent(sets, seed), independent(sets, seed)
        least = len(set(trace))
        for share in (10, 20, 30, 40, 60, 100):
            slots = size * share // 100
            counts = {each: misses(trace, slots, each, elements) for each in ("lru", "fifo", "random", "refcount")}
            isa = misses(alone, slots, "refcount", elements)
            others = ", ".join(f"{name} {count}" for name, count in counts.items() if name != "refcount")
            unit = f"misses, minimum {least}; {others}; ISA with refcount {isa}"
            aim = Aim(at_most=min(counts.values()))
            yield Figure(f"Fig. 11-12, {title}, cache {share} %, refcount", counts["refcount"], unit, aim)


def _paces(size: int, seed: int) -> Iterator[Figure]:
    """Two epochs of the slowest job over one data set; drawn when asked for, against orders that are planned."""
    for title, paces in PACES.items():
        yield from _pace(title, size, [(0, pace) for pace in paces], seed)
    yield from _pace("4 jobs that begin a quarter epoch apart", size, [(k * size // 4, 1.0) for k in range(4)], seed)


def _pace(title: str, size: int, jobs: list[tuple[int, float]], seed: int) -> Iterator[Figure]:
    slots = size // 10
    own = count(size, jobs, slots, "refcount", seed, planned="own")
    one = count(size, jobs, slots, "refcount", seed, planned="one")
    late = count(size, jobs, slots, "refcount", seed)
    unit = f"fetches with refcount and a 10 % cache; own orders {own}; one order planned for all {one}"
    yield Figure(f"{title}: drawn when asked for", late, unit, Aim(at_most=min(own, one)))
    for ahead in (16, 64):
        counts = {p: count(size, jobs, slots, p, seed, ahead=ahead) for p in ("refcount", "longest deadline", "demand")}
        others = ", ".join(f"{name} {each}" for name, each in counts.items() if name != "demand")
        unit = f"fetches; {others}"
        yield Figure(f"{title}: {ahead} drawn ahead, demand", counts["demand"], unit, Aim(at_most=min(counts.values())))


class _Job:
    """One job of a model in time: it takes an element whenever it has gone far enough."""

    def __init__(self, name: str, begin: int, pace: float, epochs: int) -> None:
        self.name = name
        self.begin = begin
        self.pace = pace
        self.epochs = epochs
        self.taken = 0
        self.drawn = 0
        self.waiting: deque[int] = deque()

    def due(self, tick: int, size: int) -> bool:
        """Whether it takes one at this tick."""
        return self.taken < self.epochs * size and (tick - self.begin) * self.pace >= self.taken


def count(
    size: int,
    jobs: list[tuple[int, float]],
    slots: int,
    policy: str,
    seed: int,
    *,
    ahead: int = 1,
    planned: str = "",
    cache_of: Callable[[Known], Cache] | None = None,
) -> int:
    """Fetches of jobs of different begin and pace over ``size`` elements, until the slowest has had two epochs.

    Args:
        size: elements.
        jobs: (first tick, elements a tick) of each.
        slots: of the cache.
        policy: of the cache.
        seed: of the orders.
        ahead: elements drawn beyond what each job has taken.
        planned: ``own``, or ``one`` order for all, planned at the start instead of drawn.
        cache_of: makes another cache than the model's own.
    """
    slowest = min(pace for _, pace in jobs)
    models = [_Job(str(k), begin, pace, round(2 * pace / slowest)) for k, (begin, pace) in enumerate(jobs)]
    known = Known(size)
    cache = cache_of(known) if cache_of is not None else Cache(slots, policy, known)
    orders = _Orders(models, size, seed, planned)
    uses: list[dict[str, deque[int]]] = [{} for _ in range(size)]
    tick = 0
    while any(model.taken < model.epochs * size for model in models):
        takers = [model for model in models if model.due(tick, size)]
        for model in takers:
            while len(model.waiting) < min(ahead, model.epochs * size - model.taken):
                for job, element in orders.draw(model, [m for m in takers if len(m.waiting) < ahead]):
                    job.waiting.append(element)
                    uses[element].setdefault(job.name, deque()).append(job.drawn)
                    job.drawn += 1
                    _refresh(known, element, uses[element], models, tick)
        for element in sorted({model.waiting[0] for model in takers}):
            for model in takers:
                if model.waiting and model.waiting[0] == element:
                    model.waiting.popleft()
                    model.taken += 1
                    uses[element][model.name].popleft()
            _refresh(known, element, uses[element], models, tick)
            known.references[element] = sum(model.epochs for model in models) - orders.had(element, uses[element])
            cache.access(element)
        tick += 1
    return cache.misses


def _refresh(known: Known, element: int, uses: dict[str, deque[int]], models: list[_Job], tick: int) -> None:
    """When the element is needed next, by each job's place and pace."""
    needs = [
        tick + max(0.0, (uses[model.name][0] - model.taken) / model.pace) for model in models if uses.get(model.name)
    ]
    known.need[element] = min(needs, default=np.inf)


class _Orders:
    """Where the model's jobs get their elements."""

    def __init__(self, models: list[_Job], size: int, seed: int, planned: str) -> None:
        self._size = size
        self._planned = planned
        self._random = [np.random.default_rng((seed, 0 if planned == "one" else k)) for k in range(len(models))]
        self._queues: list[deque[int]] = [deque() for _ in models]
        self._order = DependentOrder(size, KeyedChance(seed))
        self._models = models
        self._drawn = np.zeros(size, np.int64)

    def draw(self, asked: _Job, ready: list[_Job]) -> list[tuple[_Job, int]]:
        """A round; a planned order serves only who asked."""
        if self._planned:
            queue = self._queues[int(asked.name)]
            if not queue:
                queue.extend(self._random[int(asked.name)].permutation(self._size).tolist())
            picks = [(asked, queue.popleft())]
        else:
            for job in ready:
                if not self._order.left(job.name) and job.drawn < job.epochs * self._size:
                    self._order.remove(job.name)
                    self._order.insert(job.name, np.arange(self._size), epoch=job.drawn // self._size)
            found = self._order.draw([job.name for job in ready])
            picks = [(self._models[int(pick.job)], pick.element) for pick in found]
        for _, element in picks:
            self._drawn[element] += 1
        return picks

    def had(self, element: int, waiting: dict[str, deque[int]]) -> int:
        """How many uses of an element are past."""
        return int(self._drawn[element]) - sum(map(len, waiting.values()))


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--elements", type=int, default=10_000, help="of the largest job's data set (default 10,000)")


if __name__ == "__main__":
    main(__doc__, bench, _arguments)
