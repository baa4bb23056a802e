"""Groups of resized pictures with a loss that a task has allowed: H.264, each group encoded for itself.

A group is the same few frames of a video whatever else is planned, and nothing of one group's encoding reaches the
next: so what comes out depends on the pictures, the `Loss` and the encoder's version alone, and a group that is lost is
made again to the bit. The trade-off: an encoder is opened for each group, which costs a tenth of encoding it.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadVideo, Broken, ChunkDamaged
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

__all__ = ["Group", "LossyDecoder", "Unconverted", "encode", "encoder_version", "luma_psnr_db"]

Bytes = NDArray[np.uint8]

_FORMAT = "yuv444p"
"""No colour is left out, so that any size will do."""
EXACT_DB = 99.0
"""What is said of a picture that has lost nothing."""

_OPTIONS = {"preset": "ultrafast", "tune": "zerolatency", "x264-params": "cpu-independent=1"}
"""The cheapest to encode and to decode; the same bits on every kind of CPU."""
_EVEN = "ipratio=1"
"""All pictures of a group by one quantizer: the first would lose less, and the others decide."""
_NEAR = 17, 45.0
"""By this quantizer five in six groups of real clips have so many decibels (docs/design/0071)."""
_STEPS_PER_DB = 1.4
"""Of the quantizer, from one quality to another, and for what is missing: then a second try suffices (same note)."""
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
    factor: int
    """With which it was encoded: the constant rate factor, or of a stated quality the quantizer."""
    pack_s: float
    """Core seconds of encoding it, of all tries."""
    unpack_s: float
    """Of decoding it once."""


class Unconverted:
    """A decoded picture that is not RGB yet: of what a clip does not show nothing is converted."""

    def __init__(self, frame: "VideoFrame") -> None:
        """Of a frame in the format of groups, which belongs to it from now on."""
        self._frame = frame
        self.size = 3 * frame.height * frame.width
        """Bytes of it as RGB."""

    def part(self, y: int, x: int, h: int, w: int) -> Bytes:
        """A new array, uint8 (3,h,w)."""
        from viewcache.materializer.media.pixels import rgb_of  # loads the decoder's libraries

        out = np.empty((3, h, w), np.uint8)
        rgb_of(self._frame, out, y, x)
        return out

    def copy(self) -> "Unconverted":
        """Itself: unlike arrays that are read into one buffer it stays what it is."""
        return self

    def whole(self) -> Bytes:
        """A new array, uint8 (3,H,W)."""
        return self.part(0, 0, self._frame.height, self._frame.width)


class LossyDecoder:
    """Unpacks groups."""

    def __init__(self, width: int, height: int) -> None:
        """For pictures of this size."""
        self._expected = _FORMAT, width, height

    def group(self, packets: Sequence[bytes | memoryview]) -> Iterator[Unconverted]:
        """The pictures, one after another.

        Raises:
            ChunkDamaged: a packet does not give a picture.
        """
        # A decoder of its own: groups that were encoded with a factor of 0 and others have parameter sets that differ,
        # and FFmpeg's decoder gives wrong pictures, without a word, of one that comes after the other.
        context = open_h264_decoder()
        for packet in packets:
            yield Unconverted(decode_h264(context, packet, self._expected))


def encode(pictures: Bytes, loss: Loss) -> Group:
    """Encode one group.

    With a wanted quality all pictures have one quantizer: what that loses depends little on what they show. It begins
    where most groups have the quality, and is lowered by what is missing until every picture has it; pictures that are
    easy to encode keep more than was asked.

    Args:
        pictures: uint8 (n,3,H,W), RGB.
        loss: what is allowed.

    Raises:
        BadVideo: the wanted quality is more than the encoder has at its best of these pictures.
        Broken: the encoder is missing, fails, or gives what cannot be decoded.
    """
    if loss.quality_db is None:
        assert loss.crf is not None  # one of them is given
        return _encode(pictures, _yuv(pictures), _OPTIONS | {"crf": str(loss.crf)}, loss.crf)
    begun = time.thread_time()
    usual, usual_db = _NEAR
    quantizer = max(0, round(usual - _STEPS_PER_DB * (loss.quality_db - usual_db)))
    options = _OPTIONS | {"x264-params": f"{_OPTIONS['x264-params']}:{_EVEN}"}
    frames = _yuv(pictures)
    while True:
        group = _encode(pictures, frames, options | {"qp": str(quantizer)}, quantizer)
        missing_db = loss.quality_db - float(group.psnr_db.min())
        if missing_db <= 0:
            return replace(group, pack_s=time.thread_time() - begun - group.unpack_s)
        if quantizer == 0:
            best_db = group.psnr_db.min()
            raise BadVideo(f"{ENCODER} reaches {best_db:.1f} dB at its best, not {loss.quality_db:g} dB; ask for less")
        quantizer = max(0, quantizer - int(np.ceil(_STEPS_PER_DB * missing_db)))


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
    return version_of(_encode(nothing, _yuv(nothing), _OPTIONS, 0).packets[0])


def _yuv(pictures: Bytes) -> list["VideoFrame"]:
    """What the encoder is given, the same in each try."""
    from viewcache.materializer.media.pixels import yuv_of  # loads the decoder's libraries

    return [yuv_of(each, _FORMAT) for each in pictures]


def _encode(pictures: Bytes, frames: Sequence["VideoFrame"], options: Mapping[str, str], factor: int) -> Group:
    import av
    from av.video.frame import PictureType

    height, width = pictures.shape[2:]
    begun = time.thread_time()
    try:
        context = open_h264_encoder(_FORMAT, width, height, options)
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
        for picture, made in zip(out, LossyDecoder(width, height).group(packets), strict=True):
            picture[:] = made.whole()
    except ChunkDamaged as failed:
        raise Broken(f"{DECODER} does not decode what {ENCODER} gave: {failed}") from failed
    ended = time.thread_time()
    return Group(packets, out, luma_psnr_db(out, pictures), factor, halfway - begun, ended - halfway)
