"""What scripts rely on: names of commands, exit codes, JSON on stdout, words on stderr."""

import argparse
import json
import math
import re
import subprocess
import sys
from decimal import Decimal

import pytest

from tests.cli.site import Site
from tests.house.tree import ROOT
from viewcache import errors
from viewcache.api.cli import terminal
from viewcache.api.cli.main import EXIT_CODES, exit_code, main, parser
from viewcache.api.cli.terminal import as_json
from viewcache.api.text import duration, printable, size

DOC = (ROOT / "docs" / "cli.md").read_text()


def _commands(top: argparse.ArgumentParser, before: str = "") -> dict[str, argparse.ArgumentParser]:
    found: dict[str, argparse.ArgumentParser] = {}
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, each in action.choices.items():
                below = _commands(each, f"{before}{name} ")
                found |= below or {f"{before}{name}": each}
    return found


COMMANDS = _commands(parser())


def test_commands_are_pinned() -> None:
    """Names are a promise: removing one needs a CHANGELOG line."""
    wanted = ["plan", "scan", "run", "demo", "status", "sql", "lint", "verify", "doctor", "gc", "forget", "evict"]
    wanted += ["profile", "db upgrade", "serve", "stop", "mount", "page", "top", "show", "init"]
    assert sorted(COMMANDS) == sorted(wanted)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_and_option_is_documented(name: str) -> None:
    """docs/cli.md has a heading for each command and names each of its options there."""
    match = re.search(rf"^## `{name}`$(.*?)(?=^## |\Z)", DOC, re.MULTILINE | re.DOTALL)
    assert match, f"docs/cli.md has no heading for {name}"
    options = {option for action in COMMANDS[name]._actions for option in action.option_strings} - {"-h", "--help"}
    assert not [option for option in options if f"`{option}" not in match[1]]


def test_every_exit_code_is_documented() -> None:
    """docs/cli.md lists the codes with the words of the code."""
    assert not [code for code in EXIT_CODES if f"| {code} |" not in DOC]


def _tree(kind: type[errors.ViewcacheError]) -> list[type[errors.ViewcacheError]]:
    return [kind, *(each for below in kind.__subclasses__() for each in _tree(below))]


@pytest.mark.parametrize("kind", _tree(errors.ViewcacheError))
def test_every_error_has_its_code(kind: type[errors.ViewcacheError]) -> None:
    """By the groups of the error tree, so that a new class has one too."""
    class_of_error = type(kind.__name__, (kind,), {"__init__": lambda self: None})
    groups = {errors.BadInput: 2, errors.NotFound: 3, errors.BadVideo: 1, errors.Busy: 4, errors.Broken: 5}
    expected = next((code for group, code in groups.items() if issubclass(kind, group)), 5)
    assert exit_code(class_of_error()) == expected


