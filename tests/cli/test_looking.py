"""status, sql, lint and finding the cache: nothing is changed, also while another process trains."""

import csv
import io
import json
import lzma
import shlex
from pathlib import Path

import pytest

import viewcache
from tests.cli.site import Site
from viewcache import migrations
from viewcache.api.page.server import PageServer
from viewcache.api.queries.ask import question, questions
from viewcache.catalog.files import CatalogFiles

HOSTILE = (
    "delete from task",
    "with gone as (delete from task returning *) select * from gone",
    "select 1; drop table task",
    "update setting set value = 'x'",
    "create table t as select 1",
    "insert into setting values ('a', 'b')",
    "attach '/etc/passwd' as p",
    "copy task to 'stolen.csv'",
    "select * from read_csv('/etc/passwd')",
    "select * from read_text('train.yaml')",
    "select * from 'train.yaml'",
    "install httpfs",
    "load httpfs",
    "set enable_external_access = true",
    "pragma memory_limit='1TB'",
    "call checkpoint()",
    "explain analyze select 1",
    "",
    "select",
    "not sql at all",
)


def test_sql_as_a_table(made: Site) -> None:
    """The README's question is answered, and stderr says what was seen."""
    text = made.run("sql", "select kind, state, count(*), sum(bytes) from objects group by all")
    assert "clip" in text
    assert "ready" in text
    assert "no process has it open" in made.words


def test_sql_as_json(made: Site) -> None:
    """Columns and rows are JSON: numbers stay numbers, bytes become hex, NaN becomes null."""
    answer = made.json("sql", "select 1 as a, 2 as a, 'x' as b, '\\xFF'::blob as c, 'nan'::double as d, sum(1) as e")
    assert answer["columns"] == ["a", "a", "b", "c", "d", "e"]
    assert answer["rows"] == [[1, 2, "x", "ff", None, 1]]
    assert answer["source"] == "file"


def test_sql_as_csv(made: Site) -> None:
    """Rows for other tools, with a line of names, quoted where need be."""
    rows = list(csv.reader(io.StringIO(made.run("sql", "select 'a,b' as x, 2 as y", "--csv"))))
    assert rows == [["x", "y"], ["a,b", "2"]]


def test_sql_limits_rows_and_says_so(made: Site) -> None:
    """A query that gives more rows than wanted is cut, audibly."""
    assert made.json("sql", "select * from range(100)", "--rows", "3")["truncated"] is True
    assert "there are more" in made.words


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("date 'infinity'", "<value out of range: 2147483647>"),
        ("date '12000-01-01'", "12000-01-01"),
        ("timestamp_ns '2020-01-01 00:00:00.123456789'", "2020-01-01 00:00:00.123456789"),
        ("[timestamp 'infinity']", "a list<l: timestamp[us]> out of range"),
    ],
)
def test_sql_shows_what_python_has_no_type_for(made: Site, value: str, shown: str) -> None:
    """Such a value comes as text, not as a traceback."""
    assert made.json("sql", f"select {value} as a")["rows"] == [[shown]]


@pytest.mark.parametrize(
    "limit", [("--seconds", "nan"), ("--seconds", "inf"), ("--rows", "9" * 20), ("--rows", "-1"), ("--wait", "-1")]
)
def test_sql_refuses_limits_out_of_range(made: Site, limit: tuple[str, str]) -> None:
    """A clear word of the one that is wrong, not a failure of what uses them."""
    message = made.json("sql", "select 1", *limit, code=2)["error"]["message"]
    assert message.startswith(f"{limit[0]} ")
    assert "is out of range" in message
    assert message.count("--") == 1


def test_sql_shows_instants_whole(made: Site) -> None:
    """A table for people does not round seconds since 1970 to four digits."""
    text = made.run("sql", "select 1795287662.4::double as at_s, 0.000123456::double as small")
    assert "1795287662" in text
    assert "0.0001235" in text


