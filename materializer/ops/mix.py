"""MixUp and CutMix: each clip of a batch is mixed with that of the video before it, when the batch is handed out.

How a batch is mixed has an address: the task's seed and name, the epoch and the iteration. A clip's partner is the same
sample of the video that stands before its own in the whole batch, the last one's for the first (torchvision's
``roll``); the order of a batch is drawn, so pairs are. A rank needs one video more than its own share for this, and all
ranks together make the batch that one alone would have.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput
from viewcache.materializer.ops.base import Op, Stage
from viewcache.materializer.ops.fields import Field, Params, Real, Whole
from viewcache.materializer.randomness import ONE, address_word, fraction, threshold

__all__ = ["OPS", "CutMix", "Mix", "MixOp", "MixUp", "MixVideo", "Mixer"]

SHARES = 256
"""Drawn shares are in 1/256, so that mixing uint8 is integer arithmetic and no processor rounds it otherwise."""

Drawn = Callable[[str], int]
"""Gives the numerator over ``ONE`` of what is drawn for a batch under a name."""


@dataclass(frozen=True, slots=True)
class Mix:
    """How one batch is mixed."""

    share: int
    """Of a clip itself, in 1/256; the rest is its partner's. 256 leaves the batch as it is."""
    center: tuple[int, int] | None = None
    """For CutMix, where the middle of the box is: y and x as numerators over ``ONE``; None = MixUp."""

    def box(self, height: int, width: int) -> tuple[int, int, int, int]:
        """The pixels that CutMix takes from the partner: y1, y2, x1, x2; as in the paper, cut off at the edges."""
        assert self.center is not None
        half = 0.5 * math.sqrt(1 - self.share / SHARES)
        y, x = (each * side // ONE for each, side in zip(self.center, (height, width), strict=True))
        tall, wide = int(half * height), int(half * width)
        return max(y - tall, 0), min(y + tall, height), max(x - wide, 0), min(x + wide, width)

    def lam(self, height: int, width: int) -> float:
        """Which part of a clip of such frames is its own: the share, or what the box leaves of a frame."""
        if self.center is None:
            return self.share / SHARES
        y1, y2, x1, x2 = self.box(height, width)
        return 1 - (y2 - y1) * (x2 - x1) / (height * width)

    def apply(self, clips: Any, before: Any) -> None:
        """Mix clips with their partners, in place.

        Args:
            clips: (n, …, H, W), uint8 or floats, an array or a tensor; m samples of each video after one another.
            before: (m, …, H, W) of the same kind: the samples of the video before the first.
        """
        clips, before = _as_array(clips), _as_array(before)
        samples = len(before)
        for k in range(len(clips) - 1, -1, -1):  # from the end, so that a partner is still as it was
            self._one(clips[k], clips[k - samples] if k >= samples else before[k])

    def _one(self, clip: Any, partner: Any) -> None:
        if self.center is not None:
            y1, y2, x1, x2 = self.box(*clip.shape[-2:])
            clip[..., y1:y2, x1:x2] = partner[..., y1:y2, x1:x2]
        elif str(clip.dtype).endswith("uint8"):
            _mix_bytes(clip, partner, self.share)
        else:
            _mix_floats(clip, partner, self.share / SHARES)


def _as_array(clips: Any) -> Any:
    """A tensor in plain memory as an array of the same memory: NumPy starts no threads for what a frame takes."""
    if isinstance(clips, np.ndarray) or clips.device.type != "cpu" or str(clips.dtype) == "torch.bfloat16":
        return clips
    return clips.numpy()


def _mix_bytes(clip: Any, partner: Any, share: int) -> None:
    """Mix uint8, in place, to the nearest, ties to even; float32 holds the products with 1/256 exactly."""
    if not isinstance(clip, np.ndarray):
        clip.copy_((clip.float() * (share / SHARES) + partner.float() * (1 - share / SHARES)).round_())
        return
    import cv2

    assert clip.flags.c_contiguous  # else what is mixed would be a copy
    wide = clip.shape[-1]
    own, other = clip.reshape(-1, wide), partner.reshape(-1, wide)
    cv2.addWeighted(own, share / SHARES, other, 1 - share / SHARES, 0, own)


def _mix_floats(clip: Any, partner: Any, lam: float) -> None:
    """Mix floats, in place, frame by frame: what lies between fits into the processor's cache."""
    rest = partner[0] * 0
    for frame, other in zip(clip, partner, strict=True):
        rest[...] = other
        rest *= 1 - lam
        frame *= lam
        frame += rest


@dataclass(frozen=True, slots=True)
class Mixer:
    """The mixing of one task."""

    op: "MixOp"
    params: Params
    seed: int
    """Of the task."""
    task: str
    """Its name."""

    def mix(self, epoch: int, iteration: int) -> Mix:
        """How a batch is mixed."""
        where = address_word(self.task), epoch, iteration

        def drawn(what: str) -> int:
            return int(fraction(self.seed, f"mix/{what}", *where))

        if drawn("chance") >= threshold(cast(float, dict(self.params)["prob"])):
            return Mix(SHARES)
        return self.op.draw(self.params, drawn)

    def classes(self, names: int) -> int:
        """How many columns the mixed labels have.

        Args:
            names: number of the dataset's text labels; 0 if its labels are whole numbers.

        Raises:
            BadInput: ``num_classes`` is missing, or fewer than there are.
        """
        given = cast("int | None", dict(self.params)["num_classes"])
        where = f"{self.op.name} of task {self.task!r}"
        if given is None and not names:
            raise BadInput(
                f"{where}: the dataset has no labels that are text, so say how many classes there are: "
                f"{self.op.name}: {{num_classes: …}}"
            )
        if given is not None and given < names:
            raise BadInput(f"{where}: num_classes is {given}, and the dataset has {names} classes; leave it out")
        return names if given is None else given


class MixOp(Op):
    """Mixes the clips of a batch in pairs, and their labels; one of a task, in a step at the end."""

    stage: ClassVar[Stage] = "read"
    PROB: ClassVar[Field] = Field("prob", Real(0.0, 1.0), 1.0, "probability that a batch is mixed at all")
    CLASSES: ClassVar[Field] = Field(
        "num_classes", Whole(1, 1_000_000), None, "columns of ``label_mixed``; without it the dataset's classes"
    )

    @abstractmethod
    def draw(self, params: Params, drawn: Drawn) -> Mix:
        """How a batch is mixed, by what is drawn for it."""


def _alpha(name: str) -> Field:
    return Field(name, Real(0.001, 1000.0), 1.0, "both parameters of the Beta distribution of the share")


class MixUp(MixOp):
    """Blend each clip of a batch with another one, and their labels alike (Zhang et al. 2018).

    A share λ is drawn from Beta(alpha, alpha) for each batch: a clip becomes λ times itself plus 1 - λ times its
    partner. Bytes stay bytes, rounded to the nearest, ties to even.
    """

    name = "mixup"
    shorthand = "alpha"
    fields = (_alpha("alpha"), MixOp.PROB, MixOp.CLASSES)
    fingerprint = "1"

    def draw(self, params: Params, drawn: Drawn) -> Mix:
        """Draw λ."""
        return Mix(_share(cast(float, dict(params)["alpha"]), drawn("lam")))


class CutMix(MixOp):
    """Replace a box of each clip of a batch by that of another one, and mix their labels by area (Yun et al. 2019).

    A share λ is drawn from Beta(alpha, alpha) for each batch, and the middle of the box uniformly: its sides are
    √(1 - λ) of the frame's, cut off at the edges. It is the same box in all frames and clips of the batch.
    """

    name = "cutmix"
    shorthand = "alpha"
    fields = (_alpha("alpha"), MixOp.PROB, MixOp.CLASSES)
    fingerprint = "1"

    def draw(self, params: Params, drawn: Drawn) -> Mix:
        """Draw λ and the middle of the box."""
        return Mix(_share(cast(float, dict(params)["alpha"]), drawn("lam")), (drawn("y"), drawn("x")))


class MixVideo(MixOp):
    """Mix each batch by ``cutmix`` or by ``mixup``, which is drawn (PyTorchVideo's MixVideo)."""

    name = "mix_video"
    fields = (
        Field("cutmix_prob", Real(0.0, 1.0), 0.5, "probability of ``cutmix``, else it is ``mixup``"),
        _alpha("mixup_alpha"),
        _alpha("cutmix_alpha"),
        MixOp.PROB,
        MixOp.CLASSES,
    )
    fingerprint = "1"

    def draw(self, params: Params, drawn: Drawn) -> Mix:
        """Draw which, and as it does."""
        values = cast(dict[str, float], dict(params))
        if drawn("kind") < threshold(values["cutmix_prob"]):
            return Mix(_share(values["cutmix_alpha"], drawn("lam")), (drawn("y"), drawn("x")))
        return Mix(_share(values["mixup_alpha"], drawn("lam")))


# The Beta distribution -----------------------------------------------------------------------------------------------


def _share(alpha: float, drawn: int) -> int:
    """A number of Beta(alpha, alpha), in 1/256, by the inverse of its distribution: one number is drawn for it."""
    return int(np.searchsorted(_distribution(alpha), drawn / ONE, side="right"))


@lru_cache(maxsize=8)
def _distribution(alpha: float) -> NDArray[np.float64]:
    """The probability of each share or a smaller one, but for the last, whose is 1; shares are rounded to 1/256."""
    lower = [_beta_below(alpha, (share + 0.5) / SHARES) for share in range(SHARES // 2)]
    return np.array([*lower, *(1 - p for p in reversed(lower))])


def _beta_below(alpha: float, x: float) -> float:
    """P(X ≤ x) of Beta(alpha, alpha) for x < 1/2: a series in x whose terms are all positive."""
    scale = math.lgamma(2 * alpha) - 2 * math.lgamma(alpha)
    term = math.exp(scale + alpha * (math.log(x) + math.log1p(-x))) / alpha
    total = term
    n = 0
    while term > 1e-17 * total:
        term *= (2 * alpha + n) / (alpha + 1 + n) * x
        total += term
        n += 1
    return min(total, 0.5)


OPS = (MixUp(), CutMix(), MixVideo())
