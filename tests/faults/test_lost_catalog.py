"""A lost catalog: its journal tells what was drawn, objects what was made; nothing is made again (law 4)."""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import viewcache
from tests import forked
from tests.catalog.conftest import (  # noqa: F401  # fixtures
    empty_database,
    other_database,
    server,
)
from tests.catalog.samples import execute, select
from tests.faults.caches import assert_at_rest, config, digest_of, encode_one, objects_of
from tests.house.tree import ROOT
from viewcache.api.session.cache import Cache
from viewcache.catalog import Catalog
from viewcache.catalog.files import CatalogFiles
from viewcache.catalog.journal import Line, read_lines
from viewcache.catalog.opening import journal_of
from viewcache.errors import BadInput, BadVideo, CatalogDamaged
from viewcache.failpoints import VARIABLE
from viewcache.materializer.dataset import listing

Seen = dict[tuple[str, int, int], tuple[tuple[str, ...], str]]

RELATIONS = {
    "videos": "select video, uri, key, frames, status from videos",
    "tasks": "select task, epochs, seed, definition_key from tasks",
    "draws": "select task, epoch, position, video from draws",
    "generations": "select task, number, first_epoch, last_epoch, group_epoch, grid from generations",
    "uses": "select u.task, u.seq, u.position, u.sample, o.key from uses u join objects o on o.object_id = u.object_id",
    "objects": "select key, kind, video, depth, state, codec, bytes, est_bytes, shape, frames from objects",
    "copies": "select o.key, c.physical, c.bytes from copies c join objects o on o.object_id = c.object_id",
    "substitutions": "select task, epoch, position, sample, policy, reason from substitutions",
}
"""What must be the same after a loss; numbers of objects, references and measures are not part of it."""


def two(store: Path, videos: Path, **more: Any) -> dict[str, Any]:
    """Two tasks that draw together, a little ahead of their readers."""
    wide = config(store, videos, epochs=3, draw_ahead=1, **more)
    narrow = config(store, videos, epochs=3, frame_stride=3, **more)
    tasks = [wide["dataset"] | {"tag": "wide"}, narrow["dataset"] | {"tag": "narrow"}]
    return {"cache": wide["cache"], "dataset": tasks}


def places(cache: Cache) -> Iterator[tuple[str, int, int]]:
    """All batches in the order in which two readers of different paces come to them."""
    left = {t: [(e, i) for e in range(3) for i in range(cache.task(t).iterations(e))] for t in cache.tasks}
    turn = 0
    while any(left.values()):
        task = cache.tasks[turn % 3 % 2]
        turn += 1
        if left[task]:
            yield (task, *left[task].pop(0))


def read(cache: Cache, count: int) -> Seen:
    """The first so many batches."""
    seen: Seen = {}
    for _, place in zip(range(count), places(cache), strict=False):
        batch = cache.read(*place)
        seen[place] = tuple(batch.videos), digest_of(batch)
    return seen


def known(cache: Cache) -> dict[str, list[tuple[object, ...]]]:
    """What the catalog says, in an order of its own, when all is made ahead that is to be."""
    cache.owner.look_ahead.wait_idle()
    assert cache.owner.dispatcher is None or cache.owner.dispatcher.wait_idle(60)
    cache.catalog.flush()
    return {name: sorted(select(cache.catalog, sql), key=str) for name, sql in RELATIONS.items()}


def delete_database(store: Path) -> None:
    """Somebody removes the file."""
    CatalogFiles(store).database.unlink(missing_ok=True)


def overwrite(store: Path) -> None:
    """The file is another's."""
    CatalogFiles(store).database.write_bytes(os.urandom(70_000))


