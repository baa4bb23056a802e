"""Garbage collection removes garbage only: what it takes is what a small model says, whatever happened before."""

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

import viewcache
from tests import forked
from tests.catalog.samples import plan, registered
from tests.faults.caches import assert_at_rest, config, objects_of, read_all
from tests.house.tree import ROOT
from viewcache.api.config.find import Located
from viewcache.api.upkeep.gc import collected
from viewcache.catalog import Catalog
from viewcache.catalog.files import CatalogFiles
from viewcache.catalog.records import ProgressRow
from viewcache.catalog.replay import REBUILT
from viewcache.failpoints import VARIABLE
from viewcache.materializer.storage.found import copy_row
from viewcache.materializer.storage.gc import survey
from viewcache.store import ArrayMeta, LocalTier, write_object

VIDEOS, EPOCHS, GENERATIONS = 4, 2, 3
PER_EPOCH = VIDEOS // 2
"""Iterations."""


class GcMachine(RuleBasedStateMachine):
    """A catalog and a store, and what somebody who sees both knows of them."""

    def __init__(self, template: Path) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=template.parent))
        self.store = Path(shutil.copytree(template, self.folder / "store"))
        self.last: dict[str, int] = {}
        """Key of a clip → iteration in which it is needed."""
        self.children: dict[str, set[str]] = {}
        """Key of frames → clips that are made from them."""
        self.rows: set[str] = set()
        self.files: set[str] = set()
        self.torn: set[str] = set()
        """Files that have no row and are not whole."""
        self.seq = 0
        self.generations = 0
        self.temporary = self.aside = self.unknown = 0

    @initialize()
    def begin(self) -> None:
        """A task with its videos."""
        self._open()
        self.task, self.ids = registered(self.catalog, VIDEOS)
        self.plan()

    def _open(self) -> None:
        self.catalog = Catalog.open(self.store)
        self.tier = LocalTier(self.store, 10**9)

    def teardown(self) -> None:
        """Let go."""
        if hasattr(self, "catalog"):
            self.catalog.close()
        shutil.rmtree(self.folder)

    @precondition(lambda self: self.generations < GENERATIONS)
    @rule()
    def plan(self) -> None:
        """The next epochs are planned."""
        tables = plan(self.catalog, self.task, self.ids, self.generations, EPOCHS)
        self.catalog.record_plan(tables)
        self.generations += 1
        key = dict(zip(tables.objects["object_id"].to_pylist(), tables.objects["key"].to_pylist(), strict=True))
        for edge in tables.edges.to_pylist():
            self.children.setdefault(key[edge["parent_id"]], set()).add(key[edge["child_id"]])
        for use in tables.uses.to_pylist():
            self.last[key[use["object_id"]]] = use["seq"]

    @rule(n=st.integers(0, 200), recorded=st.booleans())
    def make(self, n: int, recorded: bool) -> None:
        """An object is made; or its maker is killed before the row is written."""
        keys = sorted({*self.last, *self.children} - self.files)
        if not keys:
            return
        key = keys[n % len(keys)]
        self._write(key)
        if recorded:
            self._record(key)

    @rule()
    def make_unknown(self) -> None:
        """There is an object that nobody has planned, of a catalog of before."""
        self.unknown += 1
        self._write(f"{self.unknown:x}".rjust(32, "f"))

    def _write(self, key: str) -> None:
        array = np.full((2, 3), len(self.files), np.uint8)
        write_object(self.store, key, array, ArrayMeta((2, 3), (1, 3), "raw", {"kind": "clip"}))
        self.files.add(key)

    @rule(n=st.integers(0, 200))
    def record(self, n: int) -> None:
        """A row is written for an object that lies there without one."""
        known = sorted((self.files - self.rows - self.torn) & {*self.last, *self.children})
        if known:
            self._record(known[n % len(known)])

    def _record(self, key: str) -> None:
        found = self.tier.scan(f"objects/{key[:2]}/{key}")
        self.catalog.mark_ready([copy_row(int(key, 16), "local", found)])
        self.rows.add(key)

    @rule(n=st.integers(0, 200))
    def lose(self, n: int) -> None:
        """Somebody deletes an object behind the catalog's back."""
        if self.files:
            key = sorted(self.files)[n % len(self.files)]
            shutil.rmtree(self.store / f"objects/{key[:2]}/{key}")
            self.files.discard(key)
            self.torn.discard(key)

    @rule(n=st.integers(0, 200))
    def tear(self, n: int) -> None:
        """An object without a row is not whole."""
        torn = sorted(self.files - self.rows)
        if torn:
            key = torn[n % len(torn)]
            (self.store / f"objects/{key[:2]}/{key}/zarr.json").write_text("{")
            self.torn.add(key)

    @rule(n=st.integers(0, PER_EPOCH * EPOCHS * GENERATIONS))
    def advance(self, n: int) -> None:
        """The reader moves on."""
        self.seq = max(self.seq, n)
        epoch, iteration = divmod(self.seq, PER_EPOCH)
        self.catalog.advance(ProgressRow(self.task.task_id, 0, epoch, iteration, self.seq, 0.0))

    @rule()
    def leave_behind(self) -> None:
        """A writer dies over an unfinished object, and a file is moved aside."""
        self.temporary += 1
        folder = self.store / "tmp" / f"{self.temporary:032x}.999999.1-ab"
        folder.mkdir(parents=True)
        (folder / "c.0.0").write_bytes(b"half")
        self.aside += 1
        (self.store / f"catalog.duckdb.quarantined-{self.aside}").write_bytes(b"old")

    @rule()
    def put_something_else_there(self) -> None:
        """A person keeps notes beside the objects."""
        (self.store / "notes.txt").write_text("mine")
        (self.store / "objects" / "mine").mkdir(exist_ok=True)

    @rule(dry=st.booleans(), quarantined=st.booleans())
    def gc(self, dry: bool, quarantined: bool) -> None:
        """It takes what the model says, and then there is a file for each row and a row for each file."""
        self.catalog.close()
        garbage, before = self._garbage(), self._foreign()
        located = Located(str(self.store), str(self.store))
        found = collected(located, quarantined=quarantined, dry_run=dry)
        numbers = found.objects, found.missing, len(found.unfinished), len(found.quarantined)
        assert numbers == (len(garbage), len(self.rows - self.files), self.temporary, self.aside)
        if not dry:
            self.files -= garbage
            self.rows = set(self.files)
            self.torn = set()
            self.temporary = 0
            self.aside *= not quarantined
            assert_at_rest(self.store)
        assert objects_of(self.store).keys() - {"mine"} == self.files
        assert self._foreign() == before
        assert len(list(self.store.glob("*.quarantined-*"))) == self.aside
        self._open()

    def _garbage(self) -> set[str]:
        needed = {key for key, seq in self.last.items() if seq >= self.seq}
        needed |= {key for key, clips in self.children.items() if (clips & needed) - self.rows}
        return self.files - needed | self.torn

    def _foreign(self) -> list[str]:
        return [name for name in ("notes.txt", "objects/mine") if (self.store / name).exists()]

    @invariant()
    def files_are_as_known(self) -> None:
        """Nothing goes without being told to."""
        assert {path.name for path in self.store.glob("objects/??/*")} == self.files


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty catalog beside an empty store."""
    folder = tmp_path_factory.mktemp("gc") / "template"
    Catalog.open(folder).close()
    LocalTier(folder, 1)
    return folder


def _run(template: Path, examples: int, steps: int) -> None:
    how = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_machine(
        lambda: GcMachine(template),  # type: ignore[arg-type]  # it takes any callable, says its documentation
        settings=how,
    )


def test_gc_takes_what_the_model_says(template: Path) -> None:
    """A few sequences of planning, making, losing, reading and collecting."""
    _run(template, 8, 25)


@pytest.mark.long
def test_gc_takes_what_the_model_says_at_length(template: Path) -> None:
    """The same, two hundred of 75 steps."""
    _run(template, 200, 75)


def gc(store: Path, failpoint: str = "") -> int:
    """Collect in a process; what it ended with."""
    return command(store, "gc", failpoint=failpoint)


def command(store: Path, *arguments: str, failpoint: str = "") -> int:
    """Run a command over a cache as a process; what it ended with."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    return forked.run(
        [sys.executable, "-m", "viewcache.api.cli.main", arguments[0], str(store), *arguments[1:]],
        env=os.environ | {"PYTHONPATH": path} | ({VARIABLE: f"{failpoint}:kill"} if failpoint else {}),
        capture_output=True,
        timeout=60,
        check=False,
    ).returncode


