"""``view://`` as fsspec sees it: names, sizes, metadata, bytes, and that nothing can be written."""

import errno
import io
import json
import pickle
import shutil
from pathlib import Path
from typing import Any, TypeAlias

import fsspec
import numpy as np
import pytest

import viewcache
from tests.api.small import config
from viewcache.api.session.cache import Cache
from viewcache.api.views.filesystem import ViewFileSystem
from viewcache.api.views.payload import Payload, PayloadFile
from viewcache.errors import BadInput, BadUrl, Closed, ReadOnly, ViewNotFound

FS: TypeAlias = fsspec.AbstractFileSystem
VIEW = "train/0/1/view"


def load(fs: FS, path: str) -> Any:
    """An ``.npy`` file behind a path."""
    with fs.open(path) as file:
        return np.load(file)


# Names ---------------------------------------------------------------------------------------------------------------


def test_the_tree_has_all_kinds(fs: FS) -> None:
    """Tasks hold epochs, videos and their files; videos hold frames; iterations hold the view in both forms."""
    assert fs.ls("", detail=False) == ["train"]
    names = ["0", "1", "12", "12.mp4", "2", "cat", "cat.mp4", "dog", "dog.mp4", "pets.-a.20b", "pets.-a.20b.mkv"]
    assert fs.ls("train", detail=False) == [f"train/{name}" for name in names]
    assert set(fs.ls("train/cat", detail=False)) == {f"train/cat/frame{i}" for i in range(40)}
    assert fs.ls("train/0", detail=False) == ["train/0/0", "train/0/1"]
    assert fs.ls("train/0/1", detail=False) == ["train/0/1/view", "train/0/1/view.zarr"]
    assert [entry["type"] for entry in fs.ls("train/0/1")] == ["file", "directory"]
    assert set(fs.ls("train/12", detail=False)) == {f"train/12/frame{i}" for i in range(20)}


def test_augmentations_are_listed_below_their_frame(fs: FS) -> None:
    """A frame is a file; asked for what is below it, it names itself and its augmentations."""
    names = ["train/cat/frame3", "train/cat/frame3/aug1", "train/cat/frame3/aug2"]
    assert fs.ls("train/cat/frame3", detail=False) == names
    assert fs.glob("train/cat/frame3/aug*") == names[1:]
    assert fs.isfile("train/cat/frame3")
    assert not fs.isdir("train/cat/frame3")


def test_what_is_listed_is_there_with_that_size(fs: FS) -> None:
    """Everything that find gives can be opened and has as many bytes as the listing said."""
    found = (
        fs.find("train/0", detail=True) | fs.find("train/dog/frame2", detail=True) | fs.glob("train/*.*", detail=True)
    )
    assert len(found) > 30
    for path, info in found.items():
        assert fs.exists(path)
        if info["type"] == "file":
            assert fs.size(path) == info["size"] == len(fs.cat_file(path)), path


def test_globs_and_walks(fs: FS) -> None:
    """Wildcards work in every component, and walk visits every folder."""
    assert fs.glob("train/*/frame19") == [f"train/{name}/frame19" for name in ("12", "cat", "dog", "pets.-a.20b")]
    assert fs.glob("view://train/*/*/view") == [f"train/{epoch}/{i}/view" for epoch in range(3) for i in range(2)]
    assert fs.glob("train/**/view.zarr/zarr.json")[0] == "train/0/0/view.zarr/zarr.json"
    assert fs.glob("train/nothing*") == []
    folders = [path for path, _, _ in fs.walk("train", maxdepth=2)]
    assert folders[:3] == ["train", "train/0", "train/1"]


def test_a_query_is_no_wildcard(fs: FS) -> None:
    """Paths with a query go through the calls that expand wildcards."""
    path = f"{VIEW}?rank=1&world=2"
    assert fs.glob(path) == [path]
    assert fs.glob(path, detail=True)[path]["name"] == path
    for what in (fs.glob, fs.cat):
        with pytest.raises(FileNotFoundError, match="iteration"):
            what("train/0/9/view?rank=1&world=2")
        with pytest.raises(FileNotFoundError, match="sample"):
            what("train/cat/frame3/aug1?epoch=0&sample=99")
        with pytest.raises(BadUrl):
            what("train/0/0/view?color=1")
    assert len(fs.cat(path)) == fs.size(path)


