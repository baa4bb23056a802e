"""Clients of a service read what lies in a bucket: the service brings it near, and they read it from its memory."""

from pathlib import Path
from typing import Any

import pytest

import viewcache
from tests.faults.caches import read_all
from tests.tiers.task import EPOCHS
from tests.tiers.test_moving import CLIPS, Truth, make_all, tiered
from viewcache.api.service.attached import AttachedCache
from viewcache.api.service.stopping import stop
from viewcache.store.tier import REMOTE


def test_clients_read_a_bucket_through_the_service(
    tmp_path: Path, videos: Path, bucket: str, truth: Truth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every batch is right, and what the bucket has is not made again."""
    monkeypatch.delenv("VIEWCACHE_SERVICE")
    root = tmp_path / "cache"
    given = tiered(root, videos, bucket)
    with viewcache.open(given, service="off") as owner:
        make_all(owner, root)
        assert len(owner.owner.ledger.copies(REMOTE)) >= CLIPS // 3
    attached: Any = viewcache.open(given)
    try:
        with attached as cache:
            assert isinstance(cache, AttachedCache)
            assert dict(read_all(attached, EPOCHS)) == truth
            counted = cache.snapshot()
            (task,) = counted.tasks.values()
            assert task.hits >= CLIPS // 2
            assert counted.work.get("objects", 0) < CLIPS
    finally:
        stop(root)
