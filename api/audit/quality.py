"""The quality that pictures with a loss have reached, as it was measured when they were encoded."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from viewcache.materializer.media.loss import Loss
from viewcache.materializer.ops.lossy import LOSSY_OP

__all__ = ["Quality", "Reached"]


@dataclass(frozen=True, slots=True)
class Quality:
    """Of all stored objects of one kind of loss."""

    asked: str
    """What their tasks say: ``quality 45 dB`` or ``crf 18``."""
    encoder: str
    """Its name and version."""
    objects: int
    """With a measurement: clips that were made of kept pictures have none of their own."""
    least_db: float
    """Luma PSNR of the worst picture, in decibels."""
    mean_db: float
    """Mean over the objects of packets of their pictures' PSNR, and of clips of their worst picture's."""

    def as_dict(self) -> dict[str, object]:
        """The same as plain values."""
        return {name: getattr(self, name) for name in self.__slots__}

    def describe(self) -> str:
        """In words."""
        return (
            f"loss of {self.asked} ({self.encoder}): the worst picture has {self.least_db:.1f} dB, the mean is "
            f"{self.mean_db:.1f} dB, in {self.objects} objects that were measured when they were made"
        )


@dataclass(slots=True)
class Reached:
    """What is found object by object."""

    _found: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)

    def add(self, attributes: Mapping[str, Any]) -> None:
        """Note what one object says of itself."""
        calls: Iterable[Mapping[str, Any]] = attributes.get("recipe", ())
        params = next((call["params"] for call in calls if call.get("op") == LOSSY_OP), None)
        alone = attributes.get("psnr_db")
        packed = attributes.get("encoded", {}).get("psnr_db") or {"least": alone, "mean": alone}
        if params is None or packed["least"] is None:
            return
        loss = Loss(params["crf"], params["quality_db"])
        asked = f"crf {loss.crf}" if loss.quality_db is None else f"quality {loss.quality_db:g} dB"
        pair = float(packed["least"]), float(packed["mean"])
        self._found.setdefault((asked, params["encoder"]), []).append(pair)

    def qualities(self) -> tuple[Quality, ...]:
        """By what was asked."""
        return tuple(
            Quality(asked, encoder, len(pairs), min(least for least, _ in pairs), sum(m for _, m in pairs) / len(pairs))
            for (asked, encoder), pairs in sorted(self._found.items())
        )
