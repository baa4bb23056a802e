"""Law 3: a view's bytes are a function of configuration, dataset, seed and draws, and of nothing else."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import av
import numpy as np
import pytest
from av.video.reformatter import Interpolation
from numpy.typing import NDArray

from tests.tiny import open_cache, pixels, places, same, single
from viewcache.api.session.cache import Cache
from viewcache.materializer.reading.batch import Batch

Batches = Mapping[tuple[int, int], Batch]


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory, videos: Path) -> Batches:
    """Every batch, made cold by one worker and read in order."""
    with open_cache(tmp_path_factory.mktemp("cold"), videos) as cache:
        return pixels(cache)


@pytest.mark.parametrize(
    ("cache", "codec"),
    [({"workers": 2}, "lz4"), ({"memory": "300MB"}, "zstd1"), ({"durability": "durable"}, "raw")],
    ids=["two workers, lz4", "little memory, zstd1", "durable, raw"],
)
def test_settings_of_the_cache_change_no_byte(
    tmp_path: Path, videos: Path, cold: Batches, cache: dict[str, object], codec: str
) -> None:
    """Workers, codec, durability, memory and the store's folder are how, not what."""
    root = tmp_path / "another name"
    with open_cache(root, videos, cache=cache | {"store": [{"url": str(root), "codec": codec}]}) as made:
        again = pixels(made)
        assert same(again, cold)
        assert all(again[place].keys == cold[place].keys for place in cold)


def test_warm_reopened_evicted_and_damaged_reads_give_the_same(tmp_path: Path, videos: Path, cold: Batches) -> None:
    """A second reading, one after a restart, one with all objects gone or cut short, and one in reverse agree."""
    with open_cache(tmp_path, videos) as cache:
        assert same(pixels(cache), cold)
        assert same(pixels(cache), cold), "warm"
        budget, _ = cache.task("train").task.outline.batch_bound()
    shards = sorted((tmp_path / "objects").glob("*/*/c.*"))
    assert len(shards) == 30
    for number, shard in enumerate(shards):
        if number % 3 == 0:
            shutil.rmtree(shard.parent)
        elif number % 3 == 1:
            shard.write_bytes(shard.read_bytes()[:-7])
    with open_cache(tmp_path, videos) as cache:
        assert same(pixels(cache), cold), "deleted and damaged"
        assert cache.task("train").spent.rebuilt > 0
    with open_cache(tmp_path, videos, cache={"budget": budget}) as cache:
        backwards = {place: cache.read("train", *place) for place in reversed(list(places(cache)))}
        assert same(backwards, cold), "evicted and rebuilt, last batch first"


def test_ranks_read_parts_of_the_same_batch(tmp_path: Path, videos: Path) -> None:
    """The shares of two ranks, put together, are the batch that one rank reads."""
    with open_cache(tmp_path, videos, drop_last=True) as cache:
        for place in places(cache):
            whole = cache.read("train", *place)
            parts = [cache.read("train", *place, rank, 2) for rank in range(2)]
            assert np.array_equal(np.concatenate([part.video for part in parts]), whole.video)
            assert [name for part in parts for name in part.videos] == list(whole.videos)


def test_a_dataset_that_moves_shows_the_same_pixels(tmp_path: Path, videos: Path, cold: Batches) -> None:
    """Copied elsewhere under the same names: other objects, because the files are others, but the same pictures."""
    copy = Path(shutil.copytree(videos, tmp_path / "copy"))
    with open_cache(tmp_path / "store", copy) as cache:
        moved = pixels(cache)
    assert same(moved, cold)
    assert all(not set(moved[place].keys) & set(cold[place].keys) for place in cold)


def test_the_seed_counts_wherever_it_is_written(tmp_path: Path, videos: Path, cold: Batches) -> None:
    """A task's own seed does what the cache's would; tests/plan shows that another seed gives other clips."""
    with open_cache(tmp_path, videos, cache={"seed": 8}, seed=7) as cache:
        assert same(pixels(cache), cold)


# An independent reference: PyAV from the first frame to the last, and the recorded recipe applied by hand.


def decoded(path: Path) -> list[av.VideoFrame]:
    """All frames of a video, decoded in order by one thread."""
    with av.open(str(path)) as container:
        container.streams.video[0].thread_type = "NONE"
        return list(container.decode(video=0))


def recipe(store: Path, key: str) -> tuple[list[int], list[dict[str, object]]]:
    """The source frames and the operations that an object says it was made of."""
    attributes = json.loads((store / "objects" / key[:2] / key / "zarr.json").read_text())["attributes"]
    return attributes["frames"], attributes["recipe"]


EXACT = Interpolation.BILINEAR | Interpolation.ACCURATE_RND | Interpolation.BITEXACT


def converted(frame: av.VideoFrame, height: int, width: int) -> NDArray[np.uint8]:
    """uint8 (3,height,width) by the one conversion that docs/decode.md names."""
    made = frame.reformat(width, height, "gbrp", interpolation=EXACT)
    return np.ascontiguousarray(made.to_ndarray(format="gbrp").transpose(2, 0, 1))


def by_hand(frame: av.VideoFrame, operations: list[dict[str, object]]) -> NDArray[np.uint8]:
    """Resize, crop and flip, as the recipe says."""
    picture = np.empty(0, np.uint8)
    for entry in operations:
        drawn = entry["drawn"]
        assert isinstance(drawn, dict)
        match entry["op"]:
            case "resize":
                picture = converted(frame, drawn["h"], drawn["w"])
            case "random_crop":
                rows, columns = slice(drawn["y"], drawn["y"] + drawn["h"]), slice(drawn["x"], drawn["x"] + drawn["w"])
                picture = picture[:, rows, columns]
            case "flip":
                picture = picture[:, :, ::-1] if drawn["flip"] else picture
            case other:
                raise AssertionError(f"the recipe has {other}")
    return picture


