"""What would leave next is asked for ahead where asking takes long; what leaves, and when, stays what it was."""

import itertools
import logging
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast
from unittest.mock import patch

import pytest

import viewcache
from tests.faults.caches import assert_at_rest, config, digest_of, truth_of
from viewcache.errors import Broken
from viewcache.materializer.scheduling import candidates, evictor
from viewcache.materializer.scheduling.candidates import Candidates
from viewcache.materializer.storage.ledger import Copy, Ledger

if TYPE_CHECKING:
    from viewcache.store import Stored

WAIT_S = 30.0
EACH = 10
"""Bytes of a copy."""


_STORED = cast("Stored", None)  # nobody reads these copies


class Policy:
    """Offers copies by number; says which thread asked."""

    def __init__(self, count: int, *, slow: bool = True) -> None:
        self.there = {number: Copy(number, f"{number:032x}", _STORED, EACH) for number in range(count)}
        self.asked_by: list[str] = []
        self.now = 0.0
        self.error: Exception | None = None
        self.slow, self.quick_s = slow, 0.0
        self.told = threading.Semaphore(0)
        """Released when there is an answer that somebody went away without."""
        self.begun = threading.Semaphore(0)
        """Released when it is asked."""
        self.gate: threading.Event | None = None
        """Until it is set the thread gets no answer."""

    def ask(self, need: int) -> list[Copy]:
        """The first copies that are there."""
        self.asked_by.append(threading.current_thread().name)
        self.begun.release()
        if self.gate is not None and self.asked_by[-1] == "viewcache-candidates":
            assert self.gate.wait(WAIT_S)
        if self.error is not None:
            raise self.error
        self.now += 1.0 if self.slow else self.quick_s
        return list(self.there.values())[: -(-need // EACH)]

    def is_there(self, copy: Copy) -> bool:
        """As the ledger says it."""
        return copy.object_id in self.there


@pytest.fixture
def policy() -> Policy:
    """A slow one over 100 copies."""
    return Policy(100)


@pytest.fixture
def ahead(policy: Policy) -> Iterator[Candidates]:
    """A tenth of the copies is asked for ahead."""
    made = Candidates(policy.ask, policy.is_there, 100 * EACH, policy.told.release, lambda: policy.now)
    yield made
    made.close()


def numbers(copies: list[Copy]) -> list[int]:
    """Which."""
    return [copy.object_id for copy in copies]


def test_a_quick_policy_is_asked_when_it_is_needed() -> None:
    """Small caches have no further thread."""
    quick = Policy(9, slow=False)
    ahead = Candidates(quick.ask, quick.is_there, 90, quick.told.release, lambda: quick.now)
    assert ahead.take(EACH, set()) == []
    assert numbers(ahead.ask(2 * EACH)) == [0, 1]
    assert ahead.take(EACH, set()) == []
    assert quick.asked_by == [threading.current_thread().name]
    ahead.close()


def test_a_slow_one_is_asked_ahead(policy: Policy, ahead: Candidates) -> None:
    """Once by who needs room, then by the thread: copies come in the policy's order, and more when half have left."""
    for copy in ahead.ask(EACH):
        del policy.there[copy.object_id]
    assert ahead.wait_ready(WAIT_S)
    taken = []
    for _ in range(6):
        (copy,) = ahead.take(EACH, set())
        taken.append(copy.object_id)
        del policy.there[copy.object_id]
    assert taken == [1, 2, 3, 4, 5, 6]
    assert ahead.wait_ready(WAIT_S)
    assert numbers(ahead.take(3 * EACH, set())) == [7, 8, 9]
    assert policy.asked_by == [threading.current_thread().name, "viewcache-candidates", "viewcache-candidates"]


def _in_vain(slow: bool, longest_s: float = 1e6) -> tuple[Policy, Candidates]:
    """A policy that has answered once, and of whose answer nothing could leave, so that it is not asked for long."""
    policy = Policy(9, slow=slow)
    policy.now, policy.quick_s = 1.0, 0.01
    ahead = Candidates(policy.ask, policy.is_there, 90, policy.told.release, lambda: policy.now)
    assert numbers(_patiently(ahead, policy, EACH, "first")) == [0]
    with patch.multiple(candidates, REST=1e9, LONGEST_REST_S=longest_s):
        ahead.in_vain()
    return policy, ahead


@pytest.mark.parametrize("slow", [False, True])
def test_who_can_wait_does_not_ask_in_vain_again_and_again(slow: bool) -> None:
    """Where nothing could leave, the next occasion is no reason to ask at once, unless somebody cannot wait."""
    policy, ahead = _in_vain(slow)
    try:
        assert ahead.answer(EACH, set(), "second", can_wait=True) is None
        assert ahead.is_awaited()
        assert len(policy.asked_by) == 1
        assert numbers(_patiently(ahead, policy, EACH, "third")) == [0]  # what a reader waits for
        assert len(policy.asked_by) == 2
    finally:
        ahead.close()


@pytest.mark.parametrize("slow", [False, True])
def test_a_rest_is_over_when_something_may_leave(slow: bool) -> None:
    """Whoever was told that there is no answer yet is told of it then."""
    policy, ahead = _in_vain(slow)
    try:
        assert ahead.answer(EACH, set(), "second", can_wait=True) is None
        ahead.reconsider()
        assert policy.told.acquire(timeout=WAIT_S)
        assert numbers(ahead.answer(EACH, set(), "second", can_wait=True) or []) == [0]
        assert len(policy.asked_by) == 2
    finally:
        ahead.close()


def test_a_rest_comes_to_its_end() -> None:
    """Nobody needs to come again for that."""
    policy, ahead = _in_vain(slow=False, longest_s=0.02)
    try:
        assert ahead.answer(EACH, set(), "second", can_wait=True) is None
        assert policy.told.acquire(timeout=WAIT_S)
    finally:
        ahead.close()


def test_closing_does_not_wait_for_a_rest() -> None:
    """And the policy is not asked."""
    policy, ahead = _in_vain(slow=False)
    assert ahead.answer(EACH, set(), "second", can_wait=True) is None
    ahead.close()
    assert len(policy.asked_by) == 1


def test_what_may_not_leave_stays_in_its_place(policy: Policy, ahead: Candidates) -> None:
    """What is held is passed over, what is put back has its place again, what is gone is dropped."""
    ahead.ask(EACH)
    assert ahead.wait_ready(WAIT_S)
    held = {policy.there[0].key, policy.there[2].key}
    del policy.there[1]
    taken = ahead.take(2 * EACH, held)
    assert numbers(taken) == [3, 4]
    ahead.put_back(taken[:1])
    assert numbers(ahead.take(3 * EACH, set())) == [0, 2, 3]


def test_all_there_are(policy: Policy, ahead: Candidates) -> None:
    """Who needs more than is ready gets that, and more is asked for."""
    ahead.ask(EACH)
    assert ahead.wait_ready(WAIT_S)
    assert numbers(ahead.take(11 * EACH, set())) == list(range(10))
    assert ahead.wait_ready(WAIT_S)
    assert numbers(ahead.take(10 * EACH, set())) == list(range(10))


def test_old_ones_are_asked_for_again(policy: Policy, ahead: Candidates) -> None:
    """They are still given, while the thread asks."""
    ahead.ask(EACH)
    assert ahead.wait_ready(WAIT_S)
    policy.now += candidates.FRESH_S + 1
    policy.there = dict(reversed(policy.there.items()))
    assert numbers(ahead.take(EACH, set())) == [0]
    assert ahead.wait_ready(WAIT_S)
    assert numbers(ahead.take(EACH, set())) == [99]


def test_what_was_slow_by_chance(policy: Policy, ahead: Candidates) -> None:
    """A policy that answers at once the second time is asked by who needs room again."""
    ahead.ask(EACH)
    assert ahead.wait_ready(WAIT_S)
    assert numbers(ahead.take(EACH, set())) == [0]
    policy.slow = False
    policy.now += candidates.FRESH_S + 1
    ahead.take(EACH, set())
    assert ahead.wait_ready(WAIT_S)
    assert ahead.take(EACH, set()) == []
    assert numbers(ahead.ask(EACH)) == [0]


def test_a_policy_that_fails(policy: Policy, ahead: Candidates, caplog: pytest.LogCaptureFixture) -> None:
    """Is told, and asked again by who needs room."""
    policy.error = Broken("no such table")
    policy.now = 0.0
    with pytest.raises(Broken):
        ahead.ask(EACH)
    policy.error = None
    ahead.ask(EACH)
    assert ahead.wait_ready(WAIT_S)
    policy.error = Broken("no such table")
    assert numbers(ahead.take(EACH, set())) == [0]
    with caplog.at_level(logging.WARNING):
        policy.now += candidates.FRESH_S + 1
        ahead.take(EACH, set())
        assert ahead.wait_ready(WAIT_S)
    assert "candidates could not be asked for ahead: no such table" in caplog.text
    assert ahead.take(EACH, set()) == []


def test_who_does_not_wait_is_told(policy: Policy, ahead: Candidates) -> None:
    """Who asks on an occasion gets no answer from a slow policy at first, is told, and then has all of it."""
    gate = threading.Event()
    policy.gate = gate
    ahead.ask(EACH)  # it is slow, and from here on the thread asks, behind the gate
    assert ahead.answer(2 * EACH, set(), "now") is None
    assert ahead.is_awaited()
    gate.set()
    assert policy.told.acquire(timeout=WAIT_S)
    while (found := ahead.answer(2 * EACH, set(), "now")) is None:  # the first was asked ahead, for nobody
        assert policy.told.acquire(timeout=WAIT_S)
    assert numbers(found) == [0, 1]
    assert numbers(ahead.answer(10 * EACH, set(), "now") or []) == [2, 3, 4, 5, 6, 7, 8, 9]


def test_an_answer_is_final_until_something_happens() -> None:
    """On one occasion a policy is asked once, what was put back is given again, and then there is nothing more."""
    quick = Policy(3, slow=False)
    ahead = Candidates(quick.ask, quick.is_there, 90, quick.told.release, lambda: quick.now)
    try:
        found = _patiently(ahead, quick, 9 * EACH, "now")
        assert numbers(found) == [0, 1, 2]
        ahead.put_back(found[1:])
        assert numbers(_patiently(ahead, quick, EACH, "now")) == [1]
        assert numbers(_patiently(ahead, quick, 9 * EACH, "now")) == [2]
        assert _patiently(ahead, quick, EACH, "now") == []
        assert len(quick.asked_by) == 1
        assert numbers(_patiently(ahead, quick, EACH, "later")) == [0]
        assert quick.asked_by == 2 * ["viewcache-candidates"]
    finally:
        ahead.close()
    assert not ahead.is_awaited()


def test_who_needs_more_than_is_being_asked_for_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the thread is asking meanwhile, nobody waits for an answer that nobody is asked for."""
    monkeypatch.setattr(candidates, "SLOW_S", WAIT_S)
    quick = Policy(9, slow=False)
    quick.gate = threading.Event()
    ahead = Candidates(quick.ask, quick.is_there, 90, quick.told.release, lambda: quick.now)
    try:
        asker = threading.Thread(target=ahead.answer, args=(EACH, set(), "now"))
        asker.start()
        assert quick.begun.acquire(timeout=WAIT_S)
        opener = threading.Timer(0.05, quick.gate.set)  # while the next one waits, or before: it is the same to him
        opener.start()
        assert len(_patiently(ahead, quick, 5 * EACH, "now")) >= 4  # all but the asker's
        asker.join()
        opener.join()
        assert not ahead.is_awaited()
    finally:
        ahead.close()


def test_asking_comes_to_an_end_where_little_can_leave() -> None:
    """Who takes what is ready and asks for more hears after a few answers that there is no more, however slow it is."""
    slow = Policy(2)
    ahead = Candidates(slow.ask, slow.is_there, 100 * EACH, slow.told.release, lambda: slow.now)
    try:
        for occasion in ("first", "second"):
            answers: list[list[Copy] | None] = [None]
            while answers[-1] != []:
                ahead.put_back(ahead.take(EACH, {copy.key for copy in slow.there.values()}, 1, occasion))
                answers.append(ahead.answer(EACH, {copy.key for copy in slow.there.values()}, occasion))
                assert answers[-1] is not None or slow.told.acquire(timeout=WAIT_S)
                assert len(answers) <= 5
            assert ahead.wait_ready(WAIT_S)
            assert not ahead.is_awaited()
    finally:
        ahead.close()


def test_an_error_goes_to_who_asked(policy: Policy, ahead: Candidates) -> None:
    """What the policy failed with is raised where an answer is asked for; on the next occasion it is asked again."""
    policy.error = Broken("no such table")
    with pytest.raises(Broken, match="no such table"):
        _patiently(ahead, policy, EACH, "now")
    policy.error = None
    assert numbers(_patiently(ahead, policy, EACH, "later")) == [0]


@pytest.mark.parametrize("who", ["first", "second", None])
def test_an_error_is_owed_to_who_went_away(policy: Policy, ahead: Candidates, who: str | None) -> None:
    """The first is told on another occasion too, once; whoever else comes then has the policy asked again."""
    policy.gate = threading.Event()
    ahead.ask(EACH)  # it is slow, and from here on the thread asks, behind the gate
    assert ahead.answer(EACH, set(), "now", who="first") is None
    assert ahead.answer(EACH, set(), "now") is None
    policy.error = Broken("no such table")
    policy.gate.set()
    assert policy.told.acquire(timeout=WAIT_S)
    policy.error = None
    if who == "first":
        with pytest.raises(Broken, match="no such table"):
            ahead.answer(EACH, set(), "later", who=who)
    assert numbers(_patiently(ahead, policy, EACH, "later", who)) == [0]


def _patiently(ahead: Candidates, policy: Policy, need: int, occasion: str, who: str | None = None) -> list[Copy]:
    """The answer, asked for again whenever there is one."""
    while (found := ahead.answer(need, set(), occasion, who=who)) is None:
        assert policy.told.acquire(timeout=WAIT_S)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_the_order_is_the_policys(seed: int) -> None:
    """Whatever is taken, put back, held and gone: nothing comes twice, and always the first that may leave."""
    chance, policy = random.Random(seed), Policy(60)
    ahead = Candidates(policy.ask, policy.is_there, 1000 * EACH, policy.told.release, lambda: policy.now)
    ahead.ask(EACH)
    assert ahead.wait_ready(WAIT_S)  # all 60 are ready
    for _ in range(30):
        held = {copy.key for copy in policy.there.values() if chance.random() < 0.2}
        count = chance.randint(1, 4)
        taken = ahead.take(count * EACH, held)
        free = [number for number, copy in policy.there.items() if copy.key not in held]
        assert ahead.wait_ready(WAIT_S)
        assert numbers(taken) == free[:count]
        stays = taken[chance.randint(0, count) :]
        ahead.put_back(stays)
        for copy in taken[: len(taken) - len(stays)]:
            del policy.there[copy.object_id]
    ahead.close()


def test_the_budget_holds_and_every_clip_is_right(
    store: Path, videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that always asks ahead reads what one reads that never does; after the first time the thread asks."""
    truth = truth_of(tmp_path / "truth", videos)
    monkeypatch.setattr(candidates, "SLOW_S", -1.0)
    monkeypatch.setattr(evictor, "READY_BYTES", 1)
    asked: list[str] = []
    choose = Ledger.choose

    def noted(self: Ledger, tier: str, need: int, protected: set[str]) -> list[Copy]:
        asked.append(threading.current_thread().name)
        return choose(self, tier, need, protected)

    monkeypatch.setattr(Ledger, "choose", noted)
    with viewcache.open(config(store, videos, budget=124_000)) as cache:
        for place in itertools.chain(truth, reversed(truth)):
            assert digest_of(cache.read("t", *place)) == truth[place]
            assert cache.tier.counted_bytes <= 124_000
    assert "viewcache-candidates" in asked
    assert_at_rest(store)
