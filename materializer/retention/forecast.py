"""What making ahead will take, before it runs; afterwards it stands beside what was measured."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.sharing import sample_of_videos
from viewcache.materializer.retention.kept_ways import KeptWays
from viewcache.materializer.retention.options import weigh
from viewcache.materializer.retention.ways import ToCome
from viewcache.materializer.scheduling.ahead import Ahead

__all__ = ["Forecast", "forecast"]

MOST_VIDEOS = 2000
"""Of more videos a sample stands for all; looking at so many takes about a second."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Work to make what is kept of some generations, and core seconds by stage."""

    packets: float = 0.0
    """Fed to decoders."""
    frames: float = 0.0
    """Converted."""
    objects: float = 0.0
    """Made: clips, their audio, and pictures that are kept to make clips from."""
    object_bytes: float = 0.0
    """Raw bytes of them."""
    decode_s: float = 0.0
    convert_s: float = 0.0
    augment_s: float = 0.0
    store_s: float = 0.0

    def plus(self, other: "Forecast") -> "Forecast":
        """Both together."""
        return Forecast(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    def minus(self, other: "Forecast") -> "Forecast":
        """What is left of it without the other."""
        return Forecast(*(getattr(self, name) - getattr(other, name) for name in self.__slots__))


def forecast(plans: Sequence[ToCome], chosen: KeptWays | None, cost: CostModel, ahead: Ahead) -> Forecast:
    """Predict what making ahead one generation of all tasks takes, each video decoded once.

    Objects and their bytes are counted as they are; how much is decoded for them is estimated as for the choice.

    Args:
        plans: one generation of each task.
        chosen: what is kept of it; None = every clip.
        cost: seconds of each kind of work.
        ahead: what is made.
    """
    size = ahead.raw_bytes
    found = Forecast(
        objects=ahead.objects,
        object_bytes=size,
        augment_s=ahead.clip_bytes * cost.augment_s_per_byte,
        store_s=size * cost.store_s_per_byte,
    )
    return found.plus(_decoding(plans, chosen, cost, ahead)) if ahead.objects else found


def _decoding(plans: Sequence[ToCome], chosen: KeptWays | None, cost: CostModel, ahead: Ahead) -> Forecast:
    plans, share = _sample(plans)
    if not any(each.rows.any() for each in plans):
        return Forecast()
    most = 0 if chosen is None else 1 << 62
    weighed = weigh(plans, cost, most_bytes=most, part_bytes=0 if chosen is None else chosen.part_bytes)
    once, count = weighed.once, len(weighed.videos)
    clips = np.zeros(count)
    for each, places, made in zip(plans, weighed.where.places, ahead.clips, strict=True):
        clips += np.bincount(places[each.plan.video[each.rows & made]], minlength=count)
    part = np.minimum(1.0, clips / np.maximum(1.0, once.missing.sum(axis=1)))
    pictures = np.array([ahead.pictures.get(key, 0.0) for key in weighed.videos])
    part = np.maximum(part, pictures)
    packets, frames = once.packets * part, once.frames * part
    if chosen is not None and weighed.lasting is not None:  # then all that clips can have is decoded
        ways = chosen.way_of()
        lasts = np.array([ways[key].lasts for key in weighed.videos]) & (pictures > 0)
        reach = weighed.lasting.reach.counts * pictures
        packets, frames = np.where(lasts, reach, packets), np.where(lasts, reach, frames)
    return Forecast(
        packets=float(packets.sum()) / share,
        frames=float(frames.sum()) / share,
        decode_s=float(packets @ once.pixels) * cost.decode_s_per_pixel / share,
        convert_s=float(frames @ once.pixels) * cost.convert_s_per_pixel / share,
    )


def _sample(plans: Sequence[ToCome]) -> tuple[list[ToCome], float]:
    """The clips of a sample of the videos, and which part of the videos it is."""
    taken, share = sample_of_videos([each.plan for each in plans], MOST_VIDEOS, "forecast")
    mine = [np.array([key in taken for key in each.plan.videos.keys])[each.plan.video] for each in plans]
    return [replace(each, rows=each.rows & rows) for each, rows in zip(plans, mine, strict=True)], share
