"""Tasks that are sampled by time keep the laws: the same seconds of every video (docs/design/0036)."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.clips import encode, encode_family
from tests.tiny import AUGMENTATION, open_cache, pixels, same, sql
from viewcache.api.session.cache import Cache
from viewcache.errors import BadInput, BadVideo
from viewcache.materializer.reading.batch import Batch

FPS, COUNT = 10, 6
BY_TIME = {"videos_per_batch": 2, "fps": FPS, "frames_per_video": COUNT, "samples_per_video": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Videos of 25 frames a second, by MP4's table, by packets and with uneven frames."""
    folder = tmp_path_factory.mktemp("timed")
    encode(folder / "even.mp4", frames=70)
    encode(folder / "longer.mp4", frames=90)
    for name in ("h264_vfr.mkv", "hevc_open_gop.mp4", "vp9_hidden.webm"):
        encode_family(folder, name)
    return folder


def opened(store: Path, folder: Path, *, cache: dict[str, object] | None = None, **more: Any) -> Cache:
    """A cache with one task that is sampled by time."""
    return viewcache.open(described(store, folder, cache, more))


def described(store: Path, folder: Path, cache: dict[str, object] | None, more: dict[str, Any]) -> dict[str, Any]:
    """The configuration of `opened`."""
    settings = {"store": str(store), "budget": "50MB", "workers": 1, "epochs_per_generation": 2, "seed": 7}
    task = {"tag": "train", "video_dataset_path": str(folder), "epochs": 4, "augmentation": AUGMENTATION}
    return {"cache": settings | (cache or {}), "dataset": task | {"sampling": BY_TIME} | more}


def shown_times(cache: Cache, batches: dict[tuple[int, int], Batch]) -> dict[str, np.ndarray]:
    """Video → presentation times of all of its frames, from its index."""
    names = {name for batch in batches.values() for name in batch.videos}
    dataset = cache.task("train").task.dataset
    found = {}
    for name in names:
        index = dataset.files.exact_index(dataset.files.row_of_name[name])
        assert index is not None, "it was decoded"
        found[name] = index.times_s(np.arange(index.frames))
    return found


def test_frames_are_those_nearest_in_time(tmp_path: Path, folder: Path) -> None:
    """Each frame of a clip is one that no other frame of its video is nearer than, to a time that is ``1 / fps`` on."""
    with opened(tmp_path / "s", folder) as cache:
        read = pixels(cache)
        times = shown_times(cache, read)
    assert {"h264_vfr"} <= times.keys()
    for batch in read.values():
        for name, chosen in zip(batch.videos, batch.time_s, strict=True):
            every, last = times[name], times[name][-1]
            # The start is one of the times to which the first frame is nearest: some of them explains all frames.
            edges = (every[1:] + every[:-1]) / 2
            first = int(np.flatnonzero(every == chosen[0])[0])
            begin = max(every[0], edges[first - 1] if first else every[0])
            end = edges[first] if first < len(edges) else last
            starts = np.arange(begin, end, 1 / 30_000)
            wanted = starts[:, None] + np.arange(COUNT) / FPS
            nearest = np.abs(every[None, None] - wanted[..., None]).argmin(-1) if len(starts) < 3000 else None
            assert nearest is not None
            assert (every[nearest] == chosen).all(-1).any(), (name, chosen.tolist())


def test_each_video_once_an_epoch_whatever_was_looked_at(tmp_path: Path, folder: Path) -> None:
    """Laws 1 and 3: by headers or by every packet, and opened again, the same batches."""
    with opened(tmp_path / "lazy", folder) as cache:
        lazy = pixels(cache)
        for epoch in range(4):
            names = Counter(name for place, batch in lazy.items() if place[0] == epoch for name in batch.videos)
            assert (len(names), set(names.values())) == (5, {2})
    with opened(tmp_path / "full", folder, probe="full") as cache:
        assert same(pixels(cache), lazy)
    with opened(tmp_path / "lazy", folder) as cache:
        assert same(pixels(cache), lazy)
        assert sql(cache, "select * from errors") == []


