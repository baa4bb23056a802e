"""An overview says what the catalog says, from any process, and looking changes nothing."""

import os
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import viewcache
from tests.page.conftest import BUDGET, HOSTILE, Used, described
from tests.scheduling.harness import until
from viewcache.api.config.find import locate
from viewcache.api.page import gather as gathering
from viewcache.api.page.gather import QUESTIONS, gather
from viewcache.api.page.overview import Overview, Verdict
from viewcache.api.page.watcher import LEAST_S, Watcher
from viewcache.api.queries.ask import Answer, ask, ask_all, question
from viewcache.api.service.attached import AttachedCache
from viewcache.errors import NotFound, QueryRefused


def look(store: Path) -> Overview:
    """An overview of the cache in a folder."""
    return gather(locate(str(store)))


def value(store: Path, sql: str) -> object:
    """What one SELECT gives."""
    return ask(str(store), sql).rows[0][0]


def test_every_number_is_the_catalogs(used: Used) -> None:
    """Tasks, tiers, objects, evictions, hits and errors are those that SQL gives."""
    found, store = look(used.store), used.store
    (task,) = found.tasks
    read = value(store, "select count(*) from uses where epoch < 3")
    assert (task.task, task.epochs, (task.epoch, task.iteration)) == ("train", 6, (3, 0))
    assert task.hits + task.misses == read
    assert task.iterations == value(store, "select max(iteration) + 1 from uses where epoch = 3")
    assert task.clips_to_come == value(store, "select count(*) from uses where epoch >= 3")
    assert task.reading_share is not None
    assert 0 < task.reading_share <= 1
    assert sum(each.seconds for each in task.waits) == pytest.approx(
        value(store, "select sum(seconds) from events where kind = 'stall'")
    )
    (tier,) = found.tiers
    assert (tier.tier, tier.budget_bytes) == ("local", BUDGET)
    assert tier.used_bytes == value(store, "select sum(bytes) from copies") == found.sample.used_bytes
    passed = "select coalesce(sum(n), 0) from io_samples where tier = 'passing' and op ="
    assert found.passed.made == value(store, f"{passed} 'store'")
    assert found.passed.read == value(store, f"{passed} 'load'")
    assert sum(each.objects for each in found.objects) == value(store, "select count(*) from objects")
    assert sum(each.objects for each in found.evictions) == value(store, "select count(*) from evictions")
    assert {each.reason for each in found.evictions} == {"evict"}
    assert [each.video_id for each in found.videos if HOSTILE in each.message]
    assert any("cannot be decoded" in each.message for each in found.videos)
    assert (found.source, found.owner, found.service, found.missing) == ("file", 0, None, {})


def test_history_loses_nothing(used: Used) -> None:
    """Each span has all that happened in it: here all, whatever the step."""
    found = look(used.store)
    evicted = sum(each.bytes for each in found.evictions)
    (task,) = found.tasks
    assert [span.span_s for span in found.spans] == [600, 7200, 86400]
    for span in found.spans:
        assert len(span.hits) == len(span.evicted_bytes) == span.span_s // span.step_s
        assert (sum(span.hits), sum(span.misses), sum(span.evicted_bytes)) == (task.hits, task.misses, evicted)
        assert sum(span.waited_s) + sum(span.loaded_s) == pytest.approx(
            sum(each.seconds for each in task.waits), abs=0.01
        )


def test_a_closed_cache_is_late_for_nobody(used: Used) -> None:
    """Nothing is being made, so only what is there is sure; the batches are the next ones, in their order."""
    due = look(used.store).due
    assert [(each.epoch, each.iteration, each.ahead) for each in due[:2]] == [(3, 0, 0), (3, 1, 1)]
    for each in due:
        assert each.verdict == (Verdict.READY if each.ready == each.clips else Verdict.UNKNOWN)


def test_beside_an_owner(tmp_path: Path, videos: Path) -> None:
    """The owner's snapshot is shown, with its process; its reader stays where it is."""
    store = tmp_path / "store"
    with viewcache.open(described(store, videos), service="off") as cache:
        cache.read("train", 0, 0)
        found = look(store)
        assert (found.source, found.owner) == ("snapshot", os.getpid())
        assert [(each.epoch, each.iteration) for each in found.tasks] == [(0, 1)]
        assert cache.sql("select epoch, iteration from progress").to_pylist() == [{"epoch": 0, "iteration": 1}]


def test_beside_a_service(attach: Callable[..., AttachedCache], tmp_path: Path) -> None:
    """Its clients are listed, and who looks is none of them."""
    cache = attach()
    seat = cache.task("train").sit()
    seat.read(0, 0)

    def seen() -> list[tuple[int, list[tuple[str, int]]]]:
        """The clients, and where they read: that a batch was read is told without waiting for an answer."""
        service = look(tmp_path / "store").service
        assert service is not None
        return [(each.pid, [(seat.task, seat.iteration) for seat in each.seats]) for each in service.clients]

    until(lambda: seen() == [(os.getpid(), [("train", 1)])], "the service knows that the batch was read")


