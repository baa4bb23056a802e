"""Several trainings of one task: an order of each one's own, and one decode for all of them."""

import sys
import threading
import time
import types
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import viewcache
from tests.service.served import Opener, described, digest, start, told
from viewcache.api.config.load import load
from viewcache.api.service.attached import AttachedCache
from viewcache.api.service.attached_task import AttachedSeat
from viewcache.api.service.jobs import current_job, of_job
from viewcache.api.service.retiring import GRACE_S, Retiring
from viewcache.api.service.sessions import Session
from viewcache.api.service.stopping import stop
from viewcache.api.session.cache import Cache
from viewcache.errors import BadInput, ViewNotFound
from viewcache.materializer.dataset.dataset import Dataset
from viewcache.materializer.reading.batch import Batch
from viewcache.materializer.tasks.outline import Outline
from viewcache.materializer.tasks.planner import Planner
from viewcache.testing.leaks import settle

EPOCHS, BATCHES = 3, 5


def job(store: Path, videos: Path, name: str) -> AttachedCache:
    """A cache of one job."""
    cache: object = viewcache.open(described(store, videos), service="auto", job=name)
    assert isinstance(cache, AttachedCache)
    return cache


def in_step(caches: list[AttachedCache]) -> list[list[tuple[str, ...]]]:
    """The videos that each of some jobs reads, batch by batch, at one pace."""
    read: list[list[tuple[str, ...]]] = [[] for _ in caches]
    seats = [cache.task("train").sit() for cache in caches]
    for number in range(EPOCHS * BATCHES):
        for seat, mine in zip(seats, read, strict=True):
            batch = seat.read(*divmod(number, BATCHES))
            assert batch is not None
            mine.append(batch.videos)
    return read


def packets_of(cache: AttachedCache) -> int:
    """Packets decoded so far; what a video took is counted when its job ends, and the last clip is read before that."""
    assert not settle(lambda: list(range(cache.snapshot().jobs_running)))
    return cache.snapshot().work["packets"]


def test_four_equal_jobs_decode_what_one_does(tmp_path: Path, store: Path, videos: Path) -> None:
    """At one pace: each has every video once an epoch, and no packet is decoded for it alone."""
    counts = []
    for root, names in ((tmp_path / "one", ["a"]), (store, ["a", "b", "c", "d"])):
        caches = [job(root, videos, name) for name in names]
        for mine in in_step(caches):
            for epoch in range(EPOCHS):
                seen = Counter(name for batch in mine[epoch * BATCHES : (epoch + 1) * BATCHES] for name in batch)
                assert sorted(seen.values()) == [2] * 10
        counts.append(packets_of(caches[0]))
        for cache in caches:
            cache.close()
        stop(root)
    assert counts[0] == counts[1] > 0


def test_a_job_has_the_names_of_its_tasks_to_itself(store: Path, videos: Path, attach: Opener) -> None:
    """`train` is the job's own here, and at the service has its name; a seat of one is no seat of another."""
    base, trial = attach(), job(store, videos, "trial-1")
    assert (trial.tasks, trial.task("train").name) == (("train",), "train.trial-1")
    assert base.task("train").name == "train"
    seats = [cache.task("train").sit() for cache in (base, trial)]
    assert all(seat.read(0, 0) is not None for seat in seats)
    assert sorted(seat.task for each in base.stats().clients for seat in each.seats) == ["train", "train.trial-1"]
    again = job(store, videos, "trial-1")
    assert again.read("train", 1, 2).keys == trial.read("train", 1, 2).keys, "the same job, the same order"
    again.close()
    trial.close()


def test_ranks_of_tasks_that_draw_together(store: Path, videos: Path) -> None:
    """One process draws for all, so two processes may be the ranks of a job beside another: each video comes once."""
    body = """
with viewcache.open(given, service="auto", job=sys.argv[2]) as cache:
    rank, world = int(sys.argv[3]), int(sys.argv[4])
    batches = cache.loader("train", rank=rank, world=world).all_epochs()
    print(json.dumps([batch["index"].tolist() for batch in batches]), flush=True)
    sys.stdin.readline()
"""
    given = described(store, videos)
    processes = [start(body, given, *each) for each in (("x", "0", "2"), ("x", "1", "2"), ("y", "0", "1"))]
    answers = [told(each) for each in processes]
    for each in processes:
        each.communicate("end\n", timeout=60)
    first, second, alone = (each for each in answers if isinstance(each, list))
    for epoch in range(EPOCHS):
        places = range(epoch * BATCHES, (epoch + 1) * BATCHES)
        for shares in ([first[k] + second[k] for k in places], [alone[k] for k in places]):
            assert sorted(Counter(number for share in shares for number in share).values()) == [2] * 10


