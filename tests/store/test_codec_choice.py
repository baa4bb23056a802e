"""The codec of one object: the choice equals trying them all, and what is packed to find out is little."""

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewcache.store import CODECS, codec
from viewcache.store.codec_choice import AS_MUCH, CodecCost, CodecTable
from viewcache.store.codec_trial import LEAST_SAMPLE, MOST_SAMPLE, SHARE, pieces_of, sample_bytes

PACKING = [name for name in CODECS if name != "raw"]
SECONDS = st.floats(0, 1e-7)
RATIOS = st.fixed_dictionaries({name: st.floats(0.01, 1.1) for name in PACKING})


@st.composite
def tables(draw: st.DrawFn) -> CodecTable:
    """What each codec may cost, as far as nothing is known of the object; reading and having bytes costs all alike."""
    byte_s = draw(SECONDS)
    rows = [CodecCost(name, draw(SECONDS), byte_s, least=draw(st.floats(0.01, 1.1))) for name in PACKING]
    return CodecTable((CodecCost("raw", 0.0, byte_s, ratio=1.0), *rows), draw(st.sampled_from(list(CODECS))))


@given(tables(), RATIOS)
def test_the_choice_is_that_of_trying_all(table: CodecTable, ratios: dict[str, float]) -> None:
    """Of all codecs none costs less that takes no more bytes, whatever is left out without being looked at."""
    ratios = {each.codec: max(each.least, ratios[each.codec]) for each in table.costs if each.codec in ratios}
    every = ratios | {"raw": 1.0}
    cost = {each.codec: each.at(every[each.codec]) for each in table.costs}
    allowed = [name for name in every if every[name] <= every[table.at_most] * AS_MUCH]
    chosen = table.cheapest({name: ratios[name] for name in table.unknown()})
    assert chosen in allowed
    assert cost[chosen] == min(cost[name] for name in allowed)


@given(tables())
def test_nothing_is_looked_at_in_vain(table: CodecTable) -> None:
    """Where all may be taken, a codec that is asked about would be, if it left as little as it ever did."""
    least = {each.codec: each.least for each in table.costs}
    for name in table.unknown() if table.at_most == "raw" else ():
        assert table.cheapest({name: least[name]}) == name


def test_where_bytes_cost_nothing_nothing_is_packed() -> None:
    """The common case takes raw at once."""
    table = CodecTable((CodecCost("raw", 0.0, 0.0, ratio=1.0), *(CodecCost(name, 1e-10, 0.0) for name in PACKING)))
    assert table.choose(np.zeros(1 << 20, np.uint8), 1 << 20) == ("raw", ())


def picture(content: str, size: int) -> np.ndarray:
    """Bytes of noise, or of a flat cartoon."""
    if content == "noise":
        return np.random.default_rng(1).integers(0, 256, size, np.uint8)
    return np.repeat(np.arange(size // 1024, dtype=np.uint8), 1024)


@pytest.mark.parametrize(("content", "chosen"), [("noise", "raw"), ("flat", "lz4")])
def test_noise_stays_raw_and_a_cartoon_is_packed(content: str, chosen: str) -> None:
    """The same table chooses by what lies there; what was packed for it is told."""
    costs = CodecCost("lz4", 1e-9, 5e-9, 0.2), CodecCost("zstd1", 3e-9, 5e-9, 0.2)
    table = CodecTable((CodecCost("raw", 0.0, 5e-9, ratio=1.0), *costs))
    found = table.choose(picture(content, 1 << 21), 1 << 21)
    assert found.codec == chosen
    assert [each.codec for each in found.samples] == PACKING
    assert all(each.unpack_s is None and each.chunk_bytes == 1 << 21 for each in found.samples)
    assert all(each.raw_bytes == sample_bytes(1 << 21) for each in found.samples)


def test_what_is_like_another_takes_its_ratio() -> None:
    """Of the same job and with chunks of that size, unless a sample of its own is asked for."""
    costs = CodecCost("lz4", 1e-9, 5e-9, 0.2), CodecCost("zstd1", 3e-9, 5e-9, 0.2)
    table = CodecTable((CodecCost("raw", 0.0, 5e-9, ratio=1.0), *costs), is_own=False)
    first = table.choose(picture("flat", 1 << 20), 1 << 20)
    assert first.samples
    again = table.choose(picture("noise", 1 << 20), 1 << 20, first.samples)
    assert again == (first.codec, ())
    assert table.choose(picture("noise", 1 << 19), 1 << 19, first.samples).samples
    own = CodecTable(table.costs)
    assert own.choose(picture("noise", 1 << 20), 1 << 20, first.samples).codec == "raw"


@given(st.integers(1, 1 << 22), st.integers(1, 1 << 22))
def test_pieces_are_spread_over_the_object(size: int, chunk_bytes: int) -> None:
    """They lie apart and within it, none is longer than a chunk, and together they are about a sample."""
    pieces = pieces_of(np.zeros(size, np.uint8), chunk_bytes)
    assert max(piece.size for piece in pieces) <= chunk_bytes
    total = sum(piece.size for piece in pieces)
    assert total <= sample_bytes(size)
    assert total > sample_bytes(size) - max(piece.size for piece in pieces)


def test_a_sample_has_its_bytes_from_everywhere() -> None:
    """Each piece lies in another part of the object, and none overlap."""
    numbers = np.arange(1 << 20, dtype=np.uint32)
    size = numbers.nbytes
    starts = [int(piece.view(np.uint32)[0]) * 4 for piece in pieces_of(numbers.view(np.uint8), size)]
    length = sample_bytes(size) // len(starts)
    assert all(one + length <= other for one, other in pairwise(starts))
    assert starts[0] < size / len(starts)
    assert starts[-1] > size - size / len(starts) - length


@pytest.mark.parametrize("size", [1, 5000, LEAST_SAMPLE, 1 << 20, SHARE * LEAST_SAMPLE, 1 << 28])
def test_a_sample_is_a_small_part_of_large_objects(size: int) -> None:
    """One byte of some hundred, at least so many that codecs have something to look back to, and not too many."""
    assert min(size, LEAST_SAMPLE) <= sample_bytes(size) <= min(size, MOST_SAMPLE)
    assert sample_bytes(size) <= max(LEAST_SAMPLE, size // SHARE)


@pytest.mark.parametrize("content", ["noise", "flat"])
def test_a_sample_says_how_well_the_object_packs(content: str) -> None:
    """Within a few hundredths; and it takes a small part of the time that packing all of it takes."""
    array = picture(content, 1 << 24)
    table = CodecTable((CodecCost("raw", 0.0, 1.0, ratio=1.0), *(CodecCost(name, 0.0, 1.0) for name in PACKING)))
    for sample in table.choose(array, array.size).samples:
        begun = time.thread_time()
        whole = codec(sample.codec).encode(array).size / array.size
        took_s = time.thread_time() - begun
        assert sample.packed_bytes / sample.raw_bytes == pytest.approx(whole, abs=0.05)
        assert sample.pack_s < took_s / 4
