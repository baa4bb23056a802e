"""Ctrl-C while DuckDB works: it is neither lost nor turned into another error, and the catalog goes on."""

import importlib.abc
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from viewcache.catalog import Catalog
from viewcache.catalog.uninterrupted import uninterrupted


class CtrlCAtImport(importlib.abc.MetaPathFinder):
    """Sends this process SIGINT when a module is looked for, as often as it is."""

    def __init__(self) -> None:
        """Wait for no module yet."""
        self.module, self.sent = "", 0

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        """Called for each module that is not loaded yet."""
        if name == self.module:
            self.sent += 1
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_in_a_query_is_raised(duckdb_template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB looks for pandas at each statement with parameters: what it would swallow there comes out of the query
    that it hit, as KeyboardInterrupt, and the next one works.
    """
    finder = CtrlCAtImport()
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    with Catalog.open(duckdb_template) as catalog:
        finder.module = "pandas"
        with pytest.raises(KeyboardInterrupt):
            catalog.setting("clean_end")
        finder.module = ""
        assert finder.sent
        catalog.setting("clean_end")


IMPORT = """
import signal, sys
class CtrlCAtImport:
    def find_spec(name, path, target=None):
        if name == "duckdb.value":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, CtrlCAtImport)
try:
    import viewcache.catalog.duck
except KeyboardInterrupt:
    print("duckdb" in sys.modules)
import viewcache.catalog.duck
"""
"""A process in which Ctrl-C comes in the midst of importing DuckDB."""


def test_ctrl_c_while_duckdb_is_imported_waits_for_its_end() -> None:
    """DuckDB's own code drops what is raised while it is imported, or crashes; here it is imported to the end first."""
    done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_a_function_is_called_once_and_its_result_or_error_comes_back() -> None:
    """In the main thread another thread runs it; in any other thread that one does."""
    ran: list[str] = []

    def note() -> int:
        ran.append(threading.current_thread().name)
        return len(ran)

    assert uninterrupted(note) == 1
    assert ran[0] != threading.main_thread().name
    other = threading.Thread(target=lambda: uninterrupted(note), name="other")
    other.start()
    other.join()
    assert ran[1:] == ["other"]
    with pytest.raises(ZeroDivisionError):
        uninterrupted(lambda: 1 // 0)


def test_an_interrupt_stops_the_function_and_is_raised_after_it() -> None:
    """What waits is told to stop; the interrupt is raised when it has, whatever it came to."""
    stopped, ended = threading.Event(), threading.Event()

    def wait() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert stopped.wait(60)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        uninterrupted(wait, stop=stopped.set)
    assert ended.is_set()
