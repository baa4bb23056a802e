"""kill -9 while several tasks draw together: what was handed out keeps its meaning, and epochs go on whole."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import viewcache
from tests import forked
from tests.faults.caches import config, digest_of

CHILD = """
import json, sys, viewcache
from tests.faults.caches import digest_of
with viewcache.open(json.loads(sys.argv[1])) as cache:
    tasks = {name: cache.task(name).task for name in cache.tasks}
    left = {name: [(e, i) for e in range(3) for i in range(task.iterations(e))] for name, task in tasks.items()}
    turn = 0
    while any(left.values()):
        task = cache.tasks[turn % 3 % 2]  # two of one, one of the other
        turn += 1
        if left[task]:
            batch = cache.read(task, *left[task].pop(0))
            print(json.dumps([task, batch.epoch, batch.iteration, batch.videos, digest_of(batch)]), flush=True)
"""


def _two(store: Path, videos: Path) -> dict[str, Any]:
    wide = config(store, videos, epochs=3, draw_ahead=1)
    narrow = config(store, videos, epochs=3, frame_stride=3)
    tasks = [wide["dataset"] | {"tag": "wide"}, narrow["dataset"] | {"tag": "narrow"}]
    return {"cache": wide["cache"], "dataset": tasks}


@pytest.mark.parametrize(
    "lines", [1, pytest.param(2, marks=pytest.mark.long), 5, pytest.param(9, marks=pytest.mark.long)]
)
def test_what_was_handed_out_stays(tmp_path: Path, videos: Path, lines: int) -> None:
    """Killed right after a batch came out, twice: every batch reads the same again, each video once an epoch."""
    whole = _two(tmp_path / "store", videos)
    before: dict[tuple[str, int, int], tuple[list[str], str]] = {}
    for _ in range(2):
        root = Path(__file__).resolve().parents[2]
        child = forked.Popen(
            [sys.executable, "-c", CHILD, json.dumps(whole)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])},
        )
        assert child.stdout is not None
        for _ in range(lines):
            task, epoch, iteration, names, digest = json.loads(child.stdout.readline())
            assert before.setdefault((task, epoch, iteration), (names, digest)) == (names, digest)
        os.kill(child.pid, signal.SIGKILL)
        child.communicate(timeout=60)
    with viewcache.open(whole) as cache:
        for task in cache.tasks:
            for epoch in range(3):
                seen: Counter[str] = Counter()
                for iteration in range(cache.task(task).iterations(epoch)):
                    batch = cache.read(task, epoch, iteration)
                    seen.update(batch.videos)
                    known = before.get((task, epoch, iteration))
                    assert known is None or known == (list(batch.videos), digest_of(batch))
                assert seen == dict.fromkeys((f"v{k}" for k in range(4)), 2)
