"""A test that is skipped in CI is a test that nobody runs: such a run fails, unless the reason is on a list."""

import os
import re

import pytest

__all__ = ["ALLOWED_SKIPS", "watch"]

ALLOWED_SKIPS = (
    (r"\bGPU\b", "CI has no accelerator"),
    (r"no (limit of )?block device", "a container may have no disk of its own, or may not limit it"),
    (r"VIEWCACHE_TEST_VIDEOS", "the real clips lie beside the repository, not in it; encoded clips cover each family"),
)
"""(pattern of the reason, why CI may skip it). Any other skip fails a run with CI=true."""


def watch(config: pytest.Config) -> None:
    """Look for skips in this run; where several processes share it, in the one that gathers their reports."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Skips())


class _Skips:
    """Skipped tests, fixtures and modules of a run; an expected failure is a statement about the code, not a skip."""

    def __init__(self) -> None:
        self._found: list[tuple[str, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test, or a fixture of it."""
        if report.skipped and not hasattr(report, "wasxfail"):
            self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a module that skips itself at import."""
        if report.skipped:
            self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple | list) else report.longrepr)
        self._found.append((report.nodeid, reason.removeprefix("Skipped: ")))

    def _forbidden(self) -> list[tuple[str, str]]:
        """The (test, reason) pairs whose reason is on no line of ALLOWED_SKIPS, in CI."""
        if os.environ.get("CI") != "true":
            return []
        return [each for each in self._found if not any(re.search(pattern, each[1]) for pattern, _ in ALLOWED_SKIPS)]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """In CI a skip that nobody allowed is a failure."""
        if exitstatus == 0 and self._forbidden():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the tests behind such a failure."""
        if forbidden := self._forbidden():
            terminalreporter.section("skipped in CI without being on ALLOWED_SKIPS (tests/skips.py)", red=True)
            for test, reason in forbidden:
                terminalreporter.line(f"{test}: {reason}")
