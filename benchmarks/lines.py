"""Lines of data code of each example, with viewcache and without, counted as in SAND's Table 3.

A line counts where a statement names a data library (`DATA`) or what was made of it, up to the one that hands out a
batch; what is done with the batch is the model's. Blank lines, comments and docstrings do not count; neither does YAML,
which has a column of its own: the papers' repositories have theirs in files, too. The trade-off: names are followed
within one file only, so a module that is data code as a whole is named as such (`WHOLE`).
"""

import ast
import re
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.harness import ROOT, Aim, Figure, Result, Table, main

__all__ = ["COLUMNS", "MOST", "bench", "coming_from", "data_lines", "rows", "without"]

EXAMPLES = ROOT / "examples"
LEFT_OUT = {"train_torch.py", "validate.py"}  # how a training is resumed and a test is scored: no script without does
DATA = {"av", "clips", "fsspec", "numpy", "os", "torch.utils.data", "viewcache"}
"""Modules that data code begins with, beside the built-in `open`; the environment in `os` is none of it."""
WHOLE = EXAMPLES / "without" / "clips.py"
YAML = EXAMPLES / "slowfast.yaml"
COMING_FROM = ROOT / "docs" / "coming-from.md"
COLUMNS = ("own data code", "with viewcache", "its YAML")
MOST = 9
"""Lines of data code that an example may have."""


def bench(args: Namespace) -> Iterator[Result]:
    """The table, and the longest of ours."""
    yield Table("lines of data code", COLUMNS, rows())
    yield Table("the same job with other loaders", COLUMNS, coming_from())
    yield Figure("most lines with viewcache", max(row[1] for row in rows().values()), "lines", Aim(at_most=MOST))


def rows() -> dict[str, tuple[int, int, int]]:
    """Example → lines of data code that it takes without viewcache, with it, and lines of YAML."""
    whole, yaml = len(_code_lines(WHOLE.read_text())), _yaml_lines(YAML.read_text())
    return {
        path.name: (whole + len(data_lines(without(path).read_text())), len(data_lines(path.read_text())), yaml)
        for path in sorted(EXAMPLES.glob("*.py"))
        if path.name not in LEFT_OUT
    }


def coming_from() -> dict[str, tuple[int, int, int]]:
    """Loader → lines of its code in docs/coming-from.md, of ours, of our YAML; without those that call the model."""
    first, *others = re.split(r"^## ", COMING_FROM.read_text(), flags=re.MULTILINE)
    ours, yaml = _in_blocks(first), _yaml_lines(re.findall(r"```yaml\n(.*?)```", first, re.DOTALL)[0])
    return {text.partition("\n")[0]: (_in_blocks(text), ours, yaml) for text in others}


def _in_blocks(text: str) -> int:
    """Lines of the first block of Python in a part of a document, but for the call of the model."""
    code: str = re.findall(r"```python no-run\n(.*?)```", text, re.DOTALL)[0]
    return len(_code_lines(code)) - code.count("train_step(")


def without(example: Path) -> Path:
    """The script that does the same without viewcache: its namesake, else the plain loop."""
    namesake = WHOLE.parent / example.name
    return namesake if namesake.exists() else WHOLE.parent / "train_loop.py"


def data_lines(text: str) -> list[int]:
    """Numbers of the lines of a script that are data code."""
    found = _Found()
    found.follow(ast.parse(text).body)
    return sorted(found.lines & _code_lines(text))


class _Found:
    """The lines of data code so far, and the names that data code has made."""

    def __init__(self) -> None:
        self.lines: set[int] = set()
        self._names = {"open"}
        self._imports: dict[str, set[int]] = {}
        """Name of a data library → the lines that import it; they count when it is used."""

    def follow(self, body: Iterable[ast.stmt]) -> None:
        """Look at some statements in the order of the text."""
        for statement in body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                self._import(statement)
                continue
            bodies = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
            bodies += [handler.body for handler in getattr(statement, "handlers", [])]
            inner = [each for each in bodies if each]
            if used := set().union(*(_named(each) for each in _head(statement))) & self._names:
                end = inner[0][0].lineno - 1 if inner else statement.end_lineno or statement.lineno
                self.lines.update(range(statement.lineno, end + 1), *(self._imports.get(name, ()) for name in used))
                self._names |= _made(statement)
            for each in inner:
                self.follow(each)

    def _import(self, statement: ast.Import | ast.ImportFrom) -> None:
        for each in statement.names:
            module = statement.module if isinstance(statement, ast.ImportFrom) else each.name
            if module in DATA:
                name = each.asname or each.name
                self._names.add(name)
                self._imports[name] = _span(statement)


def _head(statement: ast.stmt) -> list[ast.AST]:
    """What a statement says itself, without the statements in it; a definition says nothing."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return []
    return [each for each in ast.iter_child_nodes(statement) if not isinstance(each, ast.stmt | ast.ExceptHandler)]


def _named(node: ast.AST) -> set[str]:
    """The names in it, without that of `os` where the environment is meant."""
    if isinstance(node, ast.Attribute) and ast.unparse(node) == "os.environ":
        return set()
    own = {node.id} if isinstance(node, ast.Name) else set()
    return own.union(*map(_named, ast.iter_child_nodes(node)))


def _made(statement: ast.stmt) -> set[str]:
    """The names that a statement gives to what it makes; those of a loop are batches."""
    targets: list[ast.AST] = []
    if isinstance(statement, ast.Assign):
        targets = list(statement.targets)
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    elif isinstance(statement, ast.With):
        targets = [each.optional_vars for each in statement.items if each.optional_vars]
    return {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}


def _span(statement: ast.stmt) -> set[int]:
    return set(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))


def _code_lines(text: str) -> set[int]:
    """Numbers of the lines with code: not blank, no comment, not in a docstring."""
    lines = {n for n, line in enumerate(text.splitlines(), 1) if line.strip() and not line.lstrip().startswith("#")}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= _span(node)
    return lines


def _yaml_lines(text: str) -> int:
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in text.splitlines())


if __name__ == "__main__":
    main(__doc__, bench)
