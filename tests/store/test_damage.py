"""Damage is always noticed and never served (law 5)."""

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.store.objects import Put, pixels
from viewcache import store
from viewcache.errors import BadInput, ChunkDamaged, Misuse
from viewcache.store.checksum import crc32c
from viewcache.store.format import parse_metadata

SHAPE, ROWS = (9, 3, 14, 10), 2
Damage = Callable[[Path, np.random.Generator], None]


def _flip(path: Path, rng: np.random.Generator) -> None:
    data = bytearray(path.read_bytes())
    data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
    path.write_bytes(data)


def _truncate(path: Path, rng: np.random.Generator) -> None:
    os.truncate(path, int(rng.integers(path.stat().st_size)))


def _extend(path: Path, rng: np.random.Generator) -> None:
    path.write_bytes(path.read_bytes() + rng.bytes(int(rng.integers(1, 100))))


def _delete(path: Path, rng: np.random.Generator) -> None:
    path.unlink()


def _zero(path: Path, rng: np.random.Generator) -> None:
    data = bytearray(path.read_bytes())
    start = int(rng.integers(len(data) - 8))
    while not any(data[start:]):
        start -= 1
    length = len(data) - start if rng.integers(2) else int(rng.integers(8, len(data) - start + 8))
    if not any(data[start : start + length]):
        length = len(data) - start
    data[start:] = bytes(length) + data[start + length :]
    path.write_bytes(data[: path.stat().st_size])


def _folder(path: Path, rng: np.random.Generator) -> None:
    path.unlink()
    path.mkdir()


def _link(path: Path, rng: np.random.Generator) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


DAMAGES: tuple[Damage, ...] = (_flip, _flip, _flip, _truncate, _extend, _delete, _zero, _folder, _link)


def _outcome(tier: store.LocalTier, stored: store.Stored, array: np.ndarray) -> bool:
    """Whether a read noticed; it may overlook what does not touch pixels, but then the pixels are right."""
    out = np.empty_like(array)
    try:
        store.read_into(tier.root, stored, out)
    except ChunkDamaged:
        return True
    assert np.array_equal(out, array), "damaged pixels were served"
    return False


@pytest.mark.parametrize("codec", list(store.CODECS))
def test_a_thousand_damages(tier: store.LocalTier, put: Put, codec: str) -> None:
    """1,000 flips, cuts, additions, deletions, zeroes, folders and links: verify notices each, a read never lies."""
    array = pixels(SHAPE)
    stored = put(array, ROWS, codec)
    folder = Path(tier.root, stored.physical)
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    rng = np.random.default_rng(1)
    noticed = 0
    for number in range(340):
        name = "zarr.json" if rng.random() < 0.2 else "c.0.0.0.0"
        damage = DAMAGES[number % len(DAMAGES)]
        damage(folder / name, rng)
        with pytest.raises(ChunkDamaged):
            store.verify_object(tier.root, stored.physical, stored.table)
        noticed += _outcome(tier, stored, array)
        shutil.rmtree(folder)
        folder.mkdir()
        for file, data in whole.items():
            (folder / file).write_bytes(data)
    store.verify_object(tier.root, stored.physical, stored.table)
    assert noticed > 150


def test_every_piece_of_a_large_chunk_is_checked(tier: store.LocalTier, put: Put) -> None:
    """A chunk that no core's cache holds is read in pieces; a flip in any of them, or where they meet, is noticed."""
    array = pixels((3, 700_001))
    stored = put(array, 2, "raw")
    assert not _outcome(tier, stored, array)
    path = Path(tier.root, stored.physical, "c.0.0")
    whole = path.read_bytes()
    for start, size in zip(stored.table.offsets, stored.table.sizes, strict=True):
        for at in (0, (512 << 10) - 1, 512 << 10, (1 << 20) - 1, 1 << 20, size - 1):
            data = bytearray(whole)
            data[start + at] ^= 1
            path.write_bytes(data)
            assert _outcome(tier, stored, array)


