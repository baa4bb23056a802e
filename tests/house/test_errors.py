"""One tree of errors, with kinds that never change."""

import ast
import builtins
import pickle
import re
from pathlib import Path

import pytest

from tests.house.tree import ROOT, room_files, short, syntax
from viewcache import errors

KINDS = {
    "ViewcacheError": "error",
    "BadInput": "bad_input",
    "ConfigError": "config",
    "BadUrl": "bad_url",
    "BudgetTooSmall": "budget_too_small",
    "QueryRefused": "query_refused",
    "MissingExtra": "missing_extra",
    "NotFound": "not_found",
    "DatasetNotFound": "dataset_not_found",
    "ViewNotFound": "view_not_found",
    "BadVideo": "bad_video",
    "Busy": "busy",
    "CatalogBusy": "catalog_busy",
    "Timeout": "timeout",
    "Broken": "broken",
    "ChunkDamaged": "chunk_damaged",
    "CatalogDamaged": "catalog_damaged",
    "CatalogVersion": "catalog_version",
    "WorkerDied": "worker_died",
    "SourceUnreachable": "source_unreachable",
    "StoreUnreachable": "store_unreachable",
    "Full": "full",
    "Misuse": "misuse",
    "Closed": "closed",
    "WrongProcess": "wrong_process",
    "ReadOnly": "read_only",
    "UnknownOption": "unknown_option",
    "UnsupportedPlatform": "unsupported_platform",
    "SeatTaken": "seat_taken",
    "ServiceDown": "service_down",
    "ServiceVersion": "service_version",
    "OpWorkerFailed": "op_worker_failed",
    "OpFailed": "op_failed",
}
"""Released kinds: append, never change. Logs, --json and users' scripts depend on them."""

BESIDE = ("ConfigCode", "is_unforeseen", "within_limits")
"""What the module has beside them."""

CLASSES = {name: getattr(errors, name) for name in errors.__all__ if name not in BESIDE}
FOREIGN = {
    "ValueError": "a parser's private signal, if a module of the same folder catches it by name",
    "AttributeError": "module and object __getattr__ must raise it",
    "NotImplementedError": "an abstract method",
    "StopIteration": "the iterator protocol",
    "KeyError": "the mapping protocol",
    "IndexError": "the sequence protocol",
    "SystemExit": "the end of a command or worker",
    "KeyboardInterrupt": "handed on",
    "EOFError": "the end of a connection, and of what stands for one",
    "BrokenPipeError": "the same, to who still speaks",
}
"""Builtins that code may raise beside the tree, and why."""


def _drawn() -> dict[str, tuple[str, tuple[str, ...], str]]:
    """Class → (parent, builtins, kind) as the drawing at the top of errors.py says."""
    found: dict[str, tuple[str, tuple[str, ...], str]] = {}
    trail: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"^    ([│├└─ ]*)([A-Z]\w+)(?: \(([\w, ]+)\))? +([a-z_]+)(?:  |$)", line):
            depth = len(match[1]) // 4
            trail[depth:] = [match[2]]
            bases = tuple(match[3].split(", ")) if match[3] else ()
            found[match[2]] = (trail[depth - 1] if depth else "", bases, match[4])
    return found


def _made(cls: type[errors.ViewcacheError]) -> errors.ViewcacheError:
    if cls is errors.ConfigError:
        return errors.ConfigError(errors.ConfigCode.WRONG_TYPE, "what, value, what to do", "train.yaml", 3, 7)
    if cls is errors.BudgetTooSmall:
        return errors.BudgetTooSmall("what, value, what to do", 7)
    return cls("what, value, what to do")


def test_the_drawing_is_the_tree() -> None:
    """Each class stands in the drawing under its parent, with its builtin and its kind."""
    expected = {}
    for name, cls in CLASSES.items():
        ours = [base.__name__ for base in cls.__bases__ if issubclass(base, errors.ViewcacheError)]
        natives = tuple(base.__name__ for base in cls.__bases__ if not issubclass(base, errors.ViewcacheError))
        if ours:
            expected[name] = (ours[0], natives, cls.kind)
    drawn = _drawn()
    assert next(iter(drawn)) == "ViewcacheError"  # its line carries the heads of the columns
    assert {name: line for name, line in drawn.items() if name != "ViewcacheError"} == expected


def test_kinds_are_pinned() -> None:
    """A released kind never changes, and no two classes share one."""
    assert {name: cls.kind for name, cls in CLASSES.items()} == KINDS
    assert len(set(KINDS.values())) == len(KINDS)


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_errors_cross_processes(name: str) -> None:
    """Workers send errors home: class, message and fields survive pickling, and str() is the message alone."""
    error = _made(CLASSES[name])
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert str(error).endswith("what, value, what to do")
    assert {k: v for k, v in vars(back).items() if k != "__notes__"} == vars(error)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_each_kind_has_its_heading(name: str) -> None:
    """docs/errors.md says of every kind what happened and what to do."""
    text = (ROOT / "docs" / "errors.md").read_text()
    section = re.search(rf"^#+ `{KINDS[name]}`.*?\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert section, f"docs/errors.md has no heading for `{KINDS[name]}`"
    assert f"`{name}`" in section[0]
    assert "What happened" in section[1]
    assert "What to do" in section[1]


def test_documented_kinds_exist() -> None:
    """docs/errors.md describes nothing that cannot happen."""
    text = (ROOT / "docs" / "errors.md").read_text()
    assert set(re.findall(r"^#+ `(\w+)`", text, re.MULTILINE)) == set(KINDS.values())


def test_each_config_code_has_its_row() -> None:
    """docs/errors.md describes every code of a ConfigError and no other; a released code never changes."""
    text = (ROOT / "docs" / "errors.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == [str(code) for code in errors.ConfigCode]


def test_code_raises_only_from_the_tree() -> None:
    """A caller can handle everything with `except ViewcacheError`; builtins leave only where a protocol asks."""
    known = {
        name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
    }
    wrong = [
        f"{short(path)}:{line} raises {name}"
        for path in room_files()
        for name, line in _raised(path)
        if name in known - FOREIGN.keys() or (name == "ValueError" and not _folder_catches_it(path.parent))
    ]
    assert not wrong


def _folder_catches_it(folder: Path) -> bool:
    return any(
        isinstance(name, ast.Name) and name.id == "ValueError"
        for path in folder.glob("*.py")
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.ExceptHandler) and node.type is not None
        for name in ast.walk(node.type)
    )


def _raised(path: Path) -> list[tuple[str, int]]:
    raised = []
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.Raise) and node.exc is not None:
            target = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if isinstance(target, ast.Name):
                raised.append((target.id, node.lineno))
    return raised


def test_what_needs_a_traceback() -> None:
    """An error of ours and one of the system say all in their words; any other is a mistake somewhere."""
    foreseen = [errors.Closed("it was closed"), errors.Broken("it broke"), OSError(28, "No space left on device")]
    assert [errors.is_unforeseen(each) for each in foreseen] == [False] * 3
    assert [errors.is_unforeseen(each) for each in (KeyError("a"), MemoryError(), ValueError("b"))] == [True] * 3
