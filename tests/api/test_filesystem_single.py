"""Single frames by name: decoded, and after each augmentation step."""

import json
from collections.abc import Iterator
from pathlib import Path

import av
import fsspec
import numpy as np
import pytest

import viewcache
from tests.api.small import STEPS, config, single
from viewcache.api.session.cache import Cache
from viewcache.errors import BadInput, BadVideo, ViewNotFound
from viewcache.materializer.media.decode import decode
from viewcache.materializer.media.pixels import to_rgb
from viewcache.materializer.media.probe import probe
from viewcache.materializer.reading.batch import Batch
from viewcache.materializer.reading.values import FrameRequest

BRANCHES = [
    {
        "name": "now-and-then",
        "branch_type": "random",
        "inputs": ["frame"],
        "outputs": ["a"],
        "branches": [
            {"prob": 0.5, "config": [{"color_jitter": {"brightness": 0.4}}, {"inv_sample": True}]},
            {"prob": 0.5, "config": None},
        ],
    },
    {
        "name": "later",
        "branch_type": "conditional",
        "inputs": ["a"],
        "outputs": ["b"],
        "branches": [
            {"condition": "iteration > 1", "config": [{"flip": {"flip_prob": 0.5}}]},
            {"condition": "else", "config": None},
        ],
    },
    single({"resize": {"short_side": 30}}, {"random_crop": {"shape": [24, 24]}}, name="crop", of="b", into="c"),
]
"""Branches of two kinds, an operation on the order of frames, and draws."""

MERGED = [
    {"name": "two", "branch_type": "multi", "inputs": ["frame"], "outputs": ["a", "b"]},
    single({"random_crop": {"shape": [24, 24]}}, name="crop", of="a", into="c"),
    single({"resize": {"shape": [24, 24]}}, name="small", of="b", into="d"),
    {"name": "both", "branch_type": "merge", "inputs": ["c", "d"], "outputs": ["e"]},
    single({"flip": {"flip_prob": 0.5}}, name="flip", of="e", into="f"),
]
"""Two streams that are concatenated over time, and a step after it."""


@pytest.fixture(scope="module")
def branched(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cache]:
    """A cache whose pipeline branches."""
    with viewcache.open(config(tmp_path_factory.mktemp("store"), videos, augmentation=BRANCHES)) as opened:
        opened.read("train", 0, 0)
        yield opened


@pytest.fixture(scope="module")
def merged(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cache]:
    """A cache whose pipeline merges."""
    with viewcache.open(config(tmp_path_factory.mktemp("store"), videos, augmentation=MERGED)) as opened:
        opened.read("train", 0, 0)
        yield opened


def batches(cache: Cache) -> Iterator[Batch]:
    """All of a task's batches."""
    for epoch in range(3):
        for iteration in range(2):
            yield cache.read("train", epoch, iteration)


def assert_last_step_is_the_batch(cache: Cache, last: int) -> None:
    """Compare the first and last frame of every clip of every batch."""
    for batch in batches(cache):
        for k, video in enumerate(batch.videos):
            for t in (0, 3):
                got = cache.aug("train", video, int(batch.frame[k, t]), last, epoch=batch.epoch, sample=k % 2)
                np.testing.assert_array_equal(got, batch.video[k, t])


def test_the_last_step_is_the_batch(cache: Cache) -> None:
    """A frame after its last step is, to the bit, what every batch holds of it."""
    assert_last_step_is_the_batch(cache, len(STEPS))


def test_the_last_step_is_the_batch_through_branches(branched: Cache) -> None:
    """The same where the pipeline branches by chance and by iteration, and turns clips around in time."""
    assert_last_step_is_the_batch(branched, len(BRANCHES))


def test_each_step_does_its_part(cache: Cache) -> None:
    """aug1 is the frame resized and cropped; aug2 is aug1, flipped or not, as the clip was."""
    flipped = set()
    for epoch in range(3):
        one, two = (cache.aug("train", "cat", 9, depth, epoch=epoch) for depth in (1, 2))
        assert one.shape == two.shape == (3, 32, 32)
        was = not np.array_equal(one, two)
        np.testing.assert_array_equal(two, one[:, :, ::-1] if was else one)
        flipped.add(was)
    assert cache.frame("train", "cat", 9).shape == (3, 48, 64)


def test_samples_draw_apart(cache: Cache) -> None:
    """The two samples of a video draw their own crops, each the same for all frames of its clip."""
    task = cache.task("train")
    drawn = {
        (epoch, sample, frame): str(task.describe_frame(FrameRequest("cat", frame, 1, epoch, sample)).recipe)
        for epoch in range(3)
        for sample in range(2)
        for frame in (0, 5)
    }
    assert len(set(drawn.values())) > 2
    assert all(drawn[epoch, sample, 0] == drawn[epoch, sample, 5] for epoch, sample, _ in drawn)