def test_one_question_that_fails_leaves_the_others(used: Used, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its part is empty and says why; if none is answered, that is an error."""

    def one_bad(name: str) -> str:
        return "select nothing from nowhere" if name == "page_history" else question(name)

    few = {part: name for part, name in QUESTIONS.items() if part in ("tasks", "history")}
    monkeypatch.setattr(gathering, "QUESTIONS", few)
    monkeypatch.setattr(gathering, "question", one_bad)
    found = look(used.store)
    assert list(found.missing) == ["history"]
    assert "nowhere" in found.missing["history"]
    assert not found.spans
    assert found.tasks
    monkeypatch.setattr(gathering, "question", lambda name: "select nothing from nowhere")
    with pytest.raises(QueryRefused, match="nowhere"):
        look(used.store)


def test_questions_are_asked_at_once(used: Used, monkeypatch: pytest.MonkeyPatch) -> None:
    """All questions share one process, which is what a look costs."""
    asked: list[int] = []

    def counted(where: str, queries: list[str], parameters: Mapping[str, str]) -> list[Answer]:
        asked.append(len(queries))
        return ask_all(where, queries, parameters=parameters)

    monkeypatch.setattr(gathering, "ask_all", counted)
    look(used.store)
    assert asked == [len(QUESTIONS)]


class Clock:
    """Seconds that go on when they are told to."""

    def __init__(self) -> None:
        """Begin at a thousand."""
        self.now = 1000.0

    def __call__(self) -> float:
        """Now."""
        return self.now


def test_a_closed_cache_is_looked_at_once(used: Used) -> None:
    """What has not changed is not asked again, and has the same number, so that a page is told nothing new."""
    clock = Clock()
    watcher = Watcher(locate(str(used.store)), clock)
    first = watcher.latest()
    for _ in range(3):
        clock.now += 100
        watcher.latest()
        watcher.close()
    assert watcher.latest() is first
    watcher.close()


def test_a_change_is_seen_and_a_loss_is_told(used: Used, tmp_path: Path, videos: Path) -> None:
    """A cache that goes on is looked at again; one that was removed leaves what was seen, and why that is all."""
    store = tmp_path / "store"
    with viewcache.open(described(store, videos), service="off") as cache:
        cache.read("train", 0, 0)
    clock = Clock()
    watcher = Watcher(locate(str(store)), clock)
    first = watcher.latest()
    watcher.close()  # its look is over before the cache changes
    with viewcache.open(described(store, videos), service="off") as cache:
        cache.read("train", 0, 1)
    clock.now += 100
    watcher.latest()
    watcher.close()
    second = watcher.latest()
    assert second.number > first.number
    assert [task.iteration for task in second.overview.tasks] == [2]
    assert len(second.samples) == 2
    watcher.close()
    shutil.rmtree(store)
    clock.now += 100
    watcher.latest()
    watcher.close()
    third = watcher.latest()
    assert "no catalog" in third.problem
    assert third.overview is second.overview
    watcher.close()
    with pytest.raises(NotFound):
        Watcher(locate(str(store)))


@pytest.mark.parametrize(("wall_s", "cpu_s", "pause_s"), [(3.0, 0.5, 9.0), (1.0, 0.7, 7.0), (0.1, 0.1, LEAST_S)])
def test_looks_cost_little(
    used: Used, monkeypatch: pytest.MonkeyPatch, wall_s: float, cpu_s: float, pause_s: float
) -> None:
    """However many ask, one look goes on, and the next waits for ten times its CPU and three times its time."""
    clock, cpu, began = Clock(), Clock(), list[float]()
    gate = threading.Event()
    gate.set()

    def slow(*_: object) -> Overview:
        began.append(clock.now)
        gate.wait(60)
        clock.now += wall_s
        cpu.now += cpu_s
        return overview

    overview = look(used.store)
    monkeypatch.setattr("viewcache.api.page.watcher.gather", slow)
    monkeypatch.setattr("viewcache.api.page.watcher.owner_of", lambda _: 1)
    watcher = Watcher(locate(str(used.store)), clock, cpu)
    gate.clear()
    for _ in range(5):
        watcher.latest()  # one of them begins a look, and none waits for it
    gate.set()
    watcher.close()
    over = clock.now
    assert len(began) == 2
    clock.now = over + pause_s - 0.1
    watcher.latest()
    watcher.close()
    assert len(began) == 2
    clock.now = over + pause_s + 0.1
    watcher.latest()
    watcher.close()
    assert len(began) == 3
