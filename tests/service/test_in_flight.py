"""The service is killed while each question is in flight: whoever asked goes on as if nothing had been.

A question is one that the service has received and that nobody has answered. The killed service has done nothing of it
yet, or all of it, and the client cannot tell which.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest

import viewcache
from tests.service.served import described, digest
from viewcache.api.service import asks, files
from viewcache.api.service.attached import AttachedCache
from viewcache.api.service.stopping import stop
from viewcache.errors import NotFound
from viewcache.failpoints import VARIABLE
from viewcache.materializer.reading.batch import Buffers
from viewcache.materializer.reading.values import FrameRequest
from viewcache.testing.leaks import settle

V1 = "cats.-v1"
"""Name of a video."""

EPOCHS = 60
"""So many that they are not made within half a second, after which `run` says for the first time how far it is."""

KEEP = {"keep": "leaves"}
"""How many clips are kept is then no question of measured rates, so that two caches give the same counts."""

VIDEOS = "select video from videos where video like '%.-%' order by 1"
"""Those of the task; another one's, which joins, have no folder."""

Given = dict[str, object]
Call = Callable[[], object]
"""What is under way when the service is killed; its answer is the same as of an undisturbed run."""


def _look(cache: AttachedCache, *place: int) -> str:
    return digest(cache.read("train", *(place or (0, 0))))


def _hello(_cache: AttachedCache, given: Given) -> Call:
    def call() -> object:
        with viewcache.open(given, service="auto") as other:
            return other.tasks, digest(other.read("train", 0, 0))

    return call


def _join(cache: AttachedCache, given: Given) -> Call:
    store, videos = Path(given["cache"]["store"]), Path(given["dataset"]["video_dataset_path"])  # type: ignore[index]
    other = described(store, videos / "cats", tag="other", epochs=1, labels=None, cache=KEEP)  # draws with nobody
    return lambda: (cache.join(other), digest(cache.read("other", 0, 0)))


def _leave(cache: AttachedCache, _given: Given) -> Call:
    _look(cache)

    def call() -> str:
        cache.leave("train")
        return _look(cache, 0, 1)

    return call


def _sit(cache: AttachedCache, _given: Given) -> Call:
    task = cache.task("train")
    return lambda: _read(task.sit(), 0, 0)


def _rise(cache: AttachedCache, _given: Given) -> Call:
    task = cache.task("train")
    seat = task.sit()
    _read(seat, 0, 0)

    def call() -> str:
        seat.rise()
        return _read(task.sit(epoch=0, iteration=1), 0, 1)

    return call


def _fetch(cache: AttachedCache, _given: Given) -> Call:
    seat = cache.task("train").sit()
    return lambda: [_read(seat, 0, 0), _read(seat, 0, 1)]


def _read(seat: Any, epoch: int, iteration: int) -> str:
    batch = seat.read(epoch, iteration)
    assert batch is not None
    return digest(batch)


class _NoMemory(Buffers):
    def take(self, shape: Sequence[int]) -> Any:
        raise MemoryError


def _drop(cache: AttachedCache, _given: Given) -> Call:
    task = cache.task("train")

    def call() -> str:
        with pytest.raises(MemoryError):
            task.read(0, 0, buffers=_NoMemory())
        return _look(cache)

    return call


def _of_cache(ask: Callable[[AttachedCache], object]) -> Callable[[AttachedCache, Given], Call]:
    """What is asked of the cache as a whole."""
    return lambda cache, _given: lambda: ask(cache)


def _of_task(ask: Callable[[Any], object]) -> Callable[[AttachedCache, Given], Call]:
    """What is asked of a task."""
    return _of_cache(lambda cache: ask(cache.task("train")))


def _end_make(cache: AttachedCache, _given: Given) -> Call:
    making = cache.materialize()
    next(making)
    return lambda: (making.close(), _look(cache))  # type: ignore[attr-defined]


def _stop(cache: AttachedCache, given: Given) -> Call:
    store = Path(given["cache"]["store"])  # type: ignore[index]
    pid = cache.stats().pid
    return lambda: (stop(store) == pid, _look(cache))


def _bye(cache: AttachedCache, given: Given) -> Call:
    def call() -> object:
        cache.close()
        with viewcache.open(given, service="auto") as again:
            return digest(again.read("train", 0, 0))

    return call