def test_order_of_asking_changes_no_pixel(videos: Path, tmp_path: Path) -> None:
    """A frame and its augmentations, made in one job, alone, or in either order, have the same bytes (law 3)."""
    paths = ["train/cat/frame5", "train/cat/frame5/aug1?epoch=0", "train/cat/frame5/aug2?epoch=0"]
    seen = []
    for number, order in enumerate([[0, 1, 2], [2, 1, 0], [1, 0, 2]]):
        with viewcache.open(config(tmp_path / str(number), videos)):
            fs = fsspec.filesystem("view", cache=str(tmp_path / str(number)))
            asked = [paths[k] for k in order]
            parts = fs.cat_ranges(asked, [0] * 3, [None] * 3) if number else [fs.cat_file(path) for path in asked]
            seen.append([parts[order.index(k)] for k in range(3)])
    assert seen[0] == seen[1] == seen[2]


def test_a_frame_is_what_a_decoder_gives(cache: Cache, videos: Path) -> None:
    """frame{i} is the i-th frame in presentation order, in the one conversion that defines the data."""
    with av.open(str(videos / "dog.mp4")) as container:
        decoded = [to_rgb(frame) for frame in container.decode(video=0)]
    for i in (0, 1, 13, 29):
        np.testing.assert_array_equal(cache.frame("train", "dog", i), decoded[i])


def test_streams_before_a_merge(merged: Cache) -> None:
    """Each stream that is merged later has its single frames; concatenated, they are the batch's."""
    batch = merged.read("train", 0, 0)
    for k, video in enumerate(batch.videos):
        depths = [2] * 4 + [3] * 4
        singles = [
            merged.aug("train", video, frame, depth, epoch=0, sample=k % 2)
            for frame, depth in zip(batch.frame[k].tolist(), depths, strict=True)
        ]
        flipped = np.stack(singles)[..., ::-1]
        assert np.array_equal(batch.video[k], np.stack(singles)) or np.array_equal(batch.video[k], flipped)


def test_nothing_after_a_merge(merged: Cache) -> None:
    """A merge and the steps after it have no single frame: refused with the steps that have, and not listed."""
    for depth in (4, 5):
        with pytest.raises(ViewNotFound, match=r"after a merge.*after steps 1, 2, 3"):
            merged.aug("train", "cat", 0, depth)
    fs = fsspec.filesystem("view", cache=merged.tier.root)
    assert fs.glob("train/cat/frame0/aug*") == [f"train/cat/frame0/aug{depth}" for depth in (1, 2, 3)]


def test_a_step_with_several_outputs(merged: Cache) -> None:
    """?output= names one of a step's outputs; the first is the default, another name is refused with the list."""
    for output in (None, "a", "b"):
        got = merged.aug("train", "cat", 4, 1, output=output)
        np.testing.assert_array_equal(got, merged.frame("train", "cat", 4))
    with pytest.raises(ViewNotFound, match="makes a, b"):
        merged.aug("train", "cat", 4, 1, output="c")


def test_without_an_epoch_it_is_the_current_generation(videos: Path, tmp_path: Path) -> None:
    """Without ?epoch= the clip is the first use of the video in the generation that the readers have reached."""
    with viewcache.open(config(tmp_path, videos)) as cache:
        task = cache.task("train")
        keys = {epoch: task.describe_frame(FrameRequest("cat", 3, 1, epoch)).key for epoch in range(3)}
        assert task.describe_frame(FrameRequest("cat", 3, 1)).key == keys[0]
        cache.read("train", 1, 1)
        cache.catalog.flush()
        assert task.describe_frame(FrameRequest("cat", 3, 1)).key == keys[2]


def test_a_video_that_is_not_drawn(videos: Path, tmp_path: Path) -> None:
    """With drop_last a video may sit out an epoch: its augmentations of that epoch are refused, its frames are not."""
    sampling = {"videos_per_batch": 3, "frames_per_video": 4, "frame_stride": 2, "samples_per_video": 1}
    with viewcache.open(config(tmp_path, videos, sampling=sampling, drop_last=True)) as cache:
        fs = fsspec.filesystem("view", cache=str(tmp_path))
        drawn = set(fs.info("train/0/0/view")["view"]["videos"])
        (left,) = {"cat", "dog", "12", "pets.-a.20b"} - drawn
        with pytest.raises(ViewNotFound, match="is not drawn in epoch 0"):
            cache.aug("train", left, 0, 1, epoch=0)
        assert fs.exists(f"train/{left}/frame0")


def test_no_steps(videos: Path, tmp_path: Path) -> None:
    """A task without augmentation has frames and nothing below them."""
    with viewcache.open(config(tmp_path, videos, augmentation=[])) as cache:
        fs = fsspec.filesystem("view", cache=str(tmp_path))
        assert fs.ls("train/cat/frame0", detail=False) == ["train/cat/frame0"]
        with pytest.raises(ViewNotFound, match="has no augmentation steps"):
            cache.aug("train", "cat", 0, 1)


def test_a_damaged_frame_is_made_again(videos: Path, tmp_path: Path) -> None:
    """Stored bytes of a frame that changed on the disk are noticed and made anew, the same (law 5)."""
    with viewcache.open(config(tmp_path, videos)) as cache:
        first = cache.frame("train", "cat", 7)
        (shard,) = (path for path in Path(cache.tier.root).glob("objects/*/*/c.*"))
        data = bytearray(shard.read_bytes())
        data[100] ^= 1
        shard.write_bytes(data)
        np.testing.assert_array_equal(cache.frame("train", "cat", 7), first)
        assert shard.read_bytes() != bytes(data)


