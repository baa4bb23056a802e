"""What a cache takes of cores and energy: all of it is counted, to its class and stage, and kept over runs."""

import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import viewcache
from tests.clips import encode
from tests.scheduling.test_power import zone
from tests.tiny import config, open_cache, pixels, sql
from viewcache.api.queries.ask import ask
from viewcache.api.session.cache import Cache
from viewcache.materializer.clock import OTHER, Clock, Span
from viewcache.materializer.telemetry import accounting
from viewcache.materializer.telemetry.power import Rapl
from viewcache.materializer.telemetry.usage import PLANNER, READER, SERVE, WORKER, Usage
from viewcache.materializer.workers.job import Made, Report
from viewcache.materializer.workers.worker import OtherWork

SIZE = (480, 360)
EPOCHS = 8
TAKEN = "select class, stage, cpu_s, wall_s, joules, source from usage"


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six clips that take a second or two to decode."""
    folder = tmp_path_factory.mktemp("usage")
    for k in range(6):
        encode(folder / f"v{k}.mp4", frames=150 + k, size=SIZE, gop=30)
    return folder


def burn(seconds: float) -> None:
    """Take so much of a core."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def core_s(who: int) -> float:
    """Core seconds of this process, or of its children that have ended."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


@pytest.mark.usefixtures("spawned")
@pytest.mark.parametrize("kind", ["processes", "threads"])
def test_all_core_seconds_are_counted(tmp_path: Path, videos: Path, kind: str) -> None:
    """The sum of all rows is within 5 % of what the kernel counted for this process and its workers over a run."""
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


def test_counts_go_on_after_a_restart(tmp_path: Path, videos: Path) -> None:
    """Rows add up over openings; the watts are those of each run, and since when is counted stays."""
    seen: list[dict[tuple[object, ...], list[float]]] = []
    for watts in (5, 50):
        with open_cache(tmp_path, videos, cache={"power": {"core_w": watts}}) as cache:
            cache.read("train", len(seen), 0)
        found = ask(str(tmp_path), "select class, stage, cpu_s, joules, since_s from usage").rows
        seen.append({row[:2]: [float(str(each)) for each in row[2:]] for row in found})
    first, second = seen
    assert first.keys() <= second.keys()
    assert all(second[key][0] >= first[key][0] for key in first)
    decoded = WORKER, "decode"
    assert second[decoded][0] > first[decoded][0]
    more = second[decoded][1] - first[decoded][1]
    assert more == pytest.approx(50 * (second[decoded][0] - first[decoded][0]))
    assert second[decoded][2] == first[decoded][2]


KILLED = """
import sys, time, viewcache
from pathlib import Path
from tests.tiny import config
from viewcache.materializer.telemetry import accounting
accounting.WRITE_S = 0.2
with viewcache.open(config(Path(sys.argv[1]), Path(sys.argv[2]))) as cache:
    cache.read("train", 0, 0)
    print("read", flush=True)
    time.sleep(600)
"""


def test_a_kill_loses_only_what_was_not_written(tmp_path: Path, videos: Path) -> None:
    """Another process reads the relation while a run is on; after kill -9 the next opening has at least that."""
    store = tmp_path / "store"
    command = [sys.executable, "-c", KILLED, str(store), str(videos)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        try:
            assert victim.stdout is not None
            assert victim.stdout.readline() == "read\n"
            decoding = "select cpu_s from usage where class = 'worker' and stage = 'decode'"
            deadline = time.monotonic() + 60
            while not (seen := ask(str(store), decoding)).rows:
                assert time.monotonic() < deadline, "nothing was written while it ran"
            assert seen.source == "snapshot"
        finally:
            victim.send_signal(signal.SIGKILL)
    ((before,),) = seen.rows
    with open_cache(store, videos) as cache:
        assert sql(cache, decoding)[0][0] >= float(str(before))  # type: ignore[operator]
        cache.read("train", 1, 0)
        cache.owner.publish()
        assert sql(cache, decoding)[0][0] > float(str(before))  # type: ignore[operator]


def test_usage_is_written_seldom(tmp_path: Path, videos: Path) -> None:
    """Reading writes none of it: half a minute, a look from outside, and the end of a run do."""
    assert accounting.WRITE_S == 30
    with open_cache(tmp_path, videos) as cache:
        cache.read("train", 0, 0)
        assert sql(cache, TAKEN) == []
        cache.owner.publish()
        assert sql(cache, TAKEN) != []
    assert ask(str(tmp_path), TAKEN).rows


# The parts ---------------------------------------------------------------------------------------------------------


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


def test_news_are_told_once(tmp_path: Path) -> None:
    """Each row is what came since the last ones; a meter's joules are rows of their own, and no class's."""
    count = zone(tmp_path, "intel-rapl:0", "package-0", 0)
    usage = Usage(4.0, meter=Rapl(tmp_path))
    usage.charge(WORKER, {"decode": 2.0}, {"decode": 3.0})
    count.write_text("500000\n")
    rows = {(row.kind, row.stage): row for row in usage.news()}
    decode, package = rows[WORKER, "decode"], rows["machine", "package"]
    assert (decode.cpu_s, decode.wall_s, decode.joules, decode.source) == (2.0, 3.0, 8.0, "estimate")
    assert (package.cpu_s, package.wall_s, package.joules, package.source) == (None, None, 0.5, "rapl")
    usage.charge(WORKER, {"decode": 0.5}, {})
    again = {(row.kind, row.stage): row for row in usage.news()}
    assert again[WORKER, "decode"].cpu_s == 0.5
    assert ("machine", "package") not in again
    assert usage.joules() == {"estimate": pytest.approx(4 * sum(usage.cpu_s().values()), rel=0.01), "rapl": 0.5}


def test_a_clock_counts_work_and_not_waiting() -> None:
    """Core seconds stand beside seconds; waiting takes none, and what another thread ends has no clock."""
    clock = Clock()
    burn(0.05)
    clock.lap("decode")
    threading.Event().wait(0.05)
    clock.lap("fetch")
    burn(0.02)
    clock.skip()
    thread = threading.Thread(target=lambda: clock.lap("load"))
    burn(0.02)
    thread.start()
    thread.join()
    seconds, span = clock.take()
    assert span.cpu_s["decode"] == pytest.approx(0.05, abs=0.01)
    assert span.cpu_s["fetch"] < 0.02
    assert seconds["fetch"] >= 0.05
    assert span.cpu_s["load"] == 0
    assert clock.take()[1].cpu_s == {}


def test_a_worker_tells_what_no_stage_has() -> None:
    """Its start and its messages are a stage of their own; while a job is paused nobody knows what that has taken."""
    now = 1.0
    other = OtherWork(lambda: now)
    other.jobs = 1

    def told(**cpu_s: float) -> dict[str, float]:
        message = other.added(Report(span=Span(cpu_s=cpu_s)))
        assert not isinstance(message, Made)
        return dict(message.span.cpu_s)

    assert told(decode=0.25) == {"decode": 0.25, OTHER: 0.75}
    other.jobs, now = 2, 3.0
    assert told(decode=0.5) == {"decode": 0.5}
    other.jobs, now = 1, 4.0
    assert told(decode=1.5) == {"decode": 1.5, OTHER: 1.0}
    assert told(decode=0.5) == {"decode": 0.5}
