"""Validation and test: fixed clips in a fixed order, each once, the same in every epoch (docs/validation.md)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.tiny import AUGMENTATION, config, encode_folder, open_cache, pixels, same, single
from viewcache.api.audit.recorded import Drawn
from viewcache.errors import ConfigError

VIEWS = [single({"resize": {"short_side": 36}}, {"three_crop": 32})]
TEST: dict[str, Any] = {
    "sampling": {"videos_per_batch": 2, "samples_per_video": 12, "clips": "uniform"},
    "shuffle": False,
    "augmentation": VIEWS,
}
"""Four clips of each video, with three crops of each."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five videos of different lengths, one of them shorter than a clip."""
    lengths = {"a.mp4": 40, "b.mp4": 47, "c.mp4": 61, "d.mp4": 30, "e.mp4": 5}
    return encode_folder(tmp_path_factory.mktemp("fixed"), lengths)


def test_ten_by_three_views_each_once(tmp_path: Path, folder: Path) -> None:
    """Videos by name; of each the clips from its start to its end; of each of these the crops from left to right."""
    with open_cache(tmp_path / "s", folder, **TEST) as cache:
        read = pixels(cache)
        whole = cache.task("train").task.dataset
        lengths = {name: int(whole.files.frames[row]) for name, row in whole.files.row_of_name.items()}
        first = {place: batch for place, batch in read.items() if place[0] == 0}
        names = [name for batch in first.values() for name in batch.videos]
        samples = np.concatenate([batch.sample for batch in first.values()])
        starts = np.concatenate([batch.frame[:, 0] for batch in first.values()])
        windows = [cache.aug("train", "a", int(first[0, 0].frame[k, 0]), 1, epoch=0, sample=k) for k in range(3)]
        for k in range(3):
            assert np.array_equal(windows[k], first[0, 0].video[k, 0])
        resized = cache.aug("train", "a", int(first[0, 0].frame[0, 0]), 1, epoch=0, sample=0)
    assert names == [name for name in "abcde" for _ in range(12)]
    assert samples.tolist() == [*range(12)] * 5
    for number, name in enumerate("abcde"):
        most = max(lengths[name] - 7, 0)  # four frames, two apart
        expected = [most * clip // 3 for clip in range(4) for _ in range(3)]
        assert starts[number * 12 : number * 12 + 12].tolist() == expected
    assert resized.shape == (3, 32, 32)
    for (epoch, iteration), batch in read.items():
        one = first[0, iteration]
        assert (batch.keys, batch.videos) == (one.keys, one.videos), (epoch, iteration)
        assert np.array_equal(batch.video, one.video)


@pytest.mark.parametrize("by_time", [False, True])
def test_the_middle_clip(tmp_path: Path, folder: Path, by_time: bool) -> None:
    """One clip of each video, as much before it as behind it; by frames and by time."""
    length = {"fps": 12.5, "frames_per_video": 4} if by_time else {"frames_per_video": 4, "frame_stride": 2}
    given = config(tmp_path / "s", folder, shuffle=False, augmentation=AUGMENTATION)
    sampling = {"videos_per_batch": 2, "clips": "center"} | length
    given["dataset"]["sampling"] = sampling  # type: ignore[index]
    with viewcache.open(given) as cache:
        read = pixels(cache)
        whole = cache.task("train").task.dataset
        for batch in read.values():
            for name, frames in zip(batch.videos, batch.frame, strict=True):
                last = int(whole.files.frames[whole.files.row_of_name[name]]) - 1
                before, behind = int(frames[0]), last - int(frames[-1])
                assert abs(before - behind) <= 1, name


def test_random_clips_in_a_fixed_order(tmp_path: Path, folder: Path) -> None:
    """`shuffle: false` fixes the order alone: clips and crops are drawn in each epoch."""
    with open_cache(tmp_path / "s", folder, shuffle=False) as cache:
        read = pixels(cache)
    assert [batch.videos for (epoch, _), batch in read.items() if epoch == 0] == [
        batch.videos for (epoch, _), batch in read.items() if epoch == 1
    ]
    assert not np.array_equal(read[0, 0].frame, read[1, 0].frame)


def test_validation_beside_training(tmp_path: Path, folder: Path) -> None:
    """A fixed task shares no order with a shuffled one over the same videos: either reads what it reads alone."""

    def tasks(*tags: str) -> dict[str, Any]:
        shuffled = config(tmp_path / "-".join(tags), folder, cache={"draw_ahead": 1})
        fixed = config(tmp_path / "x", folder, tag="val", **TEST)["dataset"]
        every = {"train": shuffled["dataset"], "val": fixed}
        return {"cache": shuffled["cache"], "dataset": [every[tag] for tag in tags]}

    with viewcache.open(tasks("val")) as cache:
        alone = pixels(cache, "val")
    with viewcache.open(tasks("train", "val")) as cache:
        for place in [(0, 0), (0, 1), (1, 2)]:
            cache.read("train", *place)
        assert same(pixels(cache, "val"), alone)
        assert not cache.task("val").task.draws_together
        rows = {row.name: Drawn.of(row) for row in cache.catalog.load_tasks()}
    assert (rows["train"].order, rows["train"].starts, rows["val"].order, rows["val"].starts) == (
        True,
        True,
        False,
        False,
    )


@pytest.mark.parametrize(
    ("clips", "samples", "crop", "message"),
    [
        ("center", 3, {"center_crop": 32}, "with clips: center, samples_per_video must be 1, got 3"),
        ("uniform", 10, {"three_crop": 32}, "each clip has 3 crops .* must be a multiple of 3, got 10"),
        ("center", 1, {"ten_crop": 32}, "each clip has 10 crops .* must be 10, got 1"),
    ],
)
def test_samples_that_do_not_go_into_clips(
    tmp_path: Path, folder: Path, clips: str, samples: int, crop: object, message: str
) -> None:
    """Refused with the numbers before anything is read."""
    sampling = {"clips": clips, "samples_per_video": samples}
    with pytest.raises(ConfigError, match=message):
        open_cache(
            tmp_path / "s", folder, sampling=sampling, augmentation=[single({"resize": {"short_side": 36}}, crop)]
        )