def test_a_kept_frame_is_known_after_a_restart(videos: Path, tmp_path: Path) -> None:
    """A frame has a row in the catalog, so the next run finds it and decodes nothing."""
    with viewcache.open(config(tmp_path, videos)) as cache:
        first = cache.frame("train", "cat", 7)
    with viewcache.open(config(tmp_path, videos)) as cache:
        np.testing.assert_array_equal(cache.frame("train", "cat", 7), first)
        assert not cache.busy_seconds()


def test_a_bad_video_has_no_frames(videos: Path, tmp_path: Path) -> None:
    """A file that is no video is listed as a file, has no frames, and asking for one names it."""
    folder = tmp_path / "videos"
    folder.mkdir()
    for path in videos.glob("*.mp4"):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "broken.mp4").write_bytes(b"no video" * 100)
    with viewcache.open(config(tmp_path / "store", folder, on_bad_video="skip")) as cache:
        fs = fsspec.filesystem("view", cache=str(tmp_path / "store"))
        assert "train/broken.mp4" in fs.ls("train", detail=False)
        assert "train/broken" not in fs.ls("train", detail=False)
        assert fs.cat_file("train/broken.mp4") == b"no video" * 100
        with pytest.raises(BadVideo, match=r"broken\.mp4"):
            cache.frame("train", "broken", 0)


def test_a_link_out_of_the_dataset_is_not_followed(videos: Path, tmp_path: Path) -> None:
    """A link that leaves the dataset's folder gives neither frames nor bytes (law 10)."""
    folder = tmp_path / "videos"
    folder.mkdir()
    for path in videos.glob("*.mp4"):
        (folder / path.name).write_bytes(path.read_bytes())
    (tmp_path / "secret").write_bytes(b"secret" * 100)
    (folder / "link.mp4").symlink_to(tmp_path / "secret")
    with viewcache.open(config(tmp_path / "store", folder, on_bad_video="skip")):
        fs = fsspec.filesystem("view", cache=str(tmp_path / "store"))
        assert "train/link.mp4" not in fs.ls("train", detail=False)
        with pytest.raises(ViewNotFound, match="leaves the dataset's folder"):
            fs.cat_file("train/link.mp4")


def test_decoded_frames_are_kept_as_the_decoders_planes(videos: Path, tmp_path: Path) -> None:
    """A frame that is kept takes half the bytes of RGB, says what it is, and converts to the same pixels when read."""
    with viewcache.open(config(tmp_path, videos)) as opened:
        first = opened.frame("train", "cat", 7)
        again = opened.frame("train", "cat", 7)
    (metadata,) = tmp_path.glob("objects/*/*/zarr.json")
    described = json.loads(metadata.read_text())
    assert described["shape"] == [1, first.size // 2]
    assert described["attributes"]["kind"] == "frames"
    assert described["attributes"]["pix_fmt"] == "yuv420p"
    assert np.array_equal(first, again)
    uri = str(videos / "cat.mp4")
    ((_, picture),) = decode(uri, probe(uri), np.array([7]))
    assert np.array_equal(first, to_rgb(picture))


def test_frames_by_time(branched: Cache) -> None:
    """The frame that is shown nearest to a time, as decoded and after steps; behind the end the range is named."""
    name = branched.task("train").task.dataset.names()[0]
    fs = fsspec.filesystem("view")
    times = [branched.task("train").describe_frame(FrameRequest(name, i)).time_s for i in range(10)]
    for number, time_s in enumerate(times):
        path = f"train/{name}/at/{time_s + 0.001:.3f}s"
        assert fs.info(path)["view"]["frame"] == [number]
        assert fs.cat_file(path) == fs.cat_file(f"train/{name}/frame{number}")
    half = (times[3] + times[4]) / 2
    (earlier,) = fs.info(f"train/{name}/at/{half:.9f}s")["view"]["frame"]
    assert earlier == 3
    assert fs.cat_file(f"train/{name}/at/{times[4]:.6f}s/aug1?epoch=0") == fs.cat_file(
        f"train/{name}/frame4/aug1?epoch=0"
    )
    assert fs.ls(f"train/{name}/at") == []
    assert fs.isdir(f"train/{name}/at")
    assert not fs.exists(f"train/{name}/at/999s")
    with pytest.raises(ViewNotFound, match=r"is shown from 0 s to [0-9.]+ s; asked for 999 s"):
        fs.info(f"train/{name}/at/999s")
    found = branched.frames("train", name, seconds=[times[4], times[0]])
    assert np.array_equal(found, branched.frames("train", name, [4, 0]))
    for numbers, seconds in (([], []), ([1], [1.0])):
        with pytest.raises(BadInput, match="give numbers of frames, or seconds"):
            branched.frames("train", name, numbers, seconds=seconds)
