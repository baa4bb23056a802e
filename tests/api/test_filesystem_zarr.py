"""A view as a Zarr group, read by zarr-python."""

import fsspec
import numpy as np
import pytest
import zarr

import viewcache
from tests.api.small import config, single
from viewcache.api.session.cache import Cache
from viewcache.api.views.zarr_group import view_group
from viewcache.errors import BadVideo, Broken, ViewNotFound

URL = "view://train/0/1/view.zarr"
ARRAYS = ("video", "label", "index", "frame", "time_s", "sample", "item", "start_s", "end_s")


@pytest.mark.parametrize("chain", ["", "simplecache::"])
def test_a_client_reads_the_batch(cache: Cache, chain: str) -> None:
    """zarr.open of a view gives the batch's pixels, labels, ids, frames and times, and names its axes."""
    batch = cache.read("train", 0, 1)
    group = zarr.open(chain + URL, mode="r")
    assert isinstance(group, zarr.Group)
    assert sorted(group.keys()) == sorted(ARRAYS)
    for name in group:
        array = group[name]
        assert isinstance(array, zarr.Array)
        expected = getattr(batch, name)
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array[:], expected)
    assert group.attrs["videos"] == list(batch.videos)
    assert group.attrs["keys"] == list(batch.keys)
    video = zarr.open_array(URL + "/video", mode="r")
    assert video.metadata.dimension_names == ("clip", "time", "channel", "height", "width")  # type: ignore[union-attr]


def test_a_chunk_is_a_clip(cache: Cache) -> None:
    """One clip is one chunk, so reading a part of a clip asks for that clip only."""
    video = zarr.open_array(URL + "/video", mode="r")
    assert video.chunks == (1, *video.shape[1:])
    np.testing.assert_array_equal(video[2, 1:3], cache.read("train", 0, 1).video[2, 1:3])


def test_every_promised_key_is_there(fs: fsspec.AbstractFileSystem) -> None:
    """A Zarr client takes a missing chunk for zeros, so all chunks that the metadata promises exist, and no others."""
    names = {path.removeprefix("train/0/1/view.zarr/") for path in fs.find("train/0/1/view.zarr")}
    chunks = {f"video/c/{k}/0/0/0/0" for k in range(4)} | {
        "label/c/0",
        "index/c/0",
        "frame/c/0/0",
        "time_s/c/0/0",
        "sample/c/0",
        "item/c/0",
        "start_s/c/0",
        "end_s/c/0",
    }
    assert names == {"zarr.json", *(f"{array}/zarr.json" for array in ARRAYS), *chunks}
    for path in ("video/c/4/0/0/0/0", "video/c/0/0/0/0/1", ".zgroup", "label/c"):
        assert not fs.isfile(f"train/0/1/view.zarr/{path}")
    assert fs.ls("train/0/1/view.zarr/video/c", detail=False) == [f"train/0/1/view.zarr/video/c/{k}" for k in range(4)]


def test_stacked_streams_have_their_axis(videos: object, tmp_path: object) -> None:
    """After a stack the group has one axis more, in pixels, frames and times."""
    steps = [
        {"name": "two", "branch_type": "multi", "inputs": ["frame"], "outputs": ["a", "b"]},
        single({"resize": {"shape": [24, 24]}}, name="small", of="a", into="c"),
        single({"random_crop": {"shape": [24, 24]}}, name="crop", of="b", into="d"),
        {"name": "both", "branch_type": "merge", "inputs": ["c", "d"], "outputs": ["e"], "merge": "stack"},
    ]
    with viewcache.open(config(tmp_path, videos, augmentation=steps)) as cache:  # type: ignore[arg-type]
        batch = cache.read("train", 0, 0)
        group = zarr.open_group("view://train/0/0/view.zarr", mode="r", storage_options={"cache": str(tmp_path)})
        for name in ("video", "frame", "time_s"):
            np.testing.assert_array_equal(group[name][:], getattr(batch, name))  # type: ignore[index]
        assert group["video"].metadata.dimension_names[1] == "stream"  # type: ignore[union-attr,index]


@pytest.mark.parametrize("error", [ViewNotFound("gone"), BadVideo("bad")])
def test_a_chunk_that_fails_is_no_zeros(
    cache: Cache, fs: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Whatever keeps a promised chunk from being made is an error for the client, even "not found"."""

    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(type(cache.task("train")), "clips", fail)
    group = zarr.open_group(URL, mode="r")
    with pytest.raises((Broken, BadVideo)):
        group["video"][:]  # type: ignore[index]


def test_little_endian_whatever_the_machine(cache: Cache) -> None:
    """Small arrays are stored as their metadata says."""
    batch = cache.task("train").describe(0, 1)
    files = view_group(batch, batch.video.shape, lambda _: np.empty(0, np.uint8), lambda _: np.empty(0, np.uint8))
    np.testing.assert_array_equal(np.frombuffer(files["time_s/c/0/0"].head, "<f8").reshape(4, 4), batch.time_s)
    np.testing.assert_array_equal(np.frombuffer(files["index/c/0"].head, "<i8"), batch.index)
