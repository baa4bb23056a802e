"""Groups of pictures that were packed with a loss: each comes out as it went in, whatever was unpacked before it."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from viewcache.errors import Broken
from viewcache.materializer.media.loss import Loss
from viewcache.materializer.media.lossy import LossyDecoder, Unconverted, encode, encoder_version
from viewcache.materializer.media.pixels import yuv_of

SIZE = (3, 24, 36)


def groups() -> list[NDArray[np.uint8]]:
    """Noise and smooth pictures, uint8 (n,3,H,W)."""
    random = np.random.default_rng(7)
    noise = random.integers(0, 256, (8, *SIZE), np.uint8)
    ramp = np.broadcast_to(np.arange(SIZE[2], dtype=np.uint8) * 5, SIZE)
    smooth = np.stack([ramp + np.uint8(k) for k in range(8)])
    return [noise, smooth, noise // 8 + smooth, smooth[::-1].copy(), noise[:3]]


@pytest.mark.parametrize("size", [(24, 36), (1, 1), (17, 33), (64, 455)])
def test_a_part_has_the_pixels_of_the_whole(size: tuple[int, int]) -> None:
    """Wherever it lies and however large it is."""
    random = np.random.default_rng(11)
    picture = random.integers(0, 256, (3, *size), np.uint8)
    unconverted = Unconverted(yuv_of(picture, "yuv444p"))
    whole = unconverted.whole()
    for _ in range(100):
        (top, bottom), (left, right) = (np.sort(random.choice(side + 1, 2, replace=False)).tolist() for side in size)
        part = unconverted.part(top, left, bottom - top, right - left)
        assert np.array_equal(part, whole[:, top:bottom, left:right])


@pytest.mark.parametrize("quality_db", [38.0, 45.0, 50.0])
def test_any_group_after_any_other(quality_db: float) -> None:
    """One reader unpacks groups in any order, and leaves some in the middle."""
    try:
        encoder_version()
    except Broken as missing:
        pytest.skip(f"needs an encoder of H.264: {missing}")
    made = [encode(pictures, loss) for pictures in groups() for loss in (Loss(None, quality_db), Loss(0, None))]
    assert {group.factor == 0 for group in made} == {False, True}, "the parameter sets of these differ"
    for before, after in itertools.permutations(made, 2):
        reader = LossyDecoder(SIZE[2], SIZE[1])
        next(reader.group(before.packets))
        for one in (before, after):
            for picture, exact in zip(reader.group(one.packets), one.pictures, strict=True):
                assert np.array_equal(picture.whole(), exact)
