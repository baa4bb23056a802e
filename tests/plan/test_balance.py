"""Choosing by two prices: against every choice there is, against pure ways, and against mixes of two ways."""

from dataclasses import replace
from importlib import import_module
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewcache.materializer.retention.balance import CORES, balance, times_of
from viewcache.materializer.retention.choice import Options, prune

optimize = import_module("scipy.optimize")  # it brings no types

NOTHING, FRAMES, LEAF = range(3)
DISK, OTHER = "local", "source"
CLOSE = 1e-6


def options(
    ways: list[list[tuple[int, float, float]]], cores: int, other: float = 0.0, beside_s: float = 0.0
) -> Options:
    """Of (bytes, core seconds, device seconds) for each way of each item; nothing takes no bytes.

    ``other``: seconds that items of which nothing is kept have a second device for each of their device seconds;
    ``beside_s``: core seconds on top, whatever is chosen.
    """
    rows = [[(0, *nothing), *rest] for (_, *nothing), *rest in ways]
    size, core_s, device_s = (np.array([[each[k] for each in row] for row in rows], float) for k in range(3))
    devices = {DISK: device_s}
    if other:
        there = np.zeros_like(device_s)
        there[:, NOTHING] = device_s[:, NOTHING] * other
        device_s[:, NOTHING] = 0
        devices[OTHER] = there
    return Options(size.astype(np.int64), core_s, core_s, LEAF, NOTHING, devices, cores, beside_s)


seconds = st.floats(0, 10, width=16)
way = st.tuples(st.integers(1, 30), seconds, seconds)
items = st.lists(way, min_size=3, max_size=3)
on_top = st.just(0.0) | st.floats(0, 40, width=16)
graphs = st.builds(options, st.lists(items, min_size=1, max_size=8), st.integers(1, 4), st.just(0.0), on_top)
two_devices = st.builds(options, st.lists(items, min_size=1, max_size=8), st.integers(1, 4), st.just(0.5), on_top)


@st.composite
def several_devices(draw: st.DrawFn) -> Options:
    """Two or three devices, of which each way takes its own seconds."""
    graph = draw(graphs)
    names = [DISK, OTHER, "remote"][: draw(st.integers(2, 3))]
    each_s = st.lists(seconds, min_size=graph.cost_s.size, max_size=graph.cost_s.size)
    device_s = {name: np.array(draw(each_s), float).reshape(graph.cost_s.shape) for name in names}
    return replace(graph, device_s=device_s)


def time_of(graph: Options, budget: int) -> float:
    """Seconds of an epoch as it is chosen."""
    return times_of(graph, balance(graph, budget).option).seconds


def one_item(graph: Options) -> float:
    """Most seconds that one item can make a difference of."""
    core = (graph.cost_s.max(axis=1) - graph.cost_s.min(axis=1)).max() / graph.cores
    devices = ((each.max(axis=1) - each.min(axis=1)).max() for each in graph.device_s.values())
    return max(float(core), *map(float, devices))


@given(graphs | two_devices | several_devices(), st.integers(0, 240))
def test_it_fits_the_budget(graph: Options, budget: int) -> None:
    """Whatever the prices are; and what it says of itself is so."""
    chosen = balance(graph, budget)
    video = np.arange(len(chosen.option))
    assert chosen.bytes == graph.bytes[video, chosen.option].sum() <= budget
    assert chosen.cost_s == pytest.approx(graph.cost_s[video, chosen.option].sum())
    assert chosen.short_bytes == 0


@given(graphs, st.integers(0, 240))
def test_without_a_device_nothing_changes(graph: Options, budget: int) -> None:
    """The same choice as by core seconds alone, whether a device is free or not known."""
    free = replace(graph, device_s={DISK: np.zeros_like(graph.cost_s)})
    for each in (free, replace(graph, device_s={})):
        assert np.array_equal(balance(each, budget).option, prune(graph, budget).option)


@given(graphs | two_devices | several_devices(), st.integers(0, 240))
def test_no_pure_way_is_faster(graph: Options, budget: int) -> None:
    """None of those that the budget holds."""
    for way in range(graph.bytes.shape[1]):
        if graph.bytes[:, way].sum() <= budget:
            pure = times_of(graph, np.full(len(graph.bytes), way, np.int64)).seconds
            assert time_of(graph, budget) <= pure * (1 + CLOSE) + 1e-9


