"""A service begins with its first client, ends after its last, and comes back when it was killed; clients may die."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import viewcache
from tests.service.served import Opener, described, digest, ended, start, told
from tests.tiny import AUGMENTATION, single
from viewcache.api.config.documents import texts_of
from viewcache.api.service import answers, asks, files
from viewcache.api.service.attached import AttachedCache
from viewcache.api.service.client import Client
from viewcache.api.service.stopping import stop
from viewcache.errors import BadInput, CatalogBusy, ConfigError, NotFound, SeatTaken, ServiceDown, Timeout
from viewcache.testing.leaks import settle

READ = """
with viewcache.open(given, service="auto") as cache:
    print(json.dumps([cache.stats().pid, digest(cache.read("train", 0, 0))]))
"""

LOOP = """
with viewcache.open(given, service="auto") as cache:
    rank, world = int(sys.argv[2]), int(sys.argv[3])
    for batch in cache.loader("train", rank=rank, world=world, prefetch=1).all_epochs():
        print(json.dumps(batch["index"].tolist()), flush=True)
        if sys.stdin.readline() != "on\\n":
            break
print(json.dumps("end"))
"""

PASSES = """
with viewcache.open(given, service="auto") as cache:
    loader = cache.loader("train")
    for epoch in range(3):
        for batch in loader:
            pass
        print(json.dumps(epoch), flush=True)
        sys.stdin.readline()
"""

ONE_BATCH = """
from viewcache.errors import SeatTaken
with viewcache.open(given, service="auto") as cache:
    try:
        print(json.dumps(next(iter(cache.loader("train")))["index"].tolist()))
    except SeatTaken as taken:
        print(json.dumps(str(taken)))
"""


def say(process: "subprocess.Popen[str]", word: str = "on") -> None:
    """Let a loop go on with its next batch, or end it by another word."""
    assert process.stdin is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()


@pytest.fixture
def given(store: Path, videos: Path) -> dict[str, object]:
    """A configuration."""
    return described(store, videos)


@pytest.fixture
def loops(given: dict[str, object]) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts processes that train; what is left of them is ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(rank: int = 0, world: int = 1) -> "subprocess.Popen[str]":
        started.append(start(LOOP, given, str(rank), str(world)))
        return started[-1]

    yield begin
    for each in started:
        each.kill()
        each.communicate()


def pid_of(store: Path) -> int:
    """The process that serves."""
    facts = files.read_facts(store)
    assert facts is not None
    return facts.pid


def running(pid: int) -> list[int]:
    """The process, if it runs; a zombie does not."""
    try:
        return [] if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX" else [pid]
    except OSError:
        return []


def states(pid: int) -> list[str]:
    """Of the threads of a process: ``T`` of those that are stopped."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [(each / "stat").read_text().rpartition(")")[2].split()[0] for each in threads]


def test_processes_that_open_at_once_share_one_service(given: dict[str, object]) -> None:
    """Nobody is first: six processes race, one service serves all of them, and all read the same."""
    racing = [start(READ, given) for _ in range(6)]
    answers = [ended(each) for each in racing]
    assert len({str(each) for each in answers}) == 1


def test_it_ends_when_nobody_needs_it(store: Path, videos: Path, attach: Opener) -> None:
    """After the idle time; the store is then free for an owner, and the next process starts another."""
    first = attach(cache={"service_idle": 0})
    pid = first.stats().pid
    assert os.getsid(pid) == pid, "in a session of its own"
    first.close()
    assert not settle(lambda: running(pid))
    assert not (store / files.SOCKET).exists()
    with viewcache.open(described(store, videos), service="off") as owner:
        assert owner.read("train", 0, 0).video.shape == (4, 4, 3, 32, 32)
    assert attach(cache={"service_idle": 0}).stats().pid != pid


def test_a_killed_service_comes_back(attach: Opener, store: Path) -> None:
    """Between any two batches: the loop goes on as if nothing had been, by the next question."""
    cache = attach()
    truth = [digest(cache.read("train", epoch, i)) for epoch in range(3) for i in range(5)]
    read = []
    seat = cache.task("train").sit()
    for number in range(15):
        if number % 4 == 1:
            os.kill(pid_of(store), signal.SIGKILL)
        batch = seat.read(*divmod(number, 5))
        assert batch is not None
        read.append(digest(batch))
    assert read == truth
    assert cache.stats().clients[0].seats[0].epoch == 3


