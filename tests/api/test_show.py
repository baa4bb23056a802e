"""``cache.show``: the pixels of a picture are those of the batch, and its words are what was drawn for each clip."""

import io
import re
from collections.abc import Iterator
from operator import methodcaller
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from tests.catalog.samples import select
from tests.tiny import AUGMENTATION, encode_folder, open_cache, single
from viewcache.api.pictures.canvas import Row, sheet
from viewcache.api.pictures.picture import Picture
from viewcache.api.pictures.words import said
from viewcache.api.session.cache import Cache
from viewcache.errors import BadInput, Broken, ViewNotFound

NAMES = {"cats/a.mp4": 40, "cats/b.mp4": 44, "dogs/c.mp4": 48, "dogs/d.mp4": 30}

READ = single({"normalize": {"mean": [0.5, 0.5, 0.5], "std": [0.2, 0.2, 0.2]}}, of="a", into="b")


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four videos in two folders."""
    return encode_folder(tmp_path_factory.mktemp("show"), NAMES)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory, videos: Path) -> Iterator[Cache]:
    """Two videos a batch, two clips of four frames of each, 32x32; normalized when they are read."""
    store = tmp_path_factory.mktemp("store") / "cache"
    with open_cache(store, videos, labels="folders", augmentation=[*AUGMENTATION, READ]) as opened:
        opened.read("train", 0, 0)  # its threads start here, so that a test that starts others is noticed
        yield opened


def holds(sheet: np.ndarray, frame: np.ndarray) -> bool:
    """Whether a picture has a frame in it, (C,H,W), to the bit."""
    wanted = np.ascontiguousarray(frame.transpose(1, 2, 0))
    height, width = wanted.shape[:2]
    starts = np.argwhere((sheet[: -height + 1, : -width + 1] == wanted[0, 0]).all(-1))
    return any(np.array_equal(sheet[y : y + height, x : x + width], wanted) for y, x in starts)


def decoded(path: Path) -> list[np.ndarray]:
    """The pictures of a film."""
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def words(picture: Picture) -> list[dict[str, Any]]:
    """What a picture says of each clip."""
    clips = picture.facts["clips"]
    assert isinstance(clips, list)
    return clips


def test_a_sheet_has_the_frames_of_the_batch(cache: Cache) -> None:
    """Every frame of every clip is in it to the bit, as it is before it is normalized; columns choose evenly."""
    picture = cache.show("train", 0, 1)
    batch = cache.read("train", 0, 1)
    assert all(holds(picture.sheet, frame) for clip in batch.video for frame in clip)
    few = cache.show("train", 0, 1, columns=2)
    assert all(holds(few.sheet, clip[k]) for clip in batch.video for k in (0, 3))
    assert not any(holds(few.sheet, clip[k]) for clip in batch.video for k in (1, 2))


def test_a_smaller_height_scales_the_frames(cache: Cache) -> None:
    """Frames that are higher than asked for are made smaller, in their shape; none is made larger."""
    normal, small = cache.show("train", 0, 0), cache.show("train", 0, 0, height=16)
    assert normal.sheet.shape[0] - small.sheet.shape[0] == 4 * 16, "four rows, each of half the height"
    assert np.array_equal(cache.show("train", 0, 0, height=512).sheet, normal.sheet)


def test_a_picture_says_what_was_drawn(cache: Cache) -> None:
    """Its facts are the batch's: video, class, sample, frames, times, and the recipe by which each clip is made."""
    picture, batch = cache.show("train", 1, 1), cache.read("train", 1, 1)
    clips = words(picture)
    assert [each["video"] for each in clips] == list(batch.videos)
    assert [each["label"] for each in clips] == batch.label.tolist()
    assert [each["class"] for each in clips] == [cache.classes("train")[label] for label in batch.label]
    assert [each["frames"] for each in clips] == batch.frame.tolist()
    assert [each["sample"] for each in clips] == [0, 1, 0, 1]
    for k, clip in enumerate(clips):
        (resize, crop, flip) = clip["recipe"]
        whole = cache.frame("train", batch.videos[k], int(batch.frame[k, 0]))
        assert whole.shape == (3, 48, 64)
        one = cache.aug("train", batch.videos[k], int(batch.frame[k, 0]), 1, epoch=1, sample=k % 2)
        assert np.array_equal(one, batch.video[k, 0])
        assert (resize["op"], crop["op"], flip["op"]) == ("resize", "random_crop", "flip")
    assert repr(picture).startswith("<Picture of task='train', epoch=1, iteration=1: ")


