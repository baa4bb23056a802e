"""What is kept of a generation of all tasks under the budget, and making it so (SAND §5.3, docs/design/0011).

While every clip fits, every clip is kept and nothing is asked. Otherwise each video's ways are weighed, one rule
chooses, and the choice becomes rows of the catalog and work for the dispatcher. A choice is advice: whatever it says,
a clip that is not in the store is made when it is read.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple, replace
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.errors import Closed
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.prices import Prices
from viewcache.materializer.planning.recipe import IntermediateObject, Recipe, VideoSource
from viewcache.materializer.retention.average import Average, like
from viewcache.materializer.retention.chosen import (
    Chosen,
    IndexOf,
    KeepSettings,
    Settled,
    choose,
    free_bytes_for,
    keepings,
    to_come,
)
from viewcache.materializer.retention.decided import Decided, KeptAt, ids_in, merged
from viewcache.materializer.retention.density import Densities
from viewcache.materializer.retention.horizon import epochs_left, may_last
from viewcache.materializer.retention.intermediates import intermediate_recipe, named
from viewcache.materializer.retention.lying import Lying
from viewcache.materializer.retention.near_files import NearFiles
from viewcache.materializer.retention.packs import Packs, first_blocks
from viewcache.materializer.retention.told import Told, foretell
from viewcache.materializer.retention.ways import How, ToCome, Way, images_of
from viewcache.materializer.scheduling.generation import ActiveGeneration
from viewcache.materializer.scheduling.intermediate_work import GenerationContext, IntermediateWork, PackWork
from viewcache.materializer.telemetry.observer import Observer

__all__ = ["Keeper"]

_log = logging.getLogger("viewcache")

SEVERAL = 4
"""So many tasks may well share a budget."""

TRIES = 3
"""An intermediate of a video that could not be made so often is not tried again in its generation."""


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
    ) -> None:
        """Nothing is decided yet.

        Args:
            catalog: what we know.
            settings: what the configuration says.
            size_of: tells how many bytes an object takes in the store, by its content key; None if it is not there.
            observer: told of decisions.
        """
        self._observer = observer or Observer()
        self._catalog = catalog
        self._size_of = size_of
        self.packs = Packs(catalog, size_of)
        """Which pictures of images lie together."""
        self.lying = Lying(catalog, size_of, self.packs)
        """What lasts and lies in the store."""
        self._settings = settings
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
        """What could not be made since it was decided last, and its video."""
        self._settled: Mapping[str, Way] = {}
        """What was chosen for the newest generation."""
        self._lasting_of: dict[int, dict[int, int]] = {}
        """Task → the same of what it will need; whose readers pause has not ended."""
        self._expected: dict[int, int] = {}
        """What the catalog was told of epochs that are not planned: object → uses."""

    def decide(
        self,
        works: Iterable[tuple[ActiveGeneration, IndexOf]],
        guard: Callable[[], AbstractContextManager[object]],
    ) -> dict[int, Chosen | None]:
        """Decide what is kept of some generations, where tasks, epochs or measured costs have changed.

        Args:
            works: all that is being made or about to be, each with the packet index of a row of its plan's videos.
            guard: the lock that guards the works.

        Returns:
            What was chosen of these works by their generation of the group; None if the budget holds all clips. Other
            threads may decide for more or fewer tasks at once, so `chosen` may say something else by then.
        """
        together: dict[int, list[tuple[ActiveGeneration, IndexOf]]] = {}
        for work, index_of in works:
            together.setdefault(work.group_generation, []).append((work, index_of))
        cost = self.cost()
        with self._deciding:
            newest = {work.task_id: number for number, mine in sorted(together.items()) for work, _ in mine}
            places = {
                number: {id(work): (work, id(work.plan), work.epochs_read()) for work, _ in mine}
                for number, mine in sorted(together.items(), reverse=True)
            }
            open_again = [number for number, place in places.items() if self._must_decide(number, place, cost)]
            if open_again:
                # What is being made goes on noting in the same place.
                failed = {key: str(self._failed.pop(key)) for key in list(self._failed)}
                self.densities.failed({failed[key] for key in self.packs.failed(failed)})
            for number in open_again:
                begun = time.monotonic()
                later = all(newest[work.task_id] > number for work, _ in together[number])
                settled = Settled(self._settled, later=later)
                decided = self._decide_or_not(number, together[number], places[number], cost, settled, guard)
                self._decided[number] = decided
                self._observer.decided(begun)
            for number in places.keys() - set(open_again):
                self._decided[number] = replace(self._decided[number], place=places[number])
            gone = self._decided.keys() - together.keys()
            for group_generation in gone:
                self._over(group_generation)
            if open_again or gone:  # who packs objects asks for each of them
                self._prices = self._found_prices()
            self._expect()
            return {group_generation: each.chosen for group_generation, each in self._decided.items()}

    def cost(self) -> CostModel:
        """What work costs, as far as it was measured."""
        known = CostModel.known(self._catalog, self._settings.codec, self._settings.host)
        return replace(known, batch_s=self._observer.beside.batch_s())

    def prices(self) -> Prices:
        """What bytes are worth now; nothing while all clips fit and no measured disk is waited for."""
        return self._prices

    def _found_prices(self) -> Prices:
        decided = list(self._decided.values())
        found = [each.chosen.prices(each.cost.devices) for each in decided if each.chosen is not None]
        most = (max(each) for each in zip(*map(astuple, found), strict=True))
        return Prices(*most) if found else Prices()

    def is_tight(self, work: ActiveGeneration) -> bool:
        """Whether something else than every clip may be kept: of a small budget, or for the epochs to come."""
        tight = len(work.plan) * work.plan.room * SEVERAL > self._settings.budget_bytes or self._settings.is_stated
        return tight or work.plan.blocks is not None or (self._settings.lets_last and may_last([work.plan]))

    def chosen(self, group_generation: int) -> Chosen | None:
        """What was chosen for a generation of the group; None if the budget holds all of its clips."""
        decided = self._decided.get(group_generation)
        return None if decided is None else decided.chosen

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
        """Numbers of the objects that are of use in epochs which nobody has planned, as the catalog knows them."""
        return self._expected.keys()

    def forget(self, task_id: int) -> None:
        """A task is over: nothing is kept for it any more."""
        with self._deciding:
            for group_generation, decided in list(self._decided.items()):
                decided.forget(task_id)
                if not decided.place:
                    self._over(group_generation)
            self._prices = self._found_prices()
            if self._lasting_of.pop(task_id, None):
                self._expect()

    def _over(self, group_generation: int) -> None:
        """Nothing is made of a generation of the group any more."""
        del self._decided[group_generation]
        self.told.forget(group_generation)
        self.files.forget(group_generation)
        self.packs.forget(group_generation)

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

    def _decide_or_not(
        self,
        group_generation: int,
        mine: list[tuple[ActiveGeneration, IndexOf]],
        place: KeptAt,
        cost: CostModel,
        settled: Settled,
        guard: Callable[[], AbstractContextManager[object]],
    ) -> Decided:
        """Decide; if that fails, keep every clip as far as there is room: a decision is only advice."""
        try:
            return self._decide(group_generation, mine, place, cost, settled, guard)
        except Closed:
            raise
        except Exception:
            _log.exception(
                "it could not be decided what is kept of generation %d", group_generation, extra={"action": "prune"}
            )
            with guard():
                for work, _ in mine:
                    work.keep(None)
            return Decided(place, cost, is_weighed=False)

    def _decide(
        self,
        group_generation: int,
        mine: list[tuple[ActiveGeneration, IndexOf]],
        place: KeptAt,
        cost: CostModel,
        settled: Settled,
        guard: Callable[[], AbstractContextManager[object]],
    ) -> Decided:
        works = [work for work, _ in mine]
        old = self._decided.get(group_generation)
        with guard():
            if old is None:
                for work in works:
                    work.mark_present(self._has)
            plans = to_come(mine)
        free = free_bytes_for([each.plan for each in plans], self._settings.local_bytes())
        before = old.before(self._has) if old is not None else {}
        # What fails is promised more; what goes on failing is not tried any more.
        failed = old.just_failed() if old is not None else frozenset[str]()
        refused = old.failed if old is not None else frozenset[str]()
        refused |= {video for video in failed if self.densities.failures(video) >= TRIES}
        kind = like([each.plan for each in plans], [work.task_id for work in works])
        average = partial(self._average.of, cost, kind, group_generation)
        choosing = partial(choose, plans, cost, self._settings, free, before, refused)
        chosen = choosing(self.lying.find, settled, self.densities, average, self._has)
        expected = self.files.decide(group_generation, chosen, plans, works, free)
        if chosen is None:
            self._keep(works, None, free, guard)
            if old is None or old.chosen is not None:
                for work in works:
                    self.told.keep_all(group_generation, work)
            return Decided(place, cost, failed=refused)
        ways = chosen.way_of()
        if not settled.later:
            self._settled = {**self._settled, **ways}
        had = old.objects if old is not None else {}
        kept = {key: had[key][way] for key, way in ways.items() if not way.lasts and way in had.get(key, {})}
        objects, sources = self._objects(chosen, plans, works, kept)
        # What was made before is of use as long as it lies there, whatever is kept from now on.
        known = old.lying(self._has) if old is not None else {}
        for key, (way, lying) in self._lying_objects(chosen, objects).items():
            known.setdefault(key, {})[way] = lying
        there = {
            key: tuple(each for each in merged(*by_way.values()) if self._has(each.key))
            for key, by_way in known.items()
        }
        usable = {key: merged(there.get(key, ()), objects.get(key, ())) for key in there.keys() | objects.keys()}
        flat = [each for of_video in objects.values() for each in of_video]
        epochs = max(epochs_left(each.plan) for each in plans)
        lasting = [each for key, mine in objects.items() if ways[key].lasts and epochs > 0 for each in mine]
        needs, names = [work.unkept_due_in_s for work in works], {each.key for each in lasting}
        packs, alone = self.packs.packs_of(each for each in flat if each.pack), [each for each in flat if not each.pack]
        context = GenerationContext(group_generation, sources, needs, free, usable, names, self._failed)
        intermediates = (
            *((IntermediateWork(context, alone),) if alone else ()),
            *((PackWork(context, packs),) if packs else ()),
        )
        for work in intermediates:
            work.mark_present(self._has)
        self._keep(works, chosen, free, guard, usable)
        others = {o.object_id for n, d in self._decided.items() if n != group_generation for o in d.flat()}
        others |= ids_in(flat)
        stale = [each for many in there.values() for each in many if each.object_id not in others]
        self.told.keep(group_generation, chosen, works, objects, stale)
        if old is None and all(each.rows.all() for each in plans):
            foretell(self._catalog, chosen, works)
        _log.info("generation %d keeps %s", group_generation, chosen.describe(), extra={"action": "prune"})
        for key, of in objects.items():
            known.setdefault(key, {})[ways[key]] = of
        expected |= {each.object_id: epochs for each in lasting}
        kinds = len(chosen.weighed.kinds)  # where all clips of a video are kept nothing of it is made twice either
        all_kept = all(way.intermediate is not None or way.kept == kinds for way in ways.values())
        rests = all_kept and not chosen.files and all(self._has(each.key) for each in flat)
        rests_on = tuple(each.key for each in flat) if rests else ()
        return Decided(place, cost, known, intermediates, chosen, refused, expected, rests_on=rests_on)

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
        if expected != self._expected:
            self._catalog.expect_uses(expected)
            self._expected = expected

    def _has(self, key: str) -> bool:
        return self._size_of(key) is not None

    def _lying_objects(
        self, chosen: Chosen, objects: Mapping[str, Sequence[IntermediateObject]]
    ) -> dict[str, tuple[Way, tuple[IntermediateObject, ...]]]:
        """What lasts and lies in the store of videos of which something else, or written otherwise, is kept."""
        lasting, ways, found = chosen.weighed.lasting, chosen.way_of(), list[tuple[str, int, Recipe]]()
        way_of: dict[str, Way] = {}
        for place, video in enumerate(lasting.videos if lasting is not None else ()):
            lying = [each for each in chosen.weighed.lying.get(video, ()) if each.made]
            chosen_lies = objects.get(video) and any(each.way == ways.get(video) for each in lying)
            for kept in () if chosen_lies else lying[:1]:
                assert lasting is not None
                way_of[video] = kept.way
                found += [(video, lasting.video_id(place), recipe) for recipe in lasting.recipes(place, kept.way)]
        of_video: dict[str, tuple[IntermediateObject, ...]] = {}
        images = lasting.images if lasting is not None else ()
        packed = self.packs.lying((video, recipe) for video, _, recipe in found if video in images)
        for each in (*packed, *self._named([each for each in found if each[0] not in images])):
            of_video[each.video] = (*of_video.get(each.video, ()), each)
        return {video: (way_of[video], mine) for video, mine in of_video.items()}

    def _named(self, recipes: Sequence[tuple[str, int, Recipe]]) -> list[IntermediateObject]:
        before = {each.key: each.object_id for decided in self._decided.values() for each in decided.flat()}
        return named(self._catalog, recipes, before)

    def _keep(
        self,
        works: Sequence[ActiveGeneration],
        chosen: Chosen | None,
        free_bytes: int,
        guard: Callable[[], AbstractContextManager[object]],
        usable: Mapping[str, tuple[IntermediateObject, ...]] = MappingProxyType({}),
    ) -> None:
        found = keepings([work.plan for work in works], chosen, free_bytes, usable)
        with guard():
            for work, keeping in zip(works, found, strict=True):
                work.keep(keeping)

    def _objects(
        self,
        chosen: Chosen,
        plans: Sequence[ToCome],
        works: Sequence[ActiveGeneration],
        kept: Mapping[str, tuple[IntermediateObject, ...]],
    ) -> tuple[dict[str, tuple[IntermediateObject, ...]], dict[str, Callable[[], VideoSource]]]:
        """The intermediates of all videos that have some, in the order of the videos; ``kept`` are those that stay."""
        recipes: list[tuple[str, int, Recipe]] = []
        sources: dict[str, Callable[[], VideoSource]] = {}
        objects: dict[str, tuple[IntermediateObject, ...]] = {}
        for video, key in enumerate(chosen.weighed.videos):
            way = chosen.weighed.ways[int(chosen.choice.option[video])]
            if way.intermediate is None:
                continue
            objects[key] = () if way.lasts else kept.get(key, ())
            # What pictures have been through → frames of all clips that begin with it.
            wanted: dict[How, list[NDArray[np.int32]]] = {}
            video_id = -1
            for kind in chosen.weighed.kinds[way.kept :]:
                for work, each in ((works[k], plans[k]) for k in kind.plans):
                    plan, rows = each.plan, work.rows_of_video(key)
                    rows = rows[each.rows[rows]]
                    # Since the plan was weighed another video may have come to stand in.
                    rows = rows[[plan.videos.keys[number] == key for number in plan.video[rows].tolist()]]
                    if len(rows):
                        row = int(plan.video[rows[0]])
                        video_id = int(plan.videos.ids[row])
                        sources.setdefault(key, partial(work.source_of, plan, int(rows[0])))
                        if not way.lasts:
                            index = each.index_of(row)
                            how = kind.how(plan, int(rows[0]), way.intermediate)
                            wanted.setdefault(how, []).append(np.unique(plan.frames(rows)))
            if way.lasts:
                assert chosen.weighed.lasting is not None
                whole = chosen.weighed.lasting.recipes(video, way)
                recipes += [(key, video_id, recipe) for recipe in whole]
                self.lying.will_last(recipe.key for recipe in whole)
            elif key not in kept:
                for how, frames in wanted.items():
                    recipes.append(
                        (key, video_id, intermediate_recipe(key, how, np.unique(np.concatenate(frames)), index))
                    )
        images, found = images_of(plans), list[IntermediateObject]()
        if images:
            # Another image may have come to stand in since: then nothing is known of where one lies.
            pictures = [(video, recipe) for video, _, recipe in recipes if video in images and video in sources]
            among = [video for video in chosen.weighed.videos if video in images]
            of_generation = works[0].group_generation, pictures, among, first_blocks(plans)
            found = self.packs.kept(*of_generation, self._settings.part_bytes)
            self.lying.will_last(each.pack for each in found if each.recipe.codec_is_chosen)
        found += self._named([each for each in recipes if each[0] not in images])
        for mine in found:
            objects[mine.video] = (*objects[mine.video], mine)
        return objects, sources
