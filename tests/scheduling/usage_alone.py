"""What a process takes of cores, against what the kernel counted for it: run by `test_usage` in a process of its own.

In one that has run other tests, threads and children of these would be counted too.
"""

import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import viewcache
from tests.scheduling.test_usage import EPOCHS, TAKEN, burn, six_clips
from tests.tiny import config, pixels
from viewcache.api.queries.ask import ask
from viewcache.api.session.cache import Cache
from viewcache.materializer.clock import OTHER
from viewcache.materializer.telemetry.power import Rapl
from viewcache.materializer.telemetry.usage import PLANNER, READER, SERVE, WORKER, Usage


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those of `test_usage`."""
    return six_clips(tmp_path_factory.mktemp("usage"))


def core_s(who: int) -> float:
    """Core seconds of this process, or of its children that have ended."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


@pytest.mark.usefixtures("spawned")
@pytest.mark.parametrize("kind", ["processes", "threads"])
def test_all_core_seconds_are_counted(tmp_path: Path, videos: Path, kind: str) -> None:
    """The sum of all rows is within 5 % of what the kernel counted for this process and its workers, of a short run."""
    described = config(
        tmp_path / "store",
        videos,
        cache={"workers": 2, "worker_kind": kind, "budget": "500MB", "epochs_per_generation": 1},
        sampling={"frames_per_video": 16},
        epochs=EPOCHS,
    )
    with viewcache.open(config(tmp_path / "before", videos, epochs=1)):
        pass  # what is imported by an opening is imported by now
    begun = core_s(resource.RUSAGE_SELF)
    with viewcache.open(described) as cache:
        assert isinstance(cache, Cache)
        children = core_s(resource.RUSAGE_CHILDREN)  # those that read headers have ended
        pixels(cache)
        assert cache.owner.dispatcher is not None
        assert cache.owner.dispatcher.wait_idle(60)  # then nobody has more to say
        busy = cache.busy_seconds()
    taken = core_s(resource.RUSAGE_SELF) - begun + core_s(resource.RUSAGE_CHILDREN) - children
    found = ask(str(tmp_path / "store"), TAKEN).dicts()
    assert sum(float(str(row["cpu_s"])) for row in found) == pytest.approx(taken, rel=0.05)
    by_stage = {(row["class"], row["stage"]): row for row in found}
    assert {stage for kind, stage in by_stage if kind == WORKER} == {*busy, OTHER}
    assert {(READER, "load"), (READER, OTHER), (PLANNER, "catalog"), (PLANNER, "dispatch")} <= by_stage.keys()
    decoding = by_stage[WORKER, "decode"]
    assert decoding["wall_s"] == pytest.approx(busy["decode"])
    assert float(str(decoding["joules"])) == pytest.approx(5 * float(str(decoding["cpu_s"])))
    assert {row["source"] for row in found} == {"estimate"}


@pytest.fixture
def helper() -> Iterator[threading.Thread]:
    """A thread by one of the names of the cache's own, that works a little and waits."""
    done, ending = threading.Event(), threading.Event()

    def work() -> None:
        burn(0.1)
        done.set()
        ending.wait()

    thread = threading.Thread(target=work, name="viewcache-planner_0")
    thread.start()
    done.wait()
    yield thread
    ending.set()
    thread.join()


@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="this kernel does not count by threads")
def test_threads_of_ones_own_are_told_apart(helper: threading.Thread) -> None:
    """What is charged to a thread, a reader or a worker inside is no more in the rest; the rest never shrinks."""
    usage = Usage(serves=True, workers_inside=True, meter=Rapl(Path("nowhere")))
    found = usage.cpu_s()
    assert found[PLANNER, "plan"] == pytest.approx(0.1, abs=0.03)
    assert sum(found.values()) == pytest.approx(time.process_time(), abs=0.05)
    usage.charge(WORKER, {"decode": 1e-3}, {"decode": 2e-3})
    usage.charge(READER, {"load": 1e-3}, {"load": 1.0, "wait": 2.0})
    burn(0.05)
    more = usage.cpu_s()
    assert sum(more.values()) == pytest.approx(time.process_time(), abs=0.05)
    usage.charge(WORKER, {"decode": 1e6}, {})
    assert usage.cpu_s()[PLANNER, SERVE] == more[PLANNER, SERVE]
    assert helper.is_alive()
