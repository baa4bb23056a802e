"""Many readers, writers that publish, and evictions all the time: whole objects only."""

import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import viewcache
from tests import forked
from tests.faults.caches import assert_at_rest, config, digest_of, read_all
from tests.faults.site import MINIMUM
from tests.house.tree import ROOT
from tests.tiny import sql

EPOCHS = 6
BUDGET = 3 * MINIMUM
"""Three or four batches of the twelve, so that something is always evicted and made again."""


@dataclass
class Seen:
    """What the readers of a run saw."""

    reads: int = 0
    whole: int = 0
    """Objects that the one who looks from outside found whole."""
    seconds: list[float] = field(default_factory=list)
    """Of each read."""


def crowd(store: Path, videos: Path, readers: int, for_s: float) -> Seen:
    """Let many read at random for a while, and one look from outside."""
    with viewcache.open(config(store.parent / "truth", videos, epochs=EPOCHS)) as cache:
        truth = dict(read_all(cache, EPOCHS))
    seen, lock = Seen(), threading.Lock()
    with viewcache.open(config(store, videos, budget=BUDGET, epochs=EPOCHS, workers=2)) as cache:

        def read(seed: int) -> None:
            dice = random.Random(seed)
            while time.monotonic() < end:
                place = dice.choice(list(truth))
                started = time.monotonic()
                batch = cache.read("t", *place)
                took = time.monotonic() - started
                assert digest_of(batch) == truth[place]
                with lock:
                    seen.reads += 1
                    seen.seconds.append(took)

        with (
            forked.Popen(
                [sys.executable, "-m", "tests.faults.onlooker", str(store)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            ) as onlooker,
            ThreadPoolExecutor(readers, thread_name_prefix="test-reader") as crowd,
        ):
            assert onlooker.stdout is not None
            assert onlooker.stdout.readline() == b"ready\n"
            end = time.monotonic() + for_s
            for task in [crowd.submit(read, k) for k in range(readers)]:
                task.result()
            said, _ = onlooker.communicate(timeout=60)
            assert onlooker.returncode == 0, "an object in sight was not whole"
            seen.whole = int(said)
        assert sql(cache, "select count(*) > 0 from evictions") == [(True,)]
        assert cache.task("t").spent.rebuilt == 0, "nobody ever read a damaged object"
        assert not cache.owner.ledger.held
    assert_at_rest(store)
    return seen


def test_readers_see_whole_objects(store: Path, videos: Path) -> None:
    """Eight readers beside two writers and evictions: every batch is right, every folder in sight a whole object."""
    seen = crowd(store, videos, 8, 2.0)
    assert seen.reads >= 8
    assert seen.whole > 8


@pytest.mark.long
def test_a_crowd_of_readers(store: Path, videos: Path) -> None:
    """Sixty-four readers for a minute."""
    seen = crowd(store, videos, 64, 60.0)
    p50, p99 = np.percentile(seen.seconds, [50, 99])
    print(f"\n{seen.reads} reads, {seen.whole} objects seen, p50 {1e3 * p50:.0f} ms, p99 {1e3 * p99:.0f} ms")
    assert seen.reads > 1000
