"""Whole caches over memory, a folder and a real bucket: what moves where, and that no batch ever differs (law 3)."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import psutil
import pytest

import viewcache
from tests import forked
from tests.faults.caches import config, read_all, store_bytes
from tests.scheduling.harness import WAIT_S
from tests.servers.fault_proxy import proxied
from tests.servers.seaweed import Seaweed, connected
from tests.tiers.task import EPOCHS, TASK
from viewcache.api.audit.verify import verify
from viewcache.api.config.find import Located
from viewcache.api.session.cache import Cache
from viewcache.catalog import Catalog
from viewcache.errors import Full, StoreUnreachable
from viewcache.materializer.scheduling import migration
from viewcache.materializer.scheduling.trim import Trim
from viewcache.store.tier import LOCAL, MEMORY, REMOTE

CLIPS = 32
"""Of all epochs of the task."""

SMALL = 520_000
"""Bytes of a folder that holds about half of them."""

TIGHT = 240_000
"""Of one that holds the clips of a video, and besides what is read next, but not both and what readers are left."""

Truth = dict[tuple[int, int], str]


def tiered(
    folder: Path,
    videos: Path,
    bucket: str,
    *,
    memory: int = 0,
    local: int = SMALL,
    codecs: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """The task over a small folder and a bucket, and memory if it has bytes."""
    found = config(folder, videos, **TASK)
    store = [
        {"url": str(folder), "budget": local, "codec": codecs.get("local", "auto")},
        {"url": f"s3://{bucket}/cache", "budget": "50MB", "codec": codecs.get("remote", "auto"), "timeout": 10.0},
    ]
    if memory:
        store.append({"url": "memory://", "budget": memory, "codec": codecs.get("memory", "auto")})
    found["cache"]["store"] = store
    return found


def make_all(cache: Cache, folder: Path) -> None:
    """Make every clip ahead; no tier is over its budget meanwhile.

    Copies may still be on their way to another tier then: what lies where is asked of the closed cache.
    """
    counts: dict[str, int] = {}
    for each in cache.materialize():
        counts = each
        assert store_bytes(folder) <= cache.tiers[LOCAL].budget_bytes
        for name in cache.tiers.names():
            tier = cache.tiers[name]
            assert tier.used_bytes + tier.reserved_bytes <= tier.budget_bytes
    assert counts == {"ready": CLIPS, "planned": 0, "making": 0, "failed": 0}


def test_what_the_folder_has_no_room_for_lies_in_the_bucket(
    tmp_path: Path, videos: Path, bucket: str, truth: Truth
) -> None:
    """All clips are kept though the folder holds half: nothing is decoded twice, also after the next start."""
    described = tiered(tmp_path / "cache", videos, bucket)
    with viewcache.open(described) as cache:
        make_all(cache, tmp_path / "cache")
        assert len(cache.owner.ledger.copies(REMOTE)) >= CLIPS // 3
    with viewcache.open(described) as cache:
        assert not cache.owner.recovered.walked
        assert dict(read_all(cache, EPOCHS)) == truth
        assert cache.task("t").spent.misses == 0
        assert cache.busy_seconds().get("decode", 0.0) == 0.0


def test_a_folder_that_holds_few_videos_clips_is_emptied_again_and_again(
    tmp_path: Path, videos: Path, bucket: str, truth: Truth
) -> None:
    """All that is kept of a video is made at once where there may be room for it, and else as much as there may be."""
    folder = tmp_path / "cache"
    with viewcache.open(tiered(folder, videos, bucket, local=TIGHT)) as cache:
        make_all(cache, folder)
        assert dict(read_all(cache, EPOCHS)) == truth


def test_each_tier_has_its_codec(tmp_path: Path, videos: Path, bucket: str, truth: Truth) -> None:
    """What a tier was given is how its copies are packed, whatever they were copied from; the pixels are the same."""
    codecs = {"local": "lz4", "remote": "zstd1", "memory": "raw"}
    with viewcache.open(tiered(tmp_path / "cache", videos, bucket, memory=2 * 10**6, codecs=codecs)) as cache:
        make_all(cache, tmp_path / "cache")
        assert dict(read_all(cache, EPOCHS)) == truth
        found = {name: {copy.stored.codec for copy in cache.owner.ledger.copies(name).values()} for name in codecs}
    assert found == {name: {codec} for name, codec in codecs.items()}


def test_what_comes_next_lies_in_memory(tmp_path: Path, videos: Path, bucket: str, truth: Truth) -> None:
    """Memory holds a window on what comes, in its own codec; it is empty after a start, and nothing is lost by that."""
    described = tiered(tmp_path / "cache", videos, bucket, memory=2 * 10**6)
    with viewcache.open(described) as cache:
        make_all(cache, tmp_path / "cache")
        assert cache.owner.ledger.copies(MEMORY)
        assert {copy.stored.codec for copy in cache.owner.ledger.copies(MEMORY).values()} == {"raw"}
        below = cache.owner.ledger.copies(LOCAL).keys() | cache.owner.ledger.copies(REMOTE).keys()
    with Catalog.open(tmp_path / "cache", create=False, writable=False) as catalog:
        assert set(catalog.load_copies()["tier"].to_pylist()) == {LOCAL, REMOTE}
    with viewcache.open(described) as cache:
        assert not cache.owner.ledger.copies(MEMORY)
        assert dict(read_all(cache, EPOCHS)) == truth
        assert cache.task("t").spent.misses <= CLIPS - len(below)


def test_a_bucket_that_does_not_answer_costs_time_only(
    tmp_path: Path, videos: Path, bucket: str, seaweed: Seaweed, truth: Truth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its objects are made again while it is away, and no reader gets an error."""
    with proxied(seaweed.host, seaweed.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        with viewcache.open(tiered(tmp_path / "cache", videos, bucket)) as cache:
            make_all(cache, tmp_path / "cache")
            proxy.rates = {"503": 1.0}
            refused = proxy.count("GET")
            assert dict(read_all(cache, EPOCHS)) == truth
            assert proxy.count("GET") > refused
            assert cache.task("t").spent.misses > 0


@pytest.mark.parametrize("error", [Full("no room"), StoreUnreachable("no answer")], ids=repr)
def test_what_cannot_be_moved_is_not_tried_without_a_pause(
    tmp_path: Path, videos: Path, bucket: str, truth: Truth, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A bucket without room or without an answer costs a few tries a second, and no batch."""
    tried: list[str] = []

    def fail(source: object, stored: object, target: object, codec: object, key: str, **_: object) -> NoReturn:
        tried.append(key)
        raise error

    monkeypatch.setattr(migration, "copy_object", fail)
    begun = time.monotonic()
    with viewcache.open(tiered(tmp_path / "cache", videos, bucket)) as cache:
        list(cache.materialize())
        assert dict(read_all(cache, EPOCHS)) == truth
    assert 1 <= len(tried) <= migration.AT_ONCE * (2 + (time.monotonic() - begun) / migration.IDLE_S)


@pytest.mark.logs_a_traceback
def test_a_mistake_of_ours_does_not_end_moving(
    tmp_path: Path,
    videos: Path,
    bucket: str,
    truth: Truth,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An error of no kind that we know is logged, and moving goes on: else the folder would be full for ever."""
    some, left = Trim.some, [3]

    def flaky(trim: Trim) -> bool:
        left[0] -= 1
        if left[0] >= 0:
            raise LookupError("a mistake of ours")
        return some(trim)

    monkeypatch.setattr(Trim, "some", flaky)
    with viewcache.open(tiered(tmp_path / "cache", videos, bucket)) as cache:
        make_all(cache, tmp_path / "cache")
        assert len(cache.owner.ledger.copies(REMOTE)) >= CLIPS // 3
        assert dict(read_all(cache, EPOCHS)) == truth
    assert left[0] < 0
    assert caplog.text.count("LookupError: a mistake of ours") == 3


@pytest.mark.parametrize("damage", ["flipped", pytest.param("gone", marks=pytest.mark.long)])
def test_damage_in_the_bucket_is_rebuilt(
    tmp_path: Path, videos: Path, bucket: str, seaweed: Seaweed, truth: Truth, damage: str
) -> None:
    """A lost or changed object of the bucket is noticed when it is read, and made again."""
    with viewcache.open(tiered(tmp_path / "cache", videos, bucket)) as cache:
        make_all(cache, tmp_path / "cache")
        hurt = set(cache.owner.ledger.copies(REMOTE)) - set(cache.owner.ledger.copies(LOCAL))
        assert hurt
        with connected(seaweed) as client:
            for key in hurt:
                if damage == "flipped":
                    _change(client, bucket, key)
                else:
                    for name in _shards(client, bucket, key):
                        client.delete_object(Bucket=bucket, Key=name)
        assert dict(read_all(cache, EPOCHS)) == truth


def test_verify_reads_every_tier(tmp_path: Path, videos: Path, bucket: str, seaweed: Seaweed) -> None:
    """A changed byte in the bucket is found without reading a batch, and dropped."""
    with viewcache.open(tiered(tmp_path / "cache", videos, bucket)) as cache:
        make_all(cache, tmp_path / "cache")
    key = next(iter(cache.owner.ledger.copies(REMOTE)))
    copies = len(cache.owner.ledger.copies(REMOTE)) + len(cache.owner.ledger.copies(LOCAL))
    with connected(seaweed) as client:
        _change(client, bucket, key)
    found = verify(Located(str(tmp_path / "cache"), str(tmp_path / "cache")))
    assert (found.objects, len(found.damaged), found.orphans, found.repaired) == (copies, 1, (), True)
    assert verify(Located(str(tmp_path / "cache"), str(tmp_path / "cache"))).damaged == ()


def _change(client: Any, bucket: str, key: str) -> None:
    """Flip a bit of an object in the bucket."""
    for name in _shards(client, bucket, key):
        body = bytearray(client.get_object(Bucket=bucket, Key=name)["Body"].read())
        body[len(body) // 2] ^= 1
        client.put_object(Bucket=bucket, Key=name, Body=bytes(body))


def _shards(client: Any, bucket: str, key: str) -> list[str]:
    found = client.list_objects_v2(Bucket=bucket, Prefix=f"cache/objects/{key[:2]}/{key}/c.")
    return [each["Key"] for each in found["Contents"]]


_VICTIM = """
import json, sys, viewcache
cache = viewcache.open(json.loads(sys.argv[1]))
for counts in cache.materialize():
    pass
cache.catalog.flush()
remote, local = (cache.owner.ledger.copies(name).keys() for name in ("remote", "local"))
print(json.dumps([list(remote), len(remote | local)]), flush=True)
sys.stdin.read()
"""


def test_kill_9_loses_nothing_that_lies_in_the_bucket(tmp_path: Path, videos: Path, bucket: str, truth: Truth) -> None:
    """The next start finds folder and bucket as they are; nothing is made again, memory is gone without a trace."""
    described = tiered(tmp_path / "cache", videos, bucket, memory=2 * 10**6)
    victim = forked.Popen(
        [sys.executable, "-c", _VICTIM, json.dumps(described)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert victim.stdout is not None
    remote, below = json.loads(victim.stdout.readline())
    tree = [psutil.Process(victim.pid), *psutil.Process(victim.pid).children(recursive=True)]
    memory = {held for process in tree for held in _shared_memory(process.pid)}
    assert memory
    victim.kill()
    assert victim.wait() == -signal.SIGKILL
    victim.communicate()
    psutil.wait_procs(tree, timeout=WAIT_S)
    assert not any(memory & _shared_memory(pid) for pid in psutil.pids())
    assert not any(memory & _file(path) for path in Path("/dev/shm").iterdir())
    with viewcache.open(described) as cache:
        assert cache.owner.recovered.walked
        # More of them may have arrived before the kill.
        assert set(cache.owner.ledger.copies(REMOTE)) >= set(remote) > set()
        assert dict(read_all(cache, EPOCHS)) == truth
        assert cache.task("t").spent.misses <= CLIPS - below


def _shared_memory(pid: int) -> set[tuple[int, int]]:
    """Shared memory, with a name or without, that a process holds open; none if it has ended."""
    found = set()
    with suppress(OSError):
        for opened in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # closed by now
                if os.readlink(opened).startswith(("/memfd:", "/dev/shm/")):
                    found |= _file(opened)
    return found


def _file(path: Path) -> set[tuple[int, int]]:
    """Device and inode of a file, if it is there."""
    with suppress(OSError):
        found = path.stat()
        return {(found.st_dev, found.st_ino)}
    return set()


def test_a_full_bucket_gives_up_what_is_needed_last(tmp_path: Path, videos: Path, bucket: str, truth: Truth) -> None:
    """When folder and bucket are full nothing is over its budget, and what is read is right."""
    described = tiered(tmp_path / "cache", videos, bucket)
    described["cache"]["store"][1]["budget"] = 100_000
    with viewcache.open(described) as cache:
        for _ in cache.materialize():
            for name in cache.tiers.names():
                assert cache.tiers[name].used_bytes + cache.tiers[name].reserved_bytes <= cache.tiers[name].budget_bytes
        assert dict(read_all(cache, EPOCHS)) == truth


def test_another_bucket_is_another_store(tmp_path: Path, videos: Path, bucket: str, truth: Truth) -> None:
    """With another URL nothing that the catalog says of the old one is believed."""
    described = tiered(tmp_path / "cache", videos, bucket)
    with viewcache.open(described) as cache:
        make_all(cache, tmp_path / "cache")
    described["cache"]["store"][1]["url"] = f"s3://{bucket}/elsewhere"
    with viewcache.open(described) as cache:
        assert not cache.owner.ledger.copies(REMOTE)
        assert dict(read_all(cache, EPOCHS)) == truth


def test_a_bucket_that_is_used_again_is_counted(tmp_path: Path, videos: Path, bucket: str) -> None:
    """What lies there from an earlier session counts against its budget, also where that is lower by now."""
    described = tiered(tmp_path / "cache", videos, bucket)
    with viewcache.open(described) as cache:
        make_all(cache, tmp_path / "cache")
    keys = set(cache.owner.ledger.copies(REMOTE))
    used = cache.tiers[REMOTE].used_bytes
    elsewhere = tiered(tmp_path / "cache", videos, bucket)
    elsewhere["cache"]["store"][1]["url"] = f"s3://{bucket}/elsewhere"
    with viewcache.open(elsewhere):
        pass
    with viewcache.open(described) as cache:
        assert set(cache.owner.ledger.copies(REMOTE)) == keys
        assert cache.tiers[REMOTE].used_bytes == used == lying_there(cache)
    with viewcache.open(elsewhere):
        pass
    described["cache"]["store"][1]["budget"] = budget = used // 2
    with viewcache.open(described) as cache:
        assert 0 < lying_there(cache) == cache.tiers[REMOTE].used_bytes <= budget


def lying_there(cache: Cache) -> int:
    """Bytes of the objects in the bucket."""
    return sum(size for _, size in cache.tiers[REMOTE].iter_objects())
