"""A service with three clients under any sequence of reads, seats, damages, kills and stops, beside an owned cache.

The model is what a cache of this process gave: every batch of every client has those bytes, whatever was done between.
"""

import os
import random
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import viewcache
from tests.service.served import described, digest
from viewcache.api.port import TaskSeat
from viewcache.api.service import files
from viewcache.api.service.attached import AttachedCache
from viewcache.api.service.stopping import stop
from viewcache.errors import NotFound, SeatTaken

CLIENTS = 3
PLACES = [(epoch, iteration) for epoch in range(3) for iteration in range(5)]


class ServiceMachine(RuleBasedStateMachine):
    """Three clients of one service."""

    videos: Path
    truth: dict[tuple[int, int], str]

    def __init__(self) -> None:
        """A store of its own."""
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="viewcache-service-"))
        self.store = self.folder / "store"
        self.clients: list[AttachedCache | None] = [None] * CLIENTS
        self.seats: list[TaskSeat | None] = [None] * CLIENTS

    def client(self, number: int) -> AttachedCache:
        """A client, attached now if it was not."""
        known = self.clients[number]
        if known is None:
            cache: Any = viewcache.open(described(self.store, self.videos), service="auto")
            assert isinstance(cache, AttachedCache)
            known = self.clients[number] = cache
        return known

    @initialize()
    def begin(self) -> None:
        """Somebody starts the service."""
        self.client(0)

    @rule(number=st.integers(0, CLIENTS - 1), place=st.sampled_from(PLACES))
    def read_by_path(self, number: int, place: tuple[int, int]) -> None:
        """A batch, whole."""
        assert digest(self.client(number).read("train", *place)) == self.truth[place]

    @rule(number=st.integers(0, CLIENTS - 1), place=st.sampled_from(PLACES))
    def read_from_a_seat(self, number: int, place: tuple[int, int]) -> None:
        """The same as a training reads; one process has the seat at a time."""
        seat = self.seats[number]
        if seat is None and any(self.seats):
            return
        try:
            seat = self.seats[number] = seat or self.client(number).task("train").sit()
            batch = seat.read(*place)
        except SeatTaken:  # the service was killed, and another client that had no seat before sat down first
            self.seats[number] = None
            return
        assert batch is not None
        assert digest(batch) == self.truth[place]

    @rule(number=st.integers(0, CLIENTS - 1))
    def rise(self, number: int) -> None:
        """A loop ends."""
        seat = self.seats[number]
        if seat is not None:
            seat.rise()
            self.seats[number] = None

    @rule(number=st.integers(0, CLIENTS - 1))
    def close(self, number: int) -> None:
        """A client goes."""
        cache = self.clients[number]
        if cache is not None:
            cache.close()
            self.clients[number] = self.seats[number] = None

    @rule(how=st.sampled_from(["kill", "stop"]))
    def end_the_service(self, how: str) -> None:
        """It dies, or ends after what is under way."""
        with suppress(NotFound):
            stop(self.store, now=how == "kill")

    @rule(seed=st.integers(0, 2**16))
    def damage(self, seed: int) -> None:
        """A byte of a stored object is another one, or the object is gone."""
        shards = sorted(self.store.glob("objects/*/*/c*"))
        if shards:
            shard = random.Random(seed).choice(shards)
            if seed % 3:
                data = bytearray(shard.read_bytes())
                data[seed % len(data)] ^= 0x55
                shard.write_bytes(bytes(data))
            else:
                shutil.rmtree(shard.parent)

    @rule(number=st.integers(0, CLIENTS - 1))
    def a_worker_is_killed(self, number: int) -> None:
        """One of the service's workers dies."""
        pid = self.client(number).stats().pid
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split()[:1]:
                with suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)

    def teardown(self) -> None:
        """Everybody goes; what they held is back, and nothing is left of the service."""
        for number in range(CLIENTS):
            self.close(number)
        with suppress(NotFound):
            stop(self.store)
        assert files.connect(self.store, 1.0) is None
        shutil.rmtree(self.folder)


@pytest.fixture(scope="module")
def truth(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, int], str]:
    """What a cache of this process gives."""
    with viewcache.open(described(tmp_path_factory.mktemp("truth"), videos), service="off") as cache:
        return {place: digest(cache.read("train", *place)) for place in PLACES}


@pytest.mark.parametrize(
    ("examples", "steps"), [(4, 15), pytest.param(200, 50, marks=[pytest.mark.long, pytest.mark.timeout(5400)])]
)
def test_any_sequence(videos: Path, truth: dict[tuple[int, int], str], examples: int, steps: int) -> None:
    """Whatever is done, in whatever order."""
    machine = type("Machine", (ServiceMachine,), {"videos": videos, "truth": truth})
    limits = settings(max_examples=examples, stateful_step_count=steps, deadline=None, print_blob=True)
    run_state_machine_as_test(machine, settings=limits)
