"""What is to leave the bucket, or may lie there, while it does not answer: it counts until it is surely gone."""

import time
from pathlib import Path
from typing import Any, NoReturn

import pytest

import viewcache
from tests.faults.caches import encode_videos, read_all
from tests.scheduling.harness import until
from tests.servers.fault_proxy import REFUSALS, proxied
from tests.servers.seaweed import Seaweed
from tests.tiers.task import EPOCHS
from tests.tiers.test_moving import Truth, lying_there, make_all, tiered
from viewcache.api.session.cache import Cache
from viewcache.errors import StoreUnreachable
from viewcache.materializer.scheduling import migration
from viewcache.materializer.storage import tiers
from viewcache.store import RemoteTier, copy_object
from viewcache.store.tier import REMOTE


def test_epochs_that_were_read_are_made_ahead_again_only_once(tmp_path: Path, bucket: str) -> None:
    """Nothing wants them but who makes them ahead: were they let go of, they would be made again for ever."""
    videos = encode_videos(tmp_path / "videos", 12)
    described = tiered(tmp_path / "cache", videos, bucket, local=300_000)
    described["cache"]["store"][1]["budget"] = 120_000
    described["cache"]["epochs_per_generation"] = 3
    described["dataset"]["epochs"] = 6
    with viewcache.open(described) as cache:
        list(cache.materialize())
        list(read_all(cache, 1))
    with viewcache.open(described) as cache:
        steps = [counts for _, counts in zip(range(30), cache.materialize(), strict=False)]
        assert len(steps) < 30, "it does not end"
        assert steps[-1]["ready"] > 0
        assert cache.owner.ledger.gone.total() < 60


def settled(cache: Cache) -> bool:
    """Whether the bucket's bytes are those that lie there."""
    return cache.tiers[REMOTE].used_bytes == lying_there(cache) and not cache.tiers[REMOTE].reserved_bytes


def test_a_copy_whose_answer_was_lost_counts(
    tmp_path: Path, videos: Path, bucket: str, truth: Truth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lies in the bucket, though nobody was told; it is deleted once the bucket answers, and may be written anew."""
    lost = list[str]()

    def copied(source: Any, stored: Any, target: Any, codec: Any, key: str, **how: Any) -> Any:
        written = copy_object(source, stored, target, codec, key, **how)
        if target.name == REMOTE and len(lost) < 3:
            lost.append(key)
            raise StoreUnreachable("the answer was lost")
        return written

    monkeypatch.setattr(migration, "copy_object", copied)
    monkeypatch.setattr(tiers, "RETRY_S", 0.5)
    with viewcache.open(tiered(tmp_path / "cache", videos, bucket)) as cache:
        for _ in cache.materialize():
            bucket_tier = cache.tiers[REMOTE]
            assert bucket_tier.used_bytes + bucket_tier.reserved_bytes >= lying_there(cache)
        until(lambda: settled(cache), "what was not wanted to be deleted")
        assert len(lost) == 3
        assert dict(read_all(cache, EPOCHS)) == truth
        until(lambda: settled(cache), "counts and bucket to agree")
    with viewcache.open(tiered(tmp_path / "cache", videos, bucket)) as cache:
        assert settled(cache)


def test_what_is_to_leave_a_bucket_that_does_not_answer(
    tmp_path: Path, videos: Path, bucket: str, truth: Truth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked once and not for each copy, else closing would take as long; it leaves when the bucket answers."""
    asked = list[str]()
    monkeypatch.setattr(tiers, "RETRY_S", 1e6)

    def fail(_tier: RemoteTier, physical: str, _counted: int | None = None) -> NoReturn:
        asked.append(physical)
        raise StoreUnreachable("no answer")

    with viewcache.open(tiered(tmp_path / "cache", videos, bucket)) as cache:
        make_all(cache, tmp_path / "cache")
        until(lambda: settled(cache), "copies to have arrived")
        used, copies = cache.tiers[REMOTE].used_bytes, list(cache.owner.ledger.copies(REMOTE).values())
        with monkeypatch.context() as patch:
            patch.setattr(RemoteTier, "delete", fail)
            cache.owner.dispatcher_now().evictor.give_up(copies)
            until(lambda: not cache.owner.dispatcher_now().evictor.is_leaving(), "the evictor")
            assert len(asked) == 1
            assert cache.tiers[REMOTE].used_bytes == used == lying_there(cache)
        cache.owner.ledger.mark_unreachable(REMOTE, time.monotonic())  # it answers again
        until(lambda: settled(cache) and cache.tiers[REMOTE].used_bytes < used, "it to be deleted")
        assert dict(read_all(cache, EPOCHS)) == truth


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_bucket_that_refuses_writes_is_read(
    tmp_path: Path,
    videos: Path,
    bucket: str,
    truth: Truth,
    seaweed: Seaweed,
    monkeypatch: pytest.MonkeyPatch,
    refusal: str,
) -> None:
    """Its objects are not passed over, it is not asked again and again, and nothing counts that does not lie there."""
    described = tiered(tmp_path / "cache", videos, bucket)
    with viewcache.open(described) as cache:
        make_all(cache, tmp_path / "cache")
    described["cache"]["store"][0]["budget"] //= 2
    with proxied(seaweed.host, seaweed.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        proxy.rates, proxy.only = {refusal: 1.0}, frozenset({"PUT"})
        with viewcache.open(described) as cache:
            assert dict(read_all(cache, EPOCHS)) == truth
            until(lambda: proxy.struck[refusal] > 0, "something to move down")
            before = proxy.count("GET")
            assert dict(read_all(cache, EPOCHS)) == truth
            assert proxy.count("GET") > before
            assert cache.owner.ledger.is_reachable(REMOTE)
            assert not cache.owner.tiers.takes("write", REMOTE)
            assert cache.owner.tiers.takes("delete", REMOTE)
            assert proxy.struck[refusal] <= migration.AT_ONCE, "it is not asked again at once"
            until(lambda: settled(cache), "what leaves to be deleted")
        proxy.rates = {}
        with viewcache.open(described) as cache:
            assert not cache.owner.recovered.walked, "nothing may lie there that is not known"


def test_what_could_be_deleted_later_leaves_a_clean_end(
    tmp_path: Path, videos: Path, bucket: str, truth: Truth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start need not look through the bucket for what has gone meanwhile."""
    described = tiered(tmp_path / "cache", videos, bucket)
    with viewcache.open(described) as cache:
        make_all(cache, tmp_path / "cache")
        until(lambda: settled(cache), "copies to have arrived")
        copies = list(cache.owner.ledger.copies(REMOTE).values())
        cache.owner.ledger.mark_unreachable(REMOTE, time.monotonic() + 3600)
        cache.owner.dispatcher_now().evictor.give_up(copies)
        until(lambda: cache.owner.tiers.orphans, "it to be found away")
        cache.owner.ledger.mark_unreachable(REMOTE, time.monotonic())
        until(lambda: not cache.owner.tiers.orphans, "it to be deleted")
    with viewcache.open(described) as cache:
        assert not cache.owner.recovered.walked
        assert dict(read_all(cache, EPOCHS)) == truth