def test_a_collection_may_be_killed(store: Path, videos: Path, truth: dict[tuple[int, int], str]) -> None:
    """Killed when its rows are gone and the objects are not: the next start finds them again, and nothing is wrong."""
    with viewcache.open(config(store, videos)) as cache:
        assert dict(read_all(cache)) == truth
        cache.leave("t")
    made = len(objects_of(store))
    for place in ("removal.recorded:1", "store.mid-delete:3"):
        assert gc(store, place) == -signal.SIGKILL
        with viewcache.open(config(store, videos)) as cache:
            assert cache.owner.recovered.walked
            assert cache.tier.used_bytes == cache.tier.measure()
            assert len(cache.owner.ledger) == len(objects_of(store))
    assert 0 < len(objects_of(store)) < made
    assert gc(store) == 0
    assert not objects_of(store)
    with viewcache.open(config(store, videos)) as cache:
        assert not cache.owner.recovered.walked
        assert dict(read_all(cache)) == truth
    assert_at_rest(store)


@pytest.mark.parametrize("name", ["evict", "verify"])
@pytest.mark.parametrize("place", ["removal.recorded:1", "store.mid-delete:2"])
def test_removing_may_be_killed(
    store: Path, videos: Path, truth: dict[tuple[int, int], str], name: str, place: str
) -> None:
    """Killed between rows and bytes, or among the bytes: the next start looks at the store, and every byte counts."""
    with viewcache.open(config(store, videos)) as cache:
        assert dict(read_all(cache)) == truth
    if name == "verify":
        for path in sorted((store / "objects").glob("*/*/c.*"))[:3]:
            path.write_bytes(path.read_bytes()[:-1] + b"?")
    arguments = ("evict", "--need", "100MB") if name == "evict" else ("verify",)
    assert command(store, *arguments, failpoint=place) == -signal.SIGKILL
    with viewcache.open(config(store, videos)) as cache:
        assert cache.owner.recovered.walked
        assert cache.tier.used_bytes == cache.tier.measure()
        assert len(cache.owner.ledger) == len(objects_of(store))
        assert dict(read_all(cache)) == truth
    assert_at_rest(store)


