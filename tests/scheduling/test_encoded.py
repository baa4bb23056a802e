"""Pictures packed in groups: clips made from them are those made from the video; nothing wrong is ever published."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import viewcache
from tests import forked
from tests.clips import FAMILIES, encode, encode_family, real_clips
from tests.tiny import config, pixels, same, sql
from viewcache.api.audit.verify import verify
from viewcache.api.config.find import Located
from viewcache.api.session.cache import Cache
from viewcache.catalog.kinds import ObjectKind
from viewcache.errors import Broken
from viewcache.materializer.media import lossless
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.media.lossless import DELTAS, H264, Pictures, decoder, takes
from viewcache.materializer.media.probe import probe
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.ladder import trial_rows
from viewcache.materializer.planning.program import Program
from viewcache.materializer.planning.recipe import GROUP, Intermediate, Recipe
from viewcache.materializer.planning.size import clip_bound
from viewcache.materializer.retention import kept_objects
from viewcache.materializer.retention.intermediates import intermediate_recipe, picture_order
from viewcache.materializer.storage.codecs import rates
from viewcache.materializer.workers.encoding import Encoding, try_pictures
from viewcache.materializer.workers.job import FolderTarget, Job, Made, Report
from viewcache.materializer.workers.make import make
from viewcache.store import find_written, read_group, read_into, split_packets
from viewcache.store.codec_trial import Trial

CODECS = [*DELTAS, H264]
DELTA = "delta-zstd1"
VIDEO = "cd" * 16
EPOCHS = 4


def smooth(folder: Path, count: int = 3, frames: int = 40) -> Path:
    """Videos of a slowly moving gradient: packed, their pictures take a part of their pixels."""
    folder.mkdir(parents=True, exist_ok=True)
    y, x = np.mgrid[:48, :64]
    for number in range(count):
        source = [np.stack([x * 3 + k, y * 4 + number * 9, x + y + 2 * k], 2).astype(np.uint8) for k in range(frames)]
        encode(folder / f"v{number}.mp4", frames=frames, size=(64, 48), gop=8, source=source)
    return folder


# Jobs -----------------------------------------------------------------------------------------------------------------


def run(job: Job) -> tuple[dict[str, Made], Report]:
    """All that a job makes."""
    *made, report = make(job, lambda: False)
    assert isinstance(report, Report)
    return {each.key: each for each in made if isinstance(each, Made)}, report


class Video:
    """A video and the recipes of what is made of it."""

    def __init__(self, path: Path, root: Path) -> None:
        self.path, self.root = path, root
        self.index: VideoIndex = probe(str(path))
        (root / "objects").mkdir(parents=True, exist_ok=True)

    def job(self, *recipes: Recipe, given: tuple[Intermediate, ...] = (), uri: str | None = None) -> Job:
        target = FolderTarget(str(self.root), durable=False)
        data = self.index.to_bytes()
        return Job(1, uri or str(self.path), "v", VIDEO, data, recipes, target, intermediates=given)

    def kept(self, codec: str, native: bool, frames: np.ndarray, key: str) -> Recipe:
        """Frames as decoded, or resized."""
        if native:
            recipe = intermediate_recipe(VIDEO, None, frames, self.index, codec)
        else:
            clip = self.clip(frames, key)
            instruction, row = clip.program.instructions[0], clip.row.tobytes()
            recipe = intermediate_recipe(VIDEO, ((instruction,), row), frames, self.index, codec)
        return replace(recipe, key=key)

    def clip(self, frames: np.ndarray, key: str) -> Recipe:
        """A clip of these frames after a resize to an odd size."""
        return Recipe(key, RESIZE, SIZE, frames, (len(frames), 3, *SIZE.tolist()), 0, 10**9)


def pixels_of(video: Video, made: Made) -> Any:
    """The bytes of an object that holds pixels."""
    out = np.empty(made.stored.shape, np.uint8)
    read_into(str(video.root), made.stored, out)
    return out


def unpacked(video: Video, made: Made, native: bool) -> Any:
    """The pictures of an object in groups, by the store's and the codec's own doors."""
    stored = made.stored
    index = video.index
    kind = Pictures(index.pix_fmt, index.width, index.height) if native else Pictures("rgb", SIZE[1], SIZE[0])
    unpacker = decoder(stored.codec, kind)
    read = partial(read_into, str(video.root))
    found = []
    for chunk in range(len(stored.table.offsets)):
        found += [each.copy() for each in unpacker.group(split_packets(read_group(read, stored, chunk)))]
    return np.array(found).reshape(stored.shape)


@pytest.fixture(scope="module", autouse=True)
def _program(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A program of one resize, as a cache plans it."""
    global RESIZE, SIZE
    folder = smooth(tmp_path_factory.mktemp("program"), 1)
    step = [
        {"branch_type": "single", "inputs": ["frame"], "outputs": ["a"], "config": [{"resize": {"shape": [45, 61]}}]}
    ]
    with viewcache.open(config(tmp_path_factory.mktemp("s"), folder, augmentation=step, drop_last=False)) as cache:
        recipe = cache.task("train").task.generation(0).recipe(0)
    RESIZE, SIZE = recipe.program, recipe.row


