"""Workers that are threads: the same clips and the same words as from processes, and an end that is bounded."""

import importlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import viewcache
from tests.faults.caches import assert_at_rest, config, truth_of
from tests.scheduling.harness import Harness, Reading, until
from tests.scheduling.stopped import plain_pool
from viewcache.api.session import owner as session
from viewcache.errors import Closed, ConfigError, WorkerDied
from viewcache.materializer.scheduling import running
from viewcache.materializer.workers.thread_pool import ThreadPool

GATE = """
import sys
import threading
import numpy as np
from viewcache.materializer.ops import FrameOp

go, here = threading.Event(), threading.Semaphore(0)

class Gate(FrameOp):
    name = "{name}"

    def resolve(self, params, draw, h, w):
        return np.zeros((len(draw.sample), 0), np.int32), h, w

    def apply(self, params, row, frame):
        {body}
        return frame

OPS = [Gate]
"""


def _with_op(name: str, body: str, store: Path, videos: Path, folder: Path, **more: Any) -> tuple[dict[str, Any], Any]:
    """A configuration with an operation of this body, and its module."""
    (folder / f"{name}.py").write_text(GATE.format(name=name, body=body))
    given = config(store, videos, worker_kind="threads", op_modules=[name], **more)
    given["dataset"]["augmentation"][-1]["config"].append({name: {}})
    importlib.invalidate_caches()
    return given, importlib.import_module(name)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where modules are found."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("no_leaks")
def test_threads_make_the_same_clips(store: Path, videos: Path, tmp_path: Path) -> None:
    """Every clip of two threads has the bytes that processes give it, and as many packets are fed."""
    found = {}
    for kind in ("processes", "threads"):
        with Harness(tmp_path / kind, videos, plain_pool(kind, 2)) as harness:
            harness.dispatcher.look_ahead([harness.active])
            assert harness.dispatcher.wait_idle(60)
            frames = harness.dispatcher.tally.frames
            found[kind] = harness.everything(), frames["packets"], frames["decoded"], frames["objects"]
    assert found["threads"] == found["processes"]


@pytest.mark.usefixtures("no_leaks")
def test_a_whole_cache_on_threads(tmp_path: Path, videos: Path) -> None:
    """Every batch of a cache with `worker_kind: threads` is that of one with processes; it is at rest when closed."""
    truth = truth_of(tmp_path / "processes", videos)
    assert truth_of(tmp_path / "threads", videos, worker_kind="threads", workers=2) == truth
    assert_at_rest(tmp_path / "threads")


class _Watched(ThreadPool):
    def has_begun(self) -> bool:
        return self.busy > 0


@pytest.mark.usefixtures("no_leaks")
def test_closing_in_the_middle_of_a_job(store: Path, videos: Path) -> None:
    """Closing ends threads at their next group: a waiting reader gets Closed, no thread, file or promise is left."""
    for _ in range(5):
        pool = _Watched(2)
        with Harness(store, videos, pool) as harness:
            harness.dispatcher.look_ahead([harness.active])
            reading = Reading(harness, list(range(4)))
            until(pool.has_begun, "a job")
        assert reading.end() is None or isinstance(reading.error, Closed)
        assert not list((store / "tmp").iterdir())
        assert harness.tier.reserved_bytes == 0


@pytest.mark.usefixtures("no_leaks")
def test_an_operation_that_ends_its_thread(folder: Path, videos: Path) -> None:
    """An operation that calls sys.exit ends threads, not the process: the third is WorkerDied, as with processes."""
    given, _ = _with_op("vc_exits", "sys.exit(3)", folder / "own", videos, folder)
    with viewcache.open(given) as cache, pytest.raises(WorkerDied, match=r"3 workers died on it.*SystemExit: 3"):
        cache.read("t", 0, 0)


@pytest.fixture
def hanging(
    folder: Path, videos: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[tuple[dict[str, Any], Any]]:
    """A configuration whose operation waits for ``go``, and its module; what hangs is let go at the end."""
    monkeypatch.setattr(running, "SECONDS_PER_FRAME", 0.0)
    body = "here.release(); go.wait(60)"
    given, gate = _with_op(request.node.name, body, folder / "own", videos, folder)
    gate.go.clear()
    try:
        yield given, gate
    finally:
        gate.go.set()


def test_a_thread_that_hangs_is_left_behind(
    hanging: tuple[dict[str, Any], Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After its grace its job is given to a new thread, and after the third its reader gets an error, not silence."""
    given, gate = hanging
    monkeypatch.setattr(session, "start_pool", lambda *_: ThreadPool(1, grace_s=0.2))
    with viewcache.open(given) as cache:
        with pytest.raises(WorkerDied, match="silent for too long, a thread was left behind"):
            cache.read("t", 0, 0)
        gate.go.set()  # they end by themselves as soon as they come to
        assert cache.read("t", 0, 0).video.size
    assert not [each for each in caplog.records if getattr(each, "action", "") == "threads_left"]


def test_closing_does_not_wait_for_a_thread_that_hangs(
    hanging: tuple[dict[str, Any], Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Closing waits a bounded time, says what is left, and has the next start look through the whole store."""
    given, gate = hanging
    monkeypatch.setattr("viewcache.materializer.workers.thread_pool.CLOSE_S", 0.1)
    cache = viewcache.open(given)
    reading = threading.Thread(target=lambda: _closed(cache), daemon=True)
    reading.start()
    assert gate.here.acquire(timeout=20)
    cache.close()
    reading.join(20)
    assert [each for each in caplog.records if getattr(each, "action", "") == "threads_left"]
    gate.go.set()
    until(lambda: not [each for each in threading.enumerate() if each.name == "viewcache-worker"], "the thread to end")
    given["cache"]["worker_kind"] = "processes"
    with viewcache.open(given) as again:
        assert again.owner.recovered.walked


def _closed(cache: viewcache.Cache) -> None:
    with pytest.raises(Closed):
        cache.read("t", 0, 0)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_strangers_files_are_not_decoded_in_this_process(store: Path, videos: Path, scheme: str) -> None:
    """Videos from the web with `worker_kind: threads` are refused before any is fetched, also of a joining task."""
    web = config(store, videos, worker_kind="threads")
    web["dataset"]["video_dataset_path"] = f"{scheme}://127.0.0.1:9/clips/*.mp4"
    with pytest.raises(ConfigError, match=r"come from the web.*worker_kind: processes"):
        viewcache.open(web)
    with viewcache.open(config(store, videos, worker_kind="threads")) as cache:
        joining = {"dataset": {**web["dataset"], "tag": "other"}}
        with pytest.raises(ConfigError, match="come from the web"):
            cache.join(joining)
