"""What was chosen for each video, as far as a task that is open has it: an owner may be open for years."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.retention.balance import times_of
from viewcache.materializer.retention.choice import Options, WayChoice
from viewcache.materializer.retention.horizon import Reached
from viewcache.materializer.retention.options import Weighed
from viewcache.materializer.retention.ways import Kept, Way

__all__ = ["Settled", "SettledWays"]

Rule = Callable[[Options, int], WayChoice]
"""Chooses among ways, under a budget in bytes."""

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
        options, lasting = weighed.options, np.array([way.lasts for way in weighed.ways], np.bool_)
        cost_s = options.cost_s.copy()
        device_s = {name: each.copy() for name, each in options.device_s.items()}
        stays = self._stay(weighed)
        if self.later:
            cost_s[lasting & ~stays & ~_made(weighed) & stays.any(axis=1, keepdims=True)] = np.inf
        for each in (cost_s, *device_s.values()):  # what ends with its generation is begun anew by each
            each[stays & lasting] *= STAYS
        return replace(options, cost_s=cost_s, device_s=device_s)

    def choice(self, weighed: Weighed, rule: Rule, budget: int) -> WayChoice:
        """What a rule chooses, or if that is no cheaper the choice with which all that lies there complete stays.

        A rule takes the steps of all videos one after the other, and can come to what is dearer than what there is:
        what is made costs next to nothing, so that `STAYS` of its cost holds little.
        """
        seen, options = self.seen_in(weighed), weighed.options
        choice, video = rule(seen, budget), np.arange(len(options.cost_s))
        there = np.where(np.isfinite(seen.cost_s), _made(weighed), False)
        made: NDArray[np.bool_] = np.asarray(there.any(axis=1))
        if there[video, choice.option][made].all():
            return choice
        stays = np.where(np.isfinite(seen.cost_s) & (there | ~made[:, None]), options.cost_s, np.inf)
        held = rule(replace(options, cost_s=stays), budget)
        found = [choice] if held.short_bytes else [held, choice]
        return min(found, key=lambda each: times_of(options, each.option).seconds)

    def _stay(self, weighed: Weighed) -> NDArray[np.bool_]:
        """(V, ways) in which each video stays as it was."""
        stayed = [*map(self.ways.get, weighed.videos)]
        if weighed.lying and not self.later:  # what an earlier run chose is known by what lies there
            lying = map(weighed.lying.get, weighed.videos)
            stayed = [way or _begun(lies or ()) for way, lies in zip(stayed, lying, strict=True)]
        return _marked(weighed, ((video, way) for video, way in enumerate(stayed) if way is not None))

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


def _made(weighed: Weighed) -> NDArray[np.bool_]:
    """(V, ways) whose pictures all lie there."""
    lying = enumerate(map(weighed.lying.get, weighed.videos)) if weighed.lying else ()
    return _marked(weighed, ((video, each.way) for video, lies in lying if lies for each in lies if each.made))


def _marked(weighed: Weighed, ways: Iterable[tuple[int, Way]]) -> NDArray[np.bool_]:
    """(V, ways) which are among some, each given with the place of its video."""
    alike: dict[int, tuple[Way, list[int]]] = {}  # by identity: there may be a million images, and hashing takes longer
    for video, way in ways:
        if (found := alike.get(id(way))) is None:
            found = alike[id(way)] = (way, [])
        found[1].append(video)
    marked = np.zeros(weighed.options.cost_s.shape, np.bool_)
    for way, videos in alike.values():
        columns = [k for k, each in enumerate(weighed.ways) if each == way]  # with and without its file there are two
        marked[np.array(videos)[:, None], columns] = True
    return marked


def _begun(lying: Sequence[Kept]) -> Way | None:
    """The way in which something of a video lies there, if it is one."""
    ways = {each.way for each in lying if not each.is_coming}
    return ways.pop() if len(ways) == 1 else None
