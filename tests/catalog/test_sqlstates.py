"""What PostgreSQL refuses, or does not do just now: which error that is, what to do, and that nothing is lost by it."""

import json
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import viewcache
from tests.catalog.samples import copy, execute, registered
from tests.faults.postgres import Server, own_server
from tests.scheduling.harness import until
from tests.tiny import config, encode_folder
from viewcache.api.cli.main import main
from viewcache.catalog import Catalog, postgres
from viewcache.catalog.connecting import connect
from viewcache.catalog.opening import Opened, open_catalog, upgrade_catalog
from viewcache.errors import BadInput, CatalogBusy, CatalogDamaged, NotFound

MINE = "pid <> pg_backend_pid() and datname = current_database()"


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """A server whose settings a test may change, with roles that are no superuser."""
    with own_server() as running:
        execute(Server.database(running), "create role trainer login")
        execute(Server.database(running), "create role looker login")
        yield running


@pytest.fixture
def mine(own: Server) -> str:
    """URL of an empty database whose owner is `trainer`, as the superuser."""
    url = own.database()
    execute(url, f"alter database {name_of(url)} owner to trainer")
    return url


def name_of(url: str) -> str:
    """The database's name."""
    return url.partition("?")[0].rpartition("/")[2]


def named(url: str, role: str) -> str:
    """The database for another role; the server asks for no password."""
    return url.replace("postgres@", f"{role}:s3cret@")


def hidden(error: BaseException, *words: str) -> None:
    """Nothing of the machinery is told, and no password anywhere."""
    for word in (*words, "sqlalche", "Background", "CREATE TABLE", "[SQL"):
        assert word not in str(error)
    assert "s3cret" not in "".join(traceback.format_exception(error))


# The first open -------------------------------------------------------------------------------------------------------


def test_a_role_that_may_make_no_tables(own: Server) -> None:
    """The first open says who may not, and both ways to let it; each of them does."""
    url = own.database()
    theirs = named(url, "trainer")
    with pytest.raises(BadInput, match='grant usage, create on schema public to "trainer"') as refused:
        Catalog.open(theirs)
    assert "'trainer' may not make or change" in str(refused.value)
    assert "owner of the database" in str(refused.value)
    hidden(refused.value)
    execute(url, 'grant usage, create on schema public to "trainer"')
    Catalog.open(theirs).close()
    url = own.database()
    execute(url, f"alter database {name_of(url)} owner to trainer")
    Catalog.open(named(url, "trainer")).close()


def test_a_role_that_may_not_even_see_the_schema(own: Server) -> None:
    """The server then says that there is no schema to create in."""
    url = own.database()
    execute(url, "revoke all on schema public from public")
    with pytest.raises(BadInput, match='grant usage, create on schema public to "trainer"') as refused:
        Catalog.open(named(url, "trainer"))
    hidden(refused.value)


def test_a_session_is_cut_while_tables_are_made(mine: str) -> None:
    """That may pass: nothing is left of it, and the next open makes them."""
    execute(
        mine,
        "create function cut() returns event_trigger language plpgsql as "
        "$$ begin perform pg_terminate_backend(pg_backend_pid()); end $$",
    )
    execute(mine, "create event trigger cutting on ddl_command_end execute function cut()")
    with pytest.raises(CatalogBusy, match=r"cannot do it just now.*try again") as cut:
        Catalog.open(named(mine, "trainer"))
    hidden(cut.value)
    execute(mine, "drop event trigger cutting")
    with Catalog.open(named(mine, "trainer")) as catalog:
        registered(catalog)


