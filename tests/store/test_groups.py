"""Encoded pictures in the store: a group to a chunk, of unlike lengths, in every tier, readable by any Zarr client."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.objects import Bytes, copied, stored_of
from viewcache import store
from viewcache.errors import ChunkDamaged, Misuse
from viewcache.store.format import dump_metadata, parse_metadata
from viewcache.store.shard_reader import Stored

KEY = "ab" * 16
SHAPE = (11, 3, 4, 6)
ROWS = 4


def packets(seed: int = 0) -> list[list[bytes]]:
    """Three groups of packets of very unlike lengths; the last group is short, one packet is empty."""
    rng = np.random.default_rng(seed)
    lengths = [[60, 3, 0, 5], [1, 2, 3, 4], [70, 20, 9]]
    return [[rng.bytes(length) for length in group] for group in lengths]


def meta_of(groups: list[Bytes], codec: str = "h264") -> store.ArrayMeta:
    """What ``zarr.json`` says of them."""
    width = max(group.size for group in groups)
    return store.ArrayMeta(SHAPE, (ROWS, *SHAPE[1:]), codec, {"kind": "aug", "frames": list(range(11))}, width=width)


def joined(seed: int = 0) -> list[Bytes]:
    """The bytes of each group."""
    return [store.join_packets(group) for group in packets(seed)]


def read_all(tier: store.Tier, stored: Stored) -> list[list[bytes]]:
    """Every packet of an object."""
    groups = (store.read_group(tier.read, stored, chunk) for chunk in range(len(stored.table.offsets)))
    return [list(map(bytes, store.split_packets(group))) for group in groups]


@pytest.mark.parametrize("codec", list(store.ENCODED))
def test_what_was_written_is_read(tier: store.LocalTier, codec: str) -> None:
    """Packets of any length come back, and the record says what pictures they are and how they are packed."""
    groups = joined()
    written = store.write_object(tier.root, KEY, groups, meta_of(groups, codec))
    assert (written.shape, written.chunk_rows, written.codec) == (SHAPE, ROWS, codec)
    assert written.raw_bytes == 11 * 72
    assert read_all(tier, stored_of(written)) == packets()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 700_000), min_size=1, max_size=4), st.integers(0, 2**32 - 1), st.booleans())
def test_what_groups_take_is_known_by_their_sizes(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], seed: int, dense: bool
) -> None:
    """Each counts with its own length, however much longer another one is, and nothing takes more than is said."""
    root, rng = tmp_path_factory.mktemp("s"), np.random.default_rng(seed)
    groups = [rng.integers(0, 256 if dense else 3, size, np.uint8) for size in sizes]
    shape = (len(sizes), 3, 500, 500)
    meta = store.ArrayMeta(shape, (1, *shape[1:]), "h264", {}, width=max(sizes))
    tier = store.LocalTier(root / "tier", 1 << 30)
    written = store.write_object(tier.root, KEY, groups, meta)
    bound = store.groups_bound(meta, KEY, sizes)
    assert written.bytes <= bound <= store.bound_bytes(meta, KEY)
    assert bound <= sum(sizes) * 1.005 + len(sizes) * 9000 + 40_000


def test_no_more_is_claimed_than_was_reserved(tier: store.LocalTier, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is written too: one group is long, and the file is not made as if all were."""
    claimed: list[int] = []
    real = os.posix_fallocate

    def fallocate(file: int, start: int, size: int) -> None:
        claimed.append(size)
        real(file, start, size)

    monkeypatch.setattr(os, "posix_fallocate", fallocate)
    sizes = [1_000_000, *[10_000] * 39]
    groups = [np.zeros(size, np.uint8) for size in sizes]
    shape = (len(sizes), 3, 600, 600)
    meta = store.ArrayMeta(shape, (1, *shape[1:]), "h264", {}, width=max(sizes))
    store.write_object(tier.root, KEY, groups, meta)
    assert claimed
    assert max(claimed) <= store.groups_bound(meta, KEY, sizes) < 2_000_000 < store.bound_bytes(meta, KEY)


def test_any_zarr_client_reads_them_as_bytes(tier: store.LocalTier) -> None:
    """zarr-python gives a row of bytes for each group, padded with zeros, and the attributes that say what they are."""
    groups = joined()
    written = store.write_object(tier.root, KEY, groups, meta_of(groups))
    array = zarr.open_array(f"{tier.root}/{written.physical}", mode="r")
    width = max(group.size for group in groups)
    assert array.shape == (3, 1, 1, width)
    assert array.dtype == np.uint8
    for row, group in zip(np.asarray(array[:]), groups, strict=True):
        flat = row.reshape(-1)
        assert np.array_equal(flat[: group.size], group)
        assert not flat[group.size :].any()
    own: Any = dict(array.attrs)["viewcache"]
    assert own["encoded"] == {"codec": "h264", "shape": list(SHAPE), "chunk": [ROWS, *SHAPE[1:]]}