def test_what_is_read_at_once_is_still_in_the_cache_when_it_is_checked(
    tier: store.LocalTier, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a large chunk nor many small ones are brought by one call."""
    asked, whole = list[int](), os.preadv

    def noted(file: int, views: list[memoryview], offset: int) -> int:
        asked.append(sum(map(len, views)))
        return whole(file, views, offset)

    monkeypatch.setattr(os, "preadv", noted)
    for array, rows in ((pixels((1, 3_000_000)), 1), (pixels((40, 3, 160, 160)), 1)):
        stored = put(array, rows, "raw")
        asked.clear()
        assert not _outcome(tier, stored, array)
        assert len(asked) > 5
        assert max(asked) <= (512 << 10) + 8192


@pytest.mark.parametrize("codec", list(store.CODECS))
def test_swapped_chunks(tier: store.LocalTier, put: Put, codec: str) -> None:
    """Two chunks that changed places, each with its own valid trailer, are noticed with and without the catalog."""
    array = np.repeat(np.arange(4, dtype=np.uint8), 300).reshape(4, 300)
    stored = put(array, 1, codec)
    path = Path(tier.root, stored.physical, "c.0.0")
    data = bytearray(path.read_bytes())
    (a, b), size = stored.table.offsets[:2], stored.table.sizes[0]
    assert stored.table.sizes[1] == size
    data[a : a + size], data[b : b + size] = data[b : b + size], data[a : a + size]
    path.write_bytes(data)
    assert _outcome(tier, stored, array)
    for table in (None, stored.table):
        with pytest.raises(ChunkDamaged):
            store.verify_object(tier.root, stored.physical, table)


def test_swapped_objects(tier: store.LocalTier, put: Put) -> None:
    """Shards, or whole folders, of two equal-shaped objects that changed places are noticed."""
    first, second = pixels((2, 50), 1), pixels((2, 50), 2)
    a, b = put(first), put(second)
    folder, other = (Path(tier.root, stored.physical) for stored in (a, b))
    for names in (("c.0.0",), ("zarr.json", "c.0.0")):
        for name in names:
            (folder / name).rename(folder / "aside")
            (other / name).rename(folder / name)
            (folder / "aside").rename(other / name)
        for stored, array in ((a, first), (b, second)):
            assert _outcome(tier, stored, array)
            with pytest.raises(ChunkDamaged):
                store.verify_object(tier.root, stored.physical)
        for name in names:
            (folder / name).rename(folder / "aside")
            (other / name).rename(folder / name)
            (folder / "aside").rename(other / name)


def test_another_object_under_the_same_key(tier: store.LocalTier, put: Put) -> None:
    """An object that is whole, but not the one that the catalog remembers, is noticed."""
    old = put(pixels((2, 50), 1), key="a" * 32)
    tier.delete(old.physical)
    put(pixels((2, 50), 2), key="a" * 32)
    assert _outcome(tier, old, pixels((2, 50), 1))
    with pytest.raises(ChunkDamaged, match="not what the catalog has"):
        store.verify_object(tier.root, old.physical, old.table)


@pytest.mark.parametrize("codec", ["lz4", "zstd1"])
def test_a_lying_codec_header_is_refused_before_decompressing(tier: store.LocalTier, put: Put, codec: str) -> None:
    """A chunk with a valid checksum that says it unpacks to another size is damage, not a write past the buffer."""
    longer = store.codec(codec).encode(np.zeros(5000, np.uint8))
    with pytest.raises(ChunkDamaged, match=r"5000 (bytes )?where 40"):
        store.codec(codec).decode_into(longer, np.empty(40, np.uint8))
    for junk in (b"", b"\0" * 5, b"\xff" * 64, longer[:-3].tobytes()):
        with pytest.raises(ChunkDamaged):
            store.codec(codec).decode_into(np.frombuffer(junk, np.uint8), np.empty(5000, np.uint8))


def test_tables_of_other_makers_are_refused() -> None:
    """Bytes that are not a table, or point beyond any file, never become reads."""
    good = store.ChunkTable((0, 64), (10, 12), (1, 2)).to_bytes()
    assert store.ChunkTable.from_bytes(good).to_bytes() == good
    far = store.ChunkTable((1 << 63,), (5,), (0,)).to_bytes()
    for bad in (b"", good[:-1], good + b"\0", b"XX" + good[2:], good[:2] + b"\x09" + good[3:], far):
        with pytest.raises(ChunkDamaged):
            store.ChunkTable.from_bytes(bad)
    with pytest.raises(ChunkDamaged, match="2 chunks, not 3"):
        store.Stored("objects/aa/" + "a" * 32, (3, 1), 1, "raw", store.ChunkTable.from_bytes(good))


def test_an_index_that_points_outside_is_damage(tier: store.LocalTier, put: Put) -> None:
    """A forged index with a valid checksum does not make the scan read elsewhere."""
    stored = put(pixels((2, 50)))
    path = Path(tier.root, stored.physical, "c.0.0")
    body = struct.pack("<4Q", 0, 54, 1 << 40, 54)
    path.write_bytes(path.read_bytes()[:-36] + body + struct.pack("<I", crc32c(body)))
    with pytest.raises(ChunkDamaged, match="outside"):
        store.scan_object(tier.root, stored.physical)


def test_hostile_metadata_is_damage() -> None:
    """No text in place of zarr.json raises anything but ChunkDamaged."""
    texts = [b"", b"{}", b"[]", b"null", b"[" * 100_000, b'{"attributes": {"viewcache": 3}}', b"\xff\xfe", b"1e999"]
    for text in texts:
        with pytest.raises(ChunkDamaged):
            parse_metadata(text, "a" * 32)


def test_what_the_format_cannot_hold_is_refused() -> None:
    """Shapes, chunks, codecs and attributes outside the subset are refused before anything is written."""
    bad = [((), ()), ((4, 0), (1, 0)), ((4, 3), (1, 2)), ((4, 3), (5, 3)), ((4, 3), (1,)), ((1 << 31,), (1 << 31,))]
    for shape, chunk in bad:
        with pytest.raises(Misuse):
            store.ArrayMeta(shape, chunk, "raw")
    with pytest.raises(BadInput, match="known are raw, lz4, zstd1"):
        store.ArrayMeta((1,), (1,), "png")
    with pytest.raises(Misuse, match="reserved"):
        store.ArrayMeta((1,), (1,), "raw", {"viewcache": 1})
    with pytest.raises(Misuse, match="JSON"):
        store.bound_bytes(store.ArrayMeta((1,), (1,), "raw", {"x": {1, 2}}), "a" * 32)


def test_a_damaged_index_is_told_by_its_object(tier: store.LocalTier, put: Put) -> None:
    """The message begins with the place of the shard, as all others do."""
    stored = put(pixels(SHAPE), ROWS, "raw")
    path = Path(tier.root, stored.physical, "c.0.0.0.0")
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(ChunkDamaged, match=rf"/{stored.physical}/.*: the shard's index of \d+ bytes fails its crc32c"):
        store.verify_object(tier.root, stored.physical, stored.table)
