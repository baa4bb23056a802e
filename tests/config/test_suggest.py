"""The nearest known name: one function decides it for keys, choices, operations, streams, conditions and policies."""

import ast

from tests.house.tree import PACKAGE, room_files, short, syntax
from viewcache.suggest import did_you_mean, suggest


def test_a_near_name_is_proposed_in_its_own_spelling() -> None:
    """Case does not count, and the answer is spelled as the known name is."""
    assert suggest("conditon", ["prob", "condition"]) == "condition"
    assert suggest("tchw", ["TCHW", "THWC"]) == "TCHW"
    assert did_you_mean("CONDITON", ["prob", "condition"]) == "did you mean condition?"


def test_nothing_is_proposed_for_what_is_near_nothing() -> None:
    """Another word, an empty one, a number and a text of a million characters have no near name."""
    for wrong in ("xyz", "", 7, None, "x" * 10**6):
        assert suggest(wrong, ["prob", "condition"]) is None
        assert did_you_mean(wrong, ["prob", "condition"]) == ""


def test_names_of_elsewhere_come_first() -> None:
    """A known foreign name counts more than likeness; underscores and hyphens in it do not count."""
    elsewhere = {"randomflip": "flip"}
    for wrong in ("RandomFlip", "random_flip", "random-flip"):
        assert suggest(wrong, ["random_crop", "flip"], elsewhere) == "flip"


def test_nobody_else_compares_names() -> None:
    """The module difflib is imported in one place."""
    found = [
        short(path)
        for path in (*room_files(), *PACKAGE.glob("*.py"))
        for node in ast.walk(syntax(path))
        if (isinstance(node, ast.Import) and any(alias.name == "difflib" for alias in node.names))
        or (isinstance(node, ast.ImportFrom) and node.module == "difflib")
    ]
    assert [name for name in found if not name.endswith("suggest.py")] == []