def test_a_service_that_is_stopped_is_started_again_by_who_goes_on(attach: Opener, store: Path) -> None:
    """`viewcache stop` ends it after what is under way; a client that goes on has lost nothing."""
    cache = attach()
    before = digest(cache.read("train", 0, 0))
    pid = stop(store)
    assert not running(pid)
    assert digest(cache.read("train", 0, 0)) == before
    assert cache.stats().pid != pid
    cache.close()
    stop(store)
    with pytest.raises(NotFound, match="no service runs"):
        stop(store)


def others(cache: AttachedCache) -> list[int]:
    """The other processes that use the service."""
    return [each.pid for each in cache.stats().clients if each.pid != os.getpid()]


@pytest.mark.parametrize("how", ["kill", "end"])
def test_a_client_that_ends_gives_back_its_seat(
    attach: Opener, loops: Callable[..., "subprocess.Popen[str]"], how: str
) -> None:
    """However it ends: its seat is free, and nothing more is made ahead for it."""
    cache = attach()
    loop = loops()
    told(loop)
    (client,) = [each for each in cache.stats().clients if each.pid == loop.pid]
    assert [(seat.task, seat.rank) for seat in client.seats] == [("train", 0)]
    with pytest.raises(SeatTaken, match=f"is process {loop.pid} .* already, since"):
        cache.task("train").sit()
    if how == "kill":
        loop.kill()
    else:
        say(loop, "enough")
    assert not settle(lambda: others(cache))
    assert cache.task("train").sit().read(0, 0) is not None


def test_a_client_whose_child_lives_on_is_gone_all_the_same(attach: Opener, given: dict[str, object]) -> None:
    """A forked child keeps the connections of its parent: the parent's end is told by the process itself."""
    body = """
import os, signal, time
cache = viewcache.open(given, service="auto")
seat = cache.task("train").sit()
seat.read(0, 0)
child = os.fork()
if not child:
    time.sleep(60)
print(json.dumps(child), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    cache = attach()
    parent = start(body, given)
    child = told(parent)
    assert isinstance(child, int)
    try:
        assert not settle(lambda: others(cache))
        assert running(child)
        assert cache.task("train").sit().read(0, 0) is not None
    finally:
        os.kill(child, signal.SIGKILL)
        parent.communicate()


def test_workers_of_a_training_that_was_killed_are_waited_for(attach: Opener, given: dict[str, object]) -> None:
    """They end some seconds after it, as those of torch do; who begins the training again at once gets its seat."""
    body = """
import os, signal, time
cache = viewcache.open(given, service="auto")
cache.read("train", 0, 0)
trainer, (reading, writing) = os.getpid(), os.pipe()
if not os.fork():
    seat = cache.task("train").sit()
    seat.read(0, 0)
    os.write(writing, b".")
    while os.getppid() == trainer:
        time.sleep(0.05)
    time.sleep(4)
    os._exit(0)
os.read(reading, 1)
print(json.dumps(trainer), flush=True)
time.sleep(60)
"""
    trainer = start(body, given)
    assert told(trainer) == trainer.pid
    cache = attach()  # not before: what a client has begun belongs to its training
    with pytest.raises(SeatTaken):
        cache.task("train").sit()
    trainer.kill()
    trainer.wait()
    assert cache.task("train").sit().read(0, 0) is not None
    trainer.communicate()


def test_a_fork_says_hello_for_itself(attach: Opener, given: dict[str, object]) -> None:
    """A child of a fork reads through connections of its own; those of its parent stay as they are."""
    body = """
import os
cache = viewcache.open(given, service="auto")
before = digest(cache.read("train", 0, 0))
reading, writing = os.pipe()
if not os.fork():
    os.write(writing, digest(cache.read("train", 0, 0)).encode())
    os._exit(0)