def test_after_a_rebuild_objects_wait_for_a_plan(store: Path, videos: Path) -> None:
    """Before a run has planned again nobody knows what is needed, so no object goes."""
    with viewcache.open(config(store, videos)) as cache:
        dict(read_all(cache))
    with Catalog.open(store) as catalog:
        catalog.set_setting(REBUILT, "yes")
    made = objects_of(store).keys()
    found = collected(Located(str(store), str(store)))
    assert found.waiting
    assert found.objects == 0
    assert objects_of(store).keys() == made


def test_gc_waits_for_the_tasks_of_other_configurations(store: Path, videos: Path) -> None:
    """What a task was still to read stays until it was opened again or is forgotten, whoever opens the cache first."""
    whole = config(store, videos)
    other = config(store, videos, epochs=1, frames_per_video=3)
    other["dataset"]["tag"] = "other"
    with viewcache.open(whole) as cache:
        for _ in cache.materialize():
            pass
        needed = set(cache.owner.ledger.copies())
    with viewcache.open(other) as cache:
        cache.read("other", 0, 0)
    CatalogFiles(store).database.unlink()
    with viewcache.open(other) as cache:
        cache.read("other", 0, 0)
    with Catalog.open(store, create=False) as catalog:
        found = survey(catalog, [LocalTier(store, 10**8)], store)
        assert (found.waiting, found.unplanned, found.objects) == (True, ("t",), 0)
    with viewcache.open(whole) as cache:
        assert needed <= set(cache.owner.ledger.copies())
    with Catalog.open(store, create=False) as catalog:
        found = survey(catalog, [LocalTier(store, 10**8)], store)
        assert (found.waiting, found.unplanned) == (False, ())
        assert not needed & {Path(place).name for place in found.tiers[0].garbage}
    CatalogFiles(store).database.unlink()
    with viewcache.open(other):
        pass
    with Catalog.open(store, create=False) as catalog:
        catalog.forget_task("t")
        assert not survey(catalog, [LocalTier(store, 10**8)], store).waiting
