"""Packet indexes beside the database: appended, found again by offset and key, and never taken for another's."""

from pathlib import Path

import pytest

from tests.catalog.samples import registered, video
from viewcache import errors
from viewcache.catalog import Catalog
from viewcache.catalog.blobs import BlobFile

BLOBS = [("a" * 32, b""), ("b" * 32, b"x"), ("c" * 32, bytes(range(256)) * 100)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is."""
    return tmp_path / "catalog.indexes"


def test_blobs_are_found_by_offset_and_key(path: Path) -> None:
    """In this process and the next, in any order; another key at the same offset finds nothing."""
    file = BlobFile(path, writable=True)
    offsets = [*file.append(BLOBS[:2]), *file.append(BLOBS[2:])]
    file.close()
    file.close()
    for writable in (False, True):
        file = BlobFile(path, writable=writable)
        assert [file.read(at, key) for at, (key, _) in zip(offsets, BLOBS, strict=True)] == [blob for _, blob in BLOBS]
        assert file.read(offsets[1], "d" * 32) is None
        assert file.read(-1, "a" * 32) is None
        assert file.read(1 << 40, "a" * 32) is None
        file.close()


def test_damage_is_noticed(path: Path) -> None:
    """Any byte that is another one, and any length that was cut, gives None and never other bytes."""
    file = BlobFile(path, writable=True)
    (at,) = file.append([("k" * 32, b"twelve bytes")])
    whole = path.read_bytes()
    for changed in range(len(whole)):
        path.write_bytes(bytes(byte ^ (number == changed) for number, byte in enumerate(whole)))
        assert file.read(at, "k" * 32) is None
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert file.read(at, "k" * 32) is None
    file.close()


def test_a_reader_makes_no_file(path: Path) -> None:
    """Who only reads a catalog without one finds nothing, and leaves nothing."""
    file = BlobFile(path, writable=False)
    assert file.read(0, "k") is None
    file.close()
    assert not path.exists()


def test_a_full_disk_is_said(path: Path) -> None:
    """What could be written in part is never referred to, and what was there is whole."""
    file = BlobFile(path, writable=True)
    (at,) = file.append([("k" * 32, b"first")])
    full = BlobFile(Path("/dev/full"), writable=True)
    with pytest.raises(errors.Full, match="free disk space"):
        full.append([("k" * 32, b"second")])
    full.close()
    assert file.read(at, "k" * 32) == b"first"
    file.close()


def test_a_catalog_that_is_made_anew_starts_anew(tmp_path: Path) -> None:
    """Without a row that refers to it, what lies in the file is let go; with one it stays."""
    with Catalog.open(tmp_path) as catalog:
        (at,) = catalog.write_indexes([("e" * 32, b"blob")])
        dataset = registered(catalog)[0].dataset_id
        catalog.upsert_videos(dataset, [video(0, index_at=at)])
    with Catalog.open(tmp_path) as catalog:
        assert at is not None
        assert catalog.read_index(at, "e" * 32) == b"blob"
        catalog.upsert_videos(dataset, [video(0)])
    with Catalog.open(tmp_path) as catalog:
        assert catalog.read_index(at, "e" * 32) is None
    assert (tmp_path / "catalog.indexes").stat().st_size == 0
