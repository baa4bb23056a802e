"""A commit begins only where the log has room for it: DuckDB aborts the process where one cannot be written."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.catalog.samples import registered
from tests.disk import fill, mounted
from viewcache.catalog import Catalog
from viewcache.catalog.files import RESERVE_BYTES
from viewcache.catalog.log_room import LogRoom
from viewcache.errors import Full

DISK_BYTES = RESERVE_BYTES + (24 << 20)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own."""
    with mounted(tmp_path / "disk", DISK_BYTES) as disk:
        yield disk


def fill_with(catalog: Catalog, value: str, disk: Path) -> None:
    """Commit until there is no room, on a disk on which nothing is ever free."""
    for number in range(64):
        fill(disk)  # the reserve was given back
        catalog.set_setting(f"large {number}", value)


def test_no_commit_begins_without_room(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What has room is committed on a full disk, too; what has none is told, and the same database goes on."""
    with Catalog.open(small_disk / "c") as catalog:
        registered(catalog)
        for value in ("1", "2"):
            catalog.set_setting("a", value)
        fill(small_disk)
        catalog.set_setting("a", "3")
        value = "0" * (512 << 10)
        with pytest.raises(Full, match="free disk space") as full:
            fill_with(catalog, value, small_disk)
        assert "Failed to commit" not in str(full.value)
        assert catalog.setting("a") == "3"
        (small_disk / "ballast").unlink()
        catalog.set_setting("a", "4")
    assert not [record for record in caplog.records if getattr(record, "action", "") == "catalog_reopen"]
    with Catalog.open(small_disk / "c") as catalog:
        assert (catalog.setting("a"), catalog.setting("large 0")) == ("4", value)


def test_what_is_claimed_is_not_written(tmp_path: Path) -> None:
    """The log keeps its length, and a log that was made anew is claimed for anew."""
    log = tmp_path / "log"
    room = LogRoom(log)
    room.claim(100)
    for _ in range(2):
        log.write_bytes(b"a" * 1000)
        room.claim(200_000)
        if (found := log.stat()).st_blocks * 512 < 200_000:
            pytest.skip(f"the file system of {tmp_path} cannot claim blocks")
        assert found.st_size == 1000
        log.unlink()
    room.close()
    assert not log.exists()
