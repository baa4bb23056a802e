"""Orders drawn together: the invariants of JOADER (docs/design/0008), most of them by exact enumeration."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cache
from itertools import permutations
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.ops.references import stats
from tests.plan.misprint import print_line_12
from viewcache.errors import BadInput
from viewcache.materializer.planning import joint_order
from viewcache.materializer.planning.joint_order import MOST_JOBS, DependentOrder, EpochDraw, KeyedChance

Sets = tuple[frozenset[int], ...]


class Scripted:
    """Takes given outcomes, then always the first; knows how likely they were together, and which come next."""

    def __init__(self, outcomes: list[int]) -> None:
        self.outcomes = outcomes
        self.taken: list[tuple[int, int]] = []
        self.weight = Fraction(1)

    def begin(self, jobs: Iterable[EpochDraw]) -> None:
        """Nothing to prepare."""

    def coin(self, job: EpochDraw, wins: int, of: int) -> bool:
        assert 0 < wins < of, "what is certain is no choice"
        won = not self._take(2)
        self.weight *= Fraction(wins if won else of - wins, of)
        return won

    def below(self, job: EpochDraw, n: int) -> int:
        self.weight /= n
        return self._take(n)

    def _take(self, options: int) -> int:
        outcome = self.outcomes[len(self.taken)] if len(self.taken) < len(self.outcomes) else 0
        self.taken.append((outcome, options))
        return outcome

    def next(self) -> list[int] | None:
        """The outcomes of the next branch of the tree; None after the last."""
        taken = self.taken[:]
        while taken:
            outcome, options = taken.pop()
            if outcome + 1 < options:
                return [each for each, _ in taken] + [outcome + 1]
        return None


@pytest.fixture(params=["few", "many"])
def cells(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to look at the cells."""
    _outcomes.cache_clear()
    if request.param == "many":
        monkeypatch.setattr(joint_order, "MANY_CELLS", -1)


@cache
def _outcomes(needs: Sets, taking: frozenset[int]) -> list[tuple[Fraction, dict[int, int]]]:
    """Every way in which a round can end, and its exact probability."""
    found = []
    outcomes: list[int] | None = []
    while outcomes is not None:
        chance = Scripted(outcomes)
        order = DependentOrder(5, chance)
        for job, need in enumerate(needs):
            order.insert(str(job), np.array(sorted(need), np.int64))
        picks = order.draw([str(job) for job in taking])
        found.append((chance.weight, {int(pick.job): pick.element for pick in picks}))
        outcomes = chance.next()
    assert sum(weight for weight, _ in found) == 1
    return found


def _orders(sets: Sets, rounds: list[frozenset[int]], job: int) -> dict[tuple[int, ...], Fraction]:
    """The exact distribution of one job's order over an epoch, when the rounds are held in turn."""
    states: dict[tuple[Sets, tuple[int, ...]], Fraction] = {(sets, ()): Fraction(1)}
    turn = 0
    while any(any(needs) for needs, _ in states):
        after: dict[tuple[Sets, tuple[int, ...]], Fraction] = defaultdict(Fraction)
        for (needs, order), weight in states.items():
            for likely, picks in _outcomes(needs, rounds[turn % len(rounds)]):
                rest = tuple(need - {picks[k]} if k in picks else need for k, need in enumerate(needs))
                more = (*order, picks[job]) if job in picks else order
                after[rest, more] += weight * likely
        states, turn = after, turn + 1
    return {order: weight for (_, order), weight in states.items()}


OVERLAPPING = (frozenset({0, 1, 2}), frozenset({0, 1, 2, 3}), frozenset({1, 2, 4}))
FULL = [frozenset({0, 1, 2})]
PARTIAL = [frozenset({0}), frozenset({1, 2}), frozenset({0, 1}), frozenset({0, 1, 2})]


@pytest.mark.usefixtures("cells")
@pytest.mark.parametrize("rounds", [FULL, PARTIAL], ids=["full", "partial"])
@pytest.mark.parametrize("job", [0, 1, 2])
def test_each_job_alone_sees_every_order_equally_often(rounds: list[frozenset[int]], job: int) -> None:
    """Law 2, exactly: whatever is shared with whom, all orders of a job have one probability."""
    orders = _orders(OVERLAPPING, rounds, job)
    every = set(permutations(OVERLAPPING[job]))
    assert orders == {order: Fraction(1, len(every)) for order in every}


