"""The tests of `viewcache verify`: uniform draws pass as often as they should, and biased ones are found."""

from collections.abc import Callable, Sequence
from itertools import permutations, product

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.ops.references import p_uniform
from tests.plan.misprint import print_line_12
from viewcache.api.audit import uniformity
from viewcache.api.audit.uniformity import SURE, Check, density_check, holm, order_checks
from viewcache.materializer.planning.joint_order import DependentOrder, KeyedChance

Order = NDArray[np.int64]


def by_name(checks: Sequence[Check]) -> dict[str, float]:
    """The p of each test, by what it is about."""
    assert all(check.p is not None for check in checks), "too few"
    return {check.about: float(check.p or 0.0) for check in checks}


@pytest.mark.parametrize(("videos", "epochs"), [(5, 40), (8, 10), (40, 2), (60, 12)])
def test_uniform_orders_are_accused_as_often_as_chance_says(videos: int, epochs: int) -> None:
    """Of many uniform sets of orders, the share with p below 0.05, 0.01 and 0.001 is what it should be."""
    random = np.random.default_rng(videos)
    times = 1500
    seen = [by_name(order_checks([random.permutation(videos) for _ in range(epochs)])) for _ in range(times)]
    for about in ("place", "next", "neighbours"):
        p = np.array([each[about] for each in seen])
        for bound in (0.05, 0.01, 0.001):
            noise = 4 * (bound * (1 - bound) * times) ** 0.5
            # A fifth more: the laws are those of many draws, and few videos have few different orders.
            assert (p <= bound).sum() <= 1.2 * bound * times + noise, f"{about}: p below {bound}"
            assert (p <= bound).sum() >= 0.6 * bound * times - noise, f"{about}: p below {bound}"


def test_one_epoch_can_be_tested_too() -> None:
    """Against the listing; only whether a video is early again and again needs two epochs."""
    random = np.random.default_rng(1)
    p = [order_checks([random.permutation(300)]) for _ in range(600)]
    assert all(check.p is None for check, *_ in p)
    for k in (1, 2):
        assert p_uniform([checks[k].p or 0.0 for checks in p]) > 1e-3


def test_moments_of_the_statistics_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all orders of few videos the means and variances are those that the laws have."""
    monkeypatch.setattr(uniformity, "LEAST_VALUES", 1)
    pairs = [order_checks([np.array(one), np.array(two)]) for one, two in product(permutations(range(4)), repeat=2)]
    concordance = np.array([checks[0].statistic for checks in pairs], float)
    freedom = 3 * 3
    assert concordance.mean() == pytest.approx(1 / 2)
    assert concordance.var() == pytest.approx(2 * (2 - 1) / (2**3 * freedom))
    alone = [order_checks([np.array(order)]) for order in permutations(range(6))]
    serial = np.array([checks[2].statistic for checks in alone], float)
    assert serial.mean() == pytest.approx(0, abs=1e-12)
    assert serial.var() == pytest.approx(1)
    monkeypatch.setattr(uniformity, "isqrt", lambda _: 2)
    alone = [order_checks([np.array(order)]) for order in permutations(range(5))]
    assert np.array([checks[1].statistic for checks in alone], float).mean() == pytest.approx(1)


def _listed(random: np.random.Generator, before: Order) -> Order:
    return np.arange(len(before))


def _same(random: np.random.Generator, before: Order) -> Order:
    return before


def _turned(random: np.random.Generator, before: Order) -> Order:
    return np.roll(before, 21)


def _turned_back(random: np.random.Generator, before: Order) -> Order:
    return before[::-1]


def _blocks(random: np.random.Generator, before: Order) -> Order:
    """Shards in random order, shuffled inside."""
    blocks = random.permutation(np.arange(len(before)).reshape(-1, 10))
    return np.concatenate([random.permutation(block) for block in blocks])


def _buffered(random: np.random.Generator, before: Order) -> Order:
    """A shuffle buffer of a fifth of the dataset over the listing."""
    waiting, order = list(range(len(before) // 5)), []
    for video in range(len(waiting), len(before)):
        place = int(random.integers(len(waiting)))
        order.append(waiting[place])
        waiting[place] = video
    return np.array([*order, *random.permutation(waiting)])


@pytest.mark.parametrize(
    ("draw", "about"),
    [
        (_listed, {"place", "next", "neighbours"}),
        (_same, {"place", "next"}),
        (_turned, {"next"}),
        (_turned_back, {"next"}),
        (_blocks, {"neighbours"}),
        (_buffered, {"place", "next", "neighbours"}),
    ],
)
def test_bad_shuffles_are_found(draw: Callable[[np.random.Generator, Order], Order], about: set[str]) -> None:
    """No shuffle, one for all epochs, one that is only turned, shards, a short buffer: each is found by its test."""
    random = np.random.default_rng(5)
    orders = [random.permutation(100)]
    while len(orders) < 8:
        orders.append(draw(random, orders[-1]))
    assert about <= {name for name, p in by_name(order_checks(orders)).items() if p < SURE}


def _joader_orders(epochs: int) -> list[list[Order]]:
    """Orders of three jobs over sets that overlap, drawn together epoch by epoch."""
    sets = {"a": [1, 2, 3], "b": [0, 1, 2, 3], "c": [0, 3, 4]}
    orders: dict[str, list[Order]] = {name: [] for name in sets}
    for epoch in range(epochs):
        order = DependentOrder(5, KeyedChance(epoch))
        taken: dict[str, list[int]] = {name: [] for name in sets}
        for name, videos in sets.items():
            order.insert(name, np.array(videos, np.int64), epoch=epoch)
        while any(order.left(name) for name in sets):
            for pick in order.draw(list(sets)):
                taken[pick.job].append(pick.element)
        for name, each in taken.items():
            orders[name].append(np.array(each))
    return list(orders.values())


def test_the_misprint_of_joader_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Line 12 of Algorithm 1 as printed bends the orders; repaired, the same test finds nothing."""
    about = ("place", "next")  # so few videos have no neighbours to speak of
    for orders in _joader_orders(400):
        assert min(by_name(order_checks(orders)[:2])[each] for each in about) > 1e-3

    print_line_12(monkeypatch)
    found = [by_name(order_checks(orders)[:2])["place"] for orders in _joader_orders(400)]
    assert min(found) < SURE


