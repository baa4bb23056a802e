"""What RandAugment, MixUp and CutMix cost a batch, beside the originals: PIL frame by frame, and torch's roll.

Both sides get the same clips and the same drawn choices, and take turns. Of PIL the work on pixels alone is timed, not
turning planes into pictures and back.
"""

from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps

from benchmarks.harness import Aim, Result, compare, main
from viewcache.materializer.ops.mix import Mix
from viewcache.materializer.ops.primitives import Primitive, applied

CLIPS, FRAMES, SIDE = 8, 8, 224
FACTOR = 1.27
"""Of brightness, colour, contrast and sharpness: magnitude 9 of 31."""


def bench(args: Namespace) -> Iterator[Result]:
    """Each primitive at magnitude 9 of 31, all of them together, and mixing."""
    clips = np.random.default_rng(0).integers(0, 256, (CLIPS, FRAMES, 3, SIDE, SIDE), np.uint8)
    frames = clips.reshape(-1, 3, SIDE, SIDE)
    pictures = [Image.fromarray(np.ascontiguousarray(frame.transpose(1, 2, 0))) for frame in frames]
    ours = {primitive: partial(_ours, primitive, value, frames) for primitive, value in VALUES.items()}
    pils = {primitive: partial(_each, call, pictures) for primitive, call in BY_PIL.items()}
    rivals = {"PIL": lambda: [call() for call in pils.values()], "ours": lambda: [call() for call in ours.values()]}
    yield compare(f"thirteen primitives of {len(frames)} frames", rivals, baseline="PIL", args=args,
                  aims=[Aim("ours", at_most=1.0)])  # fmt: skip
    floats = torch.from_numpy(clips).float()
    yield compare("MixUp of a batch", {
        "torch's roll of float32": partial(_rolled, floats),
        "ours, float32": partial(_mixed, Mix(77), floats),
        "ours, uint8": partial(_mixed, Mix(77), clips),
    }, baseline="torch's roll of float32", args=args, aims=[Aim("ours, float32", at_most=1.0)])  # fmt: skip
    tensor = torch.from_numpy(clips)
    middle = Mix(77, (1 << 31, 1 << 31))
    yield compare("CutMix of a batch, uint8", {
        "torch's roll and clone": partial(_cut, tensor, middle),
        "ours": partial(_mixed, middle, clips),
    }, baseline="torch's roll and clone", args=args, aims=[Aim("ours", at_most=1.0)])  # fmt: skip


def _ours(primitive: Primitive, value: int, frames: NDArray[np.uint8]) -> None:
    for frame in frames:
        applied(primitive, value, frame, "nearest", (0, 0, 0))


def _each(call: Callable[[Image.Image], Image.Image], pictures: list[Image.Image]) -> None:
    for picture in pictures:
        call(picture)


def _affine(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST)


def _rolled(clips: torch.Tensor) -> torch.Tensor:
    """As torchvision's MixUp."""
    return clips.roll(1, 0).mul_(1 - 77 / 256).add_(clips.mul(77 / 256))


def _cut(clips: torch.Tensor, mix: Mix) -> torch.Tensor:
    """As torchvision's CutMix."""
    y1, y2, x1, x2 = mix.box(SIDE, SIDE)
    rolled, out = clips.roll(1, 0), clips.clone()
    out[..., y1:y2, x1:x2] = rolled[..., y1:y2, x1:x2]
    return out


def _mixed(mix: Mix, clips: NDArray[np.uint8] | torch.Tensor) -> None:
    """As a loader: the last video is kept, and the batch is mixed in place."""
    mix.apply(clips, clips[-1:].copy() if isinstance(clips, np.ndarray) else clips[-1:].clone())


VALUES = {
    Primitive.SHEAR_X: 5898,
    Primitive.SHEAR_Y: 5898,
    Primitive.TRANSLATE_X: 30,
    Primitive.TRANSLATE_Y: 30,
    Primitive.ROTATE: 9 * 4096,
    Primitive.BRIGHTNESS: round(FACTOR * 65536),
    Primitive.COLOR: round(FACTOR * 65536),
    Primitive.CONTRAST: round(FACTOR * 65536),
    Primitive.SHARPNESS: round(FACTOR * 65536),
    Primitive.POSTERIZE: 7,
    Primitive.SOLARIZE: 179,
    Primitive.AUTO_CONTRAST: 0,
    Primitive.EQUALIZE: 0,
}
BY_PIL: dict[Primitive, Callable[[Image.Image], Image.Image]] = {
    Primitive.SHEAR_X: lambda image: _affine(image, 1, 0.09, 0, 0, 1, 0),
    Primitive.SHEAR_Y: lambda image: _affine(image, 1, 0, 0, 0.09, 1, 0),
    Primitive.TRANSLATE_X: lambda image: _affine(image, 1, 0, -30, 0, 1, 0),
    Primitive.TRANSLATE_Y: lambda image: _affine(image, 1, 0, 0, 0, 1, -30),
    Primitive.ROTATE: lambda image: image.rotate(9),
    Primitive.BRIGHTNESS: lambda image: ImageEnhance.Brightness(image).enhance(FACTOR),
    Primitive.COLOR: lambda image: ImageEnhance.Color(image).enhance(FACTOR),
    Primitive.CONTRAST: lambda image: ImageEnhance.Contrast(image).enhance(FACTOR),
    Primitive.SHARPNESS: lambda image: ImageEnhance.Sharpness(image).enhance(FACTOR),
    Primitive.POSTERIZE: lambda image: ImageOps.posterize(image, 7),
    Primitive.SOLARIZE: lambda image: ImageOps.solarize(image, 179),
    Primitive.AUTO_CONTRAST: ImageOps.autocontrast,
    Primitive.EQUALIZE: ImageOps.equalize,
}

if __name__ == "__main__":
    main(__doc__, bench)
