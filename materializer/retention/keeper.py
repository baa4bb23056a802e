"""What is kept of a generation of all tasks under the budget, and making it so (SAND §5.3, docs/design/0011).

While every clip fits, every clip is kept and nothing is asked. Otherwise each video's ways are weighed, one rule
chooses, and the choice becomes rows of the catalog and work for the dispatcher. A choice is advice: whatever it says,
a clip that is not in the store is made when it is read.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass, replace
from functools import cache, partial
from itertools import chain
from types import MappingProxyType

from viewcache.catalog import Catalog
from viewcache.errors import Closed, is_unforeseen
from viewcache.materializer.collecting import uncollected
from viewcache.materializer.freed_memory import give_back_after
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.prices import Prices
from viewcache.materializer.planning.recipe import IntermediateObject, Recipe
from viewcache.materializer.retention.average import Average, like
from viewcache.materializer.retention.chosen import (
    Chosen,
    IndexOf,
    KeepSettings,
    choose,
    free_bytes_for,
    keepings,
    to_come,
)
from viewcache.materializer.retention.decided import Decided, KeptAt, ids_in, in_turn, lying_of, merged
from viewcache.materializer.retention.density import Densities
from viewcache.materializer.retention.horizon import epochs_left, may_last, reached_by_others
from viewcache.materializer.retention.intermediates import named
from viewcache.materializer.retention.kept_objects import KeptObjects, Objects, ObjectsOf
from viewcache.materializer.retention.kept_ways import KeptWays
from viewcache.materializer.retention.lying import Lying
from viewcache.materializer.retention.near_files import NearFiles
from viewcache.materializer.retention.packs import LocatedPictures, Packs
from viewcache.materializer.retention.settled import Settled, SettledWays
from viewcache.materializer.retention.told import Told, foretell
from viewcache.materializer.retention.ways import ToCome, Way
from viewcache.materializer.scheduling.generation import ActiveGeneration
from viewcache.materializer.scheduling.intermediate_work import GenerationContext, IntermediateWork, Pack, PackWork
from viewcache.materializer.telemetry.observer import Observer

__all__ = ["Keeper"]

_log = logging.getLogger("viewcache")

SEVERAL = 4
"""So many tasks may well share a budget."""

TRIES = 3
"""An intermediate of a video that could not be made so often is not tried again in its generation."""


@dataclass(frozen=True, slots=True)
class _Case:
    """What is decided on."""

    group_generation: int
    works: Sequence[ActiveGeneration]
    """Of the tasks."""
    place: KeptAt
    cost: CostModel
    guard: Callable[[], AbstractContextManager[object]]
    """The lock that guards the works."""
    making: Callable[[], Set[str]]
    """Tells the content keys of all that is being made now."""
    old: Decided | None
    """What was decided before."""
    refused: Set[str]
    """Videos of which no intermediate is to be made."""
    has: Callable[[str], bool]
    """Whether an object lies in the store; asked once for each pack, which many images share."""


class Keeper:
    """Decides for every generation that is being made, and again for what is left of it when an epoch is over.

    What has been read takes no room any more, so the same budget keeps more of what is to come. Thread-safe.
    """

    def __init__(
        self,
        catalog: Catalog,
        settings: KeepSettings,
        size_of: Callable[[str], int | None],
        observer: Observer | None = None,
        on_choice: Callable[[int, Chosen | None], None] = lambda number, chosen: None,
    ) -> None:
        """Nothing is decided yet.

        Args:
            catalog: what we know.
            settings: what the configuration says.
            size_of: tells how many bytes an object takes in the store, by its content key; None if it is not there.
            observer: told of decisions.
            on_choice: is given the number of a generation of the group and what was chosen for it, which is not held.
        """
        self._observer, self._on_choice = observer or Observer(), on_choice
        self._catalog = catalog
        self._size_of = size_of
        self.packs = Packs(catalog, size_of)
        """Which pictures of images lie together."""
        self.lying = Lying(catalog, size_of, self.packs)
        """What lasts and lies in the store."""
        self._settings = settings
        self._objects = KeptObjects(self._named, self.packs, self.lying, lambda: settings.part_bytes, self._before)
        """What is kept of each video."""
        self.files = NearFiles(catalog, settings, self._has, self._named)
        """The encoded files that are kept near."""
        self.told = Told(catalog)
        """What the catalog knows of it."""
        self._deciding = threading.Lock()
        self._decided: dict[int, Decided] = {}
        """By generation of the group."""
        self.densities = Densities()
        """What packed pictures of each video took."""
        self._prices = Prices()
        """By what is decided now."""
        self._average = Average()
        """Of what a generation costs."""
        self._failed: dict[str, Hashable] = {}
        """What could not be made since it was decided last, see `GenerationContext`."""
        self.settled = SettledWays()
        """What was chosen for the newest generation."""
        self._lasting_of: dict[int, dict[int, int]] = {}
        """Task → the same of what it will need; whose readers pause has not ended."""
        self._expected: dict[int, int] | None = None
        """What the catalog was told of epochs that are not planned: object → uses. None: what an earlier run told it
        holds until something is weighed."""

    def decide(
        self,
        works: Iterable[tuple[ActiveGeneration, IndexOf]],
        guard: Callable[[], AbstractContextManager[object]],
        making: Callable[[], Set[str]] = frozenset,
    ) -> dict[int, KeptWays | None]:
        """Decide what is kept of some generations, where tasks, epochs or measured costs have changed.

        Args:
            works: all that is being made or about to be, each with the packet index of a row of its plan's videos.
            guard: the lock that guards the works.
            making: tells the content keys of all that is being made now.

        Returns:
            What was chosen of these works by their generation of the group; None if the budget holds all clips. Other
            threads may decide for more or fewer tasks at once, so that it may be otherwise by then.
        """
        together: dict[int, list[tuple[ActiveGeneration, IndexOf]]] = {}
        for work, index_of in works:
            together.setdefault(work.group_generation, []).append((work, index_of))
        cost = self.cost()
        with self._deciding:
            newest = {w.task_id: (w.group_generation, w.plan) for _, mine in sorted(together.items()) for w, _ in mine}
            for task_id, (_, plan) in newest.items():
                self.settled.has(task_id, plan.videos.row_of_key)
            places = {
                number: {id(work): (work, id(work.plan), work.epochs_read()) for work, _ in mine}
                for number, mine in together.items()
            }
            open_again = [number for number, place in places.items() if self._must_decide(number, place, cost)]
            if open_again:
                # What is being made goes on noting in the same place.
                failed = [self._failed.pop(key) for key in list(self._failed)]
                self.packs.failed(each for each in failed if isinstance(each, Pack))
                self.densities.failed({str(each) for each in failed if not isinstance(each, Pack)})
            for number in chain(in_turn(open_again, self._decided.keys()), self._of_superseded_packs(sorted(places))):
                begun = time.monotonic()
                tasks = {work.task_id for work, _ in together[number]}
                newer = (together[each] for each in together.keys() & self._decided.keys() if each > number)
                later = tasks <= {work.task_id for work, _ in chain(*newer)}
                settled = self.settled.seen(later=later, others=reached_by_others(newest, number, tasks))
                mine = together[number], places[number]
                self._decided[number] = self._decide_or_not(number, *mine, cost, settled, guard, making)
                give_back_after(max(len(work.plan.videos) for work, _ in together[number]))
                self._observer.decided(begun)
            for number in places.keys() - set(open_again):
                self._decided[number] = replace(self._decided[number], place=places[number])
            gone = self._decided.keys() - together.keys()
            for group_generation in gone:
                self._over(group_generation)
            self.densities.forget(self.settled.forget_gone())
            self.packs.forget_superseded(making())
            if open_again or gone:  # who packs objects asks for each of them
                self._prices = self._found_prices()
            self._expect()
            return {group_generation: each.kept for group_generation, each in self._decided.items()}

    def cost(self) -> CostModel:
        """What work costs, as far as it was measured."""
        known = CostModel.known(self._catalog, self._settings.codec, self._settings.host)
        return replace(known, batch_s=self._observer.beside.batch_s() or known.batch_s)

    def prices(self) -> Prices:
        """What bytes are worth now; nothing while all clips fit and no measured disk is waited for."""
        return self._prices

    def _found_prices(self) -> Prices:
        found = [each.prices for each in self._decided.values() if each.prices is not None]
        most = (max(each) for each in zip(*map(astuple, found), strict=True))
        return Prices(*most) if found else Prices()

    def is_tight(self, work: ActiveGeneration) -> bool:
        """Whether something else than every clip may be kept: of a small budget, or for the epochs to come."""
        tight = len(work.plan) * work.plan.room * SEVERAL > self._settings.budget_bytes or self._settings.is_stated
        return tight or work.plan.blocks is not None or (self._settings.lets_last and may_last([work.plan]))

    def intermediates(self) -> list[IntermediateWork]:
        """What clips are made from, to be made ahead."""
        decided = (each for _, each in sorted(self._decided.copy().items(), key=lambda each: each[0]))
        return [*self.files.works(), *(work for each in decided for work in each.intermediates)]

    def is_decided(self, work: ActiveGeneration) -> bool:
        """Whether a generation was among those that were weighed."""
        decided = self._decided.get(work.group_generation)
        return decided is not None and id(work) in decided.place

    def has_weighed(self, task_id: int) -> bool:
        """Whether it was weighed in this run what a task needs in the epochs to come."""
        return task_id in self._lasting_of

    def expected(self) -> Collection[int]:
        """Numbers of the objects that are of use in epochs which nobody has planned, as far as this run knows."""
        return self._expected.keys() if self._expected is not None else ()

    def forget(self, task_id: int) -> None:
        """A task is over: nothing is kept for it any more."""
        with self._deciding:
            for group_generation, decided in list(self._decided.items()):
                decided.forget(task_id)
                if not decided.place:
                    self._over(group_generation)
            self.settled.over(task_id)
            self.densities.forget(self.settled.forget_gone())
            self._prices = self._found_prices()
            if self._lasting_of.pop(task_id, None):
                self._expect()

    def _over(self, group_generation: int) -> None:
        """Nothing is made of a generation of the group any more."""
        del self._decided[group_generation]
        self.told.forget(group_generation)
        self.files.forget(group_generation)
        self.packs.forget(group_generation)
        self.lying.forget(group_generation)

    def is_outdated(self, work: ActiveGeneration) -> bool:
        """Whether an epoch more or less has been read than when it was decided."""
        decided = self._decided.get(work.group_generation)
        place = None if decided is None else decided.place.get(id(work))  # its task may be forgotten meanwhile
        return place is not None and place[2] != work.epochs_read()

    def _must_decide(self, group_generation: int, place: KeptAt, cost: CostModel) -> bool:
        before = self._decided.get(group_generation)
        if before is None or cost.moved(before.cost):
            return True
        return before.differs(place) and not before.holds(place, self._has)

    def _of_superseded_packs(self, numbers: Iterable[int]) -> Iterator[int]:
        """Generations that were to be made from packs which are not made any more; of each it is asked in turn."""
        superseded = set[str]()
        for number in numbers:
            superseded |= self.packs.take_superseded()
            if superseded and any(each.pack in superseded for each in self._decided[number].flat()):
                yield number

    def _decide_or_not(
        self,
        group_generation: int,
        mine: list[tuple[ActiveGeneration, IndexOf]],
        place: KeptAt,
        cost: CostModel,
        settled: Settled,
        guard: Callable[[], AbstractContextManager[object]],
        making: Callable[[], Set[str]],
    ) -> Decided:
        """Decide; if that fails, keep every clip as far as there is room: a decision is only advice."""
        old = self._decided.get(group_generation)
        works, refused = [work for work, _ in mine], self._refused(old)
        case = _Case(group_generation, works, place, cost, guard, making, old, refused, cache(self._has))
        try:
            with uncollected():  # an image has some ten objects, and there may be a million images
                return self._decide(case, mine, settled)
        except Closed:
            raise
        except Exception as error:
            text = "it could not be decided what is kept of generation %d: %s"
            unforeseen = is_unforeseen(error)
            _log.error(text, group_generation, error, exc_info=unforeseen, extra={"action": "prune"})
            with guard():
                for work in case.works:
                    work.keep(None)
            # What was made before is known to the next decision all the same.
            objects = old.objects if old is not None else {}
            return Decided(place, cost, objects, failed=case.refused, is_weighed=False)

    def _refused(self, old: Decided | None) -> Set[str]:
        """Videos of which nothing is tried any more; what fails is promised more first."""
        if old is None:
            return frozenset()
        return old.failed | {video for video in old.just_failed() if self.densities.failures(video) >= TRIES}

    def _decide(self, case: _Case, mine: Sequence[tuple[ActiveGeneration, IndexOf]], settled: Settled) -> Decided:
        old, works = case.old, case.works
        with case.guard():
            if old is None:
                for work in works:
                    work.mark_present(case.has)
            plans = to_come(mine)
        free = free_bytes_for([each.plan for each in plans], self._settings)
        chosen = self._choose(case, plans, settled, free)
        self._on_choice(case.group_generation, chosen)
        expected = self.files.decide(case.group_generation, chosen, plans, works, free)
        if chosen is None:
            return self._keep_all(case, free)
        ways = chosen.way_of()
        if not settled.later:
            self.settled.choose(ways)
        kept = {} if old is None else old.staying(ways)
        objects, sources = self._objects.chosen(chosen, plans, works, kept, case.making)
        known = self._made_before(case, chosen, objects)
        there = dict[str, Objects]()
        for key, made in chain.from_iterable(of_way.items() for of_way in known.values()):
            there[key] = merged(there.get(key, ()), lying_of(made, case.has))
        of_use = objects | {key: merged(made, objects.get(key, ())) for key, made in there.items()}
        usable: ObjectsOf = LocatedPictures(of_use, self.packs) if self.packs else of_use
        epochs = max(epochs_left(each.plan) for each in plans)
        lasting = [each for key, mine in objects.items() if ways[key].lasts and epochs > 0 for each in mine]
        needs, names = [work.unkept_due_in_s for work in works], {each.key for each in lasting}
        context = GenerationContext(case.group_generation, sources, needs, free, usable, names, self._failed)
        flat = [each for of_video in objects.values() for each in of_video]
        intermediates = self._to_make(case, context, flat)
        self._keep(case, chosen, free, usable)
        self._tell(case, plans, chosen, objects, there, ids_in(flat))
        for key, of in objects.items():
            known.setdefault(ways[key], {})[key] = of
        expected |= {each.object_id: epochs for each in lasting}
        rests_on = self._rests_on(case, chosen, ways, flat)
        to_keep = known, intermediates, chosen.kept_ways(), chosen.prices(case.cost.devices)
        return Decided(case.place, case.cost, *to_keep, case.refused, expected, rests_on=rests_on)

    def _choose(self, case: _Case, plans: Sequence[ToCome], settled: Settled, free_bytes: int) -> Chosen | None:
        """What a rule chooses, given what was chosen before and what lies there; None: every clip."""
        before = case.old.before(case.has) if case.old is not None else {}
        kind = like([each.plan for each in plans], [work.task_id for work in case.works])
        average = partial(self._average.of, case.cost, kind, case.group_generation)
        choosing = partial(choose, plans, case.cost, self._settings, free_bytes, before, case.refused)
        return choosing(partial(self.lying.find, case.group_generation), settled, self.densities, average, case.has)

    def _keep_all(self, case: _Case, free_bytes: int) -> Decided:
        """Every clip is kept."""
        old = case.old
        self._keep(case, None, free_bytes)
        if old is None or not old.is_weighed or old.kept is not None:
            for work in case.works:
                self.told.keep_all(case.group_generation, work)
        return Decided(case.place, case.cost, failed=case.refused)

    def _before(self) -> list[Mapping[Way, ObjectsOf]]:
        """The intermediates of all generations, as they were decided last."""
        return [each.objects for each in self._decided.values()]

    def _made_before(self, case: _Case, chosen: Chosen, objects: ObjectsOf) -> dict[Way, dict[str, Objects]]:
        """What was made before is of use as long as it lies there, whatever is kept from now on; by way and video."""
        known = case.old.lying(case.has) if case.old is not None else {}
        for key, (way, lying) in self._objects.lying(chosen, objects).items():
            known.setdefault(way, {})[key] = lying
        return known

    def _to_make(
        self, case: _Case, context: GenerationContext, objects: Sequence[IntermediateObject]
    ) -> tuple[IntermediateWork, ...]:
        """The work of making what is kept and does not lie there."""
        packs, alone = self.packs.packs_of(each for each in objects if each.pack), [e for e in objects if not e.pack]
        works = (
            *((IntermediateWork(context, alone),) if alone else ()),
            *((PackWork(context, packs, self.packs.__contains__),) if packs else ()),
        )
        for work in works:
            work.mark_present(case.has)
        return works

    def _tell(
        self,
        case: _Case,
        plans: Sequence[ToCome],
        chosen: Chosen,
        objects: ObjectsOf,
        there: ObjectsOf,
        kept: Set[int],
    ) -> None:
        """Let the catalog know, also what may leave: what lies there, is not kept, and is no other generation's."""
        number = case.group_generation
        others = {each.object_id for n, decided in self._decided.items() if n != number for each in decided.flat()}
        wanted = others | kept
        stale = [each for many in there.values() for each in many if each.object_id not in wanted]
        self.told.keep(number, chosen, case.works, objects, stale)
        if case.old is None and all(each.rows.all() for each in plans):
            foretell(self._catalog, chosen, case.works)
        _log.info("generation %d keeps %s", number, chosen.describe(), extra={"action": "prune"})

    def _rests_on(
        self, case: _Case, chosen: Chosen, ways: Mapping[str, Way], objects: Sequence[IntermediateObject]
    ) -> tuple[str, ...]:
        """See `Decided`."""
        kinds = len(chosen.weighed.kinds)  # where all clips of a video are kept nothing of it is made twice either
        all_kept = all(way.intermediate is not None or way.kept == kinds for way in ways.values())
        keys = tuple(dict.fromkeys(each.key for each in objects))
        return keys if all_kept and not chosen.files and all(map(case.has, keys)) else ()

    def _expect(self) -> None:
        """Let the catalog know what is kept for epochs that are not planned, so that no policy takes it for useless."""
        fresh: dict[int, dict[int, int]] = {}
        for decided in self._decided.values():
            for work, *_ in decided.place.values() if decided.is_weighed else ():
                mine = fresh.setdefault(work.task_id, {})
                if epochs_left(work.plan):
                    mine.update(decided.expected)
        self._lasting_of |= fresh
        expected: dict[int, int] = {}
        for of_task in self._lasting_of.values():
            for object_id, refs in of_task.items():
                expected[object_id] = max(refs, expected.get(object_id, 0))
        if expected != self._expected and (self._lasting_of or self._expected is not None):
            self._catalog.expect_uses(expected)
            self._expected = expected

    def _has(self, key: str) -> bool:
        return self._size_of(key) is not None

    def _named(self, recipes: Sequence[tuple[str, int, Recipe]]) -> list[IntermediateObject]:
        if not recipes:  # as of images, of which there may be a million: their packs are named elsewhere
            return []
        before = {each.key: each.object_id for decided in self._decided.values() for each in decided.flat()}
        return named(self._catalog, recipes, before)

    def _keep(
        self, case: _Case, chosen: Chosen | None, free_bytes: int, usable: ObjectsOf = MappingProxyType({})
    ) -> None:
        found = keepings([work.plan for work in case.works], chosen, free_bytes, usable)
        with case.guard():
            for work, keeping in zip(case.works, found, strict=True):
                work.keep(keeping)
