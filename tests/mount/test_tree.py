"""What lies below a mount: the tree of ``view://``, its bytes and its metadata, for programs that know files only."""

import errno
import json
import mmap
import os
import random
import stat
import subprocess
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zarr

from tests.mount.mounted import Mounted
from viewcache.api.service.attached import AttachedCache
from viewcache.api.views.tree import ViewTree

VIEW = "train/0/1/view"
FILES = {
    "view": VIEW,
    "share of a rank": "train/0/1/view?rank=1&world=2",
    "source": "train/cats.-v1.mp4",
    "frame": "train/cats.-v1/frame7",
    "augmented frame": "train/cats.-v1/frame7.aug1?epoch=0",
    "metadata of a group": "train/0/1/view.zarr/video/zarr.json",
    "chunk of a group": "train/0/1/view.zarr/video/c/1/0/0/0/0",
}
FOLDERS = ["", "train", "train/0", "train/0/1", "train/cats.-v1", "train/0/1/view.zarr", "train/0/1/view.zarr/video"]


@pytest.fixture(scope="module")
def tree(cache: AttachedCache) -> ViewTree:
    """The same tree, as ``view://`` has it."""
    return ViewTree(cache)


def _url(path: str) -> str:
    return path.replace(".aug", "/aug")


def test_every_kind_is_a_file(subtests: pytest.Subtests, shared: Mounted, tree: ViewTree) -> None:
    """open, read, close: each kind of path has the bytes of ``view://``, and ``stat`` knows their number before."""
    for what, path in FILES.items():
        with subtests.test(what):
            file = shared.root / path
            size = file.stat().st_size
            assert file.read_bytes() == tree.read(_url(path))
            assert size == len(file.read_bytes())


def test_every_folder_lists_the_same(subtests: pytest.Subtests, shared: Mounted, tree: ViewTree) -> None:
    """Names, and which of them are folders; what a listing says and what `stat` says are one."""
    for path in FOLDERS:
        with subtests.test(path or "the root"):
            found = {each.name: each.is_dir(follow_symlinks=False) for each in os.scandir(shared.root / path)}
            assert found == {each.path.rpartition("/")[2]: each.is_folder for each in tree.children(path)}
            for name, is_folder in found.items():
                assert (shared.root / path / name).is_dir() == is_folder


def test_getxattr_tells_what_info_tells(subtests: pytest.Subtests, shared: Mounted, tree: ViewTree) -> None:
    """Each value of the metadata is an attribute in JSON, of files and of folders; their names can be listed."""
    for path in [*FILES.values(), *FOLDERS]:
        with subtests.test(path or "the root"):
            about = tree.describe(_url(path))
            found = {name: os.getxattr(shared.root / path, name) for name in os.listxattr(shared.root / path)}
            assert {name.removeprefix("user.viewcache."): json.loads(text) for name, text in found.items()} == about


def test_what_a_loop_needs(shared: Mounted, cache: AttachedCache) -> None:
    """A task's folder has its epochs, iterations and classes; an open file has the labels of its clips."""

    def told(path: Path | int, name: str) -> object:
        return json.loads(os.getxattr(path, f"user.viewcache.{name}"))

    task = shared.root / "train"
    assert [told(task, name) for name in ("epochs", "iterations", "classes")] == [3, 5, ["cats", "dogs"]]
    assert told(task / "2", "iterations") == 5
    with (shared.root / VIEW).open("rb") as file:
        assert np.array_equal(np.load(file), cache.read("train", 0, 1).video)
        assert told(file.fileno(), "label") == cache.read("train", 0, 1).label.tolist()


def test_unknown_attributes_are_not_there(shared: Mounted) -> None:
    """Other names are answered as by any file system, so that `ls -l` and `cp -a` go on."""
    for name in ("user.viewcache.colour", "user.else", "security.selinux", "system.posix_acl_access"):
        with pytest.raises(OSError, match=r".") as refused:
            os.getxattr(shared.root / VIEW, name)
        assert refused.value.errno in (errno.ENODATA, errno.EOPNOTSUPP)
    assert subprocess.run(["ls", "-lR", shared.root / "train" / "0"], capture_output=True, check=False).returncode == 0


