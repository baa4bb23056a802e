"""What is written is what is read, by us and by every Zarr client."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore
import zarr
import zarrs  # noqa: F401  -- registers the pipeline that a test names
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.disk import counted
from tests.store.objects import Bytes, Put, pixels, stored_of
from viewcache import store
from viewcache.errors import Misuse
from viewcache.store import checksum
from viewcache.store.format import ALIGNMENT
from viewcache.store.shard_reader import read_each

shapes = st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple)


@pytest.fixture(scope="module")
def shared_tier(tmp_path_factory: pytest.TempPathFactory) -> store.LocalTier:
    """One tier for many generated objects."""
    return store.LocalTier(tmp_path_factory.mktemp("shared"), 1 << 40)


@given(shape=shapes, codec=st.sampled_from(list(store.CODECS)), data=st.data())
def test_every_codec_and_shape_comes_back(
    shared_tier: store.LocalTier, shape: tuple[int, ...], codec: str, data: st.DataObject
) -> None:
    """Any array in any codec, with rows that need not divide it, reads back equal: whole, by slice and by list."""
    rows = data.draw(st.integers(1, shape[0]))
    array = pixels(shape, seed=data.draw(st.integers(0, 9)))
    meta = store.ArrayMeta(shape, (rows, *shape[1:]), codec, {"frames": list(range(shape[0]))})
    key = os.urandom(16).hex()
    written = store.write_object(shared_tier.root, key, array, meta)
    stored = stored_of(written)
    out = store.aligned_empty(shape)
    store.read_into(shared_tier.root, stored, out)
    assert np.array_equal(out, array)
    picks = data.draw(st.lists(st.integers(0, meta.chunks - 1), max_size=6))
    expected = np.concatenate([array[:0], *(array[pick * rows : (pick + 1) * rows] for pick in picks)])
    out = np.empty(expected.shape, np.uint8)
    store.read_into(shared_tier.root, stored, out, picks)
    assert np.array_equal(out, expected)
    out = np.empty(array[rows:].shape, np.uint8)
    store.read_into(shared_tier.root, stored, out, slice(1, None))
    assert np.array_equal(out, array[rows:])
    found = store.verify_object(shared_tier.root, written.physical, stored.table)
    assert (found.stored, found.meta, found.bytes, found.key) == (stored, meta, written.bytes, key)
    folder = Path(shared_tier.root, written.physical)
    assert written.bytes == counted(folder) <= store.bound_bytes(meta, key)
    assert all(offset % ALIGNMENT == 0 for offset in stored.table.offsets)


def _zarr_python(folder: str) -> Bytes:
    return np.asarray(zarr.open_array(folder, mode="r")[:])


def _zarrs(folder: str) -> Bytes:
    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
        return _zarr_python(folder)


def _tensorstore(folder: str) -> Bytes:
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": folder}}
    return np.asarray(tensorstore.open(spec).result().read().result())


@pytest.mark.parametrize("client", [_zarr_python, _zarrs, _tensorstore])
@pytest.mark.parametrize("codec", list(store.CODECS))
@pytest.mark.parametrize(
    ("shape", "rows"), [((8, 3, 20, 24), 1), ((7, 3, 5, 11), 3), ((32, 3, 16, 16), 32), ((5, 97), 2)]
)
def test_zarr_clients_read_the_same_bytes(
    tier: store.LocalTier, put: Put, client: object, codec: str, shape: tuple[int, ...], rows: int
) -> None:
    """zarr-python, its zarrs pipeline and tensorstore read every object bit-identical, gaps and padding included."""
    array = pixels(shape)
    stored = put(array, rows, codec)
    assert callable(client)
    assert np.array_equal(client(f"{tier.root}/{stored.physical}"), array)


def test_chunks_in_any_order(tier: store.LocalTier) -> None:
    """A decoder that delivers chunks out of order writes an object that reads, and lies, the same."""
    array, key = pixels((7, 40)), "ab" * 16
    for codec in store.CODECS:
        meta = store.ArrayMeta(array.shape, (2, 40), codec)
        with store.ObjectWriter(tier.root, key, meta) as writer:
            for chunk in (3, 0, 2, 1):
                writer.put(chunk, array[2 * chunk : 2 * chunk + 2])
            stored = stored_of(writer.commit())
        out = np.empty_like(array)
        store.read_into(tier.root, stored, out)
        assert np.array_equal(out, array)
        assert codec != "raw" or list(stored.table.offsets) == sorted(stored.table.offsets)
        assert tier.delete(stored.physical) > 0


def test_slots_of_a_batch(tier: store.LocalTier, put: Put) -> None:
    """Clips land in consecutive slots; a damaged one is named by position and the others are right."""
    clips = pixels((4, 6, 3, 8, 8))
    stored = [put(clip, 6, codec) for clip, codec in zip(clips, ("raw", "lz4", "raw", "zstd1"), strict=True)]
    out = store.aligned_empty(clips.shape)
    assert store.read_slots(tier.root, stored, out) == {}
    assert np.array_equal(out, clips)
    tier.delete(stored[2].physical)
    out[:] = 0
    damaged = store.read_slots(tier.root, stored, out)
    assert list(damaged) == [2]
    assert "missing" in str(damaged[2])
    assert np.array_equal(out[[0, 1, 3]], clips[[0, 1, 3]])


@given(data=st.data(), codec=st.sampled_from(list(store.CODECS)))
def test_pictures_of_a_block_are_read_together(shared_tier: store.LocalTier, data: st.DataObject, codec: str) -> None:
    """Chunks of some shards, each an object of its own, in any order: runs are one read, and the bytes are the same.

    One that is damaged is named by its position, and all others are right.
    """
    blocks = [pixels((5, 3, 4, 4), seed=seed) for seed in (1, 2)]
    stored = []
    for block in blocks:
        meta = store.ArrayMeta(block.shape, (1, *block.shape[1:]), codec)
        stored.append(stored_of(store.write_object(shared_tier.root, os.urandom(16).hex(), block, meta)))
    order = data.draw(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4)), min_size=1, max_size=9))
    objects = [stored[block].chunk(picture) for block, picture in order]
    read = list[store.Stored]()

    def reading(one: store.Stored, out: Bytes) -> None:
        read.append(one)
        store.read_into(shared_tier.root, one, out)

    out = np.zeros((len(order), 1, 3, 4, 4), np.uint8)
    assert read_each(reading, objects, out) == {}
    expected = np.stack([blocks[block][picture : picture + 1] for block, picture in order])
    assert np.array_equal(out, expected)
    apart = [k for k in range(1, len(order)) if order[k] != (order[k - 1][0], order[k - 1][1] + 1)]
    assert len(read) == 1 + len(apart)
    bad = data.draw(st.integers(0, len(order) - 1))
    table = objects[bad].table
    objects[bad] = replace(objects[bad], table=replace(table, crcs=(table.crcs[0] ^ 1,)))
    out[:] = 0
    assert [*read_each(reading, objects, out)] == [bad]
    others = [k for k in range(len(order)) if k != bad]
    assert np.array_equal(out[others], expected[others])


def test_long_runs_are_split(tier: store.LocalTier, put: Put) -> None:
    """More chunks than one system call takes are read by several."""
    array = pixels((1500, 3))
    stored = put(array, 1, "raw")
    out = np.empty_like(array)
    store.read_into(tier.root, stored, out)
    assert np.array_equal(out, array)


def test_short_answers_are_asked_again(tier: store.LocalTier, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that gives fewer bytes than asked for is asked for the rest."""
    array = pixels((5, 333))
    stored, whole = put(array, 1, "raw"), os.preadv
    asked = []

    def stingy(file: int, views: list[memoryview], offset: int) -> int:
        asked.append(offset)
        return whole(file, [memoryview(views[0])[:100]], offset)

    monkeypatch.setattr(os, "preadv", stingy)
    out = np.empty_like(array)
    store.read_into(tier.root, stored, out)
    assert np.array_equal(out, array)
    assert len(asked) > 5


