"""Moving pictures as files: every picture is a frame of the file, at any rate and size."""

import io

import av
import numpy as np
import pytest
from PIL import Image

from viewcache.api.pictures.encode import moving


def pictures(count: int, height: int, width: int) -> list[np.ndarray]:
    """Pictures of few colours that all differ."""
    out = [np.full((height, width, 3), 40, np.uint8) for _ in range(count)]
    for k, picture in enumerate(out):
        picture[: 1 + k % height, : 1 + (3 * k) % width] = (200, 10 * k % 250, 60)
    return out


def frames(data: bytes, ending: str) -> list[np.ndarray]:
    """The file's frames, decoded."""
    if ending == ".webp":
        with Image.open(io.BytesIO(data)) as webp:
            found = []
            for k in range(getattr(webp, "n_frames", 1)):
                webp.seek(k)
                found.append(np.asarray(webp.convert("RGB")))
            return found
    with av.open(io.BytesIO(data), "r") as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


@pytest.mark.parametrize("ending", [".gif", ".webp", ".mp4"])
@pytest.mark.parametrize(
    ("count", "height", "width", "fps"),
    [(1, 40, 60, 25.0), (9, 41, 63, 29.97), (24, 40, 60, 240.0), (7, 32, 32, 0.004), (6, 17, 331, 1e6)],
    ids=["one", "odd", "fast", "slow", "absurd"],
)
def test_films_have_every_picture(ending: str, count: int, height: int, width: int, fps: float) -> None:
    """Their number and size hold; MP4 has even sides, one more row or column where they were odd."""
    given = pictures(count, height, width)
    found = frames(moving(iter(given), fps, ending), ending)
    assert len(found) == count
    for mine, theirs in zip(found, given, strict=True):
        even = ending == ".mp4"
        assert mine.shape == (height + (height % 2) * even, width + (width % 2) * even, 3)
        assert np.abs(mine[:height, :width].astype(int) - theirs).mean() < 8
