"""The source tree as the guard tests see it: files, their syntax, and which module imports which."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("catalog", "store", "materializer", "api", "migrations")
PACKAGE = ROOT / "src" / "viewcache"


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement, wherever in the module it stands."""

    module: str
    """Absolute dotted name; for ``from a import b`` it is ``a.b`` when that is a module of ours, else ``a``."""
    line: int
    lazy: bool
    """Inside a function, or only for type checkers: costs nothing at import."""


def room_files() -> list[Path]:
    """Every Python file of the five rooms."""
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def own_files() -> list[Path]:
    """The rooms and the few files of the package's root."""
    return [*sorted(PACKAGE.glob("*.py")), *sorted(PACKAGE.glob("testing/*.py")), *room_files()]


def short(path: Path) -> str:
    """The path as people write it."""
    return path.relative_to(ROOT).as_posix()


def module_name(path: Path) -> str:
    """``catalog/door.py`` is ``viewcache.catalog.door``."""
    relative = path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else ROOT)
    parts = [part for part in relative.with_suffix("").parts if part != "__init__"]
    return ".".join(["viewcache", *parts])


@cache
def syntax(path: Path) -> ast.Module:
    """The parsed file."""
    return ast.parse(path.read_text(), str(path))


@cache
def module_names() -> frozenset[str]:
    """All modules of the package."""
    return frozenset(map(module_name, own_files()))


def imports(path: Path) -> Iterator[Import]:
    """Every import of a file, those inside functions and type-checking blocks included."""
    yield from _imports(syntax(path), lazy=False)


def _imports(node: ast.AST, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        inside = lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or _for_types_only(child)
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, lazy) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = child.module or ""
            for alias in child.names:
                full = f"{base}.{alias.name}"
                yield Import(full if full in module_names() else base, child.lineno, lazy)
        else:
            yield from _imports(child, inside)


def _for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
