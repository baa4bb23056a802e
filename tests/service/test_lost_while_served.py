"""What is lost under a running service, while a client loops: it reads the right bytes, as from a cache of its own.

Afterwards the service is killed, too, and the next one begins with what is left.
"""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import viewcache
from tests.faults.test_lost_catalog import cut, delete_database, empty, flip, overwrite
from tests.service.served import Opener, described, digest, ended, start, told
from viewcache.api.service import files
from viewcache.api.service.stopping import stop
from viewcache.catalog.files import CatalogFiles
from viewcache.testing.leaks import settle

LOOP = """
import select
truth = json.loads(sys.argv[2])
wrong, errors, right, number = [], [], 0, 0
with viewcache.open(given, service="auto") as cache:
    while not select.select([sys.stdin], [], [], 0)[0]:
        place = divmod(number % 15, 5)
        try:
            found = digest(cache.read("train", *place))
        except viewcache.ViewcacheError as error:
            errors.append([error.kind, str(error)])
        else:
            right += found == truth[number % 15]
            if found != truth[number % 15]:
                wrong.append(place)
        number += 1
        if number in (15, 40):
            print(json.dumps(number), flush=True)
print(json.dumps([right, wrong, errors]))
"""
"""Reads until it is told to end, and says when it is through once, and some more."""


def states(pid: int) -> set[str]:
    """Of the threads of a process: ``T`` of those that are stopped."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return {(each / "stat").read_text().rpartition(")")[2].split()[0] for each in threads}
    except OSError:
        return set()


def delete_objects(store: Path) -> None:
    """Every file of every object goes."""
    for path in list(store.glob("objects/*/*/*")):
        path.unlink(missing_ok=True)


def delete_folders(store: Path) -> None:
    """`objects` and `tmp` go."""
    for name in ("objects", "tmp"):
        shutil.rmtree(store / name, ignore_errors=True)


def delete_journal(store: Path) -> None:
    """What the catalog is rebuilt from goes with it."""
    delete_database(store)
    CatalogFiles(store).journal.unlink()


def delete_all(store: Path) -> None:
    """``rm -rf store/*``, the socket and the locks, too."""
    for path in list(store.iterdir()):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


LOSSES = [
    *(delete_objects, delete_folders, delete_database, overwrite, delete_all),
    *(pytest.param(each, marks=pytest.mark.long) for each in (delete_journal, cut, empty, flip)),
]


@pytest.fixture(scope="module")
def truth(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """All batches of a cache of this process."""
    with viewcache.open(described(tmp_path_factory.mktemp("truth"), videos), service="off") as cache:
        return [digest(cache.read("train", *divmod(number, 5))) for number in range(15)]


@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__)
def test_what_is_lost_while_it_is_served(
    store: Path, videos: Path, attach: Opener, truth: list[str], lose: Callable[[Path], None]
) -> None:
    """Nobody reads a wrong byte or gets an error, neither meanwhile nor after the service was killed on top of it."""
    loop = start(LOOP, described(store, videos), json.dumps(truth))
    assert told(loop) == 15
    lose(store)
    assert told(loop) == 40
    cache = attach()
    assert [digest(cache.read("train", *divmod(number, 5))) for number in range(15)] == truth
    stop(store, now=True)
    assert [digest(cache.read("train", *divmod(number, 5))) for number in range(15)] == truth
    assert loop.stdin is not None
    loop.stdin.write("end\n")
    loop.stdin.flush()
    found: Any = ended(loop)
    right, wrong, errors = found
    assert (wrong, errors) == ([], [])
    assert right >= 40


def test_a_service_ends_whose_place_another_has(attach: Opener, store: Path, truth: list[str]) -> None:
    """One that comes to itself after its store was emptied and served anew lets the other be: a store has one owner."""
    early = attach()
    old = early.stats().pid
    os.kill(old, signal.SIGSTOP)
    try:
        assert not settle(lambda: [] if states(old) == {"T"} else [old])
        delete_all(store)
        late = attach()
        new = late.stats().pid
        assert new != old
    finally:
        os.kill(old, signal.SIGCONT)
    assert not settle(lambda: [old] if states(old) - {"Z", "X"} else [], 20)
    line = files.connect(store, 1.0)
    assert line is not None, "the socket is there, and it is the other's"
    line.close()
    for cache in (early, late):
        assert [digest(cache.read("train", *divmod(number, 5))) for number in range(5)] == truth[:5]
        assert cache.stats().pid == new
