"""The orientation that EXIF data tell is applied, or left alone where a task says so, and never both to one picture."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps

import viewcache
from tests.images.small import config, picture, save
from tests.images.test_images import Read, read, same
from tests.tiny import make_decoding_dear, single, sql
from viewcache.api.page.first_frame_worker import first_frame
from viewcache.errors import BadInput

CROP = [single({"center_crop": {"shape": [32, 32]}})]
"""No conversion but the decoder's, so that pixels can be compared with those of another reader."""
RESIZED = [single({"resize": {"short_side": 36}}, {"center_crop": {"shape": [32, 32]}})]
"""Pictures after the first operation are worth keeping, and nothing depends on the name of a task."""
SUFFIXES = (".png", ".webp", ".jpg")
EXIF = ("apply", "ignore")


def tagged(orientation: int) -> Image.Exif:
    """EXIF data that say so."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def save_turned(folder: Path, *, with_exif: bool = True) -> Path:
    """Sixteen pictures of 51x38 pixels, each orientation twice; without EXIF data they are the same pixels."""
    for k in range(16):
        options = {"exif": tagged(k % 8 + 1)} if with_exif else {}
        save(folder / f"{k:02}.png", picture(51, 38, k), **options)
    return folder


def settings(store: Path, images: Path, exif: Mapping[str, str], **dataset: Any) -> dict[str, Any]:
    """A task for each tag, with what it says of EXIF data; the order is that of names."""
    usual = {"augmentation": RESIZED, "shuffle": False, "epochs": 4, "sampling": {"images_per_batch": 4}}
    written = config(store, images, **{**usual, **dataset})
    written["dataset"] = [written["dataset"] | {"tag": tag, "exif": value} for tag, value in exif.items()]
    return written


@pytest.mark.parametrize("exif", EXIF)
def test_pixels_are_those_of_pillow(tmp_path: Path, exif: str) -> None:
    """Of each format and orientation the frame by its path, the crop in a batch, and what SQL says of it."""
    paths = []
    for k, (suffix, orientation) in enumerate(itertools.product(SUFFIXES, range(1, 9))):
        options = {"quality": 100, "subsampling": 0} if suffix == ".jpg" else {}
        path = tmp_path / "in" / f"{k:02}{suffix}"
        paths.append(save(path, picture(51, 38, k), exif=tagged(orientation), **options))
    written = settings(tmp_path / "store", tmp_path / "in", {"train": exif}, augmentation=CROP, epochs=1)
    with viewcache.open(written) as cache:
        files = fsspec.filesystem("view", cache=str(tmp_path / "store"))
        crops = images_of(read(cache)).reshape(-1, 3, 32, 32)
        rows = sql(cache, "select rotation, width, height, exif, dataset from images order by image")
        for k, path in enumerate(paths):
            stored = Image.open(path)
            shown = ImageOps.exif_transpose(stored) if exif == "apply" else stored
            wanted = np.asarray(shown.convert("RGB"), np.int64).transpose(2, 0, 1)
            most = 3 if path.suffix == ".jpg" else 0  # levels: decoders of JPEG differ
            frame = np.load(files.open(f"view://train/{k:02}/frame0"))
            assert np.abs(frame.astype(np.int64) - wanted).max() <= most, path
            info = cache.task("train").video(f"{k:02}")
            assert (info.height, info.width) == wanted.shape[1:]
            top, left = (info.height - 32) // 2, (info.width - 32) // 2
            crop = wanted[:, top : top + 32, left : left + 32]
            assert np.abs(crops[k].astype(np.int64) - crop).max() <= most, path
            rotation = (0, 0, 180, 180, 270, 270, 90, 90)[k % 8] if exif == "apply" else 0
            assert rows[k] == (rotation, 51, 38, exif, str(tmp_path / "in"))


def alone(store: Path, images: Path, exif: str, **settings_of_cache: Any) -> Read:
    """All that a task gives in a cache of its own, and again from what was kept."""
    written = settings(store, images, {"train": exif})
    written["cache"] |= settings_of_cache
    with viewcache.open(written) as cache:
        found = read(cache)
    with viewcache.open(written) as cache:
        assert same(read(cache), found)
    return found


@pytest.fixture(autouse=True)
def decoding_is_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of small images what to keep would be decided by noise."""
    make_decoding_dear(monkeypatch)


def images_of(found: Read) -> NDArray[np.uint8]:
    """The pictures of all batches."""
    return np.stack([found[place]["image"] for place in sorted(found)])


def test_ignored_is_as_if_there_were_none(tmp_path: Path) -> None:
    """A task that ignores EXIF data gives what it would of the same pixels in files that have none, kept or not."""
    turned = save_turned(tmp_path / "turned")
    plain = save_turned(tmp_path / "plain", with_exif=False)
    truth = images_of(alone(tmp_path / "a", plain, "apply", mix=1.0))
    np.testing.assert_array_equal(images_of(alone(tmp_path / "b", turned, "ignore", mix=1.0)), truth)
    np.testing.assert_array_equal(images_of(alone(tmp_path / "c", turned, "ignore", mix=0.0)), truth)
    applied = images_of(alone(tmp_path / "d", turned, "apply", mix=1.0))
    np.testing.assert_array_equal(images_of(alone(tmp_path / "e", turned, "apply", mix=0.0)), applied)
    differ = (applied != truth).any(axis=(2, 3, 4)).reshape(4, 16)
    assert (differ == [bool(k % 8) for k in range(16)]).all()


