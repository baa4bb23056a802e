"""What the segments of a JPEG file say, up to its first scan (ITU-T T.81 annex B).

The pixel format is worked out as FFmpeg's decoder does it. Where that decoder and libjpeg, which all others use, would
read the colours of a file differently, the file is refused: nobody would notice the wrong ones.
"""

import re

from viewcache.materializer.media.exif import orientation
from viewcache.materializer.media.head import Head, Seen

__all__ = ["FORMATS", "has_end", "read_jpeg", "reduced", "stands_alone"]

REFUSED = {
    0xC3: "lossless",
    0xC5: "hierarchical",
    0xC6: "hierarchical progressive",
    0xC7: "hierarchical lossless",
    0xC9: "arithmetic-coded",
    0xCA: "arithmetic-coded progressive",
    0xCB: "arithmetic-coded lossless",
    0xCD: "arithmetic-coded hierarchical",
    0xCE: "arithmetic-coded hierarchical progressive",
    0xCF: "arithmetic-coded hierarchical lossless",
    0xF7: "JPEG-LS",
}
"""Start of frame → what kind of JPEG it begins; baseline, extended and progressive (SOF0, SOF1, SOF2) are decoded."""
SEGMENTS = 4096
"""More than any picture has before its first scan."""
BT601, FULL = 5, 2
"""AVColorSpace and AVColorRange of a JPEG picture."""
CHROMA = {
    "yuvj444p": "111111 121211 221221 212111 211121 222112 222211 221122 112222 311111",
    "yuvj440p": "121111 141212 141111 222111 222121 221121",
    "yuvj422p": "211111 221211 221112 412111",
    "yuvj420p": "221111 231111 241111 421111",
    "yuvj411p": "411111",
}
"""Pixel format → the sampling factors of three components, across and down each, as `reduced` gives them."""
FORMATS = {factors: name for name, listed in CHROMA.items() for factors in listed.split()}
INKS = frozenset({"11111111", "22111111", "22111122"})
"""The same of four components."""
STATEFUL = frozenset({b"AVI1", b"LJIF", b"colr", b"xfrm", b"AVID", b"CS=I", b"Inte", b"Meta", b"MULT"})
"""How application segments and comments begin of which FFmpeg's decoder remembers something for its next pictures."""
_MARKER = re.compile(rb"\xff[\xc0-\xcf\xd9-\xfe]")
_UNSTUFFED = re.compile(rb"\xff[^\0]")
_SOI, _EOI, _SOS, _DQT, _DHT, _DRI, _COM = b"\xff\xd8", b"\xff\xd9", 0xDA, 0xDB, 0xC4, 0xDD, 0xFE
_TABLES = frozenset({_DHT, 0xC8, 0xCC})  # in the range of the starts of frames, and none of them


def read_jpeg(head: Head) -> Seen:
    """Read the segments of a JPEG file up to its frame header.

    Raises:
        BadVideo: it has none, or is of a kind that is not decoded.
    """
    at, turned, adobe, is_jfif = 2, 1, -1, False
    for _ in range(SEGMENTS):
        code, start, end = _segment(head, at)
        data = head.data
        if code == 0xE0:
            is_jfif |= data[start : start + 5] == b"JFIF\0"
        elif code == 0xE1 and turned == 1 and data[start : start + 6] == b"Exif\0\0":
            turned = orientation(data[start + 6 : end])
        elif code == 0xEE and data[start : start + 5] == b"Adobe" and end - start >= 12:
            adobe = data[start + 11]
        elif (0xC0 <= code <= 0xCF and code not in _TABLES) or code == 0xF7:
            return _frame(head, code, data[start:end], adobe, is_jfif)._replace(orientation=turned)
        elif code in (0xD9, _SOS):
            break
        at = end
    raise head.bad("a JPEG file without a frame header before its pixels; save the picture again")


def _segment(head: Head, at: int) -> tuple[int, int, int]:
    """Code, begin and end of the payload of the next segment; like all readers it passes over what is none."""
    while (found := _MARKER.search(head.data, at)) is None:
        at = max(at, len(head.data) - 1)
        head.upto(len(head.data) + 1)
    start = found.end()
    code = head.data[start - 1]
    if code == 0xD9:
        return code, start, start
    length = int.from_bytes(head.upto(start + 2)[start : start + 2], "big")
    if length < 2:
        raise head.bad(f"a segment of a JPEG file with a length of {length} at byte {start}; save the picture again")
    head.upto(start + length)
    return code, start + 2, start + length


