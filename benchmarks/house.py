"""Counts of the source tree that tell how easily a reader finds a way through it, beside those of another revision.

Run ``python -m benchmarks.house --against REV``; nothing is imported or run of the trees, their files are parsed. The
trade-off: a name has no type here, so that ``thing._name`` counts as a private read where another module of the same
tree defines ``_name`` and the reading one does not.
"""

import ast
import subprocess
import tempfile
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.harness import ROOT, Result, Table, main

__all__ = ["Tree", "bench", "counts"]

ROOMS = ("catalog", "store", "materializer", "api", "migrations")
MOST_LINES = 400  # of a module
MOST_METHODS = 12  # public ones of a class
MOST_ATTRIBUTES = 10  # of a class that is no value
MOST_STATEMENT_LINES = 60  # of a function, its docstring included
VALUES = {"Enum", "Flag", "IntEnum", "IntFlag", "NamedTuple", "StrEnum", "TypedDict"}

Graph = Mapping[str, set[str]]


@dataclass(frozen=True, slots=True)
class Module:
    """A parsed file; its nodes are listed once, as every count goes through them."""

    name: str
    """As it is imported, without ``viewcache.``."""
    folder: str
    """From the root of the tree."""
    lines: int
    nodes: tuple[ast.AST, ...]


class Tree:
    """The Python files of a checkout, by room and tests."""

    def __init__(self, root: Path) -> None:
        self.product = [each for room in ROOMS for each in _modules(root, root / room)]
        self.product += _modules(root / "src" / "viewcache", root / "src" / "viewcache", deep=False)
        self.tests = _modules(root, root / "tests")
        statements = (path for room in ROOMS for path in (root / room).rglob("*.sql"))
        self.statement_lines = sum(len(path.read_text().splitlines()) for path in statements)

    @cached_property
    def arrows(self) -> Graph:
        """Module of a room → modules of rooms that it imports, inside functions and for type checkers included."""
        rooms = {each.name for each in self.product if each.name.partition(".")[0] in ROOMS}
        found = {name: set[str]() for name in rooms}
        for each in self.product:
            if each.name in rooms:
                found[each.name] = set(_imported(each, rooms)) - {each.name}
        return found

    def private_reads(self, modules: Iterable[Module]) -> list[str]:
        """Where modules take a name that another one of the product keeps to itself: as attribute, import or text."""
        private = set().union(*map(_defined, self.product))
        found = []
        for each in modules:
            others = private - _defined(each)
            found += [
                f"{each.name}:{getattr(node, 'lineno', 0)}: {name}"
                for node in each.nodes
                for name in _taken(node)
                if name in others
            ]
        return found

    @cached_property
    def folder_arrows(self) -> Graph:
        """Folder → other folders that its modules import."""
        folders = {each.name: each.folder for each in self.product}
        found = {folders[name]: set[str]() for name in self.arrows}
        for name, targets in self.arrows.items():
            found[folders[name]] |= {folders[target] for target in targets} - {folders[name]}
        return found


def counts(tree: Tree) -> dict[str, int]:
    """Name of a count → the count."""
    files = Counter(each.folder for each in tree.product)
    folders, modules = _circles(tree.folder_arrows), _circles(tree.arrows)
    nodes = [node for each in tree.product for node in each.nodes]
    with_life = [node for node in nodes if isinstance(node, ast.ClassDef) and not _is_value(node)]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {
        "folders in the five rooms": len(tree.folder_arrows),
        "most files in one folder of materializer/": _most(files, "materializer"),
        "most files in one folder of api/": _most(files, "api"),
        "arrows between folders": sum(map(len, tree.folder_arrows.values())),
        "circles of folders": len(folders),
        "floors of folders": _floors(tree.folder_arrows),
        "arrows between modules": sum(map(len, tree.arrows.values())),
        "circles of modules": len(modules),
        "modules in circles": sum(map(len, modules)),
        "floors of modules": _floors(tree.arrows),
        f"modules over {MOST_LINES} lines": sum(each.lines > MOST_LINES for each in tree.product),
        f"classes with more than {MOST_METHODS} public methods": sum(
            len(_public_methods(node)) > MOST_METHODS for node in with_life
        ),
        f"classes with more than {MOST_ATTRIBUTES} attributes": sum(
            len(_attributes(node)) > MOST_ATTRIBUTES for node in with_life
        ),
        f"functions over {MOST_STATEMENT_LINES} lines": sum(
            (node.end_lineno or 0) - node.lineno + 1 > MOST_STATEMENT_LINES for node in functions
        ),
        "private reads across modules, in the product": len(tree.private_reads(tree.product)),
        "private reads of the product, in tests": len(tree.private_reads(tree.tests)),
        "lines of Python in the product": sum(each.lines for each in tree.product),
        "lines of SQL in the product": tree.statement_lines,
        "lines of tests": sum(each.lines for each in tree.tests),
    }


