"""What holds for every test: no silent skips in CI, no thread left behind, hypothesis profiles, a leak fixture.

The tests may run in several processes at once (pytest-xdist, as `make test` does): each process has servers, ports and
temporary folders of its own, and the one that gathers their reports judges the skips.
"""

import gc
import logging
import os
import shutil
import signal
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings

from tests import forked, skips, turns
from tests.seeds import SEED, commit_number, commit_seed
from tests.servers.seaweed import bucket, buckets, seaweed
from viewcache.catalog import creating
from viewcache.errors import is_unforeseen
from viewcache.testing.leaks import nothing_left, settle

# A server is one for all folders of tests: where each imports these three, each starts a server of its own.
__all__ = ["bucket", "buckets", "seaweed"]

# Selected by --hypothesis-profile: `short` is the default (pyproject.toml), `long` is `make test-long`.
settings.register_profile("short", max_examples=50, deadline=None, derandomize=True, database=None, print_blob=True)
settings.register_profile(
    "long", max_examples=2000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)


os.environ.setdefault("VIEWCACHE_SERVICE", "off")
"""Most tests look inside the owner; those in tests/service take a service as users do."""
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
"""Where it is set, as in many containers, each process that a test starts would compile all modules anew."""
os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
"""Albumentations would ask the network for a newer release of itself."""


def pytest_configure(config: pytest.Config) -> None:
    """In CI no test is skipped without being on a list; Ctrl-C is what it is in a terminal."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell that runs pytest in the background ignores it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    skips.watch(config)


def pytest_report_header() -> str:
    """The seed that differs between commits, so that a failure can be repeated."""
    return f"state machine: {SEED}={commit_seed()}; turns of costly tests: commit {commit_number()}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs the S3 server, which the fast lane leaves out, and what is not on its turn."""
    turns.let_take_turns(config, items)
    for item in items:
        if "seaweed" in getattr(item, "fixturenames", ()):
            item.add_marker("s3")


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    """A test that leaves one of viewcache's threads running fails; all of ours are named ``viewcache-…``."""
    before = set(threading.enumerate())
    yield
    left = settle(lambda: [t.name for t in threading.enumerate() if t not in before and t.name.startswith("viewcache")])
    assert not left, f"threads left running: {left}; close what started them"


class Unseen(logging.Handler):
    """Remembers errors that a thread of ours has logged, and that no user is to see."""

    def __init__(self) -> None:
        """None yet."""
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and is_unforeseen(error):
            self.found.append("".join([record.getMessage(), "\n", *traceback.format_exception(error)]))


@pytest.fixture(autouse=True)
def nothing_fails_unseen(request: pytest.FixtureRequest) -> Iterator[None]:
    """A thread that meets a mistake of ours, or a warning, logs it and goes on: that fails the test, too.

    Errors of the error tree, and of the system, are what users may see; a test that provokes another one is marked
    ``logs_a_traceback``.
    """
    unseen = Unseen()
    logging.getLogger("viewcache").addHandler(unseen)
    try:
        yield
    finally:
        logging.getLogger("viewcache").removeHandler(unseen)
    if request.node.get_closest_marker("logs_a_traceback") is None:
        assert not unseen.found, "\n".join(["logged, and nobody saw it:", *unseen.found])


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


@pytest.fixture(scope="session", autouse=True)
def _created_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A new DuckDB catalog is a copy of one that was made before: 40 ms of CPU, in most tests."""
    template = tmp_path_factory.mktemp("created") / "catalog.duckdb"
    creating.create_database(template)

    def create_database(path: Path) -> None:
        shutil.copyfile(template, path)

    with patch.object(creating, "create_database", create_database):
        yield


@pytest.fixture(scope="module", autouse=True)
def _long_lived_objects_stay() -> None:
    """What is alive between two modules of tests lives to the end: no collection need look at it again.

    A process of tests comes to hold a million objects; looking at all of them takes most of a second, and tests that
    look for leaks do so several times.
    """
    gc.collect()
    gc.freeze()


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
