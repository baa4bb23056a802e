"""Packet headers, read without decoding: what is shown, what others refer to, where decoding may start."""

import pytest

from viewcache.materializer.media.bitstream import Headers

SPS, PPS = b"\x67\x64\x00\x1f\xac", b"\x68\xee\x3c\x80"
AVCC = b"\x01\x64\x00\x1f\xff\xe1" + len(SPS).to_bytes(2, "big") + SPS + b"\x01" + len(PPS).to_bytes(2, "big") + PPS
IDR, P, B = b"\x65\x88\x80", b"\x41\x9a", b"\x01\x9e\x01"


def packet(*nals: bytes) -> bytes:
    """NAL units with 4-byte lengths."""
    return b"".join(len(nal).to_bytes(4, "big") + nal for nal in nals)


def annex_b(*nals: bytes) -> bytes:
    """NAL units with start codes."""
    return b"".join(b"\0\0\0\1" + nal for nal in nals)


@pytest.mark.parametrize(("extradata", "join"), [(AVCC, packet), (annex_b(SPS, PPS), annex_b)])
def test_h264(extradata: bytes, join: object) -> None:
    """IDR pictures are clean starts, P pictures are references, nal_ref_idc 0 is not; both ways of framing."""
    assert callable(join)
    headers = Headers("h264", extradata)
    first, second, third = (headers.read(join(nal)) for nal in (IDR, P, B))
    assert (first.clean, first.reference, first.simple, first.shown) == (True, True, True, True)
    assert (second.clean, second.reference) == (False, True)
    assert (third.clean, third.reference) == (False, False)


def test_two_pictures_in_a_packet() -> None:
    """Fields or frames that share a packet, and packets without a picture, make the probe count by decoding."""
    headers = Headers("h264", AVCC)
    assert not headers.read(packet(P, P)).simple
    assert not headers.read(packet(b"\x06\x05\x01\x00")).shown
    assert headers.read(packet(P, b"\x41\x1a\x00")).simple  # a second slice of the same picture


def test_a_start_needs_its_parameter_sets() -> None:
    """A key frame is no clean start if sets that came before in the stream are not repeated with it."""
    other = b"\x68\xce\x01\x02"
    headers = Headers("h264", AVCC)
    assert headers.read(packet(SPS, PPS, IDR)).clean
    assert headers.read(packet(other, IDR)).clean
    assert not headers.read(packet(IDR)).clean
    assert headers.read(packet(SPS, PPS, other, IDR)).clean


def test_hevc() -> None:
    """IDR and CRA are starts; sub-layer non-reference pictures say so, with their temporal layer."""
    headers = Headers("hevc", b"")
    idr, cra, trail_n, trail_r = (
        headers.read(annex_b(bytes([kind << 1, layer, 0x80]))) for kind, layer in ((19, 1), (21, 1), (0, 3), (1, 1))
    )
    assert idr.clean
    assert cra.clean
    assert (trail_n.reference, trail_n.temporal, trail_n.clean) == (False, 2, False)
    assert trail_r.reference


@pytest.mark.parametrize(("first", "shown"), [(0x10, True), (0x00, False), (0x11, True), (0x01, False)])
def test_vp8(first: int, shown: bool) -> None:
    """Alternate reference frames of VP8 are packets that show nothing."""
    assert Headers("vp8", b"").read(bytes([first, 0, 0, 0])).shown is shown


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"\x82\x49\x83\x42", True),  # key frame, shown
        (b"\x80\x49\x83\x42", False),  # key frame, hidden
        (b"\x86\x00\x40", True),  # inter frame, shown
        (b"\x84\x00\x40", False),
        (b"\x88", True),  # shows an existing frame
        (b"\x84\x00\xc9\x01\x02\xc9", True),  # a superframe shows one
        (b"", False),
    ],
)
def test_vp9(data: bytes, shown: bool) -> None:
    """A lone VP9 frame says whether it is shown; a superframe always shows one."""
    assert Headers("vp9", b"").read(data).shown is shown


def test_unknown_codecs_are_not_simple() -> None:
    """What cannot be read is counted by decoding."""
    assert not Headers("mpeg4", b"").read(b"\0\0\1\xb6").simple
    assert Headers("mjpeg", b"").read(b"\xff\xd8").simple


@pytest.mark.parametrize("codec", ["h264", "hevc", "vp8", "vp9", "av1"])
def test_noise_is_read_without_an_error(codec: str) -> None:
    """Headers of hostile bytes are read to some answer, within their bounds."""
    import random

    source = random.Random(5)
    for _ in range(300):
        headers = Headers(codec, source.randbytes(source.randrange(60)))
        headers.read(source.randbytes(source.randrange(200)))