def test_the_printed_line_12_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """With c ← |D|, as Algorithm 1 is printed, the enumeration finds orders that are off by up to 72 %."""
    print_line_12(monkeypatch)
    _outcomes.cache_clear()
    sets = frozenset({1, 2, 3}), frozenset({0, 1, 2, 3}), frozenset({0, 3, 4})
    orders = _orders(sets, FULL, 1)
    _outcomes.cache_clear()
    assert max(abs(weight * 24 - 1) for weight in orders.values()) == Fraction(13, 18)


@pytest.mark.usefixtures("cells")
@pytest.mark.parametrize(
    ("first", "second"), [({0, 1, 2}, {2, 3}), ({0, 1}, {0, 1, 2, 3, 4}), ({0, 1, 2}, {1, 2, 3}), ({0}, {1, 2})]
)
def test_two_jobs_coincide_as_often_as_can_be(first: set[int], second: set[int]) -> None:
    """P(same first pick) = |I| / max(|D1|, |D2|), the most that two uniform picks allow (Theorem 1)."""
    same = sum(
        weight
        for weight, picks in _outcomes((frozenset(first), frozenset(second)), frozenset({0, 1}))
        if picks[0] == picks[1]
    )
    assert same == Fraction(len(first & second), max(len(first), len(second)))


def test_a_job_inside_another_shares_what_the_closed_form_says() -> None:
    """Nested a in b at one pace: a - (b - a)(H_b - H_(b-a)) shared picks are expected."""
    for a, b in [(1, 3), (2, 4), (3, 5), (4, 5)]:
        harmonic = sum(Fraction(1, k) for k in range(b - a + 1, b + 1))
        assert _expected_shared(frozenset(range(a)), frozenset(range(b))) == a - (b - a) * harmonic


@cache
def _expected_shared(small: frozenset[int], large: frozenset[int]) -> Fraction:
    if not small:
        return Fraction(0)
    total = Fraction(0)
    for weight, picks in _outcomes((small, large), frozenset({0, 1})):
        rest = _expected_shared(small - {picks[0]}, large - {picks[1]})
        total += weight * (rest + (picks[0] == picks[1]))
    return total


@pytest.mark.parametrize("overlap", [0, 1, 60, 200])
def test_equal_sizes_at_one_pace_draw_the_union_once(overlap: int) -> None:
    """Two jobs of one size: what both need is drawn once for both, always."""
    order = DependentOrder(400, KeyedChance(overlap))
    order.insert("a", np.arange(200))
    order.insert("b", np.arange(200 - overlap, 400 - overlap))
    distinct = sum(len({pick.element for pick in order.draw(["a", "b"])}) for _ in range(200))
    assert distinct == 400 - overlap


