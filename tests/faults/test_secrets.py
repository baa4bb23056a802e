"""A secret wherever a user can put one: nothing that viewcache writes, says or starts has it."""

import json
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import viewcache
from tests.catalog.samples import execute
from tests.faults.caches import config, objects_of, read_all
from tests.faults.postgres import own_server
from viewcache.api.cli.main import main
from viewcache.errors import ViewcacheError

CANARY = "c4n4ryF00dsecret"

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": f"AKIA{CANARY}",
    "AWS_SECRET_ACCESS_KEY": CANARY,
    "AWS_SESSION_TOKEN": f"{CANARY}/token",
    "AWS_MAX_ATTEMPTS": "1",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",  # nobody listens there
    "PGPASSWORD": CANARY,
}

URLS = [
    f"https://me:{CANARY}@example.org/videos",
    f"https://{CANARY}@example.org/videos",
    f"https://example.org/videos?token={CANARY}",
    f"https://example.org/videos?X-Amz-Signature={CANARY}",
    f"s3://AKIA:{CANARY}@bucket/videos",
    f"ftp://me:{CANARY}@example.org/videos",
    f"simplecache::https://me:{CANARY}@example.org/videos",
    f"https://me:{CANARY}@[broken/videos",
]
DATABASES = [
    f"postgresql://me:{CANARY}@localhost/db",
    f"postgresql://me@localhost/db?password={CANARY}",
    f"postgresql://me:{CANARY}%zz@localhost/db",
    f"postgres://me:{CANARY}@localhost/db",
    f"host=localhost password={CANARY}",
]


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The secret is in the environment, and every logger says all it can."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    caplog.set_level(logging.DEBUG)


def assert_silent(text: str, what: str) -> None:
    """The secret, or a good part of it, is not in a text."""
    assert CANARY[:10] not in text, f"{what} shows the secret"


def command_lines() -> str:
    """Of all processes that there are."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.append((process / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(found)


def assert_not_on_disk(folder: Path) -> int:
    """The secret is in no file's name or bytes.

    Returns:
        How many files were looked at.
    """
    files = [path for path in folder.rglob("*") if path.is_file()]
    for path in files:
        assert_silent(str(path), "a file's name")
        assert CANARY[:10].encode() not in path.read_bytes(), f"{path} holds the secret"
    return len(files)


def failed(wanted: object) -> str:
    """All that a person can see of the error of opening something: its text, its values, its traceback."""
    with pytest.raises(ViewcacheError) as told, viewcache.open(wanted):  # type: ignore[arg-type]  # text or mapping
        pass
    error: BaseException | None = told.value
    chain = []
    while error is not None:
        chain.append(f"{error} {error!r} {error.args}")
        error = error.__cause__ or error.__context__
    lines = traceback.format_exception(told.value)
    return "\n".join([*chain, *lines])


@pytest.mark.usefixtures("everything")
def test_no_refusal_shows_a_secret(tmp_path: Path, videos: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A URL with a secret, in a mapping or in YAML, for videos, labels, store or catalog: refused, and not repeated."""
    tries = 0
    for url in URLS:
        for part in ("videos", "labels", "store"):
            wanted = config(tmp_path / "store", videos)
            if part == "videos":
                wanted["dataset"]["video_dataset_path"] = url
            elif part == "labels":
                wanted["dataset"]["labels"] = url
            else:
                wanted["cache"]["store"] = url
            for form in (wanted, yaml.safe_dump(wanted)):
                assert_silent(failed(form), f"the refusal of {url} as {part}")
                tries += 1
    for url in DATABASES:
        wanted = config(tmp_path / "store", videos, catalog=url)
        for form in (wanted, yaml.safe_dump(wanted)):
            assert_silent(failed(form), f"the refusal of {url} as catalog")
            tries += 1
    assert tries == 2 * (3 * len(URLS) + len(DATABASES))
    assert_silent(caplog.text, "the log")
    assert_not_on_disk(tmp_path)


def from_environment(store: Path, videos: Path, catalog: str = "duckdb") -> Iterator[str]:
    """Use a cache in every way, and give what can be seen of it from outside."""
    with viewcache.open(config(store, videos, catalog=catalog)) as cache:
        list(read_all(cache))
        yield command_lines()
        if catalog == "duckdb":
            cache.catalog.publish_snapshot()
        yield repr(cache.config)
        yield json.dumps(cache.materialize() is None)


@pytest.mark.usefixtures("everything")
def test_a_run_leaves_no_secret(
    tmp_path: Path, videos: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scanned, made, read, looked at by commands, and refused by a server: store, catalog, logs, words, processes."""
    store = tmp_path / "store"
    for seen in from_environment(store, videos):
        assert_silent(seen, "a run")
    written = tmp_path / "task.yaml"
    written.write_text(yaml.safe_dump(config(store, videos)))
    for command in (["doctor"], ["status"], ["sql", "select * from tasks"]):
        main([*command, str(written)])
    said = capsys.readouterr()
    assert said.out
    assert_silent(said.out + said.err, "a command")
    away = config(tmp_path / "other", videos)
    away["dataset"]["video_dataset_path"] = "s3://bucket/videos/*.mp4"
    assert_silent(failed(away), "a server that does not answer")
    assert caplog.records
    assert_silent(caplog.text, "the log")
    assert objects_of(store)
    assert assert_not_on_disk(tmp_path) > 10


@pytest.mark.usefixtures("everything")
def test_a_database_with_a_password(
    tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The password comes from PGPASSWORD or a file; nothing else knows it, nor is a wrong one repeated."""
    with own_server() as server:
        server.ask_for_passwords("me", CANARY)
        url = server.database().replace("postgres@", "me@")
        for seen in from_environment(tmp_path / "store", videos, url):
            assert_silent(seen, "a run")
        monkeypatch.delenv("PGPASSWORD")
        assert "password" in failed(config(tmp_path / "store", videos, catalog=url))
        passwords = tmp_path.with_name("pgpass")
        passwords.write_text(f"*:*:*:me:{CANARY}\n")
        passwords.chmod(0o600)
        monkeypatch.setenv("PGPASSFILE", str(passwords))
        with viewcache.open(config(tmp_path / "store", videos, catalog=url)):
            assert_silent(command_lines(), "a process")
        passwords.write_text(f"*:*:*:me:{CANARY}wrong\n")
        assert_silent(failed(config(tmp_path / "store", videos, catalog=url)), "a wrong password")
        tables = execute(
            server.superuser(url), "select table_name from information_schema.tables where table_schema = 'public'"
        )
        assert len(tables) > 10
        for (table,) in tables:
            assert_silent(str(execute(server.superuser(url), f"select * from {table}")), f"table {table}")
    assert_silent(caplog.text, "the log")
    assert assert_not_on_disk(tmp_path) > 10
