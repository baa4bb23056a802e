"""A copy that has left and is not deleted yet: nobody makes it again until its old bytes are gone."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from tests.scheduling.harness import WAIT_S, until
from tests.tiny import encode_folder, open_cache
from viewcache.api.session.cache import Cache
from viewcache.errors import Broken
from viewcache.materializer.scheduling.candidates import Candidates
from viewcache.materializer.storage.ledger import Copy, Ledger
from viewcache.store.local import LocalTier


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four videos."""
    return encode_folder(tmp_path_factory.mktemp("deleting"), {f"v{k}.mp4": 40 + k for k in range(4)})


@pytest.fixture
def cache(tmp_path: Path, videos: Path) -> Iterator[Cache]:
    """A cache in which all clips lie."""
    with open_cache(tmp_path, videos) as cache:
        list(cache.materialize())
        yield cache


class Held:
    """Deletions of a tier, each of which waits until it may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Hold all from now on."""
        self.begun, self.may = threading.Semaphore(0), threading.Event()
        delete = LocalTier.delete

        def held(tier: LocalTier, *given: Any) -> int:
            self.begun.release()
            assert self.may.wait(WAIT_S)
            return delete(tier, *given)

        monkeypatch.setattr(LocalTier, "delete", held)


def _copies(cache: Cache, iteration: int) -> list[Copy]:
    """Those of the clips of a batch of the first epoch."""
    keys = cache.task("train").describe(0, iteration).keys
    found = [cache.owner.ledger.find(key, "local") for key in dict.fromkeys(keys)]
    return [copy for copy in found if copy is not None]


def _assert_true(cache: Cache, tmp_path: Path) -> None:
    """Ledger, count and folder say the same."""
    lying = cache.owner.ledger.copies()
    assert all((tmp_path / copy.stored.physical).exists() for copy in lying.values())
    assert cache.tier.used_bytes == cache.tier.measure()
    assert cache.task("train").spent.rebuilt == 0


def test_what_leaves_is_made_again_when_its_bytes_are_gone(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader who asks meanwhile waits for the deletion; one who asks for something else does not."""
    before, other = cache.read("train", 0, 0), cache.read("train", 0, 1)
    assert cache.owner.dispatcher is not None
    evictor, held = cache.owner.dispatcher.evictor, Held(monkeypatch)
    leaving = threading.Thread(target=evictor.give_up, args=(_copies(cache, 0),))
    leaving.start()
    assert held.begun.acquire(timeout=WAIT_S)
    got: list[Any] = []
    reader = threading.Thread(target=lambda: got.append(cache.read("train", 0, 0)))
    reader.start()
    until(lambda: evictor.waiting() == 1, "the reader to wait")
    assert np.array_equal(cache.read("train", 0, 1).video, other.video)
    assert not got
    held.may.set()
    leaving.join(WAIT_S)
    reader.join(WAIT_S)
    assert np.array_equal(got[0].video, before.video)
    _assert_true(cache, tmp_path)


def test_an_error_while_copies_leave_keeps_nobody_waiting(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger has forgotten copies, and then something of ours fails: what lies there still is used again."""
    before, copies, leave = cache.read("train", 0, 0), _copies(cache, 0), Ledger.leave
    assert cache.owner.dispatcher is not None

    def failing(ledger: Ledger, chosen: list[Copy], *given: Any) -> NoReturn:
        leave(ledger, chosen, *given)
        raise LookupError("a mistake of ours")

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "leave", failing)
        with pytest.raises(LookupError):
            cache.owner.dispatcher.evictor.give_up(copies)
    assert np.array_equal(cache.read("train", 0, 0).video, before.video)


def test_what_left_before_an_error_is_deleted(cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy whose second answer is a mistake of ours: what the first one named is gone from the folder, too."""
    assert cache.owner.dispatcher is not None
    asked, named = list[int](), _copies(cache, 0)

    def answer(*_: Any, **__: Any) -> list[Copy]:
        asked.append(1)
        if len(asked) == 2:
            raise LookupError("a mistake of ours")
        return named[:1]

    monkeypatch.setattr(Candidates, "take", answer)
    with pytest.raises(LookupError):
        cache.owner.dispatcher.evictor.evict(cache.tier.budget_bytes, None)
    assert not (tmp_path / named[0].stored.physical).exists()
    cache.read("train", 0, 0)
    _assert_true(cache, tmp_path)


def test_what_cannot_be_deleted_is_counted_once(cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its old bytes are found when it is made again, however often that comes; nothing is promised room twice."""
    before = cache.read("train", 0, 0)
    assert cache.owner.dispatcher is not None

    def failing(tier: LocalTier, physical: str, *_: Any) -> NoReturn:
        raise Broken(f"cannot delete {physical}")

    for _ in range(3):
        with monkeypatch.context() as patched:
            patched.setattr(LocalTier, "delete", failing)
            cache.owner.dispatcher.evictor.give_up(_copies(cache, 0))
        assert not _copies(cache, 0)
        assert np.array_equal(cache.read("train", 0, 0).video, before.video)
        _assert_true(cache, tmp_path)


def test_a_damaged_copy_is_deleted_beside_other_readers(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleting may take long, as in a bucket; who reads something else does not wait for it."""
    other = cache.read("train", 0, 1)
    assert cache.owner.dispatcher is not None
    held, copy = Held(monkeypatch), _copies(cache, 0)[0]
    deleting = threading.Thread(target=cache.owner.dispatcher.evictor.damaged, args=(copy,))
    deleting.start()
    assert held.begun.acquire(timeout=WAIT_S)
    assert np.array_equal(cache.read("train", 0, 1).video, other.video)
    assert deleting.is_alive()
    held.may.set()
    deleting.join(WAIT_S)


def test_what_was_made_and_has_left_is_made_ahead_again(tmp_path: Path, cache: Cache) -> None:
    """`materialize` called once more says what lies there now, not what lay there once."""
    *_, first = cache.materialize()
    there = [*cache.owner.ledger.copies().values()]
    assert first == {"ready": first["ready"], "planned": 0, "making": 0, "failed": 0}
    assert cache.owner.dispatcher is not None
    cache.owner.dispatcher.evictor.give_up(there[: len(there) // 2])
    assert len(cache.owner.ledger.copies()) == len(there) - len(there) // 2
    *_, again = cache.materialize()
    assert again == first
    assert cache.owner.ledger.copies().keys() == {copy.key for copy in there}
    _assert_true(cache, tmp_path)
