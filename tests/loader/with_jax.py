"""The loader's batches as arrays of JAX; `test_frameworks` runs these tests in a process of their own."""

import json
import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import viewcache
from tests.loader.small import BATCHES, EPOCHS, Tensors
from tests.tiny import AUGMENTATION, config, single
from viewcache.api.session.cache import Cache
from viewcache.errors import BadInput


def test_ranks_passes_and_states_are_the_same(cache: Cache, truth: list[Tensors]) -> None:
    """One pass is one epoch, a state of another framework's loader leads on, and ranks share each batch."""
    of_torch = cache.loader("train")
    next(iter(of_torch))
    loader = cache.loader("train", framework="jax")
    loader.load_state_dict(of_torch.state_dict())
    assert [(batch["epoch"], batch["iteration"]) for batch in loader] == [(0, 1)]
    loader.set_epoch(3)
    assert [batch["epoch"] for batch in loader] == [3] * BATCHES
    shares = [next(iter(cache.loader("train", framework="jax", rank=rank, world=2))) for rank in range(2)]
    video = np.concatenate([np.asarray(share["video"]) for share in shares])
    assert np.array_equal(video, truth[0]["video"].numpy())


def test_what_the_loop_keeps_does_not_change(cache: Cache, truth: list[Tensors]) -> None:
    """Batches that are held on to have their bytes while the loader reads on into memory that is used again."""
    kept = [batch["video"] for batch in cache.loader("train", framework="jax", prefetch=1).all_epochs()]
    assert len(kept) == EPOCHS * BATCHES
    for mine, theirs in zip(kept, truth, strict=True):
        assert np.array_equal(np.asarray(mine), theirs["video"].numpy())


def test_jax_batches_are_on_the_device_before_they_are_asked_for(
    cache: Cache, truth: list[Tensors], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays of JAX on the device that was named, sent by the reading thread; pixels are those that were stored."""
    senders = set[str]()
    put = jax.device_put

    def noted(*arguments: Any) -> Any:
        senders.add(threading.current_thread().name)
        return put(*arguments)

    monkeypatch.setattr(jax, "device_put", noted)
    (device,) = jax.devices("cpu")[:1]
    loader = cache.loader("train", framework="jax", device="cpu", prefetch=1)
    senders.clear()  # the loader has tried the device
    for number, batch in enumerate(loader):
        assert type(batch) is dict
        assert isinstance(batch["video"], jax.Array)
        assert batch["video"].devices() == {device}
        assert batch["video"].dtype == np.uint8
        assert np.array_equal(np.asarray(batch["video"]), truth[number]["video"].numpy())
    assert senders == {"viewcache-loader"}
    doubled = jax.jit(lambda one: jax.tree.map(lambda leaf: leaf * 2, one))(batch)
    assert int(doubled["iteration"]) == 2 * (BATCHES - 1), "a batch goes through jit as it is"


def test_the_two_lines_for_any_other_library(cache: Cache, truth: list[Tensors]) -> None:
    """What docs/loader.md says: a NumPy batch and ``tree.map`` over it."""
    for number, batch in enumerate(cache.loader("train", framework="numpy")):
        arrays = jax.tree.map(jax.device_put, batch)
        assert np.array_equal(np.asarray(arrays["video"]), truth[number]["video"].numpy())


@pytest.mark.parametrize("options", [{"device": "tpu9"}, {"device": 3}, {"pin_memory": True}])
def test_wrong_devices_of_jax_are_refused_at_once(cache: Cache, options: dict[str, Any]) -> None:
    """Not at the first batch, and not by JAX's own error."""
    with pytest.raises(BadInput, match=r"none that this JAX can use|framework='torch'"):
        cache.loader("train", framework="jax", **options)


def test_mixed_batches_are_those_of_numpy(videos: Path, tmp_path: Path) -> None:
    """Clips and labels are mixed as without JAX, before they are sent to the device."""
    steps = [*AUGMENTATION, single({"mixup": 0.8}, of="a", into="b")]
    given = config(tmp_path / "store", videos, labels="folders", epochs=1, augmentation=steps)
    with viewcache.open(given) as cache:
        both = (cache.loader("train", framework=name) for name in ("jax", "numpy"))
        for mine, theirs in zip(*both, strict=True):
            assert mine.keys() == theirs.keys()
            for name in ("video", "label_mixed", "label_other", "lam"):
                assert np.array_equal(np.asarray(mine[name]), theirs[name])


def test_fields_of_the_label_table(videos: Path, tmp_path: Path) -> None:
    """Numbers and ragged lists are JAX's arrays, texts stay texts, with the values that NumPy has."""
    names = sorted(path.stem for path in videos.rglob("*.mp4"))
    rows = [{"video": name, "age": k, "boxes": [[k, 1.5]] * (k % 3), "caption": name} for k, name in enumerate(names)]
    table = tmp_path / "t.jsonl"
    table.write_text("\n".join(map(json.dumps, rows)))
    given = config(tmp_path / "store", videos, labels=str(table), epochs=1, fields=["age", "boxes", "caption"])
    with viewcache.open(given) as cache:
        both = (cache.loader("train", framework=name) for name in ("jax", "numpy"))
        for mine, theirs in zip(*both, strict=True):
            assert mine.keys() == theirs.keys()
            assert isinstance(mine["age"], jax.Array)
            assert np.array_equal(np.asarray(mine["age"]), theirs["age"])
            assert isinstance(mine["boxes"].values, jax.Array)
            assert np.array_equal(np.asarray(mine["boxes"].values), theirs["boxes"].values.astype(np.float32))
            assert np.array_equal(np.asarray(mine["boxes"].offsets), theirs["boxes"].offsets)
            assert list(mine["caption"]) == list(theirs["caption"])
