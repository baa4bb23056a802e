"""Operations on time, and on batches as they are read."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.ops.draws import draws, parse_read, parse_time
from viewcache.errors import BadInput

SIZE = np.full(4000, 8)
BATCH = np.random.default_rng(0).integers(0, 256, (2, 4, 3, 5, 6)).astype(np.uint8)
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def test_inverted_clips_run_backwards() -> None:
    """SAND's inv_sample reverses the frames of a clip: all with true, none with false, a share with prob."""
    idx = np.arange(12).reshape(2, 6)
    for value, want in ((True, idx[:, ::-1]), (None, idx[:, ::-1]), (False, idx), ({"enabled": True}, idx[:, ::-1])):
        op, params = parse_time("inv_sample", value)
        rows, *_ = op.resolve(params, draws(2), SIZE[:2], SIZE[:2])
        assert np.array_equal(op.frames(params, rows, idx), want)
        assert np.array_equal(op.frames(params, rows[0], idx[0]), want[0])
        assert op.out_frames(params, 6) == 6
    op, params = parse_time("inv_sample", {"prob": 0.3})
    assert op.resolve(params, draws(4000), SIZE, SIZE)[0].mean() == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ({"step": 1}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"step": 3}, [0, 3, 6]),
        ({"frames": 8}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"frames": 4}, [0, 2, 5, 7]),
        ({"frames": 3}, [0, 4, 7]),
        ({"frames": 1}, [3]),
    ],
)
def test_subsampling_keeps_the_documented_frames(value: object, kept: list[int]) -> None:
    """Step keeps every n-th frame, frames spreads n evenly from the first to the last, half positions up."""
    op, params = parse_time("subsample", value)
    rows, *_ = op.resolve(params, draws(2), SIZE[:2], SIZE[:2])
    idx = np.arange(16).reshape(2, 8) * 10
    assert np.array_equal(op.frames(params, rows, idx), idx[:, kept])
    assert op.out_frames(params, 8) == len(kept)


def test_subsampling_refuses_what_is_not_there() -> None:
    """More frames than the clip has, none, or two rules at once are refused with what is allowed."""
    op, params = parse_time("subsample", {"frames": 9})
    with pytest.raises(BadInput, match="frames is 9, but the clip has only 8"):
        op.out_frames(params, 8)
    for value in (None, {"step": 2, "frames": 2}):
        with pytest.raises(BadInput, match="exactly one of step"):
            parse_time("subsample", value)


def reference(batch: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Normalization as torchvision defines it, in float64."""
    mean, std = (torch.tensor(x, dtype=torch.float64)[:, None, None] for x in (MEAN, STD))
    return ((torch.from_numpy(batch).double() / 255 - mean) / std).numpy()


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_normalize_is_torchvisions(kind: str) -> None:
    """uint8 becomes float32 (x / 255 - mean) / std per channel, to the last bits; the stored batch stays unchanged."""
    op, params = parse_read("normalize", {"mean": MEAN, "std": STD})
    before = BATCH.copy()
    out = op.apply_batch(params, BATCH if kind == "numpy" else torch.from_numpy(BATCH))
    assert isinstance(out, np.ndarray | torch.Tensor)
    assert str(out.dtype).endswith("float32")
    assert np.abs(np.asarray(out) - reference(BATCH)).max() < 2e-6
    assert np.array_equal(BATCH, before)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_dtype_then_normalize_is_the_same(kind: str) -> None:
    """Scaling first and normalizing the floats gives the same values, as people write it for torchvision."""
    first, to = parse_read("to_dtype", "float32")
    second, params = parse_read("normalize", {"mean": MEAN, "std": STD})
    batch = BATCH if kind == "numpy" else torch.from_numpy(BATCH)
    out = second.apply_batch(params, first.apply_batch(to, batch))
    assert np.abs(np.asarray(out) - reference(BATCH)).max() < 2e-6


@pytest.mark.parametrize("name", ["float32", "float16", "float64", "bfloat16"])
@pytest.mark.parametrize("scale", [True, False])
def test_to_dtype_scales_unless_told_not_to(name: str, scale: bool) -> None:
    """Values become [0, 1] by default and stay 0..255 with scale: false, in the type that was asked for."""
    op, params = parse_read("to_dtype", {"dtype": name, "scale": scale})
    out = op.apply_batch(params, torch.from_numpy(BATCH))
    assert isinstance(out, torch.Tensor)
    assert out.dtype == getattr(torch, name)
    want = torch.from_numpy(BATCH).double() / (255 if scale else 1)
    assert torch.allclose(out.double(), want, rtol=0.004 if name == "bfloat16" else 5e-4)
    if name == "bfloat16":
        with pytest.raises(BadInput, match="bfloat16 for a NumPy batch"):
            op.apply_batch(params, BATCH)
    else:
        array = op.apply_batch(params, BATCH)
        assert isinstance(array, np.ndarray)
        assert np.array_equal(array, out.numpy())


def test_read_operations_give_new_memory() -> None:
    """The loader reuses its uint8 buffers, so a result never shares memory with its input."""
    floats = torch.rand(1, 3, 2, 2)
    for name, value in (("to_dtype", "float32"), ("normalize", {"mean": 0.5, "std": 1.0})):
        op, params = parse_read(name, value)
        tensor = op.apply_batch(params, floats)
        assert isinstance(tensor, torch.Tensor)
        assert tensor.data_ptr() != floats.data_ptr()
        array = floats.numpy()
        assert not np.shares_memory(op.apply_batch(params, array), array)
