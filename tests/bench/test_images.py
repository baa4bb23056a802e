"""The benchmark of images: its rivals do the same work, its sums are right, and it runs whole."""

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import image_rivals, images
from benchmarks.harness import Comparison, Note, main
from benchmarks.image_rivals import (
    ARRAYS,
    ARRAYS_HERE,
    FFCV,
    OPENCV,
    OURS,
    PILLOW,
    TORCHVISION,
    Arrays,
    OpenCV,
    Pillow,
    Setting,
    Took,
    listed,
    small_size,
)
from tests.clips import encode

TOOK = Took(
    imported_wall_s=1, imported_cpu_s=2, opened_wall_s=2, opened_cpu_s=4, wall_s=[7, 8, 9], cpu_s=[12, 14, 16],
    closed_wall_s=11, closed_cpu_s=17, work=[(10, 30, 5)] * 3,
)  # fmt: skip


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    """Two clips, one of them so small that its frames are enlarged."""
    folder = tmp_path / "videos"
    folder.mkdir()
    encode(folder / "large.mp4", frames=20)
    encode(folder / "small.mp4", frames=20, size=(64, 48))
    return folder


@pytest.fixture
def setting(videos: Path, tmp_path: Path) -> Setting:
    """A small run over PNG images."""
    pictures = [*images.pictures_of(sorted(videos.iterdir()), 6, images.QUICK_SIZE, 0)]
    images.make(pictures, tmp_path / "png", "png")
    (tmp_path / "made").mkdir()
    return Setting("", str(tmp_path / "png"), str(tmp_path / "made"), short_side=64, crop=56)


def test_frames_of_every_clip_become_images(videos: Path) -> None:
    """Each clip gives its share, evenly apart and all of one size; a short one leaves more to the next."""
    clips = sorted(videos.iterdir())
    pictures = [*images.pictures_of(clips, 30, images.QUICK_SIZE, 0)]
    assert Counter(name for name, _ in pictures) == {"large": 15, "small": 15}
    assert {picture.shape for _, picture in pictures} == {(75, 100, 3)}
    encode(videos / "a.mp4", frames=4)
    counts = Counter(name for name, _ in images.pictures_of(sorted(videos.iterdir()), 30, images.QUICK_SIZE, 0))
    assert counts == {"a": 4, "large": 13, "small": 13}
    with pytest.raises(AssertionError, match="ask for 44"):
        [*images.pictures_of(sorted(videos.iterdir()), 99, images.QUICK_SIZE, 0)]


@pytest.mark.parametrize("flipped", [False, True])
def test_rivals_give_the_same_pictures(setting: Setting, monkeypatch: pytest.MonkeyPatch, flipped: bool) -> None:
    """Arrays have what OpenCV makes on demand, and PIL's antialiased picture differs from that by little."""
    for kind in (Pillow, OpenCV):
        monkeypatch.setattr(kind, "place", lambda self, height, width: (3, 7, flipped))
    pillow, opencv, arrays = (kind(setting) for kind in (Pillow, OpenCV, Arrays))
    assert len(pillow) == len(arrays) == 6
    for number in range(6):
        picture, label = opencv[number]
        assert picture.shape == (3, 56, 56)
        assert label == opencv.labels[number] == pillow[number][1] == arrays[number][1]
        assert np.array_equal(picture, arrays[number][0])
        apart = np.abs(picture.numpy().astype(int) - pillow[number][0].numpy())
        mirrored = np.abs(picture.numpy()[..., ::-1].astype(int) - pillow[number][0].numpy())
        assert apart.mean() < 6 < mirrored.mean()


@pytest.mark.parametrize("flipped", [False, True])
def test_rivals_resize_the_same_part(setting: Setting, monkeypatch: pytest.MonkeyPatch, flipped: bool) -> None:
    """A part of any size is resized to that of a crop, the same on demand and out of arrays."""
    monkeypatch.setattr(OpenCV, "part", lambda self, height, width: (slice(3, 40), slice(7, 80), flipped))
    setting = replace(setting, resized_crop=True)
    opencv, arrays = OpenCV(setting), Arrays(setting)
    for number in range(6):
        picture = opencv[number][0]
        assert picture.shape == (3, 56, 56)
        assert np.array_equal(picture, arrays[number][0])


def test_parts_are_of_many_sizes(setting: Setting) -> None:
    """They lie in the picture, are of 8 % to all of it, and of no other shape than 3 : 4 to 4 : 3."""
    rival = OpenCV(replace(setting, resized_crop=True))
    drawn = [rival.part(64, 85) for _ in range(300)]
    assert all(0 <= rows.start < rows.stop <= 64 and 0 <= cols.start < cols.stop <= 85 for rows, cols, _ in drawn)
    areas = [(rows.stop - rows.start) * (cols.stop - cols.start) / (64 * 85) for rows, cols, _ in drawn]
    assert 0.07 < min(areas) < 0.2 < 0.7 < max(areas)
    shapes = [(cols.stop - cols.start) / (rows.stop - rows.start) for rows, cols, _ in drawn]
    assert 0.7 < min(shapes) < 1 < max(shapes) < 1.4
    assert {flipped for *_, flipped in drawn} == {False, True}