def cut(store: Path) -> None:
    """Half of the file is missing."""
    os.truncate(CatalogFiles(store).database, CatalogFiles(store).database.stat().st_size // 2)


def flip(store: Path) -> None:
    """A byte of the header is another."""
    with CatalogFiles(store).database.open("r+b") as file:
        file.seek(5000)
        file.write(b"\xa5\x5a\xa5")


def empty(store: Path) -> None:
    """The file is there, and nothing in it."""
    os.truncate(CatalogFiles(store).database, 0)


LOSSES = [delete_database, flip, *(pytest.param(each, marks=pytest.mark.long) for each in (overwrite, cut, empty))]


@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__)
def test_a_lost_catalog_is_rebuilt(tmp_path: Path, videos: Path, lose: Callable[[Path], None]) -> None:
    """It says the same as before, every batch that was read means the same, no video is decoded, no file is deleted."""
    store = tmp_path / "store"
    with viewcache.open(two(store, videos)) as cache:
        seen, before = read(cache, 7), known(cache)
    made = objects_of(store).keys()
    lose(store)
    with viewcache.open(two(store, videos)) as cache:
        assert cache.owner.recovered.unknown == len(made)
        assert known(cache) == before
        assert read(cache, 7) == seen
        assert cache.owner.dispatcher is None or cache.owner.dispatcher.tally.frames["packets"] == 0
        read(cache, 18)
    aside = [path.name for path in cache.catalog.quarantined]
    assert bool(aside) == (lose is not delete_database)
    assert all((store / name).exists() for name in aside)
    assert_at_rest(store)
    with viewcache.open(two(store, videos)) as cache:  # once is enough
        assert not cache.owner.recovered.walked


def test_a_video_that_came_later_changes_nothing(tmp_path: Path, videos: Path) -> None:
    """What was read keeps its meaning though the scan after the loss finds another file that sorts first."""
    folder = Path(shutil.copytree(videos, tmp_path / "videos"))
    store = tmp_path / "store"
    with viewcache.open(two(store, folder)) as cache:
        seen = read(cache, 7)
    delete_database(store)
    encode_one(folder / "a.mp4", 9)
    with viewcache.open(two(store, folder)) as cache:
        assert read(cache, 7) == seen


def drawn_and_replaced(store: Path, videos: Path, folder: Path, **more: Any) -> tuple[dict[str, Any], Seen]:
    """A store whose catalog is lost, a drawn file of which has other content now; and what was read."""
    shutil.copytree(videos, folder)
    whole = two(store, folder, **more)
    with viewcache.open(whole) as cache:
        seen = read(cache, 18)
    for path in folder.iterdir():  # with another time, and by the next opening another key, a file is still the same
        os.utime(path, ns=(1, 1))
    with viewcache.open(whole) as cache:
        assert read(cache, 18) == seen
    return whole, seen


@pytest.mark.parametrize("lazily", [False, True], ids=["few", "many"])
def test_a_file_that_is_replaced_meanwhile_is_an_error(
    tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch, lazily: bool
) -> None:
    """A drawn path shows no other pixels unsaid: the journal tells which content a video had when it was drawn.

    Also where a dataset is so large that most files are not looked into at open. Files with another time are no others.
    """
    if lazily:
        monkeypatch.setattr(listing, "READ_AT_OPEN", 0)
        monkeypatch.setattr(listing, "FIRST_READ", 1)
    store, folder = tmp_path / "store", tmp_path / "videos"
    whole, seen = drawn_and_replaced(store, videos, folder)
    delete_database(store)
    with viewcache.open(whole) as cache:
        assert read(cache, 18) == seen
    shutil.copy2(folder / "v2.mp4", tmp_path / "v2.mp4")
    encode_one(folder / "v2.mp4", 9)
    delete_database(store)
    for _ in range(2):
        with pytest.raises(BadInput, match=r"v2\.mp4 has other content than when task '\w+' drew it"):
            viewcache.open(whole)
    shutil.copy2(tmp_path / "v2.mp4", folder / "v2.mp4")
    with viewcache.open(whole) as cache:
        assert read(cache, 18) == seen