os.wait()
child = os.read(reading, 100).decode()
print(json.dumps([before, child, digest(cache.read("train", 0, 0))]))
cache.close()
"""
    cache = attach()
    digests = ended(start(body, given))
    assert digests == [digest(cache.read("train", 0, 0))] * 3


def test_two_ranks_in_two_processes_share_each_batch(loops: Callable[..., "subprocess.Popen[str]"]) -> None:
    """Each video comes once an epoch over both; the slower one keeps what it needs."""
    fast, slow = loops(0, 2), loops(1, 2)
    read: list[list[int]] = [[], []]
    for _ in range(5):
        found = told(fast)
        assert isinstance(found, list)
        read[0] += found
        say(fast)
    for _ in range(5):
        found = told(slow)
        assert isinstance(found, list)
        read[1] += found
        say(slow)
    assert sorted(read[0] + read[1]) == sorted(2 * sorted({*read[0], *read[1]})), "ten videos, two samples each"
    assert len({*read[0], *read[1]}) == 10


def test_ranks_of_another_training_are_refused(attach: Opener, loops: Callable[..., "subprocess.Popen[str]"]) -> None:
    """A task has one training at a time: another number of ranks does not belong to it."""
    told(loops(0, 2))
    with pytest.raises(SeatTaken, match="read by 2 ranks of 1 workers, one of which is process"):
        attach().task("train").sit(0, 1)


def test_a_training_keeps_its_seat_between_epochs(given: dict[str, object]) -> None:
    """While it validates another process is told of it; when it has read all of its epochs its seat is free."""
    training = start(PASSES, given)
    try:
        for epoch in range(3):
            assert told(training) == epoch
            answer = ended(start(ONE_BATCH, given))
            if epoch < 2:
                assert f"rank 0 of 1 of task 'train' is process {training.pid} " in str(answer)
                say(training)
            else:
                assert isinstance(answer, list)
    finally:
        training.kill()
        training.communicate()


def test_processes_of_a_training_take_turns_on_its_seats(given: dict[str, object]) -> None:
    """One that was forked reads on where the first has read an epoch, as the workers of a DataLoader do."""
    body = """
import os, signal
cache = viewcache.open(given, service="auto")
seen, children = [], []
for epoch in range(3):
    reading, writing = os.pipe()
    children.append(os.fork())
    if not children[-1]:
        loader = cache.loader("train", epochs=epoch + 1)
        loader.load_state_dict({**loader.state_dict(), "epoch": epoch}) if epoch else None
        os.write(writing, json.dumps([batch["epoch"] for batch in loader]).encode())
        signal.pause()
    seen.append(json.loads(os.read(reading, 1000)))
for child in children:
    os.kill(child, signal.SIGKILL)
