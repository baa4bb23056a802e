"""What the tests of the mount have in common: a cache that a process of its own mounts, and processes that read."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

import viewcache
from tests.service.served import described
from viewcache.api.service.attached import AttachedCache
from viewcache.api.service.files import read_facts
from viewcache.api.service.stopping import stop
from viewcache.errors import NotFound

__all__ = ["Mounted", "Site", "eventually", "missing", "mount", "program"]

WAIT_S = 60.0


def missing() -> str:
    """What this machine lacks of what a mount needs; empty if nothing."""
    try:
        import mfusepy  # noqa: F401
    except (ImportError, OSError):
        return "mfusepy or libfuse 3 is not installed: pip install 'viewcache[mount]', apt-get install fuse3"
    if shutil.which("fusermount3") is None:
        return "fusermount3 is not installed: apt-get install fuse3"
    return "" if os.access("/dev/fuse", os.R_OK | os.W_OK) else "/dev/fuse is not there or not for this user"


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds."""
    until = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < until, f"{what}: not within {WAIT_S:.0f} s"
        time.sleep(0.02)


@dataclass(frozen=True, slots=True)
class Site:
    """A configuration in a folder of its own."""

    folder: Path
    config: Path
    store: Path

    @classmethod
    def make(cls, folder: Path, videos: Path, **settings: object) -> "Site":
        """Write the configuration; keyword arguments as of `tests.tiny.config`."""
        site = cls(folder, folder / "train.yaml", folder / "store")
        site.config.write_text(yaml.safe_dump(described(site.store, videos, **settings)))
        return site

    @property
    def views(self) -> Path:
        """The folder that is mounted over."""
        return self.folder / "views"

    def service(self) -> int:
        """The process that serves."""
        facts = read_facts(self.store)
        assert facts is not None
        return facts.pid

    @contextmanager
    def served(self) -> Iterator[AttachedCache]:
        """A client of its service, which lasts as long as the block."""
        opened: object = viewcache.open(self.config, service="auto")
        assert isinstance(opened, AttachedCache)
        try:
            with opened:
                yield opened
        finally:
            with suppress(NotFound):
                stop(self.store, now=True)


@dataclass(slots=True)
class Mounted:
    """A process that mounts, and what it said."""

    site: Site
    process: "subprocess.Popen[str]"
    said: list[str] = field(default_factory=list)

    @property
    def root(self) -> Path:
        """The folder below which the views are."""
        return self.site.views

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal; its exit status."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """Wait for its end; its exit status."""
        assert self.process.stderr is not None
        self.said += self.process.stderr.read().splitlines()
        return self.process.wait(WAIT_S)


@contextmanager
def mount(site: Site, *options: str, ignoring: int | None = None) -> Iterator[Mounted]:
    """Mount a site's cache, by a process of its own that ends with the block; it is started to ignore a signal."""
    site.views.mkdir(parents=True, exist_ok=True)
    before = None if ignoring is None else signal.signal(ignoring, signal.SIG_IGN)
    command = [sys.executable, "-m", "viewcache.api.cli.main", "mount", *options, str(site.config), str(site.views)]
    process = subprocess.Popen(command, cwd=site.folder, stderr=subprocess.PIPE, text=True)
    if ignoring is not None:
        signal.signal(ignoring, before)
    mounted = Mounted(site, process)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            mounted.said.append(line.rstrip("\n"))
            if "is mounted on" in line:
                break
        else:
            pytest.fail(f"it did not mount: {mounted.said}")
        yield mounted
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
        subprocess.run(["fusermount3", "-u", "-q", "-z", str(site.views)], check=False)


def program(body: str, *arguments: object) -> "subprocess.Popen[str]":
    """A process of its own that runs a few lines of plain Python; it talks by its standard streams."""
    return subprocess.Popen(
        [sys.executable, "-I", "-u", "-c", body, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