def test_sql_limits_time(made: Site) -> None:
    """A query without end is stopped and refused."""
    made.run("sql", "select count(*) from range(10000000000) a, range(1000) b", "--seconds", "0.5", code=2)
    assert "was stopped" in made.words


@pytest.mark.parametrize("query", HOSTILE)
def test_sql_refuses_all_but_one_select(made: Site, query: str) -> None:
    """Nothing is written, no file is read, and the exit code is that of bad input."""
    before = {path: path.stat().st_mtime_ns for path in Path(".").iterdir()}
    assert made.json("sql", query, code=2)["error"]["kind"] == "query_refused"
    assert "root:" not in made.words
    assert {path: path.stat().st_mtime_ns for path in Path(".").iterdir()} == before


@pytest.mark.parametrize(
    ("name", "said"), [("object_", 'Did you mean "objects"?'), ("nonex", "There are tasks, videos, images, items, ")]
)
def test_sql_proposes_public_relations(made: Site, name: str, said: str) -> None:
    """A name that nothing has is answered with one that is documented, or all of them, and with no table of ours."""
    made.run("sql", f"select * from {name}", code=2)
    assert f"Table with name {name} does not exist!\n{said}" in made.words
    assert "counter" not in made.words


def test_sql_from_another_process_sees_a_snapshot(made: Site) -> None:
    """While a run is on, another process reads what was committed, and is told how old it is and who owns it."""
    with viewcache.open(made.config) as cache:
        cache.read("train", 0, 0)
        asked = made.spawn("sql", "train.yaml", "select sum(refs) as n from objects where kind = 'clip'", "--json")
        out, err = asked.communicate(timeout=60)
    assert asked.returncode == 0, err
    answer = json.loads(out)
    assert answer["source"] == "snapshot"
    assert answer["owner"] > 0
    assert answer["rows"] == [[8]]
    assert f"owner pid {answer['owner']}" in err


def test_status_from_another_process(made: Site) -> None:
    """Tasks, progress, objects by state, budget and stalls, while the owner reads."""
    with viewcache.open(made.config) as cache:
        cache.read("train", 0, 0)
        asked = made.spawn("status", "--json")
        out, err = asked.communicate(timeout=60)
    assert asked.returncode == 0, err
    answer = json.loads(out)
    assert answer["tasks"][0]["iteration"] == 1
    assert {(row["kind"], row["state"]) for row in answer["objects"]} >= {("clip", "ready")}
    assert answer["tiers"][0]["budget_bytes"] == 64_000_000
    assert "owner pid" in answer["seen"]


def test_status_says_what_reading_waited_for(site: Site) -> None:
    """Seconds of a cold read are attributed to stages, whose shares add up to one."""
    with viewcache.open(site.config) as cache:
        cache.read("train", 0, 0)
    stalls = site.json("status")["stalls"]
    assert isinstance(stalls, list)
    assert sum(row["share"] for row in stalls) == pytest.approx(1)
    assert {row["waiting_for"] for row in stalls} & {"decode", "start", "making", "store"}
    assert "what reading waited for" in site.run("status")


def test_every_question_that_ships_is_answered(made: Site) -> None:
    """The demo's and the status's SQL works on the public relations, and says what it is for."""
    for name in questions():
        if "$" not in question(name):  # those with parameters are asked by tests/catalog/test_page.py
            made.run("sql", question(name))


