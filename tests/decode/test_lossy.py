"""Groups of pictures that were packed with a loss: each comes out as it went in, whatever was unpacked before it."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from viewcache.errors import Broken
from viewcache.materializer.media.loss import Loss
from viewcache.materializer.media.lossy import LossyDecoder, encode, encoder_version

SIZE = (3, 24, 36)


def groups() -> list[NDArray[np.uint8]]:
    """Noise and smooth pictures, uint8 (n,3,H,W): of one quality they are encoded by factors from 0 on."""
    random = np.random.default_rng(7)
    noise = random.integers(0, 256, (8, *SIZE), np.uint8)
    ramp = np.broadcast_to(np.arange(SIZE[2], dtype=np.uint8) * 5, SIZE)
    smooth = np.stack([ramp + np.uint8(k) for k in range(8)])
    return [noise, smooth, noise // 8 + smooth, smooth[::-1].copy(), noise[:3]]


@pytest.mark.parametrize("quality_db", [38.0, 45.0, 50.0])
def test_any_group_after_any_other(quality_db: float) -> None:
    """One reader unpacks groups in any order, and leaves some in the middle."""
    try:
        encoder_version()
    except Broken as missing:
        pytest.skip(f"needs an encoder of H.264: {missing}")
    made = [encode(pictures, Loss(None, quality_db)) for pictures in groups()]
    assert {group.crf == 0 for group in made} == {False, True}, "the parameter sets of these differ"
    for before, after in itertools.permutations(made, 2):
        reader = LossyDecoder(SIZE[2], SIZE[1])
        next(reader.group(before.packets))
        for one in (before, after):
            for picture, exact in zip(reader.group(one.packets), one.pictures, strict=True):
                assert (picture == exact.reshape(-1)).all()
