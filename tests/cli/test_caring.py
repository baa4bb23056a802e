"""verify, doctor, gc, forget and db upgrade."""

import os
import re
import shutil
from typing import NoReturn

import pytest

import viewcache
from tests.cli.site import Site
from viewcache import migrations
from viewcache.catalog import Catalog
from viewcache.catalog.files import CatalogFiles
from viewcache.errors import Full


def test_verify_checks_every_object(made: Site) -> None:
    """Objects, bytes and drawn epochs are counted; nothing is wrong."""
    answer = made.json("verify")
    assert answer["objects"] == 12
    assert answer["epochs"] == 2
    assert not answer["damaged"]
    assert not answer["draws"]


@pytest.mark.parametrize("damage", ["flip", "truncate", "delete"])
def test_verify_finds_damage_and_drops_it(made: Site, damage: str) -> None:
    """Exit code 1 and the object's place; then it is made again, and all is well."""
    shard = made.objects()[5]
    if damage == "flip":
        data = bytearray(shard.read_bytes())
        data[len(data) // 2] ^= 1
        shard.write_bytes(data)
    elif damage == "truncate":
        shard.write_bytes(shard.read_bytes()[:100])
    else:
        shard.unlink()
    made.run("verify", "--dry-run", code=1)
    assert "left as they are" in made.words
    answer = made.json("verify", code=1)
    assert len(answer["damaged"]) == 1
    assert answer["repaired"] is True
    assert made.json("verify")["objects"] == 11
    made.run("run")
    assert made.json("verify")["objects"] == 12


def test_verify_checks_the_draws(made: Site) -> None:
    """A video that an epoch draws twice, and so another that it misses, is found."""
    import pyarrow as pa

    with Catalog.open(made.store) as catalog:
        task = catalog.load_tasks()[0]
        first = catalog.load_draws(task.task_id, 0, 0)["video_id"][0].as_py()
        row = {"task_id": [task.task_id], "epoch": [1], "position": [3], "video_id": [first]}
        catalog.record_draws(pa.table(row, schema=catalog.load_draws(task.task_id, 0, 0).schema))
    made.run("verify", code=1)
    assert "is drawn twice" in made.words


def test_verify_does_not_disturb_an_owner(made: Site) -> None:
    """While a run is on, verify is refused with the owner's pid."""
    with viewcache.open(made.config):
        second = made.spawn("verify")
        _, err = second.communicate(timeout=60)
    assert second.returncode == 4, err


def test_doctor_looks_at_everything(made: Site) -> None:
    """Each line is ok, warn or fail; a healthy cache fails nothing."""
    answer = made.json("doctor")
    about = {finding["about"] for finding in answer["findings"]}
    assert {"python", "libraries", "decoders", "/dev/shm", "owner", "catalog", "store", "unfinished", "disk"} <= about
    for line in made.run("doctor").splitlines():
        assert re.match(r"(ok|warn|fail) +\S", line)


def test_doctor_without_a_cache(site: Site) -> None:
    """The machine is looked at, and the missing cache is a warning with its cure."""
    text = site.run("doctor")
    assert re.search(r"warn +catalog: none .*viewcache run", text)
    site.config.unlink()
    assert "warn  cache: no configuration" in site.run("doctor")


def test_doctor_without_the_disk_of_a_store(site: Site) -> None:
    """`run` would refuse, and what another disk has free says nothing."""
    site.config.write_text(site.config.read_text().replace("store: ./cache", "store: ./disk/cache"))
    text = site.run("doctor", code=1)
    assert re.search(r"fail +store: none in \S+/disk/cache: the folder \S+/disk does not exist.*mount the disk", text)
    assert not re.search(r"^\S+ +disk:", text, re.MULTILINE)


def test_doctor_says_once_what_several_checks_fail_of(made: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a full disk, on which no copy of the catalog can be made: one line names the checks and the reason."""

    def full(*_: object, **__: object) -> NoReturn:
        raise Full("no room for a copy")

    monkeypatch.setattr("viewcache.api.upkeep.doctor_cache.ask_all", full)
    monkeypatch.setattr("viewcache.api.upkeep.doctor_cache.ask", full)
    text = made.run("doctor", code=1)
    assert text.count("could not be checked (Full: no room for a copy)") == 1
    assert re.search(r"fail +objects, bucket, disk, errors: could not be checked", text)


def test_doctor_finds_what_is_wrong(made: Site) -> None:
    """An open folder and leftovers of dead writers are told, with what to do."""
    made.store.chmod(0o755)
    (made.store / "tmp" / f"{'ab' * 16}.4194304.0123456789abcdef").mkdir()
    text = made.run("doctor")
    assert "chmod 700" in text


@pytest.mark.parametrize(
    ("harm", "told", "code"),
    [
        ("delete", r"warn +catalog: .*catalog\.duckdb is missing; the next `viewcache run` rebuilds it", 0),
        ("damage", r"fail +catalog: .*catalog\.duckdb cannot be opened.*; the next `viewcache run` rebuilds it", 1),
        ("journal", r"warn +journal: catalog\.journal is not there", 0),
        ("line", r"warn +journal: 1 line of catalog\.journal", 0),
        ("aside", r"warn +quarantine: catalog\.duckdb\.quarantined-1 .*viewcache gc --quarantined", 0),
        ("object", r"warn +missing: 1 row without an object", 0),
        ("foreign", r"warn +foreign: objects/mine/notes", 0),
        ("clock", r"warn +clock: a file in .* is \d+ s newer than now", 0),
    ],
)
def test_doctor_explains_damage(made: Site, harm: str, told: str, code: int) -> None:
    """What is wrong in plain words, with what mends it; a run mends the catalog, its journal and the objects."""
    layout = CatalogFiles(made.store)
    assert "ok    objects: 12 objects" in made.run("doctor")
    if harm == "delete":
        layout.database.unlink()
    elif harm == "damage":
        layout.database.write_bytes(b"not a database" * 1000)
    elif harm == "journal":
        layout.journal.unlink()
    elif harm == "line":
        layout.journal.write_bytes(layout.journal.read_bytes().replace(b'"do"', b'"to"', 1))
    elif harm == "aside":
        (made.store / "catalog.duckdb.quarantined-1").write_bytes(b"old")
    elif harm == "object":
        shutil.rmtree(made.objects()[0].parent)
    elif harm == "foreign":
        (made.store / "objects" / "mine").mkdir()
        (made.store / "objects" / "mine" / "notes").write_text("mine")
    else:
        os.utime(layout.journal, (2e9, 2e9))
    text = made.run("doctor", code=code)
    assert re.search(told, text), text
    if harm in ("delete", "damage", "journal", "line", "object"):
        made.run("run")
        made.run("gc", "--quarantined")
        assert not re.search(told, made.run("doctor"))


@pytest.mark.parametrize("how", ["garbage", "empty", "half", "head"])
def test_a_damaged_catalog_is_called_that(made: Site, how: str) -> None:
    """Commands that only look say that it is damaged and what mends it, the doctor once; a run mends it."""
    database = CatalogFiles(made.store).database
    whole = database.read_bytes()
    database.write_bytes(
        {"garbage": b"garbage", "empty": b"", "half": whole[: len(whole) // 2], "head": bytes(8192) + whole[8192:]}[how]
    )
    for command in (("status",), ("sql", "select count(*) from copies")):
        said = made.json(*command, code=5)
        assert said["error"]["kind"] == "catalog_damaged"
        assert re.search(rf"{database}.*open the cache again", said["error"]["message"])
    findings = made.json("doctor", code=1)["findings"]
    (told,) = [each for each in findings if each["level"] == "fail"]
    assert told["about"] == "catalog"
    assert str(database) in told["message"]
    assert "disk" in {each["about"] for each in findings}
    made.run("run")
    made.run("status")


def test_gc_says_what_it_does(made: Site) -> None:
    """A dry run counts and keeps; then objects of a forgotten task go, with what was moved aside if that is asked."""
    made.run("forget", "train.yaml", "train")
    aside = made.store / "catalog.duckdb.quarantined-1"
    aside.write_bytes(b"old")
    assert made.json("gc", "--dry-run")["objects"] == 12
    assert len(made.objects()) == 12
    assert "removed 12 objects" in made.run("gc")
    assert not made.objects()
    assert aside.exists()
    assert made.json("gc", "--quarantined")["quarantined"] == 1
    assert not aside.exists()


def test_gc_does_not_disturb_an_owner(made: Site) -> None:
    """While a run is on, it is refused with the owner's pid."""
    with viewcache.open(made.config):
        second = made.spawn("gc")
        _, err = second.communicate(timeout=60)
    assert second.returncode == 4, err


def test_doctor_names_the_owner(made: Site) -> None:
    """While a run is on, its pid is shown, and nothing is disturbed."""
    with viewcache.open(made.config):
        asked = made.spawn("doctor")
        out, err = asked.communicate(timeout=60)
    assert asked.returncode == 0, err
    assert re.search(r"ok +owner: process \d+", out)


def test_forget_lets_a_name_mean_something_else(made: Site) -> None:
    """A changed definition is refused because of its draws, until they are forgotten on purpose."""
    made.edit("flip_prob: 0.5", "flip_prob: 0.25")
    made.run("run", code=2)
    assert made.json("forget", "train.yaml", "train", "--dry-run")["draws"] == 6
    made.run("run", code=2)
    assert made.json("forget", "train.yaml", "train")["draws"] == 6
    made.run("run")


def test_forget_an_unknown_task(made: Site) -> None:
    """The message lists the tasks that there are."""
    made.run("forget", "train.yaml", "tarin", code=3)
    assert "it has train" in made.words


def test_upgrade_of_a_current_catalog(made: Site) -> None:
    """Nothing is to be done, and that is said."""
    assert made.json("db", "upgrade", "--dry-run")["before"] == migrations.HEAD
    assert f"at {migrations.HEAD}" in made.run("db", "upgrade")
