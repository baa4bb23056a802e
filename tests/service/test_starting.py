"""Where a service is started from does not matter to it, and who is another user gets nothing of it."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

import viewcache
from tests.house.tree import ROOT
from tests.service.served import Opener, described, in_child
from viewcache.api.service import answers, files, run
from viewcache.api.service.client import Client
from viewcache.api.service.stopping import stop
from viewcache.catalog.readonly import run_query
from viewcache.errors import BadInput, Broken, ConfigError, NotFound, ViewcacheError

OPEN = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import viewcache
with viewcache.open(sys.argv[1], service="auto") as cache:
    print(cache.read("train", 0, 0).video.shape[0], cache.stats().pid)
"""

WAYS = {
    "a pipe": '"$0" -c "$1" "$2" | cat',
    "few descriptors": 'ulimit -n 64; "$0" -c "$1" "$2"',
    "a folder that is gone": 'cd "$(mktemp -d)" && rmdir "$PWD" && "$0" -c "$1" "$2"',
    "ignored signals": 'trap "" TERM INT HUP; "$0" -c "$1" "$2"',
    "a low priority on one core": 'nice -n 10 taskset 1 "$0" -c "$1" "$2"',
    "its own session": 'setsid -w "$0" -c "$1" "$2"',
}


@pytest.mark.parametrize("way", WAYS)
def test_it_is_started_from_anywhere(way: str, store: Path, videos: Path, tmp_path: Path) -> None:
    """What started it ends at once, it serves on, and can be stopped; it has the descriptors that the system gives."""
    config = tmp_path / "train.yaml"
    config.write_text(yaml.safe_dump(described(store, videos)))
    command = ["sh", "-c", WAYS[way], sys.executable, OPEN, str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    count, pid = map(int, done.stdout.split())
    assert count == 4
    limits = Path(f"/proc/{pid}/limits").read_text()
    (line,) = [line.split() for line in limits.splitlines() if line.startswith("Max open files")]
    assert line[3] == line[4], "its own limit is the highest that it may have"
    assert os.sched_getaffinity(pid) == os.sched_getaffinity(0), "all cores, as this process"
    assert os.getpriority(os.PRIO_PROCESS, pid) == (0 if os.geteuid() == 0 else 10 * ("low" in way))
    with viewcache.open(described(store, videos), service="attach") as cache:
        assert cache.read("train", 0, 1).video.shape[0] == 4
    assert stop(store) == pid


def test_a_service_that_cannot_say_where_it_is_serves(attach: Opener, store: Path) -> None:
    """Its facts are for those who look for it: where they cannot be written, as on a full disk, its socket tells."""
    (store / "service.json").mkdir(parents=True)
    pid = attach().stats().pid
    assert attach().read("train", 0, 0).video.shape[0] == 4
    assert stop(store) == pid
    with pytest.raises(NotFound):
        stop(store)


@pytest.fixture
def reachable(videos: Path) -> Iterator[Path]:
    """A store in a folder that other users can enter."""
    folder = Path(tempfile.mkdtemp(prefix="viewcache-other-"))
    folder.chmod(0o755)
    store = folder / "store"
    with viewcache.open(described(store, videos), service="auto") as cache:
        cache.read("train", 0, 0)
        store.chmod(0o755)
        yield store
    with suppress(NotFound):
        stop(store)
    shutil.rmtree(folder)


def as_another(say: Callable[[], str]) -> str:
    """What a process of another user says."""

    def changed() -> str:
        os.setuid(65534)
        return say()

    return in_child(changed)


def knocked(path: Path) -> str:
    """What is heard at a socket."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(10)
        line.connect(str(path))
        return repr(line.recv(1))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(("mode", "answer"), [(0o600, "PermissionError"), (0o666, "b''")])
def test_another_user_gets_nothing(reachable: Path, mode: int, answer: str) -> None:
    """The socket's mode keeps others out; where somebody has changed it, the service turns them away itself."""
    path = reachable / files.SOCKET
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(mode)
    assert as_another(lambda: knocked(path)).partition(":")[0] == answer


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_another_user_is_told_at_once(reachable: Path, mode: int) -> None:
    """Who comes to another user's service is told whose it is and what to do, instead of trying for a minute."""
    (reachable / files.SOCKET).chmod(mode)
    said = as_another(lambda: f"let in by {Client(reachable, (), may_start=False)}")
    assert "ServiceDown" in said
    assert "is user 0's, and this process is user 65534's: use a store of your own" in said


def test_a_working_folder_that_is_gone_is_told() -> None:
    """A mapping's relative paths start in a folder that must be there; a file's do not need it."""
    program = OPEN.replace("sys.argv[1]", "{'cache': {'store': 'x'}}")
    command = ["sh", "-c", WAYS["a folder that is gone"], sys.executable, program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "NotFound: the working folder of this process is gone" in done.stderr


def test_files_are_the_users_own(attach: Opener, store: Path) -> None:
    """Nobody else may read what a service says of itself, or its log."""
    attach()
    for name in (files.SOCKET, files.LOG, files.START_LOCK, "service.json"):
        assert (store / name).stat().st_mode & 0o077 == 0, name
    assert store.stat().st_mode & 0o077 == 0


def test_a_starter_that_was_killed_is_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody reads whether the service listens: a line at info, and the service goes on."""
    reads, writes = os.pipe()
    os.close(reads)
    caplog.set_level("INFO", "viewcache.service")
    run.tell_starter(writes, answers.Ok())
    (line,) = caplog.records
    assert (line.levelname, line.exc_info) == ("INFO", None)


@pytest.mark.parametrize(
    ("place", "kind", "told"),
    [
        ("/proc/x", Broken, r"cannot make a store of .*; check that it is writable"),
        ("a" * 300, ConfigError, "cannot be looked at: File name too long; name a folder that can be"),
        ("loop", ConfigError, "cannot be looked at: Too many levels of symbolic links; name a folder that can be"),
        ("loop/x", ConfigError, "cannot be looked at: Too many levels of symbolic links; name a folder that can be"),
    ],
)
def test_a_store_that_cannot_be_made(
    place: str, kind: type[ViewcacheError], told: str, videos: Path, tmp_path: Path
) -> None:
    """The error is the same as without a service, and it is typed; who only asks for what is there finds nothing."""
    (tmp_path / "loop").symlink_to("loop")
    store = tmp_path / place
    for service in ("off", "auto"):
        with pytest.raises(kind, match=told):
            viewcache.open(described(store, videos), service=service)
    with pytest.raises(NotFound, match="no service runs for"):
        stop(store)
    with pytest.raises(NotFound, match="no catalog in"):
        run_query(store, "select 1")


def test_a_store_whose_disk_is_not_there(videos: Path, tmp_path: Path) -> None:
    """With and without a service nothing is made in the place of a disk, which may come later; the parent is named."""
    disk = tmp_path / "disk"
    told = rf"cannot make the store {disk}/cache: the folder {disk} does not exist; mount the disk"
    for service in ("off", "auto"):
        with pytest.raises(BadInput, match=told):
            viewcache.open(described(disk / "cache", videos), service=service)
        assert not disk.exists()
    disk.mkdir()
    viewcache.open(described(disk / "cache", videos), service="off").close()
    assert (disk / "cache" / "catalog.duckdb").exists()
