"""A bucket that is down when a cache opens costs time, never a batch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import viewcache
from tests.faults.caches import read_all
from tests.servers.fault_proxy import FaultProxy, proxied
from tests.servers.seaweed import Seaweed
from tests.tiers.task import EPOCHS
from tests.tiers.test_moving import CLIPS, Truth, make_all, tiered
from viewcache.catalog.records import CLEAN
from viewcache.errors import StoreUnreachable
from viewcache.store.tier import REMOTE

AWAY = {"503": 1.0}


@pytest.fixture
def proxy(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """What stands between the caches of a test and the service."""
    with proxied(seaweed.host, seaweed.port) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", running.endpoint)
        yield running


def described(folder: Path, videos: Path, bucket: str) -> Any:
    """The task over a small folder and a bucket that is waited for one second."""
    found = tiered(folder, videos, bucket)
    found["cache"]["store"][1]["timeout"] = 1.0
    return found


@pytest.mark.parametrize("clean", [True, False])
def test_a_cache_opens_without_its_bucket(
    tmp_path: Path,
    videos: Path,
    bucket: str,
    proxy: FaultProxy,
    truth: Truth,
    monkeypatch: pytest.MonkeyPatch,
    clean: bool,
) -> None:
    """Every batch is right, from the folder or made again; when the bucket is back, its objects are read again."""
    how = described(tmp_path / "cache", videos, bucket)
    with viewcache.open(how) as cache:
        make_all(cache, tmp_path / "cache")
    there = len(cache.owner.ledger.copies(REMOTE))
    assert there >= CLIPS // 3
    if not clean:
        (tmp_path / "cache" / CLEAN).unlink()
    proxy.rates = AWAY
    with viewcache.open(how) as cache:
        assert cache.tiers[REMOTE].away
        assert len(cache.owner.ledger.copies(REMOTE)) == there
        assert dict(read_all(cache, EPOCHS)) == truth
        assert cache.tiers[REMOTE].away
    proxy.rates = {}
    with viewcache.open(how) as cache:
        assert cache.owner.recovered.walked is not clean
        assert dict(read_all(cache, EPOCHS)) == truth


def test_a_bucket_that_comes_back_is_used_again(
    tmp_path: Path, videos: Path, bucket: str, proxy: FaultProxy, truth: Truth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same run: it is asked again after a while, and what lies there is neither made nor lost."""
    how = described(tmp_path / "cache", videos, bucket)
    with viewcache.open(how) as cache:
        make_all(cache, tmp_path / "cache")
    monkeypatch.setattr("viewcache.materializer.storage.tiers.RETRY_S", 0.0)
    proxy.rates = AWAY
    with viewcache.open(how) as cache:
        proxy.rates = {}
        assert dict(read_all(cache, EPOCHS)) == truth
        assert cache.task("t").spent.misses == 0


def test_a_bucket_that_refuses_is_an_error_at_once(
    tmp_path: Path, videos: Path, bucket: str, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong credentials, or a bucket that there is not, are mistakes to be corrected and not times to be waited for."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StoreUnreachable, match="credentials"):
        viewcache.open(described(tmp_path / "cache", videos, bucket))


def test_a_bucket_that_is_away_when_it_is_used_again_is_counted_later(
    tmp_path: Path, videos: Path, bucket: str, proxy: FaultProxy
) -> None:
    """Of what lies there nothing is known; the first start that reaches it looks."""
    how = described(tmp_path / "cache", videos, bucket)
    with viewcache.open(how) as cache:
        make_all(cache, tmp_path / "cache")
    used = cache.tiers[REMOTE].used_bytes
    elsewhere = described(tmp_path / "cache", videos, bucket)
    elsewhere["cache"]["store"][1]["url"] = f"s3://{bucket}/elsewhere"
    with viewcache.open(elsewhere):
        pass
    proxy.rates = AWAY
    with viewcache.open(how) as cache:
        assert cache.tiers[REMOTE].away
    proxy.rates = {}
    with viewcache.open(how) as cache:
        assert cache.tiers[REMOTE].used_bytes == used > 0