@given(graphs | two_devices | several_devices(), st.integers(0, 240))
def test_it_is_as_good_as_the_best_choice(graph: Options, budget: int) -> None:
    """Against every choice that fits: within one item where there is one device, else within one for each device."""
    video = np.arange(len(graph.bytes))
    every = np.array(list(product(range(graph.bytes.shape[1]), repeat=len(video))))
    fitting = every[graph.bytes[video, every].sum(axis=1) <= budget]
    busy = [(graph.cost_s[video, fitting].sum(axis=1) + graph.beside_s) / graph.cores]
    busy += [each[video, fitting].sum(axis=1) for each in graph.device_s.values()]
    best = float(np.max(busy, axis=0).min())
    limit = best * (1 + CLOSE) + len(graph.device_s) * one_item(graph) + 1e-9
    assert best * (1 - CLOSE) - 1e-9 <= time_of(graph, budget) <= limit


@given(graphs | two_devices | several_devices(), st.integers(0, 2**32 - 1))
def test_no_mix_is_faster(graph: Options, seed: int) -> None:
    """Liquid's eleven mixes of any two ways, drawn at random, by more than one item for each device."""
    rng, most = np.random.default_rng(seed), int(graph.bytes.max(axis=1).sum())
    ours = time_of(graph, most)
    for tenths, some, others in product(range(11), range(3), range(3)):
        drawn = rng.permutation(len(graph.bytes)) < len(graph.bytes) * tenths / 10
        mixed = times_of(graph, np.where(drawn, some, others)).seconds
        assert ours <= mixed * (1 + CLOSE) + len(graph.device_s) * one_item(graph) + 1e-9


@given(graphs | two_devices, st.floats(1, 8), st.integers(1, 4))
def test_more_of_anything_is_never_slower(graph: Options, faster: float, cores: int) -> None:
    """A larger budget, a faster device, more cores: an epoch takes no longer, but for one item."""
    before = time_of(graph, 60)
    limit = before * (1 + CLOSE) + one_item(graph) + 1e-9
    quick = {name: each / faster for name, each in graph.device_s.items()}
    assert all(time_of(graph, budget) <= limit for budget in range(60, 241, 20))
    assert time_of(replace(graph, device_s=quick), 60) <= limit
    assert time_of(replace(graph, cores=graph.cores + cores), 60) <= limit


def pictures(count: int, megabytes_per_s: float, cores: int, spread: float = 0.0) -> Options:
    """Images of 500x375 at q98 as they were measured: read from the file each time, or kept as resized."""
    size = np.exp(np.random.default_rng(1).normal(0, spread, count)) if spread else np.ones(count)
    decode_s, file_bytes, raw_bytes = 2.28e-3 * size, 121e3 * size, np.full(count, 262e3)
    core_s = np.stack([decode_s, np.full(count, 0.085e-3)], axis=1)
    device_s = np.stack([file_bytes, raw_bytes], axis=1) / (megabytes_per_s * 1e6)
    kept = np.stack([np.zeros(count), raw_bytes], axis=1).astype(np.int64)
    return Options(kept, core_s, core_s, 1, 0, {DISK: device_s}, cores)


def test_equal_items_are_divided_where_both_parts_are_busy() -> None:
    """The best share of images that are all alike is where cores and the disk take as long, to an image."""
    graph = pictures(1000, 200, 2)
    times = times_of(graph, balance(graph, 1 << 40).option)
    assert times.core_s == pytest.approx(times.device_s[DISK], rel=2e-3)
    assert times.bound_by == (CORES, DISK)
    best = min(
        times_of(graph, np.where(np.arange(1000) < kept, 1, 0)).seconds for kept in range(1001)
    )  # of equal images every share
    assert times.seconds == pytest.approx(best)


def test_what_comes_on_top_of_the_cores_is_balanced_too() -> None:
    """The more the cores have to do whatever is kept, the more is kept, until both parts are busy again."""
    before = 0.0
    for beside_s in (0.0, 0.2, 0.5):
        graph = replace(pictures(1000, 200, 2), beside_s=beside_s)
        option = balance(graph, 1 << 40).option
        times = times_of(graph, option)
        assert times.core_s == pytest.approx(times.device_s[DISK], rel=2e-3)
        assert option.mean() > before
        before = option.mean()


@pytest.mark.parametrize(("speed", "bound", "kept"), [(10, DISK, 0), (100_000, CORES, 1)])
def test_outside_of_the_band_one_way_is_best(speed: float, bound: str, kept: int) -> None:
    """A disk so slow that files are all it can read, and one so fast that everything is kept."""
    graph = pictures(300, speed, 2)
    option = balance(graph, 1 << 40).option
    assert times_of(graph, option).bound_by == (bound,)
    assert (option == kept).all()