def test_wrong_buffers_are_refused(tier: store.LocalTier, put: Put) -> None:
    """A buffer of another shape, type or layout, or a chunk that is not there, is the caller's error."""
    stored = put(pixels((4, 6)), 2)
    wrong: list[NDArray[Any]] = [
        np.empty((4, 5), np.uint8),
        np.empty((4, 6), np.int8),
        np.empty((4, 12), np.uint8)[:, ::2],
        np.frombuffer(bytes(24), np.uint8).reshape(4, 6),
    ]
    for out in wrong:
        with pytest.raises(Misuse, match="out must be"):
            store.read_into(tier.root, stored, out)
    for chunk in (-1, 2):
        with pytest.raises(Misuse, match="it has 2"):
            store.read_into(tier.root, stored, np.empty((2, 6), np.uint8), [chunk])
    with pytest.raises(Misuse, match=r"1 objects .* 2 slots"):
        store.read_slots(tier.root, [stored], np.empty((2, 4, 6), np.uint8))


@pytest.mark.parametrize("physical", ["objects/../../etc", "objects/ab/cd" + "0" * 30, "/etc/passwd", "tmp/x", ""])
def test_no_place_outside_the_objects(physical: str, tmp_path: Path) -> None:
    """A place that the store does not make is never opened, whoever asks."""
    table = store.ChunkTable((0,), (5,), (0,))
    with pytest.raises(Misuse):
        store.Stored(physical, (1, 1), 1, "raw", table)
    with pytest.raises(Misuse):
        store.scan_object(tmp_path, physical)


