"""Reading cold: what was dropped comes from the device, and files that lie in memory are known for it."""

import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.disk import mounted
from tests.images.pages import need_device, resident
from tests.images.small import config, picture, save
from tests.scheduling.harness import until
from viewcache.api.config.load import load
from viewcache.api.profile.profile import prepared
from viewcache.errors import BadVideo, Broken
from viewcache.materializer.planning.mounts import mount_of
from viewcache.materializer.planning.recipe import block_recipe
from viewcache.materializer.profiling.cold import drop, is_warm, read_cold, warm, write_back
from viewcache.materializer.workers.ahead import Extent, announce
from viewcache.materializer.workers.blocks import make_job
from viewcache.materializer.workers.job import FolderTarget, Job, Made, Report
from viewcache.materializer.workers.page_cache import cached_pages
from viewcache.store import LocalTier

SIZE = 300_000

TABLE = """\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
30 21 0:25 / /dev/shm rw,nosuid shared:4 - tmpfs tmpfs rw
44 21 8:1 / /mnt/two\\040words ro,noatime - xfs /dev/sda1 ro
45 44 8:2 / /mnt/two\\040words rw - ext4 /dev/sda2 rw
46 21 0:50 / /mnt/far rw master:2 propagate_from:1 - nfs4 host:/x rw
"""


def whole(paths: Sequence[Path]) -> list[Extent]:
    """All bytes of some files."""
    return [Extent(str(path)) for path in paths]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Eight files on a disk, written a moment ago."""
    need_device(tmp_path)
    paths = [tmp_path / f"{number}.bin" for number in range(8)]
    for path in paths:
        path.write_bytes(os.urandom(SIZE))
    write_back(whole(paths))
    return paths


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder whose files lie in memory."""
    with mounted(tmp_path, 8 << 20) as disk:
        yield disk


def test_dropped_files_are_cold(files: list[Path]) -> None:
    """Of files that were written back a moment ago no page stays in memory, and their bytes stay what they were."""
    before = [path.read_bytes() for path in files]
    assert all(resident(path) == 1 for path in files)
    drop(whole(files))
    assert [resident(path) for path in files] == [0] * len(files)
    assert not is_warm(Extent(str(files[0])))
    assert [path.read_bytes() for path in files] == before
    assert is_warm(Extent(str(files[0])))


def test_warmed_files_are_in_memory(files: list[Path]) -> None:
    """All of each file is."""
    drop(whole(files))
    warm(whole(files))
    assert [resident(path) for path in files] == [1] * len(files)


