"""Loss that a task allows: a path has one meaning, cold or warm, kept or not; every picture has what was promised."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import zarr

import viewcache
from tests.clips import FAMILIES, encode, encode_family, real_clips
from tests.tiny import config, make_decoding_dear, pixels, same, single, sql
from viewcache.api.audit.verify import verify
from viewcache.api.config.find import Located
from viewcache.api.session.cache import Cache
from viewcache.errors import BadInput, BadVideo, Broken, ConfigError
from viewcache.materializer.media import h264
from viewcache.materializer.media.decode import decode
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.media.loss import GROUP, LOSSY, Loss
from viewcache.materializer.media.lossy import LossyDecoder, encoder_version, luma_psnr_db
from viewcache.materializer.media.lossy import encode as encode_group
from viewcache.materializer.media.pixels import to_rgb
from viewcache.materializer.media.probe import probe
from viewcache.materializer.ops.lossy import lossy_params
from viewcache.store import split_packets

EPOCHS = 8
RESIZE = {"resize": {"shape": [37, 51]}}
STEPS = [single(RESIZE, {"random_crop": {"shape": [32, 32]}}, {"flip": {"flip_prob": 0.5}})]
QUALITY = {"quality": "45dB"}
PLENTY, LITTLE = 50_000_000, 500_000


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four videos, one with fewer frames than a group, one that ends in the middle of one."""
    folder = tmp_path_factory.mktemp("loss")
    y, x = np.mgrid[:48, :64]
    for number, frames in enumerate((40, 43, 48, 7)):
        source = [
            np.stack([x * 3 + k, y * 4 + number * 9, (x * y) // 9 + 2 * k], 2).astype(np.uint8) for k in range(frames)
        ]
        encode(folder / f"v{number}.mp4", frames=frames, size=(64, 48), gop=5, source=source)
    return folder


def settings(store: Path, videos: Path, loss: Mapping[str, object] | None = None, **given: Any) -> dict[str, Any]:
    """A task that allows some loss."""
    cache = {"epochs_per_generation": 2, "budget": PLENTY, **given.pop("cache", {})}
    given = {"epochs": EPOCHS, "augmentation": STEPS, "intermediate": dict(loss or QUALITY), **given}
    return config(store, videos, cache=cache, **given)


def settled(cache: Cache, task: str = "train", epochs: range = range(EPOCHS)) -> dict[tuple[int, int], Any]:
    """Every batch, each made ahead as far as there is room."""
    found = {}
    for epoch in epochs:
        for iteration in range(cache.task(task).iterations(epoch)):
            found[epoch, iteration] = cache.read(task, epoch, iteration)
        cache.owner.look_ahead.wait_idle()
        assert cache.owner.dispatcher is not None
        assert cache.owner.dispatcher.wait_idle(60)
        assert cache.tier.used_bytes + cache.tier.reserved_bytes <= cache.tier.budget_bytes
    return found


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, videos: Path) -> dict[tuple[int, int], Any]:
    """Every batch, of a cache that keeps all clips of a generation and nothing behind it."""
    cache = {"keep": "leaves"}
    with viewcache.open(settings(tmp_path_factory.mktemp("plenty"), videos, cache=cache)) as opened:
        return pixels(opened)


def lossy_objects(cache: Cache) -> list[tuple[object, ...]]:
    """Which objects hold packets, and where."""
    return sql(
        cache,
        "select key, physical from objects join copies using (object_id) "
        f"where copies.codec = '{LOSSY}' and state = 'ready'",
    )


# What a path means ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [QUALITY, {"codec": "h264", "crf": 18}], ids=["quality", "crf"])
def test_a_clip_is_made_of_its_groups(tmp_path: Path, videos: Path, loss: dict[str, Any]) -> None:
    """The bytes are those of decoding, resizing, encoding each eight frames and decoding them, by hand."""
    allowed = Loss(loss.get("crf"), 45.0 if "quality" in loss else None)
    with viewcache.open(settings(tmp_path, videos, loss, augmentation=[single(RESIZE)], epochs=1)) as cache:
        for batch in pixels(cache).values():
            for name, frames, clip in zip(batch.videos, batch.frame, batch.video, strict=True):
                uri = str(videos / f"{name}.mp4")
                index = probe(uri)
                exact = {n: to_rgb(f, 37, 51) for n, f in decode(uri, index, np.arange(index.frames))}
                for number, picture in zip(frames.tolist(), clip, strict=True):
                    order = [*range(0, index.frames, 2), *range(1, index.frames, 2)]  # by the stride of the clips
                    first = order.index(number) // GROUP * GROUP
                    together = order[first : first + GROUP]
                    made = encode_group(np.stack([exact[n] for n in together]), allowed)
                    assert np.array_equal(picture, made.pictures[together.index(number)])


def test_same_bytes_whatever_is_kept(tmp_path: Path, videos: Path, expected: Any) -> None:
    """Law 3: with packets that last, a restart in the middle, and the other codecs of the ladder."""
    for number, cache in enumerate(({"budget": LITTLE}, {}, {"budget": 2_000_000, "keep": "sand"})):
        with viewcache.open(settings(tmp_path / str(number), videos, cache=cache)) as opened:
            assert same(settled(opened), expected), cache


def test_same_bytes_alone_and_in_any_order(tmp_path: Path, videos: Path, expected: Any) -> None:
    """A batch of a late epoch that is read first, in a cache of its own, has the same bytes."""
    for place in list(expected)[:: len(expected) // 3]:
        with viewcache.open(settings(tmp_path / "-".join(map(str, place)), videos)) as cache:
            assert np.array_equal(cache.read("train", *place).video, expected[place].video)


def test_packets_last_and_are_found_again(
    tmp_path: Path, videos: Path, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first generations nothing is decoded, in the next process neither."""
    make_decoding_dear(monkeypatch)
    with viewcache.open(settings(tmp_path, videos, cache={"budget": 650_000})) as cache:
        found = settled(cache, epochs=range(EPOCHS - 3))
        assert lossy_objects(cache)
    with viewcache.open(settings(tmp_path, videos, cache={"budget": 650_000})) as cache:
        found |= settled(cache, epochs=range(EPOCHS - 3, EPOCHS))
        assert cache.owner.dispatcher is not None
        assert cache.owner.dispatcher.tally.frames["packets"] == 0
    assert same(found, expected)


def test_beside_a_task_that_allows_none(tmp_path: Path, videos: Path) -> None:
    """Two tasks over the same videos share their draws and their decode; each has its own pixels, whatever is kept."""

    def read(budget: int, *tasks: str) -> list[dict[tuple[int, int], Any]]:
        both = settings(tmp_path / str(budget), videos, cache={"budget": budget})
        exact = dict(both["dataset"], tag="exact")
        del exact["intermediate"]
        with viewcache.open(both | {"dataset": [both["dataset"], exact]}) as cache:
            return [settled(cache, task) for task in tasks]

    lossy, plain = read(PLENTY, "train", "exact")
    less_plain, less_lossy = read(2 * LITTLE, "exact", "train")
    assert same(less_lossy, lossy)
    assert same(less_plain, plain)


# What is promised -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quality_db", [32.0, 40.0, 45.0, 50.0])
def test_every_picture_has_its_quality(quality_db: float) -> None:
    """Of smooth pictures and of noise, of odd sizes, of one picture and of eight."""
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (GROUP, 37, 51, 3), np.uint8)
    soft = np.stack([cv2.GaussianBlur(each, (0, 0), 2) for each in noise])
    for pictures in (noise, soft, noise[:1], np.full_like(noise, 255)):
        planar = np.ascontiguousarray(pictures.transpose(0, 3, 1, 2))
        made = encode_group(planar, Loss(None, quality_db))
        assert (luma_psnr_db(made.pictures, planar) >= quality_db).all()
        decoded = [each.whole() for each in LossyDecoder(51, 37).group(made.packets)]
        assert np.array_equal(decoded, made.pictures)


def test_what_a_decibel_is() -> None:
    """The luma of BT.709, of all samples of a picture, against its definition in whole numbers."""
    rng = np.random.default_rng(1)
    exact = rng.integers(0, 256, (5, 3, 17, 23), np.uint8)
    made = exact.copy()
    made[1] = np.clip(made[1].astype(int) + rng.integers(-9, 10, made[1].shape), 0, 255)
    made[2], made[3] = 255 - made[2], 0
    made[4, 1, 16, 22] ^= 1
    for got, one, other in zip(luma_psnr_db(made, exact), made, exact, strict=True):
        change = one.astype(object) - other
        square = ((2126 * change[0] + 7152 * change[1] + 722 * change[2]) ** 2).sum()
        expected = 10 * math.log10(255**2 * 10_000**2 * 17 * 23 / square) if square else 99.0
        assert got == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("path", real_clips("train"), ids=lambda path: path.name[:12])
def test_real_clips_have_their_quality(path: Path) -> None:
    """A group in the middle of each real video, by its resized pictures."""
    index = probe(str(path))
    first = index.frames // 2 // GROUP * GROUP
    wanted = np.arange(first, min(first + GROUP, index.frames))
    exact = np.stack([to_rgb(frame, 128, 227) for _, frame in decode(str(path), index, wanted)])
    made = encode_group(exact, Loss(None, 45.0))
    assert (luma_psnr_db(made.pictures, exact) >= 45).all()
    assert sum(map(len, made.packets)) < exact.nbytes / 8


@pytest.mark.parametrize("quality_db", [40.0, 45.0, 48.0])
def test_a_second_try_suffices(monkeypatch: pytest.MonkeyPatch, quality_db: float) -> None:
    """A group in the middle of each real video is encoded twice at the most, every third only once."""
    from viewcache.materializer.media import lossy

    opened, tries = h264.open_h264_encoder, list[int]()

    def counted(*given: Any) -> Any:
        tries[-1] += 1
        return opened(*given)

    monkeypatch.setattr(lossy, "open_h264_encoder", counted)
    for path in real_clips("train"):
        index = probe(str(path))
        middle = index.frames // 2 + np.arange(0, 2 * GROUP, 2)
        exact = np.stack([to_rgb(frame, 256, 455) for _, frame in decode(str(path), index, middle)])
        tries.append(0)
        encode_group(exact, Loss(None, quality_db))
    assert max(tries) <= 2
    assert tries.count(1) * 3 >= len(tries)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_kind_of_video(tmp_path: Path, family: str) -> None:
    """Pixel formats, depths, ranges, odd sizes: behind the resize all are alike."""
    (tmp_path / "videos").mkdir()
    try:
        encode_family(tmp_path / "videos", family)
    except (ValueError, OSError) as missing:
        pytest.skip(f"FFmpeg cannot write {family}: {missing}")
    cache = {"budget": PLENTY}
    try:
        with viewcache.open(settings(tmp_path / "s", tmp_path / "videos", cache=cache, epochs=1)) as opened:
            found = pixels(opened)
    except BadInput as refused:
        pytest.skip(f"{family} is refused without loss too: {refused}")
    with viewcache.open(settings(tmp_path / "t", tmp_path / "videos", cache={"budget": LITTLE}, epochs=1)) as opened:
        assert same(pixels(opened), found)


def test_verify_tells_the_quality(tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By task, as it was measured when the pictures were encoded."""
    make_decoding_dear(monkeypatch)
    with viewcache.open(settings(tmp_path, videos, cache={"budget": LITTLE})) as cache:
        settled(cache)
    found = verify(Located(str(tmp_path), str(tmp_path)))
    assert not found.wrong
    (line,) = found.quality
    assert line.objects > 0
    assert 45 <= line.least_db <= line.mean_db
    assert line.asked == "quality 45 dB"


def test_packets_are_told_of(tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain zarr-python reads the bytes of a group, and its attributes say how to decode them."""
    make_decoding_dear(monkeypatch)
    with viewcache.open(settings(tmp_path, videos, cache={"budget": LITTLE})) as cache:
        settled(cache)
        (_, physical), *_ = lossy_objects(cache)
        array = zarr.open_array(str(tmp_path / str(physical)), mode="r")
    attributes: Any = array.attrs
    about = attributes["encoded"]
    assert about["codec"] == LOSSY
    assert about["encoder"] == encoder_version()
    assert about["quality_db"] == 45
    assert about["psnr_db"]["least"] >= 45
    group = np.ascontiguousarray(np.asarray(array[0])).reshape(-1)
    pictures = [each.whole() for each in LossyDecoder(51, 37).group(split_packets(group))]
    assert len(pictures) == min(GROUP, len(attributes["frames"]))


# What goes wrong ------------------------------------------------------------------------------------------------------


def test_damage_is_noticed_and_made_again(
    tmp_path: Path, videos: Path, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every object of packets is cut short in the middle of a training (law 5)."""
    make_decoding_dear(monkeypatch)
    with viewcache.open(settings(tmp_path, videos, cache={"budget": LITTLE})) as cache:
        found = {}
        for epoch in range(EPOCHS):
            if epoch == EPOCHS // 2:
                assert lossy_objects(cache)
                for _, physical in lossy_objects(cache):
                    (shard,) = Path(tmp_path, str(physical)).glob("c*")
                    os.truncate(shard, shard.stat().st_size // 2)
            for iteration in range(cache.task("train").iterations(epoch)):
                found[epoch, iteration] = cache.read("train", epoch, iteration)
            cache.owner.look_ahead.wait_idle()
            assert cache.owner.dispatcher is not None
            assert cache.owner.dispatcher.wait_idle(60)
        assert same(found, expected)


def test_a_broken_frame_takes_its_group_along(tmp_path: Path) -> None:
    """What is encoded together is lost together, and nothing else: the policy for bad videos has the rest."""
    folder = tmp_path / "videos"
    folder.mkdir()
    encode(folder / "good.mp4", frames=40, size=(64, 48), gop=5)
    encode(folder / "bad.mp4", frames=40, size=(64, 48), gop=5)
    _spoil(folder / "bad.mp4", packet=17)
    given: dict[str, Any] = {"augmentation": [single(RESIZE)], "epochs": 1, "sampling": {"samples_per_video": 6}}
    with viewcache.open(settings(tmp_path / "s", folder, **given, on_bad_video="replace")) as cache:
        (batch,) = pixels(cache).values()
        lost = sql(cache, "select count(*) from substitutions")
        assert sorted(set(batch.videos)) in (["bad", "good"], ["good"])
    shown = batch.frame[[name == "bad" for name in batch.videos]]
    # Packet 17 is of the group of pictures 15 to 19; with stride two, frames are encoded in groups of 16.
    assert not np.isin(shown, np.arange(17, 20)).any()
    assert lost != [(0,)] or len(shown) == 6


def _spoil(path: Path, packet: int) -> None:
    index: VideoIndex = probe(str(path))
    at, size = int(index.pos[packet]), int(index.size[packet])
    data = bytearray(path.read_bytes())
    data[at + 5 : at + size] = np.random.default_rng(0).bytes(size - 5)  # of others 1 in 20 decodes without a complaint
    path.write_bytes(data)


def test_the_encoder_is_missing(tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said when the configuration is read, with what to do."""
    monkeypatch.setattr(h264, "ENCODER", "nosuchencoder")
    encoder_version.cache_clear()
    try:
        with pytest.raises(ConfigError, match=r"nosuchencoder.*PyAV's own wheels") as refused:
            viewcache.open(settings(tmp_path, videos))
    finally:
        encoder_version.cache_clear()
    assert refused.value.code == "missing_encoder"


def test_an_encoder_that_fails_is_no_bad_video(
    tmp_path: Path, videos: Path, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads is told, and nobody else; no policy is asked, and once it works the path has what it always has."""
    failing = True
    works = h264.open_h264_encoder

    def encoder(*given: Any) -> Any:
        if failing:
            raise Broken("libx264 does not take 85x64 yuv444p: [Errno 12] Cannot allocate memory")
        return works(*given)

    given = settings(tmp_path, videos, cache={"worker_kind": "threads"}, on_bad_video="replace")
    exact = {key: value for key, value in given["dataset"].items() if key != "intermediate"} | {"tag": "exact"}
    encoder_version()  # asked when a configuration is read
    monkeypatch.setattr("viewcache.materializer.media.lossy.open_h264_encoder", encoder)
    both = settings(tmp_path / "both", videos, cache={"worker_kind": "threads"})
    with viewcache.open(both | {"dataset": [given["dataset"], exact]}) as cache:
        for _ in range(2):
            with pytest.raises(Broken, match=r"v\d\.mp4: .*Cannot allocate memory"):
                cache.read("train", 0, 0)
            for iteration in range(cache.task("exact").iterations(0)):
                cache.read("exact", 0, iteration)
        assert sql(cache, "select count(*) from substitutions") == [(0,)]
    with viewcache.open(given) as cache:
        with pytest.raises(Broken, match=r"v\d\.mp4: .*Cannot allocate memory"):
            cache.read("train", 0, 0)
        failing = False
        assert same(pixels(cache), expected)
        assert sql(cache, "select count(*) from substitutions") == [(0,)]


def test_an_encoder_that_gives_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot reach the quality at its best is an error, not a picture."""
    from viewcache.materializer.media import lossy

    monkeypatch.setattr(lossy, "luma_psnr_db", lambda made, _: np.full(len(made), 20.0))
    with pytest.raises(BadVideo, match=r"20\.0 dB at its best, not 45 dB"):
        encode_group(np.zeros((GROUP, 3, 16, 16), np.uint8), Loss(None, 45.0))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"intermediate": {}}, "give one of quality"),
        ({"intermediate": {"quality": "45dB", "crf": 18}}, "both are given"),
        ({"intermediate": {"quality": "45"}}, "decibels such as 45dB"),
        ({"intermediate": {"quality": "80dB"}}, "from 30 to 50"),
        ({"intermediate": {"crf": 60}}, "from 0 to 40"),
        ({"intermediate": {"codec": "av1", "crf": 18}}, "one of h264"),
        ({"augmentation": []}, "begin with one step of type single"),
        ({"augmentation": [single({"random_crop": {"shape": [32, 32]}})]}, "first operation is resize"),
        ({"augmentation": [single(RESIZE, {"lossy": {}})]}, "stands for dataset.intermediate"),
    ],
)
def test_what_is_refused(tmp_path: Path, videos: Path, given: dict[str, Any], said: str) -> None:
    """With the place and what to write."""
    with pytest.raises(ConfigError, match=said):
        viewcache.open(settings(tmp_path, videos) | {"dataset": settings(tmp_path, videos)["dataset"] | given})


def test_what_an_earlier_release_encoded_needs_another_tag(
    tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked for a quality among constant rate factors, which gives other pixels; a `crf` means what it meant."""
    from viewcache.api.config import intermediate

    def before(loss: Loss, encoder: str, stride: int) -> Any:
        return tuple(each for each in lossy_params(loss, encoder, stride) if each[0] != "rate_control")

    rated = {"codec": "h264", "crf": 18}
    with monkeypatch.context() as earlier:
        earlier.setattr(intermediate, "lossy_params", before)
        for name, loss in (("quality", QUALITY), ("crf", rated)):
            with viewcache.open(settings(tmp_path / name, videos, loss, epochs=1)) as cache:
                found = pixels(cache)
    with pytest.raises(BadInput, match=r"intermediate\.rate_control \(not set before, .cqp. now\)"):
        viewcache.open(settings(tmp_path / "quality", videos, epochs=1))
    with viewcache.open(settings(tmp_path / "crf", videos, rated, epochs=1)) as cache:
        assert same(pixels(cache), found)


def test_another_quality_needs_another_tag(tmp_path: Path, videos: Path) -> None:
    """Paths that were read mean what they meant: the key is named, and both values."""
    with viewcache.open(settings(tmp_path, videos)) as cache:
        cache.read("train", 0, 0)
    with pytest.raises(BadInput, match=r"intermediate\.quality.*45.*40"):
        viewcache.open(settings(tmp_path, videos, {"quality": "40dB"}))
    without = settings(tmp_path, videos)
    del without["dataset"]["intermediate"]
    with pytest.raises(BadInput, match="intermediate"):
        viewcache.open(without)
