"""Which tests cost most, in CPU seconds with all their processes: `make test ARGS='-p tests.costs'`.

With `--write-costs` the costly ones are written down, see `tests.turns`: where costly tests took turns, those that are
new.

On a machine that does something else too, seconds of the wall say little. What a test pays for fixtures that others use
after it is counted as its own.
"""

import os
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence

import pytest

from benchmarks.harness import cpu_seconds
from tests.turns import COSTS, EVERY, costs, name_of

MOST = 40
"""Tests, and files, that are listed."""
LEAST_S, LEAST_OF_CASE_S, MUCH_S = 1.0, 0.25, 5.0
"""A test is costly whose cases take so many CPU seconds together and on average, or together very many."""
_COST = "cpu_s"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Whether to write down what was costly."""
    parser.addoption("--write-costs", action="store_true", help=f"write costly tests into {COSTS.name}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Count from before the first fixture."""
    item.stash[_STARTED] = cpu_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The report carries the seconds, from whichever process it comes."""
    report = yield
    if report.when == "teardown":
        report.user_properties.append((_COST, cpu_seconds() - item.stash[_STARTED]))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Two lists: files, then tests."""
    tests: defaultdict[str, float] = defaultdict(float)
    files: defaultdict[str, float] = defaultdict(float)
    for report in (each for reports in terminalreporter.stats.values() for each in reports):
        for name, cost in report.user_properties if isinstance(report, pytest.TestReport) else ():
            if name == _COST and isinstance(cost, float):
                tests[report.nodeid] += cost
                files[report.nodeid.partition("::")[0]] += cost
    if terminalreporter.config.option.write_costs:
        _write(tests, {} if os.environ.get(EVERY) else costs())
    terminalreporter.section(f"CPU seconds: {sum(tests.values()):.0f}")
    for of in (files, tests):
        for name in sorted(of, key=of.__getitem__, reverse=True)[:MOST]:
            terminalreporter.line(f"{of[name]:7.1f} {name}")


def _write(cases: Mapping[str, float], known: Mapping[str, float]) -> None:
    """Write down costly tests; of those that are known, and took turns, what was written before."""
    by_test: defaultdict[str, list[float]] = defaultdict(list)
    for case, cost in cases.items():
        by_test[name_of(case)].append(cost)
    found = {name: sum(mine) for name, mine in by_test.items() if _is_costly(mine)} | dict(known)
    lines = [f"{found[name]:.1f} {name}\n" for name in sorted(found)]
    COSTS.write_text("".join(lines), encoding="utf-8")


def _is_costly(cases: Sequence[float]) -> bool:
    together = sum(cases)
    return together >= MUCH_S or (together >= LEAST_S and together >= LEAST_OF_CASE_S * len(cases))


_STARTED = pytest.StashKey[float]()
