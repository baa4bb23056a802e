"""What mixes should give, by arithmetic."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
