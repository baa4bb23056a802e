"""Damaged objects in a real cache: always noticed, rebuilt to the same bytes, and the budget's count stays true."""

import os
import random
import shutil
from pathlib import Path

import pytest

import viewcache
from tests.faults.caches import assert_at_rest, config, digest_of, objects_of, read_all
from tests.faults.damage import KINDS, shard_of
from tests.faults.site import MINIMUM
from viewcache.api.session.cache import Cache
from viewcache.catalog import Catalog
from viewcache.catalog.records import CLEAN
from viewcache.errors import ChunkDamaged
from viewcache.store import scan_object

ROUNDS = 10
"""Damages of each kind in each codec: 3 codecs x 8 kinds x 10 = 240."""

Truth = dict[tuple[int, int], str]


def _rebuilt(cache: Cache) -> int:
    return cache.task("t").spent.rebuilt


@pytest.mark.parametrize("codec", ["raw", "lz4", "zstd1"])
def test_every_damage_is_noticed_and_rebuilt(tmp_path: Path, videos: Path, truth: Truth, codec: str) -> None:
    """240 damages over all codecs: each is noticed at the next read, which returns the bytes of an undisturbed run."""
    dice = random.Random(codec)
    done = 0
    with viewcache.open(config(tmp_path, videos, codec=codec)) as cache:
        assert dict(read_all(cache)) == truth
        for kind, damage in KINDS.items():
            for _ in range(ROUNDS):
                place = dice.choice(list(truth))
                keys = cache.task("t").describe(*place).keys
                key, other = dice.choice(keys), dice.choice([each for each in objects_of(tmp_path) if each not in keys])
                (copy,) = cache.owner.ledger.hold([key]) or []
                cache.owner.ledger.release([copy])
                damage(objects_of(tmp_path)[key], copy, objects_of(tmp_path)[other], dice)
                before = _rebuilt(cache)
                assert digest_of(cache.read("t", *place)) == truth[place], kind
                assert _rebuilt(cache) == before + 1, kind
                assert cache.tier.used_bytes == cache.tier.measure(), kind
                assert cache.tier.reserved_bytes == 0
                done += 1
    for orphan in tmp_path.glob("objects/*/elsewhere"):
        orphan.unlink()
    assert done == ROUNDS * len(KINDS)
    assert len(assert_at_rest(tmp_path)) == 16


def test_chunks_swapped_between_two_objects(tmp_path: Path, videos: Path, truth: Truth) -> None:
    """Two objects of one batch whose shards were exchanged are both noticed, though every checksum is right."""
    with viewcache.open(config(tmp_path, videos)) as cache:
        for place in truth:
            cache.read("t", *place)
            one, two = (shard_of(objects_of(tmp_path)[key]) for key in cache.task("t").describe(*place).keys[:2])
            data = one.read_bytes()
            one.write_bytes(two.read_bytes())
            two.write_bytes(data)
            before = _rebuilt(cache)
            assert digest_of(cache.read("t", *place)) == truth[place]
            assert _rebuilt(cache) == before + 2


def test_whole_store_deleted_while_open(tmp_path: Path, videos: Path, truth: Truth) -> None:
    """Every object vanishes under an open cache, several times over: reads go on and the budget is not used up."""
    budget = 2 * MINIMUM  # two batches at most: a count that leaks would be exhausted at once
    with viewcache.open(config(tmp_path, videos, budget=budget)) as cache:
        for _ in range(5):
            for folder in objects_of(tmp_path).values():
                for file in folder.rglob("*"):
                    if file.is_file():
                        file.unlink()
            assert dict(read_all(cache)) == truth
            assert cache.tier.used_bytes <= budget
    assert_at_rest(tmp_path)


def test_damage_between_two_runs(tmp_path: Path, videos: Path, truth: Truth) -> None:
    """Objects damaged while no cache is open are noticed at their read after a clean and after an unclean end."""
    dice = random.Random(5)
    with viewcache.open(config(tmp_path, videos)) as cache:
        dict(read_all(cache))
        copies = {key: (cache.owner.ledger.hold([key]) or [])[0] for key in objects_of(tmp_path)}
    for clean in (True, False):
        for (kind, damage), key in zip(KINDS.items(), sorted(objects_of(tmp_path)), strict=False):
            if kind != "link":
                damage(objects_of(tmp_path)[key], copies[key], objects_of(tmp_path)[max(copies)], dice)
        if not clean:
            (tmp_path / CLEAN).unlink()
        with viewcache.open(config(tmp_path, videos)) as cache:
            assert cache.owner.recovered.walked is not clean
            assert dict(read_all(cache)) == truth
            assert _rebuilt(cache) + cache.owner.recovered.forgotten == len(KINDS) - 1
            assert cache.tier.used_bytes == cache.tier.measure()
        assert_at_rest(tmp_path)


def test_recovery_does_not_adopt_damaged_metadata(tmp_path: Path, videos: Path, truth: Truth) -> None:
    """Objects without a row are adopted at start if they are whole, and deleted if zarr.json is damaged in any byte."""
    dice = random.Random(6)
    with viewcache.open(config(tmp_path, videos)) as cache:
        dict(read_all(cache))
    for _ in range(4):
        with Catalog.open(str(tmp_path)) as catalog:
            rows = catalog.query("read_stored", tier="local").to_pylist()
            catalog.mark_gone([row["object_id"] for row in rows], "test", tier="local")
            catalog.set_setting("clean_end", "no")
        hurt = dice.sample(sorted(objects_of(tmp_path)), 5)
        for key in hurt:
            text = objects_of(tmp_path)[key] / "zarr.json"
            data = bytearray(text.read_bytes())
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
            text.write_bytes(data)
            with pytest.raises(ChunkDamaged):
                scan_object(tmp_path, f"objects/{key[:2]}/{key}")
        with viewcache.open(config(tmp_path, videos)) as cache:
            assert (cache.owner.recovered.adopted, cache.owner.recovered.deleted) == (11, 5)
            assert dict(read_all(cache)) == truth
            assert _rebuilt(cache) == 0
            assert cache.tier.used_bytes == cache.tier.measure()
        assert_at_rest(tmp_path)


def test_a_pipe_in_a_chunks_place_is_damage(tmp_path: Path, videos: Path, truth: Truth) -> None:
    """It is not waited for: the object is made again."""
    with viewcache.open(config(tmp_path, videos)) as cache:
        place = next(iter(truth))
        cache.read("t", *place)
        shard = shard_of(objects_of(tmp_path)[cache.task("t").describe(*place).keys[0]])
        shard.unlink()
        os.mkfifo(shard)
        assert digest_of(cache.read("t", *place)) == truth[place]
        assert _rebuilt(cache) == 1


def test_an_emptied_store_is_filled_again(tmp_path: Path, videos: Path, truth: Truth) -> None:
    """`objects` and `tmp` go while the cache is open: every batch comes, with the same bytes."""
    with viewcache.open(config(tmp_path, videos)) as cache:
        assert dict(read_all(cache)) == truth
        for name in ("objects", "tmp"):
            shutil.rmtree(tmp_path / name)
        assert dict(read_all(cache)) == truth