CALLS: dict[type[asks.Ask], Callable[[AttachedCache, Given], Call]] = {
    asks.Hello: _hello,
    asks.Line: _of_cache(lambda cache: cache.task("train").epochs),
    asks.Join: _join,
    asks.Leave: _leave,
    asks.About: _of_cache(lambda cache: cache.task("train").clip_shape),
    asks.Sit: _sit,
    asks.Rise: _rise,
    asks.Iterations: _of_task(lambda task: task.iterations(1)),
    asks.Positions: _of_task(lambda task: task.shape(0, 1)),
    asks.Fetch: _fetch,
    asks.Look: _of_cache(_look),
    asks.Done: _of_cache(lambda cache: [_look(cache), _look(cache, 0, 1)]),
    asks.Drop: _drop,
    asks.Recipes: _of_task(lambda task: task.recipes(0, 2)),
    asks.Describe: _of_task(lambda task: digest(task.describe(0, 2))),
    asks.Parts: _of_task(lambda task: task.parts),
    asks.PlannedAt: _of_task(lambda task: task.planned_at(0) == task.planned_at(0) > 0),
    asks.Version: _of_task(lambda task: str(task.version(0, 0)).rpartition("/")[2]),  # before it the service's own name
    asks.Video: _of_cache(lambda cache: cache.video("train", V1)),
    asks.Videos: _of_task(lambda task: [each.name for each in task.videos()]),
    asks.DescribeFrame: _of_task(lambda task: task.describe_frame(FrameRequest(V1, 3)).key),
    asks.Frames: _of_cache(lambda cache: cache.frame("train", V1, 3).tobytes()),
    asks.Make: _of_cache(lambda cache: list(cache.materialize(2))[-1]),
    asks.EndMake: _end_make,
    asks.Publish: _of_cache(lambda cache: cache.sql(VIDEOS).to_pylist()),
    asks.Stats: _of_cache(lambda cache: [(each.pid, each.held) for each in cache.stats().clients]),
    asks.Counters: _of_cache(lambda cache: sorted(cache.snapshot().tiers)),
    asks.Stop: _stop,
    asks.Bye: _bye,
}
"""By the verb that it sends: what a program does."""


UNANSWERED = {asks.Done, asks.Drop, asks.Rise, asks.Bye}

OFTEN = {asks.Hello, asks.Join, asks.Sit, asks.Fetch, asks.Look, asks.Done, asks.Make, asks.Stop, asks.Bye}
"""Those that every commit is tested with: a case starts two services, and what only asks for a fact is like a look."""


@pytest.fixture(scope="module")
def calm(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Given]:
    """A configuration whose service nobody kills."""
    store = tmp_path_factory.mktemp("calm") / "store"
    yield described(store, videos, epochs=EPOCHS, cache=KEEP)
    with suppress(NotFound):
        stop(store, now=True)


def attached(given: Given) -> AttachedCache:
    """A cache of the service."""
    cache: object = viewcache.open(given, service="auto")
    assert isinstance(cache, AttachedCache)
    return cache


CASES = [
    pytest.param(verb, when, id=f"{when}-{asks.verb_of(verb)}", marks=[] if often else pytest.mark.long)
    for verb in get_args(asks.ALL)
    for when in ("before", "after")
    if when == "before" or verb not in UNANSWERED
    for often in [verb in OFTEN and when == "before"]
]


def test_every_verb_has_its_call() -> None:
    """A verb that is new to the protocol is killed in flight, too."""
    assert set(CALLS) == set(get_args(asks.ALL))


@pytest.mark.parametrize(
    ("verb", "when"), CASES, ids=lambda part: part if isinstance(part, str) else asks.verb_of(part)
)
def test_a_service_is_killed_with_any_question_in_flight(
    store: Path, videos: Path, calm: Given, monkeypatch: pytest.MonkeyPatch, verb: type[asks.Ask], when: str
) -> None:
    """The call gives what an undisturbed run gives, after no more than another service's start."""
    prepare = CALLS[verb]
    with attached(calm) as undisturbed:
        truth = prepare(undisturbed, calm)()
    given = described(store, videos, epochs=EPOCHS, cache=KEEP)
    visit = 2 if verb is asks.Hello else 1
    with monkeypatch.context() as patch:  # only the first service dies
        patch.setenv(VARIABLE, f"service.{when}-{asks.verb_of(verb)}:{visit}:kill")
        began = time.monotonic()
        cache = attached(given)
        open_s = time.monotonic() - began
    with cache:
        facts = files.read_facts(store)
        assert facts is not None
        call = prepare(cache, given)
        assert files.is_there(facts), "nothing but the call itself asks this"
        began = time.monotonic()
        assert call() == truth
        took_s = time.monotonic() - began
    print(f"{when} {asks.verb_of(verb)}: open {open_s:.2f} s, call {took_s:.2f} s")
    assert not settle(lambda: [facts.pid] if files.is_there(facts) else []), "it was killed"
    assert took_s < 3 * open_s + 3
    with attached(given) as after, attached(calm) as undisturbed:
        for iteration in (1, 2):  # in order: what a reader skips is not made ahead, and the two would count other clips
            assert _look(after, 0, iteration) == _look(undisturbed, 0, iteration)
