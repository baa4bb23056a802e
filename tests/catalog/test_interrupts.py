"""Ctrl-C while DuckDB works: it is neither lost nor turned into another error, and the catalog goes on."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from viewcache.catalog.uninterrupted import uninterrupted

QUERY = """
import signal, sys

class NoPandas:
    is_armed, sent = False, 0
    def find_spec(name, path, target=None):
        if name == "pandas":
            if NoPandas.is_armed:
                NoPandas.sent += 1
                signal.raise_signal(signal.SIGINT)
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NoPandas)
from viewcache.catalog import Catalog
with Catalog.open(sys.argv[1]) as catalog:
    NoPandas.is_armed = True
    try:
        catalog.setting("clean_end")
    except KeyboardInterrupt:
        print("interrupted", NoPandas.sent > 0)
    NoPandas.is_armed = False
    catalog.setting("clean_end")
"""
"""A process without pandas, in which Ctrl-C comes while DuckDB looks for it."""


def test_ctrl_c_in_a_query_is_raised(duckdb_template: Path) -> None:
    """DuckDB looks for pandas at each statement with parameters: what it would swallow there comes out of the query
    that it hit, as KeyboardInterrupt, and the next one works.
    """
    command = [sys.executable, "-c", QUERY, str(duckdb_template)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout.split(), done.returncode) == (["interrupted", "True"], 0), done.stderr


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