RESIZE, SIZE = Program(()), np.zeros(0, np.int32)


def check_clips_are_the_same(video: Video, native: bool, codec: str, count: int = 21) -> None:
    """Make a clip from the video and from its kept pictures, the video being gone; and look at the pictures."""
    last = video.index.frames - 1
    frames = picture_order(np.arange(min(last + 1, count), dtype=np.int32), 2)
    clip = np.clip(np.arange(1, 16, 2, dtype=np.int32), 0, min(last, count - 1))
    kept, plain = video.kept(codec, native, frames, "aa" * 16), video.kept("raw", native, frames, "bb" * 16)
    made, report = run(video.job(kept, plain, video.clip(clip, "cc" * 16)))
    assert not report.error
    assert (report.failed, report.unpacked) == ({}, {})
    stored = made[kept.key].stored
    if stored.codec == codec:
        assert np.array_equal(unpacked(video, made[kept.key], native), pixels_of(video, made[plain.key]))
    else:  # it would have taken more room than its pixels
        assert np.array_equal(pixels_of(video, made[kept.key]), pixels_of(video, made[plain.key]))
    given = Intermediate(kept.key, stored, kept.frames, kept.program, kept.row)
    again, report = run(video.job(video.clip(clip, "dd" * 16), given=(given,), uri="/gone"))
    assert not report.error
    assert not report.damaged
    assert report.frames["loaded"] == len(set(clip.tolist()))
    assert np.array_equal(pixels_of(video, again["dd" * 16]), pixels_of(video, made["cc" * 16]))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", list(FAMILIES))
def test_clips_of_every_kind_of_video_are_the_same(tmp_path: Path, name: str, codec: str) -> None:
    """Law 3, for native planes where these are kept, and for resized pictures."""
    video = Video(encode_family(tmp_path, name), tmp_path / "store")
    native = Pictures(video.index.pix_fmt, video.index.width, video.index.height)
    if takes(codec, native):
        check_clips_are_the_same(video, True, codec)
    else:
        assert codec == H264
    check_clips_are_the_same(replace_store(video, tmp_path / "resized"), False, codec)


def replace_store(video: Video, root: Path) -> Video:
    """The same video with another store."""
    return Video(video.path, root)


@pytest.mark.parametrize("codec", [DELTA, H264])
@pytest.mark.parametrize("path", real_clips("train", "edge"), ids=lambda path: path.name)
def test_clips_of_real_videos_are_the_same(tmp_path: Path, path: Path, codec: str) -> None:
    """Law 3 on all real clips: the packed pictures are much smaller, and give the same clips."""
    count = 5 if "truncated" in path.name else 21  # of that one, no more can be decoded
    for native in (True, False):
        check_clips_are_the_same(Video(path, tmp_path / str(native)), native, codec, count)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 2, GROUP, GROUP + 1])