def test_nothing_can_be_written(subtests: pytest.Subtests, shared: Mounted) -> None:
    """Whatever would change something is refused as on a read-only file system, and nobody else may look."""
    attempts: dict[str, Callable[[], object]] = {
        "create": lambda: (shared.root / "new").write_bytes(b""),
        "write": lambda: os.open(shared.root / VIEW, os.O_WRONLY),
        "mkdir": lambda: (shared.root / "train" / "9").mkdir(),
        "unlink": lambda: (shared.root / VIEW).unlink(),
        "rename": lambda: (shared.root / VIEW).rename(shared.root / "x"),
        "chmod": lambda: (shared.root / VIEW).chmod(0o777),
        "setxattr": lambda: os.setxattr(shared.root / VIEW, "user.viewcache.label", b"[]"),
    }
    for what, attempt in attempts.items():
        with subtests.test(what):
            with pytest.raises(OSError, match=r".") as refused:
                attempt()
            assert refused.value.errno == errno.EROFS
    for path in (shared.root / "train", shared.root / VIEW):
        assert not path.stat().st_mode & (stat.S_IWUSR | stat.S_IRWXG | stat.S_IRWXO)


def test_what_is_not_there_says_why(subtests: pytest.Subtests, shared: Mounted) -> None:
    """ENOENT is all that a program gets; the text that says what there is can be read as an attribute of a folder."""
    wrong = {
        "train/9": "has epochs 0 to 2",
        "train/0/99/view": "has iterations 0 to 4",
        "nobody": "no task",
        "train/0/1/veiw": "no path has this form",
        "train/cats.-v1/frame999": "frame",
        "train/cats.-v1/frame1.aug99": "aug",
    }
    for path, reason in wrong.items():
        with subtests.test(path):
            with pytest.raises(FileNotFoundError):
                (shared.root / path).open()
            assert reason in os.getxattr(shared.root, "user.viewcache.error").decode()


def test_a_share_that_nobody_can_have(shared: Mounted) -> None:
    """More ranks than videos: an invalid argument, and the reason as an attribute."""
    with pytest.raises(OSError, match=r".") as refused:
        (shared.root / "train/0/1/view?rank=2&world=3").stat()
    assert refused.value.errno == errno.EINVAL
    assert "3 ranks" in os.getxattr(shared.root / "train", "user.viewcache.error").decode()


def test_pieces_in_any_order(shared: Mounted, tree: ViewTree) -> None:
    """Pieces at any place, from several threads with files of their own, are those of the whole; so are maps."""
    path, whole = shared.root / "train/1/0/view", tree.read("train/1/0/view")

    def read(number: int) -> bool:
        places = random.Random(number)
        descriptor = os.open(path, os.O_RDONLY | (os.O_DIRECT if number % 2 else 0))
        try:
            pieces = [(places.randrange(len(whole)), places.choice((1, 100, 5000, 1 << 20))) for _ in range(20)]
            return all(os.pread(descriptor, size, at) == whole[at : at + size] for at, size in pieces)
        finally:
            os.close(descriptor)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(16)))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert zlib.crc32(mapped) == zlib.crc32(whole)


def test_numpy_and_zarr_take_it_for_files(shared: Mounted, cache: AttachedCache) -> None:
    """`np.load` with and without a map, and `zarr.open` of the group, by nothing but a local path."""
    batch = cache.read("train", 0, 2)
    assert np.array_equal(np.load(shared.root / "train/0/2/view"), batch.video)
    assert np.array_equal(np.load(shared.root / "train/0/2/view", mmap_mode="r"), batch.video)
    group = zarr.open_group(str(shared.root / "train/0/2/view.zarr"), mode="r")
    for name in ("video", "label"):
        array = group[name]
        assert isinstance(array, zarr.Array)
        assert np.array_equal(np.asarray(array[:]), getattr(batch, name))