def on_two_disks(count: int, files_mb_s: float, kept_mb_s: float, cores: int) -> Options:
    """Files of three kinds on a disk of their own: JPEG q98 and q90, and PNG; kept as plain pictures, or packed."""
    rng = np.random.default_rng(2)
    kind, size = rng.integers(0, 3, count), np.exp(rng.normal(0, 0.6, count))
    decode_s, file_bytes = (
        np.array([2.28e-3, 1.18e-3, 4.1e-3])[kind] * size,
        np.array([121e3, 41e3, 241e3])[kind] * size,
    )
    packed, nothing = 262e3 * rng.uniform(0.5, 0.95, count), np.zeros(count)
    kept = np.stack([nothing, np.full(count, 262e3), packed], axis=1)
    core_s = np.stack([decode_s, np.full(count, 0.085e-3), np.full(count, 0.2e-3)], axis=1)
    files = np.stack([file_bytes, nothing, nothing], axis=1)
    device_s = {DISK: kept / (kept_mb_s * 1e6), OTHER: files / (files_mb_s * 1e6)}
    return Options(kept.astype(np.int64), core_s, core_s, 1, 0, device_s, cores)


@pytest.mark.parametrize("room", [0.2, 0.6, 2.0])
@pytest.mark.parametrize(
    ("files_mb_s", "kept_mb_s", "cores"), [(20, 50, 2), (40, 100, 1), (50, 50, 4), (50, 200, 4), (100, 50, 8)]
)
def test_two_disks_are_balanced_at_once(files_mb_s: float, kept_mb_s: float, cores: int, room: float) -> None:
    """A slow disk of files beside one of kept pictures: within a hundredth of the bound that the prices prove.

    At any prices of core and device seconds, of a sum of 1, and of bytes, no choice takes less than what each item's
    cheapest way at these prices takes. The best prices of a linear program's dual prove the bound, and they are what
    seconds of the disks are said to be worth.
    """
    graph = on_two_disks(500, files_mb_s, kept_mb_s, cores)
    budget = int(room * graph.bytes[:, 1].sum())
    parts = [graph.cost_s / cores, *graph.device_s.values()]
    # Variables: a share of each way of each item, and the time of an epoch, which is to be least.
    busy = np.array([[*each.ravel(), -1] for each in parts] + [[*graph.bytes.ravel(), 0]])
    one_way = np.hstack([np.repeat(np.eye(500), 3, axis=1), np.zeros((500, 1))])
    found = optimize.linprog([*[0] * 1500, 1], busy, [0, 0, 0, budget], one_way, np.ones(500))
    chosen = balance(graph, budget)
    assert found.fun * (1 - CLOSE) <= times_of(graph, chosen.option).seconds <= found.fun * 1.01
    core, *disks = -found.ineqlin.marginals[:3]
    one = core if core > CLOSE else 1.0  # where cores wait whatever is chosen, all of them wait for the disks
    worth = {name: cores * price / one for name, price in zip(graph.device_s, disks, strict=True) if price > CLOSE}
    assert chosen.device_price == pytest.approx(worth, rel=0.1)


def test_which_items_are_kept_matters() -> None:
    """Of images of different sizes the large ones are kept: they cost the most to decode, and take the same room."""
    graph = pictures(2000, 200, 2, spread=0.6)
    option = balance(graph, 1 << 40).option
    assert 0.1 < option.mean() < 0.9
    assert graph.cost_s[option == 1, 0].min() >= graph.cost_s[option == 0, 0].max()


def test_the_budget_holds_where_choices_are_mixed() -> None:
    """Of two choices that both fill the budget with other items, none on the way between them is over it."""
    rng = np.random.default_rng(3)
    size = np.stack([np.zeros(400), rng.integers(50, 150, 400), rng.integers(200, 400, 400)], axis=1)
    core_s = np.stack([np.full(400, 3.0), rng.uniform(0.5, 2, 400), rng.uniform(0.1, 0.4, 400)], axis=1)
    device_s = np.stack([rng.uniform(0, 0.1, 400), rng.uniform(0.1, 0.3, 400), rng.uniform(0.3, 2.0, 400)], axis=1)
    graph = Options(size.astype(np.int64), core_s, core_s, 2, 0, {DISK: device_s}, 4)
    for budget in range(0, 120_000, 7919):
        chosen = balance(graph, budget)
        assert chosen.bytes <= budget
        rival = times_of(graph, prune(graph, budget).option).seconds
        assert times_of(graph, chosen.option).seconds <= rival * (1 + CLOSE)


def test_many_items_are_quick() -> None:
    """A hundred thousand, well under the timeout of a test, and better than the better of the pure ways."""
    graph = pictures(100_000, 400, 2, spread=0.6)
    pure = min(times_of(graph, np.full(100_000, way)).seconds for way in (0, 1))
    assert times_of(graph, balance(graph, 1 << 50).option).seconds < 0.7 * pure
