"""What was decided for one generation of a group, and what became of it since."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import chain, compress

from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.prices import Prices
from viewcache.materializer.planning.recipe import IntermediateObject
from viewcache.materializer.retention.kept_ways import KeptWays
from viewcache.materializer.retention.ways import Kept, Way
from viewcache.materializer.scheduling.generation import ActiveGeneration
from viewcache.materializer.scheduling.intermediate_work import IntermediateWork

__all__ = ["Decided", "KeptAt", "ids_in", "in_turn", "lying_of", "merged"]

KeptAt = dict[int, tuple[ActiveGeneration, int, int]]
"""Whose plans were weighed, by identity: the generation, the identity of its plan, and how many epochs were read."""


@dataclass(frozen=True, slots=True)
class Decided:
    """What was decided for one generation of the group."""

    place: KeptAt
    cost: CostModel
    objects: Mapping[Way, Mapping[str, tuple[IntermediateObject, ...]]] = field(default_factory=dict)
    """Intermediates by the way for which they were chosen, now or before, and by the content key of the video."""
    intermediates: tuple[IntermediateWork, ...] = ()
    kept: KeptWays | None = None
    """What was chosen; None where it is every clip."""
    prices: Prices | None = None
    """Of bytes, by that choice."""
    failed: Set[str] = frozenset()
    """Videos of which no intermediate is to be made."""
    expected: Mapping[int, int] = field(default_factory=dict)
    """Objects that last behind the generation → epochs that are left there."""
    is_weighed: bool = True
    """Whether it could be decided."""
    rests_on: tuple[str, ...] = ()
    """Keys of all pictures that are kept, if they lay in the store when it was decided and of every other video all
    clips are kept. As long as they lie there nothing is made twice, and an epoch more that was read is no reason to
    decide again."""

    def flat(self) -> Iterator[IntermediateObject]:
        """All intermediates."""
        return (each for of_way in self.objects.values() for each in chain.from_iterable(of_way.values()))

    def just_failed(self) -> Set[str]:
        """Videos of which an intermediate could not be made, since this was decided."""
        return frozenset(str(video) for work in self.intermediates for video in work.failed())

    def forget(self, task_id: int) -> None:
        """A task is over: it was not decided for it."""
        for key in [key for key, (work, *_) in self.place.items() if work.task_id == task_id]:
            del self.place[key]

    def differs(self, place: KeptAt) -> bool:
        """Whether other plans are to be weighed, or more epochs of them have been read."""
        return {key: each[1:] for key, each in place.items()} != {key: each[1:] for key, each in self.place.items()}

    def holds(self, place: KeptAt, has: Callable[[str], bool]) -> bool:
        """Whether it would be decided again as it was, though more epochs of the same plans have been read."""
        mine, theirs = ({key: each[1] for key, each in these.items()} for these in (self.place, place))
        return bool(self.rests_on) and mine == theirs and all(map(has, self.rests_on))

    def before(self, has: Callable[[str], bool]) -> dict[str, tuple[Kept, ...]]:
        """What was chosen, and whether it is there already; what lasts is looked for in the store."""
        found: dict[str, tuple[Kept, ...]] = {}
        for way, of_way in self.objects.items():
            for key, mine in of_way.items() if not way.lasts else ():
                if mine:
                    kept = Kept(way, sum(each.recipe.bound for each in mine), all(has(each.key) for each in mine))
                    found[key] = (*found.get(key, ()), kept)
        return found

    def staying(self, ways: Mapping[str, Way]) -> dict[str, tuple[IntermediateObject, ...]]:
        """The intermediates of videos of which the same is kept again; of what lasts nothing is said."""
        passing = ((way, of_way) for way, of_way in self.objects.items() if not way.lasts)
        return {key: mine for way, of_way in passing for key, mine in of_way.items() if ways.get(key) == way}

    def lying(self, has: Callable[[str], bool]) -> dict[Way, dict[str, tuple[IntermediateObject, ...]]]:
        """Those of which something is there."""
        return {
            way: {key: mine for key, mine in of_way.items() if any(has(each.key) for each in mine)}
            for way, of_way in self.objects.items()
        }


def merged(
    some: tuple[IntermediateObject, ...], more: tuple[IntermediateObject, ...]
) -> tuple[IntermediateObject, ...]:
    """All of some, each once: of an image there is one, which decisions share."""
    if not some or some is more:
        return more
    return tuple({each.recipe.key: each for each in (*some, *more)}.values()) if more else some


def lying_of(objects: tuple[IntermediateObject, ...], has: Callable[[str], bool]) -> tuple[IntermediateObject, ...]:
    """Those of some that lie in the store."""
    there = [has(each.key) for each in objects]
    return objects if all(there) else tuple(compress(objects, there))


def ids_in(intermediates: Iterable[IntermediateObject]) -> set[int]:
    """The catalog's numbers of some."""
    return {each.object_id for each in intermediates}


def in_turn(generations: Collection[int], decided: Collection[int]) -> list[int]:
    """New generations as they are read, each of which finds what those before it keep; then others, the newest first.

    What an older one keeps for later ones is what they keep.
    """
    new = [each for each in generations if each not in decided]
    others = [each for each in generations if each in decided]
    return [*sorted(new), *sorted(others, reverse=True)]