def test_another_file_behind_garbage_is_an_error_too(tmp_path: Path, videos: Path) -> None:
    """The new catalog was opened while the file was broken: the key of what was drawn is still the journal's."""
    store, folder = tmp_path / "store", tmp_path / "videos"
    whole, _ = drawn_and_replaced(store, videos, folder)
    delete_database(store)
    (folder / "v2.mp4").write_bytes(bytes(3000))
    with pytest.raises(BadVideo, match=r"v2\.mp4: "):
        viewcache.open(whole)
    encode_one(folder / "v2.mp4", 9)
    for lost in (False, True):
        if lost:
            delete_database(store)
        with pytest.raises(BadInput, match=r"v2\.mp4 has other content than when task '\w+' drew it"):
            viewcache.open(whole)


def test_a_file_that_is_replaced_meanwhile_is_a_version(tmp_path: Path, videos: Path) -> None:
    """Where that is asked for the new content is another video; what stands in for the old one is on record."""
    store, folder = tmp_path / "store", tmp_path / "videos"
    whole, seen = drawn_and_replaced(store, videos, folder, on_changed_video="version")
    encode_one(folder / "v2.mp4", 9)
    delete_database(store)
    with viewcache.open(whole) as cache:
        now = read(cache, 18)
        told = select(cache.catalog, "select distinct video, policy from substitutions")
    assert told == [("v2", "replace")]
    for place, (names, digest) in seen.items():
        assert "v2" not in now[place][0]
        assert (now[place] == (names, digest)) == ("v2" not in names)


def test_a_file_that_is_replaced_while_postgresql_is_lost(
    tmp_path: Path,
    videos: Path,
    empty_database: str,  # noqa: F811
) -> None:
    """An emptied database is told of it as well."""
    store, folder = tmp_path / "store", tmp_path / "videos"
    whole, _ = drawn_and_replaced(store, videos, folder, catalog=empty_database.replace(":@", "@"))
    encode_one(folder / "v2.mp4", 9)
    execute(empty_database, "drop schema public cascade")
    execute(empty_database, "create schema public")
    with pytest.raises(BadInput, match=r"v2\.mp4 has other content than when task '\w+' drew it"):
        viewcache.open(whole)


def test_a_lost_postgresql_catalog_is_rebuilt(tmp_path: Path, videos: Path, empty_database: str) -> None:  # noqa: F811
    """A database that somebody emptied gets the same rows from the journal in the store's folder."""
    whole = two(tmp_path / "store", videos, catalog=empty_database.replace(":@", "@"))
    with viewcache.open(whole) as cache:
        seen, before = read(cache, 7), known(cache)
    execute(empty_database, "drop schema public cascade")
    execute(empty_database, "create schema public")
    with viewcache.open(whole) as cache:
        assert known(cache) == before
        assert read(cache, 7) == seen
        assert cache.owner.dispatcher is None or cache.owner.dispatcher.tally.frames["packets"] == 0
    with viewcache.open(whole) as cache:
        assert not cache.owner.recovered.walked


def test_an_older_catalog_catches_up(tmp_path: Path, videos: Path) -> None:
    """A backup that is put back, or a log that is lost, knows again what was drawn since: also what was forgotten."""
    store = tmp_path / "store"
    with viewcache.open(two(store, videos)) as cache:
        read(cache, 3)
    backup = CatalogFiles(store).database.read_bytes()
    with viewcache.open(two(store, videos)) as cache:
        seen, before = read(cache, 9), known(cache)
    for rewritten in (False, True):
        if rewritten:  # the journal was written anew since the backup: nothing in it tells what came when
            journal = CatalogFiles(store).journal
            journal.rename(journal.with_suffix(".old"))
            with viewcache.open(two(store, videos)):
                pass
        CatalogFiles(store).database.write_bytes(backup)
        with viewcache.open(two(store, videos)) as cache:
            assert read(cache, 9) == seen
            assert known(cache)["draws"] == before["draws"]
            assert cache.owner.dispatcher is None or cache.owner.dispatcher.tally.frames["packets"] == 0


