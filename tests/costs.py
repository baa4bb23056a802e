"""Which tests cost most, in CPU seconds with all their processes: `make test ARGS='-p tests.costs'`.

On a machine that does something else too, seconds of the wall say little. What a test pays for fixtures that others use
after it is counted as its own.
"""

from collections import defaultdict
from collections.abc import Generator

import pytest

from benchmarks.harness import cpu_seconds

MOST = 40
"""Tests, and files, that are listed."""
_COST = "cpu_s"


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
    terminalreporter.section(f"CPU seconds: {sum(tests.values()):.0f}")
    for costs in (files, tests):
        for name in sorted(costs, key=costs.__getitem__, reverse=True)[:MOST]:
            terminalreporter.line(f"{costs[name]:7.1f} {name}")


_STARTED = pytest.StashKey[float]()
