"""Which frames of a video make a clip: the shared fraction (docs/design/0005).

One fraction per (video, generation) places the clips of every task, so that tasks and epochs reuse frames; each task
alone still draws its starts exactly uniformly. All of it is integer arithmetic on fractions of 32 bits.
"""

from collections.abc import Iterable
from math import gcd

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput
from viewcache.materializer.choices import OnShortVideo
from viewcache.materializer.randomness import FRACTION_BITS, ONE, Words, fraction, hash_address, scaled

__all__ = ["choose_phase", "clip_frames", "clip_starts", "fixed_starts", "is_short", "jitter", "reflect", "shared_grid"]


def shared_grid(strides: Iterable[int]) -> int:
    """Return g, the greatest common divisor of the strides of the tasks that share: starts lie on its grid."""
    return gcd(*strides)


def is_short(frames: int | np.ndarray, span: int) -> NDArray[np.bool_]:
    """Say which videos have fewer frames than a clip spans."""
    return np.asarray(np.asarray(frames) < span)


def clip_starts(
    seed: int,
    video: np.ndarray,
    generation: int | np.ndarray,
    epoch: int | np.ndarray,
    sample: int | np.ndarray,
    frames: np.ndarray,
    *,
    span: int,
    grid: int,
    spread: float,
    independent: int | None = None,
) -> NDArray[np.int64]:
    """Draw the first frame of each clip. All arrays broadcast together, e.g. videos x epochs x samples.

    With S = frames - span + 1 possible starts, every start is drawn with probability 1/S (to S * 2**-32) for any
    fixed video, epoch and sample. Within one generation the starts of one sample lie within ``spread`` * S of one
    another and on one phase of the grid.

    Args:
        seed: tasks share only with tasks of equal seed.
        video: uint64 address words of the videos (``randomness.address_word``).
        generation: number of the generation that the epoch belongs to.
        epoch: epoch number.
        sample: ordinal of the clip among the clips of one video in one epoch.
        frames: number of frames of each video, at least 1.
        span: L of ``clip_span``.
        grid: g of ``shared_grid`` over the tasks of the group, at least 1.
        spread: δ in (0, 1].
        independent: the task's address word to draw each start alone, without sharing; None to share.

    Returns:
        int64 array of starts; 0 where the video is short.

    Raises:
        BadInput: ``spread`` or ``grid`` out of range.
    """
    if not 0 < spread <= 1:
        raise BadInput(f"spread: got {spread!r}; allowed: greater than 0 and at most 1")
    if grid < 1 or span < 1:
        raise BadInput(f"clip: got span {span} and grid {grid}; allowed: at least 1 each")
    starts = np.maximum(np.asarray(frames, dtype=np.int64) - span + 1, 1)
    where = (np.asarray(video), np.asarray(epoch), np.asarray(sample))
    if independent is not None:
        return scaled(fraction(seed, "clip/independent", independent, *where), starts)
    group_generation = np.asarray(generation)
    anchor = fraction(seed, "clip/anchor", where[0], group_generation, where[2])
    place = reflect(
        anchor.astype(np.int64) + jitter(hash_address(seed, "clip/jitter", *where), _half_width(spread)), ONE
    )
    phase, count = choose_phase(scaled(fraction(seed, "clip/phase", where[0], group_generation), starts), starts, grid)
    return np.asarray(phase + grid * scaled(place.astype(np.uint64), count))


def fixed_starts(
    lengths: NDArray[np.int64], sample: NDArray[np.int64], *, span: int, clips: int, places: int
) -> NDArray[np.int64]:
    """First units of clips that are evenly spaced; of a single one the middle.

    Args:
        lengths: (n,) units of each clip's video.
        sample: (n,) ordinal of the clip among those of its video.
        span: L of ``clip_span``.
        clips: of one video, at least 1.
        places: samples in a row that are of one clip.

    Returns:
        (n,) starts; 0 where the video is short.
    """
    most = np.maximum(lengths - span, 0)
    return most // 2 if clips == 1 else most * (sample // places) // (clips - 1)


def clip_frames(
    start: np.ndarray, frames_per_clip: int, stride: int, frames: int | np.ndarray, on_short: str
) -> NDArray[np.int32]:
    """List the frame numbers of clips.

    Args:
        start: first frames, any shape.
        frames_per_clip: F.
        stride: s.
        frames: number of frames of each clip's video, broadcasting with ``start``.
        on_short: what happens past the end of a short video: ``clamp`` repeats its last frame, ``loop`` goes on at
            its first; ``skip`` says that the caller left short videos out.

    Returns:
        int32 array of shape (*start.shape, F), each number within its video.

    Raises:
        BadInput: ``on_short`` is unknown, or a short video was not left out under ``skip``.
    """
    if on_short not in list(OnShortVideo):
        raise BadInput(f"on_short_video: got {on_short!r}; allowed: {', '.join(OnShortVideo)}")
    numbers = np.asarray(start)[..., None] + stride * np.arange(frames_per_clip)
    last = np.asarray(frames)[..., None] - 1
    if on_short == OnShortVideo.LOOP:
        return np.asarray(numbers % (last + 1), dtype=np.int32)
    if on_short == OnShortVideo.SKIP and np.any(numbers > last):
        raise BadInput(f"clip of {frames_per_clip} frames, stride {stride}: a video is shorter; leave such videos out")
    return np.asarray(np.minimum(numbers, last), dtype=np.int32)


def _half_width(spread: float) -> int:
    """Half of δ as a numerator; a product with a power of two is exact."""
    return int(spread * ONE) // 2


def jitter(words: Words, half_width: int) -> NDArray[np.int64]:
    """A numerator in (-half_width, half_width), exactly symmetric: the sign is the word's lowest bit.

    Symmetry is what keeps the folded fraction uniform, so it is not left to rounding.
    """
    size = scaled(words >> np.uint64(64 - FRACTION_BITS), half_width)
    return np.where(words & np.uint64(1), -size, size)


def reflect(place: np.ndarray, one: int) -> NDArray[np.int64]:
    """Fold numerators in [-one, 2 * one) back into [0, one) at the borders, which lie half a step outside."""
    folded = np.where(place < 0, -1 - place, place)
    return np.where(folded >= one, 2 * one - 1 - folded, folded)


def choose_phase(rank: np.ndarray, starts: np.ndarray, grid: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Choose a phase of the grid with a chance proportional to its number of starts.

    Args:
        rank: uniform in [0, starts).
        starts: number of possible starts S.
        grid: g; the first S mod g phases hold one start more than the others.

    Returns:
        The phase and how many starts it holds. Equal chances (the paper) would favour the starts of sparser phases.
    """
    each, rest = np.divmod(starts, grid)
    border = rest * (each + 1)
    in_larger = rank < border
    larger = rank // (each + 1)
    smaller = rest + (rank - border) // np.maximum(each, 1)
    return np.where(in_larger, larger, smaller), np.where(in_larger, each + 1, each)
