"""What making ahead will take, before it runs; afterwards it stands beside what was measured."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from viewcache.materializer.planning.audio import stored_shape
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.sharing import sample_of_videos
from viewcache.materializer.retention.kept_ways import KeptWays
from viewcache.materializer.retention.options import weigh
from viewcache.materializer.retention.ways import ToCome, Way
from viewcache.materializer.spec import AudioSpec

__all__ = ["Forecast", "forecast", "forecast_audio"]

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


def forecast(
    plans: Sequence[ToCome], chosen: KeptWays | None, cost: CostModel, before: Mapping[str, Way] = MappingProxyType({})
) -> Forecast:
    """Predict what making the clips of one generation of all tasks takes, each video decoded once.

    Args:
        plans: one generation of each task.
        chosen: what is kept of it; None = every clip.
        cost: seconds of each kind of work.
        before: what generations before this one have made of videos, by content key, and is of use in this one.
    """
    plans, share = _sample(plans)
    if not any(each.rows.any() for each in plans):
        return Forecast()
    most = 0 if chosen is None else 1 << 62
    weighed = weigh(plans, cost, most_bytes=most, part_bytes=0 if chosen is None else chosen.part_bytes)
    missing, once, intermediates = weighed.once.missing, weighed.once, np.zeros(len(weighed.videos))
    is_there = np.zeros(len(weighed.videos), np.bool_)
    if chosen is not None:
        place_of = dict(zip(chosen.videos, range(len(chosen.videos)), strict=True))
        places = np.array([place_of[video] for video in weighed.videos], np.int64)
        option = chosen.option[places] % len(weighed.ways)
        kept = np.array([way.kept for way in weighed.ways])[option]
        missing = np.where(np.arange(len(weighed.kinds)) < kept[:, None], missing, 0)
        ways = zip(weighed.videos, map(weighed.ways.__getitem__, option.tolist()), strict=True)
        is_there = np.array([before.get(key) == way for key, way in ways], np.bool_) | chosen.lies[places]
        intermediates = np.where(is_there, 0, once.intermediate_bytes[np.arange(len(option)), option])
    decoded = ~is_there & ((missing.sum(axis=1) > 0) | (intermediates > 0))
    packets, frames = np.where(decoded, once.packets, 0), np.where(decoded, once.frames, 0)
    if chosen is not None and weighed.lasting is not None:  # then all that clips can have is decoded
        whole = np.array([way.lasts for way in weighed.ways])[option] & (intermediates > 0)
        reach = weighed.lasting.reach.counts
        packets, frames = np.where(whole, reach, packets), np.where(whole, reach, frames)
    clips = float(missing.sum(axis=0) @ np.array([kind.clip_bytes for kind in weighed.kinds], np.float64))
    size = clips + float(intermediates.sum())
    found = Forecast(
        packets=float(packets.sum()),
        frames=float(frames.sum()),
        objects=float(missing.sum()) + float((intermediates > 0).sum()),
        object_bytes=size,
        decode_s=float(packets @ once.pixels) * cost.decode_s_per_pixel,
        convert_s=float(frames @ once.pixels) * cost.convert_s_per_pixel,
        augment_s=clips * cost.augment_s_per_byte,
        store_s=size * cost.store_s_per_byte,
    )
    return Forecast(*(getattr(found, name) / share for name in Forecast.__slots__))


def forecast_audio(missing: Mapping[AudioSpec, int], cost: CostModel) -> Forecast:
    """Predict what the audio of clips takes beside their pictures: how many objects are missing of each kind.

    What decoding it takes is told by no stage of a forecast: it is a small part of what pictures take.
    """
    size = float(sum(count * math.prod(stored_shape(audio)) for audio, count in missing.items()))
    return Forecast(objects=float(sum(missing.values())), object_bytes=size, store_s=size * cost.store_s_per_byte)


def _sample(plans: Sequence[ToCome]) -> tuple[list[ToCome], float]:
    """The clips of a sample of the videos, and which part of the videos it is."""
    taken, share = sample_of_videos([each.plan for each in plans], MOST_VIDEOS, "forecast")
    mine = [np.array([key in taken for key in each.plan.videos.keys])[each.plan.video] for each in plans]
    return [replace(each, rows=each.rows & rows) for each, rows in zip(plans, mine, strict=True)], share
