"""What was chosen for each video, as far as a task that is open has it: an owner may be open for years."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.retention.choice import Options
from viewcache.materializer.retention.horizon import Reached
from viewcache.materializer.retention.options import Weighed
from viewcache.materializer.retention.ways import Kept, Way

__all__ = ["Settled", "SettledWays"]

STAYS = 0.9
"""What is so much of the cost of what was chosen before is no reason to choose again: estimates are not better."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What was chosen for other generations: of a video the same lasts for all of them."""

    ways: Mapping[str, Way] = field(default_factory=dict)
    """By the content key of the video; as long as it costs little more than the best, it stays."""
    later: bool = False
    """Whether it was chosen for a later generation: nothing is built that the later one does not keep."""
    others: Sequence[Reached] = ()
    """What tasks reach of which nothing is to come of this generation: what lasts is made for them, too."""

    def seen_in(self, weighed: Weighed) -> Options:
        """What a rule is to choose among."""
        options, ways = weighed.options, weighed.ways
        columns: dict[Way, list[int]] = {}  # with and without its file a video has each way twice
        for k, way in enumerate(ways):
            columns.setdefault(way, []).append(k)
        lasting = np.array([way.lasts for way in ways])
        cost_s = options.cost_s.copy()
        device_s = {name: each.copy() for name, each in options.device_s.items()}
        stayed = [*map(self.ways.get, weighed.videos)]
        there: list[tuple[Way, ...]] = [()] * len(stayed)
        lying = map(weighed.lying.get, weighed.videos)
        if self.later:
            there = [tuple(each.way for each in lies or () if each.made) for lies in lying]
        elif weighed.lying:  # what an earlier run chose is known by what lies there
            stayed = [way or _begun(lies or ()) for way, lies in zip(stayed, lying, strict=True)]
        alike: dict[tuple[int, ...], list[int]] = {}  # what stays, and what of it lies there → the videos
        for video, lies in enumerate(there):
            alike.setdefault((id(stayed[video]), *map(id, lies)), []).append(video)
        for videos in alike.values():
            stays_as = stayed[videos[0]]
            if stays_as is None or stays_as not in columns:
                continue
            stays, rows = columns[stays_as], np.array(videos)[:, None]
            if self.later:
                built = lasting.copy()
                built[[*stays, *(k for each in there[videos[0]] for k in columns[each])]] = False
                cost_s[rows, np.flatnonzero(built)] = np.inf
            # What ends with its generation is begun anew by each.
            for each in (cost_s, *device_s.values()) if lasting[stays].any() else ():
                each[rows, stays] *= STAYS
        return replace(options, cost_s=cost_s, device_s=device_s)

    def stays_in(self, weighed: Weighed) -> NDArray[np.bool_]:
        """(V,) of which videos something was kept before, or lies in the store."""
        kept = {key for key, way in self.ways.items() if way.keeps}
        kept |= {key for key, each in weighed.lying.items() if any(lies.made for lies in each)}
        return np.array([key in kept for key in weighed.videos], np.bool_)


class SettledWays:
    """Not thread-safe: the keeper's lock guards it."""

    def __init__(self) -> None:
        """Nothing was chosen yet."""
        self._ways: dict[str, Way] = {}
        self._videos: dict[int, Collection[str]] = {}
        """Task → content keys of those of its newest plan."""

    def __len__(self) -> int:
        """Of how many videos it is known."""
        return len(self._ways)

    def seen(self, *, later: bool, others: Sequence[Reached] = ()) -> Settled:
        """What a rule is told; arguments as there."""
        return Settled(self._ways, later=later, others=others)

    def choose(self, ways: Mapping[str, Way]) -> None:
        """Take note of what was chosen for the newest generation, by the content key of the video."""
        self._ways.update(ways)

    def has(self, task_id: int, videos: Collection[str]) -> None:
        """A task has these videos, by their content keys, and no others; whether one is among them is asked of each."""
        self._videos[task_id] = videos

    def over(self, task_id: int) -> None:
        """A task is over."""
        self._videos.pop(task_id, None)

    def forget_gone(self) -> set[str]:
        """Forget videos that no task has any more, if there must be some; returns them."""
        if len(self._ways) <= sum(map(len, self._videos.values())):
            return set()
        gone = {key for key in self._ways if not any(key in mine for mine in self._videos.values())}
        self._ways = {key: way for key, way in self._ways.items() if key not in gone}
        return gone


def _begun(lying: Sequence[Kept]) -> Way | None:
    """The way in which something of a video lies there, if it is one."""
    ways = {each.way for each in lying if not each.is_coming}
    return ways.pop() if len(ways) == 1 else None
