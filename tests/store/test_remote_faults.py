"""A network that fails changes nothing but time (docs/reliability.md, rows 13 and 14): a real S3 server behind a proxy
that does on purpose what networks do by accident.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from tests.scheduling.harness import until
from tests.servers.fault_proxy import FAULTS, REFUSALS, FaultProxy, Request, proxied
from tests.servers.seaweed import Seaweed, connected
from tests.store.objects import Bytes, pixels, stored_of
from viewcache import store
from viewcache.errors import Closed, Full, StoreUnreachable

T = TypeVar("T")

SHAPE = (4, 3, 32, 32)
META = store.ArrayMeta(SHAPE, (1, *SHAPE[1:]), "raw", {"kind": "clip"})
COUNT = 200
WRITERS = 8
QUICK = {"503", "hang", "flip"}
"""Refused, not answered, wrong: the others are like one of them, and come in the long runs."""
SLACK_S = 5.0
"""A machine that runs other things may wake a thread late."""


@dataclass(frozen=True, slots=True)
class Site:
    """A bucket behind a proxy."""

    seaweed: Seaweed
    bucket: str
    monkeypatch: pytest.MonkeyPatch

    @contextmanager
    def open(self, deadline_s: float = 60.0, stall_s: float = 1.0) -> Iterator[tuple[FaultProxy, store.RemoteTier]]:
        """A tier of its own proxy, opened before any fault."""
        with ExitStack() as stack:
            proxy = stack.enter_context(proxied("127.0.0.1", self.seaweed.port, seed=7))
            self.monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
            tier = self._opened(deadline_s, stall_s)
            stack.callback(tier.close)
            yield proxy, tier

    def names(self) -> set[str]:
        """Names of the files that lie there."""
        with connected(self.seaweed) as client:
            found = client.list_objects_v2(Bucket=self.bucket, Prefix="store/").get("Contents", [])
        return {each["Key"].removeprefix("store/") for each in found}

    def _opened(self, deadline_s: float, stall_s: float) -> store.RemoteTier:
        """Limits that are short for the sake of a test may be too short for a busy machine: then once more."""
        for _ in range(20):
            with suppress(StoreUnreachable):
                return store.RemoteTier(
                    f"s3://{self.bucket}/store", 1 << 30, deadline_s=deadline_s, stall_s=stall_s, seed=7
                )
        raise AssertionError("the store could not be opened in 20 attempts, without any fault")


@pytest.fixture
def site(seaweed: Seaweed, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Site:
    """An empty bucket."""
    return Site(seaweed, bucket, monkeypatch)


def _each(count: int, work: Callable[[int], T]) -> list[T]:
    """Several at once, as a dispatcher does."""
    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(work, range(count)))


def _key(number: int) -> str:
    return f"{number:02x}" * 16


def _faults_change_nothing(site: Site, rates: dict[str, float], stall_s: float) -> None:
    with site.open(stall_s=stall_s) as (proxy, tier):
        proxy.rates = rates
        written = _each(COUNT, lambda number: tier.write(_key(number), pixels(SHAPE, number), META))
        assert not [each.key for each in written if each.existed], "a lost answer looked like somebody else's object"
        out = store.aligned_empty((COUNT, *SHAPE))
        assert tier.read_slots([stored_of(each) for each in written], out) == {}
        assert all(np.array_equal(out[number], pixels(SHAPE, number)) for number in range(COUNT))
        few = {fault: proxy.struck[fault] for fault, rate in rates.items() if proxy.struck[fault] < COUNT * rate / 2}
        assert not few, f"too few faults struck, so this test shows nothing: {few}"
        proxy.rates = {}
        assert dict(tier.iter_objects()) == {each.physical: each.bytes for each in written}


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_in_five_changes_nothing(site: Site, fault: str) -> None:
    """With one request in five failing in one way, none of 200 objects is wrong, lost or refused."""
    _faults_change_nothing(site, {fault: 0.2}, stall_s=0.4 if fault == "hang" else 2.0)


def test_all_faults_together_change_nothing(site: Site) -> None:
    """With one request in five failing in any of the seven ways, none of 200 objects is wrong, lost or refused."""
    _faults_change_nothing(site, dict.fromkeys(FAULTS, 0.2 / len(FAULTS)), stall_s=0.5)


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=[] if fault in QUICK else pytest.mark.long) for fault in FAULTS]
)
def test_a_failing_service_is_a_clear_error_in_time(site: Site, fault: str) -> None:
    """With three requests in five failing, each read is right, or a StoreUnreachable within the deadline; never damage.
    Afterwards all that lies there is read.
    """
    deadline_s, stall_s = 0.4, 0.2
    with site.open() as (_, healthy):
        stored = [stored_of(healthy.write(_key(number), pixels(SHAPE, number), META)) for number in range(12)]
    with site.open(deadline_s, stall_s) as (proxy, tier):
        out = store.aligned_empty(SHAPE)
        proxy.rates = {fault: 0.6}
        for number, each in enumerate(stored):
            assert _refusal(tier, each, out, deadline_s) or np.array_equal(out, pixels(SHAPE, number))
        assert proxy.struck[fault], "no fault struck: this test shows nothing"
        proxy.rates = {fault: 1.0}
        assert _refusal(tier, stored[0], out, deadline_s)
    with site.open() as (_, healthy):
        for number, each in enumerate(stored):
            healthy.read(each, out)
            assert np.array_equal(out, pixels(SHAPE, number))


def _refusal(tier: store.RemoteTier, stored: store.Stored, out: Bytes, deadline_s: float) -> bool:
    """Whether a read ended, in time, with the error that says so and names the object."""
    began = time.monotonic()
    try:
        tier.read(stored, out)
    except StoreUnreachable as error:
        return stored.physical in str(error) and time.monotonic() - began < deadline_s + SLACK_S
    return False


def test_a_service_that_is_down_costs_one_time_limit(site: Site) -> None:
    """After a store was given up, further requests are tried once each, until one is answered."""
    with site.open(deadline_s=1.5, stall_s=0.2) as (proxy, tier):
        stored = stored_of(tier.write(_key(1), pixels(SHAPE), META))
        out = store.aligned_empty(SHAPE)
        proxy.rates = {"503": 1.0}
        with pytest.raises(StoreUnreachable):
            tier.read(stored, out)
        before = len(proxy.requests)
        for _ in range(5):
            with pytest.raises(StoreUnreachable):
                tier.read(stored, out)
        assert len(proxy.requests) - before == 5
        proxy.rates = {}
        until = time.monotonic() + 20
        while _refusal(tier, stored, out, 1.5) and time.monotonic() < until:
            pass  # one try may be too short where the machine is busy
        assert np.array_equal(out, pixels(SHAPE))


@pytest.mark.parametrize("count", [60, pytest.param(200, marks=pytest.mark.long)])
def test_lost_answers_are_no_conflicts(site: Site, count: int) -> None:
    """With three answers in ten lost, each lone writer learns that it made its object itself."""
    with site.open() as (proxy, tier):
        proxy.rates = {"lost": 0.3}
        written = _each(count, lambda number: tier.write(_key(number), pixels(SHAPE, number), META))
        assert [each.key for each in written if each.existed] == []
        assert proxy.struck["lost"] >= count / 3


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.long)])
def test_of_two_caches_one_makes_the_object(site: Site, count: int) -> None:
    """Two owners that write one key at once, with three answers in ten lost: exactly one made it, both have it."""
    with ExitStack() as stack:
        proxies, tiers = zip(*(stack.enter_context(site.open()) for _ in range(2)), strict=True)
        for proxy in proxies:
            proxy.rates = {"lost": 0.3}
        pool = stack.enter_context(ThreadPoolExecutor(2))
        for number in range(count):
            writes = [pool.submit(tier.write, _key(number), pixels(SHAPE, number), META) for tier in tiers]
            results = [write.result() for write in writes]
            assert sorted(each.existed for each in results) == [False, True], f"race {number}"
            assert results[0].table == results[1].table
            assert results[0].bytes == results[1].bytes
        assert all(proxy.struck["lost"] >= count / 3 for proxy in proxies)


def test_reads_are_one_request(site: Site, tmp_path: Path) -> None:
    """An object, a clip of 32 frames out of a video's, and a batch object each cost one GET; a look costs two, a copy
    three.
    """
    frames = store.ArrayMeta((200, 3, 24, 24), (1, 3, 24, 24), "lz4")
    batch = store.ArrayMeta((8, 4, 3, 24, 24), (1, 4, 3, 24, 24), "raw")
    with site.open() as (proxy, tier):
        array = pixels(frames.shape)
        video = stored_of(tier.write(_key(1), array, frames))
        whole = stored_of(tier.write(_key(2), array[:32].reshape(batch.shape), batch))
        assert _costs(proxy, lambda: tier.write(_key(3), pixels(SHAPE), META)) == ["PUT", "PUT"]
        out = store.aligned_empty(frames.shape)
        assert _costs(proxy, lambda: tier.read(video, out)) == ["GET"]
        clip = store.aligned_empty((32, 3, 24, 24))
        assert _costs(proxy, lambda: tier.read(video, clip, range(7, 7 + 3 * 32, 3))) == ["GET"]
        assert np.array_equal(clip, array[7 : 7 + 3 * 32 : 3])
        assert _costs(proxy, lambda: tier.read(whole, clip.reshape(batch.shape))) == ["GET"]
        slots = store.aligned_empty((3, *SHAPE))
        three = [stored_of(tier.write(_key(number), pixels(SHAPE, number), META)) for number in (4, 5, 6)]
        assert _costs(proxy, lambda: tier.read_slots(three, slots)) == ["GET"] * 3
        assert _costs(proxy, lambda: tier.scan(video.physical)) == ["GET", "GET"]
        assert _costs(proxy, lambda: tier.verify(video.physical)) == ["GET", "GET"]
        folder = store.LocalTier(tmp_path / "store", 1 << 30)
        assert _costs(proxy, lambda: store.copy_object(tier, video, folder, "raw", _key(1))) == ["GET"] * 2
        assert _costs(proxy, lambda: tier.delete(video.physical)) == ["GET", "DELETE", "DELETE"]


def test_a_store_without_its_marker_is_not_listed_whole(site: Site) -> None:
    """Of the folders of objects one is looked into, however many there are."""
    with site.open() as (_, tier):
        for number in range(9):
            tier.write(_key(number), pixels(SHAPE, number), META)
    with connected(site.seaweed) as client:
        client.delete_object(Bucket=site.bucket, Key=f"store/{store.MARKER}")
    with site.open() as (proxy, tier):
        assert tier.unmarked
        assert [request.method for request in proxy.requests] == ["GET"] * 4 + ["PUT", "GET"]


def test_a_marker_that_is_missed_late_is_left_to_the_next_start(site: Site) -> None:
    """A store that was away when it was opened is used without one: only who opens it then knows what else is gone."""
    with site.open() as (proxy, first):
        written = first.write(_key(1), pixels(SHAPE), META)
        with connected(site.seaweed) as client:
            client.delete_object(Bucket=site.bucket, Key=f"store/{store.MARKER}")
        proxy.rates = {"503": 1.0}
        with closing(store.RemoteTier(first.url, 1 << 30, deadline_s=0.5, required=False)) as late:
            assert late.away
            proxy.rates = {}
            assert late.scan(written.physical).stored == stored_of(written)
    with site.open() as (_, tier):
        assert tier.unmarked


def _costs(proxy: FaultProxy, work: Callable[[], object]) -> list[str]:
    before = len(proxy.requests)
    work()
    return [request.method for request in proxy.requests[before:]]


def test_slots_are_read_together(site: Site) -> None:
    """Objects of a batch wait for the network at the same time: eight waits of a tenth of a second take far less than
    eight tenths.
    """
    with site.open() as (proxy, tier):
        stored = [stored_of(tier.write(_key(number), pixels(SHAPE, number), META)) for number in range(8)]
        out = store.aligned_empty((8, *SHAPE))
        proxy.latency_s = 0.1
        began = time.monotonic()
        assert tier.read_slots(stored, out) == {}
        assert 0.1 <= time.monotonic() - began < 0.6
        assert all(np.array_equal(out[number], pixels(SHAPE, number)) for number in range(8))


def test_closing_ends_what_is_under_way(site: Site) -> None:
    """A reader that waits for a service that does not answer gets Closed when the tier is closed, and does not hang."""
    with site.open(stall_s=60.0) as (proxy, tier):
        stored = [stored_of(tier.write(_key(number), pixels(SHAPE, number), META)) for number in range(40)]
        proxy.rates = {"hang": 1.0}
        with ThreadPoolExecutor(2) as pool:
            batch = pool.submit(tier.read_slots, stored, store.aligned_empty((40, *SHAPE)))
            look = pool.submit(tier.scan, stored[0].physical)
            while not proxy.struck["hang"]:
                time.sleep(0.01)
            tier.close()
            for each in (batch, look):
                with pytest.raises(Closed, match="open it again"):
                    each.result(timeout=20)


@pytest.mark.parametrize("refusal", REFUSALS)
def test_what_is_refused_in_the_middle_leaves_nothing(site: Site, refusal: str) -> None:
    """The shard was taken, what makes it an object is refused for good: the shard goes, and nothing is counted."""
    with site.open() as (proxy, tier):
        reservation = tier.reserve(10**6)
        assert reservation is not None
        proxy.rates, proxy.where = {refusal: 1.0}, _is_metadata
        with reservation, pytest.raises(Full if refusal == "507" else StoreUnreachable) as told:
            tier.write(_key(1), pixels(SHAPE, 1), META)
        assert proxy.struck[refusal] == 1, "it is not asked again"
        assert not isinstance(told.value, StoreUnreachable) or told.value.refused
        assert site.names() == {store.MARKER}
        assert (tier.used_bytes, tier.reserved_bytes) == (0, 0)
        proxy.rates = {}
        assert not tier.write(_key(1), pixels(SHAPE, 1), META).existed


def test_a_shard_that_cannot_be_removed_may_lie_there(site: Site) -> None:
    """Neither ``zarr.json`` nor the removal of its shard is let through: then it is not as if nothing had been done."""
    with site.open() as (proxy, tier):
        proxy.where = lambda request: request.method == "DELETE" or _is_metadata(request)
        proxy.rates = {"403": 1.0}
        with pytest.raises(StoreUnreachable) as told:
            tier.write(_key(1), pixels(SHAPE, 1), META)
        assert not told.value.refused
        assert len(site.names()) == 2, "the marker and the shard"


def _is_metadata(request: Request) -> bool:
    return request.method == "PUT" and request.path.endswith("/zarr.json")


def test_who_closes_asks_once(site: Site) -> None:
    """A request that would be made again for a minute is given up at its first failure."""
    with site.open(deadline_s=60.0) as (proxy, tier), ThreadPoolExecutor(1) as pool:
        proxy.rates, proxy.only = {"503": 1.0}, frozenset({"PUT"})
        writing = pool.submit(tier.write, _key(1), pixels(SHAPE, 1), META)
        until(lambda: proxy.struck["503"] > 0, "the first attempt")
        begun = time.monotonic()
        tier.hasten()
        with pytest.raises(StoreUnreachable):
            writing.result()
        assert time.monotonic() - begun < 5.0 + SLACK_S, "the longest pause, and an attempt"