def test_the_near_configuration_is_meant(made: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a name: the variable VIEWCACHE, the nearest viewcache.yaml upward, the only configuration here."""
    made.run("status")
    Path("other.yaml").write_text("cache: {store: ./other}\n")
    made.run("status", code=2)
    assert "other.yaml, train.yaml" in made.words
    monkeypatch.setenv("VIEWCACHE", str(made.store))
    made.run("status")
    monkeypatch.delenv("VIEWCACHE")
    Path("train.yaml").rename("viewcache.yaml")
    Path("below").mkdir()
    monkeypatch.chdir("below")
    made.run("status")


@pytest.mark.parametrize(("command", "missing"), [("sql", "QUERY"), ("mount", "DIR")])
def test_a_configuration_alone_lacks_the_argument_behind_it(site: Site, command: str, missing: str) -> None:
    """It is not taken for that argument, also where another one is near, or where no file has its name."""
    (site.folder / "other.yaml").write_text(site.config.read_text())
    for name in ("other.yaml", "of another folder.yml"):
        site.run(command, name, code=2)
        assert f"{missing} is missing: {shlex.quote(name)} names a configuration" in site.words
        assert f"`viewcache {command} {shlex.quote(name)} {missing}`" in site.words


@pytest.mark.parametrize("arguments", [("status",), ("sql", "select 1"), ("verify",), ("db", "upgrade")])
def test_what_is_not_there_is_not_found(site: Site, arguments: tuple[str, ...]) -> None:
    """Looking at a cache that was never made makes none."""
    site.run(*arguments, code=3)
    assert not site.store.exists()


@pytest.mark.parametrize("revision", ["0009", "0013", "0014"])
def test_a_catalog_of_an_older_release_is_told_with_its_cure(
    made: Site, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`status`, `top` and `page` say that it is older and what upgrades it, and are right after that."""
    written = Path(__file__).parents[1] / "catalog" / "written" / f"{revision}.duckdb.xz"
    CatalogFiles(made.store).database.write_bytes(lzma.decompress(written.read_bytes()))
    monkeypatch.setattr(PageServer, "serve", lambda *_: None)
    for command in (("status",), ("top", "--once"), ("page", "--port", "0")):
        made.run(*command, code=5)
        assert made.words == (
            f"viewcache: catalog {made.store} is older than this viewcache ({migrations.HEAD}); run `viewcache db "
            "upgrade` first\n"
        )
    for command in (("status",), ("top",)):
        assert made.json(*command, code=5)["error"]["kind"] == "catalog_version"
    made.run("sql", "select count(*) from tasks")
    made.run("db", "upgrade")
    for command in (("status",), ("top", "--once"), ("page", "--port", "0")):
        made.run(*command)


@pytest.mark.parametrize("command", [("plan",), ("run", "--dry-run")])
def test_a_plan_upgrades_no_catalog(made: Site, command: tuple[str, ...]) -> None:
    """A catalog of an older release stays as it is; its copy is upgraded and planned on."""
    database = CatalogFiles(made.store).database
    written = lzma.decompress((Path(__file__).parents[1] / "catalog" / "written" / "0014.duckdb.xz").read_bytes())
    database.write_bytes(written)
    made.run(*command)
    assert database.read_bytes() == written


@pytest.mark.parametrize("name", ["missing.yaml", "missing-folder"])
def test_a_name_that_is_not_there_is_not_found(site: Site, name: str) -> None:
    """The message names it."""
    site.run("status", name, code=3)
    assert name in site.words


def test_a_folder_that_is_no_cache_is_refused(site: Site) -> None:
    """Another folder is never taken for a cache: none is found there. What needs a configuration wants a file."""
    for command in (("status",), ("gc",), ("top", "--once"), ("forget",)):
        site.run(*command, "videos", *(("train",) if command == ("forget",) else ()), code=3)
        assert "videos is no cache" in site.words
    site.run("plan", "videos", code=2)


BAD = """\
cache:
  budjet: 1GB
  memory: lots
dataset:
- tag: one
  video_dataset_path: ./videos
  epochs: five
  sampling: {videos_per_batch: 2, frames_per_video: 8, frame_strid: 2}
  augmentation:
  - name: a
    branch_type: single
    inputs: [frame]
    outputs: [x]
    config:
    - rezise: {short_side: 256}
    - flip: {flip_prob: 5}
- tag: two
  sampling: {videos_per_batch: 2, frames_per_video: 8}
  augmentation: []
"""


def test_lint_finds_all_errors(site: Site) -> None:
    """One line for each mistake at its place, none for what merely follows from another."""
    site.config.write_text(BAD)
    answer = site.json("lint", "train.yaml", code=1)
    places = [(each["place"]["line"], each["place"]["column"]) for each in answer["problems"]]
    assert places == [(2, 3), (3, 11), (7, 11), (8, 56), (15, 7), (16, 7), (17, 3)]
    text = site.run("lint", "train.yaml", code=1)
    assert "train.yaml:2:3: error: unknown key 'budjet'" in text
    assert "did you mean resize?" in text


def test_lint_is_content_with_a_good_file(site: Site) -> None:
    """Exit code 0, and no cache is made."""
    site.run("lint")
    assert "no problem" in site.words
    assert not site.store.exists()


def test_lint_survives_what_is_not_yaml(site: Site) -> None:
    """A syntax error is one problem with its place; other files are checked nevertheless."""
    Path("bad.yaml").write_text("dataset: [\n")
    Path("worse.yaml").write_text("dataset: {tagg: x}\n")
    answer = site.json("lint", "bad.yaml", "worse.yaml", code=1)
    assert {Path(each["place"]["file"]).name for each in answer["problems"]} == {"bad.yaml", "worse.yaml"}


def test_lint_warns_of_what_is_odd(site: Site) -> None:
    """A large batch, a small budget and long clips are allowed, so they are warnings and the exit code is 0."""
    site.edit("videos_per_batch: 2", "videos_per_batch: 20")
    site.edit("64MB", "100kB")
    text = site.run("lint")
    assert "a batch has 20 videos, the dataset 3" in text
    assert "keeps about" in text
    site.edit("100kB", "64MB")
    site.edit("frame_stride: 2", "frame_stride: 9")
    text = site.run("lint", "--scan")
    assert "3 of 3 videos are shorter" in text


def test_lint_misses_no_dataset(site: Site) -> None:
    """A folder that is not there is an error of the configuration."""
    site.edit("./videos", "./nowhere")
    site.run("lint", code=1)


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("nowhere", 3, "nowhere does not exist; name a cache's folder or a configuration"),
        ("videos", 3, "videos is no cache"),
    ],
)
def test_what_is_no_cache_is_told(site: Site, name: str, code: int, told: str) -> None:
    """A wrong path, or a folder of something else, is not taken for an empty cache."""
    for command in ("status", "gc", "verify"):
        site.run(command, name, code=code)
        assert told in site.words