def test_few_frames(tmp_path: Path, codec: str, count: int) -> None:
    """An object of one picture, of two, of a whole group and of one more."""
    video = Video(smooth(tmp_path / "v", 1) / "v0.mp4", tmp_path / "store")
    kept = video.kept(codec, True, np.arange(count, dtype=np.int32), "aa" * 16)
    made, report = run(video.job(kept))
    assert not report.error
    plain, _ = run(video.job(replace(kept, codec="raw", key="bb" * 16)))
    assert made[kept.key].stored.codec == codec
    assert np.array_equal(unpacked(video, made[kept.key], True), pixels_of(video, plain["bb" * 16]))


def test_any_zarr_client_finds_the_encoder_in_the_attributes(tmp_path: Path) -> None:
    """Codec, encoder and version, group, picture format and frame numbers; the packets play in any decoder."""
    video = Video(smooth(tmp_path / "v", 1) / "v0.mp4", tmp_path / "store")
    frames = picture_order(np.arange(20, dtype=np.int32), 2)
    made, _ = run(video.job(video.kept(H264, True, frames, "aa" * 16)))
    array = zarr.open_array(f"{video.root}/{made['aa' * 16].written.physical}", mode="r")
    about = dict(array.attrs)
    assert about["frames"] == frames.tolist()
    encoded = about["encoded"]
    assert isinstance(encoded, dict)
    assert (encoded["codec"], encoded["group"], encoded["pix_fmt"]) == ("h264", GROUP, "yuv420p")
    assert str(encoded["encoder"]).startswith("libx264 core")
    first = bytes(split_packets(np.asarray(array[0]).reshape(-1))[0])
    assert first[:5] == b"\0\0\0\1\x67", "an Annex B stream that begins with its parameter sets"


# What goes wrong ------------------------------------------------------------------------------------------------------


def made_instead(video: Video, codec: str) -> tuple[Report, Any]:
    """What a job stores that was to pack pictures: they must be right, and pixels."""
    kept = video.kept(codec, False, np.arange(20, dtype=np.int32), "aa" * 16)
    plain = replace(kept, codec="raw", key="bb" * 16)
    made, report = run(video.job(kept, plain))
    assert not report.error
    assert made[kept.key].written.codec == "zstd1"
    assert np.array_equal(pixels_of(video, made[kept.key]), pixels_of(video, made[plain.key]))
    return report, made[kept.key]