print(json.dumps(seen))
"""
    assert ended(start(body, given)) == [[epoch] * 5 for epoch in range(3)]


def test_attach_starts_nothing(store: Path, videos: Path) -> None:
    """Where no service runs the error says how one is started."""
    with pytest.raises(ServiceDown, match=r"no service runs for .*: start one by `viewcache serve`"):
        viewcache.open(described(store, videos), service="attach")
    assert not store.exists() or not (store / files.SOCKET).exists()


def test_an_owner_is_told_of_the_service_and_the_other_way_round(attach: Opener, store: Path, videos: Path) -> None:
    """One owner at a time, whoever it is."""
    cache = attach()
    with pytest.raises(CatalogBusy, match=f"owned by process {cache.stats().pid}, which is the service") as busy:
        viewcache.open(described(store, videos), service="off")
    assert f"`viewcache stop {store}` ends it, and no work is lost" in str(busy.value)
    assert f"it is used by process {os.getpid()} (" in str(busy.value)
    assert "Or read through it: service: auto" in str(busy.value)
    cache.close()
    stop(store)
    with viewcache.open(described(store, videos), service="off"), pytest.raises(CatalogBusy, match="owned by process"):
        attach()


@pytest.mark.parametrize("key", ["epochs_per_generation", "seed"])
def test_settings_that_paths_depend_on_must_be_the_same(attach: Opener, key: str) -> None:
    """The error names the key and both values; the service serves on."""
    cache = attach()
    with pytest.raises(ConfigError, match=f"cache.{key} is 3, but the cache is open with"):
        attach(cache={key: 3})
    assert cache.read("train", 0, 0).video.shape == (4, 4, 3, 32, 32)


def test_a_joiner_brings_no_code(attach: Opener, store: Path, videos: Path, tmp_path: Path) -> None:
    """Modules of operations are those of who started the service; no other is imported by it."""
    cache = attach()
    module = tmp_path / "joined_ops.py"
    module.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    client = Client(store, texts_of(described(store, videos)), may_start=False)
    document = texts_of({"cache": {"store": str(store), "op_modules": ["joined_ops"]}})[0]
    ask = asks.Join((asks.Document(document.name, document.folder, document.text),), "")
    with pytest.raises(ConfigError, match=r"cache\.op_modules is a list of 1, but the cache is open with none"):
        client.ask(answers.Joined, ask)
    client.close()
    assert not (tmp_path / "ran").exists()
    assert cache.read("train", 0, 0).video.shape == (4, 4, 3, 32, 32)


def test_other_settings_stay_as_they_are(attach: Opener, store: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And a warning says so, in the log too: which key, both values, and what ends it."""
    first = attach(cache={"budget": "50MB"})
    assert not first.warnings
    assert "stays until" not in caplog.text
    later = attach(cache={"workers": 2, "budget": "60MB", "service_idle": 77})
    until = f"which stays until `viewcache stop {store}`"
    assert sorted(later.warnings) == [
        f"cache.budget is 60 MB in the configuration, but the running service has 50 MB, {until}",
        f"cache.service_idle is 77 in the configuration, but the running service has 10, {until}",
        f"cache.workers is 2 in the configuration, but the running service has 1, {until}",
    ]
    assert sorted(each.message for each in caplog.records if each.name == "viewcache.service") == sorted(later.warnings)
    closer = attach(cache={"budget": 50_000_001})
    assert closer.warnings == (
        f"cache.budget is 50000001 bytes in the configuration, but the running service has 50000000 bytes, {until}",
    )


def test_settings_of_tiers_are_compared_too(attach: Opener, store: Path) -> None:
    """Of a list of tiers each budget, and how its bytes are compressed."""
    attach(cache={"store": [{"url": "memory://", "budget": "2MB"}, {"url": str(store)}]})
    tiers = [{"url": "memory://", "budget": "3MB"}, {"url": str(store), "codec": "raw"}]
    later = attach(cache={"store": tiers, "budget": "40MB"})
    told = [each.partition(",")[0] for each in later.warnings]
    assert sorted(told) == [
        "cache.budget is 40 MB in the configuration",
        "cache.store.local.codec is raw in the configuration",
        "cache.store.memory.budget is 3 MB in the configuration",
    ]


def test_a_task_that_is_open_must_be_the_same(attach: Opener) -> None:
    """Two programs with one tag and different YAML: the second is refused, a task of another tag joins."""
    cache = attach()
    with pytest.raises(ConfigError, match=r"'train' is open with another definition, .*: give this one another tag"):
        attach(sampling={"frames_per_video": 8})
    with pytest.raises(ConfigError, match=r"another definition, .*: close it there first \(`viewcache stop .*alpha"):
        attach(augmentation=[*AUGMENTATION, single({"mixup": 0.4}, of="a", into="b")])
    with pytest.raises(ConfigError, match="is open with 3 epochs, here it has 9"):
        attach(epochs=9)
    other = attach(tag="val", epochs=1)
    assert other.tasks == ("val",)
    assert cache.task("val").epochs == 1


@pytest.mark.parametrize("settings", [{"epochs": 9}, {"cache": {"budget": "30MB"}}], ids=str)
def test_a_service_that_nobody_uses_makes_way(attach: Opener, settings: dict[str, Any]) -> None:
    """Who comes within its idle time with another configuration gets what that says; with the same one it stays."""
    first = attach()
    pid = first.stats().pid
    first.close()
    same = attach()
    assert same.stats().pid == pid
    same.close()
    later = attach(**settings)
    assert not later.warnings
    assert later.stats().pid != pid
    assert not running(pid)
    assert later.task("train").epochs == settings.get("epochs", 3)
    assert later.snapshot().tiers["local"].budget == (30_000_000 if "cache" in settings else 50_000_000)


