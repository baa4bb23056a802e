"""Groups of resized pictures with a loss that a task has allowed: H.264, each group encoded for itself.

A group is the same few frames of a video whatever else is planned, and nothing of one group's encoding reaches the
next: so what comes out depends on the pictures, the `Loss` and the encoder's version alone, and a group that is lost is
made again to the bit. The trade-off: an encoder is opened for each group, which costs a tenth of encoding it.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import Broken, ChunkDamaged
from viewcache.materializer.media.h264 import (
    DECODER,
    ENCODER,
    decode_h264,
    open_h264_decoder,
    open_h264_encoder,
    version_of,
)
from viewcache.materializer.media.loss import Loss

if TYPE_CHECKING:
    from av import VideoFrame

__all__ = ["Group", "LossyDecoder", "encode", "encoder_version", "luma_psnr_db"]

Bytes = NDArray[np.uint8]

_FORMAT = "yuv444p"
"""No colour is left out, so that any size will do."""
EXACT_DB = 99.0
"""What is said of a picture that has lost nothing."""

_OPTIONS = {"preset": "ultrafast", "tune": "zerolatency", "x264-params": "cpu-independent=1"}
"""The cheapest to encode and to decode; the same bits on every kind of CPU."""
_NEAR = 18.0, 46.0
"""At this factor real clips have so many decibels, and about half a decibel more for each less (docs/design/0047)."""
_LUMA = 2126, 7152, 722
"""BT.709, of ten thousand: sums of squares are whole numbers, so that every machine finds the same."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group as it was encoded."""

    packets: list[bytes]
    """One a picture."""
    pictures: Bytes
    """uint8 (n,3,H,W): what comes out of them again."""
    psnr_db: NDArray[np.float64]
    """(n,) luma PSNR of each."""
    crf: int
    """With which it was encoded."""
    pack_s: float
    """Core seconds of encoding it, of all tries."""
    unpack_s: float
    """Of decoding it once."""


class LossyDecoder:
    """Unpacks groups, see `viewcache.materializer.media.lossless.Decoder`."""

    def __init__(self, width: int, height: int) -> None:
        """For pictures of this size."""
        self._out = np.empty((3, height, width), np.uint8)

    def group(self, packets: Sequence[bytes | memoryview]) -> Iterator[Bytes]:
        """The pictures, uint8 (bytes,), one after another; each is valid until the next is asked for.

        Raises:
            ChunkDamaged: a packet does not give a picture.
        """
        from viewcache.materializer.media.pixels import rgb_of  # loads the decoder's libraries

        height, width = self._out.shape[1:]
        # A decoder of its own: groups that were encoded with a factor of 0 and others have parameter sets that differ,
        # and FFmpeg's decoder gives wrong pictures, without a word, of one that comes after the other.
        context = open_h264_decoder()
        for packet in packets:
            rgb_of(decode_h264(context, packet, (_FORMAT, width, height)), self._out)
            yield self._out.reshape(-1)


def encode(pictures: Bytes, loss: Loss) -> Group:
    """Encode one group.

    With a wanted quality the factor begins where real clips have that quality, and is lowered by what is missing until
    every picture has it; pictures that are easy to encode keep more than was asked.

    Args:
        pictures: uint8 (n,3,H,W), RGB.
        loss: what is allowed.

    Raises:
        Broken: the encoder is missing, fails, or gives what cannot be decoded.
    """
    if loss.quality_db is None:
        assert loss.crf is not None  # one of them is given
        return _encode(pictures, _yuv(pictures), loss.crf)
    begun = time.thread_time()
    factor, usual_db = _NEAR
    crf = int(np.clip(round(factor - 2 * (loss.quality_db - usual_db)), 0, 40))
    frames = _yuv(pictures)
    while True:
        group = _encode(pictures, frames, crf)
        missing_db = loss.quality_db - float(group.psnr_db.min())
        if missing_db <= 0:
            return replace(group, pack_s=time.thread_time() - begun - group.unpack_s)
        if crf == 0:
            raise Broken(f"{ENCODER} reaches {group.psnr_db.min():.1f} dB at its best, not {loss.quality_db:g} dB")
        crf = max(0, crf - max(1, int(np.ceil(1.6 * missing_db))))


def luma_psnr_db(pictures: Bytes, exact: Bytes) -> NDArray[np.float64]:
    """Peak signal-to-noise ratio of the luma of each picture; `EXACT_DB` where nothing was lost.

    Args:
        pictures: uint8 (n,3,H,W).
        exact: the same.
    """
    found = np.full(len(pictures), EXACT_DB)
    change = np.empty(exact.shape[1:], np.int16)
    luma, part = np.empty((2, *exact.shape[2:]), np.int32)
    square = np.empty(luma.shape, np.float64)
    for k, (one, other) in enumerate(zip(pictures, exact, strict=True)):
        np.subtract(one, other, out=change, dtype=np.int16)
        luma[:] = 0
        for weight, channel in zip(_LUMA, change, strict=True):
            np.multiply(channel, weight, out=part, dtype=np.int32)
            luma += part
        square[:] = luma
        square *= square
        error = float(square.sum()) / square.size / sum(_LUMA) ** 2
        if error:
            found[k] = min(EXACT_DB, 10 * np.log10(255**2 / error))
    return found


@cache
def encoder_version() -> str:
    """Name and version of the encoder: other versions give other pixels. Asked once.

    Raises:
        Broken: there is none.
    """
    nothing = np.zeros((1, 3, 16, 16), np.uint8)
    return version_of(_encode(nothing, _yuv(nothing), 18).packets[0])


def _yuv(pictures: Bytes) -> list["VideoFrame"]:
    """What the encoder is given, the same in each try."""
    from viewcache.materializer.media.pixels import yuv_of  # loads the decoder's libraries

    return [yuv_of(each, _FORMAT) for each in pictures]


def _encode(pictures: Bytes, frames: Sequence["VideoFrame"], crf: int) -> Group:
    import av
    from av.video.frame import PictureType

    height, width = pictures.shape[2:]
    begun = time.thread_time()
    try:
        context = open_h264_encoder(_FORMAT, width, height, _OPTIONS | {"crf": str(crf)})
    except Broken as missing:
        raise Broken(f"pictures cannot be encoded with a loss: {missing}; PyAV's own wheels have it") from missing
    packets: list[bytes] = []
    try:
        for number, frame in enumerate(frames):
            frame.pts, frame.pict_type = number, PictureType.NONE if number else PictureType.I
            packets += map(bytes, context.encode(frame))
        packets += map(bytes, context.encode(None))
    except (av.error.FFmpegError, ValueError) as failed:
        raise Broken(f"{ENCODER} failed on pictures of {width}x{height}: {failed}") from failed
    if len(packets) != len(pictures):
        raise Broken(f"{ENCODER} gave {len(packets)} packets for {len(pictures)} pictures")
    out, halfway = np.empty_like(pictures, order="C"), time.thread_time()
    try:
        for picture, flat in zip(out, LossyDecoder(width, height).group(packets), strict=True):
            picture.reshape(-1)[:] = flat
    except ChunkDamaged as failed:
        raise Broken(f"{DECODER} does not decode what {ENCODER} gave: {failed}") from failed
    ended = time.thread_time()
    return Group(packets, out, luma_psnr_db(out, pictures), crf, halfway - begun, ended - halfway)
