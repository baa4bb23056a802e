"""MixUp and CutMix of arrays and tensors against their formulas, and the distributions of what is drawn."""

import math
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.ops.draws import parse
from tests.ops.references import beta_below, p_given, p_uniform
from viewcache.errors import BadInput
from viewcache.materializer.ops.mix import Mix, Mixer, MixOp
from viewcache.materializer.reading.finishing import Mixing, finished

N = 20_000
ONE = 1 << 32


def mixes(name: str, value: object, task: str = "train", seed: int = 3) -> list[Mix]:
    """How many batches of a task are mixed."""
    op, params = parse(name, value)
    mixer = Mixer(cast(MixOp, op), params, seed, task)
    return [mixer.mix(epoch, iteration) for epoch in range(20) for iteration in range(N // 20)]


@pytest.mark.parametrize("alpha", [0.001, 0.2, 0.8, 1.0, 2.0, 30.0, 1000.0])
def test_shares_are_of_the_beta_distribution(alpha: float) -> None:
    """λ is Beta(alpha, alpha) as SciPy computes it, rounded to 1/256."""
    counts = np.bincount([each.share for each in mixes("mixup", alpha)], minlength=257)
    edges = np.clip((np.arange(258) - 0.5) / 256, 0, 1)
    expected = np.diff(beta_below(edges, alpha)) * N
    likely = expected >= 5
    have, want = counts[likely], expected[likely]
    if (rest := N - want.sum()) >= 5:
        have, want = np.append(have, N - have.sum()), np.append(want, rest)
    assert len(have) < 2 or p_given(have * (want.sum() / have.sum()), want) > 1e-4
    assert counts[~likely].sum() <= max(20, 3 * expected[~likely].sum())


def test_boxes_are_those_of_the_paper() -> None:
    """The middle is uniform, the sides are √(1 - λ) of the frame's, and what is outside is cut off; λ is the area left.

    The reference is the paper's own code: sides ⌊W √(1 - λ)⌋, half of them to each side of the middle.
    """
    height, width = 224, 320
    middles = []
    for mix in mixes("cutmix", 1.0):
        assert mix.center is not None
        y, x = (int(numerator / ONE * side) for numerator, side in zip(mix.center, (height, width), strict=True))
        cut = math.sqrt(1 - mix.share / 256)
        tall, wide = int(cut / 2 * height), int(cut / 2 * width)
        y1, y2, x1, x2 = mix.box(height, width)
        assert (y1, y2) == (np.clip(y - tall, 0, height), np.clip(y + tall, 0, height))
        assert (x1, x2) == (np.clip(x - wide, 0, width), np.clip(x + wide, 0, width))
        assert mix.lam(height, width) == pytest.approx(1 - (y2 - y1) * (x2 - x1) / (height * width))
        middles.append(mix.center)
    for axis in np.array(middles).T:
        assert p_uniform(axis / ONE) > 1e-4
    assert abs(np.corrcoef(np.array(middles).T)[0, 1]) < 0.03


def test_one_of_both_is_drawn() -> None:
    """`mix_video` draws CutMix with its probability, each with its own alpha; `prob` is the share of mixed batches."""
    drawn = mixes("mix_video", {"cutmix_prob": 0.3, "mixup_alpha": 1000.0, "cutmix_alpha": 0.001})
    cut = np.array([each.center is not None for each in drawn])
    assert cut.mean() == pytest.approx(0.3, abs=0.015)
    shares = np.array([each.share for each in drawn])
    assert np.isin(shares[cut], [0, 256]).mean() > 0.98
    assert np.abs(shares[~cut] - 128).max() < 15
    for name in ("mixup", "cutmix", "mix_video"):
        mixed = [each.share < 256 or each.center is not None for each in mixes(name, {"prob": 0.25})]
        assert np.mean(mixed) == pytest.approx(0.25, abs=0.015)


def test_draws_have_addresses() -> None:
    """A batch's draw is a function of seed, task, epoch and iteration; tasks and seeds draw apart."""
    op, params = parse("mix_video", {})
    mixer = Mixer(cast(MixOp, op), params, 3, "train")
    assert mixer.mix(7, 5) == mixes("mix_video", {})[7 * (N // 20) + 5]
    pairs = (mixes("mixup", 1.0), mixes("mixup", 1.0, task="other"), mixes("mixup", 1.0, seed=4))
    shares = np.array([[each.share for each in drawn] for drawn in pairs])
    assert np.abs(np.corrcoef(shares) - np.eye(3)).max() < 0.03


def batch(kind: str, seed: int = 0, clips: int = 6) -> tuple[Any, NDArray[np.float64]]:
    """A batch (b,T,C,H,W), and the same as float64."""
    values = np.random.default_rng(seed).integers(0, 256, (clips, 4, 3, 10, 14))
    if kind.endswith("uint8"):
        made: NDArray[Any] = values.astype(np.uint8)
    else:
        made = (values / 255).astype(np.float32)
    return (torch.from_numpy(made.copy()) if kind.startswith("torch") else made), made.astype(float)


KINDS = ["numpy uint8", "numpy float32", "torch uint8", "torch float32"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("samples", [1, 2, 3])
@pytest.mark.parametrize("share", [0, 1, 77, 128, 255, 256])
def test_mixup_is_its_formula(kind: str, samples: int, share: int) -> None:
    """X becomes λ x + (1 - λ) roll(x), where roll moves by one video: torchvision's formula; bytes are rounded."""
    clips, plain = batch(kind)
    before = plain[-samples:].astype(np.uint8 if kind.endswith("uint8") else np.float32)
    Mix(share).apply(clips, torch.from_numpy(before) if kind.startswith("torch") else before)
    lam = share / 256
    want = lam * plain + (1 - lam) * np.roll(plain, samples, axis=0)
    if kind.endswith("uint8"):
        assert np.array_equal(np.asarray(clips), np.rint(want))
    else:
        assert np.allclose(np.asarray(clips), want, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("center", [(0, 0), (ONE // 2, ONE // 3), (ONE - 1, ONE - 1)])
def test_cutmix_is_its_formula(kind: str, center: tuple[int, int]) -> None:
    """Inside the box each clip is its partner, outside itself: the paper's mask."""
    clips, plain = batch(kind)
    mix = Mix(100, center)
    before = np.asarray(clips)[-2:].copy()
    mix.apply(clips, torch.from_numpy(before) if kind.startswith("torch") else before)
    y1, y2, x1, x2 = mix.box(10, 14)
    own = np.ones((10, 14))
    own[y1:y2, x1:x2] = 0
    want = own * plain + (1 - own) * np.roll(plain, 2, axis=0)
    assert np.array_equal(np.asarray(clips).astype(float), want)
    assert own.mean() == pytest.approx(mix.lam(10, 14))


def test_mixup_of_bfloat16() -> None:
    """Tensors of a kind that NumPy does not have are mixed, too."""
    clips, plain = batch("torch float32")
    clips = clips.to(torch.bfloat16)
    Mix(77).apply(clips, clips[-2:].clone())
    want = 77 / 256 * plain + 179 / 256 * np.roll(plain, 2, axis=0)
    assert np.allclose(clips.float().numpy(), want, atol=0.01)


def test_every_pair_of_bytes_is_rounded_to_the_nearest() -> None:
    """All pairs of bytes under all shares: exactly the formula, ties to even, whatever the processor."""
    own = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 256, axis=1)
    for share in range(257):
        clips = own[None].copy()
        Mix(share).apply(clips, own.T[None].copy())
        exact = own.astype(np.int64) * share + own.T.astype(np.int64) * (256 - share)
        assert np.array_equal(clips[0], np.rint(exact / 256))


@pytest.mark.parametrize("kind", ["numpy uint8", "torch uint8"])
def test_before_and_behind_normalize(kind: str) -> None:
    """Mixing commutes with `normalize`, but for the rounding of bytes, and leaves alone what a batch is filled with."""
    normalize, mixup = parse("normalize", {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.4]}), parse("mixup", 1.0)
    results = []
    for ops in ([mixup, normalize], [normalize, mixup]):
        clips, plain = batch(kind)
        before = plain[3:4].astype(np.uint8)
        results.append(np.asarray(finished(ops, clips, Mixing(Mix(90), 4, before))))
    assert results[0].dtype == results[1].dtype == np.float32
    assert np.abs(results[0] - results[1]).max() <= 0.5 / 255 / 0.2 + 1e-5
    mean, std = (np.array(dict(normalize[1])[name])[:, None, None] for name in ("mean", "std"))
    whole = (plain / 255 - mean) / std
    lam = 90 / 256
    assert np.allclose(results[1][:4], lam * whole[:4] + (1 - lam) * np.roll(whole[:4], 1, axis=0), atol=1e-5)
    assert np.allclose(results[1][4:], whole[4:], atol=1e-5)


@pytest.mark.parametrize("alpha", [0, -1, 0.0005, 1001, "half", None, [1, 1]])
@pytest.mark.parametrize("name", ["mixup", "cutmix"])
def test_no_such_alpha(name: str, alpha: object) -> None:
    """An alpha of 0 or below it, or of another kind, is refused with the value and what is allowed."""
    with pytest.raises(BadInput, match=rf"{name}: alpha is .*; allowed: a number from 0.001 to 1000"):
        parse(name, {"alpha": alpha})


def test_how_many_classes_there_are() -> None:
    """The dataset's text labels say it; `num_classes` may say more, never fewer, and must where labels are numbers."""
    op, params = parse("mixup", {"num_classes": None})
    mixer = Mixer(cast(MixOp, op), params, 0, "train")
    assert mixer.classes(5) == 5
    with pytest.raises(BadInput, match="mixup of task 'train': the dataset has no labels that are text, so say"):
        mixer.classes(0)
    op, params = parse("cutmix", {"num_classes": 4})
    mixer = Mixer(cast(MixOp, op), params, 0, "train")
    assert mixer.classes(0) == mixer.classes(3) == mixer.classes(4) == 4
    with pytest.raises(BadInput, match="cutmix of task 'train': num_classes is 4, and the dataset has 5 classes"):
        mixer.classes(5)