def test_listing_and_metadata_decode_nothing(videos: Path, tmp_path: Path) -> None:
    """Names, sizes and metadata of everything come from the plan: no worker starts and nothing is stored."""
    with viewcache.open(config(tmp_path, videos)) as cache:
        fs = fsspec.filesystem("view", cache=str(tmp_path))
        files = fs.find("train")
        assert {"train/2/1/view", "train/2/1/view.zarr/video/c/3/0/0/0/0", "train/dog/frame29"} <= set(files)
        for path in [
            "train/2/1/view",
            "train/2/1/view.zarr",
            "train/dog/frame29",
            "train/dog/frame29/aug1",
            "train/dog.mp4",
        ]:
            assert fs.info(path)["view"]["shape"]
            fs.ukey(path)
            fs.modified(path)
        fs.open("train/2/1/view").close()
        assert not cache.busy_seconds()
        assert cache.tier.used_bytes == 0


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("nope", "it has train"),
        ("train/9", "epochs 0 to 2"),
        ("train/9/0/view", "epochs 0 to 2"),
        ("train/0/7", "iterations 0 to 1"),
        ("train/0/7/view", "iterations 0 to 1"),
        ("train/0/7/view.zarr/zarr.json", "iterations 0 to 1"),
        ("train/cow", "it has 4: '12', 'cat', 'dog'"),
        ("train/cow.mp4", "it has 4"),
        ("train/cat.avi", "is cat.mp4"),
        ("train/cat/frame40", "frames 0 to 39"),
        ("train/cat/frame0/aug3", "steps 1 to 2"),
        ("train/cat/frame0/aug0", "steps 1 to 2"),
        ("train/cat/frame0/aug1?epoch=3", "epochs 0 to 2"),
        ("train/cat/frame0/aug1?sample=2", "samples 0 to 1"),
        ("train/cat/frame0/aug1?output=z", "makes a"),
        ("train/0/0/view.zarr/pixels", "video, label, index, frame, time_s"),
    ],
)
def test_what_is_not_there_says_what_is(fs: FS, path: str, hint: str) -> None:
    """A path that names nothing is a FileNotFoundError with the valid range, whichever way it is asked for."""
    assert not fs.exists(path)
    for ask in (fs.info, fs.ls, fs.cat_file, fs.open, fs.ukey, fs.modified):
        with pytest.raises(ViewNotFound, match=hint) as caught:
            ask(path)
        assert isinstance(caught.value, FileNotFoundError)
        assert caught.value.errno == errno.ENOENT


def test_malformed_paths_and_ranks_are_bad_input(fs: FS) -> None:
    """A malformed path is a ValueError; a world larger than the batch says so."""
    for ask in (fs.info, fs.ls, fs.cat_file, fs.open):
        with pytest.raises(BadUrl):
            ask("train/cat/frame0/aug1?frame=2")
    with pytest.raises(BadInput, match="cannot be shared by 3 ranks"):
        fs.open(f"{VIEW}?rank=0&world=3")
    assert not fs.exists("train/c t")


def test_folders_are_not_files(fs: FS) -> None:
    """A folder cannot be opened, has no time, and says that it is one."""
    for path in ("train", "train/0", "train/cat", "train/0/1", "train/0/1/view.zarr", "train/pets.-a.20b"):
        assert fs.isdir(path)
        with pytest.raises(ViewNotFound, match="is a folder"):
            fs.open(path)
        assert fs.info(path)["view"]["kind"] in ("folder", "zarr")
    with pytest.raises(ViewNotFound, match="is a folder"):
        fs.modified("train")


# Bytes ---------------------------------------------------------------------------------------------------------------


def test_a_view_is_the_batch(cache: Cache, fs: FS) -> None:
    """np.load of a view's path gives the batch that the cache reads, in any framework's hands."""
    batch = cache.read("train", 0, 1)
    np.testing.assert_array_equal(np.load(fsspec.open(f"view://{VIEW}").open()), batch.video)
    np.testing.assert_array_equal(np.load(io.BytesIO(fs.cat_file(VIEW))), batch.video)


