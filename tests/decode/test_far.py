"""Which videos lie far away: by URL, by file system, or as the task says."""

import ctypes
from pathlib import Path

import pytest

from viewcache.materializer.dataset import far


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> None:
    """What was found out of folders is forgotten."""
    far.is_far_folder.cache_clear()


@pytest.mark.parametrize("uri", ["s3://bucket/a.mp4", "https://host/a.mp4", "memory://a.mp4", "gs://b/c.webm"])
def test_what_has_a_url_is_far(uri: str) -> None:
    """Whatever fsspec opens."""
    assert far.is_far(uri)


def test_a_folder_is_far_by_its_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel says of what type the file system is; this machine's own is near."""
    for uri in (str(tmp_path / "a.mp4"), (tmp_path / "a.mp4").as_uri()):
        assert not far.is_far(uri)
    kind = far.file_system_of(str(tmp_path))
    assert kind not in (0, *far.FAR_FILE_SYSTEMS)
    monkeypatch.setattr(far, "FAR_FILE_SYSTEMS", {kind: "this one"})
    far.is_far_folder.cache_clear()
    assert far.is_far(str(tmp_path / "a.mp4"))


def test_a_folder_that_is_not_there_is_near(tmp_path: Path) -> None:
    """What cannot be found out is not taken for far."""
    assert not far.is_far(str(tmp_path / "nothing" / "a.mp4"))


def test_without_statfs_nothing_local_is_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a system whose C library has no such call."""
    monkeypatch.setattr(far, "libc_statfs", lambda: None)
    assert not far.is_far(str(tmp_path / "a.mp4"))


def test_the_type_of_proc() -> None:
    """The number is the kernel's own (statfs(2)): PROC_SUPER_MAGIC."""
    assert far.file_system_of("/proc") == 0x9FA0
    assert ctypes.sizeof(ctypes.c_long) <= far.STATFS_BYTES