def kept_by(store: Path, images: Path, exif: Mapping[str, str]) -> tuple[set[str], dict[str, Read]]:
    """Content keys of the pictures that a cache keeps in packs, and what each task gives from them after a restart."""
    written = settings(store, images, exif)
    written["cache"] |= {"mix": 1.0}
    with viewcache.open(written) as cache:
        first = {tag: read(cache, tag) for tag in exif}
    with viewcache.open(written) as cache:
        again = {tag: read(cache, tag) for tag in exif}
        assert all(same(again[tag], first[tag]) for tag in exif)
        keys = sql(cache, "select key from packs where state = 'ready'")
        assert len(set(keys)) == len(keys)
    return {str(key) for (key,) in keys}, again


def test_tasks_of_one_cache_may_differ(tmp_path: Path) -> None:
    """Each gives what it would alone, with packs of its own: no picture of one is of the other."""
    turned = save_turned(tmp_path / "in")
    keys, alone_gives = {}, {}
    for value in EXIF:
        keys[value], found = kept_by(tmp_path / value, turned, {"train": value})
        alone_gives[value] = found["train"]
        assert len(keys[value]) == 16
    assert not keys["apply"] & keys["ignore"]
    together, found = kept_by(tmp_path / "both", turned, {value: value for value in EXIF})
    assert together == keys["apply"] | keys["ignore"]
    for value in EXIF:
        np.testing.assert_array_equal(images_of(found[value]), images_of(alone_gives[value]))


def test_what_cannot_be_kept_is_weighed_without_a_warning(tmp_path: Path) -> None:
    """Palettes, as which nothing is kept, of images that one of two tasks has: NumPy has nothing to say of them."""
    for k in range(8):
        path = save(tmp_path / f"in/{k}.png", picture(51, 38))
        Image.open(path).convert("P").save(path, exif=tagged(1 + k))
    written = settings(tmp_path / "store", tmp_path / "in", {value: value for value in EXIF})
    written["dataset"][1]["augmentation"] = [
        single({"resize": {"short_side": 30}}, {"center_crop": {"shape": [24, 24]}})
    ]
    with viewcache.open(written) as cache:
        assert [len(read(cache, value)) for value in EXIF] == [8, 8]


def test_sql_tells_which_is_which(tmp_path: Path) -> None:
    """A file that both kinds of task read is two images, of one folder, with keys of their own."""
    turned = save_turned(tmp_path / "in")
    with viewcache.open(settings(tmp_path / "store", turned, {value: value for value in EXIF})) as cache:
        found = sql(
            cache, "select exif, count(*), count(distinct image), sum(rotation) from images group by 1 order by 1"
        )
        assert found == [("apply", 16, 16, 2 * (180 + 180 + 270 + 270 + 90 + 90)), ("ignore", 16, 16, 0)]
        assert sql(cache, "select distinct dataset from images") == [(str(turned),)]
        assert sql(cache, "select count(distinct key) from images") == [(32,)]


@pytest.mark.parametrize(("before", "now"), [EXIF, EXIF[::-1]])
def test_it_cannot_change_under_a_tag(tmp_path: Path, before: str, now: str) -> None:
    """What was drawn would be shown otherwise, so the key is named and the old batches stay as they are."""
    turned = save_turned(tmp_path / "in")
    with viewcache.open(settings(tmp_path / "store", turned, {"train": before})) as cache:
        first = read(cache)
    with pytest.raises(BadInput, match="exif"):
        viewcache.open(settings(tmp_path / "store", turned, {"train": now}))
    with viewcache.open(settings(tmp_path / "store", turned, {"train": before})) as cache:
        assert same(read(cache), first)


def test_the_usual_is_as_if_it_were_not_written(tmp_path: Path) -> None:
    """A task of before, which said nothing, goes on with `exif: apply`."""
    turned = save_turned(tmp_path / "in")
    written = settings(tmp_path / "store", turned, {"train": "apply"})
    silent = {name: value for name, value in written["dataset"][0].items() if name != "exif"}
    with viewcache.open(written | {"dataset": [silent]}) as cache:
        first = read(cache)
    with viewcache.open(written) as cache:
        assert same(read(cache), first)


def test_the_page_shows_it_as_the_task_does(tmp_path: Path) -> None:
    """The small picture of an image is that of its dataset."""
    path = save(tmp_path / "0.png", picture(64, 32), exif=tagged(6))
    assert first_frame(str(path)).shape == (64, 32, 3)
    np.testing.assert_array_equal(first_frame(str(path), as_stored=True), np.asarray(Image.open(path)))
