"""Costly tests take turns, and none is left out for ever."""

import ast
from itertools import groupby
from operator import itemgetter

from hypothesis import given
from hypothesis import strategies as st

from tests.house.tree import ROOT
from tests.turns import ALWAYS, MOST_TURNS, costs, name_of, waiting

NAMES = ["tests/a.py::one", "tests/a.py::two", "tests/laws/b.py::law", f"{ALWAYS[1]}::any", "tests/c.py::cheap"]
COSTLY = dict.fromkeys(NAMES[:-1], 2.0)


@given(cases=st.lists(st.integers(1, 9), min_size=len(NAMES), max_size=len(NAMES)), first=st.integers(0, 2**32))
def test_each_case_has_its_turn(cases: list[int], first: int) -> None:
    """Of several cases some run with each commit, of laws and cheap tests all; within four commits all of each."""
    each = [f"{name}[{case}]" for name, count in zip(NAMES, cases, strict=True) for case in range(count)]
    turns = [set(each) - waiting(each, COSTLY, first + number) for number in range(MOST_TURNS)]
    assert set().union(*turns) == set(each)
    for ran in turns:
        by_test = {name: sum(name_of(case) == name for case in ran) for name in NAMES}
        assert [by_test[name] for name in NAMES[2:]] == cases[2:]
        for name, count in zip(NAMES[:2], cases, strict=False):
            least, most = count // min(count, MOST_TURNS), -(-count // min(count, MOST_TURNS))
            assert (least if count > 1 else 0) <= by_test[name] <= most


def test_costly_tests_are_there() -> None:
    """A name that no test has any more would let the one that it became run always. A class may inherit its tests."""
    for path, names in groupby((name.split("::") for name in costs()), key=itemgetter(0)):
        body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
        there = {each.name for each in body if isinstance(each, ast.ClassDef | ast.FunctionDef)}
        assert not {name for _, name, *_ in names} - there, path