def test_an_object_describes_itself(tier: store.LocalTier) -> None:
    """Without a catalog it is found, verified and adopted as the pictures that it holds."""
    groups = joined()
    written = store.write_object(tier.root, KEY, groups, meta_of(groups))
    found = store.scan_object(tier.root, written.physical)
    assert found.stored == stored_of(written)
    assert found.meta == meta_of(groups)
    assert store.verify_object(tier.root, written.physical, found.table) == found
    text = dump_metadata(found.meta, KEY, written.crc)
    assert parse_metadata(text, KEY) == (found.meta, written.crc)


def test_every_flipped_byte_is_noticed(tier: store.LocalTier) -> None:
    """Verifying notices each; a read gives what was written or ChunkDamaged."""
    groups = joined()
    stored = stored_of(store.write_object(tier.root, KEY, groups, meta_of(groups)))
    for path in Path(tier.root, stored.physical).iterdir():
        whole = path.read_bytes()
        for place in range(0, len(whole), 3):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(ChunkDamaged):
                store.verify_object(tier.root, stored.physical, stored.table)
            try:
                assert read_all(tier, stored) == packets()
            except ChunkDamaged:
                assert path.name != "zarr.json"
        path.write_bytes(whole)
    assert read_all(tier, stored) == packets()


def test_copies_in_other_tiers_are_the_same(tier: store.LocalTier, bucket: str, tmp_path: Path) -> None:
    """Moved to a bucket, to memory and back into a folder they stay encoded, whatever codec the tier has."""
    groups = joined()
    stored = stored_of(store.write_object(tier.root, KEY, groups, meta_of(groups)))
    remote = store.open_tier("remote", f"s3://{bucket}/groups", 1 << 30)
    memory = store.open_tier("memory", "memory://", 64 << 20)
    back = store.LocalTier(tmp_path / "back", 1 << 30)
    source: store.Tier = tier
    for target, codec in ((remote, "zstd1"), (memory, "raw"), (back, "lz4")):
        written = copied(source, stored, target, codec, KEY)
        source, stored = target, stored_of(written)
        assert (written.codec, written.shape) == ("h264", SHAPE)
        assert read_all(target, stored) == packets()
        assert target.verify(stored.physical, stored.table).meta == meta_of(groups)
    remote.close()
    memory.close()


def test_what_is_encoded_is_not_read_as_pixels(tier: store.LocalTier) -> None:
    """Who asks for pixels, or for a group that is not there, is told how to read them."""
    groups = joined()
    stored = stored_of(store.write_object(tier.root, KEY, groups, meta_of(groups)))
    with pytest.raises(Misuse, match="read_group"):
        store.read_into(tier.root, stored, np.empty(SHAPE, np.uint8))
    with pytest.raises(Misuse, match="no group 3"):
        store.read_group(tier.read, stored, 3)


def test_what_does_not_fit_together_is_refused() -> None:
    """Pixels have no width, encoded groups have one, and no group is longer than it."""
    with pytest.raises(Misuse, match="groups"):
        store.ArrayMeta(SHAPE, SHAPE, "h264")
    with pytest.raises(Misuse, match="groups"):
        store.ArrayMeta(SHAPE, SHAPE, "raw", width=9)


def test_a_group_longer_than_said_is_refused(tier: store.LocalTier) -> None:
    """Nothing is left behind by it."""
    groups = joined()
    meta = meta_of(groups[1:2] * 3)
    with pytest.raises(Misuse, match="must be uint8"):
        store.write_object(tier.root, KEY, groups, meta)
    assert list(tier.iter_objects()) == []


@pytest.mark.parametrize("data", [b"", b"\1\0\0", b"\2\0\0\0\1\0\0\0", b"\1\0\0\0\2\0\0\0x", b"\xff\xff\xff\xff"])
def test_a_table_that_does_not_fit_its_bytes_is_damage(data: bytes) -> None:
    """Whatever the lengths say, nothing outside the group is read."""
    with pytest.raises(ChunkDamaged):
        store.split_packets(np.frombuffer(data, np.uint8))


def test_an_old_release_would_not_take_it_for_pixels(tier: store.LocalTier) -> None:
    """zarr.json holds an entry that only encoded objects have, and without it the text is damage."""
    groups = joined()
    written = store.write_object(tier.root, KEY, groups, meta_of(groups))
    text = dump_metadata(meta_of(groups), KEY, written.crc)
    with pytest.raises(ChunkDamaged):
        parse_metadata(text.replace(b'"codec":"h264"', b'"codec":"raw"'), KEY)
    with pytest.raises(ChunkDamaged):
        parse_metadata(text.replace(b'"encoded"', b'"decoded"'), KEY)
