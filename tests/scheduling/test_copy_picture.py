"""A picture gets into its clip with the bytes of a plain copy, whatever view of a frame it is."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from viewcache.materializer.workers.frame import copy_picture


@given(st.data())
def test_it_is_a_copy(data: st.DataObject) -> None:
    """Of windows at any place and of any size, mirrored either way or turned, into any place of a clip."""
    height, width = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
    frame = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 256, (3, height, width), np.uint8)
    y, x = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    across = data.draw(st.integers(1, 3))
    window = frame[:, y:, x : data.draw(st.integers(x + 1, width)) : across]
    picture = window[:, :: data.draw(st.sampled_from([1, -1])), :: data.draw(st.sampled_from([1, -1]))]
    picture = picture.transpose(0, 2, 1) if data.draw(st.booleans()) else picture
    clip, expected = np.zeros((2, *picture.shape), np.uint8), np.array(picture.tolist(), np.uint8)
    before = frame.copy()
    copy_picture(clip[1], picture)
    assert np.array_equal(clip[1], expected)
    assert not clip[0].any()
    assert np.array_equal(frame, before)