def test_a_missing_encoder_costs_room_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FFmpeg without libx264: pixels are stored, and the report says why."""
    video = Video(smooth(tmp_path / "v", 1) / "v0.mp4", tmp_path / "store")

    def missing(*_: object) -> frozenset[str]:
        raise Broken("FFmpeg was built without libx264")

    monkeypatch.setattr(lossless, "h264_encoder_formats", missing)
    lossless.available.cache_clear()
    try:
        report, _ = made_instead(video, H264)
    finally:
        lossless.available.cache_clear()
    assert "libx264, which is not there" in report.unpacked["aa" * 16]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("group", [0, 1])
def test_an_encoder_that_gives_other_pixels_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, group: int
) -> None:
    """One pixel off, in the first group or a later one: what was packed is unpacked again, and pixels are stored."""
    video = Video(smooth(tmp_path / "v", 1) / "v0.mp4", tmp_path / "store")
    kind = lossless.H264Encoder if codec == H264 else lossless.DeltaEncoder
    honest, calls = kind.group, 0

    def off_by_one(self: Any, pictures: Any) -> list[bytes]:
        nonlocal calls
        calls += 1
        if calls == group + 1:
            pictures = pictures.copy()
            pictures[-1, 7] ^= 1
        return honest(self, pictures)

    monkeypatch.setattr(kind, "group", off_by_one)
    report, _ = made_instead(video, codec)
    assert "other pixels" in report.unpacked["aa" * 16]


@pytest.mark.parametrize("answer", ["fails", "too few"])
def test_an_encoder_that_fails_costs_room_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """In the middle of an object; so does one that swallows a picture."""
    video = Video(smooth(tmp_path / "v", 1) / "v0.mp4", tmp_path / "store")
    honest, calls = lossless.H264Encoder.group, 0

    def failing(self: Any, pictures: Any) -> list[bytes]:
        nonlocal calls
        calls += 1
        if calls < 2:
            return honest(self, pictures)
        if answer == "fails":
            raise Broken("the encoder is out of order")
        return honest(self, pictures)[:-1]

    monkeypatch.setattr(lossless.H264Encoder, "group", failing)
    report, _ = made_instead(video, H264)
    assert report.unpacked


def test_what_gets_no_smaller_is_stored_as_pixels(tmp_path: Path) -> None:
    """Pictures like stamps take more room as H.264 than as pixels: no complaint, and the room that was reserved."""
    video = Video(smooth(tmp_path / "v", 1) / "v0.mp4", tmp_path / "store")
    size = np.array([4, 4], np.int32)
    bound = clip_bound(9 * 3 * 4 * 4, 9)
    recipe = Recipe("ee" * 16, RESIZE, size, np.arange(9, dtype=np.int32), (9, 3, 4, 4), 0, bound)
    made, report = run(video.job(replace(recipe, codec=H264, kind=ObjectKind.AUG)))
    assert (report.error, report.unpacked) == ("", {})
    assert made[recipe.key].written.codec == "zstd1"
    assert made[recipe.key].written.bytes <= recipe.bound
    less = replace(recipe, codec=H264, kind=ObjectKind.AUG, key="ff" * 16, bound=bound // 2)
    made, report = run(video.job(less))
    assert not made, "nothing is written that is larger than was promised"
    assert "more room than was promised" in report.failed[less.key]


@pytest.mark.parametrize("codec", CODECS)
def test_a_damaged_group_is_decoded_again(tmp_path: Path, codec: str) -> None:
    """Flipped in the second group: the clip is the same, made from the video, and the object is named (law 5)."""
    video = Video(smooth(tmp_path / "v", 1) / "v0.mp4", tmp_path / "store")
    frames = np.arange(24, dtype=np.int32)
    kept = video.kept(codec, False, frames, "aa" * 16)
    made, _ = run(video.job(kept, video.clip(np.arange(6, 14, dtype=np.int32), "cc" * 16)))
    stored = made[kept.key].stored
    shard = next(Path(video.root, stored.physical).glob("c.*"))
    data = bytearray(shard.read_bytes())
    data[stored.table.offsets[1] + 20] ^= 4
    shard.write_bytes(data)
    given = Intermediate(kept.key, stored, kept.frames, kept.program, kept.row)
    again, report = run(video.job(video.clip(np.arange(6, 14, dtype=np.int32), "dd" * 16), given=(given,)))
    assert report.damaged == (kept.key,)
    assert report.frames["loaded"] == 2
    assert np.array_equal(pixels_of(video, again["dd" * 16]), pixels_of(video, made["cc" * 16]))


# Which pictures are unpacked ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_each_group_is_unpacked_once_and_only_as_far_as_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    """Two clips of stride 2 that share groups and are due one after another: no picture is unpacked twice."""
    video = Video(smooth(tmp_path / "v", 1) / "v0.mp4", tmp_path / "store")
    frames = picture_order(np.arange(40, dtype=np.int32), 2)
    made, _ = run(video.job(video.kept(codec, False, frames, "aa" * 16)))
    given = Intermediate("aa" * 16, made["aa" * 16].stored, frames, RESIZE, SIZE)
    kind: Any = lossless.H264Decoder if codec == H264 else lossless.DeltaDecoder
    honest: Callable[..., Iterator[Any]] = kind.group
    count = groups = 0

    def counting(self: Any, packets: Any) -> Iterator[Any]:
        nonlocal count, groups
        groups += 1
        for each in honest(self, packets):
            count += 1
            yield each

    monkeypatch.setattr(kind, "group", counting)
    first = replace(video.clip(np.arange(2, 18, 2, dtype=np.int32), "cc" * 16), due=0)
    second = replace(video.clip(np.arange(10, 26, 2, dtype=np.int32), "dd" * 16), due=1)
    _, report = run(video.job(first, second, given=(given,), uri="/gone"))
    assert not report.error
    # Even frames lie at rows 0 to 19: rows 1 to 12 are needed, of two groups.
    assert (groups, count) == (2, 13)


def test_pictures_of_a_video_may_lie_in_several_objects(tmp_path: Path) -> None:
    """A long video has one object behind the other, packed or not: each frame is found in its own."""
    video = Video(smooth(tmp_path / "v", 1) / "v0.mp4", tmp_path / "store")
    frames = np.arange(40, dtype=np.int32)
    parts = [(H264, frames[:15], "aa" * 16), ("lz4", frames[15:20], "bb" * 16), (DELTA, frames[22:], "ee" * 16)]
    kept = [video.kept(codec, False, picture_order(part, 2), key) for codec, part, key in parts]
    clip = np.array([30, 3, 16, 21, 14, 39, 3], np.int32)
    made, report = run(video.job(*kept, video.clip(clip, "cc" * 16)))
    assert not report.error
    given = tuple(Intermediate(each.key, made[each.key].stored, each.frames, RESIZE, SIZE) for each in kept)
    again, report = run(video.job(video.clip(clip, "dd" * 16), given=given))
    assert (report.error, report.damaged) == ("", ())
    assert (report.frames["loaded"], report.frames["wanted"]) == (5, 1), "frame 21 is kept nowhere"
    assert np.array_equal(pixels_of(video, again["dd" * 16]), pixels_of(video, made["cc" * 16]))


@pytest.mark.parametrize(("stride", "wanted"), [(1, [3, 4, 5, 6, 7]), (2, [4, 6, 3, 5, 7]), (3, [3, 6, 4, 7, 5])])
def test_pictures_are_ordered_by_the_clips_stride(stride: int, wanted: list[int]) -> None:
    """All frames of one class of the stride follow one another; nothing is lost."""
    assert picture_order(np.arange(3, 8, dtype=np.int32), stride).tolist() == wanted


# Measurements ---------------------------------------------------------------------------------------------------------


def test_packing_is_measured_while_it_is_done(tmp_path: Path) -> None:
    """Each packed object tells what packing, unpacking and its bytes are; a trial tells it of pictures that are not."""
    video = Video(smooth(tmp_path / "v", 1) / "v0.mp4", tmp_path / "store")
    kept = video.kept(H264, False, np.arange(16, dtype=np.int32), "aa" * 16)
    _, report = run(video.job(kept))
    (trial,) = report.trials
    assert (trial.codec, trial.chunk_bytes, trial.raw_bytes) == (H264, 45 * 61 * 3, 16 * 45 * 61 * 3)
    assert trial.packed_bytes < trial.raw_bytes / 2
    assert min(trial.pack_s, trial.unpack_s or 0.0) > 0
    _, report = run(replace(video.job(replace(kept, codec="lz4", key="bb" * 16)), trial=True))
    assert {each.codec for each in report.trials} == {"lz4", "zstd1", *CODECS}
    _, report = run(replace(video.job(video.clip(np.arange(8, dtype=np.int32), "cc" * 16)), trial=True))
    assert {each.codec for each in report.trials} == {"lz4", "zstd1", *CODECS}


def test_clips_and_audio_are_offered_codecs_of_pixels_only() -> None:
    """What was measured of groups of pictures chooses no codec of anything else."""
    tried = [Trial(H264, 1 << 16, 1000, 200, 0.1, 0.2), Trial("zstd1", 1 << 16, 1000, 500, 0.1, 0.1)]
    assert set(rates(trial_rows(tried), "local", 1 << 16)) == {"raw", "zstd1"}


def test_a_single_picture_says_nothing() -> None:
    """A trial of packing in groups needs a run of pictures."""
    assert try_pictures(Pictures("rgb", 8, 8), np.zeros((1, 3, 8, 8), np.uint8)) == ()


def test_pictures_come_in_any_order(tmp_path: Path) -> None:
    """Decoders give the most urgent frames first: the object is the same."""
    video = Video(smooth(tmp_path / "v", 1) / "v0.mp4", tmp_path / "store")
    recipe = video.kept(DELTA, False, np.arange(19, dtype=np.int32), "aa" * 16)
    rng = np.random.default_rng(0)
    array = rng.integers(0, 2, recipe.shape, np.uint8)
    parts = []
    for order in (np.arange(19), rng.permutation(19)):
        encoding = Encoding(recipe, video.index)
        for place in order.tolist():
            encoding.put(place, array[place])
        packed = encoding.finished({})
        assert packed is not None
        parts.append([bytes(part) for part in packed.parts])
    assert parts[0] == parts[1]


# Whole caches ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four smooth videos."""
    return smooth(tmp_path_factory.mktemp("smooth"), 4)