@pytest.mark.parametrize("change", [Path.unlink, lambda path: os.truncate(path, SIZE // 2)], ids=["gone", "cut"])
def test_files_that_change_meanwhile_are_told(tmp_path: Path, change: Callable[[Path], None]) -> None:
    """Who deletes or shortens an image while a machine is profiled learns which one it was, and what to do."""
    paths = [tmp_path / f"{number}.bin" for number in range(3)]
    for path in paths:
        path.write_bytes(bytes(SIZE))
    extents = [Extent(str(path), 0, SIZE) for path in paths]
    change(paths[1])
    with pytest.raises(BadVideo, match=r"1\.bin is .*do so again"):
        read_cold([[each] for each in extents], 2, 0.01)


def test_few_files_are_open_while_much_is_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many images a block has, workers that are threads leave descriptors to all others."""
    paths = [tmp_path / f"{number}.bin" for number in range(100)]
    for path in paths:
        path.write_bytes(b"x")
    most, asked = 0, os.posix_fadvise

    def advise(file: int, start: int, length: int, advice: int) -> None:
        nonlocal most
        mine = [each for each in Path("/proc/self/fd").iterdir() if os.path.realpath(each).startswith(str(tmp_path))]
        most = max(most, len(mine))
        seen.append(os.path.realpath(f"/proc/self/fd/{file}"))
        asked(file, start, length, advice)

    seen: list[str] = []
    monkeypatch.setattr("viewcache.materializer.workers.ahead.is_in_memory", lambda *_: False)
    monkeypatch.setattr(os, "posix_fadvise", advise)
    announce(whole(paths))
    assert seen == [str(path) for path in paths]
    assert 1 <= most <= 16


@pytest.mark.parametrize("readers", [1, 3])
def test_what_is_read_cold_is_counted(files: list[Path], readers: int) -> None:
    """All of each file, of the device; the first half, which it may give faster after a rest, does not count.

    Of what other readers were in the middle of when that half was over, a part does.
    """
    groups = [whole(files[at : at + 2]) for at in range(0, len(files), 2)]
    found = read_cold(groups, readers, seconds=0.0)
    half = len(files) // 2
    assert found.pictures == half if readers == 1 else 0 < found.pictures <= half
    assert found.bytes == pytest.approx(found.pictures * SIZE, abs=SIZE / 2)
    assert found.is_of_device
    assert found.bytes_per_s == found.bytes / found.seconds


def test_a_round_whose_readers_all_end_at_once_is_not_the_last(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it came after its first half, so there would be nothing to tell of the device."""
    at_once = [0.0, *[0.0, 1.0] * 4]
    one_by_one = [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 5.0]
    clock = iter([*at_once, *one_by_one])
    monkeypatch.setattr("viewcache.materializer.profiling.cold.time", SimpleNamespace(perf_counter=clock.__next__))
    found = read_cold([whole(files[at : at + 2]) for at in range(0, len(files), 2)], readers=1, seconds=0.0)
    assert (found.pictures, found.bytes, found.seconds) == (4, 4 * SIZE, 2.0)


def test_files_in_memory_have_no_device(memory: Path) -> None:
    """A file system in memory has its bytes whatever is dropped, and it is said that no device was read."""
    path = memory / "a.bin"
    path.write_bytes(bytes(SIZE))
    found = read_cold([whole([path])], readers=1, seconds=0.0001)
    assert found.warm == 1
    assert not found.is_of_device
    assert mount_of(str(memory)).is_memory


def test_announced_files_come_by_themselves(files: list[Path]) -> None:
    """The device reads all files that were announced, though nobody reads them."""
    drop(whole(files))
    announce(whole([files[0], files[0].with_name("gone"), *files[1:]]))
    until(lambda: all(resident(path) == 1 for path in files), "the files to be read ahead")


def test_what_is_in_memory_is_not_announced(files: list[Path]) -> None:
    """If memory has the first file, none of the others is asked for: they lie alike."""
    drop(whole(files[1:]))
    assert resident(files[0]) == 1
    announce(whole(files))
    assert [resident(path) for path in files[1:]] == [0] * (len(files) - 1)


def test_a_part_of_a_file_is_dropped_and_asked_for_alone(files: list[Path]) -> None:
    """Of a picture in a pack all pages go, at the cost of its neighbours' first and last one; it comes back alone."""
    path, page = files[0], mmap.PAGESIZE
    part = Extent(str(path), 10 * page + 5, 4 * page)
    drop(whole([path]))
    announce(whole([path]))
    until(lambda: resident(path) == 1, "the file to be read ahead")
    drop([part])
    pages = -(-SIZE // page)
    assert resident(path) == pytest.approx((pages - 5) / pages)
    drop(whole([path]))
    announce([part])
    until(lambda: resident(path) >= 5 / pages, "the part to be read ahead")
    assert resident(path) < 1
    drop(whole([path]))
    assert read_cold([[part]], readers=1, seconds=0.0).bytes == part.length


def test_a_worker_asks_for_a_whole_block(tmp_path: Path) -> None:
    """Before the second image of a block is decoded, the device has been asked for all of them."""
    need_device(tmp_path)
    paths = [save(tmp_path / "images" / f"{k}.jpg", picture(64, 48, k)) for k in range(6)]
    wanted = prepared(load(config(tmp_path / "store", tmp_path / "images", sampling={"images_per_batch": 6})))
    parts, key = wanted.sample.parts, "0" * 32
    bound = sum(part.recipe.bound for part in parts)
    LocalTier(tmp_path / "made", bound)
    target = FolderTarget(str(tmp_path / "made"), durable=False)
    block = block_recipe(key, parts, 0, bound)
    job = Job(1, parts[0].source.uri, parts[0].source.name, key, b"", (block,), target)
    write_back(whole(paths))
    drop(whole(paths))
    asked: list[bool] = []

    def pause() -> bool:
        """Called behind each image."""
        if not asked:
            until(lambda: all(resident(path) == 1 for path in paths), "the files of the block to be read ahead")
        asked.append(True)
        return False

    made, report = make_job(job, pause)
    assert len(asked) == len(paths)
    assert isinstance(made, Made)
    assert isinstance(report, Report)
    assert not report.error


def test_a_mount_is_found_by_its_longest_point(tmp_path: Path) -> None:
    """Names with blanks, mounts on one folder of which the last is seen, and folders that only begin alike."""
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    found = {path: mount_of(path, str(table)) for path in ("/x", "/dev/shm/x", "/mnt/two words/x", "/mnt/farther")}
    assert [(each.kind, each.device, each.options) for each in found.values()] == [
        ("ext4", "254:0", "rw,relatime"),
        ("tmpfs", "0:25", "rw,nosuid"),
        ("ext4", "8:2", "rw"),
        ("ext4", "254:0", "rw,relatime"),
    ]
    assert [each.is_memory for each in found.values()] == [False, True, False, False]
    assert found["/x"].words == "ext4 254:0 (rw,relatime)"


def test_a_system_without_mounts_is_told(tmp_path: Path) -> None:
    """The error names the file that is not there."""
    with pytest.raises(Broken, match="gone"):
        mount_of("/", str(tmp_path / "gone"))


def test_looking_brings_nothing_in(files: list[Path]) -> None:
    """What was dropped stays so however often it is looked at; part of a file that was read is in memory."""
    drop(whole(files))
    with files[0].open("rb") as file:
        if cached_pages(file.fileno(), 0, 0) is None:
            pytest.skip("this kernel does not tell what its page cache has (cachestat, Linux 6.5)")
        for _ in range(50):
            assert not any(is_warm(extent) for extent in whole(files))
        assert cached_pages(file.fileno(), 0, 0) == 0
        file.read()
        assert cached_pages(file.fileno(), 0, 0) == -(-SIZE // mmap.PAGESIZE)
        assert cached_pages(file.fileno(), 2 * mmap.PAGESIZE, 1) == 1
    assert [resident(path) for path in files[1:]] == [0] * (len(files) - 1)


def test_where_the_system_does_not_tell_a_byte_is_asked_for(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """On an older kernel: what is in memory is found there."""
    monkeypatch.setattr("viewcache.materializer.workers.ahead.cached_pages", lambda *_: None)
    warm(whole(files))
    assert all(is_warm(extent) for extent in whole(files))
