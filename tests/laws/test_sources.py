"""Law 6: sources are sacred. They are never written, and nothing lets go of an object that could not be made again."""

import ctypes
import hashlib
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import viewcache
from tests.tiny import config, open_cache, pixels, sql
from viewcache.errors import ConfigError
from viewcache.materializer.media.source import open_source

# inotify(7): what would tell of a writer, whichever process it is.
ATTRIB, MODIFY, CLOSE_WRITE, MOVED, CREATE, DELETE = 0x4, 0x2, 0x8, 0xC0, 0x100, 0x200
CHANGES = ATTRIB | MODIFY | CLOSE_WRITE | MOVED | CREATE | DELETE


@contextmanager
def watched(folder: Path) -> Iterator[list[str]]:
    """Collect every change in a folder, by any process; a file opened for writing shows when it is closed."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    assert descriptor >= 0
    changes: list[str] = []
    try:
        assert libc.inotify_add_watch(descriptor, os.fsencode(folder), CHANGES) >= 0
        yield changes
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            data = b""
        while data:
            _, mask, _, length = struct.unpack_from("iIII", data)
            changes.append(f"{data[16 : 16 + length].rstrip(bytes(1)).decode()} {mask:#x}")
            data = data[16 + length :]
    finally:
        os.close(descriptor)


def state(folder: Path) -> dict[str, tuple[int, int, int, str]]:
    """Name → mode, size, time of change and digest of every file."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.stat()
        digest = hashlib.blake2b(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path)] = (status.st_mode, status.st_size, status.st_mtime_ns, digest)
    return found


def test_the_watch_sees_a_writer(tmp_path: Path) -> None:
    """The test's own instrument works: opening a file for writing and closing it, untouched, is noticed."""
    (tmp_path / "x").touch()
    with watched(tmp_path) as changes:
        (tmp_path / "x").open("r+b").close()
    assert changes == [f"x {CLOSE_WRITE:#x}"]


def test_a_whole_run_never_opens_a_source_for_writing(tmp_path: Path, videos: Path) -> None:
    """Scan, plan, decode, evict and rebuild: no file of the dataset is opened to write, created, moved or touched."""
    before = state(videos)
    with watched(videos) as changes:
        with open_cache(tmp_path, videos) as cache:
            budget, _ = cache.task("train").task.outline.batch_bound()
        with open_cache(tmp_path, videos, cache={"budget": budget}) as cache:
            pixels(cache)
            pixels(cache)
            assert sql(cache, "select count(*) > 0 from evictions") == [(True,)]
    assert changes == []
    assert state(videos) == before


def test_a_source_is_opened_read_only(videos: Path) -> None:
    """The descriptor itself could not write."""
    import fcntl

    with open_source(str(videos / "v0.mp4")):
        opened = [each for each in range(4096) if _is_open_on(each, videos / "v0.mp4")]
        assert [fcntl.fcntl(each, fcntl.F_GETFL) & os.O_ACCMODE for each in opened] == [os.O_RDONLY]


def _is_open_on(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def test_only_made_objects_are_candidates(tmp_path: Path, videos: Path) -> None:
    """Whatever is asked for, eviction offers copies in the store and nothing else; each has a video to be made from."""
    with open_cache(tmp_path, videos) as cache:
        pixels(cache)
        cache.catalog.flush()
        offered = cache.catalog.victims("local", 1 << 60)["object_id"].to_pylist()
        stored = sql(cache, "select object_id from copies join objects using (object_id) where video is not null")
        assert sorted(offered) == sorted(int(str(each)) for (each,) in stored)
        assert sql(cache, "select distinct kind from objects where bytes is not null") == [("clip",)]


def test_a_store_among_the_sources_is_refused(videos: Path) -> None:
    """Videos inside the store's folder would be in reach of eviction; such a configuration does not load."""
    with pytest.raises(ConfigError, match="lie inside the cache's store"):
        viewcache.open(config(videos.parent, videos))


def test_a_link_into_the_store_is_no_way_around_that(tmp_path: Path, videos: Path) -> None:
    """Places are compared as they are on the disk, whichever link names them."""
    (tmp_path / "other-name").symlink_to(videos.parent)
    for store, sources in ((videos.parent, tmp_path / "other-name" / videos.name), (tmp_path / "other-name", videos)):
        with pytest.raises(ConfigError, match="lie inside the cache's store"):
            viewcache.open(config(store, sources))
