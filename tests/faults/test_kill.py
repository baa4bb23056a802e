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
from tests import forked
from tests.faults.caches import assert_at_rest, config, digest_of, encode_one, objects_of, read_all, store_bytes
from tests.faults.strace import Fault, calls_below, need_strace, traced_command
from tests.faults.victim import EPOCHS, Life
from tests.house.tree import ROOT
from viewcache.catalog import Catalog
from viewcache.catalog.files import CatalogFiles
from viewcache.failpoints import VARIABLE
from viewcache.store import verify_object
from viewcache.store.format import METADATA_NAME

SMALL = 142_608
"""Bytes: one and a half batches, so that every batch evicts something."""

COMMITS = ((1, "before"), (2, "after"), (3, "before"), (3, "after"), (4, "before"))
"""(n-th, before or after) commit of a start; the third is recovery's own."""

Truth = dict[tuple[int, int], str]


@dataclass(frozen=True)
class Kill:
    """How one victim lives and dies."""

    line: int = 0
    """It is killed when it says its n-th line; 0 leaves it to the failpoint."""
    failpoint: str = ""
    fault: Fault | None = None
    """Of one of its system calls."""
    life: Life = field(default_factory=Life)

    def __str__(self) -> str:
        """For messages and test ids."""
        where = self.failpoint or str(self.fault or f"line-{self.line}")
        return f"{where}{'-small' if self.life.budget == SMALL else ''}"


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
    objects: dict[str, int]
    """Key → inode of every object that lies in the store: one that is made again has another."""


@pytest.fixture(scope="module")
def whole_truth(tmp_path_factory: pytest.TempPathFactory, videos: Path) -> Truth:
    """The batches of an undisturbed run of as many epochs as a victim has."""
    with viewcache.open(config(tmp_path_factory.mktemp("whole"), videos, epochs=EPOCHS)) as cache:
        return dict(read_all(cache, EPOCHS))


def start(store: Path, videos: Path, how: Kill) -> "subprocess.Popen[str]":
    """Start a victim."""
    environment = {**os.environ, VARIABLE: f"{how.failpoint}:kill"} if how.failpoint else dict(os.environ)
    command = how.life.command(store, videos)
    if how.fault is not None:
        command = traced_command(command, how.fault, store.parent / "strace.log")
    return forked.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def kill(store: Path, videos: Path, how: Kill) -> Left:
    """Start a victim, kill it, make sure that this is what it died of, and look at what it left."""
    left, said = _kill(store, videos, how)
    assert left is not None, f"{how}: it was not killed; it said {said[-3:]}"
    return left


def _kill(store: Path, videos: Path, how: Kill) -> tuple[Left | None, list[list[str]]]:
    """The same, or None if it came to its end; and what it said."""
    with start(store, videos, how) as victim:
        assert victim.stdout is not None
        lines = [victim.stdout.readline() for _ in range(how.line)]
        if how.line:
            victim.kill()
        # Its workers write to the same pipe: it ends when all of them have ended, by themselves.
        said = [line.split() for line in [*lines, *victim.stdout]]
        if victim.wait() != -signal.SIGKILL:
            return None, said
    assert ["end"] not in said
    reads = {(int(words[1]), int(words[2])): words[3] for words in said if words[0] == "read"}
    acknowledged = frozenset(key for words in said if words[0] == "committed" for key in words[1:])
    committed, draws = _catalog_of(store)
    return Left(reads, acknowledged, committed, draws, _objects(store)), said


def _catalog_of(store: Path) -> tuple[dict[str, str], frozenset[tuple[object, ...]]]:
    """The copies and the draws of a dead owner's catalog, without touching it."""
    files = [path for path in (CatalogFiles(store).database, CatalogFiles(store).log) if path.exists()]
    if CatalogFiles(store).database not in files:
        return {}, frozenset()
    with TemporaryDirectory() as copy:
        for path in files:
            shutil.copy(path, copy)
        with Catalog.open(copy) as catalog:
            assert not catalog.quarantined
            committed = {row["key"]: row["physical"] for row in catalog.query("read_stored", tier="local").to_pylist()}
            return committed, _draws_of(catalog)


def _objects(store: Path) -> dict[str, int]:
    return {key: folder.stat().st_ino for key, folder in objects_of(store).items()}


def _draws_of(catalog: Catalog) -> frozenset[tuple[object, ...]]:
    tables = [catalog.load_draws(task.task_id, 0, EPOCHS) for task in catalog.load_tasks()]
    return frozenset(tuple(row.values()) for table in tables for row in table.to_pylist())


