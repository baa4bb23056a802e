"""Native planes: what the decoder gave comes back, without its padding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewcache import store
from viewcache.errors import BadInput, ChunkDamaged, Misuse


@given(
    pix_fmt=st.sampled_from(sorted(store.PIXEL_FORMATS)),
    width=st.integers(1, 21),
    height=st.integers(1, 13),
    padding=st.integers(0, 40),
)
def test_planes_come_back(pix_fmt: str, width: int, height: int, padding: int) -> None:
    """For every known format, odd sizes and padded lines included, unpack(pack(planes)) is the planes."""
    layout = store.plane_layout(pix_fmt, width, height)
    rng = np.random.default_rng(width * 100 + height)
    planes = [rng.integers(0, 256, (lines, row_bytes + padding)).astype(np.uint8) for lines, row_bytes in layout.planes]
    cut = [plane.tobytes()[: plane.size - padding] for plane in planes]  # the last line may lack its padding
    row = store.pack(layout, cut, [plane.shape[1] for plane in planes])
    for plane, view in zip(planes, store.unpack(layout, row), strict=True):
        assert np.array_equal(view, plane[:, : view.shape[1]])
        assert np.shares_memory(view, row)
    assert store.PlaneLayout.from_attributes(layout.to_attributes()) == layout


@pytest.mark.parametrize(
    ("pix_fmt", "size"), [("yuv420p", 15 * 9 + 2 * 8 * 5), ("nv12", 15 * 9 + 16 * 5), ("yuv422p10le", 4 * 15 * 9 + 18)]
)
def test_sizes_round_up(pix_fmt: str, size: int) -> None:
    """Halved sides of odd frames are rounded up, as FFmpeg does."""
    assert store.plane_layout(pix_fmt, 15, 9).frame_bytes == size


def test_layouts_agree_with_the_decoders_library() -> None:
    """Every known format has the planes that FFmpeg gives frames of an odd size."""
    av = pytest.importorskip("av")
    for pix_fmt in store.PIXEL_FORMATS:
        frame = av.VideoFrame(33, 17, pix_fmt)
        layout = store.plane_layout(pix_fmt, 33, 17)
        assert len(frame.planes) == len(layout.planes)
        row = store.pack(layout, [memoryview(p) for p in frame.planes], [p.line_size for p in frame.planes])
        assert row.size == layout.frame_bytes
        for plane, (lines, row_bytes) in zip(frame.planes, layout.planes, strict=True):
            assert plane.height == lines
            assert plane.line_size >= row_bytes > plane.line_size - 64


def test_what_does_not_fit_is_refused() -> None:
    """Unknown formats, missing planes, short lines, short buffers and wrong rows are named."""
    with pytest.raises(BadInput, match=r"pal8.*known are"):
        store.plane_layout("pal8", 4, 4)
    with pytest.raises(BadInput, match="0 x 4"):
        store.plane_layout("gray", 0, 4)
    layout = store.plane_layout("gray", 4, 4)
    for planes, sizes in (([], []), ([bytes(16)], [3]), ([bytes(15)], [4])):
        with pytest.raises(Misuse):
            store.pack(layout, planes, sizes)
    with pytest.raises(Misuse, match="out must be"):
        store.pack(layout, [bytes(16)], [4], np.empty(15, np.uint8))
    with pytest.raises(Misuse, match="16 bytes"):
        store.unpack(layout, np.empty(15, np.uint8))


@pytest.mark.parametrize("planes", [None, [], [3], [[1]], [[1, "x"]], [[1, 2], [0, 2]]])
def test_attributes_that_describe_nothing(planes: object) -> None:
    """Attributes that were not written by us are damage."""
    with pytest.raises(ChunkDamaged, match="planes"):
        store.PlaneLayout.from_attributes({"pix_fmt": "gray", "width": 1, "height": 1, "planes": planes})
