"""Clocks that jump and disks that are slow change when something happens, never what."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

import viewcache
from tests.faults.caches import assert_at_rest, config, read_all
from tests.faults.strace import Fault, Hits, catalog_writer, injected, need_strace
from tests.house.tree import ROOT

Truth = dict[tuple[int, int], str]

LIBRARIES = [
    Path(folder) / "faketime" / "libfaketimeMT.so.1"
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/usr/local/lib")
]

JUMPS = """
import json, sys, time
from pathlib import Path
import viewcache
from tests.faults.caches import config, digest_of

store, videos, clock, days = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), json.loads(sys.argv[4])
print(json.dumps(time.time()))
with viewcache.open(config(store, videos)) as cache:
    for epoch in range(2):
        for iteration in range(2):
            clock.write_text(f"{days.pop(0):+d}d")
            print(json.dumps([epoch, iteration, digest_of(cache.read("t", epoch, iteration)), time.time()]))
        cache.catalog.flush()
"""


def at_times(store: Path, videos: Path, days: list[int]) -> tuple[Truth, list[float]]:
    """Read all batches, each when the clock is so many days from now; the batches, and what the clock said."""
    library = next((path for path in LIBRARIES if path.exists()), None)
    if library is None:
        pytest.skip("libfaketime is not installed (apt-get install faketime)")
    clock = store.parent / "clock"
    clock.write_text(f"{days[0]:+d}d")
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # else timeouts would jump too, which no kernel does
    }
    done = subprocess.run(
        [sys.executable, "-c", JUMPS, str(store), str(videos), str(clock), json.dumps(days)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    _, *lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {(epoch, iteration): digest for epoch, iteration, digest, _ in lines}, [line[3] for line in lines]


STEADY = [pytest.param(each, marks=pytest.mark.long) for each in ([1] * 4, [-1] * 4, [0, -1, 1, 0])]


@pytest.mark.parametrize("days", [[0, 1, -1, 1], *STEADY])
def test_clocks_jump(store: Path, videos: Path, truth: Truth, days: list[int]) -> None:
    """A clock that is a day wrong, or jumps by days between two batches: the same batches, also of the next start."""
    batches, times = at_times(store, videos, days)
    assert batches == truth
    for before, after, one, next_one in zip(times, times[1:], days, days[1:], strict=False):
        assert abs(after - before - 86_400 * (next_one - one)) < 600, "the clock did not jump"
    with viewcache.open(config(store, videos)) as cache:
        assert not cache.owner.recovered.walked
        assert dict(read_all(cache)) == truth
        assert cache.task("t").spent.rebuilt == 0
    assert_at_rest(store)


READING = "openat,read,pread64,lseek,close"
WRITING = "mkdir,fallocate,pwritev2,ftruncate,rename"
LOGGING = "write,fsync,pwrite64"
CLIPS = 8
"""Of four batches."""
WRITES = 7
"""Calls of WRITING that publish one object: a folder, room for the chunks, three writes, the file's end, the name."""
OPENS = 4
"""Calls of READING in between: two files are opened and closed."""


def read_slowly(store: Path, videos: Path, truth: Truth, delay_us: int, worker: str) -> int:
    """Read all batches while every call of the worker and of the catalog's writer about files takes so long.

    Returns:
        How many calls of the worker were delayed. No clip is there at first.
    """
    need_strace()
    numbers = count()
    hits: list[Hits] = []
    with viewcache.open(config(store, videos)) as cache, ExitStack() as faults:
        assert dict(read_all(cache, 1)).items() <= truth.items()
        for copy in list(cache.owner.ledger.copies().values()):
            cache.owner.dispatcher_now().evictor.damaged(copy)
        (pid,) = cache.owner.dispatcher_now().pool.pids()
        for thread, calls in ((pid, worker), (catalog_writer(), LOGGING)):
            log = store.parent / f"strace.{next(numbers)}"
            slow = Fault(calls, f"delay_enter={delay_us}")
            hits.append(faults.enter_context(injected(thread, slow, log, follow=thread == pid)))
        assert dict(read_all(cache)) == truth
        cache.catalog.flush()
        faults.close()
        assert cache.task("t").spent.rebuilt == 0
    assert_at_rest(store)
    of_worker, of_writer = (each.count() for each in hits)
    assert of_writer, "the catalog was not slow"
    return of_worker


def test_a_slow_disk(store: Path, videos: Path, truth: Truth) -> None:
    """Every write of an object and of the catalog takes 10 ms longer: the same batches, and nothing is given up."""
    assert read_slowly(store, videos, truth, 10_000, WRITING) >= CLIPS * WRITES


@pytest.mark.long
def test_a_very_slow_disk(store: Path, videos: Path, truth: Truth) -> None:
    """The same with 50 ms, and for reading too."""
    assert read_slowly(store, videos, truth, 50_000, f"{READING},{WRITING}") >= CLIPS * (WRITES + OPENS)