@pytest.mark.parametrize("size", [100, 300, 5000])
def test_large_sets_are_uniform_too(size: int) -> None:
    """The first halves of some 20,000 picks are even, also beyond 128 elements (a defect of the paper's artifact)."""
    sets = [np.arange(size), np.arange(size // 4, size)]
    bins = 25  # divides both sizes
    counts = np.zeros((2, bins))
    order = DependentOrder(size, KeyedChance(7))
    for trial in range(20_000 // size + 1):
        for name, elements in enumerate(sets):
            order.insert(f"{name}", elements, epoch=trial)
        for _ in range(size):
            for pick in order.draw(["0", "1"]):
                name = int(pick.job)
                if pick.position < len(sets[name]) // 2:
                    counts[name, (pick.element - sets[name][0]) * bins // len(sets[name])] += 1
        order.remove("0")
        order.remove("1")
    for each in counts:
        assert stats.chisquare(each).pvalue > 1e-4


def test_picks_do_not_depend_on_who_else_is_asked_first() -> None:
    """The same jobs and the same seed draw the same, whatever the order of names in a call."""
    rounds = []
    for names in (["a", "b", "c"], ["c", "a", "b"]):
        order = DependentOrder(50, KeyedChance(3))
        for k, name in enumerate("abc"):
            order.insert(name, np.arange(10 * k, 50))
        rounds.append([sorted(order.draw(names)) for _ in range(50)])
    assert rounds[0] == rounds[1]


class History:
    """Random joining, leaving, partial rounds and restarts, beside a model made of sets."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.elements = self.random.choice([3, 8, 40, 200])
        self.seed = seed
        self.order = self._fresh()
        self.sets: dict[str, NDArray[np.int64]] = {}
        self.epoch: Counter[str] = Counter()
        self.drawn: dict[str, list[int]] = {}
        self.made = 0

    def _fresh(self) -> DependentOrder:
        return DependentOrder(self.elements, KeyedChance(self.seed))

    def step(self) -> None:
        steps: list[Callable[[], None]] = [self.join, self.leave, self.restart, *[self.draw] * 9]
        self.random.choice(steps)()
        self.check()

    def join(self) -> None:
        name = f"job{self.made}"
        self.made += 1
        size = self.random.randint(1, self.elements)
        self.sets[name] = np.array(self.random.sample(range(self.elements), size), np.int64)
        self.drawn[name] = []
        self.order.insert(name, self.sets[name])

    def leave(self) -> None:
        if self.sets:
            name = self.random.choice([*self.sets])
            self.order.remove(name)
            del self.sets[name], self.drawn[name]

    def restart(self) -> None:
        """Recovery from the draws alone."""
        self.order = self._fresh()
        for name, elements in self.sets.items():
            rest = np.setdiff1d(elements, self.drawn[name])
            self.order.insert(name, rest, epoch=self.epoch[name], position=len(self.drawn[name]))

    def draw(self) -> None:
        names = [name for name in self.sets if self.random.random() < 0.7]
        picks = self.order.draw(names)
        assert [pick.job for pick in sorted(picks)] == sorted(name for name in names if self._rest(name))
        for pick in picks:
            assert (pick.epoch, pick.position) == (self.epoch[pick.job], len(self.drawn[pick.job]))
            assert pick.element in self._rest(pick.job), "once per epoch, and only what is asked for"
            self.drawn[pick.job].append(pick.element)
            if not self._rest(pick.job):
                self.order.remove(pick.job)
                self.epoch[pick.job] += 1
                self.drawn[pick.job] = []
                self.order.insert(pick.job, self.sets[pick.job], epoch=self.epoch[pick.job])

    def check(self) -> None:
        needs = Counter[int]()
        for name in self.sets:
            rest = self._rest(name)
            needs.update(rest)
            assert self.order.left(name) == len(rest)
            assert self.order.needed_by(name).tolist() == sorted(rest)
        assert self.order.needs().tolist() == [needs[element] for element in range(self.elements)]

    def _rest(self, name: str) -> set[int]:
        return set(self.sets[name].tolist()).difference(self.drawn[name])


@pytest.mark.usefixtures("cells")
@pytest.mark.parametrize("block", range(10))
def test_any_history_gives_each_job_each_element_once(block: int) -> None:
    """Law 1 under 1,000 random histories of join, leave, partial rounds and restart; counts always agree."""
    for seed in range(100 * block, 100 * block + 100):
        history = History(seed)
        history.join()
        for _ in range(25):
            history.step()


def test_more_jobs_than_a_machine_word_has_bits() -> None:
    """Jobs beyond the cap are drawn with each other; all see everything once."""
    order = DependentOrder(30, KeyedChance(1))
    names = [f"job{k}" for k in range(2 * MOST_JOBS + 5)]
    for name in names:
        order.insert(name, np.arange(30))
    seen = defaultdict(list)
    for _ in range(30):
        picks = order.draw(names)
        assert len({pick.element for pick in picks}) <= 3, "jobs drawn together, of one size and pace, draw one element"
        for pick in picks:
            seen[pick.job].append(pick.element)
    assert all(sorted(seen[name]) == list(range(30)) for name in names)


def test_places_of_jobs_that_left_are_used_again() -> None:
    """A thousand short jobs pass through one set of jobs that are drawn together."""
    order = DependentOrder(20, KeyedChance(1))
    order.insert("stays", np.arange(20))
    for k in range(1000):
        order.insert(f"passes{k}", np.arange(20))
        assert len({pick.element for pick in order.draw(["stays", f"passes{k}"])}) <= 2
        order.remove(f"passes{k}")
    assert len(order.parts) == 1


@pytest.mark.parametrize(
    ("name", "elements", "message"),
    [
        ("a", [1, 2], "draws already"),
        ("b", [1, 30], "needs elements 1 to 30; there are 0 to 29"),
        ("b", [-1], "needs elements -1"),
        ("b", [3, 4, 3], "an element twice"),
    ],
)
def test_what_cannot_be_drawn_from_is_refused(name: str, elements: list[int], message: str) -> None:
    """A clear error, and nothing has changed."""
    order = DependentOrder(30, KeyedChance(1))
    order.insert("a", np.arange(30))
    with pytest.raises(BadInput, match=message):
        order.insert(name, np.array(elements))
    assert order.needs().tolist() == [1] * 30
    assert order.left("a") == 30
