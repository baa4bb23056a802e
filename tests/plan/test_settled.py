"""What was chosen before stays where another choice would save little, and generations in flight build the same."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.test_horizon import COST, INDEX, PICTURES, VIDEOS, plan
from viewcache.catalog import Catalog
from viewcache.catalog.records import ObjectKind
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.retention.chosen import Chosen, KeepSettings, choose
from viewcache.materializer.retention.lasting import Lasting
from viewcache.materializer.retention.lying import Lying
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
