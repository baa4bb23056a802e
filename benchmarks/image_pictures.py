"""How `benchmarks.image_rivals` makes a picture by hand: each decodes, resizes, crops and flips as people write it.

By Pillow as torchvision does, by OpenCV, and out of resized pictures in one array. A crop is of one size, or a part of
any size and shape that is resized once more, as for ImageNet (`Setting.resized_crop`).
"""

import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

__all__ = ["Arrays", "Bytes", "OnDemand", "OpenCV", "Pillow", "Setting", "listed", "small_size"]

Bytes = NDArray[np.uint8]
LEAST_AREA, LEAST_SHAPE, TRIES = 0.08, 3 / 4, 10
"""Of a part that is resized: its area and its width ÷ height (at most 1 / that); draws before it is the middle."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One run of one system."""

    system: str
    """A key of `SYSTEMS`."""
    images: str
    """Folder of the images, in a folder for each class."""
    folder: str
    """An empty folder for what the system stores."""
    began_s: float = 0.0
    """``time.perf_counter()`` when the process was started."""
    budget_bytes: int = 10**9
    seed: int = 0
    epochs: int = 4
    """0 = read one batch and close."""
    images_per_batch: int = 64
    short_side: int = 256
    crop: int = 224
    resized_crop: bool = False
    """Whether a crop is a part of any size that is resized to `crop`, as torchvision's RandomResizedCrop draws it."""


def listed(folder: str) -> tuple[list[str], list[int]]:
    """The images of a folder of classes, and their labels: classes are numbered by name."""
    files: list[str] = []
    labels: list[int] = []
    for number, kind in enumerate(sorted(path for path in Path(folder).iterdir() if path.is_dir())):
        found = sorted(map(str, kind.iterdir()))
        files += found
        labels += [number] * len(found)
    return files, labels


def small_size(height: int, width: int, short_side: int) -> tuple[int, int]:
    """Height and width whose short side has a given length, rounded down as torchvision does."""
    scale = short_side / min(height, width)
    return (short_side, int(width * scale)) if height <= width else (int(height * scale), short_side)


class OnDemand:
    """A map-style dataset: one image is opened, decoded, resized, cropped and flipped, each time anew."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.files, self.labels = listed(setting.images)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        return self.picture(number), self.labels[number]

    def picture(self, number: int) -> torch.Tensor:
        """(3,h,w) uint8, perhaps strided."""
        raise NotImplementedError

    def place(self, height: int, width: int) -> tuple[int, int, bool]:
        """Draw top and left of a crop, and whether to flip it; torch seeds each worker."""
        crop = self.setting.crop
        return random.randint(0, height - crop), random.randint(0, width - crop), random.random() < 0.5

    def part(self, height: int, width: int) -> tuple[slice, slice, bool]:
        """Draw rows and columns of a part, and whether to flip it."""
        if not self.setting.resized_crop:
            top, left, flipped = self.place(height, width)
            crop = self.setting.crop
            return slice(top, top + crop), slice(left, left + crop), flipped
        for _ in range(TRIES):
            area = height * width * random.uniform(LEAST_AREA, 1)
            shape = math.exp(random.uniform(math.log(LEAST_SHAPE), -math.log(LEAST_SHAPE)))
            wide, high = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
            if 0 < wide <= width and 0 < high <= height:
                break
        else:  # the largest square in the middle
            wide = high = min(height, width)
        top, left = random.randint(0, height - high), random.randint(0, width - wide)
        return slice(top, top + high), slice(left, left + wide), random.random() < 0.5

    def sized(self, part: Any) -> Any:
        """A part, (h,w) or (h,w,C), at the size of a crop; one that has it stays as it is."""
        shape = (self.setting.crop, self.setting.crop)
        return part if part.shape[:2] == shape else cv2.resize(part, shape, interpolation=cv2.INTER_LINEAR)


class Pillow(OnDemand):
    """The very steps of torchvision's ImageFolder, Resize, RandomCrop, RandomHorizontalFlip and PILToTensor."""

    def picture(self, number: int) -> torch.Tensor:
        """By PIL; its resize is antialiased."""
        with open(self.files[number], "rb") as file, Image.open(file) as opened:
            image = opened.convert("RGB")
        height, width = small_size(image.height, image.width, self.setting.short_side)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
        top, left, flipped = self.place(height, width)
        image = image.crop((left, top, left + self.setting.crop, top + self.setting.crop))
        if flipped:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)


class OpenCV(OnDemand):
    """By OpenCV, with its plain bilinear filter, which aliases."""

    def picture(self, number: int) -> torch.Tensor:
        """Colours are put in order behind the crop, where there are fewer pixels."""
        image = self.resized(number)
        rows, columns, flipped = self.part(*image.shape[:2])
        image = self.sized(image[rows, columns])
        image = cv2.cvtColor(cv2.flip(image, 1) if flipped else image, cv2.COLOR_BGR2RGB)
        return torch.from_numpy(image).permute(2, 0, 1)

    def resized(self, number: int) -> Any:
        """(H,W,3), blue first."""
        image = cv2.imdecode(np.fromfile(self.files[number], np.uint8), cv2.IMREAD_COLOR)
        assert image is not None, self.files[number]
        height, width = small_size(image.shape[0], image.shape[1], self.setting.short_side)
        return cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)


class Arrays(OpenCV):
    """Resized images in one planar array, a file that is mapped into memory; an epoch copies crops out of it.

    OpenCV makes it once. All images are of one size.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        path = Path(setting.folder, "resized.npy")
        shape = (len(self), 3, *self.resized(0).shape[:2])
        made = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
        for number in range(len(self)):
            made[number] = cv2.cvtColor(self.resized(number), cv2.COLOR_BGR2RGB).transpose(2, 0, 1)
        made.flush()
        self.pictures: Bytes = np.load(path, mmap_mode="r")

    def picture(self, number: int) -> torch.Tensor:
        """A copy of a crop; flipped as one picture of many rows, four times faster than numpy's copy."""
        crop = self.setting.crop
        rows, columns, flipped = self.part(*self.pictures.shape[2:])
        if self.setting.resized_crop:
            cut = np.stack([self.sized(plane) for plane in self.pictures[number, :, rows, columns]])
        else:
            cut = np.ascontiguousarray(self.pictures[number, :, rows, columns])
        if flipped:
            cut = np.asarray(cv2.flip(cut.reshape(-1, crop), 1), np.uint8).reshape(cut.shape)
        return torch.from_numpy(cut)
