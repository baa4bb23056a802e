"""A real S3 server on loopback: SeaweedFS from PyPI, started once a session, a bucket for each test.

It is `weed mini` with its telemetry off, its ports free ones of this machine and its memory held small.
"""

import os
import secrets
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any  # botocore has no types
from unittest.mock import patch

import pytest

__all__ = [
    "ACCESS_KEY",
    "SECRET_KEY",
    "Seaweed",
    "bucket",
    "buckets",
    "connected",
    "free_ports",
    "make_bucket",
    "seaweed",
    "serve",
]

ACCESS_KEY = "viewcache-tests"
SECRET_KEY = "canary-" + secrets.token_hex(8)
"""New in each run: no file of the tests can hold it by accident, so finding it somewhere means that it leaked."""

_HIGHEST_PORT = 55_000  # gRPC listens 10,000 above each port
_VOLUMES = 10_000
"""Each bucket takes a volume of its own, and by default there are as many as gigabytes are free on the disk."""
_START_S = 30.0
_ATTEMPTS = 3  # another process may take a port between the look and the start


@dataclass(frozen=True, slots=True)
class Seaweed:
    """A running server."""

    host: str
    port: int

    @property
    def endpoint(self) -> str:
        """Its URL for S3 clients."""
        return f"http://{self.host}:{self.port}"

    def environment(self, endpoint: str = "") -> dict[str, str]:
        """What a process needs in its environment to reach it, or to reach it through a proxy at ``endpoint``."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_ENDPOINT_URL_S3": endpoint or self.endpoint,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }


@contextmanager
def serve(folder: Path) -> Iterator[Seaweed]:
    """Run a server that keeps its data below ``folder``; it is gone afterwards."""
    for attempt in range(_ATTEMPTS):
        ports = free_ports(5)
        with tempfile.TemporaryDirectory(prefix="vc-weed-") as short:  # a socket's path has room for 100 characters
            running = _start(folder / str(attempt), ports, Path(short) / "filer.sock")
            try:
                if _answers(running, ports[0]):
                    yield Seaweed("127.0.0.1", ports[0])
                    return
            finally:
                running.kill()  # nobody needs its data, and a polite end takes two seconds
                running.wait()
    log = (folder / str(_ATTEMPTS - 1) / "weed.log").read_text(errors="replace")
    raise RuntimeError(f"weed did not start in {_ATTEMPTS} attempts; its last words: {log[-2000:]}")


def _start(folder: Path, ports: list[int], filer: Path) -> "subprocess.Popen[bytes]":
    folder.mkdir(parents=True)
    names = ("s3", "master", "volume", "filer", "admin")
    command = [
        str(Path(sysconfig.get_path("scripts"), "weed")), "-logtostderr=true", "mini", f"-dir={folder}",
        "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-admin.ui=false", "-webdav=false", "-s3.port.iceberg=0",
        "-s3.port.lance=0", "-master.telemetry=false", f"-filer.localSocket={filer}", f"-volume.max={_VOLUMES}",
        *(f"-{name}.port={port}" for name, port in zip(names, ports, strict=True)),
    ]  # fmt: skip
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    limits = {"GOMEMLIMIT": "256MiB", "GOGC": "50"}
    with open(folder / "weed.log", "wb") as log:
        return subprocess.Popen(command, env={**os.environ, **keys, **limits}, stdout=log, stderr=log)


def free_ports(count: int) -> list[int]:
    """Ports with nobody on them nor 10,000 above them."""
    found: list[int] = []
    while len(found) < count:
        port = 20_000 + secrets.randbelow(_HIGHEST_PORT - 20_000 - 10_000)
        if port not in found and _is_free(port) and _is_free(port + 10_000):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _answers(running: "subprocess.Popen[bytes]", port: int) -> bool:
    """Wait until it makes a bucket; False if it ended, or took too long."""
    until = time.monotonic() + _START_S
    while running.poll() is None and time.monotonic() < until:
        try:
            make_bucket(Seaweed("127.0.0.1", port), "ready")
        except Exception:  # whatever a client says of a server that is about to start
            time.sleep(0.05)
        else:
            return True
    return False


@contextmanager
def connected(server: Seaweed) -> Iterator[Any]:
    """A plain client of botocore, which goes past every proxy: to look at a bucket, and to change what lies there."""
    import botocore.session
    from botocore.config import Config

    client = botocore.session.get_session().create_client(
        "s3",
        endpoint_url=server.endpoint,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        region_name="us-east-1",
        config=Config(connect_timeout=1, read_timeout=5, retries={"max_attempts": 0}),
    )
    try:
        yield client
    finally:
        client.close()


def make_bucket(server: Seaweed, name: str) -> None:
    """A new, empty bucket."""
    with connected(server) as client:
        client.create_bucket(Bucket=name)


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    """The server of this session."""
    with serve(tmp_path_factory.mktemp("seaweed")) as server, _models_read_once():
        yield server


@contextmanager
def _models_read_once() -> Iterator[None]:
    """Each new client of botocore reads megabytes of JSON about all services, which takes longer than what it asks."""
    from botocore.loaders import JSONFileLoader

    read = cache(JSONFileLoader().load_file)
    with patch.object(JSONFileLoader, "load_file", lambda _, path: read(path)):
        yield


@pytest.fixture(scope="session")
def buckets(seaweed: Seaweed) -> list[str]:
    """Names of empty buckets that no test has had yet."""
    return []


@pytest.fixture
def bucket(seaweed: Seaweed, buckets: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of an empty bucket; the environment of the test reaches it without a proxy."""
    from s3fs import S3FileSystem

    S3FileSystem.clear_instance_cache()  # one that an earlier test made keeps that test's environment
    for name, value in seaweed.environment().items():
        monkeypatch.setenv(name, value)
    if not buckets:
        with connected(seaweed) as client, ThreadPoolExecutor(4) as pool:
            buckets += pool.map(partial(_warm_bucket, client), range(4))
    return buckets.pop()


def _warm_bucket(client: Any, _: int) -> str:
    """The first file of a bucket takes a fifth of a second, whatever it is."""
    name = "b" + secrets.token_hex(8)
    client.create_bucket(Bucket=name)
    client.put_object(Bucket=name, Key="first", Body=b"")
    client.delete_object(Bucket=name, Key="first")
    return name