def test_what_a_policy_drew_is_said(tmp_path: Path, videos: Path) -> None:
    """RandAugment's primitives are words with their strength, as `posterize to 6 bits`, and none are `nothing`."""
    steps = [single({"resize": {"shape": [32, 32]}}, {"rand_augment": {"num_ops": 1, "magnitude": 15}})]
    with open_cache(tmp_path / "store", videos, augmentation=steps) as cache:
        told = {said(recipe.steps)[-1] for epoch in range(3) for recipe in cache.task("train").recipes(epoch, 0)}
    pattern = r"resize to 32x32|rand augment: (nothing|\w+( \w+)?( (to|from))?( -?[\d.]+)?( (bits|degrees|pixels))?)"
    assert len(told) > 3
    assert all(re.fullmatch(pattern, each) for each in told), told


def test_words_that_differ_are_drawn(cache: Cache) -> None:
    """The same pixels under another title are another picture, so that words are really there."""
    title = cache.show("train", 0, 0).sheet[:20]
    assert not np.array_equal(title, cache.show("train", 1, 0).sheet[:20])
    assert len(np.unique(title)) > 10


def test_words_are_drawn_without_fonts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenCV 4 has ASCII alone: what is of another language becomes question marks, and no line is lost."""
    frame = np.full((32, 400, 3), 255, np.uint8)
    with_fonts = sheet(["кот · seed 7"], [Row([frame], ["a " * 100])])
    monkeypatch.delattr("cv2.FontFace")
    without = sheet(["кот · seed 7"], [Row([frame], ["a " * 100])])
    assert with_fonts.shape[1] == without.shape[1]
    for drawn in (with_fonts, without):
        assert holds(drawn, frame.transpose(2, 0, 1))
        assert (drawn[:20] > 128).any()
        assert drawn.shape[0] > 32 + 3 * 17, "the caption has two lines or more"


def test_a_notebook_shows_the_sheet(cache: Cache) -> None:
    """IPython asks a value for `_repr_png_`: the same picture, lossless."""
    picture = cache.show("train", 0, 0)
    shown = methodcaller("_repr_png_")(picture)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(shown))), picture.sheet)


def test_saved_files_have_every_frame(cache: Cache, tmp_path: Path) -> None:
    """PNG is the sheet; GIF, WebP and MP4 have a picture for each frame of the clips, at the clips' own rate."""
    picture = cache.show("train", 0, 0)
    batch = cache.read("train", 0, 0)
    saved = picture.save(tmp_path / "a.png")
    assert np.array_equal(np.asarray(Image.open(saved)), picture.sheet)
    assert picture.film.fps == pytest.approx(12.5), "every second frame of 25 a second"
    for name in ("a.gif", "a.mp4"):
        pictures = decoded(picture.save(tmp_path / name))
        assert len(pictures) == batch.video.shape[1] == 4
    with Image.open(picture.save(tmp_path / "a.webp")) as webp:
        assert getattr(webp, "n_frames", 1) == 4
    drawn = list(picture.film.pictures())
    assert len({each.shape for each in drawn}) == 1
    for at, each in enumerate(drawn):
        assert all(holds(each, clip[at]) for clip in batch.video)
        assert not any(holds(each, clip[(at + 1) % 4]) for clip in batch.video)
    for mine, theirs in zip(decoded(tmp_path / "a.gif"), drawn, strict=True):
        assert np.abs(mine.astype(int) - theirs).mean() < 12, "256 colours"


def test_a_video_is_shown_with_the_windows_of_its_clips(cache: Cache) -> None:
    """Below its frames stands each clip of the epoch; the window is where the clip's pixels come from."""
    picture = cache.show("train", 1, video="cats.-a")
    assert picture.facts["frames"] == 40
    assert np.array_equal(cache.show("train", 1, video="cats/a.mp4").sheet, picture.sheet), "named by its path"
    clips = words(picture)
    assert [each["sample"] for each in clips] == [0, 1]
    for clip in clips:
        frames, (resize, crop, flip) = clip["frames"], clip["recipe"]
        scale = 64 / resize["drawn"]["w"]
        drawn, corners = crop["drawn"], clip["window"]
        left, right = sorted((corners[0][0], corners[1][0]))
        assert left == pytest.approx(drawn["x"] * scale, abs=0.01)
        assert right - left == pytest.approx(32 * scale, abs=0.01)
        assert (corners[0][0] > corners[1][0]) == bool(flip["drawn"]["flip"]), "a flipped clip begins at the right"
        assert len(frames) == 4
    first = cache.frame("train", "cats.-a", 0)
    spans = [range(min(c["frames"]), max(c["frames"]) + 1) for c in clips]
    if all(0 not in span for span in spans):
        assert holds(picture.sheet, first), "no window is drawn where no clip is under way"