MISTAKES = {
    "a module that is not on the path": ("workers: 1", "workers: 1\n  op_modules: [not_on_the_path]"),
    "a module with a mistake": ("workers: 1", "workers: 1\n  op_modules: [broken_module]"),
    "an unknown operation": ("flip: {", "flop: {"),
    "a task without a tag": ("  tag: train\n", ""),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_looking_takes_the_section_of_the_cache_alone(
    what: str, made: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sql`, `status`, `top` and `stop` neither import operations nor read tasks; what trains still refuses both."""
    (tmp_path / "broken_module.py").write_text("def (")
    monkeypatch.syspath_prepend(tmp_path)
    before, after = MISTAKES[what]
    text = made.config.read_text()
    assert before in text
    made.config.write_text(text.replace(before, after))
    assert made.json("sql", "train.yaml", "select count(*) from tasks")["rows"] == [[1]]
    assert "tasks" in made.json("status", "train.yaml")
    assert made.json("top", "train.yaml")
    made.run("stop", "train.yaml", code=3)
    assert "no service runs" in made.words
    made.run("plan", "train.yaml", code=2)
    if what == "a module that is not on the path":
        assert ": cache.op_modules: not_on_the_path cannot be imported" in made.words
        assert "is it installed here, or its folder on PYTHONPATH?" in made.words


def test_a_mistake_in_the_section_of_the_cache_is_told(made: Site) -> None:
    """What a look does need is still checked."""
    made.config.write_text(made.config.read_text().replace("workers: 1", "worker: 1"))
    made.run("status", "train.yaml", code=2)
    assert "workers" in made.words
