"""The search for the best mix, on curves whose best is known, with and without noise."""

import random
from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from viewcache.materializer.profiling.mixes import MOST_PROBES, TENTHS, Probed, search

Curve = Sequence[float]


def exact(load: Curve, decode: Curve) -> Callable[[int], Probed]:
    """Measures without noise."""
    return lambda tenths: Probed(min(load[tenths], decode[tenths]), load[tenths] < decode[tenths])


def counted(probe: Callable[[int], Probed], measured: list[int]) -> Callable[[int], Probed]:
    """Notes each mix that is measured."""

    def note(tenths: int) -> Probed:
        measured.append(tenths)
        return probe(tenths)

    return note


def noisy(load: Curve, decode: Curve, rng: random.Random) -> Callable[[int], Probed]:
    """Each rate is off by up to 5 % in every measurement."""

    def probe(tenths: int) -> Probed:
        loaded, decoded = load[tenths] * rng.uniform(0.95, 1.05), decode[tenths] * rng.uniform(0.95, 1.05)
        return Probed(min(loaded, decoded), loaded < decoded)

    return probe


def best_of(load: Curve, decode: Curve) -> float:
    """What the best of all mixes gives."""
    return max(min(pair) for pair in zip(load, decode, strict=True))


def random_curves(rng: random.Random) -> tuple[list[float], list[float]]:
    """Loading that gets slower and decoding that gets faster as more is kept."""
    load = sorted((rng.uniform(1, 100) for _ in TENTHS), reverse=True)
    return load, sorted(rng.uniform(1, 100) for _ in TENTHS)


def test_all_of_20000_pairs_of_curves() -> None:
    """The best of eleven mixes is found for each pair, with five measurements at most, none of them twice."""
    rng = random.Random(16)
    for _ in range(20_000):
        load, decode = random_curves(rng)
        measured: list[int] = []
        found = search(counted(exact(load, decode), measured))
        assert min(load[found.best], decode[found.best]) == best_of(load, decode)
        assert len(measured) == len(set(measured)) == len(found.probed) <= MOST_PROBES


rates = st.lists(st.floats(0.1, 1e6), min_size=len(TENTHS), max_size=len(TENTHS))


@given(rates, rates)
def test_any_monotone_curves(load: list[float], decode: list[float]) -> None:
    """Also where curves are flat, never cross, or are as fast as each other."""
    load, decode = sorted(load, reverse=True), sorted(decode)
    found = search(exact(load, decode))
    assert found.probed[found.best].per_s == best_of(load, decode)
    assert len(found.probed) <= MOST_PROBES


def test_a_slow_device_leads_to_fewer_kept_pictures() -> None:
    """The direction is the repaired one: where loading is slower, too much is kept."""
    slow = search(exact([100.0 - 9 * each for each in TENTHS], [1000.0] * len(TENTHS)))
    assert slow.best == TENTHS[0]
    assert list(slow.probed)[:3] == [5, 2, 0]


def test_slow_cores_lead_to_more_kept_pictures() -> None:
    """Where decoding is slower, too little is kept."""
    slow = search(exact([1000.0] * len(TENTHS), [10.0 + 9 * each for each in TENTHS]))
    assert slow.best == TENTHS[-1]
    assert list(slow.probed)[:3] == [5, 8, 9]


def test_equal_mixes_keep_less() -> None:
    """Of mixes that are as fast as each other the one that takes the least room is chosen."""
    assert search(exact([5.0] * len(TENTHS), [9.0] * len(TENTHS))).best == TENTHS[0]


def test_noise_of_five_per_cent_loses_little() -> None:
    """Of 20,000 pairs of curves 19 of 20 lose 3 % or less, none more than what two wrong measurements can hide."""
    rng = random.Random(17)
    losses = []
    for _ in range(20_000):
        load, decode = random_curves(rng)
        found = search(noisy(load, decode, rng))
        losses.append(1 - min(load[found.best], decode[found.best]) / best_of(load, decode))
    losses.sort()
    assert losses[len(losses) * 19 // 20] <= 0.03
    assert losses[-1] <= 1 - 0.95 / 1.05
    assert sum(losses) / len(losses) <= 0.005
