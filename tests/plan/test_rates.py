"""What mixes should give, by arithmetic."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewcache.materializer.profiling.by_price import Images, by_price
from viewcache.materializer.profiling.mixes import TENTHS
from viewcache.materializer.profiling.rates import Form, Rates

INFINITE = math.inf
forms = st.builds(
    Form, st.floats(1e-5, 1e-1), st.floats(0, 1e-2), st.floats(1e3, 1e7), st.floats(1e6, 1e10) | st.just(INFINITE)
)
machines = st.builds(Rates, forms, forms, st.booleans(), st.integers(1, 64), st.integers(1, 64))


def machine(device: float, *, one_device: bool = True) -> Rates:
    """Images of 121 kB that take 2.28 ms, kept pictures of 262 kB that take 0.085 ms, two cores."""
    source, kept = Form(2.28e-3, 0.0, 121e3, device), Form(0.085e-3, 0.0, 262e3, device)
    return Rates(source, kept, one_device, workers=2, cores=2)


@pytest.mark.parametrize(
    ("device", "source", "kept", "best", "at"), [(200e6, 877, 763, 1_225, 3), (400e6, 877, 1_527, 1_946, 6)]
)
def test_a_band_of_devices_has_its_best_inside(device: float, source: int, kept: int, best: int, at: int) -> None:
    """On two cores a mix is 1.3 to 1.4 times as fast as either form where the device gives some hundred MB a second."""
    rates = machine(device)
    each = [rates.predicted(tenths) for tenths in TENTHS]
    assert each[0] == pytest.approx(source, rel=0.002)
    assert each[-1] == pytest.approx(kept, rel=0.002)
    assert max(each) == each[at] == pytest.approx(best, rel=0.005)


@given(machines)
def test_searched_curves_are_monotone_where_pictures_are_larger(rates: Rates) -> None:
    """More kept pictures never make a device faster if each takes it longer, nor cores slower if each takes less."""
    device = [rates.devices_per_s(each) for each in TENTHS]
    cores = [rates.cores_per_s(each) for each in TENTHS]
    if rates.one_device and rates.kept.bytes / rates.kept.bytes_per_s >= rates.source.bytes / rates.source.bytes_per_s:
        assert all(after <= before * (1 + 1e-9) for before, after in pairwise(device))
    if rates.kept.worker_s <= rates.source.worker_s and rates.kept.reader_s <= rates.source.reader_s:
        assert all(after >= before * (1 - 1e-9) for before, after in pairwise(cores))
    assert all(rates.predicted(each) == min(device[each], cores[each]) for each in TENTHS)


def test_memory_is_never_waited_for() -> None:
    """Where no device counts, cores alone say how fast a mix is, and all is kept."""
    rates = machine(INFINITE)
    assert rates.devices_per_s(5) == INFINITE
    assert max(TENTHS, key=rates.predicted) == TENTHS[-1]


def test_two_devices_work_at_the_same_time() -> None:
    """Files on one disk and kept pictures on another are read together; on one disk they wait for each other."""
    one, two = machine(200e6), machine(200e6, one_device=False)
    assert two.devices_per_s(5) == pytest.approx(200e6 / (262e3 / 2))
    assert one.devices_per_s(5) == pytest.approx(200e6 / ((262e3 + 121e3) / 2))


def test_the_reader_shares_the_cores() -> None:
    """With as many workers as cores, the process that reads takes its part from them; with one worker it has one."""
    form = Form(1e-3, 1e-3, 1.0, INFINITE)
    assert Rates(form, form, True, workers=2, cores=2).predicted(0) == pytest.approx(1_000)
    assert Rates(form, form, True, workers=1, cores=2).predicted(0) == pytest.approx(1_000)
    assert Rates(form, form, True, workers=8, cores=4).predicted(0) == pytest.approx(2_000)


def some_images(seed: int, count: int = 200) -> Images:
    """Of sizes like those of ImageNet, and kept pictures that are all alike; their means are those of `machine`."""
    size = np.random.default_rng(seed).lognormal(0, 0.6, count)
    size /= size.mean()
    return Images(121e3 * size, 187_500 * size, np.full(count, 262e3), np.full((count, 1), 262e3))


@given(st.integers(0, 2**32 - 1), st.floats(5e7, 2e9), st.booleans(), st.integers(1, 4), st.integers(1, 4))
def test_by_price_is_never_slower_than_a_mix(seed: int, device: float, one: bool, workers: int, cores: int) -> None:
    """Of images whose mean has the rates, by more than one image makes a difference of, whatever binds."""
    rates = replace(machine(device, one_device=one), workers=workers, cores=cores)
    images = some_images(seed)
    found = by_price([rates], images)
    one_image = images.pixels.max() / images.pixels.sum()
    for tenths in TENTHS:
        assert found.per_s >= rates.predicted(tenths) / (1 + 4 * one_image)
    assert 0 <= found.kept <= 1


def test_by_price_keeps_the_large_ones_and_gains_by_it() -> None:
    """Where images differ, choosing gives more than the best mix; where they are alike, as much."""
    rates = machine(200e6)
    best = max(rates.predicted(each) for each in TENTHS)
    assert by_price([rates], some_images(1)).per_s > 1.2 * best
    alike = Images(np.full(1000, 121e3), np.full(1000, 187_500.0), np.full(1000, 262e3), np.full((1000, 1), 262e3))
    assert by_price([rates], alike).per_s == pytest.approx(best, rel=0.03)


def test_by_price_without_devices_keeps_all() -> None:
    """Cores alone count then."""
    found = by_price([machine(INFINITE)], some_images(2))
    assert found.kept == 1
    assert found.per_s == pytest.approx(machine(INFINITE).predicted(10))


def test_by_price_chooses_a_codec_for_each_picture() -> None:
    """Pictures that pack well are kept packed, for the device's sake, and others as they are, for the cores'."""
    raw, count = machine(800e6), 400
    packs_well = np.arange(count) % 2 == 0
    packed_bytes = np.where(packs_well, 26e3, 262e3)
    zstd = replace(raw, kept=replace(raw.kept, worker_s=0.8e-3, bytes=float(packed_bytes.mean())))
    files = np.full(count, 121e3), np.full(count, 187_500.0), np.full(count, 262e3)
    both = by_price([raw, zstd], Images(*files, np.stack([files[2], packed_bytes], axis=1)))
    for rates, kept in ((raw, files[2]), (zstd, packed_bytes)):
        assert both.per_s > 1.2 * by_price([rates], Images(*files, kept[:, None])).per_s
