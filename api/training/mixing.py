"""What a loader's batch needs to be mixed: each clip's partner, which may be another rank's, and the labels of both."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viewcache.api.port import TaskHandle
from viewcache.errors import BadInput
from viewcache.materializer.gate import Cancelled
from viewcache.materializer.ops.mix import SHARES, Mix, Mixer
from viewcache.materializer.reading.batch import Batch, Buffers
from viewcache.materializer.reading.finishing import Mixing

__all__ = ["MixedBatches", "Mixture"]


@dataclass(frozen=True, slots=True)
class Mixture:
    """A rank's part of a batch, and what it is mixed with."""

    mixing: Mixing
    labels_before: NDArray[Any]
    """(m,) of the clips before the first, or (m, k) where videos may have several."""
    video_before: str
    """Whose they are."""
    classes: int

    def labels(self, batch: Batch) -> dict[str, NDArray[Any]]:
        """The labels of what the clips become.

        Returns:
            ``label_other``: the partner's label, as ``label`` is; ``lam``: (b,) float32, the share of the clip itself;
            ``label_mixed``: (b, classes) float32, that share of its label and the rest of its partner's.

        Raises:
            BadInput: a clip has no label, or one beyond the classes.
        """
        own, samples = batch.label, len(self.labels_before)
        both = np.concatenate([self.labels_before, own])
        other, lam = both[: len(own)], self.mixing.mix.lam(*batch.video.shape[-2:])
        shares = {"label_other": other, "lam": np.full(len(own), lam, np.float32)}
        mixed = np.zeros((len(own), self.classes), np.float32)
        if own.ndim == 2:  # a video without any of its labels has none to mix, and says so by zeros
            if own.shape[1] > self.classes:
                raise BadInput(
                    f"task {batch.task!r} has labels of {own.shape[1]} classes, and num_classes is {self.classes}: "
                    "raise it, or leave it out where labels are text"
                )
            mixed[:, : own.shape[1]] = np.float32(lam) * own + np.float32(1 - lam) * other
            return shares | {"label_mixed": mixed}
        wrong = np.flatnonzero((both < 0) | (both >= self.classes))
        if len(wrong):
            video = self.video_before if wrong[0] < samples else batch.videos[wrong[0] - samples]
            label = int(both[wrong[0]])
            says = "has no label" if label < 0 else f"has label {label}, and num_classes is {self.classes}"
            raise BadInput(
                f"video {video!r} of task {batch.task!r} {says}, so it cannot be mixed: label it, or leave it out, as "
                "by where: label IS NOT NULL"
            )
        rows = np.arange(len(own))
        mixed[rows, own] = lam
        mixed[rows, other] += np.float32(1 - lam)
        return shares | {"label_mixed": mixed}


class MixedBatches:
    """Finds what the batches of one rank are mixed with."""

    def __init__(self, handle: TaskHandle, mixer: Mixer, rank: int, world: int) -> None:
        """Mix the batches of a task.

        Raises:
            BadInput: it is not known how many classes there are.
        """
        self._classes = mixer.classes(len(handle.classes))
        self._handle, self._mixer = handle, mixer
        self._rank, self._world = rank, world
        self._samples = handle.samples_per_video

    @classmethod
    def of(cls, handle: TaskHandle, rank: int, world: int) -> "MixedBatches | None":
        """Those of a task; None if it leaves clips apart."""
        mixer = handle.mixer
        return None if mixer is None else cls(handle, mixer, rank, world)

    def mixture(self, batch: Batch, buffers: Buffers, cancelled: Cancelled) -> Mixture:
        """What a batch that was read is mixed with. A partner of another rank is read now.

        Raises:
            Closed: the cache was closed, or ``cancelled`` was set.
            BadVideo: the partner cannot be decoded and the policy is ``raise``.
        """
        handle, samples, count = self._handle, self._samples, len(batch.label)
        mix = self._mixer.mix(batch.epoch, batch.iteration)
        other = self._rank_before(batch) if count else None
        if other is None:
            before, labels = batch.video[-samples:].copy(), batch.label[-samples:]
            video = batch.videos[-1] if count else ""
            if count <= samples:  # a batch of one video has nobody to be mixed with
                mix = Mix(SHARES)
        else:
            rank, clips = other
            place = batch.epoch, batch.iteration, rank, self._world
            last = range(clips - samples, clips)
            before = handle.clips(*place[:2], last, rank, self._world, buffers, cancelled)
            described = handle.describe(*place)  # after they were made: none is replaced any more
            labels, video = described.label[-samples:], described.videos[-1]
        return Mixture(Mixing(mix, count, before), labels, video, self._classes)

    def _rank_before(self, batch: Batch) -> tuple[int, int] | None:
        """The rank that reads the video before this rank's first, and how many clips it has; None if it is this one."""
        for back in range(1, self._world):
            rank = (self._rank - back) % self._world
            clips = self._handle.shape(batch.epoch, batch.iteration, rank, self._world)[0]
            if clips:
                return rank, clips
        return None
