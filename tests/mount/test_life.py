"""Whatever is killed, nobody hangs: the mount, the service behind it, or who reads; and the end leaves nothing."""

import errno
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mount.mounted import Mounted, eventually, mount, program
from viewcache.api.service.stopping import stop

READER = """
import os, sys
print("reading")
try:
    print(len(open(sys.argv[1], "rb").read()))
except OSError as error:
    print(error.errno)
except KeyboardInterrupt:
    print("interrupted")
"""

READERS = """
import sys, threading
for _ in range(40):
    threading.Thread(target=lambda: open(sys.argv[1], "rb")).start()
"""

MORE = (signal.SIGINT, signal.SIGHUP)

ANSWER = "request_wait_answer"
"""The kernel's function in which a thread waits for who answers for a file system."""

SOON_S = 15.0
"""Half of what the service may be silent for, and more than a loaded machine needs."""


@contextmanager
def _stopped(mounted: Mounted) -> Iterator[None]:
    """The service is there and does nothing."""
    service = mounted.site.service()
    os.kill(service, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(service, signal.SIGCONT)


@contextmanager
def _waiting(mounted: Mounted, path: str = "train/1/0/view") -> Iterator["subprocess.Popen[str]"]:
    """A process that waits for a view."""
    with program(READER, mounted.root / path) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reading\n"
        eventually(lambda: len(_waits(reader.pid)) == 1, "it waits in the kernel")
        try:
            yield reader
        finally:
            reader.kill()


def _waits(pid: int) -> list[str]:
    """The threads of a process that wait for the answer of a file system of FUSE."""
    return [each.parent.name for each in Path(f"/proc/{pid}/task").glob("*/wchan") if each.read_text() == ANSWER]


def _warm(mounted: Mounted) -> None:
    """Let the kernel know the names, so that a test waits for what it means to."""
    for path in ("train/1/0/view", "train/1/1/view"):
        (mounted.root / path).stat()


def test_a_killed_reader_is_gone_at_once(mounted: Mounted) -> None:
    """SIGKILL and Ctrl-C free who waits for a view, whatever the service does."""
    _warm(mounted)
    with _stopped(mounted):
        with _waiting(mounted) as reader:
            reader.kill()
            reader.wait(SOON_S)
        with _waiting(mounted) as reader:
            reader.send_signal(signal.SIGINT)
            assert reader.communicate(timeout=SOON_S)[0] == "interrupted\n"
    assert len((mounted.root / "train/1/0/view").read_bytes()) > 1000


def test_who_waits_blocks_nobody(mounted: Mounted) -> None:
    """While forty threads wait for a view, what is known is answered, and open files are read on."""
    _warm(mounted)
    with (
        (mounted.root / "train/1/1/view").open("rb") as file,
        _stopped(mounted),
        program(READERS, mounted.root / "train/1/0/view") as reader,
    ):
        eventually(lambda: len(_waits(reader.pid)) == 40, "all wait")
        begun = time.monotonic()
        assert len(file.read()) > 1000
        with pytest.raises(OSError, match=r".") as refused:
            os.getxattr(mounted.root / "train/1/0/view", "user.viewcache.error")
        assert refused.value.errno == errno.ENODATA
        assert time.monotonic() - begun < SOON_S
        reader.kill()
        reader.wait(SOON_S)


def test_a_killed_mount_frees_its_readers(mounted: Mounted) -> None:
    """Who waits gets an error at once, so does whoever comes; the same command mounts again, and says so."""
    _warm(mounted)
    with (mounted.root / "train/1/1/view").open("rb", buffering=0) as file:
        with _stopped(mounted), _waiting(mounted) as reader:
            mounted.process.kill()
            out, _ = reader.communicate(timeout=SOON_S)
            assert int(out) in (errno.ENOTCONN, errno.ECONNABORTED)
        with pytest.raises(OSError, match=r".") as refused:
            os.listdir(mounted.root / "train")
        assert refused.value.errno == errno.ENOTCONN
        with pytest.raises(OSError, match=r"."):
            file.read()
    with mount(mounted.site) as again:
        assert "whose process was killed" in again.said[0]
        assert len((again.root / "train/1/1/view").read_bytes()) > 1000


def test_a_killed_service_comes_back(mounted: Mounted) -> None:
    """Who waits for a view gets it from the next service; so does who holds a folder, and who comes after `stop`."""
    _warm(mounted)
    training = os.open(mounted.root / "train", os.O_RDONLY)
    before = (mounted.root / "train/0/0/view").read_bytes()
    service = mounted.site.service()
    os.kill(service, signal.SIGSTOP)
    with _waiting(mounted) as reader:
        os.kill(service, signal.SIGKILL)
        assert int(reader.communicate(timeout=60)[0]) == len(before)
    assert mounted.site.service() != service
    stop(mounted.site.store)
    assert len((mounted.root / "train/0/1/view").read_bytes()) == len(before)
    assert (mounted.root / "train/0/0/view").read_bytes() == before
    os.close(training)


@pytest.mark.parametrize("number", [signal.SIGTERM, *(pytest.param(each, marks=pytest.mark.long) for each in MORE)])
def test_a_signal_unmounts(mounted: Mounted, number: int) -> None:
    """It ends well, and leaves an empty folder."""
    (mounted.root / "train/0/0/view").read_bytes()
    assert mounted.end(number) == 0
    assert mounted.said[-1].endswith("is unmounted")
    assert os.listdir(mounted.root) == []


@pytest.mark.long
def test_what_is_ignored_stays_ignored(mounted: Mounted) -> None:
    """A mount under `nohup` outlives its terminal."""
    with mount(replace(mounted.site, folder=mounted.site.folder / "again"), ignoring=signal.SIGHUP) as again:
        again.process.send_signal(signal.SIGHUP)
        assert len((again.root / "train/0/0/view").read_bytes()) > 1000
        assert again.end() == 0


def test_a_signal_ends_it_while_files_are_open(mounted: Mounted) -> None:
    """Who has files open, or waits, gets an error; the folder is free, and can be mounted over again."""
    _warm(mounted)
    training = os.open(mounted.root / "train", os.O_RDONLY)
    with (mounted.root / "train/1/1/view").open("rb") as file, _stopped(mounted), _waiting(mounted) as reader:
        assert mounted.end() == 0
        assert int(reader.communicate(timeout=SOON_S)[0]) in (errno.ENOTCONN, errno.ECONNABORTED)
        with pytest.raises(OSError, match=r"."):
            os.pread(file.fileno(), 1, 0)
    assert mounted.said[-1].endswith("open give an error for all that the system does not have of them yet")
    os.close(training)
    assert os.listdir(mounted.root) == []


def test_unmounting_ends_the_process(mounted: Mounted) -> None:
    """`fusermount3 -u` does, when nobody has a file open; before, it refuses, and all goes on."""
    command = ["fusermount3", "-u", "-q", str(mounted.root)]
    with (mounted.root / "train/0/0/view").open("rb") as file:
        assert subprocess.run(command, check=False).returncode != 0
        assert len(file.read()) > 1000
    assert subprocess.run(command, check=False).returncode == 0
    assert mounted.ended() == 0