def bench(args: Namespace) -> Iterator[Result]:
    """One table: of this tree, and of the revision that it is compared with."""
    columns = {"this tree": counts(Tree(ROOT))}
    if args.against:
        with tempfile.TemporaryDirectory(prefix="viewcache-house-") as folder:
            _check_out(args.against, Path(folder))
            columns = {args.against: counts(Tree(Path(folder))), **columns}
    names = columns["this tree"]
    yield Table("House", tuple(columns), {name: tuple(column[name] for column in columns.values()) for name in names})


def _check_out(revision: str, folder: Path) -> None:
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", revision]
    packed = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed, check=True)


def _modules(root: Path, folder: Path, *, deep: bool = True) -> list[Module]:
    found = []
    for path in sorted(folder.rglob("*.py") if deep else folder.glob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        text = path.read_text()
        place = path.parent.relative_to(root).as_posix()
        found.append(Module(name, place, len(text.splitlines()), tuple(ast.walk(ast.parse(text, str(path))))))
    return found


# Imports --------------------------------------------------------------------------------------------------------------


def _imported(module: Module, known: set[str]) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            bare = name.removeprefix("viewcache.")
            within = bare.rpartition(".")[0]  # of what is imported from it
            if bare != name and not known.isdisjoint({bare, within}):
                yield bare if bare in known else within


def _circles(graph: Graph) -> list[list[str]]:
    """Groups of nodes that all reach one another, by Tarjan's algorithm."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    trail: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        trail.append(name)
        for target in sorted(graph[name]):
            if target not in order:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in trail:
                low[name] = min(low[name], order[target])
        if low[name] == order[name]:
            at = trail.index(name)
            found.append(trail[at:])
            del trail[at:]

    for name in sorted(graph):
        if name not in order:
            visit(name)
    return [group for group in found if len(group) > 1]


def _floors(graph: Graph) -> int:
    """Nodes on the longest way down, where a circle is one floor."""
    group = {name: min(circle) for circle in _circles(graph) for name in circle}
    merged: dict[str, set[str]] = {}
    for name, targets in graph.items():
        own = group.get(name, name)
        merged.setdefault(own, set()).update(group.get(target, target) for target in targets)
        merged[own].discard(own)
    depth: dict[str, int] = {}

    def of(name: str) -> int:
        if name not in depth:
            depth[name] = 1 + max(map(of, merged[name]), default=0)
        return depth[name]

    return max(map(of, merged), default=0)


def _most(files: Mapping[str, int], room: str) -> int:
    return max((count for folder, count in files.items() if folder.split("/")[0] == room), default=0)


# Classes and names ----------------------------------------------------------------------------------------------------


def _is_value(node: ast.ClassDef) -> bool:
    """An error, an enumeration, a contract, or a frozen dataclass."""
    bases = {ast.unparse(base).rpartition(".")[2].partition("[")[0] for base in node.bases}
    frozen = any(
        isinstance(each, ast.Call) and any(word.arg == "frozen" for word in each.keywords)
        for each in node.decorator_list
    )
    return frozen or bool(bases & {*VALUES, "Protocol"}) or any(base.endswith(("Error", "Exception")) for base in bases)


def _public_methods(node: ast.ClassDef) -> set[str]:
    defined = (each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    return {name for name in defined if not name.startswith("_")}


def _attributes(node: ast.ClassDef) -> set[str]:
    """What its methods set on ``self``, and the fields of a dataclass."""
    fields = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
    found = {each.id for each in fields if isinstance(each, ast.Name)}
    return found | set(_set_on_self(ast.walk(node)))


def _set_on_self(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for each in nodes:
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and _is_own(each.value):
            yield each.attr


def _is_own(node: ast.expr) -> bool:
    """``self``, ``cls`` or ``super()``."""
    if isinstance(node, ast.Call):
        node = node.func
    return isinstance(node, ast.Name) and node.id in {"cls", "self", "super"}


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name != "_"


def _defined(module: Module) -> set[str]:
    """Private names of a module: its functions, classes, variables and attributes."""
    names = set(_set_on_self(module.nodes))
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return set(filter(_is_private, names))


def _taken(node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.Attribute):
        return [] if _is_own(node.value) else [node.attr]
    if isinstance(node, ast.ImportFrom):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
        called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        if called in {"delattr", "getattr", "hasattr", "object", "setattr"}:  # patch.object(thing, "_name")
            return [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return []


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--against", metavar="REV", help="also count the tree of this revision")


if __name__ == "__main__":
    main(__doc__, bench, _arguments)