def test_an_empty_database_has_nothing_to_upgrade(
    mine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`db upgrade`, with and without --dry-run, and questions say that there is no catalog; `doctor` is not alarmed."""
    with pytest.raises(NotFound, match="holds no catalog; `viewcache run` makes one"):
        upgrade_catalog(named(mine, "trainer"))
    file = written(tmp_path, mine, "trainer")
    for words in (["db", "upgrade", str(file)], ["db", "upgrade", str(file), "--dry-run"], ["status", str(file)]):
        assert main([*words, "--json"]) != 0
        assert json.loads(capsys.readouterr().out)["error"]["kind"] == "not_found"
    assert main(["doctor", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["findings"]
    assert {"level": "warn", "about": "catalog"}.items() <= next(f for f in told if f["about"] == "catalog").items()


# A role that may only look --------------------------------------------------------------------------------------------


def written(folder: Path, url: str, role: str) -> Path:
    """A configuration of a cache with this catalog."""
    if not (folder / "videos").exists():
        encode_folder(folder / "videos", {f"v{k}.mp4": 40 + k for k in range(2)})
    file = folder / f"{role}.yaml"
    catalog = url.replace("postgres@", f"{role}@")
    file.write_text(json.dumps(config(folder / "s", folder / "videos", cache={"catalog": catalog})))
    return file


def test_who_may_only_look_is_told_whose_role_to_use(
    mine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training, `run`, `gc`, `forget` and an upgrade are refused with the role and the cure; looking is not."""
    monkeypatch.setenv("VIEWCACHE_SERVICE", "off")
    with viewcache.open(written(tmp_path, mine, "trainer")) as cache:
        cache.read("train", 0, 0)
    execute(mine, "grant select on all tables in schema public to looker")
    file = str(written(tmp_path, mine, "looker"))
    words = "role 'looker' may not do this.*name the role that owns its tables"
    with pytest.raises(BadInput, match=words):
        viewcache.open(file)
    for command in (["run", file], ["gc", file], ["forget", file, "train"]):
        assert main([*command, "--json"]) != 0
        told = json.loads(capsys.readouterr().out)["error"]
        assert (told["kind"], "role 'looker' may not do this" in told["message"]) == ("bad_input", True)
    assert main(["sql", file, "select * from tasks"]) == 0
    execute(mine, "update alembic_version set version_num = '0014'")
    with pytest.raises(BadInput, match=r"'looker' may not make or change.*name the role that owns them") as refused:
        upgrade_catalog(named(mine, "looker"))
    hidden(refused.value, "alter table")


# A server that takes no changes ---------------------------------------------------------------------------------------


@contextmanager
def read_only(url: str) -> Iterator[Callable[[], None]]:
    """A server as it is for the seconds of a failover; who asks for it ends that."""

    def say(setting: str) -> None:
        execute(url, f"alter system {setting}")
        execute(url, "select pg_reload_conf()")
        now = [("on" if setting.startswith("set") else "off",)]
        until(lambda: execute(url, "show default_transaction_read_only") == now, setting)

    say("set default_transaction_read_only = on")
    try:
        yield lambda: say("reset default_transaction_read_only")
    finally:
        say("reset default_transaction_read_only")


def connections(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One for each connection that is made from now on."""
    made: list[object] = []

    def counted(url: str, **settings: Any) -> Any:
        made.append(connect(url, **settings))
        return made[-1]

    monkeypatch.setattr("viewcache.catalog.postgres.connect", counted)
    return made


@pytest.mark.parametrize("cut", [False, True], ids=["live", "cut"])
def test_a_server_that_takes_no_changes_is_waited_for(mine: str, monkeypatch: pytest.MonkeyPatch, cut: bool) -> None:
    """As one that restarts: who writes and who asks about rows of their own waits, and nothing is lost."""
    with Catalog.open(named(mine, "trainer")) as catalog, ThreadPoolExecutor(2) as pool:
        registered(catalog)
        catalog.wanted_among([1, 2])
        made = connections(monkeypatch)
        with read_only(mine) as over:
            if cut:
                execute(mine, f"select pg_terminate_backend(pid) from pg_stat_activity where {MINE}")
            catalog.mark_ready([copy(1)])
            writing, asking = pool.submit(catalog.flush, 60), pool.submit(catalog.wanted_among, [1, 2])
            until(lambda: len(made) > 4, "both to try again")
            assert not writing.done()
            assert not asking.done()
            over()
            writing.result(60)
            asking.result(60)
        assert catalog.failure is None
        assert catalog.load_copies()["object_id"].to_pylist() == [1]


def test_a_server_that_takes_no_changes_is_not_opened(mine: str) -> None:
    """The message has the ways on; who only reads is let in."""
    theirs = named(mine, "trainer")
    with read_only(mine), pytest.raises(CatalogBusy, match=r"takes no changes just now.*default_transaction_read_only"):
        Catalog.open(theirs)
    Catalog.open(theirs).close()
    with read_only(mine):
        with pytest.raises(CatalogBusy, match="takes no changes just now"):
            Catalog.open(theirs)
        Catalog.open(theirs, writable=False).close()


# What takes too long --------------------------------------------------------------------------------------------------


@contextmanager
def locked(url: str, table: str) -> Iterator[None]:
    """An operator holds a table."""
    import psycopg

    with psycopg.connect(url) as holder:
        holder.execute(f"lock table {table} in access exclusive mode".encode())
        yield


@pytest.mark.parametrize("setting", ["statement_timeout", "lock_timeout"])
def test_what_takes_too_long_is_not_lost(mine: str, monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    """The error names the setting and is busy, not damage; the change waits, and is written when it can be."""
    monkeypatch.setattr(postgres, "BUSY_S", 0.0)
    Catalog.open(named(mine, "trainer")).close()
    execute(mine, f"alter role trainer in database {name_of(mine)} set {setting} = '1s'")
    words = "did not answer in time: .*statement_timeout or lock_timeout of role 'trainer'"
    with Catalog.open(named(mine, "trainer")) as catalog:
        with locked(mine, "object_copy"):
            catalog.mark_ready([copy(1)])
            with pytest.raises(CatalogBusy, match=words):
                catalog.flush()
            with pytest.raises(CatalogBusy, match=words):
                catalog.wanted_among([1])
        catalog.flush()
        assert catalog.load_copies()["object_id"].to_pylist() == [1]


def test_who_asks_waits_for_a_lock_as_for_a_restart(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that ran into a short time limit is asked again for a while."""
    Catalog.open(named(mine, "trainer")).close()
    execute(mine, f"alter role trainer in database {name_of(mine)} set lock_timeout = '100ms'")
    with Catalog.open(named(mine, "trainer")) as catalog, ThreadPoolExecutor(1) as pool:
        made = connections(monkeypatch)
        with locked(mine, "object_copy"):
            asking = pool.submit(catalog.wanted_among, [1])
            until(lambda: len(made) > 2, "it to be asked again")
        assert asking.result(60) == set()


@pytest.fixture
def database(mine: str) -> Iterator[Opened]:
    """What lies below an open catalog."""
    opened = open_catalog(named(mine, "trainer"), create=True, writable=True, wait_s=1.0, memory_bytes=1 << 30)
    yield opened
    opened.close()


def test_a_session_that_is_ended_for_idling_is_lost(mine: str, database: Opened) -> None:
    """The next change uses another one."""
    execute(mine, f"alter role trainer in database {name_of(mine)} set idle_in_transaction_session_timeout = '50ms'")
    engine = database.engine
    engine.reopen()

    def gone() -> bool:
        return execute(mine, f"select 1 from pg_stat_activity where {MINE} and usename = 'trainer'") == []

    def idling() -> None:
        with engine.transaction() as session:
            session.run("write_setting", {"name": "a", "value": "b"})
            until(gone, "the server to end the session")
            session.run("write_setting", {"name": "a", "value": "c"})

    with pytest.raises(CatalogDamaged, match="was lost"):
        idling()
    assert engine.lost