def cache_of(store: Path, videos: Path, budget: int) -> dict[str, Any]:
    """A task of four epochs in one generation."""
    settings = {"budget": budget, "epochs_per_generation": EPOCHS}
    return config(store, videos, cache=settings, sampling={"samples_per_video": 3}, epochs=EPOCHS)


LITTLE = 700_000


@pytest.fixture
def packing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Let a kind of picture be kept, packed in a way."""

    def choose(way: str, codec: str) -> None:
        rates = {"frames": (1e-5, 1e-12), "aug": (1e-5, 1e-6)}[way]
        cost = CostModel(decode_s_per_pixel=rates[0], convert_s_per_pixel=rates[1])
        monkeypatch.setattr(CostModel, "measured", classmethod(lambda *_: cost))
        monkeypatch.setattr(kept_objects, "intermediate_recipe", partial(packed_recipe, codec))

    return choose


def packed_recipe(codec: str, video: str, how: Any, frames: Any, index: Any, *_: Any, **__: Any) -> Recipe:
    return intermediate_recipe(video, how, picture_order(frames, 2), index, codec)


def packed_copies(cache: Cache) -> set[object]:
    """Codecs of the copies of kept pictures, as a person asks for them."""
    text = "select copies.codec from copies join objects using (object_id) where objects.kind in ('frames', 'aug')"
    return {codec for (codec,) in sql(cache, text)}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("way", ["frames", "aug"])
def test_a_cache_with_packed_pictures_reads_the_same(
    tmp_path: Path,
    videos: Path,
    packing: Callable[[str, str], None],
    caplog: pytest.LogCaptureFixture,
    way: str,
    codec: str,
) -> None:
    """Law 3 and law 7; the catalog names the codec, the next start reads on, verify finds nothing wrong."""
    with viewcache.open(cache_of(tmp_path / "plenty", videos, 10**8)) as cache:
        plenty = pixels(cache)
    packing(way, codec)
    with viewcache.open(cache_of(tmp_path / "little", videos, LITTLE)) as cache:
        got = {(0, 0): cache.read("train", 0, 0)}
        cache.owner.look_ahead.wait_idle()
        assert cache.owner.dispatcher is not None
        assert cache.owner.dispatcher.wait_idle(60)
        assert codec in packed_copies(cache)
        kept = sql(cache, f"select object_id, frame from frames where kind = '{way}' and ready order by 1, ordinal")
        for number in {number for number, _ in kept}:
            frames = np.array([frame for each, frame in kept if each == number], np.int32)
            assert np.array_equal(np.sort(frames), np.unique(frames))
    assert verify(Located(str(tmp_path / "little"), str(tmp_path / "little"))).damaged == ()
    with viewcache.open(cache_of(tmp_path / "little", videos, LITTLE)) as cache:
        for place in plenty:
            got[place] = cache.read("train", *place)
            assert cache.tier.used_bytes + cache.tier.reserved_bytes <= cache.tier.budget_bytes
        assert same(got, plenty)
    assert verify(Located(str(tmp_path / "little"), str(tmp_path / "little"))).damaged == ()
    assert "rebuilding" not in caplog.text, "what was kept is read after the restart"


def test_a_lost_catalog_is_rebuilt_with_packed_pictures(
    tmp_path: Path, videos: Path, packing: Callable[[str, str], None]
) -> None:
    """Objects describe themselves: after the catalog is gone they are adopted, with their codec and frames."""
    packing("aug", H264)
    store = tmp_path / "little"
    with viewcache.open(cache_of(store, videos, LITTLE)) as cache:
        cache.read("train", 0, 0)
        cache.owner.look_ahead.wait_idle()
        assert cache.owner.dispatcher is not None
        assert cache.owner.dispatcher.wait_idle(60)
        before = sql(cache, _ROWS)
        assert before
    for path in store.glob("catalog*"):
        path.unlink()
    with viewcache.open(cache_of(store, videos, LITTLE)) as cache:
        assert sql(cache, _ROWS) == before


_ROWS = """select o.key, o.kind, o.shape, c.codec, c.chunk_rows, c.bytes
from copies c join objects o using (object_id) where c.codec = 'h264' order by 1"""

CHILD = """
import json, os, signal, sys
from functools import partial
import viewcache
from tests.scheduling.test_encoded import packed_recipe
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.retention import kept_objects
cost = CostModel(decode_s_per_pixel=1e-5, convert_s_per_pixel=1e-6)
CostModel.measured = classmethod(lambda *_: cost)
kept_objects.intermediate_recipe = partial(packed_recipe, "h264")
with viewcache.open(json.loads(sys.argv[1])) as cache:
    print("open", flush=True)
    for epoch in range(4):
        for iteration in range(2):
            cache.read("train", epoch, iteration)
            print("read", flush=True)
