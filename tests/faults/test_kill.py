"""Kill -9 anywhere, any time: nothing committed is lost, nothing needs cleaning, the next start goes on (law 8).

A victim process uses a cache and says what it has got. It is killed when it says a certain line, or kills itself at a
failpoint; then the same cache is opened here, as a supervisor that starts a job again would, and looked at. A kill
counts only if the process really died of SIGKILL.
"""

import os
import random
import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import viewcache
from tests.faults.caches import assert_at_rest, config, encode_one, objects_of, read_all, store_bytes, truth_of
from tests.faults.victim import EPOCHS, Life
from tests.house.tree import ROOT
from viewcache.catalog import Catalog
from viewcache.catalog.files import Layout
from viewcache.failpoints import VARIABLE
from viewcache.store import verify_object

SMALL = 68_112
"""Bytes: one and a half batches, so that every batch evicts something."""

Truth = dict[tuple[int, int], str]


@dataclass(frozen=True)
class Kill:
    """How one victim lives and dies."""

    line: int = 0
    """It is killed when it says its n-th line; 0 leaves it to the failpoint."""
    failpoint: str = ""
    life: Life = field(default_factory=Life)

    def __str__(self) -> str:
        """For messages and test ids."""
        return f"{self.failpoint or f'line-{self.line}'}{'-small' if self.life.budget == SMALL else ''}"


@dataclass(frozen=True)
class Left:
    """What a dead victim had said, and what it left."""

    reads: Truth
    acknowledged: frozenset[str]
    """Keys that it said were committed."""
    committed: dict[str, str]
    """Key → place of every object that the catalog has, read from a copy of the catalog made after the kill."""
    draws: frozenset[tuple[object, ...]]
    """(task, epoch, position, video), of the same."""
    objects: frozenset[str]
    """Keys of the objects that lie in the store."""


@pytest.fixture(scope="module")
def whole_truth(tmp_path_factory: pytest.TempPathFactory, videos: Path) -> Truth:
    """The batches of an undisturbed run of as many epochs as a victim has."""
    return truth_of(tmp_path_factory.mktemp("truth"), videos, epochs=EPOCHS)


def start(store: Path, videos: Path, how: Kill) -> "subprocess.Popen[str]":
    """Start a victim."""
    environment = {**os.environ, VARIABLE: f"{how.failpoint}:kill"} if how.failpoint else dict(os.environ)
    return subprocess.Popen(
        how.life.command(store, videos), cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )


def kill(store: Path, videos: Path, how: Kill) -> Left:
    """Start a victim, kill it, make sure that this is what it died of, and look at what it left."""
    with start(store, videos, how) as victim:
        assert victim.stdout is not None
        lines = [victim.stdout.readline() for _ in range(how.line)]
        if how.line:
            victim.kill()
        # Its workers write to the same pipe: it ends when all of them have ended, by themselves.
        said = [line.split() for line in [*lines, *victim.stdout]]
        assert victim.wait() == -signal.SIGKILL, f"{how}: it was not killed; it said {said[-3:]}"
    assert ["end"] not in said
    reads = {(int(words[1]), int(words[2])): words[3] for words in said if words[0] == "read"}
    acknowledged = frozenset(key for words in said if words[0] == "committed" for key in words[1:])
    committed, draws = _catalog_of(store)
    return Left(reads, acknowledged, committed, draws, frozenset(objects_of(store)))


def _catalog_of(store: Path) -> tuple[dict[str, str], frozenset[tuple[object, ...]]]:
    """The copies and the draws of a dead owner's catalog, without touching it."""
    files = [path for path in (Layout(store).database, Layout(store).log) if path.exists()]
    if Layout(store).database not in files:
        return {}, frozenset()
    with TemporaryDirectory() as copy:
        for path in files:
            shutil.copy(path, copy)
        with Catalog.open(copy) as catalog:
            assert not catalog.quarantined
            committed = {row["key"]: row["physical"] for row in catalog.query("read_stored", tier="local").to_pylist()}
            return committed, _draws_of(catalog)


def _draws_of(catalog: Catalog) -> frozenset[tuple[object, ...]]:
    tables = [catalog.load_draws(task.task_id, 0, EPOCHS) for task in catalog.load_tasks()]
    return frozenset(tuple(row.values()) for table in tables for row in table.to_pylist())


def assert_goes_on(store: Path, videos: Path, truth: Truth, how: Kill, left: Left) -> None:
    """The cache opens as it is, has everything that it had, and gives the batches of an undisturbed run.

    On a small budget some of what the catalog had may have been evicted before the kill, the row not yet.
    """
    small = how.life.budget == SMALL
    assert left.reads.items() <= truth.items(), how
    assert small or left.acknowledged <= left.committed.keys() <= left.objects, how
    assert store_bytes(store) <= how.life.budget, how
    with viewcache.open(config(store, videos, budget=how.life.budget, epochs=EPOCHS)) as cache:
        assert not cache.catalog.quarantined, how
        assert objects_of(store).keys() == left.objects, how
        assert set(cache._ledger._copies) == left.objects, how
        for key in left.committed.keys() & left.objects:
            assert verify_object(store, left.committed[key]).key == key, how
        assert left.draws <= _draws_of(cache.catalog), how
        assert dict(read_all(cache, EPOCHS)) == truth, how
        spent = cache.task("t").spent
        assert spent.rebuilt == 0, how
        assert small or spent.misses == len(truth) * 4 - len(left.objects), how
        assert cache.tier.used_bytes == cache.tier.measure(), how
    assert_at_rest(store)


def _random_kill(seed: int) -> Kill:
    """At a line from the first to where nearly everything is made."""
    dice = random.Random(seed)
    life = Life(dice.choice([10**8, SMALL]), dice.choice([1, 2]), dice.choice([1, 3]))
    return Kill(line=dice.randint(1, 24), life=life)


@pytest.mark.parametrize("seed", range(10))
def test_killed_at_a_random_moment(store: Path, videos: Path, whole_truth: Truth, seed: int) -> None:
    """Killed while it opens, plans, makes, evicts, commits or reads: everything is there and goes on."""
    how = _random_kill(seed)
    assert_goes_on(store, videos, whole_truth, how, kill(store, videos, how))
