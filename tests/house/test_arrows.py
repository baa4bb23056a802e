"""Who may import whom (ARCHITECTURE.md, "The arrows")."""

import ast

import pytest

from tests.house.tree import PACKAGE, ROOMS, ROOT, imports, module_name, module_names, room_files, short, syntax

ALLOWED = {
    "catalog": {"migrations"},
    "store": set[str](),
    "materializer": {"catalog", "store"},
    "api": {"materializer", "catalog", "store", "migrations"},
    "migrations": set[str](),
}
"""room → rooms it may import beside itself. The scripts of migrations know nobody: catalog gives them its schema."""

_BELOW_READING = {
    "tasks",
    "retention",
    "scheduling",
    "telemetry",
    "storage",
    "workers",
    "planning",
    "dataset",
    "ops",
    "media",
}
FOLDERS = {
    "materializer": {
        "media": set[str](),
        "ops": {"media"},
        "op_workers": {"ops"},
        "dataset": {"media"},
        "planning": {"dataset", "ops", "media"},
        "workers": {"planning", "op_workers", "ops", "media"},
        "storage": {"planning"},
        "telemetry": {"storage", "workers", "media"},
        "scheduling": {"telemetry", "storage", "workers", "planning"},
        "retention": {"scheduling", "telemetry", "workers", "planning", "ops", "media"},
        "tasks": {"retention", "scheduling", "storage", "telemetry", "planning", "dataset", "media"},
        "reading": {
            "tasks",
            "retention",
            "scheduling",
            "telemetry",
            "storage",
            "workers",
            "planning",
            "dataset",
            "ops",
            "media",
        },
        "profiling": {"tasks", "retention", "workers", "planning", "media"},
        "simulation": {"retention", "scheduling", "workers", "planning", "media"},
    },
    "api": {
        "config": set[str](),
        "queries": set[str](),
        "training": set[str](),
        "pictures": set[str](),
        "session": {"config", "training", "pictures"},
        "service": {"config", "training", "session", "pictures"},
        "views": {"service", "session", "config"},
        "mount": {"views", "service", "config"},
        "metrics": set[str](),
        "preview": {"config", "queries"},
        "profile": {"config", "preview"},
        "upkeep": {"config", "queries"},
        "audit": {"upkeep", "config"},
        "init": set[str](),
        "demo": {"service", "session", "queries"},
        "page": {"config", "queries", "pictures", "service"},
        "cli": {
            "config",
            "queries",
            "training",
            "pictures",
            "session",
            "service",
            "views",
            "mount",
            "metrics",
            "preview",
            "upkeep",
            "audit",
            "init",
            "demo",
            "page",
            "profile",
        },
    },
}
"""room → folder → folders of the same room that it may import. Files directly in a room may be imported by all."""


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


def _folder(module: str, room: str) -> str:
    """The folder of a room that a module lies in; empty for files directly in the room and for other rooms."""
    parts = module.split(".")
    return parts[2] if parts[:2] == ["viewcache", room] and len(parts) > 2 and parts[2] in FOLDERS[room] else ""


@pytest.mark.parametrize("room", FOLDERS)
def test_arrows_between_folders(room: str) -> None:
    """Inside a room a folder imports only what its row allows, for type checkers too; files beside folders none."""
    wrong = []
    for path in room_files():
        name = module_name(path)
        if _room(name) != room:
            continue
        home = _folder(name, room)
        for found in imports(path):
            target = _folder(found.module, room)
            if target and target != home and target not in FOLDERS[room].get(home, ()):
                wrong.append(f"{short(path)}:{found.line}: {home or 'a file for all'} must not know {target}")
    assert not wrong


def test_plans_know_sources_by_their_port() -> None:
    """Who plans, weighs, schedules and simulates goes by `MediaIndex`: videos are not the only source there may be."""
    folders = ("planning", "retention", "scheduling", "simulation", "tasks")
    wrong = [
        f"{short(path)}:{found.line}: names {found.module}"
        for path in room_files()
        if _folder(module_name(path), "materializer") in folders
        for found in imports(path)
        if found.module == "viewcache.materializer.media.index"
    ]
    assert not wrong


@pytest.mark.parametrize("room", FOLDERS)
def test_every_folder_has_its_row(room: str) -> None:
    """The table names the folders that there are, and each row only what stands above it."""
    there = {path.parent.name for path in (ROOT / room).glob("*/__init__.py")}
    assert there == set(FOLDERS[room])
    above: set[str] = set()
    for folder, allowed in FOLDERS[room].items():
        assert allowed <= above, folder
        above.add(folder)


def test_no_circle_of_modules() -> None:
    """No module knows another that knows it, over whatever way, imports inside functions and for types included."""
    names = module_names()
    graph = {
        module_name(path): {found.module for found in imports(path) if found.module in names} - {module_name(path)}
        for path in room_files()
        if path.name != "__init__.py"
    }
    waiting = {name: {target for target in targets if target in graph} for name, targets in graph.items()}
    while free := [name for name, targets in waiting.items() if not targets & waiting.keys()]:
        for name in free:
            del waiting[name]
    assert not waiting


def test_rooms_do_not_go_through_the_front_door() -> None:
    """`from viewcache import open` inside a room would be an arrow to api that the map does not show."""
    wrong = [
        f"{short(path)}:{node.lineno}"
        for path in room_files()
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.ImportFrom) and node.module == "viewcache"
        if {alias.name for alias in node.names} - {"__version__", "errors", "failpoints", "suggest", *ROOMS}
    ]
    assert not wrong


def test_the_foundation_stands_on_nothing() -> None:
    """Errors and fail points are imported by all rooms, so they import none."""
    for name in ("errors.py", "failpoints.py", "suggest.py"):
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
