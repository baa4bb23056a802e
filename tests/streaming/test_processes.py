"""Every process sees the same videos at the same place: clients of one service, and who comes after kill -9."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

import viewcache
from tests.faults.caches import digest_of
from tests.house.tree import ROOT
from tests.service.served import go_on, start, told
from tests.streaming.arriving import arrive, epoch_of, streaming
from viewcache.api.service import files
from viewcache.api.service.stopping import stop
from viewcache.errors import BadInput, NotFound
from viewcache.failpoints import VARIABLE

READS = """
with viewcache.open(given, service="auto") as cache:
    task = cache.task("train")
    for epoch in range(4):
        print(json.dumps("epoch"), flush=True)
        sys.stdin.readline()
        batches = [cache.read("train", epoch, each) for each in range(task.iterations(epoch))]
        print(json.dumps([task.iterations(epoch), [digest(each) for each in batches]]), flush=True)
    print(json.dumps(cache.classes("train")), flush=True)
"""

LOADS = """
import warnings
from torch.utils.data import DataLoader
warnings.simplefilter("ignore")
rank, world, workers = map(int, sys.argv[2:])
with viewcache.open(given, service="auto") as cache:
    loader = cache.loader("train", rank=rank, world=world)
    if workers:
        loader = DataLoader(loader, batch_size=None, num_workers=workers, timeout=120)
    batches = (batch for epoch in range(cache.task("train").epochs) for batch in loader)
    for number, batch in enumerate(batches):
        print(json.dumps(batch["index"].tolist()), flush=True)
        if number < 2:
            sys.stdin.readline()
print(json.dumps("end"))
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    """A store whose service ends with the test."""
    yield tmp_path / "s"
    with suppress(NotFound):
        stop(tmp_path / "s", now=True)


def go(process: "subprocess.Popen[str]") -> object:
    """Let a process read an epoch; what it got."""
    assert told(process) == "epoch"
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return told(process)


def test_two_processes_read_the_same_while_videos_arrive_and_the_service_dies(
    tmp_path: Path, clips: list[Path], store: Path
) -> None:
    """Batches with their labels, and how many an epoch has, are equal, whoever asks first; the service is killed."""
    folder = tmp_path / "videos"
    arrive(folder / "dog", *clips[:3])
    given = streaming(store, folder, labels="folders", join="epoch", epochs=4)
    with viewcache.open(given, service="auto") as cache, pytest.raises(BadInput, match=r"1 videos cannot.*drop_last"):
        cache.loader("train", rank=0, world=2)
    one, other = (start(READS, given) for _ in range(2))
    try:
        found = [go(one)]
        arrive(folder / "cat", *clips[3:5])
        found.append(go(one))
        assert go(other) == found[0]
        facts = files.read_facts(store)
        assert facts is not None
        os.kill(facts.pid, signal.SIGKILL)
        arrive(folder / "ant", clips[5])
        assert go(other) == found[1]
        found.append(go(other))
        assert go(one) == found[2]
        found.append(go(one))
        assert go(other) == found[3]
        classes = told(one)
        assert classes == told(other)
        assert (one.wait(60), other.wait(60)) == (0, 0)
    finally:
        for each in (one, other):
            each.kill()
            each.communicate()
    counts = [each[0] for each in found if isinstance(each, list)]
    assert counts[0] == 2
    assert counts[-1] == 3
    assert isinstance(classes, list)
    assert (classes[0], sorted(classes)) == ("dog", ["ant", "cat", "dog"])


@pytest.mark.parametrize(("ranks", "workers"), [(2, 0), (1, 2)])
def test_ranks_and_workers_see_one_folder_grow(
    tmp_path: Path, clips: list[Path], store: Path, ranks: int, workers: int
) -> None:
    """Two ranks, or the two workers of a DataLoader: new videos join at one place for both, each once an epoch."""
    folder = tmp_path / "videos"
    arrive(folder, *clips[:4])
    given = streaming(store, folder, join="epoch", epochs=8, drop_last=True)
    readers = [start(LOADS, given, str(rank), str(ranks), str(workers)) for rank in range(ranks)]
    batches: list[list[int]] = []
    try:
        for number in count():
            shares = [told(each) for each in readers]
            if "end" in shares:
                break
            batches.append([index for share in shares if isinstance(share, list) for index in share])
            if number < 2:
                arrive(folder, *clips[4 + 2 * number : 6 + 2 * number])
                for each in readers:
                    go_on(each)
        assert shares == ["end"] * ranks
    finally:
        for each in readers:
            each.kill()
            each.communicate()
    with viewcache.open(given, service="attach") as cache:
        table = cache.sql("select epoch, video_id from draws order by epoch, position").to_pydict()
    drawn: dict[int, list[int]] = {}
    for epoch, video in zip(table["epoch"], table["video_id"], strict=True):
        drawn.setdefault(epoch, []).append(video)
    assert batches == [drawn[epoch][at : at + 2] for epoch in range(8) for at in range(0, len(drawn[epoch]), 2)]
    assert all(len(set(videos)) == len(videos) for videos in drawn.values())
    assert (len(drawn[0]), len(drawn[7])) == (4, 8)


VICTIM = """
import json, sys
import viewcache
from tests.faults.caches import digest_of
from tests.streaming.arriving import arrive
from pathlib import Path
given, folder, clips = json.loads(sys.argv[1]), Path(sys.argv[2]), [Path(each) for each in sys.argv[3:]]
with viewcache.open(given) as cache:
    for epoch in range(6):
        for each in range(cache.task("train").iterations(epoch)):
            print(json.dumps([epoch, each, digest_of(cache.read("train", epoch, each))]), flush=True)
        if clips:
            arrive(folder, clips.pop())
print(json.dumps("end"))
"""


@pytest.mark.parametrize(
    "failpoint", ["dataset.found:2", pytest.param("catalog.before-commit:14", marks=pytest.mark.long)]
)
def test_a_process_killed_while_videos_join_changes_nothing_that_was_read(
    tmp_path: Path, clips: list[Path], folder: Path, failpoint: str
) -> None:
    """Laws 4 and 8: killed between the header of a new video and its draw, or around a commit, the next one goes on."""
    given = streaming(tmp_path / "s", folder, join="epoch", epochs=6)
    command = [sys.executable, "-c", VICTIM, json.dumps(given), str(folder), *map(str, clips[3:8])]
    dead = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, VARIABLE: f"{failpoint}:kill"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    read = [json.loads(line) for line in dead.stdout.splitlines()]
    arrive(folder, *clips[8:])
    with viewcache.open(given) as cache:
        for epoch, iteration, digest in read:
            assert digest_of(cache.read("train", epoch, iteration)) == digest
        task = cache.task("train")
        lengths = [task.task.positions(epoch) for epoch in range(6)]
        names = epoch_of(cache, 5)
    assert lengths == sorted(lengths)
    assert lengths[-1] == len(names) == len(set(names))
    assert lengths[-1] >= 3