def test_what_nothing_claims_leaves_first(tmp_path: Path, videos: Path) -> None:
    """Objects of a task that is not configured any more are kept without a reference, and given up for others."""
    store = tmp_path / "store"
    whole = two(store, videos)
    whole["cache"]["eviction"] = {"trim": False}  # the budget of the next run is full of what this one has read
    with viewcache.open(whole) as cache:
        read(cache, 18)
        budget = cache.tier.used_bytes
    delete_database(store)
    CatalogFiles(store).journal.unlink()
    with viewcache.open(config(store, videos, budget=budget, epochs=1)) as cache:
        adopted = len(objects_of(store))
        assert select(cache.catalog, "select count(*) from objects where refs = 0 and state = 'ready'") == [(adopted,)]
        for iteration in range(cache.task("t").iterations(0)):
            cache.read("t", 0, iteration)
        assert len(objects_of(store)) < adopted + 8
        cache.catalog.flush()
        reasons = select(cache.catalog, "select distinct reason from evictions")
    assert reasons == [("evict",)]
    assert_at_rest(store)


CHILD = """
import json, sys, viewcache
from tests.faults.test_lost_catalog import places
from tests.faults.caches import digest_of
with viewcache.open(json.loads(sys.argv[1])) as cache:
    print("open", flush=True)
    for place in places(cache):
        batch = cache.read(*place)
        print(json.dumps([*place, batch.videos, digest_of(batch)]), flush=True)
"""


