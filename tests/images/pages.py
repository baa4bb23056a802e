"""Which pages of a file the page cache has, asked of the kernel without bringing any in; a limit of a disk's rate."""

import ctypes
import mmap
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.scheduling.harness import until

__all__ = ["limited", "need_device", "resident"]

_GROUPS = Path("/sys/fs/cgroup")


def resident(path: Path) -> float:
    """The part of a file's pages that is in memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        pages = -(-len(mapped) // mmap.PAGESIZE)
        found = ctypes.create_string_buffer(pages)
        view = (ctypes.c_char * len(mapped)).from_buffer(mapped)
        failed = libc.mincore(ctypes.addressof(view), len(mapped), found)
        del view
    assert not failed, os.strerror(ctypes.get_errno())
    return sum(each & 1 for each in found.raw[:pages]) / pages


def need_device(folder: Path) -> None:
    """Skip where files of a folder lie in memory, as in a container whose /tmp does: there is no device to be asked."""
    device = os.stat(folder).st_dev
    if not Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").exists():
        pytest.skip(f"no block device below {folder}")


@contextmanager
def limited(folder: Path, bytes_per_s: float) -> Iterator[Path]:
    """A control group whose processes read so many bytes a second of a folder's disk at most; it is left empty."""
    need_device(folder)
    number = os.stat(folder).st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    first, name = _GROUPS / "blkio", f"viewcache-test-{os.getpid()}"
    group = (first if first.is_dir() else _GROUPS) / name
    text = f"{device} {bytes_per_s:.0f}" if first.is_dir() else f"{device} rbps={bytes_per_s:.0f}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no limit of block devices: control groups cannot be made here ({error.strerror})")
    try:
        try:
            limit = group / ("blkio.throttle.read_bps_device" if first.is_dir() else "io.max")
            limit.write_text(text)
        except OSError as error:
            pytest.skip(f"no limit of block devices: {limit} cannot be written ({error.strerror})")
        yield group
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        until(lambda: not (group / "cgroup.procs").read_text(), "the group to be empty")
        group.rmdir()