def test_help_needs_no_library() -> None:
    """`viewcache --help` imports neither torch nor av, duckdb or rich."""
    code = (
        "import sys, viewcache.api.cli.main as cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit as end: assert not end.code\n"
        "loaded = {name.split('.')[0] for name in sys.modules}\n"
        "heavy = {'torch', 'av', 'duckdb', 'numpy', 'rich', 'yaml', 'cv2', 'pyarrow'} & loaded\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments", [[], ["fly"], ["sql"], ["plan", "--generation", "x"], ["sql", "q", "--json", "--csv"]]
)
def test_wrong_arguments_are_bad_input(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and the usage and what is wrong on stderr."""
    assert main(arguments) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("usage: viewcache")
    assert said[-1].startswith("viewcache: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--epochs", "x", "--json"],
        ["evict", "--js", "--tier", "bogus"],
        ["sql", "q", "--json", "--csv"],
        ["--json", "fly"],
        ["db", "--json"],
    ],
)
def test_wrong_arguments_are_json_too(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """With --json stdout holds one JSON value also when the arguments cannot be understood."""
    assert main(arguments) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["kind"] == "bad_input"
    assert error["message"].endswith("--help` says what it takes")


def test_without_json_wrong_arguments_are_words(capsys: pytest.CaptureFixture[str]) -> None:
    """Stdout stays empty; what stands behind ``--`` is no option."""
    for arguments in (["plan", "--generation", "x"], ["stop", "a", "--", "--json", "c"]):
        assert main(arguments) == 2
        assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["sql", "a.yaml", "--rows", "5", "select 1"], {"where": "a.yaml", "query": "select 1", "rows": 5}),
        (["sql", "--rows=5", "a.yaml", "--js", "select 1"], {"where": "a.yaml", "query": "select 1", "json": True}),
        (["sql", "a.yaml", "--rows", "5", "--", "--x"], {"where": "a.yaml", "query": "--x", "rows": 5}),
        (["sql", "--", "a.yaml", "--x"], {"where": "a.yaml", "query": "--x"}),
        (["sql", "a.yaml", "--rows", "5", "--", "--"], {"where": "a.yaml", "query": "--", "rows": 5}),
        (["sql", "--", "a.yaml", "--"], {"where": "a.yaml", "query": "--"}),
        (["plan", "--json", "a.yaml", "--", "--json", "--"], {"config": ["a.yaml", "--json", "--"], "json": True}),
        (["sql", "--rows", "5", "select 1"], {"where": None, "query": "select 1", "rows": 5}),
        (["mount", "a.yaml", "--job", "x", "views"], {"config": ["a.yaml"], "folder": "views", "job": "x"}),
        (["plan", "a.yaml", "--json", "b.yaml"], {"config": ["a.yaml", "b.yaml"], "json": True}),
    ],
)
def test_options_stand_anywhere(arguments: list[str], wanted: dict[str, object]) -> None:
    """Also between two arguments, of which the first may be left out; what stands behind ``--`` is no option."""
    understood = vars(parser().parse_args(arguments))
    assert {name: understood[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("arguments", "unknown", "command"),
    [
        (["sql", "a.yaml", "--rows", "5", "select 1", "--what"], "--what", "viewcache sql"),
        (["sql", "a.yaml", "--rows", "5", "b", "c"], "c", "viewcache sql"),
        (["sql", "a.yaml", "--", "b", "--json"], "--json", "viewcache sql"),
        (["db", "upgrade", "a.yaml", "--dry-run", "b.yaml"], "b.yaml", "viewcache db upgrade"),
        (["db", "--what", "upgrade"], "--what", "viewcache db"),
        (["--what", "plan", "a.yaml"], "--what", "viewcache"),
    ],
)
def test_what_no_command_takes_is_named(
    arguments: list[str], unknown: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where options stand between arguments, too; the usage is that of the command that does not take it."""
    told = f"unrecognized arguments: {unknown}; `{command} --help` says what it takes"
    with pytest.raises(errors.BadInput, match=f"^{re.escape(told)}$"):
        parser().parse_args(arguments)
    assert capsys.readouterr().err.startswith(f"usage: {command} [-h]")


def test_line_breaks_in_arguments_break_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    """An argument is shown escaped, where a command refuses it as where the parser does; JSON has it as it is."""
    for arguments in (["status", "a\x01b\nc"], ["status", "x", "a\x01b\nc"]):
        assert main(arguments) > 0
        assert "a\\x01b\\nc" in capsys.readouterr().err.splitlines()[-1]
    main(["status", "a\nb", "--json"])
    assert "a\nb does not exist" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_the_package_is_the_command() -> None:
    """`python -m viewcache` does what `viewcache` does, and is called so."""
    for options, code, says in ((["--version"], 0, "viewcache "), (["status", "nowhere"], 3, "viewcache: nowhere")):
        command = [sys.executable, "-m", "viewcache", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == code
        assert (done.stdout + done.stderr).startswith(says)


def test_errors_are_json_too(site: Site) -> None:
    """With --json stdout holds one JSON value also when the command fails: the kind, the message and the place."""
    site.config.write_text("dataset: {tagg: x}\n")
    error = site.json("plan", code=2)["error"]
    assert isinstance(error, dict)
    assert (error["kind"], error["code"], error["line"], error["column"]) == ("config", "unknown_key", 1, 11)
    assert site.words.startswith("viewcache: ")


def test_a_closed_pipe_is_no_error(made: Site) -> None:
    """`viewcache sql … | head -1` ends quietly."""
    command = (
        f"{sys.executable} -m viewcache.api.cli.main sql --csv 'select * from range(200000)' --rows 200000 | head -1"
    )
    done = subprocess.run(["bash", "-c", command], cwd=made.folder, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_unexpected_errors_are_told_as_such(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug ends with 5, a trace and a request to report it, never with a code that means something else."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("viewcache.api.config.find.locate", broken)
    site.run("status", code=5)
    assert "ZeroDivisionError" in site.words
    assert "please report" in site.words
    assert site.json("status", code=5) == {"error": {"kind": "unexpected", "message": "ZeroDivisionError: a bug"}}


def test_names_cannot_steer_the_terminal() -> None:
    """Escape sequences out of file names or errors are shown, not obeyed."""
    assert printable("a\x1b[2Jb\u202ec\nd") == "a\\x1b[2Jb\\x202ec\nd"


def test_json_of_every_value() -> None:
    """What a query may give is JSON: decimals, bytes, not-a-number, nested values."""
    value = {"a": Decimal(3), "b": Decimal("0.5"), "c": b"\x00\xff", "d": math.nan, "e": (1, {2: None})}
    assert json.loads(as_json(value)) == {"a": 3, "b": 0.5, "c": "00ff", "d": None, "e": [1, {"2": None}]}


def test_sizes_and_durations_for_people() -> None:
    """Three digits, a unit, no more."""
    assert [size(n) for n in (0, 999, 1500, 193_000_000, 5e12)] == ["0 B", "999 B", "1.5 kB", "193 MB", "5 TB"]
    assert [duration(s) for s in (0.0421, 75.3, 200, 7500)] == ["0.042 s", "75 s", "3 min 20 s", "2 h 5 min"]
    assert [size(n) for n in (999_700, 999_800_000)] == ["1 MB", "1 GB"]
    assert [duration(s) for s in (9.97, 119.7, 7199)] == ["10 s", "2 min 0 s", "2 h 0 min"]


def test_the_time_that_is_left_leaves_out_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    """Seconds in which workers started are no measure of the pace; before there is a pace nothing is foretold."""
    clock = iter((0.0, 20.0, 21.0, 26.0, 26.0))
    lines = terminal.Lines("cold", lambda: next(clock))
    for done in (1, 2, 7):
        lines.at(done, 12)
    lines.end()
    told = capsys.readouterr().err.splitlines()
    assert told == ["cold: 1/12", "cold: 7/12, about 5 s left", "cold: 7/12 in 26 s"]


def test_tables_cut_what_nobody_reads(capsys: pytest.CaptureFixture[str]) -> None:
    """A value of a hundred million characters is told by its beginning and its length, at once."""
    terminal.Terminal().table(("text",), [("a" * 10**8,)])
    shown = "".join(capsys.readouterr().out.split())
    assert shown.endswith("a…(100000000characters)")
    assert f"{'a' * terminal.LONGEST_CELL}…" in shown
    assert "a" * (terminal.LONGEST_CELL + 1) not in shown


def test_tables_end_where_their_words_end(capsys: pytest.CaptureFixture[str]) -> None:
    """In a pipe lines have no blanks at their end, and sentences are wrapped at the width that is asked for."""
    terminal.Terminal().table(("name", "purpose"), [("demand", "word " * 40)], width=terminal.NARROW)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) > 4
    assert all(line == line.rstrip() for line in lines)
