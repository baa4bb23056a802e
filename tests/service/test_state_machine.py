"""A service with three client processes under any sequence of reads, seats, damages, kills and stops, beside an owner.

The model is what a cache of this process gave: every batch of every client has those bytes, whatever was done between.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import viewcache
from tests.service.served import described, digest, start, told
from viewcache.api.service import files
from viewcache.api.service.stopping import stop
from viewcache.errors import NotFound

CLIENT = """
cache = seat = None
for line in sys.stdin:
    verb, *of = json.loads(line)
    try:
        if verb == "open":
            cache, answer = viewcache.open(of[0], service="auto"), None
        elif verb == "close":
            cache, seat, answer = cache.close(), None, None
        elif verb == "look":
            answer = digest(cache.read("train", *of))
        elif verb == "read":
            seat = seat or cache.task("train").sit()
            answer = digest(seat.read(*of))
        elif verb == "rise":
            seat, answer = seat.rise(), None
        else:
            answer = cache.stats().pid
        print(json.dumps(["done", answer]), flush=True)
    except viewcache.ViewcacheError as error:
        seat = None
        print(json.dumps([error.kind, str(error)]), flush=True)
"""
"""A process that does what a line says, and answers with a line."""

CLIENTS = 3
PLACES = [(epoch, iteration) for epoch in range(3) for iteration in range(5)]


class ClientProcess:
    """A process of its own that reads; one that was killed is started again when it is asked something."""

    def __init__(self) -> None:
        """None runs yet."""
        self._process: subprocess.Popen[str] | None = None

    def ask(self, *words: object) -> object:
        """What it answers.

        Raises:
            PermissionError: the seat is another one's.
        """
        if self._process is None:
            self._process = start(CLIENT, {})
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        answer = told(self._process)
        assert isinstance(answer, list)
        kind, said = answer
        if kind == "seat_taken":
            raise PermissionError(said)
        assert kind == "done", said
        return said

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


class ServiceMachine(RuleBasedStateMachine):
    """Three clients of one service."""

    videos: Path
    truth: dict[tuple[int, int], str]
    processes: list[ClientProcess]

    def __init__(self) -> None:
        """A store of its own."""
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="viewcache-service-"))
        self.store = self.folder / "store"
        self.is_open = [False] * CLIENTS
        self.sits = [False] * CLIENTS

    def client(self, number: int) -> ClientProcess:
        """A client, attached now if it was not."""
        if not self.is_open[number]:
            self.processes[number].ask("open", described(self.store, self.videos))
            self.is_open[number] = True
        return self.processes[number]

    @initialize()
    def begin(self) -> None:
        """Somebody starts the service."""
        self.client(0)

    @rule(number=st.integers(0, CLIENTS - 1), place=st.sampled_from(PLACES))
    def read_by_path(self, number: int, place: tuple[int, int]) -> None:
        """A batch, whole."""
        assert self.client(number).ask("look", *place) == self.truth[place]

    @rule(number=st.integers(0, CLIENTS - 1), place=st.sampled_from(PLACES))
    def read_from_a_seat(self, number: int, place: tuple[int, int]) -> None:
        """The same as a training reads; one process has the seat at a time."""
        if not self.sits[number] and any(self.sits):
            return
        try:
            found = self.client(number).ask("read", *place)
        except PermissionError:  # the service was killed, and another client that had no seat before sat down first
            self.sits[number] = False
            return
        self.sits[number] = True
        assert found == self.truth[place]

    @rule(number=st.integers(0, CLIENTS - 1))
    def rise(self, number: int) -> None:
        """A loop ends."""
        if self.sits[number]:
            self.processes[number].ask("rise")
            self.sits[number] = False

    @rule(number=st.integers(0, CLIENTS - 1))
    def close(self, number: int) -> None:
        """A client goes."""
        if self.is_open[number]:
            self.processes[number].ask("close")
            self.is_open[number] = self.sits[number] = False

    @rule(number=st.integers(0, CLIENTS - 1))
    def a_client_is_killed(self, number: int) -> None:
        """Its seat is free for whoever sits down next."""
        self.processes[number].kill()
        self.is_open[number] = self.sits[number] = False

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
        pid = self.client(number).ask("stats")
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread, or its child, has ended meanwhile
                for child in (task / "children").read_text().split()[:1]:
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


@pytest.fixture
def processes() -> Iterator[list[ClientProcess]]:
    """Three processes, which last as long as nobody kills them."""
    made = [ClientProcess() for _ in range(CLIENTS)]
    yield made
    for each in made:
        each.kill()


@pytest.mark.parametrize(
    ("examples", "steps"), [(4, 15), pytest.param(200, 50, marks=[pytest.mark.long, pytest.mark.timeout(5400)])]
)
def test_any_sequence(
    videos: Path, truth: dict[tuple[int, int], str], processes: list[ClientProcess], examples: int, steps: int
) -> None:
    """Whatever is done, in whatever order."""
    machine = type("Machine", (ServiceMachine,), {"videos": videos, "truth": truth, "processes": processes})
    limits = settings(max_examples=examples, stateful_step_count=steps, deadline=None, print_blob=True)
    run_state_machine_as_test(machine, settings=limits)
