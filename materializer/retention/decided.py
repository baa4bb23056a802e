"""What was decided for one generation of a group, and what became of it since."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import chain

from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.recipe import IntermediateObject
from viewcache.materializer.retention.chosen import Chosen
from viewcache.materializer.retention.ways import Kept, Way
from viewcache.materializer.scheduling.generation import ActiveGeneration
from viewcache.materializer.scheduling.intermediate_work import IntermediateWork

__all__ = ["Decided", "KeptAt", "ids_in", "merged"]

KeptAt = dict[int, tuple[ActiveGeneration, int, int]]
"""Whose plans were weighed, by identity: the generation, the identity of its plan, and how many epochs were read."""


@dataclass(frozen=True, slots=True)
class Decided:
    """What was decided for one generation of the group."""

    place: KeptAt
    cost: CostModel
    objects: Mapping[str, Mapping[Way, tuple[IntermediateObject, ...]]] = field(default_factory=dict)
    """Content key of a video → its intermediates, by the way for which they were chosen, now or before."""
    intermediates: tuple[IntermediateWork, ...] = ()
    chosen: Chosen | None = None
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
        return (each for ways in self.objects.values() for each in chain.from_iterable(ways.values()))

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
        return {
            key: tuple(
                Kept(way, sum(each.recipe.bound for each in mine), all(has(each.key) for each in mine))
                for way, mine in ways.items()
                if mine and not way.lasts
            )
            for key, ways in self.objects.items()
        }

    def staying(self, ways: Mapping[str, Way]) -> dict[str, tuple[IntermediateObject, ...]]:
        """The intermediates of videos of which the same is kept again; of what lasts nothing is said."""
        had = self.objects
        return {key: had[key][way] for key, way in ways.items() if not way.lasts and way in had.get(key, {})}

    def lying(self, has: Callable[[str], bool]) -> dict[str, dict[Way, tuple[IntermediateObject, ...]]]:
        """The ways of which something is there."""
        return {
            key: {way: mine for way, mine in ways.items() if any(has(each.key) for each in mine)}
            for key, ways in self.objects.items()
        }


def merged(*several: Iterable[IntermediateObject]) -> tuple[IntermediateObject, ...]:
    """All of some, each once."""
    return tuple({each.recipe.key: each for each in chain.from_iterable(several)}.values())


def ids_in(intermediates: Iterable[IntermediateObject]) -> set[int]:
    """The catalog's numbers of some."""
    return {each.object_id for each in intermediates}