def test_only_videos_of_all_epochs_are_compared() -> None:
    """A dataset that grew between generations keeps its test: the order among the old videos is uniform too."""
    random = np.random.default_rng(3)
    orders = [random.permutation(30) + 1 for _ in range(4)] + [random.permutation(50) + 1 for _ in range(4)]
    checks = order_checks(orders)
    assert {check.n for check in checks} == {8 * 30}
    assert min(by_name(checks).values()) > 1e-3
    assert order_checks([np.arange(9), np.arange(9) + 9])[0].p is None
    assert [check.n for check in order_checks([])] == [0, 0, 0]


@pytest.mark.parametrize("n", [50, 73, 3000])
def test_uniform_values_have_uniform_p(n: int) -> None:
    """As many as should be are accused, at the smallest number that is tested too."""
    random = np.random.default_rng(n)
    p = np.array([density_check("start", "", random.random(n)).p for _ in range(2000)], float)
    assert (p <= 0.05).mean() == pytest.approx(0.05, abs=0.02)
    assert (p <= 0.005).mean() <= 0.012


def test_a_bent_density_is_found() -> None:
    """Values that avoid the ends, and the density that a plot shows of them."""
    values = np.random.default_rng(2).beta(2, 2, 500)
    check = density_check("start", "values", values)
    assert check.p is not None
    assert check.p < SURE
    assert np.mean(check.density) == pytest.approx(1)
    assert check.density[0] < 0.5 < 1.3 < check.density[5]


@pytest.mark.parametrize("n", [0, 1, 49])
def test_too_few_draws_have_no_p(n: int) -> None:
    """A p that means nothing is not told."""
    (check,) = holm([density_check("start", "", np.linspace(0, 0.999, n))])
    assert check.p is None
    assert check.verdict == "too few to tell"
    assert all(each.p is None for each in order_checks([np.arange(5)] * (n // 5)))


def test_holm_is_as_published() -> None:
    """Ordered p times what is left, never falling; verdicts follow the adjusted p."""
    given = [0.01, None, 0.04, 0.03, 1e-9]
    out = holm([Check("start", "", 100, p=p) for p in given])
    assert [each.adjusted for each in out] == [pytest.approx(0.03), None, 0.06, 0.06, pytest.approx(4e-9)]
    assert [each.verdict for each in out] == ["fits", "too few to tell", "fits", "fits", "not uniform"]
