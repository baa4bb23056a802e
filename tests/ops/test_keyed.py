"""Keyed randomness: its values are fixed for ever, and they behave like independent uniform numbers."""

import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.ops.references import p_even
from viewcache.errors import BadInput
from viewcache.materializer import randomness

MASK = (1 << 64) - 1
PARTS = st.lists(st.integers(-(1 << 63), (1 << 64) - 1), max_size=5)

GOLDEN_WORDS: list[tuple[tuple[int, str, *tuple[int, ...]], int]] = [
    ((0, ""), 10647896257251815822),
    ((0, "clip/start"), 1965976308858354411),
    ((1, "clip/start"), 13219894208021575292),
    ((0, "clip/start", 0), 3819084440739386683),
    ((0, "clip/start", 1, 2), 8128793963055156320),
    ((-5, "x", 2**63, -1), 10587508248323956651),
]


def reference(seed: int, what: str, *parts: int) -> int:
    """The algorithm of docs/design/0005-randomness.md in plain integers."""

    def mix(z: int) -> int:
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    text = f"{seed}\0{len(parts)}\0{what}".encode()
    start = hashlib.blake2b(text, digest_size=8, person=b"viewcache-keyed1").digest()
    state = int.from_bytes(start, "little")
    for part in parts:
        state = mix(((state ^ mix((part + 0x9E3779B97F4A7C15) & MASK)) + 0x9E3779B97F4A7C15) & MASK)
    return state


@pytest.mark.parametrize(("address", "value"), GOLDEN_WORDS)
def test_words_are_fixed_for_ever(address: tuple[int, str, *tuple[int, ...]], value: int) -> None:
    """The word of an address never changes: it decides which pixels a path means."""
    assert int(randomness.hash_address(*address)) == value


def test_derived_numbers_are_fixed_for_ever() -> None:
    """Fractions, floats, orders and text words never change either."""
    assert randomness.fraction(7, "y", np.arange(4)).tolist() == [5446700, 3052618676, 2019737756, 844339228]
    assert randomness.uniform(0, "u", np.arange(2)).tolist() == [0.4982392226981214, 0.6980018839718948]
    assert randomness.permutation(0, "order", 10).tolist() == [1, 8, 0, 4, 5, 6, 2, 9, 7, 3]
    assert randomness.permutation(0, "order", 10, 3, 1).tolist() == [2, 3, 9, 6, 5, 8, 0, 1, 7, 4]
    assert randomness.address_word("video") == 1171408666389039298


@given(st.integers(), st.text(max_size=20), PARTS)
def test_fold_is_the_documented_algorithm(seed: int, what: str, parts: list[int]) -> None:
    """For any address the word equals that of an independent implementation of the design note."""
    assert int(randomness.hash_address(seed, what, *parts)) == reference(seed, what, *parts)


@given(st.integers(0, 99), PARTS, st.data())
def test_arrays_and_integers_give_the_same_words(seed: int, parts: list[int], data: st.DataObject) -> None:
    """Whether a part comes as an integer or inside an array makes no difference, so any batching is allowed."""
    mixed: list[int | NDArray[np.uint64]] = [
        np.array([part & MASK], np.uint64) if data.draw(st.booleans()) else part for part in parts
    ]
    assert np.ravel(randomness.hash_address(seed, "x", *mixed)).tolist() == [reference(seed, "x", *parts)]


def test_arrays_broadcast_and_are_left_alone() -> None:
    """Parts broadcast like NumPy arrays, each element has its own address, and the inputs are not changed."""
    a, b = np.arange(3)[:, None], np.arange(4, dtype=np.uint8)
    words = randomness.hash_address(5, "x", a, 9, b)
    assert words.shape == (3, 4)
    assert words.tolist() == [[reference(5, "x", i, 9, j) for j in range(4)] for i in range(3)]
    assert a.ravel().tolist() == [0, 1, 2]
    assert b.tolist() == [0, 1, 2, 3]


def test_parts_must_be_whole_numbers() -> None:
    """A float in an address would depend on rounding, so it is refused."""
    with pytest.raises(BadInput, match="float64"):
        randomness.hash_address(0, "x", np.array([0.5]))


def test_neighbouring_addresses_are_independent() -> None:
    """Words of neighbours in seed, purpose, position and order of parts agree in half of their bits."""
    n = np.arange(20_000)
    base = randomness.hash_address(0, "x", n, 1)
    others = [
        randomness.hash_address(1, "x", n, 1),
        randomness.hash_address(0, "y", n, 1),
        randomness.hash_address(0, "x", n + 1, 1),
        randomness.hash_address(0, "x", n, 2),
        randomness.hash_address(0, "x", 1, n),
        randomness.hash_address(0, "x", n, 1, 0),
    ]
    for other in others:
        differing = np.unpackbits((base ^ other).view(np.uint8)).mean()
        assert abs(differing - 0.5) < 0.002  # 1.28 million bits: a standard deviation is 0.00044


def test_numbers_are_uniform() -> None:
    """Fractions and floats over counters fill 64 cells evenly, also in pairs of successive numbers."""
    n = np.arange(200_000)
    for values in (randomness.uniform(3, "u", n), randomness.fraction(3, "f", 7, n) / randomness.ONE):
        assert values.min() >= 0
        assert values.max() < 1
        cells = (values * 64).astype(int)
        assert p_even(np.bincount(cells, minlength=64)) > 1e-4
        pairs = cells[::2] * 64 + cells[1::2]
        assert p_even(np.bincount(pairs, minlength=4096)) > 1e-4


@given(st.integers(1, 1 << 31))
def test_scaled_divides_the_fractions_evenly(count: int) -> None:
    """Each index below n is hit by 2**32 / n numerators, rounded up or down: no index is favoured by more than one."""
    index = np.unique(np.clip([0, 1, count // 3, count - 2, count - 1], 0, count - 1))
    first, after = (-(-(i * randomness.ONE) // count) for i in (index.astype(object), index.astype(object) + 1))
    for i, low, high in zip(index, first, after, strict=True):
        assert high - low in (randomness.ONE // count, -(-randomness.ONE // count))
        assert randomness.scaled(np.array([low, high - 1], np.uint64), count).tolist() == [i, i]


@pytest.mark.parametrize("probability", [0.0, 0.25, 0.5, 0.8, 1.0])
def test_threshold_gives_the_probability(probability: float) -> None:
    """The share of numerators below a threshold is the probability to 2**-32; 0 is never and 1 is always."""
    assert abs(int(randomness.threshold(probability)) / randomness.ONE - probability) <= 2**-32


def test_permutations_hold_every_number_once() -> None:
    """An order of n is a permutation for every n, and other addresses give other orders."""
    orders = [randomness.permutation(0, "order", 1000, epoch) for epoch in range(3)]
    assert all(sorted(order.tolist()) == list(range(1000)) for order in orders)
    assert not np.array_equal(orders[0], orders[1])
    assert randomness.permutation(0, "order", 0).tolist() == []
    assert randomness.permutation(0, "order", 1).tolist() == [0]


def test_every_permutation_is_equally_likely() -> None:
    """Law 2: over many epochs all 24 orders of four videos come equally often."""
    counts = dict.fromkeys(itertools.permutations(range(4)), 0)
    for epoch in range(12_000):
        counts[tuple(randomness.permutation(0, "order", 4, epoch).tolist())] += 1
    assert p_even(list(counts.values())) > 1e-4
