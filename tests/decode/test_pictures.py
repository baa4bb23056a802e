"""Picture files become pixels as videos of one frame: the right ones, upright, and hostile files cost themselves."""

import io
import itertools
import resource
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from av.codec import CodecContext
from av.packet import Packet
from PIL import Image, ImageFile, ImageOps

from tests.stills import KINDS, encoded, index_of, inks, jpeg_segments, painting, pillow_rgb, rgb_of, sampled, saved
from viewcache.errors import BadVideo, ViewcacheError
from viewcache.materializer.media import picture_feed
from viewcache.materializer.media.decode import DecodeStats, decode
from viewcache.materializer.media.exif import TURNS
from viewcache.materializer.media.jpeg import FORMATS, reduced, stands_alone
from viewcache.materializer.media.pixels import frame_from_planes, planes_of, to_rgb

ONLY = np.array([0])


def written(folder: Path, data: bytes) -> Path:
    """A file of some content."""
    (folder / "a").write_bytes(data)
    return folder / "a"


def turned(picture: Image.Image, kind: str, value: int, **options: Any) -> bytes:
    """A picture as a file with an orientation."""
    exif = Image.Exif()
    exif[0x0112] = value
    return saved(picture, kind, exif=exif, **options)


def outcome(path: Path) -> bytes | str:
    """The pixels of a file, or the name of the error."""
    try:
        return rgb_of(path).tobytes()
    except ViewcacheError as bad:
        return type(bad).__name__


