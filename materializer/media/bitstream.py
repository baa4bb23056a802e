"""Read what an index must know from a compressed packet, undecoded: is it a frame, a reference, a clean start?

Only headers of H.264, HEVC, VP8, VP9 and AV1 are read, and only as far as these questions go. For other codecs
the answer is "unknown", and the probe decodes the whole video once instead.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["INTRA_ONLY", "READABLE", "Headers", "Packet"]

READABLE = frozenset({"h264", "hevc", "vp8", "vp9", "av1"})
"""Codecs whose packets this module can read."""
INTRA_ONLY = frozenset({"mjpeg", "prores", "dnxhd", "rawvideo", "ffvhuff", "huffyuv", "png", "v210", "jpeg2000"})
"""Codecs in which each packet is one frame that depends on no other."""


@dataclass(frozen=True, slots=True)
class Packet:
    """What a packet's headers say."""

    shown: bool = True
    """A decoder gives a frame for it."""
    simple: bool = True
    """It holds exactly one whole picture; False makes the probe count by decoding."""
    reference: bool = True
    """Others may be predicted from it; False only where that is sure."""
    clean: bool = True
    """If it is a key: no frame that follows it in both orders depends on anything before it."""
    temporal: int = 0
    """Temporal sub-layer; a frame may be predicted from any frame of a lower one."""


@dataclass(slots=True)
class Headers:
    """Reads the packets of one stream in decode order."""

    codec: str
    extradata: bytes
    _length_size: int = 0
    """Bytes of the length before each NAL unit; 0 = start codes."""
    _known: set[bytes] = field(default_factory=set)
    """Parameter sets that a decoder has from the extradata."""
    _seen: set[bytes] = field(default_factory=set)
    """Further parameter sets seen within the stream."""

    def __post_init__(self) -> None:
        """Take the parameter sets out of the extradata."""
        data = self.extradata
        if self.codec == "h264" and data[:1] == b"\x01" and len(data) > 6:
            self._length_size = (data[4] & 3) + 1
            self._known = set(_avcc_sets(data))
        elif self.codec == "hevc" and len(data) > 22 and data[:3] not in (b"\0\0\0", b"\0\0\1"):
            self._length_size = (data[21] & 3) + 1
            self._known = set(_hvcc_sets(data))
        elif self.codec in ("h264", "hevc"):
            self._known = {nal for nal in _start_code_nals(data) if self._is_set(nal)}

    def read(self, data: bytes) -> Packet:
        """What one packet says; give the payloads in decode order."""
        if self.codec in ("h264", "hevc"):
            return self._read_nals(data)
        if self.codec == "vp8":
            # RFC 6386 §9.1: bit 4 of the frame tag is show_frame.
            return Packet(shown=bool(data) and bool(data[0] & 0x10))
        if self.codec == "vp9":
            return Packet(shown=_vp9_shown(data))
        return Packet(simple=self.codec == "av1" or self.codec in INTRA_ONLY, clean=self.codec in INTRA_ONLY | {"av1"})

    def _read_nals(self, data: bytes) -> Packet:
        h264 = self.codec == "h264"
        nals = _length_nals(data, self._length_size) if self._length_size else _start_code_nals(data)
        pictures, temporal, reference, random_access = 0, 0, False, False
        sets: set[bytes] = set()
        for nal in nals:
            if len(nal) < (2 if h264 else 3):
                continue
            if self._is_set(nal):
                sets.add(bytes(nal))
                continue
            if h264:
                kind = nal[0] & 31
                if kind in (1, 2, 5):
                    pictures += nal[1] >> 7  # first_mb_in_slice = 0 is written as a single 1 bit
                    reference |= bool(nal[0] & 0x60)
                    random_access |= kind == 5
            else:
                kind = nal[0] >> 1 & 63
                if kind < 32 and not (nal[0] & 1 or nal[1] >> 3):  # base layer only
                    pictures += nal[2] >> 7  # first_slice_segment_in_pic_flag
                    reference |= kind > 14 or bool(kind & 1)  # even types below 16 are sub-layer non-reference
                    random_access |= 16 <= kind <= 21  # BLA, IDR, CRA; their leading pictures are the index's business
                    temporal = (nal[1] & 7) - 1
        self._seen |= sets - self._known
        # A decoder that starts here has the extradata's parameter sets and this packet's, and no others.
        clean = random_access and (not self._seen or self._seen <= sets)
        return Packet(pictures > 0, pictures == 1, reference, clean, temporal)

    def _is_set(self, nal: bytes) -> bool:
        if self.codec == "h264":
            return bool(nal) and nal[0] & 31 in (7, 8, 13, 15)
        return bool(nal) and nal[0] >> 1 & 63 in (32, 33, 34)


def _length_nals(data: bytes, size: int) -> Iterator[bytes]:
    at = 0
    while at + size <= len(data):
        length = int.from_bytes(data[at : at + size], "big")
        at += size
        # Only the headers are looked at, so a slice's payload is not copied; parameter sets are small and come whole.
        yield data[at : at + min(length, 4096)]
        at += length


def _start_code_nals(data: bytes) -> Iterator[bytes]:
    at = data.find(b"\0\0\1")
    while at >= 0:
        after = data.find(b"\0\0\1", at + 3)
        end = len(data) if after < 0 else after
        yield data[at + 3 : min(end, at + 3 + 4096)].rstrip(b"\0")
        at = after


def _avcc_sets(data: bytes) -> Iterator[bytes]:
    """Parameter sets of an AVCDecoderConfigurationRecord (ISO/IEC 14496-15 §5.3.3.1)."""
    at = 5
    for mask in (31, 255):
        if at >= len(data):
            return
        count, at = data[at] & mask, at + 1
        for _ in range(count):
            length = int.from_bytes(data[at : at + 2], "big")
            yield data[at + 2 : at + 2 + length]
            at += 2 + length


def _hvcc_sets(data: bytes) -> Iterator[bytes]:
    """Parameter sets of an HEVCDecoderConfigurationRecord (ISO/IEC 14496-15 §8.3.3.1)."""
    at = 23
    for _ in range(data[22]):
        count, at = int.from_bytes(data[at + 1 : at + 3], "big"), at + 3
        for _ in range(min(count, 256)):
            length = int.from_bytes(data[at : at + 2], "big")
            yield data[at + 2 : at + 2 + length]
            at += 2 + length


def _vp9_shown(data: bytes) -> bool:
    """Whether a VP9 packet shows a frame: a superframe does; a lone frame says so (VP9 specification §6.2, Annex B)."""
    if not data:
        return False
    if data[-1] & 0xE0 == 0xC0:
        return True
    bits = data[0]
    profile = (bits >> 5 & 1) | (bits >> 4 & 1) << 1
    at = 2 if profile == 3 else 3  # profile 3 has one reserved bit more
    if bits >> at & 1:  # show_existing_frame
        return True
    return bool(bits >> (at - 2) & 1)
