"""Chunks that lie near one another come by one request, and every chunk comes whole."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewcache.errors import ChunkDamaged
from viewcache.store.format import ChunkTable, aligned
from viewcache.store.spans import GAP_BYTES, SPAN_BYTES, fill_from, spans_of


def _table(sizes: list[int]) -> ChunkTable:
    offsets = np.cumsum([0, *map(aligned, sizes)]).tolist()
    return ChunkTable(tuple(offsets[:-1]), tuple(sizes), (0,) * len(sizes))


@given(st.lists(st.sampled_from([70, 5_000, 500_000, 3 << 20, 40 << 20]), min_size=1, max_size=40), st.data())
def test_spans_hold_every_chunk_and_little_else(sizes: list[int], data: st.DataObject) -> None:
    """Each pick lies whole in one span; spans do not touch; a gap inside is small; a span is bounded or one chunk."""
    table = _table(sizes)
    picks = data.draw(st.lists(st.integers(0, len(sizes) - 1)))
    spans = spans_of(table, picks)
    assert spans == sorted(spans)
    for chunk in picks:
        place = table.offsets[chunk]
        assert sum(start <= place and place + sizes[chunk] <= end for start, end in spans) == 1
    for start, end in spans:
        inside = sorted({chunk for chunk in picks if start <= table.offsets[chunk] < end})
        assert end - start <= SPAN_BYTES or len(inside) == 1
        for one, other in pairwise(inside):
            assert table.offsets[other] - table.offsets[one] - aligned(sizes[one]) <= GAP_BYTES
    for (_, end), (start, _) in pairwise(spans):
        assert start >= end


def test_a_strided_clip_is_one_span() -> None:
    """32 frames of 462 KB, every fourth of a video, are one request; a frame far away is another."""
    table = _table([462_000] * 300)
    assert len(spans_of(table, range(0, 128, 4))) == 1
    assert len(spans_of(table, [0, 1, 200])) == 2


def test_filling_reads_across_what_came() -> None:
    """Buffers are filled one after another from the span that has the place; what did not come is damage."""
    fill = fill_from("x", [(0, bytes(range(10))), (100, bytes(range(50, 60)))])
    one, two = bytearray(3), bytearray(4)
    fill([one, two], 102)
    assert (bytes(one), bytes(two)) == (bytes([52, 53, 54]), bytes([55, 56, 57, 58]))
    for offset in (4, 20, 104):
        with pytest.raises(ChunkDamaged, match="too early"):
            fill([one, two], offset)
