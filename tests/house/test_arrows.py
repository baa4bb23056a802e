"""Who may import whom (ARCHITECTURE.md, "The arrows")."""

import ast

from tests.house.tree import PACKAGE, ROOMS, imports, module_name, module_names, room_files, short, syntax

ALLOWED = {
    "catalog": {"migrations"},
    "store": set[str](),
    "materializer": {"catalog", "store"},
    "api": {"materializer", "catalog", "store", "migrations"},
    "migrations": {"catalog"},
}
"""room → rooms it may import beside itself. catalog → migrations is the one call that brings a database up to date."""


def _room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if parts[0] == "viewcache" and len(parts) > 1 and parts[1] in ROOMS else ""


def test_arrows_between_rooms() -> None:
    """Only the arrows of the map exist, imports inside functions and for type checkers included."""
    wrong = []
    for path in room_files():
        home = _room(module_name(path))
        for found in imports(path):
            target = _room(found.module)
            if target and target != home and target not in ALLOWED[home]:
                wrong.append(f"{short(path)}:{found.line}: {home} must not know {target} ({found.module})")
    assert not wrong


def test_no_arrow_hides_in_a_string() -> None:
    """A module named in a string (import_module, a child's -m) is an arrow too."""
    wrong = []
    for path in room_files():
        home = _room(module_name(path))
        for node in ast.walk(syntax(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                target = _room(node.value) if node.value in module_names() else ""
                if target and target != home and target not in ALLOWED[home]:
                    wrong.append(f"{short(path)}:{node.lineno}: {home} names {node.value}")
    assert not wrong


def test_rooms_do_not_go_through_the_front_door() -> None:
    """`from viewcache import open` inside a room would be an arrow to api that the map does not show."""
    wrong = [
        f"{short(path)}:{node.lineno}"
        for path in room_files()
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.ImportFrom) and node.module == "viewcache"
        if {alias.name for alias in node.names} - {"__version__", "errors", "failpoints", *ROOMS}
    ]
    assert not wrong


def test_imports_are_absolute() -> None:
    """A file says where a name comes from without counting dots."""
    assert not [f"{short(path)}:{found.line}" for path in room_files() for found in imports(path) if found.relative]


def test_the_foundation_stands_on_nothing() -> None:
    """Errors and fail points are imported by all rooms, so they import none."""
    for name in ("errors.py", "failpoints.py"):
        assert not [found.module for found in imports(PACKAGE / name) if found.module.startswith("viewcache.")]


def test_no_import_cycles() -> None:
    """Modules load in some order without a half-made module in between."""
    graph = {
        module_name(path): {
            found.module for found in imports(path) if found.module in module_names() and not found.lazy
        }
        for path in room_files()
    }
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " → ".join((*trail[trail.index(name) :], name))
        if name not in done:
            for target in graph.get(name, ()):
                if target != name:
                    visit(target, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())
