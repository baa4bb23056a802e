"""What is due, demanded and evictable, against a small model in Python, on both databases."""

import random
from dataclasses import dataclass, field

import pytest

from tests.catalog.samples import copy, draws, plan, registered, select, video
from viewcache.catalog import Catalog
from viewcache.catalog.records import ProgressRow, TaskRow

PACES_S = {"train": 0.25, "val": 2.0}
"""Seconds per iteration of each task, far apart; exact in binary, so that sums in any order are equal."""


@dataclass(slots=True)
class Use:
    """One use to come or past."""

    task_id: int
    place: tuple[int, int]
    """Epoch and iteration."""
    position: int
    object_id: int


@dataclass(slots=True)
class Demand:
    """How much an object is wanted."""

    refs: int = 0
    drawn_refs: int = 0
    next_iterations: int = 1 << 60
    next_need_s: float = float("inf")

    def add(self, other: "Demand") -> None:
        self.refs += other.refs
        self.drawn_refs += other.drawn_refs
        self.next_iterations = min(self.next_iterations, other.next_iterations)
        self.next_need_s = min(self.next_need_s, other.next_need_s)


@dataclass(slots=True)
class Model:
    """The catalog's state as sets."""

    uses: list[Use] = field(default_factory=list)
    parents: dict[int, list[int]] = field(default_factory=dict)
    copies: dict[int, int] = field(default_factory=dict)
    """Bytes by object."""
    drawn: dict[tuple[int, int], int] = field(default_factory=dict)
    at: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Next epoch and iteration by task."""
    pace_s: dict[int, float] = field(default_factory=dict)
    """Seconds per iteration by task; 1 until it has reported."""

    def to_come(self, task_id: int) -> list[tuple[int, int]]:
        """The batches that a task needs, in order."""
        return sorted({use.place for use in self.uses if use.task_id == task_id and use.place >= self.at[task_id]})

    def own(self, window: int | None = None) -> dict[int, Demand]:
        found: dict[int, Demand] = {}
        ahead_of = {(task, place): n for task in self.at for n, place in enumerate(self.to_come(task)[:window])}
        for use in self.uses:
            ahead = ahead_of.get((use.task_id, use.place))
            if ahead is not None:
                drawn = use.position < self.drawn.get((use.task_id, use.place[0]), 0)
                found.setdefault(use.object_id, Demand()).add(
                    Demand(1, int(drawn), ahead, ahead * self.pace_s.get(use.task_id, 1.0))
                )
        return found

    def demand(self) -> dict[int, Demand]:
        found = self.own()
        for object_id, wanted in list(self.own().items()):
            front = [object_id]
            while front:
                node = front.pop()
                if node not in self.copies:
                    for parent in self.parents.get(node, ()):
                        found.setdefault(parent, Demand()).add(wanted)
                        front.append(parent)
        return found

    def due(self, n: int, window: int) -> list[tuple[float, int]]:
        return sorted((d.next_need_s, i) for i, d in self.own(window).items() if i not in self.copies)[:n]

    def victims(self, need: int, spare: set[int]) -> list[int]:
        wanted = self.demand()
        ranked = []
        for object_id, size in self.copies.items():
            d = wanted.get(object_id)
            if object_id in spare:
                continue
            if d is None:
                ranked.append((0, 0.0, object_id, size))
            elif d.drawn_refs == 0:
                ranked.append((1, float(d.refs), object_id, size))
            else:
                ranked.append((2, -d.next_need_s, object_id, size))
        chosen, freed = [], 0
        for _, _, object_id, size in sorted(ranked):
            if freed >= need:
                break
            chosen.append(object_id)
            freed += size
        return chosen


class Walk:
    """A random history, told to the catalog and to the model alike."""

    def __init__(self, catalog: Catalog, seed: int):
        self.catalog, self.random, self.model = catalog, random.Random(seed), Model()
        self.tasks: list[tuple[TaskRow, list[int]]] = [registered(catalog, 6, name) for name in ("train", "val")]
        self.planned = {row.task_id: 0 for row, _ in self.tasks}
        self.model.at = {row.task_id: (0, 0) for row, _ in self.tasks}
        self.objects: list[int] = []

    def step(self) -> None:
        self.random.choice([self.plan, self.draw, self.make, self.make, self.remove, self.advance])()
        self.catalog.flush()

    def plan(self) -> None:
        row, ids = self.random.choice(self.tasks)
        if self.planned[row.task_id] == 3:
            return
        order = self.random.sample(ids, self.random.choice([2, 4, 6]))  # videos are added and removed
        given = plan(self.catalog, row, order, self.planned[row.task_id])
        self.planned[row.task_id] += 1
        self.catalog.record_plan(given)
        for u in given.uses.to_pylist():
            self.model.uses.append(Use(u["task_id"], (u["epoch"], u["iteration"]), u["position"], u["object_id"]))
        for e in given.edges.to_pylist():
            self.model.parents.setdefault(e["child_id"], []).append(e["parent_id"])
        self.objects += given.objects["object_id"].to_pylist()

    def draw(self) -> None:
        row, ids = self.random.choice(self.tasks)
        key = row.task_id, self.random.randrange(4)
        first = self.model.drawn.get(key, 0)
        last = self.random.randint(first, len(ids))
        if last > first:
            self.catalog.record_draws(draws(row, key[1], ids[first:last], first))
            self.model.drawn[key] = last

    def make(self) -> None:
        for object_id in self.random.sample(self.objects, min(len(self.objects), 8)):
            size = self.random.randint(1, 100)
            self.catalog.mark_ready([copy(object_id, bytes=size)])
            self.model.copies[object_id] = size

    def remove(self) -> None:
        gone = self.random.sample(sorted(self.model.copies), len(self.model.copies) // 4)
        self.catalog.mark_gone(gone, "test", tier="local")
        for object_id in gone:
            del self.model.copies[object_id]

    def advance(self) -> None:
        row, _ = self.random.choice(self.tasks)
        coming = [*self.model.to_come(row.task_id), self.model.at[row.task_id]]
        epoch, iteration = self.model.at[row.task_id] = coming[min(self.random.randint(0, 3), len(coming) - 1)]
        pace_s = self.model.pace_s[row.task_id] = PACES_S[row.name]
        for rank in range(2):
            later = epoch + rank, iteration * (1 - rank)
            self.catalog.advance(ProgressRow(row.task_id, rank, *later, 100 * epoch - rank, pace_s))

    def check(self) -> None:
        columns = "select object_id, refs, drawn_refs, next_iterations, next_need_s"
        found = select(self.catalog, f"{columns} from object_demand")
        assert {i: Demand(*rest) for i, *rest in found} == self.model.demand()  # type: ignore[arg-type]
        asked = sorted(self.model.copies)
        assert self.catalog.wanted_among(asked) == self.model.demand().keys() & set(asked)
        counted = select(self.catalog, f"{columns} from refcounts")
        assert {i: Demand(*rest) for i, *rest in counted} == self.model.own()  # type: ignore[arg-type]
        n, window = self.random.randint(1, 20), self.random.randint(1, 10)
        due = self.catalog.due_next(n, window)
        pairs = zip(due["need_s"].to_pylist(), due["object_id"].to_pylist(), strict=True)
        assert list(pairs) == self.model.due(n, window)
        need = self.random.randint(1, 1 + sum(self.model.copies.values()))
        spare = self.random.sample(sorted(self.model.copies), len(self.model.copies) // 5)
        victims = self.catalog.victims("local", need, spare)
        assert victims["object_id"].to_pylist() == self.model.victims(need, set(spare))


@pytest.mark.parametrize("seed", range(4))
def test_demand_equals_the_model(catalog: Catalog, seed: int) -> None:
    """After any history, what is due, demanded and offered for eviction is what the definitions say."""
    walk = Walk(catalog, seed)
    for _ in range(25):
        walk.step()
        walk.check()


def test_the_slowest_rank_counts(catalog: Catalog) -> None:
    """An object is wanted as long as one rank has not read it."""
    row, ids = registered(catalog)
    catalog.record_plan(plan(catalog, row, ids))
    for rank, seq in ((0, 3), (1, 1)):
        catalog.advance(ProgressRow(row.task_id, rank, *divmod(seq, 2), seq, 1.0))
    catalog.flush()
    assert select(catalog, "select min(seq) from deadlines") == [(1,)]
    assert select(catalog, "select epoch, seq from positions") == [(0, 1)]
    for rank, epoch in ((0, 2), (1, 1)):
        catalog.advance(ProgressRow(row.task_id, rank, epoch, 0, epoch * 3, 1.0))
    catalog.flush()
    assert select(catalog, "select epoch, seq from positions") == [(1, 3)]


@pytest.mark.parametrize(("before", "after"), [(6, 2), (2, 6)], ids=["shorter", "longer"])
def test_epochs_of_another_length(catalog: Catalog, before: int, after: int) -> None:
    """Videos were removed or added since: batches of the later generation are counted on, and none of them is past."""
    row, ids = registered(catalog, 6)
    for number, videos in enumerate((before, after)):
        catalog.record_plan(plan(catalog, row, ids[:videos], number))
    each, place = before // 2, (1, before // 2 - 1)
    catalog.advance(ProgressRow(row.task_id, 0, *place, place[0] * each + place[1], 1.0))
    catalog.flush()
    expected = [place, *((epoch, iteration) for epoch in (2, 3) for iteration in range(after // 2))]
    found = select(catalog, "select distinct epoch, iteration, iterations_ahead, need_s from deadlines order by 1, 2")
    assert found == [(*each, n, float(n)) for n, each in enumerate(expected)]
    assert select(catalog, "select epoch, iteration from positions") == [place]


def test_a_rank_that_is_gone_needs_nothing(catalog: Catalog) -> None:
    """Killed, and not seen for ten minutes in which others of its training were: until then it may come back."""
    row, ids = registered(catalog)
    catalog.record_plan(plan(catalog, row, ids))
    catalog.advance(ProgressRow(row.task_id, 1, 0, 1, 1, 1.0, seen_at=1000.0))
    for seen_at, first in ((1600.0, 1), (1600.5, 3)):
        catalog.advance(ProgressRow(row.task_id, 0, 1, 1, 3, 1.0, seen_at=seen_at))
        catalog.flush()
        assert select(catalog, "select seq from positions") == [(first,)]
        assert select(catalog, "select min(seq) from deadlines") == [(first,)]
    assert select(catalog, "select rank from progress order by rank") == [(0,), (1,)], "where it was is still told"


def test_an_unknown_pace_counts_iterations(catalog: Catalog) -> None:
    """Before anything is measured the order of needs is that of the batches."""
    row, ids = registered(catalog)
    catalog.record_plan(plan(catalog, row, ids))
    assert select(catalog, "select count(*) from deadlines where need_s <> iterations_ahead") == [(0,)]


def test_seconds_compare_not_iterations(catalog: Catalog) -> None:
    """A slow task's next batch but one is needed later than a fast one's tenth: made later, and evicted sooner."""
    (slow, ids), (fast, _) = registered(catalog, 20, "slow"), registered(catalog, 20, "fast")
    plans = {row.name: plan(catalog, row, ids, epochs=1) for row in (slow, fast)}
    for row, pace_s in ((slow, 8.0), (fast, 0.5)):
        catalog.record_plan(plans[row.name])
        catalog.record_draws(draws(row, 0, ids))
        catalog.advance(ProgressRow(row.task_id, 0, 0, 0, 0, pace_s))
    catalog.flush()

    def clips(name: str, *iterations: int) -> set[int]:
        uses = plans[name].uses.to_pylist()
        return {use["object_id"] for use in uses if use["iteration"] in iterations}

    soonest = catalog.due_next(n=44)["object_id"].to_pylist()
    assert set(soonest[:8]) == clips("slow", 0) | clips("fast", 0)
    assert set(soonest[8:44]) == clips("fast", *range(1, 10)), "4.5 s at most, where the slow one's second is 8 s away"
    second, tenth = clips("slow", 1), clips("fast", 9)
    catalog.mark_ready([copy(object_id) for object_id in second | tenth])
    catalog.flush()
    given_up = catalog.victims("local", 400)
    assert set(given_up["object_id"].to_pylist()) == second
    assert given_up["reason"].to_pylist() == ["needed last"] * 4
    known = {row["object_id"]: row["next_need_s"] for row in catalog.candidates("local").to_pylist()}
    assert {known[object_id] for object_id in second} == {8.0}
    wanted = select(catalog, "select object_id, next_iterations, next_need_s from object_demand")
    found = {object_id: rest for object_id, *rest in wanted}
    assert [found[object_id] for object_id in sorted(second)] == [[1, 8.0]] * 4
    assert [found[object_id] for object_id in sorted(tenth)] == [[9, 4.5]] * 4


def test_what_is_held_is_never_offered(catalog: Catalog) -> None:
    """A lease protects its object until it expires."""
    row, ids = registered(catalog)
    catalog.record_plan(plan(catalog, row, ids))
    catalog.mark_ready([copy(1), copy(2), copy(3)])
    catalog.hold([1], holder="reader", expires_at=1e12)
    catalog.hold([2], holder="reader", expires_at=1.0)
    catalog.flush()
    assert 1 not in catalog.victims("local", 1 << 40)["object_id"].to_pylist()
    catalog.release([1], holder="reader")
    catalog.flush()
    assert {1, 2, 3} == set(catalog.victims("local", 1 << 40)["object_id"].to_pylist())


def test_what_cannot_be_made_again_is_never_offered(catalog: Catalog) -> None:
    """When a source is gone, copies that are still wanted are all there is (law 6)."""
    row, ids = registered(catalog)
    given = plan(catalog, row, ids)
    catalog.record_plan(given)
    clips = [o["object_id"] for o in given.objects.to_pylist() if o["video_id"] == ids[0] and o["kind"] == "clip"]
    catalog.mark_ready([copy(object_id) for object_id in clips])
    catalog.upsert_videos(row.dataset_id, [video(0, status="gone")])
    catalog.flush()
    assert catalog.victims("local", 1 << 40).num_rows == 0
    catalog.advance(ProgressRow(row.task_id, 0, 9, 0, 99, 1.0))
    catalog.flush()
    assert catalog.victims("local", 1 << 40)["object_id"].to_pylist() == clips


def test_eviction_stops_at_what_is_needed(catalog: Catalog) -> None:
    """The last victim is the one that makes the sum reach the need; another tier is left alone."""
    catalog.mark_ready([copy(i, bytes=10) for i in range(1, 9)] + [copy(1, tier="remote")])
    catalog.flush()
    found = catalog.victims("local", 25)
    assert found["object_id"].to_pylist() == [1, 2, 3]
    assert found["reason"].to_pylist() == ["nothing wants it"] * 3
    assert catalog.victims("local", 0).num_rows == 0