@pytest.mark.parametrize("settings", [{"epochs": 9}, {"cache": {"budget": "30MB"}}], ids=str)
def test_who_is_leaving_is_not_counted(
    attach: Opener, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a client says last may be heard after the next one has come with another configuration."""
    monkeypatch.setattr("viewcache.api.service.client.LEAVING_S", 30.0)
    first = attach()
    pid = first.stats().pid
    leaves = threading.Timer(0.1, first.close)
    leaves.start()
    later = attach(**settings)
    leaves.join()
    assert not later.warnings
    assert later.stats().pid != pid


def test_what_cannot_be_opened_is_told_to_who_starts(store: Path, tmp_path: Path, videos: Path) -> None:
    """Errors of the service's start, and of a task that is not to be had, come as they would in this process."""
    with pytest.raises(viewcache.ViewcacheError) as missing:
        viewcache.open(described(store, tmp_path / "nowhere"), service="auto")
    with pytest.raises(viewcache.ViewcacheError) as same:
        viewcache.open(described(tmp_path / "own", tmp_path / "nowhere"), service="off")
    assert type(missing.value) is type(same.value)
    assert str(missing.value) == str(same.value)
    with pytest.raises(
        BadInput, match=r"VIEWCACHE_SERVICE='maybe'|service='maybe': who owns the store is one of auto, off"
    ):
        viewcache.open(described(store, videos), service="maybe")


def test_a_service_that_hangs_is_told_of(attach: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that says nothing at all, not even that the work goes on, is named with what ends it; it may go on later."""
    cache = attach()
    before = digest(cache.read("train", 0, 0))
    monkeypatch.setattr("viewcache.api.service.asking.SILENT_S", 1.0)
    pid = cache.stats().pid
    os.kill(pid, signal.SIGSTOP)
    try:
        assert not settle(lambda: [state for state in states(pid) if state != "T"]), "until then it may still answer"
        with pytest.raises(Timeout, match=f"the service, process {pid}, has said nothing for 1 s.*stop --now"):
            cache.read("train", 0, 0)
    finally:
        os.kill(pid, signal.SIGCONT)
    monkeypatch.undo()
    assert digest(cache.read("train", 0, 0)) == before


def test_a_service_that_is_ending_is_waited_for(attach: Opener, store: Path) -> None:
    """Who comes while the last one lets go of the store starts the next one as soon as that has."""
    cache = attach()
    before = digest(cache.read("train", 0, 0))
    for _ in range(3):
        os.kill(pid_of(store), signal.SIGTERM)
        assert digest(cache.read("train", 0, 0)) == before


def test_a_store_that_is_deleted_ends_its_service(attach: Opener, store: Path) -> None:
    """Nobody serves what is not there; what is left of it does not come back."""
    cache = attach()
    pid = cache.stats().pid
    cache.close()
    store.rename(store.with_name("gone"))
    assert not settle(lambda: running(pid))


def test_a_long_path_is_reached(tmp_path: Path, videos: Path) -> None:
    """A socket's address has 107 bytes; folders of clusters and tests have more."""
    store = tmp_path / ("d" * 90) / ("e" * 90)
    store.mkdir(parents=True)
    with viewcache.open(described(store, videos), service="auto") as cache:
        assert cache.read("train", 0, 0).video.shape == (4, 4, 3, 32, 32)
    stop(store)


def test_the_service_is_free_of_its_starter(given: dict[str, object], store: Path) -> None:
    """It has no core, no variable and no stream of the rank that happened to be first."""
    body = """
import os
os.sched_setaffinity(0, [0])
os.environ.update(OMP_NUM_THREADS="1", RANK="3", RAY_JOB_ID="x")
with viewcache.open(given, service="auto") as cache:
    print(json.dumps(cache.stats().pid))
"""
    pid = ended(start(body, given))
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert not [each for each in environment if each.startswith((b"OMP_", b"RANK=", b"RAY_"))]
    assert isinstance(pid, int)
    assert len(os.sched_getaffinity(pid)) == os.cpu_count()
    assert os.readlink(f"/proc/{pid}/fd/1") == str(store / files.LOG)
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert stop(store) == pid