def test_a_film_of_a_video_has_all_its_frames(cache: Cache, tmp_path: Path) -> None:
    """Forty frames are forty pictures, of one size, at the video's rate; windows come and go."""
    picture = cache.show("train", 0, video="cats.-a")
    assert picture.film.count == 40
    assert picture.film.fps == pytest.approx(25)
    assert len(decoded(picture.save(tmp_path / "v.mp4"))) == 40
    spans = [range(min(c["frames"]), max(c["frames"]) + 1) for c in words(picture)]
    for number, drawn in enumerate(picture.film.pictures()):
        is_plain = holds(drawn, cache.frame("train", "cats.-a", number))
        assert is_plain == all(number not in span for span in spans), number


def test_looking_moves_nobody(tmp_path: Path, videos: Path) -> None:
    """A picture of a later batch is no progress of the task, as a read by path would be."""
    with open_cache(tmp_path / "cache", videos) as cache:
        cache.read("train", 0, 0)
        before = select(cache.catalog, "select epoch, iteration from progress")
        cache.show("train", 2, 1)
        cache.show("train", 2, video="cats.-a")
        assert select(cache.catalog, "select epoch, iteration from progress") == before


def test_several_views_and_merged_clips_are_shown(tmp_path: Path, videos: Path) -> None:
    """Stacked views have a row each; a merge has no window, and says so."""
    crops = [
        {"branch_type": "multi", "inputs": ["frame"], "outputs": ["a", "b"]},
        single({"center_crop": {"shape": [32, 32]}}, of="a", into="c"),
        single({"random_crop": {"shape": [32, 32]}}, of="b", into="d"),
        {"branch_type": "merge", "merge": "stack", "inputs": ["c", "d"], "outputs": ["e"]},
    ]
    with open_cache(tmp_path / "cache", videos, augmentation=crops) as cache:
        picture, batch = cache.show("train", 0, 0), cache.read("train", 0, 0)
        assert batch.video.shape == (4, 2, 4, 3, 32, 32)
        assert all(holds(picture.sheet, frame) for clip in batch.video for view in clip for frame in view)
        first = next(picture.film.pictures())
        assert all(holds(first, view[0]) for clip in batch.video for view in clip)
        assert [clip["window"] for clip in words(cache.show("train", 0, video="cats.-a"))] == [None, None]


def test_what_cannot_be_shown_is_refused(cache: Cache, tmp_path: Path) -> None:
    """Each with the value and what is allowed, before a file is touched."""
    with pytest.raises(ViewNotFound, match="epochs 0 to 2"):
        cache.show("train", 3)
    with pytest.raises(ViewNotFound, match="epochs 0 to 2"):
        cache.show("train", -1, video="cats.-a")
    with pytest.raises(ViewNotFound, match="iterations 0 to 1"):
        cache.show("train", 0, 2)
    with pytest.raises(ViewNotFound, match=r"no video 'cats\.-z'"):
        cache.show("train", video="cats.-z")
    with pytest.raises(ViewNotFound, match="tarin"):
        cache.show("tarin")
    with pytest.raises(BadInput, match="a batch or a video, not both"):
        cache.show("train", 0, 0, video="cats.-a")
    for size in ({"columns": 0}, {"columns": 65}, {"height": 15}, {"height": 5000}):
        with pytest.raises(BadInput, match="columns are 1 to 64"):
            cache.show("train", **size)  # type: ignore[arg-type]
    picture = cache.show("train")
    with pytest.raises(BadInput, match=r"allowed: \.png, \.gif, \.webp, \.mp4"):
        picture.save(tmp_path / "a.tiff")
    with pytest.raises(BadInput, match="there is no folder"):
        picture.save(tmp_path / "nowhere" / "a.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(BadInput, match="is a folder"):
        picture.save(tmp_path / "folder.png")
    assert not [each for each in tmp_path.iterdir() if each.is_file()]


def test_a_file_that_cannot_be_written_is_told(cache: Cache) -> None:
    """The reason is the system's own, and nothing is left beside it."""
    picture = cache.show("train")
    with pytest.raises(Broken, match=r"cannot write /proc/a\.png: "):
        picture.save("/proc/a.png")


def test_a_broken_video_is_shown_as_such(tmp_path: Path) -> None:
    """With `on_bad_video: skip` batches are shown without it; the video itself is an error with its reason."""
    from viewcache.errors import BadVideo

    folder = encode_folder(tmp_path / "videos", {"a.mp4": 40, "b.mp4": 40})
    (folder / "bad.mp4").write_bytes(b"no video at all")
    with open_cache(tmp_path / "cache", folder, on_bad_video="skip") as cache:
        assert {clip["video"] for clip in words(cache.show("train"))} == {"a", "b"}
        with pytest.raises(BadVideo, match="bad"):
            cache.show("train", video="bad")
