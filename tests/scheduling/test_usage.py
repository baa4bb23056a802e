"""What a cache takes of cores and energy: all of it is counted, to its class and stage, and kept over runs."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.clips import encode
from tests.scheduling.test_power import zone
from tests.tiny import open_cache, sql
from viewcache.api.queries.ask import ask
from viewcache.materializer.clock import OTHER, Clock, Span
from viewcache.materializer.telemetry import accounting
from viewcache.materializer.telemetry.power import Rapl
from viewcache.materializer.telemetry.usage import PLANNER, READER, SERVE, WORKER, Usage
from viewcache.materializer.workers.job import Made, Report
from viewcache.materializer.workers.worker import OtherWork

SIZE = (480, 360)
EPOCHS = 8
TAKEN = "select class, stage, cpu_s, wall_s, joules, source from usage"


def six_clips(folder: Path) -> Path:
    """Six clips that take a second or two to decode."""
    for k in range(6):
        encode(folder / f"v{k}.mp4", frames=150 + k, size=SIZE, gop=30)
    return folder


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For all of these tests."""
    return six_clips(tmp_path_factory.mktemp("usage"))


def burn(seconds: float) -> None:
    """Take so much of a core."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_what_the_kernel_counted() -> None:
    """The tests of `usage_alone`, in a process that runs nothing else."""
    alone = Path(__file__).with_name("usage_alone.py")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", str(alone)]
    run = subprocess.run(command, cwd=alone.parents[2], capture_output=True, text=True, timeout=220, check=False)
    assert run.returncode == 0, run.stdout[-4000:]


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
        everything = "select cast(sum(cpu_s) as double) from usage"
        [(then,)] = sql(cache, everything)
        cache.read("train", 1, 0)  # which the first run may have made
        cache.owner.publish()
        assert sql(cache, everything)[0][0] > then  # type: ignore[operator]


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


@pytest.mark.parametrize("inside", [False, True])
def test_what_is_asked_often_takes_no_work_of_jobs_that_are_not_over(inside: bool) -> None:
    """Of a process that serves the rest is the cache's, but not where workers are its threads, which tell later."""
    usage = Usage(serves=True, workers_inside=inside)
    assert ((PLANNER, SERVE) in usage.beside_s()) != inside
    assert usage.cpu_s()[PLANNER, SERVE] > 0, "it has taken something since it began"
    assert not {(READER, OTHER), (PLANNER, SERVE)} & Usage(workers_inside=inside).beside_s().keys()
