"""The parts of the house style that a machine can check."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.house import Tree
from tests.house.tree import ROOT, own_files, room_files, short, syntax

LONGEST_MODULE = 450
"""Lines; near 400 is the aim. Past that, look for the second thing in the module."""

SQL = re.compile(
    r"\A\s*(select\b.*\bfrom\b|insert\s+into\b|update\s+\w+\s+set\b|delete\s+from\b|merge\s+into\b"
    r"|create\s+(or\s+replace\s+)?(temp\w*\s+)?(table|view|index)\b|drop\s+(table|view|index)\b|alter\s+table\b)",
    re.IGNORECASE | re.DOTALL,
)


def tracked() -> Iterator[tuple[Path, str]]:
    """Every text file that is or would be committed, with its text."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for name in filter(None, done.stdout.split("\0")):
        path = ROOT / name
        if path.is_file() and not path.is_symlink():
            try:
                yield path, path.read_text()
            except UnicodeDecodeError:
                continue


@pytest.mark.parametrize("path", own_files(), ids=short)
def test_modules_are_short(path: Path) -> None:
    """A module holds one thing, in at most 450 lines."""
    assert len(path.read_text().splitlines()) <= LONGEST_MODULE


ASSEMBLERS = ("api/session/", "api/upkeep/", "api/preview/", "api/queries/", "api/views/", "api/cli/")
"""Folders that put the parts of a cache together, or use a cache that is."""


@pytest.mark.parametrize("path", [path for path in own_files() if short(path).startswith(ASSEMBLERS)], ids=short)
def test_parts_are_given_what_they_need_when_they_are_built(path: Path) -> None:
    """Who assembles parts sets no attribute of one afterwards: a part says in its constructor what it needs."""
    assert not [
        f"{short(path)}:{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]


def test_nobody_reads_what_another_module_keeps_to_itself() -> None:
    """Names with an underscore belong to their module: neither the product nor a test takes them from elsewhere."""
    tree = Tree(ROOT)
    assert not tree.private_reads([*tree.product, *tree.tests])


DECLARED_IN_SQL_FILES = {
    "catalog/views.py": "wraps the SELECT of a view's file in CREATE VIEW, and drops it",
    "catalog/postgres.py": "makes and drops the temporary table that a statement's header declares",
    "catalog/owning.py": "asks PostgreSQL for its sessions and their locks; statements in files run on both databases",
}
"""Modules that write DDL for what a .sql file declares, or ask a server of itself."""


def test_sql_lives_in_sql_files() -> None:
    """Python names a statement, it does not contain or build one (migrations are frozen history and may)."""
    found = []
    for path in room_files():
        if "versions" not in path.parts and short(path) not in DECLARED_IN_SQL_FILES:
            docs = {id(node.value) for node in ast.walk(syntax(path)) if isinstance(node, ast.Expr)}
            found += [
                f"{short(path)}:{node.lineno}: {node.value.strip().splitlines()[0]}"
                for node in ast.walk(syntax(path))
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
                if SQL.match(node.value)
            ]
    assert not found


def test_every_test_states_its_promise() -> None:
    """Each test function has a docstring; hypothesis state machines count by their class."""
    silent = [
        f"{short(path)}:{node.lineno} {node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert not silent


def test_every_sql_file_has_its_header() -> None:
    """A statement opens with a comment that says what it is for."""
    assert not [short(path) for path in ROOT.glob("catalog/**/*.sql") if not path.read_text().startswith("--")]


def test_nothing_is_left_behind() -> None:
    """No note to self is committed: what is not done is in an issue."""
    words = "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX"])
    found = [f"{short(path)}: {m[0]}" for path, text in tracked() for m in re.finditer(rf"\b({words})\b", text)]
    assert not found


def test_no_path_of_one_machine() -> None:
    """The repository works wherever it lies."""
    # Written in pieces, as this file is looked at too.
    pattern = re.compile(r"(?<![\w.$}>])/(" + "|".join(["wo" + "rk", "fa" + "rm", "ho" + "me", "Us" + "ers"]) + r")/")
    assert not [short(path) for path, text in tracked() if pattern.search(text)]


def test_no_media_is_tracked() -> None:
    """Clips are made by the tests, come in a package, or lie beside the repository."""
    command = ["git", "-C", str(ROOT), "ls-files"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert not [name for name in names if re.search(r"\.(mp4|mkv|webm|avi|mov|ts)$", name)]