def afresh(path: Path) -> bytes | str:
    """The same in a thread that has decoded nothing before."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(outcome, path).result()


@pytest.mark.parametrize("kind", KINDS)
def test_pixels_are_those_of_pillow(kind: str, tmp_path: Path) -> None:
    """PNG, BMP and lossless WebP of 8 bits are bit-exact in RGB; the others differ by the levels that are stated."""
    make, _, on_average, at_most = KINDS[kind]
    difference = np.abs(rgb_of(written(tmp_path, make())) - pillow_rgb(make()))
    assert difference.mean() <= on_average
    assert difference.max() <= at_most


@pytest.mark.parametrize("kind", KINDS)
def test_kept_planes_give_the_same_bytes(kind: str, tmp_path: Path) -> None:
    """RGB at any size is the same from kept planes as from the decoder, for all kinds whose planes are kept."""
    path = written(tmp_path, KINDS[kind][0]())
    index = index_of(path)
    if index.native_bytes is None:
        assert index.pix_fmt in ("pal8", "monob")
        return
    [(_, frame)] = decode(str(path), index, ONLY)
    planes = planes_of(frame)
    assert planes.size == index.native_bytes
    again = frame_from_planes(planes, index)
    for size in ((None, None), (31, 44), (134, 90)):
        assert np.array_equal(to_rgb(frame, *size), to_rgb(again, *size))


def test_every_sampling_is_decoded_as_pillow_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each sampling of three components that is accepted gives Pillow's picture, save for how chroma is spread.

    Pillow refuses more than ten blocks together (T.81 B.2.3): then there is nothing to compare with.
    """
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    compared = 0
    for factors in itertools.product(range(1, 5), repeat=6):
        sampling = bytes(across << 4 | down for across, down in zip(factors[::2], factors[1::2], strict=True))
        if reduced(sampling) not in FORMATS or sum(each // 16 * (each % 16) for each in sampling) > 10:
            continue
        data = sampled(sampling)
        context = CodecContext.create("mjpeg", "r")  # blocks may be missing at the end
        packet = Packet(len(data))
        packet.update(data)
        [frame] = [*context.decode(packet), *context.decode(None)]
        difference = np.abs(to_rgb(frame) - pillow_rgb(data))[:, :16]
        assert difference.mean() < 12, factors  # a wrong one differs by about 100
        compared += 1
    assert compared == 32


@pytest.mark.parametrize("value", TURNS)
def test_orientations_of_png_and_webp(value: int, tmp_path: Path) -> None:
    """All eight orientations of a picture of odd, unequal sides are to the bit what Pillow makes of them."""
    for kind, is_lossless in (("PNG", False), ("WEBP", True)):
        data = turned(painting(), kind, value, **({"lossless": True} if is_lossless else {}))
        upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
        path = written(tmp_path, data)
        shown = rgb_of(path)
        assert np.array_equal(shown, np.asarray(upright).transpose(2, 0, 1))
        assert index_of(path).shown_size == shown.shape[1:]


@pytest.mark.parametrize("value", TURNS)
def test_orientations_of_jpeg(value: int, tmp_path: Path) -> None:
    """The same of a JPEG, within the levels of its decoding; also from kept planes, and resized."""
    data = turned(painting(), "JPEG", value, subsampling=0, quality=95)
    upright = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))), np.int64).transpose(2, 0, 1)
    path = written(tmp_path, data)
    index = index_of(path)
    assert np.abs(rgb_of(path) - upright).max() <= 3
    [(_, frame)] = decode(str(path), index, ONLY)
    again = frame_from_planes(planes_of(frame), index)
    height, width = index.shown_size
    for each in (frame, again):
        small = to_rgb(each, height // 2, width // 2, rotation=index.rotation, mirrored=index.mirrored)
        assert small.shape == (3, height // 2, width // 2)
        coarse = np.asarray(
            Image.fromarray(upright.transpose(1, 2, 0).astype(np.uint8)).resize((width // 2, height // 2))
        )
        assert np.abs(small - coarse.transpose(2, 0, 1).astype(np.int64)).mean() < 4


def test_one_pixel(tmp_path: Path) -> None:
    """A picture of one pixel is a picture, in every format."""
    for kind in ("JPEG", "PNG", "WEBP", "BMP"):
        assert rgb_of(written(tmp_path, saved(Image.new("RGB", (1, 1), (200, 100, 50)), kind))).shape == (3, 1, 1)


@pytest.mark.parametrize("kind", ["jpeg_420", "jpeg_progressive", "jpeg_grey", "jpeg_cmyk", "png_rgb", "png_palette"])
@pytest.mark.parametrize("part", [0.5, 0.9])
def test_a_cut_off_picture_is_an_error(kind: str, part: float, tmp_path: Path) -> None:
    """A file that ends amid its pixels fails where it is decoded, and never ends in grey."""
    data = KINDS[kind][0]()
    path = written(tmp_path, data[: int(len(data) * part)])
    index = index_of(path)
    with pytest.raises(BadVideo, match="undecodable"):
        list(decode(str(path), index, ONLY))
    stats = DecodeStats()
    assert list(decode(str(path), index, ONLY, stats=stats)) == []
    assert list(stats.failed) == [0]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("jpeg")])
def test_a_picture_cut_by_a_few_bytes_is_an_error(kind: str, tmp_path: Path) -> None:
    """Without the mark of its end nobody can tell how many bytes of pixels a JPEG lacks, be it none."""
    data = KINDS[kind][0]()
    assert data.endswith(b"\xff\xd9")
    for cut in range(1, 30):
        path = written(tmp_path, data[:-cut])
        with pytest.raises(BadVideo, match="undecodable"):
            list(decode(str(path), index_of(path), ONLY))


def test_what_lies_behind_a_picture_does_not_matter(tmp_path: Path) -> None:
    """Bytes behind the end of a JPEG are passed over, be they another one or half of it."""
    data, other = encoded("JPEG"), encoded("JPEG", "L")
    whole = rgb_of(written(tmp_path, data))
    for more in (b"more", other, other[: len(other) // 2]):
        assert np.array_equal(rgb_of(written(tmp_path, data + more)), whole)


def test_the_first_of_several_pictures(tmp_path: Path) -> None:
    """An animated PNG and a JPEG of several pictures give the first."""
    others = [painting().rotate(180), painting().rotate(90)]
    for kind in ("PNG", "MPO"):
        data = saved(painting(), kind, save_all=True, append_images=others)
        assert np.abs(rgb_of(written(tmp_path, data)) - pillow_rgb(saved(painting(), "PNG"))).mean() < 6


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    """A picture whose bytes are others than its index says is a BadVideo, also where size and time are the same."""
    path = written(tmp_path, encoded("PNG"))
    index = index_of(path)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    stamped = replace(index, mtime_ns=path.stat().st_mtime_ns)
    with pytest.raises(BadVideo, match="other bytes"):
        list(decode(str(path), stamped, ONLY))
    with pytest.raises(BadVideo, match="changed since"):
        list(decode(str(path), index, ONLY))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The decoders that were opened since, by name; none is kept from before."""
    names: list[str] = []

    def create(name: Any, mode: Any) -> Any:
        names.append(name)
        return CodecContext.create(name, mode)

    monkeypatch.setattr(picture_feed, "CodecContext", SimpleNamespace(create=create))
    monkeypatch.setattr(picture_feed, "KEPT", threading.local())
    return names


def test_one_decoder_for_many_sizes(tmp_path: Path, opened: list[str]) -> None:
    """Pictures of any sizes and kinds in turn give with the decoder that was kept what each gives with a new one."""
    files = []
    ways: list[dict[str, Any]] = [{"subsampling": 2}, {"subsampling": 0}, {"progressive": True}, {"keep_rgb": True}]
    sizes = [(101, 67), (67, 101), (1, 1), (300, 200), (8, 8), (640, 17)]
    for number, (size, options) in enumerate(itertools.product(sizes, ways)):
        path = tmp_path / str(number)
        path.write_bytes(saved(painting().resize(size), "JPEG", **options))
        files.append(path)
    for number, make in enumerate((KINDS["jpeg_grey"][0], KINDS["jpeg_cmyk"][0], lambda: inks(2), KINDS["png_rgb"][0])):
        path = tmp_path / f"other{number}"
        path.write_bytes(make())
        files.append(path)
    alone = {path: afresh(path) for path in files}
    stand_alone = sum(stands_alone(path.read_bytes()) for path in files)
    assert stand_alone == 21
    opened.clear()
    for seed in range(3):
        for at in np.random.default_rng(seed).permutation(len(files)).tolist():
            assert outcome(files[at]) == alone[files[at]]
    assert len(opened) == 1 + 3 * (len(files) - stand_alone)


def test_the_decoder_is_kept_only_where_it_is_sound(tmp_path: Path, opened: list[str]) -> None:
    """After a failed decode there is none, and a decode in progress has it for itself."""
    path = written(tmp_path, encoded("JPEG"))
    first, second = (decode(str(path), index_of(path), ONLY) for _ in range(2))
    frames = [next(first)[1], next(second)[1]]
    assert np.array_equal(to_rgb(frames[0]), to_rgb(frames[1]))
    assert len(opened) == 2
    assert [list(first), list(second)] == [[], []]
    outcome(path)
    assert len(opened) == 2
    begin = next(end for code, _, end in jpeg_segments(encoded("JPEG")) if code == 0xDA)
    broken = encoded("JPEG")[: begin + 40] + b"\xff\xd9"
    assert stands_alone(broken)
    assert outcome(written(tmp_path, broken)) == "BadVideo"
    outcome(written(tmp_path, encoded("JPEG")))
    assert len(opened) == 3


def test_what_stands_alone() -> None:
    """Only a single baseline scan with all of its tables and without marks that a decoder remembers does."""
    data = encoded("JPEG")
    assert stands_alone(data)
    assert stands_alone(encoded("JPEG", "L"))
    assert stands_alone(encoded("JPEG", comment=b"made by hand"))
    assert not stands_alone(encoded("JPEG", progressive=True))
    assert not stands_alone(encoded("JPEG", comment=b"CS=ITU601"))
    assert not stands_alone(KINDS["jpeg_restarts"][0]())
    assert not stands_alone(data + b"\0")
    assert not stands_alone(data + data)
    for code, begin, end in jpeg_segments(data):
        if code in (0xDB, 0xC4):
            assert not stands_alone(data[:begin] + data[end:])
    for length in range(0, len(data), 7):
        assert not stands_alone(data[:length])


def test_marks_of_one_picture_do_not_reach_the_next(tmp_path: Path) -> None:
    """Files that a decoder would carry something over from, or lacks something of, change no other picture."""
    data = encoded("JPEG")
    path = written(tmp_path, data)
    want = outcome(path)
    tables = [(begin, end) for code, begin, end in jpeg_segments(data) if code in (0xDB, 0xC4)]
    others = [encoded("JPEG", comment=text) for text in (b"CS=ITU601", b"AVID", b"Metasoft MJPEG Codec")]
    others += [data[:2] + b"\xff\xe0\0\x10AVI1" + bytes(10) + data[2:], data[:-2] + b"\xff\xfe\0\x0bCS=ITU601\xff\xd9"]
    others += [data[:begin] + data[end:] for begin, end in tables]
    before = {other: afresh(written(tmp_path, other)) for other in others}
    for other in others:
        assert outcome(written(tmp_path, data)) == want
        assert outcome(written(tmp_path, other)) == before[other]
        assert outcome(written(tmp_path, data)) == want


def peak_bytes(*, anew: bool = False) -> int:
    """The most memory that this process has had, or has from now on."""
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # since it began; in bytes on macOS
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    (line,) = (each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


MUTATED: dict[str, Callable[[], bytes]] = {
    "jpeg": lambda: turned(painting(), "JPEG", 6, quality=80),
    "jpeg_progressive": lambda: encoded("JPEG", progressive=True, subsampling=0),
    "jpeg_cmyk": lambda: inks(2),
    "png": lambda: turned(painting("RGBA"), "PNG", 5),
    "png_palette": lambda: encoded("PNG", "P"),
    "webp": lambda: turned(painting("RGBA"), "WEBP", 8),
    "webp_lossless": lambda: encoded("WEBP", lossless=True),
    "bmp": lambda: encoded("BMP", "RGBA"),
    "bmp_runs": lambda: KINDS["bmp_runs"][0](),
}


@pytest.mark.parametrize("kind", MUTATED)
def test_mutated_pictures(kind: str, tmp_path: Path) -> None:
    """Whatever became of a file's header and body, it is a picture or a typed error, in a tenth of a second of CPU.

    It takes less than 200 MB, and the outcome is the same by a kept decoder as by a new one.
    """
    data, draws = MUTATED[kind](), np.random.default_rng(len(kind))
    good = tmp_path / "good"
    good.write_bytes(encoded("JPEG", quality=70))
    outcome(good)
    slowest, before = 0.0, peak_bytes(anew=True)
    for _ in range(125):
        changed = bytearray(data)
        for _ in range(int(draws.integers(1, 9))):
            # Half of the changes are in what may be the header.
            at = int(draws.integers(0, min(len(data), 700) if draws.random() < 0.5 else len(data)))
            changed[at] = int(draws.choice([0, 1, 0x7F, 0x80, 0xFF, int(draws.integers(256))]))
        if draws.random() < 0.2:
            at = int(draws.integers(0, len(data)))
            changed[at:at] = draws.bytes(int(draws.integers(1, 30)))
        path = written(tmp_path, bytes(changed))
        outcome(good)
        begun = time.thread_time()
        found = outcome(path)
        slowest = max(slowest, time.thread_time() - begun)
        assert afresh(path) == found
    assert slowest < 0.1
    assert peak_bytes() - before < 200 * 10**6
