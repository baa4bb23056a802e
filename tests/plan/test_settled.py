"""What was chosen before stays where another choice would save little, and generations in flight build the same."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks.invented import index_of
from tests.plan.test_horizon import COST, INDEX, PICTURES, VIDEOS, plan
from viewcache.catalog import Catalog
from viewcache.catalog.kinds import ObjectKind
from viewcache.materializer.media.media_index import MediaIndex
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.retention.choice import Options, WayChoice, prune, taken
from viewcache.materializer.retention.chosen import Chosen, KeepSettings, choose
from viewcache.materializer.retention.lasting import Lasting
from viewcache.materializer.retention.lying import Lying
from viewcache.materializer.retention.options import Weighed
from viewcache.materializer.retention.packs import Packs
from viewcache.materializer.retention.settled import STAYS, Settled, SettledWays
from viewcache.materializer.retention.ways import Kept, ToCome, Way

BUDGET = PICTURES // 4


def chosen(
    whole: GenerationPlan, settled: Settled, cost: CostModel = COST, lying: dict[str, list[Kept]] | None = None
) -> Chosen:
    """What is kept of a generation of which nothing is made."""
    rows = np.ones(len(whole), np.bool_)
    each = ToCome(whole, lambda _: INDEX, rows, ~rows)

    def there(lasting: Lasting) -> dict[str, list[Kept]]:
        return lying or {}

    found = choose([each], cost, KeepSettings(BUDGET, "cheapest", "auto", 1 << 30), 0, lying=there, settled=settled)
    assert found is not None
    return found


@pytest.mark.parametrize("rate", [0.95, 1.05, 1.15])
def test_rates_that_move_a_little_change_little(rate: float) -> None:
    """Loading is measured a few percent dearer or cheaper: most videos stay as they were, and none costs much."""
    whole = plan(5, 95, videos=VIDEOS)
    before = chosen(whole, Settled()).way_of()
    moved = replace(COST, load_s_per_byte=COST.load_s_per_byte * rate, store_s_per_byte=COST.store_s_per_byte * rate)
    free, stays = chosen(whole, Settled(), moved), chosen(whole, Settled(before), moved)
    after = stays.way_of()
    assert sum(before[key] != after[key] for key in before) <= VIDEOS // 20
    assert stays.choice.cost_s <= free.choice.cost_s / STAYS
    assert stays.choice.bytes <= BUDGET


def test_what_an_earlier_run_chose_stays() -> None:
    """A run that has chosen nothing yet knows it by what lies there: that counts as chosen, if it is of one way."""
    whole = plan(5, 95, videos=12)
    first, second = [way for way in chosen(whole, Settled()).weighed.ways if way.lasts][:2]
    made, other = (Kept(way, 10_000_000, made=True) for way in (first, second))
    half, coming = replace(made, made=False, share=0.5), replace(made, is_coming=True)
    known = Settled(dict.fromkeys(chosen(whole, Settled()).weighed.videos, second))
    for settled, lies, stays in (
        (Settled(), [made], True),
        (Settled(), [half], True),
        (Settled(), [made, other], False),
        (Settled(), [coming], False),
        (known, [made], False),
    ):
        weighed = chosen(whole, Settled(), lying=dict.fromkeys(known.ways, lies)).weighed
        column = weighed.ways.index(first)
        expected = weighed.options.cost_s[:, column] * (STAYS if stays else 1)
        assert np.array_equal(settled.seen_in(weighed).cost_s[:, column], expected)


def test_much_cheaper_is_chosen_again() -> None:
    """What stood in for the best is left where it costs more than a tenth more."""
    whole = plan(5, 95, videos=VIDEOS)
    keys = chosen(whole, Settled()).way_of()
    stays = chosen(whole, Settled(dict.fromkeys(keys, Way(0, None))))
    assert stays.choice.cost_s <= chosen(whole, Settled()).choice.cost_s / STAYS
    assert any(way.lasts for way in stays.way_of().values())


WAYS = tuple(Way(*each) for each in ((0, None), (0, ObjectKind.AUG), (0, ObjectKind.AUG, "h264"), (1, None)))
"""Nothing, what ends with the generation, what lasts, all clips."""
LASTS = 2


def table(rows: list[list[tuple[float, float]]], *lie: int) -> Weighed:
    """Videos of which each of `WAYS` takes so many megabytes and core seconds; of some what lasts lies there."""
    whole = plan(5, 95, videos=len(rows))
    size, cost_s = (np.array([[each[k] for each in row] for row in rows]) for k in range(2))
    options = Options((1e6 * size).astype(np.int64), cost_s, cost_s.copy(), len(WAYS) - 1, 0)
    weighed = chosen(whole, Settled()).weighed
    lying = {weighed.videos[k]: [Kept(WAYS[LASTS], int(options.bytes[k, LASTS]), made=True)] for k in lie}
    return replace(weighed, options=options, ways=WAYS, lying=lying)


def held(weighed: Weighed, budget: int) -> tuple[WayChoice, WayChoice]:
    """What a rule chooses of it, and what is then chosen; what these cost is what they cost, whatever stays."""
    settled = Settled(dict.fromkeys(weighed.lying, WAYS[LASTS]))
    first, then = prune(settled.seen_in(weighed), budget), settled.choice(weighed, prune, budget)
    return first, taken(weighed.options, then.option, budget)


def test_what_is_made_is_not_left_for_what_is_dearer() -> None:
    """Seconds and megabytes of a real decision: the videos' steps in turn have no room for what lies there complete."""
    rows = [
        [(0, 0.444), (9.92, 0.449), (0, np.inf), (0.65, 0.265)],
        [(0, 0.565), (8.68, 0.493), (0, np.inf), (0.65, 0.299)],
        [(0, 0.559), (2.05, 0.329), (3.20, 0.081), (3.85, 0.308)],
        [(0, 0.391), (1.60, 0.287), (0, np.inf), (0.65, 0.273)],
        [(0, 0.287), (1.96, 0.240), (0, np.inf), (0.65, 0.223)],
        [(0, 0.563), (1.78, 0.375), (0, np.inf), (0.65, 0.356)],
        [(0, 0.440), (1.43, 0.230), (0, np.inf), (0.65, 0.216)],
        [(0, 0.474), (1.77, 0.376), (0, np.inf), (0.65, 0.353)],
    ]
    found = [held(table(rows, 2), budget) for budget in (5_000_000, 6_900_000, 7_200_000)]
    assert [first.option[2] == LASTS for first, _ in found] == [False, False, True]
    # Under the least budget clips of four other videos are worth more.
    assert [then.option[2] == LASTS for _, then in found] == [False, True, True]