def test_metadata_text_is_pinned(tier: store.LocalTier, put: Put) -> None:
    """The text of zarr.json changes only with FORMAT: stores of older releases stay readable."""
    stored = put(pixels((3, 4)), 2, "lz4", key="0" * 32, kind="clip")
    text = json.loads(Path(tier.root, stored.physical, "zarr.json").read_text())
    own = text["attributes"].pop("viewcache")
    assert set(own) == {"check", "digest", "format", "key"}
    assert (own["format"], own["key"]) == (1, "0" * 32)
    assert text == {
        "attributes": {"kind": "clip"},
        "chunk_grid": {"configuration": {"chunk_shape": [4, 4]}, "name": "regular"},
        "chunk_key_encoding": {"configuration": {"separator": "."}, "name": "default"},
        "codecs": [
            {
                "configuration": {
                    "chunk_shape": [2, 4],
                    "codecs": [
                        {"name": "bytes"},
                        {
                            "configuration": {
                                "blocksize": 0, "clevel": 5, "cname": "lz4", "shuffle": "noshuffle", "typesize": 1
                            },
                            "name": "blosc",
                        },
                        {"name": "crc32c"},
                    ],
                    "index_codecs": [{"configuration": {"endian": "little"}, "name": "bytes"}, {"name": "crc32c"}],
                    "index_location": "end",
                },
                "name": "sharding_indexed",
            }
        ],
        "data_type": "uint8",
        "fill_value": 0,
        "node_type": "array",
        "shape": [3, 4],
        "storage_transformers": [],
        "zarr_format": 3,
    }  # fmt: skip


@given(data=st.binary(max_size=200), start=st.integers(0, 2**32 - 1))
def test_both_checksum_libraries_agree(data: bytes, start: int) -> None:
    """The fast library and the required one give the same crc32c, whatever the buffer and the start."""
    assert checksum.crc32c(data, start) == checksum.portable_crc32c(data, start)
    assert checksum.crc32c(bytearray(data), start) == checksum.portable_crc32c(np.frombuffer(data, np.uint8), start)


def test_checksum_is_crc32c() -> None:
    """The published check value of CRC-32C (RFC 3720)."""
    assert checksum.crc32c(b"123456789") == checksum.portable_crc32c(b"123456789", 0) == 0xE3069283
