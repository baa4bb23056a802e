"""Law 6 where a dataset grows: what was made of a file that goes, or is replaced, while the cache is open stays."""

from pathlib import Path
from typing import Any

import pytest

import viewcache
from tests.disk import without_room
from tests.streaming.arriving import arrive, streaming
from tests.tiny import same, sql
from viewcache.api.session.cache import Cache
from viewcache.catalog.duck import DuckEngine
from viewcache.errors import Full
from viewcache.materializer.planning.cost import CostModel

STATUS = "select status from videos where video = 'v1'"
STORED = "select count(distinct object_id) from copies join objects using (object_id) where objects.video = 'v1'"


@pytest.fixture(autouse=True)
def decoding_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that clips are kept, no pictures."""
    cost = CostModel(decode_s_per_pixel=1e-12, convert_s_per_pixel=1e-12)
    monkeypatch.setattr(CostModel, "measured", classmethod(lambda *_: cost))


def trimming(store: Path, folder: Path, **changes: Any) -> dict[str, Any]:
    """Generations of two epochs of a folder that grows; each leaves when it is over."""
    kept = {"budget": 10**8, "epochs_per_generation": 2, "eviction": {"trim": True}}
    return streaming(store, folder, cache=kept, **changes)


def read(cache: Cache, *epochs: int) -> dict[tuple[int, int], Any]:
    """Every batch of some epochs; then all is made ahead, and trimmed."""
    places = [(epoch, each) for epoch in epochs for each in range(cache.task("train").iterations(epoch))]
    found = {place: cache.read("train", *place) for place in places}
    cache.owner.look_ahead.wait_idle(60)
    assert cache.owner.dispatcher is not None
    assert cache.owner.dispatcher.wait_idle(60)
    cache.catalog.flush()
    return found


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_what_was_read_of_it_stays(tmp_path: Path, clips: list[Path], folder: Path, how: str) -> None:
    """Its clips do not leave with their generation, its paths show it after a restart, and it is told of once."""
    given = trimming(tmp_path / "s", folder, on_changed_video="version")
    with viewcache.open(given) as cache:
        before = read(cache, 0)
        if how == "removed":
            (folder / "v1.mp4").unlink()
        else:
            arrive(folder, clips[9], name="v1.mp4")
        before |= read(cache, 1, 2, 3, 4)
        assert sql(cache, STATUS) == [("gone",)]
        assert sql(cache, STORED) == [(2,)], "of both epochs that have it"
        assert sql(cache, "select count(*) from evictions")[0] > (0,), "of others the clips have left"
    with viewcache.open(given) as cache:
        assert [(each.change, each.names) for each in cache.changes("train")] == [(how, ("v1",))]
        assert same(read(cache, *range(5)), before)
        assert sql(cache, "select * from substitutions") == []
    with viewcache.open(given) as cache:
        assert cache.changes("train") == ()


def test_what_is_back_is_as_it_was(tmp_path: Path, folder: Path) -> None:
    """A file that returns is drawn again, and its clips leave as others do; also if it is back before the next opening.

    Nothing is told of it.
    """
    given = trimming(tmp_path / "s", folder)
    with viewcache.open(given) as cache:
        read(cache, 0)
        (folder / "v1.mp4").rename(tmp_path / "v1.mp4")
        read(cache, 1, 2)
        assert sql(cache, STATUS) == [("gone",)]
        (tmp_path / "v1.mp4").rename(folder / "v1.mp4")
        read(cache, 3)
        assert sql(cache, STATUS) == [("ok",)]
        assert {name for batch in read(cache, 4).values() for name in batch.videos} == {"v0", "v1", "v2"}
        assert sql(cache, STORED) == [(2,)], "of epochs 4 and 5"
        (folder / "v1.mp4").rename(tmp_path / "v1.mp4")
        read(cache, 5)
        assert sql(cache, STATUS) == [("gone",)]
    (tmp_path / "v1.mp4").rename(folder / "v1.mp4")
    with viewcache.open(given) as cache:
        assert cache.changes("train") == ()
        cache.catalog.flush()
        assert sql(cache, STATUS) == [("ok",)]


def test_nothing_is_trimmed_before_it_is_recorded(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the catalog's disk is full it cannot be recorded that a file is gone: then nothing leaves."""
    begun, refused = DuckEngine.transaction, list[Path]()
    with viewcache.open(trimming(tmp_path / "s", folder, epochs=6)) as cache:
        first = read(cache, 0)
        (folder / "v1.mp4").unlink()
        monkeypatch.setattr(DuckEngine, "transaction", without_room(refused))
        cache.read("train", 1, 0)
        with pytest.raises(Full):
            cache.read("train", 2, 0)
        cache.owner.look_ahead.wait_idle(60)
        assert refused
        assert cache.catalog.load_videos(1)["status"].to_pylist() == ["ok"] * 3
        assert cache.owner.ledger.gone["local", "evict"] == 0
        monkeypatch.setattr(DuckEngine, "transaction", begun)
        read(cache, 1, 2, 3, 4)
        assert sql(cache, STATUS) == [("gone",)]
        assert cache.owner.ledger.gone["local", "evict"] > 0
        assert same(read(cache, 0), first)
