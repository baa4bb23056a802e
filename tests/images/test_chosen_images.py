"""What is kept of images is worked out for all that are alike at once, and is what each would have if it were alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.images.small import config, save_folder
from tests.images.test_packs import COUNT, LONG, idle
from tests.tiny import make_decoding_dear, single
from viewcache.materializer.planning.recipe import IntermediateObject, Recipe
from viewcache.materializer.retention import options, told
from viewcache.materializer.retention.choice import Options
from viewcache.materializer.retention.chosen import Chosen
from viewcache.materializer.retention.intermediates import intermediate_recipe
from viewcache.materializer.retention.kept_objects import KeptObjects
from viewcache.materializer.retention.options import Weighed, weigh
from viewcache.materializer.retention.packs import Packs
from viewcache.materializer.retention.settled import STAYS, Settled
from viewcache.materializer.retention.told import kept_tables
from viewcache.materializer.retention.ways import How, ToCome
from viewcache.materializer.scheduling.generation import ActiveGeneration

FIRST = np.zeros(1, np.int32)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of unequal sizes, two of each."""
    sizes = {f"{k:02}.jpg": (60 + k % 12, 48 + k % 3) for k in range(COUNT)}
    return save_folder(tmp_path_factory.mktemp("images"), sizes)


@pytest.fixture(autouse=True)
def nothing_goes_wrong(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Decisions are made in a thread of their own, and what fails there is a line of the log."""
    yield
    assert not [record.getMessage() for record in caplog.get_records("call") if record.exc_info]


@pytest.fixture(scope="module", autouse=True)
def decoding_is_dear() -> Iterator[None]:
    """Of small images what to keep would be decided by noise."""
    with pytest.MonkeyPatch.context() as patch:
        make_decoding_dear(patch)
        yield


def alone(
    chosen: Chosen, plans: Sequence[ToCome], works: Sequence[ActiveGeneration], kept: Mapping[str, Any]
) -> tuple[list[tuple[str, Recipe]], dict[str, tuple[str, str]]]:
    """What is kept of each image, looked at by itself; and the first clip that says where the image is."""
    pictures: list[tuple[str, Recipe]] = []
    sources: dict[str, tuple[str, str]] = {}
    for place, image in enumerate(chosen.weighed.videos):
        way = chosen.weighed.ways[int(chosen.choice.option[place])]
        mine: dict[How, Recipe] = {}
        for kind in chosen.weighed.kinds[way.kept :] if way.intermediate is not None else ():
            for k in kind.plans:
                plan, now = plans[k].plan, works[k].plan
                for row in np.flatnonzero(plan.video == plan.videos.row_of_key[image]).tolist():
                    to_come = plans[k].rows[row] and now.videos.keys[now.video[row]] == image
                    if to_come:
                        (source,) = works[k].sources_of(plan, [row])
                        sources.setdefault(image, (source.name, source.key))
                    if to_come or way.lasts:  # behind its generation all are to come
                        how = kind.how(plan, row, way.intermediate)
                        index = plans[k].index_of(int(plan.video[row]))
                        mine.setdefault(how, intermediate_recipe(image, how, FIRST, index, way.codec))
        if image in sources and (way.lasts or image not in kept):
            pictures += [(image, each) for each in mine.values()]
    return pictures, sources


def said(recipe: Recipe) -> tuple[object, ...]:
    """All that tells a kept picture from others."""
    numbers = recipe.row.tolist(), recipe.frames.tolist(), recipe.shape
    return (recipe.key, recipe.program, *numbers, recipe.codec, recipe.codec_is_chosen, recipe.kind, recipe.native)


class Watched:
    """Decisions, each compared with what it is for every image alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on."""
        self.pictures = list[Recipe]()
        self.edges = 0
        asked = list[list[tuple[str, Recipe]]]()
        stayed = list[Any]()
        choose, keep, stays = KeptObjects.chosen, Packs.kept, Packs.still

        def kept(mine: Packs, number: int, pictures: Any, *given: Any) -> Any:
            asked.append(list(pictures))
            return keep(mine, number, pictures, *given)

        def still(mine: Packs, before: Any, making: Any) -> Any:
            stayed.append(stays(mine, before, making))
            return stayed[-1]

        def chosen(mine: KeptObjects, what: Chosen, plans: Any, works: Any, *given: Any) -> Any:
            before = [work.plan for work in works]
            objects, sources = choose(mine, what, plans, works, *given)
            pictures, names = alone(what, plans, works, stayed.pop())
            found, named = asked.pop(), [image for image in what.weighed.videos if image in sources]
            there = {image: (of.name, of.key) for image, of in zip(named, sources.of(named), strict=True)}
            if all(work.plan is plan for work, plan in zip(works, before, strict=True)):  # no stand-in came meanwhile
                assert [(image, said(each)) for image, each in found] == [(i, said(each)) for i, each in pictures]
                assert there == names
                assert all(image in sources for image in names)
            keeps = {v for v, way in what.way_of().items() if way.intermediate is not None}
            assert list(objects) == [each for each in what.weighed.videos if each in keeps]
            self.pictures += [each for _, each in pictures]
            return objects, sources

        def tables(works: Any, objects: Mapping[str, Sequence[IntermediateObject]], stale: Any) -> Any:
            plans = [work.plan for work in works]
            keep, edges = kept_tables(works, objects, stale)
            found = set[tuple[int, int]]()
            for work in works:
                for image, mine in objects.items():
                    rows = [row for row in work.rows_of_video(image).tolist() if not work.keeping.clips[row]]
                    found |= {(each.object_id, int(work.object_ids[row])) for each in mine for row in rows}
            told_of = [*zip(edges["parent_id"].to_pylist(), edges["child_id"].to_pylist(), strict=True)]
            if all(work.plan is plan for work, plan in zip(works, plans, strict=True)):  # no stand-in came meanwhile
                assert told_of == sorted(found)
            self.edges += len(found)
            return keep, edges

        monkeypatch.setattr(Packs, "kept", kept)
        monkeypatch.setattr(Packs, "still", still)
        monkeypatch.setattr(KeptObjects, "chosen", chosen)
        monkeypatch.setattr(told, "kept_tables", tables)


RESIZED = [single({"resize": {"short_side": 40}}), single({"center_crop": {"shape": [32, 32]}}, of="a", into="b")]


@pytest.mark.parametrize("budget", ["200kB", "2MB", "50MB"])
@pytest.mark.parametrize("epochs", [2, 8])
@pytest.mark.parametrize("tasks", [1, 2])
def test_what_is_kept_is_what_each_image_would_have_alone(
    tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch, budget: str, epochs: int, tasks: int
) -> None:
    """Recipes, sources and edges: with room for few, many or all, of one generation and of those behind it, of one task
    and of two that resize otherwise.
    """
    watched = Watched(monkeypatch)
    opened = config(tmp_path, images, cache={"budget": budget}, **LONG | {"epochs": epochs})
    first = opened["dataset"]
    others = [first, first | {"tag": "other", "augmentation": RESIZED}]
    with viewcache.open(opened | {"dataset": others[:tasks]}) as cache:
        for epoch in range(min(epochs, 3)):
            for iteration in range(cache.task("train").iterations(epoch)):
                for task in ("train", "other")[:tasks]:
                    cache.read(task, epoch, iteration)
            idle(cache)
    assert watched.pictures
    assert watched.edges
    lasts = {each.codec_is_chosen for each in watched.pictures}
    assert True in lasts if epochs == 8 else lasts == {False}


@pytest.mark.parametrize("epochs", [2, 8])
def test_what_is_kept_as_decoded_is_what_each_image_would_have_alone(
    tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch, epochs: int
) -> None:
    """Where nothing is resized the decoder's planes are kept, which are of as many sizes as the images."""
    watched = Watched(monkeypatch)
    crop = [single({"random_crop": {"shape": [32, 32]}}, into="b")]
    with viewcache.open(config(tmp_path, images, **LONG | {"epochs": epochs, "augmentation": crop})) as cache:
        for epoch in range(min(epochs, 3)):
            for iteration in range(cache.task("train").iterations(epoch)):
                cache.read("train", epoch, iteration)
            idle(cache)
    assert watched.edges
    assert {each.native for each in watched.pictures} == {True}
    assert len({each.shape for each in watched.pictures}) > 1
    lasts = {each.codec_is_chosen for each in watched.pictures}
    assert True in lasts if epochs == 8 else lasts == {False}


def test_an_image_that_came_to_stand_in_is_looked_at_anew(
    tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where bad images are replaced while it is decided, none is kept by the plan of before."""
    folder = save_folder(tmp_path / "in", {f"{k:02}.jpg": (64, 48) for k in range(COUNT)})
    for bad in range(3):
        file = folder / f"{bad:02}.jpg"
        file.write_bytes(file.read_bytes()[:600])
    watched = Watched(monkeypatch)
    with viewcache.open(config(tmp_path / "store", folder, on_bad_image="replace", **LONG)) as cache:
        for epoch in range(3):
            for iteration in range(cache.task("train").iterations(epoch)):
                cache.read("train", epoch, iteration)
            idle(cache)
    assert watched.pictures


def settled(mine: Settled, weighed: Weighed) -> Options:
    """What a rule is to choose among, one image after the other."""
    ways, cost_s = weighed.ways, weighed.options.cost_s.copy()
    device_s = {name: each.copy() for name, each in weighed.options.device_s.items()}
    for place, image in enumerate(weighed.videos):
        for column, way in enumerate(ways) if image in mine.ways else ():
            stays = way == mine.ways[image]
            made = {each.way for each in weighed.lying.get(image, ()) if each.made}
            if mine.later and way.lasts and not stays and way not in made:
                cost_s[place, column] = np.inf
            for seconds in (cost_s, *device_s.values()) if stays and way.lasts else ():
                seconds[place, column] *= STAYS
    return replace(weighed.options, cost_s=cost_s, device_s=device_s)


def test_images_are_weighed_together_as_one_by_one(
    tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes and seconds of each image are those that it has among few others, what lies there of it included."""
    seen_in, lying, later = Settled.seen_in, list[bool](), list[bool]()

    def weighed(*plans: Any, **given: Any) -> Weighed:
        whole = weigh(*plans, **given)
        lying.append(any(each.made for mine in whole.lying.values() for each in mine))
        with pytest.MonkeyPatch.context() as patch:
            for together in (1, 7):
                patch.setattr(options, "IMAGES", together)
                parted = weigh(*plans, **given | {"lying": lambda _: whole.lying})  # more may have come meanwhile
                for name in ("bytes", "cost_s", "work_s"):
                    mine, theirs = (getattr(each.options, name) for each in (whole, parted))
                    np.testing.assert_allclose(mine, theirs, rtol=1e-12)
        return whole

    def seen(mine: Settled, what: Weighed) -> Options:
        found, expected = seen_in(mine, what), settled(mine, what)
        assert np.array_equal(found.cost_s, expected.cost_s)
        assert all(np.array_equal(found.device_s[name], each) for name, each in expected.device_s.items())
        later.append(mine.later)
        return found

    monkeypatch.setattr("viewcache.materializer.retention.chosen.weigh", weighed)
    monkeypatch.setattr(Settled, "seen_in", seen)
    with viewcache.open(config(tmp_path, images, cache={"budget": "1MB"}, **LONG)) as cache:
        for epoch in range(3):
            for iteration in range(cache.task("train").iterations(epoch)):
                cache.read("train", epoch, iteration)
            idle(cache)
    assert any(lying)
    assert any(later)


def test_a_block_is_asked_about_once(tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How a job handles a block does not take as many questions as the block has images."""
    asked = list[int]()
    pictures_of = ActiveGeneration.intermediates

    def intermediates(mine: ActiveGeneration, row: int) -> Any:
        asked.append(row)
        return pictures_of(mine, row)

    monkeypatch.setattr(ActiveGeneration, "intermediates", intermediates)
    sampling = {"images_per_batch": COUNT}
    with viewcache.open(config(tmp_path, images, sampling=sampling, epochs=1)) as cache:
        cache.read("train", 0, 0)
    assert 0 < len(asked) < COUNT