def test_the_job_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given comes first, then the environment, then the trial of a search; else there is none."""
    assert current_job() == ""
    tune = types.ModuleType("ray.tune")
    tune.get_context = lambda: types.SimpleNamespace(get_trial_id=lambda: "1a2b_00001")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray.tune", tune)
    assert current_job() == "1a2b_00001"
    monkeypatch.setenv("VIEWCACHE_JOB", "from-environment")
    assert current_job() == "from-environment"
    assert current_job("given") == "given"
    for bad in ("a/b", ".hidden", "x" * 65, "a b"):
        with pytest.raises(BadInput, match="at most 64 letters"):
            current_job(bad)


def test_an_owner_has_no_jobs(tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs share a cache; who owns it alone shares nothing, and would draw as the task whatever its job is called."""
    given = described(tmp_path / "own", videos)
    with pytest.raises(
        BadInput, match=r"^job='a': jobs share a cache through its service; set service: auto or attach$"
    ):
        viewcache.open(given, service="off", job="a")
    monkeypatch.setenv("VIEWCACHE_JOB", "b")
    with pytest.raises(BadInput, match=r"^VIEWCACHE_JOB='b': jobs share a cache .* attach, or unset it$"):
        viewcache.open(given, service="off")
    assert not (tmp_path / "own").exists()
    viewcache.open(given, service="off", job="").close()  # none, whatever the environment says


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_nothing_more_is_made_for_who_has_stopped(store: Path, videos: Path, how: str) -> None:
    """A second after a trial's end, as when ASHA stops it, the workers rest, though most of its plan is not made."""
    body = """
with viewcache.open(given, service="auto", job="trial") as cache:
    for batch in cache.loader("train").all_epochs():
        print(json.dumps(0), flush=True)
        if sys.stdin.readline() == "":
            break
"""
    epochs = 100
    given = described(store, videos, epochs=epochs, cache={"epochs_per_generation": epochs, "budget": "1GB"})
    trial = start(body, given)
    told(trial)
    watcher: Any = viewcache.open(given, service="attach")
    with watcher:
        if how == "killed":
            trial.kill()
        trial.communicate(timeout=60)
        counts = []
        for _ in range(2):
            time.sleep(1.0)  # the promise is one of seconds
            counts.append(watcher.snapshot().work["objects"])
    assert counts[0] == counts[1] < epochs * 20


def uses_of(cache: AttachedCache) -> dict[str, int]:
    """Task → how many clips the catalog says that it needs."""
    found = cache.sql("select task, count(*) as n from uses group by task").to_pylist()
    return {each["task"]: each["n"] for each in found}


def test_a_job_that_has_ended_is_closed(store: Path, videos: Path, attach: Opener) -> None:
    """Its tasks go with its last process: nothing is needed for it, its draws stay, and named again it goes on."""
    watching = attach()
    watching.read("train", 0, 0)
    with job(store, videos, "trial") as first, job(store, videos, "trial"):
        seat = first.task("train").sit()
        before = [digest(_read(seat, iteration)) for iteration in range(3)]
        first.close()  # another process of it goes on
        assert uses_of(watching)["train.trial"] > 0
        assert watching.task("train.trial").epochs == 3
    assert not settle(lambda: list(uses_of(watching).keys() - {"train"}))
    query = "select count(*) as n from draws where task = 'train.trial'"
    assert watching.sql(query)["n"].to_pylist() != [0]
    with pytest.raises(ViewNotFound, match=r"no task 'train\.trial'"):
        watching.read("train.trial", 0, 0)
    with job(store, videos, "trial") as again:
        seat = again.task("train").sit()
        assert [digest(_read(seat, iteration)) for iteration in range(3)] == before
        assert uses_of(watching)["train.trial"] > 0


def test_a_job_that_looked_at_another_one_is_closed(store: Path, videos: Path, attach: Opener) -> None:
    """It has read a batch of a job that is closed by now, and ends as a whole all the same."""
    watching, first, second = attach(), job(store, videos, "first"), job(store, videos, "second")
    first.read("train", 0, 0)
    second.read("train", 0, 0)
    second.read("train.first", 0, 1)
    first.close()
    assert not settle(lambda: list({"train.first"} & set(watching.snapshot().tasks)))
    second.close()
    assert not settle(lambda: list({"train.second"} & set(watching.snapshot().tasks)))


