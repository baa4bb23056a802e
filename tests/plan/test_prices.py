"""What devices give has its price in what is kept: nothing where nobody measured it, and more the slower they are."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.invented import index_of, plan_of, task_of, videos_of
from viewcache.catalog.kinds import ObjectKind
from viewcache.materializer.media.source import Stamp
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.devices import FREE, SOURCE, Devices
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.retention import options
from viewcache.materializer.retention.balance import CORES, times_of
from viewcache.materializer.retention.choice import prune
from viewcache.materializer.retention.chosen import Chosen, KeepSettings, choose
from viewcache.materializer.retention.ways import ToCome
from viewcache.store.tier import LOCAL

INDEX = index_of(300, 48)
FILE_BYTES = int(INDEX.packet_bytes.sum())
BIG = 1 << 40
COST = CostModel(decode_s_per_pixel=2e-8)


def plan(later: int = 20, videos: int = 6) -> GenerationPlan:
    """A generation over videos of 300 frames."""
    return plan_of(task_of("train", 16, 4, batch=2), videos_of(videos), epochs=5, later=later)


def chosen(
    plan: GenerationPlan, budget: int, devices: Devices = FREE, cores: int = 2, cost: CostModel = COST
) -> Chosen | None:
    """What is kept of it, when nothing is there."""
    rows = np.ones(len(plan), np.bool_)
    settings = KeepSettings(budget, "cheapest", "auto", 1 << 30, cores=cores)
    return choose([ToCome(plan, lambda _: INDEX, rows, ~rows)], replace(cost, devices=devices), settings, 0)


def pick(plan: GenerationPlan, budget: int, devices: Devices = FREE, cost: CostModel = COST) -> Chosen:
    """The same where not every clip is kept."""
    found = chosen(plan, budget, devices, cost=cost)
    assert found is not None
    return found


def kept_bytes(found: Chosen) -> int:
    """How much is kept."""
    return found.choice.bytes


def test_what_a_batch_takes_beside_is_counted_for_all_that_are_to_come() -> None:
    """Of the generation and of those behind it; without a device it changes nothing."""
    found = pick(plan(later=20), 10**8, cost=replace(COST, batch_s=0.5))
    epochs, batches = 5 + 20, 3
    assert found.weighed.options.beside_s == pytest.approx(0.5 * epochs * batches)
    assert np.array_equal(found.choice.option, pick(plan(later=20), 10**8).choice.option)


@pytest.mark.parametrize("budget", [0, 10**7, 10**8, 10**9, BIG])
def test_without_a_profile_nothing_changes(budget: int) -> None:
    """The choice is that by core seconds alone, however many cores there are; so it is where disks cost nothing."""
    found = pick(plan(), budget)
    assert found.weighed.options.device_s == {}
    assert np.array_equal(found.choice.option, prune(found.weighed.options, found.budget_bytes).option)
    alike = [chosen(plan(), budget, FREE, cores=7), chosen(plan(), budget, Devices({LOCAL: 1e15, SOURCE: 1e15}))]
    for other in alike:
        assert other is not None
        assert np.array_equal(other.choice.option, found.choice.option)
        assert np.array_equal(other.weighed.options.cost_s, found.weighed.options.cost_s)


def test_a_slow_disk_for_what_is_kept_keeps_less() -> None:
    """Files are the tenth of what their pictures are: on a slow disk they are decoded again, and an epoch is faster."""
    free = pick(plan(), BIG)
    slow = pick(plan(), BIG, Devices({LOCAL: 20e6}))
    assert kept_bytes(slow) < kept_bytes(free)
    as_before = times_of(slow.weighed.options, free.choice.option)
    assert as_before.bound_by == (LOCAL,)
    assert slow.times().seconds < as_before.seconds


def test_a_slow_disk_for_files_is_read_once() -> None:
    """Where decoding is cheap nothing lasts behind its generation; it does if that spares reading the files again."""
    cheap = replace(COST, decode_s_per_pixel=1e-13, convert_s_per_pixel=1e-13, pass_s_per_byte=1e-6)
    assert chosen(plan(), BIG, cost=cheap) is None
    slow = pick(plan(), BIG, Devices({SOURCE: 1e4}), cheap)
    assert all(way.lasts for way in slow.way_of().values())
    options = slow.weighed.options
    assert slow.times().seconds < 0.5 * times_of(options, np.full(6, options.leaf)).seconds


def test_the_bytes_of_files_are_those_of_what_is_decoded() -> None:
    """Where a packet costs a second and nothing else costs any, bytes are seconds times the mean size of a packet."""
    only_packets = CostModel(1 / INDEX.frame_pixels, 0, 0, 0, 0, 0, 0)
    options = pick(plan(later=0), 0, Devices({SOURCE: 1.0, LOCAL: 1.0}), only_packets).weighed.options
    there = np.isfinite(options.cost_s)
    assert there.sum() > 12
    packets = options.device_s[SOURCE][there] / (FILE_BYTES / INDEX.frames)
    assert packets == pytest.approx(options.cost_s[there])
    assert (options.device_s[LOCAL][:, options.nothing] == 0).all()
    assert (options.device_s[LOCAL][:, options.leaf] > 0).all()


def test_what_lasts_reads_files_once() -> None:
    """Whatever number of generations comes behind; what does not last reads them in each."""
    few, many = (pick(plan(later), 0, Devices({SOURCE: 1.0})).weighed for later in (20, 40))
    for column, way in enumerate(few.ways):
        less, more = (each.options.device_s[SOURCE][:, column] for each in (few, many))
        assert (less == more).all() if way.lasts else (less < more).all() or not less.any()


def test_one_disk_does_one_thing_after_the_other() -> None:
    """Files and what is kept on one disk take turns: its seconds are added up."""
    apart = pick(plan(), 0, Devices({SOURCE: 1e8, LOCAL: 1e8})).weighed.options.device_s
    together = pick(plan(), 0, Devices({SOURCE: 1e8, LOCAL: 1e8}, is_one=True)).weighed.options.device_s
    assert together.keys() == {LOCAL}
    assert together[LOCAL] == pytest.approx(apart[SOURCE] + apart[LOCAL])


def test_files_that_lie_far_away_have_no_price_of_a_disk() -> None:
    """What fetching them takes is in core seconds already."""
    whole = plan()
    first = whole.videos.keys[0]
    rows = np.ones(len(whole), np.bool_)
    each = ToCome(whole, lambda _: INDEX, rows, ~rows, lambda row: Stamp(FILE_BYTES, 1) if row == 0 else None)
    cost = replace(COST, devices=Devices({SOURCE: 1e8}))
    found = choose([each], cost, KeepSettings(0, "cheapest", "auto", 1 << 30), 0)
    assert found is not None
    options, far = found.weighed.options, [key == first for key in found.weighed.videos]
    seconds = options.device_s[SOURCE][:, options.nothing]
    assert ((seconds == 0) == far).all()


def test_many_videos_are_priced_by_the_size_of_their_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where packet indexes are not looked at, a file's bytes are spread over its frames."""
    whole = plan()
    monkeypatch.setattr(options, "MOST_INDEXES", 0)
    sizes = np.arange(1, 7) * 300_000
    videos = replace(whole.videos, file_bytes=sizes)
    object.__setattr__(whole, "context", replace(whole.context, items=replace(whole.context.items, videos=videos)))
    found = pick(whole, BIG, Devices({SOURCE: 1.0})).weighed
    place = [whole.videos.keys.index(key) for key in found.videos]
    lasting = next(k for k, way in enumerate(found.ways) if way.intermediate == ObjectKind.FRAMES and way.lasts)
    assert found.lasting is not None
    frames = found.lasting.reach.counts
    assert found.options.device_s[SOURCE][:, lasting] == pytest.approx(sizes[place] / 300 * frames)


def test_every_clip_is_kept_only_where_that_is_fastest() -> None:
    """Clips that all fit are made ahead without being asked; not on a disk that is slower than making them again."""
    one = plan(later=0)
    assert chosen(one, BIG) is None
    assert chosen(one, BIG, Devices({LOCAL: 1e12})) is None
    slow = pick(one, BIG, Devices({LOCAL: 1e4}))
    assert slow.times().bound_by == (CORES,)
    assert slow.kept_share < 1


@pytest.mark.parametrize(
    ("before", "now", "moved"),
    [
        (Devices(), Devices({LOCAL: 1e8}), True),
        (Devices({LOCAL: 1e8}), Devices({LOCAL: 1.2e8}), False),
        (Devices({LOCAL: 1e8}), Devices({LOCAL: 2e8}), True),
        (Devices({LOCAL: 1e8}), Devices({LOCAL: 1e8}, is_one=True), True),
    ],
)
def test_a_profile_lets_it_be_chosen_again(before: Devices, now: Devices, moved: bool) -> None:
    """When one is new, or says something else; not when it says nearly the same."""
    assert CostModel(devices=now).moved(CostModel(devices=before)) is moved