@given(st.data())
def test_staying_is_never_cheaper_than_what_is_chosen(data: st.DataObject) -> None:
    """Where what lies there has room, with nothing of the other videos."""
    way = st.tuples(st.integers(1, 30), st.floats(0, 10, width=16))
    nothing = st.tuples(st.just(0), st.floats(0, 10, width=16))
    rows = data.draw(st.lists(st.tuples(nothing, way, way, way).map(list), min_size=2, max_size=5))
    lie = data.draw(st.sets(st.sampled_from(range(len(rows)))))
    weighed = table([[(float(size), cost_s) for size, cost_s in row] for row in rows], *lie)
    budget = 1_000_000 * data.draw(st.integers(0, 150))
    stays = taken(weighed.options, np.array([LASTS if k in lie else 0 for k in range(len(rows))]), budget)
    if not stays.short_bytes:
        assert held(weighed, budget)[1].cost_s <= stays.cost_s + 1e-9


def test_pictures_that_lie_there_are_used_however_large_they_were_thought_to_be() -> None:
    """Room for all of them at once is asked for what is to be made, not for what is."""
    whole = plan(5, 95, videos=1)
    rows, way = np.ones(len(whole), np.bool_), Way(0, ObjectKind.AUG, "delta-zstd1")
    settings = KeepSettings(PICTURES // VIDEOS // 3, "cheapest", "auto", 1 << 30)

    def is_offered(*lying: Kept) -> bool:
        found = choose(
            [ToCome(whole, lambda _: INDEX, rows, ~rows)],
            COST,
            settings,
            0,
            lying=lambda _: {key: [*lying] for key in whole.videos.keys},
            tells=True,
        )
        assert found is not None
        return bool(np.isfinite(found.weighed.options.cost_s[0, found.weighed.ways.index(way)]))

    assert not is_offered()
    assert not is_offered(Kept(way, 1_000_000, made=False, share=0.1))
    assert is_offered(Kept(way, 9_000_000, made=False, share=0.9))
    assert is_offered(Kept(way, 10_000_000, made=True))


@given(st.data())
def test_an_earlier_generation_builds_what_the_later_one_keeps(data: st.DataObject) -> None:
    """Of every video nothing lasts but what was settled, or what lies there already."""
    whole = plan(5, 95, videos=12)
    weighed = chosen(whole, Settled()).weighed
    lasting = [way for way in weighed.ways if way.lasts]
    settled = {key: data.draw(st.sampled_from(weighed.ways)) for key in weighed.videos}
    made = {key: data.draw(st.sampled_from(lasting)) for key in weighed.videos[:6]}
    lying = {key: [Kept(way, 10_000_000, made=True)] for key, way in made.items()}
    found = chosen(whole, Settled(settled, later=True), lying=lying)
    for key, way in found.way_of().items():
        assert not way.lasts or way in (settled[key], made.get(key))


def test_videos_that_no_task_has_are_forgotten() -> None:
    """What was chosen for a video is known while a task has it: also while its readers pause, and no longer."""
    first, second = plan(5, 95, videos=VIDEOS), plan(5, 95, videos=VIDEOS // 2)
    ways, settled = chosen(first, Settled()).way_of(), SettledWays()
    settled.has(1, first.videos.row_of_key)
    settled.choose(ways)
    settled.choose({"ff" * 16: Way(0, None)})  # of a file that was replaced since
    assert settled.forget_gone() == {"ff" * 16}
    settled.has(2, second.videos.row_of_key)
    assert settled.forget_gone() == set()
    settled.over(1)
    assert settled.forget_gone() == {*first.videos.keys} - {*second.videos.keys}
    assert settled.seen(later=False).ways == {key: ways[key] for key in second.videos.keys}
    settled.over(2)
    assert settled.forget_gone() == {*second.videos.keys}
    assert not len(settled)


def test_objects_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    """What lasts is known while it is to be made or lies there."""
    whole, sizes = plan(5, 95, videos=VIDEOS), dict[str, int]()
    rows = np.ones(len(whole), np.bool_)
    keys = ["aa" * 16, "bb" * 16]
    with Catalog.open(tmp_path) as catalog:
        lying = Lying(catalog, sizes.get, Packs(catalog, sizes.get))
        settings = KeepSettings(BUDGET, "cheapest", "auto", 1 << 30)

        def look() -> None:
            choose([ToCome(whole, lambda _: INDEX, rows, ~rows)], COST, settings, 0, lying=partial(lying.find, 0))

        look()
        lying.will_last(1, keys)
        look()
        assert [lying.may_last(key, int(whole.videos.ids[0])) for key in keys] == [True, True]
        sizes[keys[0]] = 1
        lying.forget(1)
        look()
        assert [lying.may_last(key, int(whole.videos.ids[0])) for key in keys] == [True, False]
        del sizes[keys[0]]
        look()
        assert not len(lying)


@pytest.mark.parametrize("left", [0, 20])
def test_a_plan_that_was_drawn_by_a_header_that_lies_is_weighed(left: int) -> None:
    """Frames that a video turns out not to have are needed by nobody; its neighbours cost what they do."""
    whole = plan(5, left, videos=12)
    videos, rows = [*whole.videos.keys], np.ones(len(whole), np.bool_)
    settings = KeepSettings(BUDGET, "cheapest", "auto", 1 << 30)

    def costs(index: MediaIndex) -> dict[str, NDArray[np.float64]]:
        each = ToCome(whole, lambda row: index if row == 3 else INDEX, rows, ~rows)
        found = choose([each], COST, settings, 0, tells=True)
        assert found is not None
        return dict(zip(found.weighed.videos, found.weighed.options.cost_s, strict=True))

    honest, lying = costs(INDEX), costs(index_of(60, 48))
    for key in videos[:3] + videos[4:]:
        np.testing.assert_allclose(lying[key], honest[key])
    assert (lying[videos[3]] <= honest[videos[3]]).all()


def test_what_is_half_made_costs_half() -> None:
    """Pictures that lie there need not be made, whether all of their video do or not."""
    whole = plan(5, 95, videos=4)
    way = Way(0, ObjectKind.AUG, "delta-lz4")

    def cost_s(share: float) -> float:
        keys = chosen(whole, Settled()).weighed.videos
        lying = {key: [Kept(way, 10_000_000, share == 1, share)] for key in keys} if share else {}
        weighed = chosen(whole, Settled(), lying=lying).weighed
        return float(weighed.options.cost_s[:, weighed.ways.index(way)].sum())

    nothing, half, most, everything = map(cost_s, (0.0, 0.5, 0.9, 1.0))
    assert nothing - half == pytest.approx((nothing - most) * 5 / 9)
    assert everything < most < half < nothing
