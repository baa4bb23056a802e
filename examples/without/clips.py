"""What examples/slowfast.yaml says, as a dataset of one's own: PyAV, NumPy and PyTorch, decoded anew for each clip.

The scripts beside this file train as their namesakes in examples/ do, from this dataset. docs/examples.md counts what
viewcache saves of it, in lines; docs/benchmarks.md, in CPU seconds.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import torch
from torch.utils.data import Dataset, default_collate

Batch = dict[str, torch.Tensor]


class Clips(Dataset[Batch]):
    """Random clips of the videos below a folder; the folder that a video lies in is its label."""

    def __init__(
        self,
        folder: str,
        frames: int = 32,
        stride: int = 2,
        samples: int = 2,
        short_side: tuple[int, int] = (256, 320),
        crop: int = 224,
    ) -> None:
        self.frames, self.stride, self.samples = frames, stride, samples
        self.short_side, self.crop = short_side, crop
        paths = sorted(path for path in Path(folder).rglob("*") if path.suffix in {".mp4", ".webm", ".mkv", ".avi"})
        names = sorted({path.parent.name for path in paths})
        self.videos = [(path, names.index(path.parent.name)) for path in paths]

    def __len__(self) -> int:
        return len(self.videos)

    def __getitem__(self, number: int) -> Batch:
        """All samples of one video; of another one where the file is broken."""
        path, label = self.videos[number]
        try:
            times = self._times(path)
            clips = [self._clip(path, times) for _ in range(self.samples)]
        except (av.FFmpegError, ValueError):
            return self[random.randrange(len(self.videos))]
        numbers = {"label": label, "index": number}
        return {"video": torch.stack(clips)} | {
            name: torch.full((self.samples,), value) for name, value in numbers.items()
        }

    def _times(self, path: Path) -> list[int]:
        """The presentation times of all frames."""
        with av.open(str(path)) as container:
            packets = container.demux(container.streams.video[0])
            times = sorted(packet.pts for packet in packets if packet.pts is not None and packet.size)
        if len(times) <= (self.frames - 1) * self.stride:
            raise ValueError(f"{path}: {len(times)} frames are too few for a clip")
        return times

    def _clip(self, path: Path, times: list[int]) -> torch.Tensor:
        """One clip (3,T,H,W), as a model takes it."""
        span = (self.frames - 1) * self.stride + 1
        first = random.randint(0, len(times) - span)
        wanted = times[first : first + span : self.stride]
        short_side = random.randint(*self.short_side)
        pictures = np.stack(list(self._decoded(path, wanted, short_side)))
        y, x = (random.randint(0, size - self.crop) for size in pictures.shape[1:3])
        pictures = pictures[:, y : y + self.crop, x : x + self.crop]
        if random.random() < 0.5:
            pictures = pictures[:, :, ::-1]
        clip = torch.from_numpy(np.ascontiguousarray(pictures)).permute(3, 0, 1, 2)
        return (clip.float() / 255 - 0.45) / 0.225

    def _decoded(self, path: Path, wanted: list[int], short_side: int) -> Iterator[np.ndarray]:
        """The pictures (H,W,3) that are shown at some times."""
        left = set(wanted)
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            scale = short_side / min(stream.width, stream.height)
            width, height = (max(short_side, round(size * scale)) for size in (stream.width, stream.height))
            container.seek(wanted[0], stream=stream)
            for frame in container.decode(stream):
                if frame.pts in left:
                    left.remove(frame.pts)
                    yield frame.to_ndarray(format="rgb24", width=width, height=height)
                if not left:
                    return
        raise ValueError(f"{path}: {len(left)} frames cannot be decoded")


def in_one(videos: list[Batch]) -> Batch:
    """A batch of the samples of some videos: default_collate makes (videos, samples, …) of them."""
    return {name: tensor.flatten(0, 1) for name, tensor in default_collate(videos).items()}
