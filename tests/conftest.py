"""What holds for every test: no silent skips in CI, no thread left behind, hypothesis profiles, a leak fixture."""

import os
import re
import threading
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests import forked
from viewcache.testing.leaks import nothing_left, settle

# Selected by --hypothesis-profile: `short` is the default (pyproject.toml), `long` is `make test-long`.
settings.register_profile("short", max_examples=50, deadline=None, derandomize=True, database=None, print_blob=True)
settings.register_profile(
    "long", max_examples=2000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)

ALLOWED_SKIPS = (
    (r"\bGPU\b", "CI has no accelerator"),
    (r"VIEWCACHE_TEST_VIDEOS", "the real clips lie beside the repository, not in it; encoded clips cover each family"),
)
"""(pattern of the reason, why CI may skip it). Any other skip fails a run with CI=true."""

SKIPPED = pytest.StashKey[list[tuple[str, str]]]()


def pytest_configure(config: pytest.Config) -> None:
    """Start the list of what was skipped."""
    config.stash[SKIPPED] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note skips of tests and fixtures; an expected failure is a statement about the code, not a skip."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        _note_skip(item.config, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Note modules that skip themselves at import."""
    report = yield
    if report.skipped:
        _note_skip(collector.config, report)
    return report


def _note_skip(config: pytest.Config, report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    config.stash[SKIPPED].append((report.nodeid, reason.removeprefix("Skipped: ")))


def forbidden_skips(skipped: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The (test, reason) pairs whose reason is on no line of ALLOWED_SKIPS."""
    return [(test, reason) for test, reason in skipped if not any(re.search(p, reason) for p, _ in ALLOWED_SKIPS)]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """In CI a skip that nobody allowed is a failure."""
    if os.environ.get("CI") == "true" and exitstatus == 0 and forbidden_skips(session.config.stash[SKIPPED]):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the tests behind such a failure."""
    forbidden = forbidden_skips(config.stash[SKIPPED])
    if os.environ.get("CI") == "true" and forbidden:
        terminalreporter.section("skipped in CI without being on ALLOWED_SKIPS (tests/conftest.py)", red=True)
        for test, reason in forbidden:
            terminalreporter.line(f"{test}: {reason}")


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    """A test that leaves one of viewcache's threads running fails; all of ours are named ``viewcache-…``."""
    before = set(threading.enumerate())
    yield
    left = settle(lambda: [t.name for t in threading.enumerate() if t not in before and t.name.startswith("viewcache")])
    assert not left, f"threads left running: {left}; close what started them"


@pytest.fixture(autouse=True)
def usual_scheduling() -> Iterator[None]:
    """A test that leaves the process with another scheduling policy fails: all that later tests start would have it."""
    if not hasattr(os, "sched_getscheduler"):  # macOS
        yield
        return
    before = os.sched_getscheduler(0)
    yield
    after = os.sched_getscheduler(0)
    if after != before:
        os.sched_setscheduler(0, before, os.sched_param(0))
        pytest.fail(f"scheduling policy {before} became {after}")


@pytest.fixture(scope="session", autouse=True)
def _forked() -> Iterator[None]:
    with forked.forked():
        yield


@pytest.fixture(scope="module")
def spawned() -> Iterator[None]:
    """On request: workers and scanners are new programs, as for everybody, and not forks of one that runs."""
    with forked.spawned():
        yield


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """On request: no open file, child process or thread more than before the test."""
    with nothing_left(forked.servers):
        yield