def _frame(head: Head, code: int, frame: bytes, adobe: int, is_jfif: bool) -> Seen:
    """What a frame header says (T.81 B.2.2)."""
    if code in REFUSED:
        raise head.bad(f"a JPEG picture of kind {REFUSED[code]}, which is not decoded; save it as baseline JPEG")
    if len(frame) < 6 or len(frame) != 6 + 3 * frame[5]:
        raise head.bad("a damaged JPEG frame header; save the picture again")
    bits, components = frame[0], frame[5]
    if bits != 8:
        raise head.bad(f"a {bits}-bit JPEG picture, which is not decoded; save it with 8 bits, or as PNG with 16")
    height, width = int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:5], "big")
    pix_fmt = _pix_fmt(head, components, bytes(frame[6::3]), reduced(frame[7::3]), adobe, is_jfif)
    is_yuv = pix_fmt.startswith("yuv")
    return Seen("jpeg", width, height, pix_fmt, BT601 if is_yuv else 0, FULL)


def _pix_fmt(head: Head, components: int, ids: bytes, factors: str, adobe: int, is_jfif: bool) -> str:
    if components == 1:
        return "gray"
    if components == 4 and factors in INKS:
        if (ids == b"CMYK" and adobe != 2) or adobe == 0:
            return "gbrap"
        if ids != b"CMYK" and adobe == 2:
            return "yuva444p"
        raise head.bad("a JPEG picture of four components without a mark that says CMYK or YCCK; save it as RGB")
    if components == 3 and factors in FORMATS:
        if adobe != 0 and ids != b"RGB":
            return FORMATS[factors]
        if is_jfif or adobe > 0:
            raise head.bad("a JPEG picture whose marks say both RGB and YCbCr; save it again")
        if factors == "111111":
            return "gbrp"
        raise head.bad("an RGB JPEG picture with fewer samples in some colours; save it as YCbCr or with 4:4:4")
    raise head.bad(
        f"a JPEG picture of {components} components sampled {factors}, which is not decoded; save it as 4:2:0"
    )


def reduced(sampling: bytes) -> str:
    """Sampling factors as FFmpeg compares them: halved where all components have an even one."""
    across, down = [each >> 4 for each in sampling], [each & 15 for each in sampling]
    if set(across) == {2}:
        across = [1] * len(across)
    if set(down) == {2}:
        down = [1] * len(down)
    return "".join(f"{h:x}{v:x}" for h, v in zip(across, down, strict=True))


def has_end(data: bytes) -> bool:
    """Whether the mark of a picture's end comes behind its first scan, which a file that was cut short lacks.

    Of one that was cut by a few bytes nothing else says so: FFmpeg's decoder reads zeros there, which give pixels.
    """
    at = 2
    while (found := _MARKER.search(data, at)) is not None:
        at = found.end()
        if data[at - 1] == _SOS:
            return data.find(_EOI, at) >= 0
        at += int.from_bytes(data[at : at + 2], "big")
    return False


def stands_alone(data: bytes) -> bool:
    """Whether a decoder that had other pictures before gives of this file what a new one gives, and is as before after.

    That is so for one baseline scan that brings all tables that it uses, followed by the end of the picture and nothing
    else. Of all others nothing is said.
    """
    try:
        return _stands_alone(data)
    except IndexError:  # cut off within a segment
        return False


def _stands_alone(data: bytes) -> bool:
    at, tables, frame = 2, set[int](), b""
    if not data.startswith(_SOI):
        return False
    while True:
        if data[at] != 0xFF:
            return False
        code, length = data[at + 1], data[at + 2] << 8 | data[at + 3]
        start, end = at + 4, at + 2 + length
        if code == _DQT:
            while start < end:
                tables.add(0x100 | data[start] & 15)
                start += 129 if data[start] >> 4 else 65
        elif code == _DHT:
            while start < end:
                tables.add(data[start])
                start += 17 + sum(data[start + 1 : start + 17])
        elif code == 0xC0 and not frame:
            frame = data[start:end]
        elif code == _SOS:
            break
        elif not (0xE0 <= code <= 0xEF or code in (_DRI, _COM)) or data[start : start + 4] in STATEFUL:
            return False
        if length < 2:
            return False
        at = end
    scan = data[start:end]
    if not frame or scan[0] != frame[5] or len(scan) != 4 + 2 * scan[0] or len(frame) != 6 + 3 * scan[0]:
        return False
    used = {0x100 | each for each in frame[8::3]}
    for number in range(scan[0]):
        selected = scan[2 + 2 * number]
        used |= {selected >> 4, 0x10 | selected & 15}
    # The first byte 0xFF in the scan's data that no zero follows begins the end of the picture, and that of the file.
    marker = _UNSTUFFED.search(data, end)
    return used <= tables and marker is not None and data[marker.start() :] == _EOI
