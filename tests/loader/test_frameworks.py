"""Batches of NumPy's and JAX's arrays: the same loader, without torch."""

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.loader.small import BATCHES, EPOCHS, Tensors, tasks
from viewcache.api.session.cache import Cache
from viewcache.errors import MissingExtra

WITH_JAX = Path(__file__).with_name("with_jax.py")


def as_arrays(batches: Iterator[dict[str, Any]] | list[Tensors]) -> list[dict[str, Any]]:
    """Batches as lists of plain values, whatever they are made of."""
    return [{name: np.asarray(value).tolist() for name, value in batch.items()} for batch in batches]


@pytest.mark.parametrize("layout", ["TCHW", "CTHW", "THWC"])
def test_numpy_batches_are_those_of_torch(cache: Cache, layout: str) -> None:
    """Plain dicts of NumPy's arrays, equal to the tensors in all epochs, with numbers as plain int."""
    read = list(cache.loader("train", framework="numpy", layout=layout).all_epochs())
    assert {type(value) for batch in read for value in batch.values()} == {np.ndarray, int}
    for mine, theirs in zip(read, cache.loader("train", layout=layout).all_epochs(), strict=True):
        assert mine.keys() == theirs.keys()
        for name in ("video", "label", "index", "frame", "time_s", "sample"):
            assert np.array_equal(mine[name], theirs[name].numpy()), name
            assert mine[name].dtype == theirs[name].numpy().dtype, name
        assert (mine["epoch"], mine["iteration"]) == (theirs["epoch"], theirs["iteration"])


def test_operations_at_reading_run_without_torch(cache: Cache) -> None:
    """With ``to_dtype: float32`` the array is float32 in [0, 1], as the tensor."""
    mine = next(iter(cache.loader("floats", framework="numpy")))["video"]
    theirs = next(iter(cache.loader("floats")))["video"].numpy()
    assert mine.dtype == np.float32
    assert np.allclose(mine, theirs)


def test_ranks_passes_and_states_are_the_same(cache: Cache, truth: list[Tensors]) -> None:
    """One pass is one epoch, a state of another framework's loader leads on, and ranks share each batch."""
    of_torch = cache.loader("train")
    next(iter(of_torch))
    loader = cache.loader("train", framework="numpy")
    loader.load_state_dict(of_torch.state_dict())
    assert [(batch["epoch"], batch["iteration"]) for batch in loader] == [(0, 1)]
    loader.set_epoch(3)
    assert [batch["epoch"] for batch in loader] == [3] * BATCHES
    shares = [next(iter(cache.loader("train", framework="numpy", rank=rank, world=2))) for rank in range(2)]
    video = np.concatenate([np.asarray(share["video"]) for share in shares])
    assert np.array_equal(video, truth[0]["video"].numpy())


def test_what_the_loop_keeps_does_not_change(cache: Cache, truth: list[Tensors]) -> None:
    """Batches that are held on to have their bytes while the loader reads on into memory that is used again."""
    kept = [batch["video"] for batch in cache.loader("train", framework="numpy", prefetch=1).all_epochs()]
    assert len(kept) == EPOCHS * BATCHES
    for mine, theirs in zip(kept, truth, strict=True):
        assert np.array_equal(np.asarray(mine), theirs["video"].numpy())


def test_batches_of_jax() -> None:
    """In a process of their own, `with_jax`: JAX has threads of its own, and other tests here fork."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", str(WITH_JAX)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def test_without_jax_the_loader_says_what_to_install(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX is an extra; the error has the pip command."""
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(MissingExtra, match=r"pip install 'viewcache\[jax\]'"):
        cache.loader("train", framework="jax")


WITHOUT = """
import json, sys
sys.modules["torch"] = None
import viewcache
with viewcache.open(json.loads(sys.argv[1])) as cache:
    loader = cache.loader("train", framework="numpy", epochs=1)
    read = [batch["index"].tolist() for batch in loader]
    print(json.dumps([read, loader.state_dict(), repr(loader)]))
"""


@pytest.mark.parametrize("service", ["off", "auto"])
def test_a_machine_without_torch_can_read(
    truth: list[Tensors], videos: Path, tmp_path: Path, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where ``import torch`` fails, NumPy's batches come all the same, from a cache of one's own and from a service."""
    monkeypatch.setenv("VIEWCACHE_SERVICE", service)
    given = json.dumps(tasks(tmp_path / "store", videos, service_idle=0)[:1])
    command = [sys.executable, "-c", WITHOUT, given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    read, state, line = json.loads(done.stdout)
    assert read == [batch["index"].tolist() for batch in islice(truth, BATCHES)]
    assert (state["epoch"], state["iteration"]) == (1, 0)
    assert line.startswith("<viewcache.Loader of task 'train'")


def test_importing_the_loader_imports_no_framework() -> None:
    """Neither torch nor JAX, until a loader asks for one."""
    code = "import sys, viewcache; viewcache.Loader; print({'torch', 'jax'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "set()\n"
    assert viewcache.Loader is not None
