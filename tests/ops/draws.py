"""Addresses of many clips, test frames, and one valid use of every built-in operation."""

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer import randomness
from viewcache.materializer.ops import Draw, FrameOp, NativeOp, Op, Params, ReadOp, TimeOp, get

__all__ = ["EXAMPLES", "draws", "frame", "parse", "parse_frame", "parse_native", "parse_read", "parse_time"]

EXAMPLES: dict[str, list[object]] = {
    "resize": [{"short_side": 24}, {"shape": [20, 30], "interpolation": "bicubic"}],
    "random_short_side": [{"range": [16, 40]}],
    "random_crop": [{"shape": [12, 17]}],
    "center_crop": [11],
    "three_crop": [{"shape": [9, 14]}],
    "five_crop": [{"shape": [9, 14]}],
    "ten_crop": [{"shape": [9, 14]}],
    "random_resized_crop": [{"shape": [16, 16]}, {"shape": 20, "scale": [0.9, 1.0], "ratio": [3.0, 4.0]}],
    "flip": [{"flip_prob": 0.5}, {"direction": "vertical"}],
    "rotate": [{"degrees": [-30, 30]}, {"degrees": 90}, {"degrees": 180}, {"degrees": 12.5, "fill": [9, 99, 199]}],
    "color_jitter": [{"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1, "prob": 0.8}],
    "grayscale": [{"prob": 0.5}],
    "blur": [{"sigma": [0.1, 2.0], "prob": 0.5}],
    "erase": [{}, {"prob": 1, "fill": [1, 2, 3]}],
    "rand_augment": [None, {"num_ops": 4, "interpolation": "bilinear", "fill": [9, 99, 199]}],
    "trivial_augment_wide": [None],
    "auto_augment": [None, "cifar10", {"policy": "svhn", "fill": 128}],
    "inv_sample": [True, {"prob": 0.5}],
    "subsample": [{"step": 2}, {"frames": 3}],
    "normalize": [{"mean": [0.45, 0.45, 0.45], "std": 0.225}],
    "mixup": [0.8, {"alpha": 0.2, "prob": 0.5, "num_classes": 400}],
    "cutmix": [None],
    "mix_video": [{"cutmix_prob": 0.3}],
    "to_dtype": ["float32", {"dtype": "float16", "scale": False}],
}
"""Every built-in operation with values as a config would have them; a test fails if one is missing."""


def draws(
    n: int, scope: str = "x", *, seed: int = 0, ordinal: int = 0, epoch: int = 0, sample: int = 0, independent: int = 0
) -> Draw:
    """Addresses of clips of n videos."""
    video = np.array([randomness.address_word(f"video {i}") for i in range(n)], np.uint64)
    return Draw(seed, scope, ordinal, video, np.full(n, epoch), np.full(n, sample), independent)


def frame(h: int = 32, w: int = 45, seed: int = 0) -> NDArray[np.uint8]:
    """A read-only uint8 (3,h,w) frame of colourful noise, smoothed a little."""
    noise = np.random.default_rng(seed).integers(0, 256, (3, h + 1, w + 1)).astype(np.uint16)
    out = ((noise[:, 1:, 1:] + noise[:, :-1, 1:] + noise[:, 1:, :-1] + noise[:, :-1, :-1]) // 4).astype(np.uint8)
    out = np.clip(out.astype(np.int16) * 2 - 128, 0, 255).astype(np.uint8)
    out.flags.writeable = False
    return out


def parse(name: str, value: object) -> tuple[Op, Params]:
    """The operation and its canonical parameters."""
    op = get(name)
    return op, op.parse(value)


def parse_frame(name: str, value: object) -> tuple[FrameOp, Params]:
    """Like ``parse``, for one that works on the pixels of a frame."""
    op, params = parse(name, value)
    assert isinstance(op, FrameOp)
    return op, params


def parse_native(name: str, value: object) -> tuple[NativeOp, Params]:
    """Like ``parse``, for a pure resize."""
    op, params = parse(name, value)
    assert isinstance(op, NativeOp)
    return op, params


def parse_time(name: str, value: object) -> tuple[TimeOp, Params]:
    """Like ``parse``, for one that chooses frames."""
    op, params = parse(name, value)
    assert isinstance(op, TimeOp)
    return op, params


def parse_read(name: str, value: object) -> tuple[ReadOp, Params]:
    """Like ``parse``, for one that works on a batch."""
    op, params = parse(name, value)
    assert isinstance(op, ReadOp)
    return op, params
