"""What PostgreSQL says when it does not let us in: which error that is, and what to do."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.catalog.conftest import database_url
from tests.cli.site import Site, encode_clips, make_site
from tests.faults.postgres import Server, own_server
from viewcache.catalog import Catalog, run_query
from viewcache.catalog.connecting import connect
from viewcache.errors import BadInput, CatalogBusy, ViewcacheError

CASES = {
    "a wrong password": ("me@", "wrong", "bad_input", "password authentication failed.*PGPASSWORD.*pgpass"),
    "no password": ("me@", None, "bad_input", "no password supplied.*PGPASSWORD.*pgpass"),
    "no such user": ("nobody@", "secret", "bad_input", "refuses the user or the password.*nobody"),
    "no such database": ("me@/nosuch", "secret", "bad_input", "nosuch.*createdb"),
    "nobody there": ("me@127.0.0.1:1", "secret", "catalog_busy", "no PostgreSQL server answers.*host and port"),
}


@pytest.fixture(scope="module")
def asking() -> Iterator[str]:
    """URL of a database of a server that asks `me` for a password, which is `secret`."""
    with own_server() as server:
        url = Server.database(server)
        server.ask_for_passwords("me", "secret")
        yield url


def named(url: str, who: str) -> str:
    """The database as another user, under another name, or elsewhere."""
    if ":1" in who:
        return f"postgresql://{who}/viewcache"
    user, _, database = who.partition("/")
    url = url.replace("postgres@", user)
    return database_url(url, database) if database else url


@pytest.mark.parametrize("case", CASES)
def test_a_refusal_says_what_to_do(
    asking: str, case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening and asking give the same error, and `plan` tells that a run would be refused."""
    who, password, kind, words = CASES[case]
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    monkeypatch.delenv("PGPASSWORD", raising=False)
    if password is not None:
        monkeypatch.setenv("PGPASSWORD", password)
    url = named(asking, who)
    for attempt in (lambda: Catalog.open(url, beside=tmp_path), lambda: run_query(url, "select 1")):
        with pytest.raises(ViewcacheError, match=f"(?s){words}") as refused:
            attempt()
        assert refused.value.kind == kind
        assert isinstance(refused.value, BadInput | CatalogBusy)
        assert "secret" not in str(refused.value)
    (tmp_path / "clips").mkdir()
    make_site(tmp_path, encode_clips(tmp_path / "clips"))
    site = Site(tmp_path, capsys)
    site.edit("  budget", f"  catalog: {url}\n  budget")
    plan = site.json("plan", str(site.config))
    assert "`viewcache run` would refuse this" in json.dumps(plan)


def test_a_host_that_vanishes_is_given_up_soon(asking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within half a minute, not after the minutes of client library and kernel; what a user says of it holds."""
    monkeypatch.setenv("PGPASSWORD", "secret")
    url = named(asking, "me@")

    def times(url: str) -> list[str | None]:
        with connect(url) as connection:
            given = connection.info.get_parameters()
        return [given.get(name) for name in ("connect_timeout", "tcp_user_timeout", "keepalives_idle")]

    assert times(url) == ["10", "25000", "10"]
    mark = "&" if "?" in url else "?"
    assert times(f"{url}{mark}connect_timeout=3&keepalives_idle=60") == ["3", "25000", "60"]
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "7")
    assert times(url) == ["7", "25000", "10"]