def test_after_frames_were_all_that_was_known(tmp_path: Path, folder: Path) -> None:
    """A task by frames has recorded its videos by their headers; one by time looks at what these do not tell."""
    with open_cache(tmp_path / "s", folder) as cache:
        cache.read("train", 0, 0)
    with opened(tmp_path / "s", folder, tag="timed") as cache:
        later = pixels(cache, "timed")
    with opened(tmp_path / "other", folder, tag="timed") as cache:
        assert same(pixels(cache, "timed"), later)


def test_starts_are_uniform(tmp_path: Path) -> None:
    """Law 2: over many epochs the first frames of a video's clips are spread evenly over where they may be."""
    folder = tmp_path / "v"
    folder.mkdir()
    encode(folder / "one.mp4", frames=60, size=(64, 48))
    sampling = {"videos_per_batch": 1, "fps": 5, "clip_seconds": 1.0, "samples_per_video": 8}
    with opened(tmp_path / "s", folder, sampling=sampling, epochs=120) as cache:
        task = cache.task("train").task
        plans = [task.generation(number).plan for number in range(60)]
    span = 4 * 6000
    starts = np.concatenate([plan.start[(plan.epoch % 2 == 0) & (plan.sample == 0)] for plan in plans])
    most = 59 * 1200 - span
    assert starts.min() >= 0
    assert starts.max() <= most
    counts, _ = np.histogram(starts, bins=4, range=(0, most + 1))
    assert ((counts - 15) ** 2 / 15).sum() < 16.3, "chi squared of three degrees of freedom, one in a thousand"


def test_tasks_of_rates_that_go_into_each_other_share_frames(tmp_path: Path, folder: Path) -> None:
    """Law 11, on a grid in time: the slower task of a pair hardly needs a frame that the faster one does not."""
    whole = described(tmp_path / "s", folder, {"draw_ahead": 2}, {})
    rates, sampling = {"fast": 10, "slow": 5}, {"videos_per_batch": 2, "clip_seconds": 1.2}
    tasks = [whole["dataset"] | {"tag": tag, "sampling": sampling | {"fps": fps}} for tag, fps in rates.items()]
    with viewcache.open(whole | {"dataset": tasks}) as cache:
        plans = {tag: cache.task(tag).task.generation(0).plan for tag in rates}
        needed = {
            tag: {
                (int(plan.videos.ids[row]), frame)
                for row, frames in zip(plan.video.tolist(), plan.frames(np.arange(len(plan))).tolist(), strict=True)
                for frame in frames
            }
            for tag, plan in plans.items()
        }
    assert len(needed["slow"] - needed["fast"]) < 0.25 * len(needed["slow"])


def test_a_rate_that_a_video_does_not_have(tmp_path: Path, folder: Path) -> None:
    """By key: its frames are repeated, or it is a bad video, which is an error or leaves it out."""
    sampling = BY_TIME | {"fps": 50}
    with opened(tmp_path / "repeat", folder, sampling=sampling) as cache:
        batch = cache.read("train", 0, 0)
        assert (np.diff(batch.frame, axis=1) == 0).any()
    with (
        pytest.raises(BadVideo, match="25 frames a second where the task asks for 50"),
        opened(tmp_path / "bad", folder, sampling=sampling, on_low_fps="bad") as cache,
    ):
        cache.read("train", 0, 0)
    with (
        pytest.raises(BadInput, match="no video is left"),
        opened(tmp_path / "skip", folder, sampling=sampling, on_low_fps="bad", on_bad_video="skip") as cache,
    ):
        cache.read("train", 0, 0)


@pytest.mark.parametrize("policy", ["clamp", "loop", "skip"])
def test_videos_that_are_shorter_than_a_clip(tmp_path: Path, folder: Path, policy: str) -> None:
    """As the policy says, in seconds: of 2.4 to 3.6 s long videos those of 3 s and more are long enough."""
    sampling = {"videos_per_batch": 1, "clip_seconds": 3.1, "fps": 10}
    with opened(tmp_path / "s", folder, sampling=sampling, on_short_video=policy, epochs=1) as cache:
        read = pixels(cache)
        names = {name for batch in read.values() for name in batch.videos}
        short = sql(cache, "select policy, reason from substitutions where policy = 'clamp' or policy = 'loop'")
    assert "longer" in names
    assert ("even" in names) == (policy != "skip")
    assert bool(short) == (policy != "skip")
    assert all(" s, a clip spans 3 s" in str(reason) for _, reason in short)
