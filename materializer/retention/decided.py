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
    ways: Mapping[str, Way] = field(default_factory=dict)
    """Content key of a video → as what its newest intermediate was chosen."""
    objects: Mapping[str, tuple[IntermediateObject, ...]] = field(default_factory=dict)
    """Content key of a video → its intermediates."""
    intermediates: IntermediateWork | None = None
    chosen: Chosen | None = None
    failed: Set[str] = frozenset()
    """Videos of which no intermediate is to be made."""
    expected: Mapping[int, int] = field(default_factory=dict)
    """Objects that last behind the generation → epochs that are left there."""
    is_weighed: bool = True
    """Whether it could be decided."""

    def flat(self) -> Iterator[IntermediateObject]:
        """All intermediates."""
        return chain.from_iterable(self.objects.values())

    def just_failed(self) -> Set[str]:
        """Videos of which an intermediate could not be made, since this was decided."""
        return frozenset() if self.intermediates is None else frozenset(map(str, self.intermediates.failed()))

    def differs(self, place: KeptAt) -> bool:
        """Whether other plans are to be weighed, or more epochs of them have been read."""
        return {key: each[1:] for key, each in place.items()} != {key: each[1:] for key, each in self.place.items()}

    def before(self, has: Callable[[str], bool]) -> dict[str, Kept]:
        """What was chosen, and whether it is there already."""
        made = self.usable(has)
        sizes = {key: sum(each.recipe.bound for each in mine) for key, mine in self.objects.items()}
        return {
            key: Kept(self.ways[key], size, key in made)
            for key, size in sizes.items()
            if key in self.ways and not self.ways[key].lasts  # what lasts is looked for in the store
        }

    def usable(self, has: Callable[[str], bool]) -> dict[str, tuple[IntermediateObject, ...]]:
        """The intermediates that are there."""
        return {key: mine for key, mine in self.objects.items() if all(has(each.recipe.key) for each in mine)}


def merged(
    first: tuple[IntermediateObject, ...], then: tuple[IntermediateObject, ...]
) -> tuple[IntermediateObject, ...]:
    """All of both, each once."""
    return (*first, *(each for each in then if each.object_id not in ids_in(first)))


def ids_in(intermediates: Iterable[IntermediateObject]) -> set[int]:
    """The catalog's numbers of some."""
    return {each.object_id for each in intermediates}