def assert_goes_on(store: Path, videos: Path, truth: Truth, how: Kill, left: Left) -> None:
    """The cache opens as it is, has everything that it had, and gives the batches of an undisturbed run.

    On a small budget some of what the catalog had may have been evicted before the kill, the row not yet.
    """
    small = how.life.budget == SMALL
    assert left.reads.items() <= truth.items(), how
    assert small or left.acknowledged <= left.committed.keys() <= left.objects.keys(), how
    assert store_bytes(store) <= how.life.budget, how
    with viewcache.open(how.life.config(store, videos)) as cache:
        assert not cache.catalog.quarantined, how
        assert _objects(store) == left.objects, how
        assert cache.owner.ledger.copies().keys() == left.objects.keys(), how
        for key in left.committed.keys() & left.objects.keys():
            assert verify_object(store, left.committed[key]).key == key, how
        assert left.draws <= _draws_of(cache.catalog), how
        assert dict(read_all(cache, EPOCHS)) == truth, how
        assert cache.task("t").spent.rebuilt == 0, how
        assert small or left.objects.items() <= _objects(store).items(), how
        assert cache.owner.dispatcher is not None
        assert cache.owner.dispatcher.wait_idle(60), how
        assert cache.tier.used_bytes == cache.tier.measure(), how
    assert_at_rest(store)


def _random_kill(seed: int) -> Kill:
    """At a line between the start and where nearly everything is made."""
    dice = random.Random(seed)
    life = Life(dice.choice([10**8, SMALL]), dice.choice([1, 2]), dice.choice([1, 3]))
    return Kill(line=dice.randint(1, 20), life=life)


@pytest.mark.parametrize("seed", range(4))
def test_killed_at_a_random_moment(store: Path, videos: Path, whole_truth: Truth, seed: int) -> None:
    """Killed while it opens, plans, makes, evicts, commits or reads: everything is there and goes on."""
    how = _random_kill(seed)
    assert_goes_on(store, videos, whole_truth, how, kill(store, videos, how))


WITH_WORKER, EVICTING, PUBLISHING = Life(dies_with_worker=True), Life(SMALL), Life(publish=True)

NAMED = [
    # A worker dies at an object, and the owner before it has taken that in.
    Kill(failpoint="store.temp-made:2", life=WITH_WORKER),
    Kill(failpoint="store.shard-written:9", life=WITH_WORKER),
    Kill(failpoint="store.before-rename:5", life=WITH_WORKER),
    Kill(failpoint="store.after-rename:3", life=WITH_WORKER),
    # The first commits are those of opening and planning, the later ones of what was made and read.
    *(Kill(failpoint=f"catalog.before-commit:{n}") for n in (2, 6, 15)),
    *(Kill(failpoint=f"catalog.after-commit:{n}") for n in (4, 9)),
    Kill(failpoint="store.mid-delete:1", life=EVICTING),
    Kill(failpoint="catalog.before-commit:25", life=EVICTING),
    Kill(failpoint="catalog.before-checkpoint:1", life=PUBLISHING),
    Kill(failpoint="catalog.after-checkpoint:1", life=PUBLISHING),
    Kill(failpoint="catalog.snapshot-before-rename:2", life=PUBLISHING),
]


@pytest.mark.parametrize("how", NAMED, ids=str)
def test_killed_at_a_named_place(store: Path, videos: Path, whole_truth: Truth, how: Kill) -> None:
    """Killed in the middle of publishing, planning, committing, evicting or copying the catalog."""
    assert_goes_on(store, videos, whole_truth, how, kill(store, videos, how))


@pytest.mark.parametrize(
    "how", [Kill(failpoint="catalog.create-before-rename:1"), Kill(failpoint="catalog.create-after-rename:1")], ids=str
)
def test_killed_while_a_cache_is_made(tmp_path: Path, videos: Path, whole_truth: Truth, how: Kill) -> None:
    """Killed in the very first start, when there is no catalog or just one: the second start makes it."""
    assert_goes_on(tmp_path / "new", videos, whole_truth, how, kill(tmp_path / "new", videos, how))


@pytest.mark.long
def test_two_hundred_kills(tmp_path: Path, empty_store: Path, videos: Path, whole_truth: Truth) -> None:
    """Two hundred kills at random moments, each looked at as the few of every day are."""
    for seed in range(1000, 1200):
        how, store = _random_kill(seed), tmp_path / str(seed)
        shutil.copytree(empty_store, store)
        assert_goes_on(store, videos, whole_truth, how, kill(store, videos, how))
        shutil.rmtree(store)


SYSCALLS = Life(SMALL, rounds=1)
"""Of the victims below: it opens, plans, commits, makes, evicts and closes."""


def _syscalls(tmp_path: Path, empty_store: Path, videos: Path) -> list[Kill]:
    """One kill for every system call by which an owner changes its store, in the order of an undisturbed run."""
    need_strace()
    store = Path(shutil.copytree(empty_store, tmp_path / "traced"))
    calls = calls_below(SYSCALLS.command(store, videos), store, tmp_path / "calls.log", cwd=ROOT)
    return [Kill(fault=Fault(call, "signal=SIGKILL", str(n)), life=SYSCALLS) for call, n in calls]