def test_draws_reach_every_place(setting: Setting) -> None:
    """A crop may lie at each edge, and is flipped or not."""
    drawn = [Pillow(setting).place(58, 57) for _ in range(300)]
    assert {(top, left) for top, left, _ in drawn} == {(top, left) for top in range(3) for left in range(2)}
    assert {flipped for *_, flipped in drawn} == {False, True}


def test_classes_are_numbered_by_name(setting: Setting) -> None:
    """As ImageFolder does it, and our labels of folders."""
    files, labels = listed(setting.images)
    assert [Path(file).parent.name for file in files] == ["large"] * 3 + ["small"] * 3
    assert labels == [0, 0, 0, 1, 1, 1]
    assert small_size(375, 500, 256) == (256, 341)
    assert small_size(500, 375, 256) == (341, 256)


def test_many_names_of_few_images(videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All names are there, in all classes, and each file is one of a few."""
    monkeypatch.setattr(images, "DISTINCT", 7)
    pictures = [*images.pictures_of(sorted(videos.iterdir()), 4, images.QUICK_SIZE, 0)]
    images.scatter(pictures, tmp_path / "many", 250)
    files, labels = listed(str(tmp_path / "many"))
    assert (len(set(files)), set(labels)) == (250, set(range(100)))
    assert len({Path(file).stat().st_ino for file in files}) == 7


def test_costs_are_of_an_image() -> None:
    """Opening counts for the first epoch and closing for the later ones; what is spent is in one of them."""
    assert images.first_epoch(TOOK) == (0.6, 1.0)
    assert images.without_opening(TOOK) == (0.5, 0.8)
    assert images.later_epochs(TOOK) == (0.2, 0.25)
    assert images.all_epochs(TOOK) == pytest.approx((10 / 30, 15 / 30))


def test_work_of_later_epochs_that_the_first_one_does_is_not_hidden() -> None:
    """Who makes all in the first epoch has cheap later ones, and misses the aim of all epochs."""
    ahead = replace(TOOK, cpu_s=[16.5, 16.6, 16.7])
    rounds = images.Rounds({PILLOW: [TOOK], OPENCV: [TOOK], OURS: [ahead]})
    results = list(images.answers(rounds, "q90", 3))
    compared = {each.title: each for each in results if isinstance(each, Comparison)}
    later, whole = compared["q90: an image of a later epoch"], compared["q90: an image of all 3 epochs"]
    assert later.ratios(OURS) == [pytest.approx(0.1)]
    assert whole.ratios(OURS) == [1.0]
    assert next(iter(whole.aims)).at_most == pytest.approx(0.217)
    assert sum(f"not two of these ran: {FFCV}; {OURS}" in each.text for each in results if isinstance(each, Note)) == 2


def _report(tmp_path: Path, videos: Path, *options: str) -> list[dict[str, Any]]:
    """The results of a quick run."""
    out = tmp_path / "out.json"
    command = ["--quick", "--repeats", "1", *options, "--videos", str(videos), "--dir", str(tmp_path)]
    main(images.__doc__, images.bench, images.arguments, [*command, "--json", str(out)])
    assert not list(tmp_path.glob("viewcache-image*"))
    results: list[dict[str, Any]] = json.loads(out.read_text())["results"]
    return results


def test_quick_run_compares_us_with_rivals(videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs gives the same work (it asserts so itself) and is compared; for what does not there is a word."""
    monkeypatch.setattr(images, "RUNS", (PILLOW, OPENCV, OURS))
    monkeypatch.setattr(images, "RESIZED_RUNS", (ARRAYS, OURS))
    results = _report(tmp_path, videos, "--kinds", "q90")
    compared = [set(each["ratios"]) for each in results if each["kind"] == "comparison"]
    assert compared == [{PILLOW, OPENCV, OURS}, {OPENCV, OURS}] * 2 + [{PILLOW, OPENCV, OURS}] * 2 + [{ARRAYS, OURS}]
    assert sum("not measured" in each["text"] for each in results if each["kind"] == "note") == 5


def test_a_library_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rival does not run, and says why."""
    monkeypatch.setitem(sys.modules, "torchvision", None)
    (tmp_path / "images").mkdir()
    took = image_rivals._train(Setting(TORCHVISION, str(tmp_path / "images"), str(tmp_path)))
    assert took.refused.startswith("torchvision is not importable: ")


@pytest.mark.long
def test_quick_run_has_every_system(videos: Path, tmp_path: Path) -> None:
    """All that can run here, and then the folder of many."""
    results = _report(tmp_path, videos, "--kinds", "png", "--many", "200", "--many-epochs", "2")
    first = next(each for each in results if each["kind"] == "comparison")
    assert set(first["ratios"]) >= {PILLOW, OPENCV, ARRAYS, ARRAYS_HERE, OURS, images.OURS_PART}
    every, resized, many, trained = (each for each in results if each["kind"] == "table")
    assert set(every["rows"]) == set(first["ratios"])
    assert set(resized["rows"]) == set(first["ratios"]) & set(images.RESIZED_RUNS)
    assert set(many["rows"]) == {f"{OURS}, first", f"{OURS}, again", PILLOW}
    assert set(trained["rows"]) == {OURS, PILLOW}
    assert all(value > 0 for row in trained["rows"].values() for value in row)
    assert results[-3]["value"] > 0, "the first batch of the many"
    assert results[-2]["value"] > 0, "the scan of the many"
