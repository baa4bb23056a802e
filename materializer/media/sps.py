"""Read the sequence parameter set of an H.264 stream: size and format of its pictures (ITU-T H.264 §7.3.2.1.1, §E.1.1).

Only of streams as cameras and encoders make them; for the others the answer is None, and FFmpeg is asked.
"""

from dataclasses import dataclass

__all__ = ["PictureFormat", "only_sps", "picture_format"]

HIGH = frozenset({44, 83, 86, 100, 110, 118, 122, 128, 134, 135, 138, 139, 244})
"""Profiles whose sets say how colour is sampled; all others have 4:2:0 of 8 bits."""
FORMATS = {(1, 8, False): "yuv420p", (1, 8, True): "yuvj420p", (1, 10, False): "yuv420p10le"}
"""(chroma_format_idc, bits, full range) → FFmpeg's pixel format."""
EXTENDED_SAR = 255
UNSPECIFIED = 2
"""AVColorSpace of a stream that names none."""


@dataclass(frozen=True, slots=True)
class PictureFormat:
    """What every picture of a stream is like."""

    width: int
    """Pixels."""
    height: int
    """Pixels."""
    pix_fmt: str
    color_space: int
    """AVColorSpace."""
    color_range: int
    """AVColorRange."""


def only_sps(avcc: bytes) -> bytes | None:
    """The one sequence parameter set of an AVCDecoderConfigurationRecord; None if there are none or several."""
    if len(avcc) < 8 or avcc[0] != 1 or avcc[5] & 31 != 1:
        return None
    length = int.from_bytes(avcc[6:8], "big")
    return avcc[8 : 8 + length] if 4 <= length <= len(avcc) - 8 else None


def picture_format(sps: bytes) -> PictureFormat | None:
    """Read a set; None for interlaced streams, rare formats and tables of its own for quantization.

    Raises:
        IndexError: the set ends before all is said.
    """
    bits = _Bits(sps[1:].replace(b"\0\0\3", b"\0\0"))  # §7.4.1.1: what keeps start codes out of a payload
    profile = bits.take(8)
    bits.take(16)  # constraints, level
    bits.unsigned()  # its number
    chroma, depth = 1, 8
    if profile in HIGH:
        chroma, depth, other_depth = bits.unsigned(), 8 + bits.unsigned(), 8 + bits.unsigned()
        if chroma == 3 or depth != other_depth or bits.take(2):  # a lossless mode; scaling lists
            return None
    bits.unsigned()  # bits of frame numbers
    _skip_order(bits)
    bits.unsigned()  # reference frames
    bits.take(1)
    width, height = 16 * (bits.unsigned() + 1), 16 * (bits.unsigned() + 1)
    if not bits.take(1):
        return None  # fields
    bits.take(1)
    if bits.take(1):
        if chroma != 1:
            return None
        left, right, top, bottom = (2 * bits.unsigned() for _ in range(4))
        width, height = width - left - right, height - top - bottom
    space, color_range = _colour(bits) if bits.take(1) else (UNSPECIFIED, 0)
    pix_fmt = FORMATS.get((chroma, depth, depth == 8 and color_range == 2))
    if pix_fmt is None or min(width, height) < 1:
        return None
    return PictureFormat(width, height, pix_fmt, space, color_range)


def _skip_order(bits: "_Bits") -> None:
    kind = bits.unsigned()
    if kind == 0:
        bits.unsigned()
    elif kind == 1:
        bits.take(1)
        bits.unsigned()  # signed numbers have as many bits as unsigned ones
        bits.unsigned()
        for _ in range(bits.unsigned()):
            bits.unsigned()


def _colour(bits: "_Bits") -> tuple[int, int]:
    """AVColorSpace and AVColorRange of the usability information, which begins here."""
    if bits.take(1) and bits.take(8) == EXTENDED_SAR:
        bits.take(32)
    if bits.take(1):
        bits.take(1)
    if not bits.take(1):
        return UNSPECIFIED, 0
    bits.take(3)
    color_range = 1 + bits.take(1)
    return (bits.take(24) & 255 if bits.take(1) else UNSPECIFIED), color_range


class _Bits:
    """Numbers out of a string of bits."""

    def __init__(self, data: bytes) -> None:
        self._value, self._left = int.from_bytes(data, "big"), 8 * len(data)

    def take(self, count: int) -> int:
        """The next bits as one number."""
        self._left -= count
        if self._left < 0:
            raise IndexError("the parameter set ends before all is said")
        return self._value >> self._left & ((1 << count) - 1)

    def unsigned(self) -> int:
        """The next Exp-Golomb code (§9.1)."""
        zeros = 0
        while not self.take(1):
            zeros += 1
        return (1 << zeros) - 1 + self.take(zeros)
