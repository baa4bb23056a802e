"""kill -9 while clips are made from intermediates: the next run goes on, within the budget, with the same bytes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import viewcache
from tests import forked
from tests.faults.caches import config, read_all
from tests.tiny import sql

EPOCHS = 4
CHILD = """
import json, sys, viewcache
from tests.faults.caches import digest_of
from viewcache.materializer.planning.cost import CostModel
cost = CostModel(decode_s_per_pixel=1e-5, convert_s_per_pixel=1e-6)  # so that frames are worth keeping
CostModel.measured = classmethod(lambda *_: cost)
with viewcache.open(json.loads(sys.argv[1])) as cache:
    task = cache.task("t").task
    for epoch in range(task.spec.epochs):
        for iteration in range(task.iterations(epoch)):
            digest = digest_of(cache.read("t", epoch, iteration))
            assert cache.tier.used_bytes + cache.tier.reserved_bytes <= cache.tier.budget_bytes
            print(json.dumps([epoch, iteration, digest]), flush=True)
"""


def _little(store: Path, videos: Path, budget: int, *, loss: bool = False) -> dict[str, Any]:
    more: dict[str, Any] = {"epochs_per_generation": 1 if loss else EPOCHS, "codec": "auto" if loss else "raw"}
    found = config(store, videos, budget=budget, epochs=EPOCHS, samples_per_video=3, **more)
    return found | {"dataset": found["dataset"] | ({"intermediate": {"quality": "40dB"}} if loss else {})}


@pytest.mark.parametrize("loss", [False, True])
@pytest.mark.parametrize("lines", [1, pytest.param(3, marks=pytest.mark.long), 5])
def test_a_killed_run_goes_on(tmp_path: Path, videos: Path, lines: int, loss: bool) -> None:
    """Killed twice right after a batch came out, then run to its end: every batch is what it is with room for all."""
    with viewcache.open(_little(tmp_path / "plenty", videos, 10**8, loss=loss)) as cache:
        whole = dict(read_all(cache, EPOCHS))
    root = Path(__file__).resolve().parents[2]
    for stop in (lines, lines + 1, None):
        child = forked.Popen(
            [sys.executable, "-c", CHILD, json.dumps(_little(tmp_path / "little", videos, 480_000, loss=loss))],
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(root)},
        )
        assert child.stdout is not None
        for _ in range(len(whole) if stop is None else stop):
            epoch, iteration, digest = json.loads(child.stdout.readline())
            assert whole[epoch, iteration] == digest
        if stop is not None:
            os.kill(child.pid, signal.SIGKILL)
            child.communicate(timeout=60)
        else:
            child.communicate(timeout=60)
            assert child.returncode == 0
    made = "select object_id from copies union select object_id from evictions"
    with viewcache.open(_little(tmp_path / "little", videos, 480_000, loss=loss)) as cache:
        kinds = sql(cache, f"select distinct kind from objects where object_id in ({made})")
    assert {("frames",), ("aug",)} & set(kinds), "intermediates were made"
