"""Images in a bucket: the same batches as of a folder, each file fetched once, and a listing that takes its time."""

from collections import Counter
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

import viewcache
from tests.images.small import config, save_folder
from tests.images.test_images import Read, read, same
from tests.servers.fault_proxy import FaultProxy, proxied
from tests.servers.seaweed import Seaweed, connected
from viewcache.store.tier import REMOTE

COUNT = 24
GIVEN: dict[str, Any] = {"epochs": 3, "labels": "folders", "sampling": {"images_per_batch": 8}}
KEPT = {"mix": 1.0, "epochs_per_generation": 3}
"""All resized pictures are kept, for all epochs."""
LATENCY_S = 0.1


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of unequal sizes and three formats in two folders."""
    kinds = ("jpg", "png", "webp")
    sizes = {f"{'cats' if k % 2 else 'dogs'}/{k:02}.{kinds[k % 3]}": (60 + k, 48) for k in range(COUNT)}
    return save_folder(tmp_path_factory.mktemp("images"), sizes)


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory, images: Path) -> Read:
    """Every batch of the folder."""
    with viewcache.open(config(tmp_path_factory.mktemp("truth"), images, **GIVEN)) as cache:
        return read(cache)


@pytest.fixture
def proxy(seaweed: Seaweed, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """What everybody reads the bucket through."""
    with proxied(seaweed.host, seaweed.port) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", running.endpoint)
        yield running


def put(seaweed: Seaweed, bucket: str, images: Path) -> dict[str, int]:
    """Put a folder's files below ``in/``; path of a request → bytes."""
    with connected(seaweed) as client:
        found = {}
        for path in images.rglob("*.*"):
            key = f"in/{path.relative_to(images)}"
            client.put_object(Bucket=bucket, Key=key, Body=path.read_bytes())
            found[f"/{bucket}/{key}"] = path.stat().st_size
    return found


def fetched(proxy: FaultProxy, since: int, of: dict[str, int]) -> Counter[str]:
    """How often each of some files was asked for from a request on."""
    return Counter(each.path for each in proxy.requests[since:] if each.method == "GET" and each.path in of)


def far(store: Path, bucket: str, **given: Any) -> dict[str, Any]:
    """A task over what `put` has put."""
    written = config(store, Path("/"), **GIVEN | given)
    written["dataset"]["image_dataset_path"] = f"s3://{bucket}/in"
    return written


def test_a_bucket_gives_what_the_folder_gives(
    tmp_path: Path, images: Path, truth: Read, seaweed: Seaweed, bucket: str, proxy: FaultProxy
) -> None:
    """The same bytes; each file is fetched once for its header, and once for all epochs."""
    files = put(seaweed, bucket, images)
    with viewcache.open(far(tmp_path, bucket, cache=KEPT)) as cache:
        assert fetched(proxy, 0, files) == dict.fromkeys(files, 1)
        asked, came = len(proxy.requests), proxy.object_bytes
        *_, made = cache.materialize()
        assert not made["failed"]
        assert same(read(cache), truth)
        assert fetched(proxy, asked, files) == dict.fromkeys(files, 1)
        assert proxy.object_bytes - came == sum(files.values())
    with viewcache.open(far(tmp_path, bucket, cache=KEPT)) as cache:
        assert same(read(cache), truth)


def test_blocks_lie_in_a_bucket_too(tmp_path: Path, images: Path, truth: Read, bucket: str) -> None:
    """A folder that holds half of them above a tier on S3: nothing is decoded twice, after a restart neither."""
    tiers = [{"url": str(tmp_path), "budget": "150kB"}, {"url": f"s3://{bucket}/cache", "budget": "50MB"}]
    usual = {"store": tiers, "budget": None, "keep": "leaves", "eviction": {"trim": False}}
    given = config(tmp_path, images, cache=usual, **GIVEN)
    with viewcache.open(given) as cache:
        *_, made = cache.materialize()
        assert made == {"ready": 3 * COUNT, "planned": 0, "making": 0, "failed": 0}
        assert len(cache.owner.ledger.copies(REMOTE)) >= 3
        assert same(read(cache), truth)
    with viewcache.open(given) as cache:
        assert same(read(cache), truth)
        assert cache.owner.dispatcher_now().tally.frames["packets"] == 0


def test_a_bucket_that_lists_slowly(
    tmp_path: Path, images: Path, truth: Read, seaweed: Seaweed, bucket: str, proxy: FaultProxy
) -> None:
    """Whatever folders there are, it is listed once, and opening waits for nothing else before it reads headers."""
    files = put(seaweed, bucket, images)
    proxy.latency_s = LATENCY_S
    with viewcache.open(far(tmp_path, bucket)) as cache:
        proxy.latency_s = 0.0
        assert same(read(cache), truth)
    before = list(takewhile(lambda each: each.path not in files, proxy.requests))
    assert len(before) <= 3, "is it a file, is there anything below it, and what"
    assert not [each for each in proxy.requests[len(before) :] if "list-type" in each.query]
