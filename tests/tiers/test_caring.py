"""`viewcache gc`, `evict` and `doctor` over a folder and a real bucket."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.servers.fault_proxy import FaultProxy, proxied
from tests.servers.seaweed import Seaweed, connected, make_bucket
from tests.tiers.test_moving import CLIPS, make_all, tiered
from viewcache.api.config.find import Located
from viewcache.api.config.load import load
from viewcache.api.upkeep.doctor_cache import Recorded
from viewcache.api.upkeep.doctor_cache import bucket as look_at_bucket
from viewcache.api.upkeep.evict import evict, policies_of
from viewcache.api.upkeep.gc import collected
from viewcache.catalog.policies import Policy, find_policy
from viewcache.errors import NotFound, StoreUnreachable
from viewcache.store import ArrayMeta, open_tier
from viewcache.store.tier import LOCAL, REMOTE


def objects_in(seaweed: Seaweed, bucket: str) -> set[str]:
    """Keys of the objects in the bucket."""
    with connected(seaweed) as client:
        found: list[dict[str, Any]] = client.list_objects_v2(Bucket=bucket, Prefix="cache/objects/").get("Contents", [])
    return {each["Key"].split("/")[3] for each in found}


def made(folder: Path, videos: Path, bucket: str) -> tuple[Located, int, int]:
    """A cache with everything made: where it is, and the copies in folder and bucket."""
    with viewcache.open(tiered(folder, videos, bucket)) as cache:
        make_all(cache, folder)
        ledger = cache.owner.ledger
    return Located(str(folder), str(folder)), len(ledger.copies(LOCAL)), len(ledger.copies(REMOTE))  # moves have ended


def findings(located: Located) -> dict[str, str]:
    """What the doctor says of the bucket: level by what it is about."""
    return {finding.about: finding.level for finding in look_at_bucket(Recorded(located))}


def test_gc_empties_folder_and_bucket_of_what_nobody_needs(
    tmp_path: Path, videos: Path, bucket: str, seaweed: Seaweed
) -> None:
    """Nothing goes while it is needed, nor in a dry run; everything goes when its task has left."""
    located, local, remote = made(tmp_path / "cache", videos, bucket)
    assert remote > 0
    found = collected(located)
    assert (found.objects, found.missing) == (0, 0)
    with viewcache.open(tiered(tmp_path / "cache", videos, bucket)) as cache:
        cache.leave("t")
    dry = collected(located, dry_run=True)
    assert {each.tier.name: each.objects for each in dry.tiers} == {LOCAL: local, REMOTE: remote}
    assert len(objects_in(seaweed, bucket)) == remote
    gone = collected(located)
    assert gone.as_dict() == dry.as_dict()
    assert not objects_in(seaweed, bucket)
    with viewcache.open(tiered(tmp_path / "cache", videos, bucket)) as cache:
        assert (cache.tiers[LOCAL].used_bytes, cache.tiers[REMOTE].used_bytes) == (0, 0)
        assert not cache.owner.recovered.walked


def test_gc_tells_orphans_of_the_bucket_from_what_is_needed(
    tmp_path: Path, videos: Path, bucket: str, seaweed: Seaweed
) -> None:
    """A needed object without a row gets one, another one goes, and a row without an object goes."""
    located, _, remote = made(tmp_path / "cache", videos, bucket)
    with viewcache.open(tiered(tmp_path / "cache", videos, bucket)) as cache:
        rows = {row["object_id"]: row for row in cache.catalog.load_copies().to_pylist() if row["tier"] == REMOTE}
        orphan, lost = sorted(rows)[:2]
        cache.catalog.mark_gone([orphan], "missing", tier=REMOTE)
        cache.tiers[REMOTE].delete(rows[lost]["physical"])
        unknown = "0" * 32
        tier = open_tier(REMOTE, cache.tiers[REMOTE].url, 10**6)
        tier.reserve(10**5)
        tier.write(unknown, np.zeros(64, np.uint8), ArrayMeta((64,), (64,), "raw", {"kind": "clip"}))
        tier.close()
    assert findings(located) == {"bucket": "ok", "bucket orphans": "ok", "bucket missing": "warn"}
    found = collected(located)
    assert (found.objects, found.missing) == (1, 1)
    assert unknown not in objects_in(seaweed, bucket)
    with viewcache.open(tiered(tmp_path / "cache", videos, bucket)) as cache:
        now = {row["object_id"] for row in cache.catalog.load_copies().to_pylist() if row["tier"] == REMOTE}
    assert now == rows.keys() - {lost}
    assert len(now) == remote - 1
    assert findings(located) == {"bucket": "ok", "bucket objects": "ok"}


def test_evict_frees_the_tier_that_is_named(tmp_path: Path, videos: Path, bucket: str, seaweed: Seaweed) -> None:
    """What leaves the bucket stays in the folder; a tier that there is not is an error."""
    located, local, remote = made(tmp_path / "cache", videos, bucket)
    found, active = policies_of(located)
    policy = find_policy(active, found)
    free = evict(located, policy, 1, tier=REMOTE, dry_run=True)
    assert (free.leaves, free.free_bytes > 0) == ((), True)
    dry = evict(located, policy, free.free_bytes + 1, tier=REMOTE, dry_run=True)
    assert (len(dry.leaves), len(objects_in(seaweed, bucket))) == (1, remote)
    everything = evict(located, policy, 50 * 10**6, tier=REMOTE)
    assert len(everything.leaves) == remote
    assert not objects_in(seaweed, bucket)
    with viewcache.open(tiered(tmp_path / "cache", videos, bucket)) as cache:
        assert (len(cache.owner.ledger.copies(LOCAL)), len(cache.owner.ledger.copies(REMOTE))) == (local, 0)
    with pytest.raises(NotFound, match="no memory tier"):
        evict(located, policy, 1, tier="memory")


def test_looking_at_an_emptied_bucket_writes_nothing(
    tmp_path: Path, videos: Path, bucket: str, seaweed: Seaweed
) -> None:
    """The doctor tells what is missing, a dry run of gc what it would forget; the bucket stays empty."""
    located, _, remote = made(tmp_path / "cache", videos, bucket)
    with connected(seaweed) as client:
        for each in client.list_objects_v2(Bucket=bucket)["Contents"]:
            client.delete_object(Bucket=bucket, Key=each["Key"])
        client.delete_bucket(Bucket=bucket)  # SeaweedFS lists folders that are empty, as no other service does
        make_bucket(seaweed, bucket)
        assert remote
        assert findings(located) == {"bucket": "ok", "bucket missing": "warn"}
        collected(located, dry_run=True)
        assert "Contents" not in client.list_objects_v2(Bucket=bucket)


def test_a_bucket_that_does_not_answer_is_told(
    tmp_path: Path, videos: Path, bucket: str, seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The doctor names it, gc changes nothing."""
    with proxied(seaweed.host, seaweed.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        located, local, remote = made(tmp_path / "cache", videos, bucket)
        assert local + remote >= CLIPS
        proxy.rates = {"503": 1.0}
        monkeypatch.setattr("viewcache.api.upkeep.doctor_cache._ANSWERS_S", 1.0)
        (found,) = look_at_bucket(Recorded(located))
        assert found.level == "fail"
        assert "goes on without it" in found.cure
        described = tiered(tmp_path / "cache", videos, bucket)
        described["cache"]["store"][1]["timeout"] = 1.0
        with pytest.raises(StoreUnreachable):
            collected(Located(located.catalog, located.root, load(described)))
        proxy.rates = {}
        assert len(objects_in(seaweed, bucket)) == remote


@dataclass(frozen=True, slots=True)
class Behind:
    """A cache with everything made, whose bucket lies behind a proxy and is waited for one second."""

    proxy: FaultProxy
    described: Any
    located: Located
    local: int
    remote: int
    policy: Policy


@pytest.fixture
def behind(
    tmp_path: Path, videos: Path, bucket: str, seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Behind]:
    """One that nobody has open."""
    with proxied(seaweed.host, seaweed.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        located, local, remote = made(tmp_path / "cache", videos, bucket)
        described = tiered(tmp_path / "cache", videos, bucket)
        described["cache"]["store"][1]["timeout"] = 1.0
        located = Located(located.catalog, located.root, load(described))
        found, active = policies_of(located)
        yield Behind(proxy, described, located, local, remote, find_policy(active, found))


def test_what_an_outage_keeps_from_leaving_stays_on_record(behind: Behind, bucket: str, seaweed: Seaweed) -> None:
    """`evict` of a bucket that takes some deletions and no more says how many; called again it does the rest."""
    first = min(objects_in(seaweed, bucket))
    behind.proxy.where = lambda request: request.method == "DELETE" and first not in request.path
    behind.proxy.rates = {"403": 1.0}
    with pytest.raises(StoreUnreachable, match=rf"[01] of {behind.remote} objects were removed"):
        evict(behind.located, behind.policy, 50 * 10**6, tier=REMOTE)
    left = objects_in(seaweed, bucket)
    assert left
    behind.proxy.rates = {}
    again = evict(behind.located, behind.policy, 50 * 10**6, tier=REMOTE)
    assert {each.key for each in again.leaves} == left
    assert not objects_in(seaweed, bucket)


def test_the_folder_is_cared_for_without_the_bucket(behind: Behind, bucket: str, seaweed: Seaweed) -> None:
    """`evict` of the folder needs no bucket, nor does a dry run; `gc` does the folder, and says what it could not."""
    located, policy, away = behind.located, behind.policy, {"503": 1.0}
    behind.proxy.rates = away
    assert len(evict(located, policy, 50 * 10**6, tier=REMOTE, dry_run=True).leaves) == behind.remote
    free = evict(located, policy, 1, dry_run=True).free_bytes
    assert len(evict(located, policy, free + 1).leaves) == 1
    behind.proxy.rates = {}
    with viewcache.open(behind.described) as cache:
        cache.leave("t")
    behind.proxy.rates = away
    with pytest.raises(StoreUnreachable, match=rf"of the folder {behind.local - 1} objects can be removed"):
        collected(located, dry_run=True)
    with pytest.raises(StoreUnreachable, match=rf"of the folder {behind.local - 1} objects were removed"):
        collected(located)
    behind.proxy.rates = {}
    assert len(objects_in(seaweed, bucket)) == behind.remote
    gone = collected(located)
    assert {each.tier.name: each.objects for each in gone.tiers} == {LOCAL: 0, REMOTE: behind.remote}
    assert not objects_in(seaweed, bucket)
