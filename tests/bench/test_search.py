"""The search benchmark: its rivals do the work that it says, and it runs whole."""

import json
import multiprocessing
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import lockstep, search
from benchmarks.harness import main
from benchmarks.rivals import Setting, _data_loader, _OnDemand
from benchmarks.trainees import FEEDS, LOCK_STEP, ON_DEMAND, SERVICE, Job
from tests.tiny import encode_folder

SMALL: dict[str, Any] = {"frames": 4, "short_side": 48, "crop": 32, "epochs": 2, "generation": 2, "step_s": 0.01}


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four short clips."""
    return encode_folder(tmp_path_factory.mktemp("search"), {f"v{number}.mp4": 70 for number in range(4)})


def test_in_lock_step_everybody_gets_every_batch(videos: Path) -> None:
    """The same ones in the same order, more of them than there are places, and then the end."""
    setting = Setting(LOCK_STEP, str(videos), "", 0.0, epochs=4, videos_per_batch=2, frames=4, short_side=48, crop=32)
    context = multiprocessing.get_context("spawn")
    desk = lockstep.make_desk(context, setting, 2)
    ready, began, got = context.Event(), context.Event(), list[list[bytes]]()
    began.set()

    def train(number: int) -> None:
        got.append([batch.tobytes() for batch in lockstep.taken(desk, number)])

    threads = [threading.Thread(target=train, args=(number,)) for number in range(2)]
    loader = context.Process(target=lockstep.serve, args=(desk, setting, ready, began))
    loader.start()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    loader.join()
    expected = [batch.tobytes() for batch in _data_loader(_OnDemand(setting))]
    assert len(expected) == 8 > lockstep.PLACES
    assert got == [expected, expected]


def test_two_jobs_through_a_service(videos: Path, tmp_path: Path) -> None:
    """What a run tells: every clip, the service's packets and CPU seconds, and no process that is left."""
    shared = Job("", SERVICE, str(videos), str(tmp_path / "store"), videos_per_batch=2, **SMALL)
    jobs = [replace(shared, name=f"job{n}", number=n) for n in range(2)]
    done = search.run(jobs, staggered=True)
    assert [(took.batches, took.clips) for took in done.took] == [(4, 16)] * 2
    assert done.work["packets"] > 0
    assert done.cpu_s == pytest.approx(done.trainings_cpu_s + done.service_cpu_s)
    assert all(took.wall_s >= took.own_s > took.own_first_s > 0 for took in done.took)
    assert not multiprocessing.active_children()
    assert not (tmp_path / "store" / "service.sock").exists()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_part(videos: Path, tmp_path: Path) -> None:
    """All feeds do the same work (it asserts so itself), and each part says what it measured."""
    out = tmp_path / "out.json"
    command = ["--videos", str(videos), "--repeats", "1", "--epochs", "2", "--step", "0.05", "--dir", str(tmp_path)]
    main(search.__doc__, search.bench, search._arguments, [*command, "--json", str(out)])
    results = json.loads(out.read_text())["results"]
    comparisons = [each for each in results if each["kind"] == "comparison"]
    assert [list(each["ratios"]) for each in comparisons] == [list(FEEDS)] * 4
    (overlap,) = (each for each in results if each.get("title", "").startswith("two trainings"))
    packets = [row[0] for row in overlap["rows"].values()]
    assert packets == sorted(packets, reverse=True)
    assert not list(tmp_path.glob("viewcache-search-*"))


@pytest.mark.long
def test_a_network_learns_from_every_feed(videos: Path, tmp_path: Path) -> None:
    """The axes of a batch are the feed's own; a step of the network takes time of its own."""
    for feed in (ON_DEMAND, SERVICE):
        job = Job(
            "job", feed, str(videos), str(tmp_path / "store"), **{**SMALL, "frames": 8, "crop": 48, "step_s": 0.0}
        )
        (took,) = search.run([replace(job, videos_per_batch=2)]).took
        assert (took.batches, np.sign(took.own_s)) == (4, 1)