def test_ranks_share_a_view(cache: Cache, fs: FS) -> None:
    """The ranks' parts put together are the whole view."""
    parts = [load(fs, f"{VIEW}?rank={rank}&world=2") for rank in range(2)]
    np.testing.assert_array_equal(np.concatenate(parts), load(fs, VIEW))


def test_a_range_makes_only_its_clips(videos: Path, tmp_path: Path) -> None:
    """A range of a view makes the clips of the videos that it touches, and does not count as reading the batch."""
    with viewcache.open(config(tmp_path, videos)) as cache:
        fs = fsspec.filesystem("view", cache=str(tmp_path))
        size = fs.size(VIEW)
        shape = fs.info(VIEW)["view"]["shape"]
        clip = int(np.prod(shape[1:]))
        tail = fs.cat_file(VIEW, -clip, None)
        made = cache.tier.used_bytes
        assert made > 0
        cache.catalog.flush()
        assert cache.catalog.load_progress(cache.task("train").task_id) == []
        whole = fs.cat_file(VIEW)
        assert tail == whole[-clip:]
        assert cache.tier.used_bytes > made
        assert fs.cat_file(VIEW, 10, size - 10) == whole[10:-10]
        assert fs.cat_file(VIEW, size, size + 5) == b""


def test_ranges_are_slices(fs: FS) -> None:
    """Every range of every kind of file is the slice of its bytes."""
    for path in (
        VIEW,
        "train/cat/frame3",
        "train/cat/frame3/aug2",
        "train/cat.mp4",
        "train/0/1/view.zarr/video/c/1/0/0/0/0",
    ):
        whole = fs.cat_file(path)
        ranges = [
            (0, 10),
            (5, None),
            (None, 7),
            (-9, None),
            (-9, -3),
            (120, 140),
            (len(whole) - 3, len(whole) + 9),
            (7, 7),
        ]
        for start, end in ranges:
            assert fs.cat_file(path, start, end) == whole[start:end], (path, start, end)
        starts, ends = [0, 5, 100], [4, 50, 300]
        assert fs.cat_ranges([path] * 3, starts, ends) == [whole[a:b] for a, b in zip(starts, ends, strict=True)]


def test_frames_by_the_list(fs: FS) -> None:
    """Many frames are made together, each as if it were alone; one that is not there fails alone."""
    paths = [f"train/dog/frame{i}" for i in range(6)] + [
        "train/dog/frame3/aug1",
        "train/cat/frame5",
        "train/dog/frame99",
    ]
    got = fs.cat_ranges(paths, [0] * 9, [None] * 9)
    assert isinstance(got[-1], ViewNotFound)
    for path, data in zip(paths[:-1], got[:-1], strict=True):
        assert data == fs.cat_file(path)


def test_an_opened_view_is_a_file(fs: FS) -> None:
    """read, readinto, seek and tell do what a file's do; a closed one says so."""
    whole = fs.cat_file(VIEW)
    with fs.open(VIEW) as file:
        assert file.readable()
        assert file.seekable()
        assert not file.writable()
        assert file.size == file.seek(0, 2) == len(whole)
        assert file.seek(-5, 1) == len(whole) - 5
        assert file.read(100) == whole[-5:]
        assert file.read() == b""
        file.seek(100)
        buffer = bytearray(300)
        assert file.readinto(buffer) == 300
        assert bytes(buffer) == whole[100:400]
        assert file.tell() == 400
        assert file.readall() == whole[400:]
        file.seek(0)
        assert io.BufferedReader(file).read() == whole
    with pytest.raises(Closed):
        file.read()


def test_a_file_loads_its_pixels_once() -> None:
    """The head costs nothing; the first byte past it loads all rows, the rest comes out of memory."""
    loads: list[range] = []

    def rows(which: range) -> np.ndarray:
        loads.append(which)
        return np.arange(12, dtype=np.uint8).reshape(3, 4)[which.start : which.stop]

    file = PayloadFile(Payload(b"head", 3, 4, rows), "x")
    assert file.read(4) == b"head"
    assert not loads
    assert file.read(3) + file.read() == bytes(range(12))
    assert loads == [range(3)]
    assert Payload(b"head", 3, 4, rows).read(9, 11) == bytes([5, 6])
    assert loads[1:] == [range(1, 2)]