"""


@pytest.mark.parametrize("lines", [1, 2])
def test_kill_while_packing(tmp_path: Path, videos: Path, lines: int) -> None:
    """Killed while pictures are packed: the next run reads the same batches, and nothing torn lies there (law 8)."""
    with viewcache.open(cache_of(tmp_path / "plenty", videos, 10**8)) as cache:
        plenty = pixels(cache)
    described = cache_of(tmp_path / "little", videos, LITTLE)
    root = Path(__file__).resolve().parents[2]
    child = forked.Popen(
        [sys.executable, "-c", CHILD, json.dumps(described)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    assert child.stdout is not None
    for _ in range(lines):
        assert child.stdout.readline()
    os.kill(child.pid, signal.SIGKILL)
    child.communicate(timeout=60)
    with viewcache.open(described) as cache:
        assert same(pixels(cache), plenty)
        for physical, _ in cache.tier.iter_objects():
            cache.tier.verify(physical)
    for key in [physical.rpartition("/")[2] for physical, _ in cache.tier.iter_objects()]:
        assert find_written(str(tmp_path / "little"), key) is not None


def test_why_pictures_are_not_packed_is_told_once(
    tmp_path: Path,
    videos: Path,
    packing: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of four videos one line in the log and one row among the errors; the batches are the same."""
    packing("aug", H264)
    monkeypatch.setattr(lossless, "available", lambda: frozenset[str]())
    described: Any = cache_of(tmp_path / "little", videos, LITTLE)
    described["cache"]["worker_kind"] = "threads"
    with viewcache.open(described) as cache:
        pixels(cache)
        told = sql(cache, "select message from errors where message like '%libx264, which is not there%'")
    assert len(told) == 1
    assert caplog.text.count("libx264, which is not there") == 1