def run_until_killed(whole: dict[str, Any], failpoint: str) -> Seen | None:
    """What a process read until it died at a failpoint; None if it did not come there."""
    import json

    child = forked.run(
        [sys.executable, "-c", CHILD, json.dumps(whole)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {VARIABLE: f"{failpoint}:kill", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
        timeout=120,
    )
    if child.returncode == 0:
        return None
    assert child.returncode == -signal.SIGKILL, child.stderr
    lines = [json.loads(line) for line in child.stdout.splitlines() if line != "open"]
    return {(task, e, i): (tuple(names), digest) for task, e, i, names, digest in lines}


@pytest.mark.parametrize("place", ["journal.before-write", "journal.after-write", "catalog.after-commit"])
@pytest.mark.parametrize("visit", [6, pytest.param(9, marks=pytest.mark.long)])
@pytest.mark.parametrize("lost", [False, True], ids=["kept", "lost"])
def test_killed_between_journal_and_commit(tmp_path: Path, videos: Path, place: str, visit: int, lost: bool) -> None:
    """What was read before means the same, whether the catalog is there afterwards or not, and epochs are whole."""
    store = tmp_path / "store"
    count = visit * 3 if place == "catalog.after-commit" else visit
    seen = run_until_killed(two(store, videos), f"{place}:{count}")
    assert seen is not None
    if lost:
        delete_database(store)
        CatalogFiles(store).log.unlink(missing_ok=True)
    with viewcache.open(two(store, videos)) as cache:
        now = read(cache, 18)
        assert seen.items() <= now.items()
        for task in cache.tasks:
            for epoch in range(3):
                drawn = [name for (t, e, _), (names, _) in now.items() if (t, e) == (task, epoch) for name in names]
                assert sorted(drawn) == sorted(f"v{k}" for k in range(4) for _ in range(2))


STEPS = ["catalog.create-before-rename:1", "catalog.replayed-after-commit:1", "recover.adopted:1", "recover.planned:1"]
MORE_STEPS = ["catalog.replayed-before-commit:1", "recover.reconciled:1", "recover.planned:2"]
MORE_STEPS += [f"catalog.{when}-commit:{n}" for n in (1, 2, 4, 6, 9) for when in ("before", "after")]


@pytest.mark.parametrize("place", [*STEPS, *(pytest.param(each, marks=pytest.mark.long) for each in MORE_STEPS)])
def test_a_rebuild_is_killed_twice(tmp_path: Path, videos: Path, place: str) -> None:
    """Killed at one of its steps, twice in a row, it goes on in the end as if it had not been."""
    store = tmp_path / "store"
    with viewcache.open(two(store, videos)) as cache:
        seen, before = read(cache, 7), known(cache)
    made = {key: folder.stat().st_ino for key, folder in objects_of(store).items()}
    delete_database(store)
    for _ in range(2):
        got = run_until_killed(two(store, videos), place)
        assert got == {} or (got is not None and place.startswith("catalog."))
        assert {key: folder.stat().st_ino for key, folder in objects_of(store).items()}.items() >= made.items()
        if place.startswith("catalog.replayed-after"):  # that step is over: only another loss comes to it again
            delete_database(store)
    with viewcache.open(two(store, videos)) as cache:
        assert read(cache, 7) == seen
        now = known(cache)
        for name in ("draws", "videos", "tasks", "substitutions"):
            assert set(before[name]) <= set(now[name]), name
    assert_at_rest(store)


def test_a_torn_line_is_forgotten(tmp_path: Path, videos: Path) -> None:
    """The last line of a journal may be cut anywhere: what is whole counts, and the file goes on."""
    store = tmp_path / "store"
    with viewcache.open(two(store, videos)) as cache:
        seen = read(cache, 7)
    journal = CatalogFiles(store).journal
    text = journal.read_bytes()
    ends = [end for end, _ in read_lines(journal)]
    with journal.open("ab") as file:
        file.write(text[ends[-2] : -7])
    delete_database(store)
    with viewcache.open(two(store, videos)) as cache:
        assert journal.read_bytes().startswith(text)
        assert read(cache, 7) == seen
    assert all(line is not None for _, line in read_lines(journal))


def test_a_damaged_line_costs_itself_alone(tmp_path: Path, videos: Path) -> None:
    """The lines around it are used, the file is kept aside, and a new one is written from the catalog."""
    store = tmp_path / "store"
    with viewcache.open(two(store, videos)) as cache:
        read(cache, 7)
        draws = known(cache)["draws"]
    journal = CatalogFiles(store).journal
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"v', b'"w')
    assert [line for _, line in read_lines(journal) if isinstance(line, Line)]
    journal.write_bytes(b"".join(lines))
    with viewcache.open(two(store, videos)) as cache:  # the catalog knows all of it
        assert known(cache)["draws"] == draws
    assert list(store.glob("catalog.journal.quarantined-*"))
    delete_database(store)
    with viewcache.open(two(store, videos)) as cache:
        assert known(cache)["draws"] == draws


def test_damage_that_shows_late_is_mended_by_the_next_start(tmp_path: Path, videos: Path) -> None:
    """A block that cannot be read while the cache is open is an error that says so; opening again rebuilds."""
    store = tmp_path / "store"
    with viewcache.open(two(store, videos)) as cache:
        seen = read(cache, 7)
    size = CatalogFiles(store).database.stat().st_size
    with CatalogFiles(store).database.open("r+b") as file:  # behind the headers, which are read at open
        for offset in range(12_288 + 100_000, size, 4096):
            file.seek(offset)
            file.write(b"\xff" * 16)
    with pytest.raises(CatalogDamaged, match=r"open the cache again|cannot be opened"):
        look(store)
    with viewcache.open(two(store, videos)) as cache:
        assert cache.catalog.quarantined
        assert read(cache, 7) == seen


def look(store: Path) -> None:
    """Read most of a catalog."""
    with Catalog.open(store, create=False) as catalog:
        for task in catalog.load_tasks():
            catalog.load_draws(task.task_id, 0, 9)
        catalog.load_copies()


def test_the_journal_of_another_database_is_left_alone(tmp_path: Path) -> None:
    """Each database has its own journal beside a store, named without user and password."""
    one = journal_of("postgresql://me:secret@host/a", tmp_path)
    assert one == journal_of("postgresql://you@host/a", tmp_path)
    assert one != journal_of("postgresql://host/b", tmp_path)
    assert journal_of(tmp_path, tmp_path).name == "catalog.journal"