def test_a_source_comes_as_it_is(fs: FS, videos: Path) -> None:
    """A video's path gives the encoded bytes, from a path with a space and a folder in it too."""
    assert fs.cat_file("train/pets.-a.20b.mkv") == (videos / "pets" / "a b.mkv").read_bytes()
    with fs.open("train/cat.mp4") as file:
        assert file.size == (videos / "cat.mp4").stat().st_size
        assert file.read() == (videos / "cat.mp4").read_bytes()


def test_a_source_that_changed_is_refused(videos: Path, tmp_path: Path) -> None:
    """A file that is gone, or another one since the cache was opened, is not served under the old one's size."""
    folder = tmp_path / "videos"
    shutil.copytree(videos, folder)
    with viewcache.open(config(tmp_path / "store", folder)):
        fs = fsspec.filesystem("view", cache=str(tmp_path / "store"))
        (folder / "dog.mp4").write_bytes((folder / "cat.mp4").read_bytes())
        with pytest.raises(ViewNotFound, match="has changed"):
            fs.open("train/dog.mp4")
        (folder / "dog.mp4").unlink()
        with pytest.raises(ViewNotFound, match="was there"):
            fs.cat_file("train/dog.mp4")


# Metadata ------------------------------------------------------------------------------------------------------------


def test_a_view_tells_what_it_shows(cache: Cache, fs: FS) -> None:
    """info()["view"] has shape, videos, frames, times, labels and keys of the batch, as plain values."""
    about, batch = fs.info(VIEW)["view"], cache.read("train", 0, 1)
    assert about["shape"] == list(batch.video.shape)
    assert about["dtype"] == "uint8"
    assert about["videos"] == list(batch.videos)
    assert about["index"] == batch.index.tolist()
    assert about["label"] == batch.label.tolist()
    assert about["frame"] == batch.frame.tolist()
    assert about["time_s"] == batch.time_s.tolist()
    assert about["keys"] == list(batch.keys)
    assert json.loads(json.dumps(about)) == about


def test_a_frame_tells_what_it_shows(fs: FS) -> None:
    """A frame's metadata has its time in seconds and, after augmentation, what was drawn."""
    about = fs.info("train/cat/frame10")["view"]
    assert (about["shape"], about["frame"], about["videos"]) == ([3, 48, 64], [10], ["cat"])
    assert about["time_s"] == [pytest.approx(0.4)]
    recipe = fs.info("train/cat/frame10/aug1?epoch=1")["view"]["recipe"]
    assert [step["op"] for step in recipe] == ["resize", "random_crop"]
    assert set(recipe[1]["drawn"]) == {"y", "x", "h", "w"}
    assert fs.info("train/cat.mp4")["view"]["shape"] == [40, 3, 48, 64]


def test_a_folder_tells_what_a_loop_needs(fs: FS, cache: Cache) -> None:
    """Which tasks, epochs, iterations and classes there are, and of a video's folder what its file is."""
    assert fs.info("")["view"] == {"kind": "folder", "tasks": ["train"]}
    task, handle = fs.info("train")["view"], cache.task("train")
    assert task == {
        "kind": "folder",
        "task": "train",
        "epochs": handle.epochs,
        "iterations": handle.iterations(0),
        "videos_per_batch": handle.videos_per_batch,
        "samples_per_video": handle.samples_per_video,
        "layout": "TCHW",
        "classes": list(handle.classes),
    }
    epoch = {"kind": "folder", "task": "train", "epoch": 1, "iterations": handle.iterations(1)}
    assert fs.info("train/1")["view"] == epoch
    assert fs.info("train/1/0")["view"] == epoch | {"iteration": 0}
    assert fs.info("train/cat")["view"] == fs.info("train/cat.mp4")["view"] | {"kind": "folder"}
    assert fs.info("train/cat/frame3")["view"]["depths"] == list(handle.depths())


