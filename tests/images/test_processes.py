"""Images in several processes: a killed owner, and clients of a service, read the same batches."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import viewcache
from tests import forked
from tests.images.small import config, save_folder
from tests.images.test_images import Read, read, same
from tests.tiny import sql
from viewcache.failpoints import VARIABLE

EPOCHS = 3
CHILD = """
import json, sys, viewcache
with viewcache.open(json.loads(sys.argv[1]), service="off") as cache:
    for batch in cache.loader("train", framework="numpy").all_epochs():
        print(batch["epoch"], batch["iteration"], int(batch["image"].astype("u8").sum()), flush=True)
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve images."""
    return save_folder(tmp_path_factory.mktemp("images"), {f"{k}.jpg": (60 + k, 48) for k in range(12)})


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory, images: Path) -> Read:
    """What an undisturbed run gives."""
    with viewcache.open(config(tmp_path_factory.mktemp("truth"), images, sampling={"images_per_batch": 4})) as cache:
        return read(cache)


def test_a_killed_run_goes_on(tmp_path: Path, images: Path, truth: Read) -> None:
    """Kill -9 right after a batch, five times: each run gives what the undisturbed one gave, and the last one all."""
    given = config(tmp_path / "store", images, sampling={"images_per_batch": 4})
    sums = {place: int(batch["image"].astype("u8").sum()) for place, batch in truth.items()}
    root = Path(__file__).resolve().parents[2]
    for stop in (1, 2, 4, 5, 8):
        child = forked.Popen(
            [sys.executable, "-c", CHILD, json.dumps(given)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(root)},
        )
        assert child.stdout is not None
        for _ in range(stop):
            epoch, iteration, total = map(int, child.stdout.readline().split())
            assert sums[epoch, iteration] == total
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    with viewcache.open(given) as cache:
        assert same(read(cache), truth)


def test_clients_of_a_service(tmp_path: Path, images: Path, truth: Read) -> None:
    """Read through a service: whole batches, a rank's share, some pictures of a batch, and what is told of the task."""
    given = config(tmp_path / "store", images, sampling={"images_per_batch": 4})
    with viewcache.open(given, service="auto") as cache:
        loader = cache.loader("train", framework="numpy")
        assert "(4, 3, 32, 32) CHW" in repr(loader)
        assert same(read(cache), truth)
        for rank in range(3):
            share = next(iter(cache.loader("train", framework="numpy", rank=rank, world=3)))
            whole = truth[0, 0]["image"]
            np.testing.assert_array_equal(share["image"], whole[rank * 4 // 3 : (rank + 1) * 4 // 3])


@pytest.mark.parametrize("place", ["dataset.listed:1", "dataset.found:1"])
def test_killed_while_images_are_listed(tmp_path: Path, images: Path, truth: Read, place: str) -> None:
    """Kill -9 between listing and recording: the next opening gives the same ids and batches."""
    given = config(tmp_path / "store", images, sampling={"images_per_batch": 4})
    root = Path(__file__).resolve().parents[2]
    killed = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(given)],
        env=os.environ | {VARIABLE: f"{place}:kill", "PYTHONPATH": f"{root}{os.pathsep}{root / 'src'}"},
        stdout=subprocess.DEVNULL,
        check=False,
        timeout=60,
    )
    assert killed.returncode == -signal.SIGKILL
    with viewcache.open(given) as cache:
        names = [str(name) for (name,) in sql(cache, "select image from images order by image_id")]
        assert names == sorted(names)
        assert same(read(cache), truth)
