"""Objects that somebody else put into a cache's folder or bucket do not keep it from opening after an unclean end."""

from pathlib import Path

import viewcache
from tests.faults.caches import config, objects_of, read_all
from tests.servers.seaweed import Seaweed, connected
from tests.store.crafted import CRAFTED, FORGED_ATTRIBUTES, FORGED_BYTES, FORGED_TABLES, craft
from tests.tiers.task import TASK
from tests.tiers.test_moving import Truth, tiered
from viewcache import store
from viewcache.catalog import Catalog

FORGED = CRAFTED | FORGED_ATTRIBUTES


def unclean(folder: Path) -> None:
    """Let the last run of a closed cache have ended without a word."""
    with Catalog.open(folder, create=False) as catalog:
        catalog.set_setting("clean_end", "no")


def key_of(number: int) -> str:
    """The key of a crafted object."""
    return f"{number:02x}" * 16


def test_crafted_objects_in_a_folder(tmp_path: Path, videos: Path, truth: Truth) -> None:
    """All of them at once: the cache opens, they are gone, no row tells of them, and every batch is right."""
    folder = tmp_path / "cache"
    described = config(folder, videos, **TASK)
    with viewcache.open(described) as cache:
        first = cache.read("t", 0, 0)
    whole = set(objects_of(folder))
    for number, forge in enumerate(FORGED.values()):
        craft(folder, key_of(number), forge)
    for number, damage in enumerate(FORGED_BYTES.values(), len(FORGED)):
        forged = craft(folder, key_of(number), lambda document: None)
        damage(forged / "zarr.json", forged / "c.0.0")
    unclean(folder)
    with viewcache.open(described) as cache:
        assert cache.owner.recovered.walked
        assert cache.owner.recovered.deleted == len(FORGED) + len(FORGED_BYTES)
        assert set(objects_of(folder)) == whole
        assert cache.tier.used_bytes == cache.tier.measure()
        assert cache.read("t", 0, 0).keys == first.keys
        assert dict(read_all(cache, TASK["epochs"])) == truth


def test_crafted_objects_in_a_bucket(tmp_path: Path, videos: Path, bucket: str, seaweed: Seaweed, truth: Truth) -> None:
    """The same where others may write, too."""
    folder, elsewhere = tmp_path / "cache", tmp_path / "elsewhere"
    described = tiered(folder, videos, bucket)
    viewcache.open(described).close()
    store.LocalTier(elsewhere, 1 << 30)
    with connected(seaweed) as client:
        for number, forge in enumerate((FORGED | FORGED_TABLES).values()):
            for file in craft(elsewhere, key_of(number), forge).iterdir():
                place = f"cache/{store.physical_of(key_of(number))}/{file.name}"
                client.put_object(Bucket=bucket, Key=place, Body=file.read_bytes())
        unclean(folder)
        with viewcache.open(described) as cache:
            assert cache.owner.recovered.walked
            assert not client.list_objects_v2(Bucket=bucket, Prefix="cache/objects/").get("Contents")
            assert dict(read_all(cache, TASK["epochs"])) == truth


def test_an_object_of_another_shape_is_made_again(tmp_path: Path, videos: Path, truth: Truth) -> None:
    """One that lies at the place of a clip, is whole, and has another shape than the clip is damage to its reader."""
    folder = tmp_path / "cache"
    described = config(folder, videos, **TASK, keep="leaves")  # no clip passes through memory
    with viewcache.open(described) as cache:
        key = cache.read("t", 0, 0).keys[0]
    for file in objects_of(folder)[key].iterdir():
        file.unlink()
    objects_of(folder)[key].rmdir()
    craft(folder, key, lambda document: None)
    with Catalog.open(folder, create=False) as catalog:
        catalog.mark_gone([row["object_id"] for row in catalog.load_copies().to_pylist()], "test", tier="local")
        catalog.set_setting("clean_end", "no")
    with viewcache.open(described) as cache:
        assert dict(read_all(cache, TASK["epochs"])) == truth


def test_a_store_that_was_emptied_while_it_was_open_opens_again(tmp_path: Path, videos: Path, truth: Truth) -> None:
    """``rm -rf cache/*`` under a running training: the marker comes back, and the next start reads what was made."""
    folder = tmp_path / "cache"
    described = config(folder, videos, **TASK)
    with viewcache.open(described) as cache:
        cache.read("t", 0, 0)
        for each in ("objects", "tmp"):
            (folder / each).rename(tmp_path / each)
        (folder / store.MARKER).unlink()
        assert dict(read_all(cache, TASK["epochs"])) == truth
    assert (folder / store.MARKER).is_file()
    (folder / store.MARKER).unlink()  # of a release before this one, or deleted after the last object was made
    with viewcache.open(described) as cache:
        assert dict(read_all(cache, TASK["epochs"])) == truth
