"""Servers on loopback that speak like Azure Blob Storage (Microsoft's Azurite, from npm) and Google Cloud Storage.

Both are emulators, by the service's maker and by others; what only the real services do is not seen here.
"""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec

from tests.servers.seaweed import free_ports

__all__ = ["Cloud", "azure", "google", "missing_for_azure", "missing_for_google"]

_START_S = 60.0
_NODE = Path(os.environ.get("VIEWCACHE_TEST_NODE", Path.home() / ".cache/viewcache-tests"), "node_modules/.bin")
_ACCOUNT = "devstoreaccount1"
# Azurite's own, the same everywhere, of which the maker says that it is public.
_PUBLIC_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True, slots=True)
class Cloud:
    """A running server with a bucket."""

    url: str
    """Of the bucket."""
    environment: Mapping[str, str]
    """What a process needs to reach it."""

    def filesystem(self) -> Any:
        """A plain client, past viewcache; the environment must be set."""
        return fsspec.filesystem(self.url.partition("://")[0], skip_instance_cache=True, use_listings_cache=False)


def missing_for_azure() -> str:
    """What is not installed; empty if all is there."""
    if importlib.util.find_spec("adlfs") is None:
        return "adlfs is not installed: the extra azure"
    if _azurite() is None:
        return "no Azurite: npm install --prefix ~/.cache/viewcache-tests azurite"
    return ""


def missing_for_google() -> str:
    """What is not installed; empty if all is there."""
    missing = [name for name in ("gcsfs", "gcp_storage_emulator") if importlib.util.find_spec(name) is None]
    return f"{' and '.join(missing)} not installed: the extra gcs, the group dev" if missing else ""


def _azurite() -> str | None:
    return shutil.which("azurite-blob", path=f"{_NODE}{os.pathsep}{os.environ.get('PATH', '')}")


@contextmanager
def azure(folder: Path) -> Iterator[Cloud]:
    """Azurite with a container, in memory."""
    (port,), program = free_ports(1), _azurite()
    assert program is not None
    where = f"BlobEndpoint=http://127.0.0.1:{port}/{_ACCOUNT}"
    connection = f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_PUBLIC_KEY};{where};"
    command = [program, "--inMemoryPersistence", f"--blobPort={port}", "--silent", "--skipApiVersionCheck"]
    with _running([*command, "--disableTelemetry"], folder, port):
        yield Cloud("az://bucket", {"AZURE_STORAGE_CONNECTION_STRING": connection})


@contextmanager
def google(folder: Path) -> Iterator[Cloud]:
    """An emulator of Google's storage with a bucket, in memory."""
    (port,) = free_ports(1)
    environment = {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}", "GOOGLE_CLOUD_PROJECT": "tests"}
    with _running([sys.executable, str(Path(__file__).with_name("google.py")), str(port)], folder, port):
        yield Cloud("gs://bucket", environment)


@contextmanager
def _running(command: list[str], folder: Path, port: int) -> Iterator[None]:
    """Run a server until the block ends; it is there when its port answers."""
    log = folder / "server.log"
    with log.open("wb") as words, subprocess.Popen(command, stdout=words, stderr=words, cwd=folder) as process:
        try:
            until = time.monotonic() + _START_S
            while not _answers(port):
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"{command[0]} did not start; its last words: {log.read_text()[-2000:]}")
                time.sleep(0.05)
            yield
        finally:
            process.kill()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