def test_identity_follows_the_bytes(fs: FS) -> None:
    """A path's ukey is the same at every asking and no other path's; times are aware of their zone."""
    paths = [
        VIEW,
        f"{VIEW}?rank=0&world=2",
        "train/0/0/view",
        "train/cat/frame1",
        "train/cat/frame1/aug1",
        "train/cat.mp4",
    ]
    assert [fs.ukey(path) for path in paths] == [fs.ukey(path) for path in paths]
    assert len({fs.ukey(path) for path in paths}) == len(paths)
    for path in paths:
        assert fs.created(path) == fs.modified(path)
        assert fs.modified(path).tzinfo is not None


def test_a_path_never_changes_its_meaning(videos: Path, tmp_path: Path) -> None:
    """Once read, a path's bytes and metadata stay: read in another order, after reopening, after the dataset grew."""
    folder = tmp_path / "videos"
    shutil.copytree(videos, folder)
    paths = ["train/0/1/view", "train/1/0/view", "train/cat/frame7", "train/cat/frame7/aug2?epoch=1&sample=1"]
    settings = config(tmp_path / "store", folder)
    with viewcache.open(settings):
        fs = fsspec.filesystem("view", cache=str(tmp_path / "store"))
        first = {path: (fs.cat_file(path), fs.info(path)["view"]) for path in paths}
    shutil.copy(folder / "cat.mp4", folder / "another.mp4")
    with viewcache.open(settings):
        for path in reversed(paths):
            assert (fs.cat_file(path), fs.info(path)["view"]) == first[path], path


# Chains --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["simplecache", "filecache"])
def test_caching_file_systems_chain(fs: FS, tmp_path: Path, kind: str) -> None:
    """A local cache of whole files in front of view:// gives the same bytes, the second time from its own folder."""
    options = {kind: {"cache_storage": str(tmp_path)} | ({"check_files": True} if kind == "filecache" else {})}
    for path in (VIEW, "train/cat/frame2/aug1", "train/cat.mp4"):
        for _ in range(2):
            with fsspec.open(f"{kind}::view://{path}", **options) as file:
                assert file.read() == fs.cat_file(path)
    assert len([each for each in tmp_path.iterdir() if each.is_file() and each.name != "cache"]) == 3


def test_a_folder_comes_home_whole(fs: FS, tmp_path: Path) -> None:
    """A recursive get copies a view and its group as files."""
    fs.get("train/0/1", str(tmp_path / "copy"), recursive=True)
    np.testing.assert_array_equal(np.load(tmp_path / "copy" / "view"), load(fs, VIEW))
    assert (tmp_path / "copy" / "view.zarr" / "video" / "zarr.json").is_file()


# Nothing can be written ----------------------------------------------------------------------------------------------

WRITES = [
    "mkdir",
    "makedirs",
    "mkdirs",
    "makedir",
    "rmdir",
    "rm",
    "rm_file",
    "delete",
    "touch",
    "pipe",
    "pipe_file",
    "put",
]
WRITES += ["put_file", "upload", "copy", "cp", "cp_file", "mv", "move", "rename", "write_bytes", "write_text"]


@pytest.mark.parametrize("method", WRITES)
def test_every_write_is_refused(fs: FS, method: str) -> None:
    """Each method that would change something raises EROFS."""
    with pytest.raises(OSError, match="read-only") as caught:
        getattr(fs, method)("train/cat", "train/cow")
    assert caught.value.errno == errno.EROFS
    assert isinstance(caught.value, ReadOnly)


@pytest.mark.parametrize("mode", ["wb", "w", "ab", "a", "xb", "x", "r+b"])
def test_no_mode_writes(fs: FS, mode: str) -> None:
    """Opening for writing, appending or exclusive creation raises EROFS."""
    with pytest.raises(OSError, match="read-only") as caught:
        fs.open("train/new", mode)
    assert caught.value.errno == errno.EROFS


def test_transactions_are_refused(fs: FS) -> None:
    """A transaction, which only writes need, does not begin."""
    with pytest.raises(ReadOnly):
        fs.start_transaction()


def test_instances_are_shared_and_pickle(fs: FS) -> None:
    """Equal options give one instance, and a pickled one is the same again."""
    assert fsspec.filesystem("view") is fs
    assert pickle.loads(pickle.dumps(fs)) is fs
    other = ViewFileSystem(cache="/somewhere")
    assert pickle.loads(pickle.dumps(other)) is other is not fs
    assert ViewFileSystem.from_json(other.to_json()) is other
