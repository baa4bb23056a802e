"""Many processes at once, at full size in the nightly lane: openings that race, clients by the dozen, a full disk."""

import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import viewcache
from tests.service.served import Opener, described, digest, ended, start, told
from viewcache.api.service import files
from viewcache.api.service.stopping import stop
from viewcache.errors import Full
from viewcache.testing.leaks import settle

pytestmark = pytest.mark.long

OPEN = """
import time
begun = time.perf_counter()
with viewcache.open(given) as cache:
    print(json.dumps([time.perf_counter() - begun, cache.stats().pid, digest(cache.read("train", 0, 0))]), flush=True)
    sys.stdin.readline()
"""

CLIENTS = """
import threading, time
count, seconds, batches = int(sys.argv[2]), float(sys.argv[3]), 5
times, wrong = [], []
def reads(cache):
    task, until, number = cache.task("train"), time.monotonic() + seconds, 0
    while time.monotonic() < until:
        begun = time.perf_counter()
        found = digest(task.read(0, number % batches))
        times.append(time.perf_counter() - begun)
        if found != truth[number % batches]:
            wrong.append(number)
        number += 1
        time.sleep(max(0.0, 1 / 3 - (time.perf_counter() - begun)))
first = viewcache.open(given)
truth = [digest(first.read("train", 0, number)) for number in range(batches)]
print(json.dumps(0), flush=True)
sys.stdin.readline()
caches = [first, *(viewcache.open(given) for _ in range(count - 1))]
threads = [threading.Thread(target=reads, args=(cache,)) for cache in caches]
for each in threads: each.start()
for each in threads: each.join()
for each in caches: each.close()
print(json.dumps([times, wrong]))
"""

RANK = """
from torch.utils.data import DataLoader
import warnings
warnings.simplefilter("ignore")
rank, world, workers, context = int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
with viewcache.open(given) as cache:
    loader = cache.loader("train", rank=rank, world=world)
    if workers:
        loader = DataLoader(loader, batch_size=None, num_workers=workers, multiprocessing_context=context, timeout=120)
    print(json.dumps([batch["index"].tolist() for batch in loader]))
"""


def test_fifty_races_to_open_one_store(store: Path, videos: Path) -> None:
    """Eight processes at once, fifty times, where nobody serves: one service each time, which serves all of them."""
    given = described(store, videos, cache={"service_idle": 0})
    seen = set[str]()
    for _ in range(50):
        racing = [start(OPEN, given) for _ in range(8)]
        answers: list[Any] = [told(each) for each in racing]
        assert len({pid for _, pid, _ in answers}) == 1
        seen |= {found for *_, found in answers}
        for each in racing:
            each.communicate("\n", timeout=60)
        assert not settle(partial(_running, answers[0][1]))
    assert len(seen) == 1


def test_sixty_four_clients_for_a_minute(store: Path, videos: Path, attach: Opener) -> None:
    """Three warm batches a second each: no error, right bytes, nothing left behind, and no memory that grows."""
    watching = attach()
    pid = watching.stats().pid
    processes = [start(CLIENTS, described(store, videos), "8", "60") for _ in range(8)]
    for each in processes:
        told(each)
    before = _held(pid)
    for each in processes:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    time.sleep(20)  # the first look comes when all are there, the second half a minute later
    early = _rss_mb(pid)
    time.sleep(30)
    late = _rss_mb(pid)
    found: list[Any] = [ended(each) for each in processes]
    times = sorted(seconds for of_process, _ in found for seconds in of_process)
    assert not [wrong for _, wrong in found if wrong]
    assert len(times) >= 64 * 60
    print(f"p50 {times[len(times) // 2] * 1e3:.1f} ms, p99 {times[len(times) * 99 // 100] * 1e3:.1f} ms")
    assert late - early < 5
    assert not settle(lambda: [each for each in watching.stats().clients if each.pid != os.getpid()])
    after = settle(lambda: [] if _held(pid)[0] <= before[0] else [_held(pid)])
    assert not after, (before, after)


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize(("context", "workers"), [("fork", 0), *product(("fork", "spawn", "forkserver"), (1, 2, 4))])
def test_every_way_to_read_gives_one_order(store: Path, videos: Path, context: str, workers: int, world: int) -> None:
    """Ranks as processes, with DataLoader workers under each start method: the order of the plan, each video once."""
    given = described(store, videos, sampling={"videos_per_batch": 5})  # four ranks share the last one, too
    ranks = [start(RANK, given, str(rank), str(world), str(workers), context) for rank in range(world)]
    read: list[Any] = [ended(each, 300) for each in ranks]
    with viewcache.open(given) as cache:
        task = cache.task("train")
        places = [(epoch, i) for epoch in range(3) for i in range(task.iterations(epoch))]
        truth = [[cache.read("train", *place, rank, world).index.tolist() for place in places] for rank in range(world)]
    assert read == truth
    for epoch in range(3):
        batches = len(truth[0]) // 3
        seen = [one for rank in truth for share in rank[epoch * batches : (epoch + 1) * batches] for one in share]
        assert len(seen) == 20
        assert set(Counter(seen).values()) == {2}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 40 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"only root may mount a small file system: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_that_fills_under_a_service(small_disk: Path, videos: Path, tmp_path: Path) -> None:
    """Batches come or say that the disk is full; when there is room again all are right, by the same service."""
    with viewcache.open(described(tmp_path / "truth", videos), service="off") as owner:
        truth = [digest(owner.read("train", epoch, i)) for epoch in range(3) for i in range(5)]
    root = small_disk / "store"
    with viewcache.open(described(root, videos, cache={"budget": "20MB"})) as cache:
        service: Any = cache
        pid = service.stats().pid
        ballast = small_disk / "ballast"
        with ballast.open("wb") as file:
            free = os.statvfs(small_disk)
            file.write(bytes(max(0, free.f_bavail * free.f_frsize - (64 << 10))))
        for number in range(15):
            with suppress(Full):  # what comes is right
                assert digest(cache.read("train", *divmod(number, 5))) == truth[number]
        free = os.statvfs(small_disk)
        assert free.f_bavail * free.f_frsize < 1 << 20, "the disk was not full"
        ballast.unlink()
        assert [digest(cache.read("train", *divmod(number, 5))) for number in range(15)] == truth
        assert service.stats().pid == pid
    stop(root)


def _running(pid: int) -> list[int]:
    return [pid] if files.started_ticks(pid) is not None else []


def _held(pid: int) -> tuple[int, int]:
    """Descriptors and threads of a process."""
    return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))


def _rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024
