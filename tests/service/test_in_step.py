"""Processes that take turns: what equal trainings decode together, and a notebook beside a training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

import viewcache
from tests.service.served import Opener, clip_digests, described, digest, go_on, start, told
from viewcache.testing.leaks import settle

EPOCHS, BATCHES = 3, 5

TRAINING = """
from tests.service.served import clip_digests
with viewcache.open(given, service="auto", job=sys.argv[2]) as cache:
    seat = cache.task("train").sit()
    print(0, flush=True)
    for number in range(15):
        sys.stdin.readline()
        batch = seat.read(*divmod(number, 5))
        print(json.dumps([digest(batch), clip_digests(batch)]), flush=True)
    sys.stdin.readline()
"""

NOTEBOOK = """
import fsspec
with viewcache.open(given) as cache:
    batch, view = cache.read("train", 0, 0), fsspec.filesystem("view", cache=given["cache"]["store"])
    seen = view.cat_file("view://train/0/0/view")
    print(json.dumps([digest(batch), seen.endswith(batch.video.tobytes())]), flush=True)
    sys.stdin.readline()
"""


class Training:
    """A process that reads a batch of its job whenever it is told to."""

    def __init__(self, given: dict[str, object], job: str = "") -> None:
        self.process = start(TRAINING, given, job)
        self.batches: list[str] = []
        self.clips: list[str] = []
        """Digests of what it has read."""

    def hear(self) -> None:
        """Wait for the batch that it was told to read."""
        batch, clips = cast("tuple[str, list[str]]", told(self.process))
        self.batches.append(batch)
        self.clips += clips

    def clips_of(self, epoch: int) -> list[str]:
        """All clips of an epoch, in no order: that is each job's own."""
        each = len(self.clips) // EPOCHS
        return sorted(self.clips[epoch * each : (epoch + 1) * each])


def begun(given: dict[str, object], *jobs: str) -> list[Training]:
    """Trainings that have taken their seats."""
    trainings = [Training(given, job) for job in jobs]
    assert [told(each.process) for each in trainings] == [0] * len(jobs)
    return trainings


def in_step(trainings: Sequence[Training], batches: int) -> None:
    """Let each read so many batches more; nobody reads the next one before all have this one."""
    for _ in range(batches):
        for each in trainings:
            go_on(each.process)
        for each in trainings:
            each.hear()


@pytest.mark.parametrize(("ahead", "most"), [(0, 1.0), (BATCHES // 2, 1.1)])
def test_equal_jobs_in_processes_of_their_own(
    store: Path, tmp_path: Path, videos: Path, ahead: int, most: float
) -> None:
    """Four at one pace decode no more packets than one, half an epoch apart a tenth more at most: the same clips.

    All epochs are one generation: of two, a video whose job comes late is decoded for both at once, in fewer packets.
    What one takes is no question of measured rates, nor of how far it is made ahead when it reads: a job for a few
    clips of a video skips what one for all of them decodes on the way.
    """
    one_generation = {"epochs_per_generation": EPOCHS, "keep": "leaves"}
    with viewcache.open(described(tmp_path / "alone", videos, cache=one_generation), service="off") as alone:
        list(alone.materialize())
        read = [[clip_digests(alone.read("train", epoch, i)) for i in range(BATCHES)] for epoch in range(EPOCHS)]
        assert not settle(lambda: list(range(alone.snapshot().jobs_running)))
        packets = alone.snapshot().work["packets"]
    given = described(store, videos, cache=one_generation)
    first = begun(given, "a")
    in_step(first, ahead)
    jobs = first + begun(given, "b", "c", "d")
    in_step(jobs, EPOCHS * BATCHES - ahead)
    in_step(jobs[1:], ahead)
    served: Any = viewcache.open(given, service="attach")
    with served:
        assert not settle(lambda: list(range(served.snapshot().jobs_running)))
        taken = served.snapshot().work["packets"]
        for name, each in zip("abcd", jobs, strict=True):
            places = [divmod(number, BATCHES) for number in range(EPOCHS * BATCHES)]
            assert each.batches == [digest(served.read(f"train.{name}", *place)) for place in places]
    for each in jobs:
        each.process.communicate("\n", timeout=60)
    for epoch, batches in enumerate(read):
        clips = sorted(clip for batch in batches for clip in batch)
        assert [each.clips_of(epoch) for each in jobs] == [clips] * 4
    assert packets / 2 < taken <= most * packets


def test_a_notebook_moves_nobody(store: Path, tmp_path: Path, videos: Path, attach: Opener) -> None:
    """It reads the first batch of a training that is long past it, in two ways: the training's place stays, and so does
    its progress in the catalog; what it reads then is what it would have read.
    """
    given = described(store, videos)
    with viewcache.open(described(tmp_path / "truth", videos), service="off") as alone:
        truth = [digest(alone.read("train", *divmod(number, BATCHES))) for number in range(EPOCHS * BATCHES)]
    (training,) = begun(given, "")
    observer = attach()

    def place() -> tuple[object, ...]:
        clients = {each.pid: each for each in observer.stats().clients}
        return clients[training.process.pid].seats, observer.sql("select * from progress").to_pylist()

    def noted(batches: int) -> bool:
        """Whether the service comes to know that so many were read; who reads does not wait for that."""

        def others() -> list[object]:
            found = observer.sql("select seq from progress").to_pylist()
            return [] if found == [{"seq": batches}] else [found]

        return not settle(others)

    in_step([training], 8)
    assert noted(8)
    before = place()
    notebook = start(NOTEBOOK, given)
    assert told(notebook) == [truth[0], True]
    assert len(observer.stats().clients) == 3
    assert place() == before
    in_step([training], 1)
    assert noted(9)
    after = place()
    assert all(now != then for now, then in zip(after, before, strict=True)), "both tell where it is"
    notebook.communicate("\n", timeout=60)
    assert not settle(lambda: [each for each in observer.stats().clients if each.pid == notebook.pid])
    assert place() == after, "its end moves nobody either"
    in_step([training], 6)
    assert training.batches == truth
    training.process.communicate("\n", timeout=60)