def check_against_reference(cache: Cache, store: Path, videos: Path) -> int:
    """Compare every clip of a task with the reference; returns how many were mirrored."""
    sources = {path.stem: decoded(path) for path in videos.iterdir()}
    mirrored = 0
    for place in places(cache):
        batch = cache.read("train", *place)
        for k, (name, key) in enumerate(zip(batch.videos, batch.keys, strict=True)):
            frames, operations = recipe(store, key)
            assert frames == batch.frame[k].tolist()
            expected = np.stack([by_hand(sources[name][number], operations) for number in frames])
            assert np.array_equal(batch.video[k], expected), (place, name)
            times = [float(sources[name][number].time or 0) for number in frames]
            assert batch.time_s[k].tolist() == pytest.approx(times)
            mirrored += any(entry["op"] == "flip" and entry["drawn"] == {"flip": 1} for entry in operations)
    return mirrored


def test_clips_equal_a_sequential_decode_with_the_recipe_applied_by_hand(tmp_path: Path, videos: Path) -> None:
    """Every pixel of every clip is what decoding the whole file and cropping by hand gives; times are the frames'."""
    with open_cache(tmp_path, videos) as cache:
        mirrored = check_against_reference(cache, tmp_path, videos)
    assert 5 < mirrored < 25, "flips come about half of the time"


BRANCHES = [
    {"branch_type": "multi", "inputs": ["frame"], "outputs": ["x", "y"]},
    single({"resize": {"shape": [36, 48]}}, {"center_crop": {"shape": [32, 32]}}, of="x", into="p"),
    {
        "branch_type": "conditional",
        "inputs": ["y"],
        "outputs": ["q"],
        "branches": [
            {"condition": "epoch < 1", "config": [{"center_crop": {"shape": [32, 32]}}]},
            {"condition": "else", "config": [{"center_crop": {"shape": [32, 32]}}, {"inv_sample": True}]},
        ],
    },
    {"branch_type": "merge", "inputs": ["p", "q"], "outputs": ["m"], "merge": "concat"},
    {
        "branch_type": "random",
        "inputs": ["m"],
        "outputs": ["z"],
        "branches": [{"prob": 0.5, "config": None}, {"prob": 0.5, "config": [{"flip": {"flip_prob": 1}}]}],
    },
]


def test_all_five_types_of_branches_make_what_they_say(tmp_path: Path, videos: Path) -> None:
    """A clip of two resolutions in a row, the second backwards from epoch 1 on, half mirrored: by hand again."""
    sources = {path.stem: decoded(path) for path in videos.iterdir()}
    mirrored = 0
    with open_cache(tmp_path, videos, augmentation=BRANCHES, sampling={"samples_per_video": 1}) as cache:
        for epoch, iteration in places(cache):
            batch = cache.read("train", epoch, iteration)
            assert batch.video.shape[1:] == (8, 3, 32, 32)
            for k, name in enumerate(batch.videos):
                numbers = batch.frame[k].tolist()
                assert numbers[4:] == (numbers[:4] if epoch < 1 else numbers[3::-1])
                resized = [converted(sources[name][n], 36, 48)[:, 2:34, 8:40] for n in numbers[:4]]
                full = [converted(sources[name][n], 48, 64)[:, 8:40, 16:48] for n in numbers[4:]]
                expected = np.stack(resized + full)
                flipped = expected[..., ::-1]
                assert np.array_equal(batch.video[k], expected) or np.array_equal(batch.video[k], flipped)
                mirrored += np.array_equal(batch.video[k], flipped)
    assert 2 <= mirrored <= 13


def test_stacked_views_make_what_they_say(tmp_path: Path, videos: Path) -> None:
    """``stack`` gives (b,V,T,C,H,W), with frame numbers and times per view."""
    steps = [
        {"branch_type": "multi", "inputs": ["frame"], "outputs": ["x", "y"]},
        single({"inv_sample": True}, of="y", into="q"),
        {"branch_type": "merge", "inputs": ["x", "q"], "outputs": ["m"], "merge": "stack"},
    ]
    sources = {path.stem: decoded(path) for path in videos.iterdir()}
    with open_cache(tmp_path, videos, augmentation=steps, epochs=1) as cache:
        batch = cache.read("train", 0, 0)
    for k, name in enumerate(batch.videos):
        numbers = batch.frame[k, 0].tolist()
        clip = np.stack([converted(sources[name][n], 48, 64) for n in numbers])
        assert batch.frame[k].tolist() == [numbers, numbers[::-1]]
        assert batch.time_s[k] == pytest.approx(batch.frame[k] / 25)
        assert np.array_equal(batch.video[k], np.stack([clip, clip[::-1]]))


def test_look_ahead_makes_what_demand_makes(tmp_path: Path, videos: Path, cold: Batches) -> None:
    """Made ahead before anybody reads, the bytes are those that demand makes."""
    with open_cache(tmp_path, videos) as cache:
        *_, last = cache.materialize()
        assert last["ready"] == 30
        misses = cache.task("train").spent.misses
        assert same(pixels(cache), cold)
        assert cache.task("train").spent.misses == misses == 0