@pytest.mark.parametrize(
    ("call", "number"), [("fsync", 6), ("write", 12), ("rmdir", 2), ("pwrite64", 8)], ids=lambda each: str(each)
)
def test_killed_in_a_system_call(store: Path, videos: Path, whole_truth: Truth, call: str, number: int) -> None:
    """Killed in a call that writes its log, flushes it, deletes an object or writes the catalog: everything goes on."""
    need_strace()
    how = Kill(fault=Fault(call, "signal=SIGKILL", str(number)), life=SYSCALLS)
    assert_goes_on(store, videos, whole_truth, how, kill(store, videos, how))


@pytest.mark.long
def test_killed_in_every_system_call(tmp_path: Path, empty_store: Path, videos: Path, whole_truth: Truth) -> None:
    """The same in each call by which it changes its store; 200 kills at least, and nine of ten, are confirmed."""
    kills, confirmed = _syscalls(tmp_path, empty_store, videos), 0
    for number, how in enumerate(kills):
        store = Path(shutil.copytree(empty_store, tmp_path / str(number) / "store"))
        left, said = _kill(store, videos, how)
        if left is not None:
            assert_goes_on(store, videos, whole_truth, how, left)
            confirmed += 1
        else:  # its threads took turns otherwise, and it did not come to that call
            assert said[-1] == ["end"], f"{how}: it ended otherwise, after {said[-3:]}"
        shutil.rmtree(store)
    print(f"\n{confirmed} of {len(kills)} system calls killed it")  # seen with -s
    assert confirmed >= max(200, 0.9 * len(kills))


def test_recovery_is_killed_again_and_again(store: Path, videos: Path, whole_truth: Truth) -> None:
    """Every start after an unclean end is killed too, a little later each time: the one that is not goes on."""
    with viewcache.open(config(store, videos, epochs=EPOCHS)) as cache:
        assert dict(read_all(cache, EPOCHS)) == whole_truth
    with Catalog.open(str(store)) as catalog:  # as if the last run had died before it recorded what it made
        rows = catalog.query("read_stored", tier="local").to_pylist()
        catalog.mark_gone([row["object_id"] for row in rows], "test", tier="local")
        catalog.set_setting("clean_end", "no")
    broken = sorted(objects_of(store).values())[:3]
    for folder in broken:
        (folder / METADATA_NAME).write_text("{")
    before = _objects(store)
    kills = 0
    for place in ("store.mid-delete:1", "store.mid-delete:2", *(f"catalog.{w}-commit:{n}" for n, w in COMMITS)):
        left = kill(store, videos, Kill(failpoint=place))
        assert left.reads == {}
        assert before.items() - left.objects.items() <= {(path.name, before[path.name]) for path in broken}
        kills += 1
    assert kills == 2 + len(COMMITS)
    with viewcache.open(config(store, videos, epochs=EPOCHS)) as cache:
        assert cache.owner.recovered.walked
        assert cache.owner.ledger.copies().keys() == before.keys() - {path.name for path in broken}
        assert dict(read_all(cache, EPOCHS)) == whole_truth
        assert cache.task("t").spent.rebuilt == 0
    assert_at_rest(store)


def test_a_worker_that_was_starting_does_its_job_for_nobody(store: Path, videos: Path, whole_truth: Truth) -> None:
    """Killed when it has just given a job to a starting worker: nothing appears in the store of the next run."""
    with start(store, videos, Kill(line=3)) as victim:
        assert victim.stdout is not None
        assert [victim.stdout.readline().split()[0] for _ in range(3)] == ["start", "open", "job"]
        victim.kill()
        assert victim.wait() == -signal.SIGKILL
        with viewcache.open(config(store, videos, epochs=EPOCHS)) as cache:
            victim.stdout.read()  # until the worker has ended
            assert not objects_of(store)
            assert dict(read_all(cache, EPOCHS)) == whole_truth
    assert_at_rest(store)


def test_what_was_read_keeps_its_meaning(store: Path, tmp_path: Path, videos: Path) -> None:
    """A batch that was handed out before a kill is the same after it, though a video was added meanwhile (law 4)."""
    folder = Path(shutil.copytree(videos, tmp_path / "videos"))
    left = kill(store, folder, Kill(line=14))
    assert left.reads
    encode_one(folder / "v9.mp4", 9)
    with viewcache.open(config(store, folder, epochs=EPOCHS)) as cache:
        assert {place: digest_of(cache.read("t", *place)) for place in left.reads} == left.reads
        assert left.draws <= _draws_of(cache.catalog)
