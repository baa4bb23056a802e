"""Costly tests take turns: of their cases a part runs with each commit, and all of them do within four commits.

All cases together take half an hour on two cores. `costs.txt` names the costly tests. Of one with several cases every
fourth runs, or one of two or three; one with a single case runs with every third commit. Which they are follows from
the commit's number. Laws run always, with all of their cases. Who names tests, files or folders, or what failed last,
or sets `EVERY`, gets all cases, and so does the nightly lane.

`VIEWCACHE_TEST_EVERY=1 make test ARGS='-p tests.costs --write-costs'` writes `costs.txt` anew; without the variable it
adds what is not there yet.
"""

import os
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.seeds import commit_number

__all__ = ["COSTS", "EVERY", "costs", "let_take_turns", "name_of", "waiting"]

COSTS = Path(__file__).with_name("costs.txt")
"""A line for each costly test: CPU seconds of all its cases with all their processes, and its name."""
EVERY = "VIEWCACHE_TEST_EVERY"
"""Environment variable: if it is set, all cases run."""
MOST_TURNS, TURNS_OF_ONE = 4, 3
ALWAYS = ("tests/laws/", "tests/faults/test_state_machine.py")
"""Laws hold on every backend with each commit; the other tries something else with each anyway."""


def costs() -> dict[str, float]:
    """CPU seconds by the name of a test, without its parameters."""
    lines = (line.split(maxsplit=1) for line in COSTS.read_text(encoding="utf-8").splitlines())
    return {name: float(seconds) for seconds, name in lines}


def name_of(case: str) -> str:
    """The name of a test, without the parameters of a case."""
    return case.partition("[")[0]


def waiting(cases: Iterable[str], costly: Mapping[str, float], commit: int) -> set[str]:
    """The cases, by node id, whose turn it is not."""
    by_test: defaultdict[str, list[str]] = defaultdict(list)
    for case in cases:
        by_test[name_of(case)].append(case)
    found = set[str]()
    for name, mine in by_test.items():
        if name in costly and not name.startswith(ALWAYS):
            turns, first = (min(MOST_TURNS, len(mine)), 0) if mine[1:] else (TURNS_OF_ONE, zlib.crc32(name.encode()))
            found.update(case for number, case in enumerate(mine, first) if (number + commit) % turns)
    return found


def let_take_turns(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Leave to the nightly lane what is not on its turn."""
    some = config.option.keyword or config.getoption("lf", False) or config.args != config.getini("testpaths")
    if some or os.environ.get(EVERY):
        return
    short = {item.nodeid: item for item in items if item.get_closest_marker("long") is None}
    for case in waiting(short, costs(), commit_number()):
        short[case].add_marker("long")