def test_a_job_that_ends_as_soon_as_it_began_is_closed(store: Path, videos: Path, attach: Opener) -> None:
    """It says goodbye while the service has just told it hello."""
    watching = attach()
    for number in range(20):
        job(store, videos, f"trial-{number}").close()
    assert not settle(lambda: [name for name in watching.snapshot().tasks if name != "train"])


def test_a_job_that_was_killed_is_waited_for(store: Path, videos: Path, attach: Opener) -> None:
    """What it needs stays needed until it is started again, or the service ends."""
    watching, given = attach(), described(store, videos)
    process = start(
        """
with viewcache.open(given, job="trial") as cache:
    seat = cache.task("train").sit()
    seat.read(0, 0)
    print("1", flush=True)
    sys.stdin.readline()
""",
        given,
    )
    told(process)
    process.kill()
    process.communicate()
    assert not settle(lambda: [each for each in watching.stats().clients if each.pid == process.pid])
    assert uses_of(watching)["train.trial"] > 0
    watching.close()
    stop(store)
    with viewcache.open(given, service="off") as owner:
        assert owner.sql("select count(*) as n from uses where task = 'train.trial'")["n"].to_pylist() == [0]


def test_when_a_job_is_over() -> None:
    """At once by its last process's goodbye, after ten minutes by its death, and not while others open tasks."""
    closed: list[str] = []
    busy: list[str] = []

    def retire(task: str) -> bool:
        if task not in busy:
            closed.append(task)
        return task not in busy

    retiring = Retiring(retire)
    one, other = Session(1, "a"), Session(2, "b")
    retiring.begin(one, ["t.x", "u.x"])
    retiring.begin(other, ["t.x"])
    retiring.end(one, at_once=True)
    assert closed == ["u.x"]
    retiring.end(other, at_once=False)
    retiring.look()
    assert closed == ["u.x"]
    retiring.look(time.monotonic() + GRACE_S + 1)
    assert closed == ["u.x", "t.x"]
    retiring.begin(one, ["t.y"])
    retiring.end(one, at_once=False)
    retiring.begin(other, ["t.y"])
    retiring.look(time.monotonic() + GRACE_S + 1)
    assert closed == ["u.x", "t.x"], "it was started again"
    busy.append("t.y")
    retiring.end(other, at_once=True)
    assert closed == ["u.x", "t.x"]
    busy.clear()
    retiring.look()
    assert closed == ["u.x", "t.x", "t.y"]


def _read(seat: AttachedSeat, iteration: int) -> Batch:
    batch = seat.read(0, iteration)
    assert batch is not None
    return batch


def test_one_more_job_looks_at_no_pair_of_others(store: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside twelve jobs it asks for the bytes of its own batch alone, and compares videos once for each job."""
    config, asked = load(described(store, videos)), Counter[str]()
    for kind, name in ((Dataset, "overlaps"), (Outline, "batch_bound")):
        monkeypatch.setattr(kind, name, _counted(getattr(kind, name), name, asked))
    with Cache(config, serves=True) as cache:
        for number in range(12):
            cache.owner.admit(of_job(config, f"j{number}"))
        cache.read("train.j3", 0, 0)  # from here on there are workers, who are told what to leave to readers
        asked.clear()
        cache.owner.admit(of_job(config, "last"))
        assert asked == {"overlaps": 13, "batch_bound": 1}
        assert cache.read("train.last", 0, 0) is not None


def _counted(function: Callable[..., Any], name: str, asked: Counter[str]) -> Callable[..., Any]:
    """The same function; its calls are counted."""

    def counted(*given: Any) -> Any:
        asked[name] += 1
        return function(*given)

    return counted


def test_one_more_job_waits_for_none_that_plans(store: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning may take seconds; what a job shares with those that are open is told only to whom it changes."""
    config, planning, enough = load(described(store, videos)), threading.Event(), threading.Event()
    plan_now = Planner.plan

    def plan_late(planner: Planner, *given: Any, **named: Any) -> Any:
        planning.set()
        enough.wait(60)
        return plan_now(planner, *given, **named)

    with Cache(config, serves=True) as cache:
        for name in ("a", "b"):
            cache.owner.admit(of_job(config, name))
        monkeypatch.setattr(Planner, "plan", plan_late)
        reading = threading.Thread(target=lambda: cache.read("train.a", 0, 0))
        joining = threading.Thread(target=lambda: cache.owner.admit(of_job(config, "c")))
        reading.start()
        try:
            assert planning.wait(60)
            joining.start()
            joining.join(30)
            assert not joining.is_alive()
        finally:
            enough.set()
            reading.join()
            joining.join()
