"""Packs: kept pictures of images lie together, and each is found, read, checked and given up as it should be."""

import json
import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
import tensorstore
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import viewcache
from tests.catalog.samples import copy
from tests.images.small import config, picture, save, save_folder
from tests.tiny import config as of_videos
from tests.tiny import encode_folder, make_decoding_dear, single, sql
from viewcache.api.config.find import locate
from viewcache.api.session.cache import Cache
from viewcache.api.upkeep.gc import collected
from viewcache.catalog import Catalog, schemas
from viewcache.catalog.kinds import ObjectKind
from viewcache.catalog.records import ObjectRow
from viewcache.catalog.rows import object_table
from viewcache.errors import ChunkDamaged
from viewcache.materializer.planning.packs import MOST_BYTES, MOST_PICTURES, pack_layout, pieces
from viewcache.materializer.planning.program import Program
from viewcache.materializer.planning.recipe import IntermediateObject, Recipe, VideoSource, pack_recipe
from viewcache.materializer.retention.chosen import Chosen, choose
from viewcache.materializer.retention.intermediates import intermediate_recipe, picture_keys
from viewcache.materializer.retention.packs import TRIES, LocatedPictures, Packs, Picture
from viewcache.materializer.scheduling.dispatcher import Dispatcher
from viewcache.materializer.scheduling.intermediate_work import GenerationContext, Pack, PackWork
from viewcache.materializer.scheduling.work import RowState
from viewcache.materializer.storage.found import pack_parts
from viewcache.materializer.storage.ledger import Ledger
from viewcache.materializer.storage.shelf import Copy
from viewcache.store.reader import scan_object

COUNT = 24
LONG: dict[str, Any] = {"epochs": 8, "sampling": {"images_per_batch": 4}}
"""So many epochs that resized pictures pay."""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of unequal sizes."""
    sizes = {f"{k:02}.jpg": (60 + k % 5, 48 + k % 3) for k in range(COUNT)}
    return save_folder(tmp_path_factory.mktemp("images"), sizes)


@pytest.fixture(scope="module", autouse=True)
def decoding_is_dear() -> Iterator[None]:
    """Of small images what to keep would be decided by noise."""
    with pytest.MonkeyPatch.context() as patch:
        make_decoding_dear(patch)
        yield


def idle(cache: Cache) -> None:
    """Wait until all is decided and made that is to be made ahead."""
    cache.owner.look_ahead.wait_idle()
    assert cache.owner.dispatcher is not None
    assert cache.owner.dispatcher.wait_idle(60)
    assert cache.tier.used_bytes + cache.tier.reserved_bytes <= cache.tier.budget_bytes


def read(cache: Cache) -> list[NDArray[np.uint8]]:
    """The images of all batches, each epoch made ahead as far as there is room."""
    found = []
    for epoch in range(cache.task("train").epochs):
        for iteration in range(cache.task("train").iterations(epoch)):
            found.append(cache.read("train", epoch, iteration).video[:, 0].copy())
            if not iteration:
                idle(cache)
    return found


def packets(cache: Cache) -> int:
    """How many images were decoded."""
    return cache.owner.dispatcher_now().tally.frames["packets"]


def lying(cache: Cache) -> list[tuple[object, ...]]:
    """Packs that are in the store: their key, and how many pictures they have."""
    return sql(cache, "select pack, count(*) from packs where state = 'ready' group by pack order by pack")


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory, images: Path) -> list[NDArray[np.uint8]]:
    """What is read where nothing can be kept."""
    tight = {"budget": "100kB"}
    with viewcache.open(config(tmp_path_factory.mktemp("truth"), images, cache=tight, **LONG)) as cache:
        return read(cache)


def same(one: list[NDArray[np.uint8]], other: list[NDArray[np.uint8]]) -> bool:
    """Whether all pixels are equal."""
    return len(one) == len(other) and all(map(np.array_equal, one, other))


def filled(folder: Path, images: Path, truth: list[NDArray[np.uint8]], **settings: Any) -> list[tuple[object, ...]]:
    """Leave a cache whose training has been read once; returns the packs that lie there."""
    with viewcache.open(config(folder, images, cache=settings, **LONG)) as cache:
        assert same(read(cache), truth)
        assert sum(int(str(count)) for _, count in lying(cache)) >= COUNT
        return lying(cache)


def test_what_is_settled_is_not_decided_again(
    tmp_path: Path, images: Path, truth: list[NDArray[np.uint8]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once all that is kept for the epochs to come lies there, each epoch that is read changes nothing; if some of it
    has gone, it is chosen and made again.
    """
    decided = list[object]()

    def counting(plans: Any, *given: Any) -> Any:
        decided.append(plans)
        return choose(plans, *given)

    monkeypatch.setattr("viewcache.materializer.retention.keeper.choose", counting)
    with viewcache.open(config(tmp_path, images, cache={"epochs_per_generation": 8}, **LONG)) as cache:
        got = []
        for epoch in range(8):
            if epoch == 6:
                gone = str(lying(cache)[0][0])
                cache.owner.ledger.lost("local", [gone])
            for iteration in range(cache.task("train").iterations(epoch)):
                got.append(cache.read("train", epoch, iteration).video[:, 0].copy())
                if not iteration:
                    idle(cache)
            if epoch == 1:
                before = len(decided)
            if epoch == 5:
                assert len(decided) == before
        assert len(decided) > before
        assert len(lying(cache)) > 0
    assert same(got, truth)


def test_what_images_have_in_common_is_worked_out_once(
    tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recipes and keys of kept pictures are those that each image would have if it were alone."""
    found: list[Chosen | None] = []

    def recorded(*given: Any) -> Chosen | None:
        found.append(choose(*given))
        return found[-1]

    monkeypatch.setattr("viewcache.materializer.retention.keeper.choose", recorded)
    with viewcache.open(config(tmp_path, images, **LONG)) as cache:
        cache.read("train", 0, 0)
        idle(cache)
        chosen = found[0]
        assert chosen is not None
        assert chosen.weighed.lasting is not None
        lasting, index_of = chosen.weighed.lasting, cache.task("train").task.dataset.index
        seen = 0
        for place, video in enumerate(lasting.videos):
            for way in lasting.ways:
                for recipe in lasting.recipes(place, way):
                    how = None if recipe.native else (recipe.program.instructions, recipe.row.tobytes())
                    assert picture_keys([video], how, way.codec) == [recipe.key]
                    (together,) = (places for begun, places in lasting.pictures(way) if begun == how)
                    assert place in together
                    index = index_of(lasting.video_id(place))
                    alone = intermediate_recipe(video, how, np.zeros(1, np.int32), index, way.codec)
                    assert (recipe.key, recipe.shape, recipe.codec) == (alone.key, alone.shape, alone.codec)
                    assert recipe.codec_is_chosen
                    assert (recipe.kind, recipe.native, recipe.program) == (alone.kind, alone.native, alone.program)
                    seen += 1
        assert seen >= COUNT


@given(st.lists(st.integers(1, 1 << 20), min_size=1, max_size=MOST_PICTURES))
def test_pictures_lie_apart_and_begin_with_a_chunk(sizes: list[int]) -> None:
    """No two share a byte or a chunk; of like sizes little is wasted, and of equal ones nothing."""
    layout = pack_layout(sizes)
    ends = [first + size for first, size in zip(layout.firsts, sizes, strict=True)]
    assert all(first % layout.chunk_bytes == 0 for first in (*layout.firsts, layout.bytes))
    assert all(end <= following for end, following in zip(ends, (*layout.firsts[1:], layout.bytes), strict=True))
    if min(sizes) == max(sizes):
        assert layout.bytes == sum(sizes)
    elif min(sizes) >= 1 << 17 and max(sizes) <= 2 * min(sizes):
        assert layout.bytes <= 1.13 * sum(sizes)


@given(st.lists(st.integers(1, 1 << 25), max_size=200), st.integers(1, 1 << 26))
def test_no_pack_is_too_large(sizes: list[int], most_bytes: int) -> None:
    """All pictures are in one pack each, in their order, and a pack that is too large has one picture."""
    parted = pieces(sizes, most_bytes)
    assert [place for each in parted for place in each] == list(range(len(sizes)))
    for each in parted:
        assert len(each) == 1 or sum(sizes[place] for place in each) <= min(most_bytes, MOST_BYTES)
        assert len(each) <= MOST_PICTURES


@pytest.mark.parametrize("codec", ["raw", "lz4", "zstd1"])
def test_any_zarr_client_reads_the_pictures(
    tmp_path: Path, images: Path, truth: list[NDArray[np.uint8]], codec: str
) -> None:
    """``z[offset:offset + size].reshape(shape)`` is the resized picture that its path gives."""
    tiers = [{"url": str(tmp_path), "budget": "50MB", "codec": codec}]
    filled(tmp_path, images, truth, store=tiers, budget=None)
    found: dict[str, NDArray[np.uint8]] = {}
    for text in (tmp_path / "objects").rglob("zarr.json"):
        attributes = json.loads(text.read_text())["attributes"]
        if attributes["kind"] != "pack":
            continue
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(text.parent)}}
        whole = np.asarray(zarr.open_array(text.parent, mode="r")[:])
        assert np.array_equal(whole, np.asarray(tensorstore.open(spec).result().read().result()))
        for part in attributes["parts"]:
            first, shape = part["offset"], part["shape"]
            found[part["video"]] = whole[first : first + math.prod(shape)].reshape(shape)
    assert len(found) == COUNT
    resized = [single({"resize": {"short_side": 36}}), single({"center_crop": {"shape": [32, 32]}}, of="a", into="b")]
    with viewcache.open(config(tmp_path / "other", images, augmentation=resized)):
        fs = fsspec.filesystem("view", cache=str(tmp_path / "other"))
        for name, pixels in found.items():
            view = np.load(fs.open(f"view://train/{name}/frame0/aug1"))
            assert np.array_equal(view, pixels), name


def test_packs_that_have_left_are_made_ahead_again(
    tmp_path: Path, images: Path, truth: list[NDArray[np.uint8]]
) -> None:
    """`materialize` called once more makes the packs that lie there no more, and those that were made stay."""
    with viewcache.open(config(tmp_path, images, **LONG)) as cache:
        *_, first = cache.materialize()
        there = lying(cache)
        assert sum(int(str(count)) for _, count in there) == COUNT
        packs = {str(key) for key, _ in there}
        copies = [copy for copy in cache.owner.ledger.copies().values() if copy.key in packs]
        cache.owner.dispatcher_now().evictor.give_up(copies[::2])
        assert len(lying(cache)) == len(there) - len(copies[::2])
        *_, again = cache.materialize()
        assert again == first
        assert lying(cache) == there
        assert same(read(cache), truth)


def test_an_image_is_decoded_once_though_all_epochs_are_made_ahead(
    tmp_path: Path, images: Path, truth: list[NDArray[np.uint8]]
) -> None:
    """All generations are decided at once, and the last of them, behind which nothing is of use, does not rule."""
    with viewcache.open(config(tmp_path, images, **LONG)) as cache:
        for _ in cache.materialize():
            pass
        assert packets(cache) == COUNT
        assert same(read(cache), truth)
        assert packets(cache) == COUNT


def test_what_lies_in_packs_is_found_again(tmp_path: Path, images: Path, truth: list[NDArray[np.uint8]]) -> None:
    """After a restart, and after the catalog is lost, no picture is kept anew."""
    packs = filled(tmp_path, images, truth)
    for lost in (False, True):
        if lost:
            for file in tmp_path.glob("catalog*"):
                file.unlink()
        with viewcache.open(config(tmp_path, images, **LONG | {"epochs": 12})) as cache:
            assert same(read(cache)[: len(truth)], truth)
            assert lying(cache) == packs
            assert packets(cache) <= 4 * 4, "the first blocks are asked for before it is known what lies there"


def test_what_lies_there_is_not_expected_to_be_decoded(
    tmp_path: Path, images: Path, truth: list[NDArray[np.uint8]]
) -> None:
    """What `viewcache run` says that it will take: of each image one decode in all generations, of packs and blocks as
    many as are made; asked again while the cache is open, or where packs of another training lie, no decode.
    """
    filled(tmp_path / "filled", images, truth)
    for folder in ("new", "filled"):
        with viewcache.open(config(tmp_path / folder, images, **LONG | {"epochs": 40})) as cache:
            for again in (False, True):
                for _ in cache.materialize():
                    pass
                assert cache.making is not None
                predicted, measured = cache.making.predicted, cache.making.measured
                assert predicted.packets == (COUNT if folder == "new" and not again else 0)
                assert (predicted.objects, predicted.object_bytes) == (measured.objects, measured.object_bytes)
                assert (measured.objects == 0) is again


def test_what_is_still_chosen_stays_with_its_pack(
    tmp_path: Path, images: Path, truth: list[NDArray[np.uint8]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the budget has room, `viewcache gc` takes no picture that is chosen, whatever else lies in its pack."""
    filled(tmp_path, images, truth, mix=1)
    found: list[Chosen | None] = []

    def recorded(*given: Any) -> Chosen | None:
        found.append(choose(*given))
        return found[-1]

    monkeypatch.setattr("viewcache.materializer.retention.keeper.choose", recorded)
    half = config(tmp_path, images, cache={"mix": 0.5}, **LONG | {"epochs": 12})
    with viewcache.open(half) as cache:
        cache.read("train", LONG["epochs"], 0)
        idle(cache)
        assert all(chosen is not None and chosen.spare_bytes for chosen in found)
    collected(locate(str(tmp_path)))
    kept = {image for chosen in found if chosen is not None for image, way in chosen.way_of().items() if way.keeps}
    with viewcache.open(half) as cache:
        packs = cache.catalog.query("read_packs")["object_id"].to_pylist()
        assert len(kept) >= COUNT // 2
        assert kept <= set(cache.catalog.pack_parts(packs)["video_key"].to_pylist())


def test_a_damaged_pack_is_made_anew(tmp_path: Path, images: Path, truth: list[NDArray[np.uint8]]) -> None:
    """Each byte of each pack turned over: the pixels are the same, and packs lie there again."""
    filled(tmp_path, images, truth)
    for text in (tmp_path / "objects").rglob("zarr.json"):
        if json.loads(text.read_text())["attributes"]["kind"] == "pack":
            shard = text.with_name("c.0")
            shard.write_bytes(bytes(255 - each for each in shard.read_bytes()))
    with viewcache.open(config(tmp_path, images, **LONG | {"epochs": 16})) as cache:
        assert same(read(cache)[: len(truth)], truth)
        assert sum(int(str(count)) for _, count in lying(cache)) >= COUNT


def test_a_bad_image_costs_its_pack_nothing(tmp_path: Path) -> None:
    """An image that is damaged behind its header is replaced, and the others of its pack are kept."""
    folder = save_folder(tmp_path / "in", {f"{k:02}.jpg": (64, 48) for k in range(COUNT)})
    whole = save(tmp_path / "whole.jpg", picture(64, 48)).read_bytes()
    (folder / "07.jpg").write_bytes(whole[: len(whole) // 2])
    with viewcache.open(config(tmp_path / "store", folder, on_bad_image="replace", **LONG)) as cache:
        assert len(read(cache)) == LONG["epochs"] * COUNT // 4
        kept = {name for (name,) in sql(cache, "select distinct image from packs where state = 'ready'")}
        assert len(kept) == COUNT - 1
        assert packets(cache) <= 3 * COUNT, "for blocks, for packs, and for those of the bad image again"


@pytest.mark.parametrize("gone", [False, True])
def test_packs_are_held_though_one_has_just_left(
    tmp_path: Path, images: Path, truth: list[NDArray[np.uint8]], monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    """Those of a block are held at once; if one of them left meanwhile, the others are used all the same."""
    hold, several = Ledger.hold, list[bool]()

    def held(ledger: Ledger, keys: list[str], tier: str | None = None) -> list[Copy] | None:
        of_packs = tier == "local" and len(keys) > 1
        several.append(of_packs)
        return None if of_packs and gone else hold(ledger, keys, tier)

    monkeypatch.setattr(Ledger, "hold", held)
    with viewcache.open(config(tmp_path, images, **LONG)) as cache:
        assert same(read(cache), truth)
        assert packets(cache) == COUNT
    assert any(several)


SIZE = 3 * 8 * 8


def keep(
    packs: Packs,
    generation: int,
    pictures: Sequence[Picture],
    among: Sequence[str],
    blocks: Mapping[str, tuple[int, str]],
    making: Set[str] = frozenset(),
    spare: int = 0,
) -> list[IntermediateObject]:
    """What is kept for a generation of pictures that were chosen, in packs of any size."""
    kept = packs.kept(generation, pictures, among, blocks, lambda: making, 1 << 30, spare)
    packs.forget_superseded(making)
    return [each for (each,) in kept]


class Shelf:
    """Packs, and which of them lie there."""

    def __init__(self, catalog: Catalog) -> None:
        """Nothing lies there."""
        self.sizes: dict[str, int] = {}
        self.packs = Packs(catalog, self.sizes.get)
        self.pictures: dict[str, set[str]] = {}
        """Of each pack, as it was formed."""

    def keep(self, chosen: set[int], images: int, weighed: set[int] | None = None, spare: int = 0) -> set[str]:
        """Keep pictures of some of so many images, ten of which are in each block; returns their packs.

        ``weighed`` are those among which was chosen; None = all. ``spare`` bytes of the budget are not taken.
        """
        pictures = [one(number) for number in sorted(chosen)]
        blocks = {one(number)[0]: (number // 10, f"{number // 10:032x}") for number in range(images)}
        among = [one(number)[0] for number in (range(images) if weighed is None else weighed | chosen)]
        kept = keep(self.packs, 0, pictures, among, blocks, spare=spare)
        for each in kept:
            self.pictures.setdefault(each.pack, set()).add(each.recipe.key)
        return {each.pack for each in kept}

    def make(self, packs: set[str]) -> None:
        """All of them lie there."""
        for key in packs:
            self.sizes[key] = SIZE * len(self.pictures[key])


def one(number: int) -> Picture:
    """An image and how a picture of it is made."""
    key = f"{number:032x}"
    nothing = np.zeros(0, np.int32)
    return key, Recipe(f"{number + (1 << 64):032x}", Program(()), nothing, np.zeros(1, np.int32), (1, 3, 8, 8), 0, SIZE)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """One catalog for many generated choices."""
    with Catalog.open(tmp_path_factory.mktemp("catalog")) as opened:
        yield opened


NUMBERS = st.sets(st.integers(0, 59))


@given(NUMBERS, NUMBERS, NUMBERS)
def test_packs_that_stay_take_no_more_room_than_was_chosen(
    catalog: Catalog, first: set[int], then: set[int], weighed: set[int]
) -> None:
    """Whatever is chosen next, the packs that stay take no more than what was chosen of all that lie there."""
    shelf = Shelf(catalog)
    shelf.make(shelf.keep(first, 60))
    assert shelf.keep(first, 60) == set(shelf.sizes), "the same choice keeps the same packs"
    kept = shelf.keep(then, 60, weighed)
    lie = kept & set(shelf.sizes)
    assert sum(shelf.sizes[key] for key in lie) <= SIZE * len(first & then)
    assert sum(len(shelf.pictures[key]) for key in kept - lie) == len(then - first)


@given(NUMBERS, NUMBERS, st.integers(0, 60))
def test_packs_stay_as_far_as_the_budget_has_room(catalog: Catalog, first: set[int], then: set[int], more: int) -> None:
    """What packs that stay have beside what was chosen takes what is spare, and no pack leaves that has room."""
    shelf = Shelf(catalog)
    shelf.make(shelf.keep(first, 60))
    kept = shelf.keep(then, 60, spare=SIZE * more)
    lie = kept & set(shelf.sizes)
    left = SIZE * (len(first & then) + more) - sum(shelf.sizes[key] for key in lie)
    assert left >= 0
    asked = {one(number)[1].key for number in then}
    leave = {key for key in shelf.sizes if key not in lie and not asked.isdisjoint(shelf.pictures[key])}
    assert all(shelf.sizes[key] > left for key in leave)


def test_a_pack_for_which_there_is_no_room_costs_smaller_ones_nothing(catalog: Catalog) -> None:
    """Of the packs behind it, of which a smaller part was chosen, those stay that have room."""
    shelf = Shelf(catalog)
    shelf.make(shelf.keep({*range(10), 10, 11, 12}, 20))
    large, small = sorted(shelf.sizes, key=lambda key: -shelf.sizes[key])
    assert shelf.keep({*range(4), 10}, 20) == {small}
    assert shelf.keep({*range(4), 10}, 20, spare=SIZE * 8) == {large, small}


def test_a_picture_is_kept_in_the_pack_that_stays(catalog: Catalog) -> None:
    """One that lies in two packs is lost with neither: it is kept in the one of them that stays for others' sake."""
    sizes: dict[str, int] = {}
    packs = Packs(catalog, sizes.get)
    pictures = [one(number) for number in range(150, 162)]
    images = [image for image, _ in pictures]
    soon, late = (dict.fromkeys(images, (k, f"{k}{k}" * 16)) for k in (1, 2))
    chosen = (pictures[:8], soon), (pictures[4:], late)
    made = [packs.kept(0, mine, images, blocks, set, 1 << 30, 0) for mine, blocks in chosen]
    first, since = ([each for (each,) in of_pack] for of_pack in made)
    sizes |= {each[0].pack: 8 * SIZE for each in (first, since)}
    assert keep(packs, 0, pictures[6:], images, {}, spare=2 * SIZE) == since[2:]


def test_a_pack_waits_for_its_block(catalog: Catalog) -> None:
    """It is asked for again as it is while its block is to come, by another generation too, and formed anew behind."""
    packs = Packs(catalog, lambda _: None)
    pictures = [one(number) for number in range(6)]
    images = [image for image, _ in pictures]
    soon = dict.fromkeys(images, (0, "aa" * 16))
    late = dict.fromkeys(images, (9, "bb" * 16))
    (pack,) = {each.pack for each in keep(packs, 0, pictures, images, soon)}
    assert {each.pack for each in keep(packs, 1, pictures, images, late)} == {pack}
    assert [each.block for each in packs.packs_of(keep(packs, 0, pictures, images, soon))] == ["aa" * 16]
    packs.forget(0)
    (other,) = packs.packs_of(keep(packs, 1, pictures, images, late))
    assert (other.block, list(other.images)) == ("bb" * 16, images)


def test_a_pack_that_is_being_made_is_waited_for(catalog: Catalog) -> None:
    """Its block is on its way, so it is none to come: until the pack lies there its pictures are not packed again."""
    sizes: dict[str, int] = {}
    packs = Packs(catalog, sizes.get)
    pictures = [one(number) for number in range(100, 106)]
    images = [image for image, _ in pictures]
    soon, late = (dict.fromkeys(images, (k, f"{k}{k}" * 16)) for k in (1, 2))
    as_before = {each.video: (each,) for each in keep(packs, 0, pictures, images, soon)}
    (pack,) = {each.pack for of_image in as_before.values() for each in of_image}
    for making, lies in (({pack}, False), (set[str](), True)):
        if lies:
            sizes[pack] = 10
        assert {each.pack for each in keep(packs, 0, pictures, images, late, making)} == {pack}
        assert packs.still(as_before, lambda making=making: making) == as_before  # type: ignore[misc]
    del sizes[pack]
    assert not packs.still(as_before, set), "its block was made without it"
    (other,) = packs.packs_of(keep(packs, 0, pictures, images, late))
    assert (other.block, list(other.images)) == ("22" * 16, images)


def test_a_task_that_joins_has_part_of_the_images_sooner(catalog: Catalog) -> None:
    """What was formed and is not being made is formed anew, of the images that each block is the first to need."""
    packs = Packs(catalog, lambda _: None)
    pictures = [one(number) for number in range(110, 118)]
    images = [image for image, _ in pictures]
    alone = {image: (k // 4, f"{k // 4:032x}") for k, image in enumerate(images)}
    begun, planned = packs.packs_of(keep(packs, 0, pictures, images, alone))
    (later,) = {each.pack for each in keep(packs, 1, pictures[4:], images, dict.fromkeys(images, (99, "ff" * 16)))}
    assert later == planned.key, "the next generation finds it there"
    joined = alone | dict.fromkeys(images[1::2], (0, "ee" * 16))
    formed = packs.packs_of(keep(packs, 0, pictures, images, joined, {begun.key}))
    assert {(each.block, each.images) for each in formed} == {
        (begun.block, begun.images),
        (planned.block, tuple(images[4::2])),
        ("ee" * 16, tuple(images[5::2])),
    }
    assert planned.key not in packs
    assert packs.take_superseded() == {planned.key}
    assert {each.pack for each in keep(packs, 1, pictures, images, {}, {begun.key})} == {each.key for each in formed}
    assert not packs.take_superseded()


def test_a_picture_is_found_in_whatever_pack_lies_there(catalog: Catalog) -> None:
    """A pack may be made as it was planned before; what was decided then and since finds its pictures there."""
    sizes: dict[str, int] = {}
    packs = Packs(catalog, sizes.get)
    pictures = [one(number) for number in range(130, 138)]
    images = [image for image, _ in pictures]
    first = keep(packs, 0, pictures, images, dict.fromkeys(images, (0, "aa" * 16)))
    blocks = {image: (k % 2, f"{k % 2}e" * 16) for k, image in enumerate(images)}
    since = [each for (each,) in packs.kept(0, pictures, images, blocks, set, 1 << 30, 0)]
    assert [packs.located(each) for each in (*first, *since)] == [*first, *since], "nothing lies there"
    sizes[first[0].pack] = 10
    packs.forget_superseded(set())
    found = LocatedPictures({each.video: (each,) for each in since}, packs)
    assert {image: found[image][0] for image in found} == {each.video: each for each in first}
    assert found.get("ff" * 16, ()) == ()
    sizes |= {each.pack: 10 for each in since}
    assert [packs.located(each) for each in since] == since, "where it was decided, if it lies there"


def test_a_generation_needs_no_packs_of_what_an_earlier_one_keeps(catalog: Catalog) -> None:
    """The newest generation is decided first; what the one before it makes is there by then."""
    packs = Packs(catalog, lambda _: None)
    pictures = [one(number) for number in range(120, 124)]
    images = [image for image, _ in pictures]
    soon, late = (dict.fromkeys(images, (k, f"{k}{k}" * 16)) for k in (1, 2))
    (own,) = {each.pack for each in keep(packs, 1, pictures[:2], images, late)}
    (earlier,) = {each.pack for each in keep(packs, 0, pictures, images, soon)}
    assert own not in packs
    assert packs.take_superseded() == {own}
    assert {each.pack for each in keep(packs, 1, pictures, images, late)} == {earlier}


def test_decisions_share_what_they_hold(catalog: Catalog) -> None:
    """Of a picture in a pack there is one object, whichever decisions have it: there may be a million."""
    packs = Packs(catalog, lambda _: None)
    pictures = [one(number) for number in range(140, 144)]
    images = [image for image, _ in pictures]
    blocks = dict.fromkeys(images, (0, "aa" * 16))
    first = packs.kept(0, pictures, images, blocks, set, 1 << 30, 0)
    packs.forget_superseded(set())
    again = packs.kept(0, pictures, images, blocks, set, 1 << 30, 0)
    later = packs.kept(1, pictures, images, blocks, set, 1 << 30, 0)
    assert all(one is other is third for one, other, third in zip(first, again, later, strict=True))


def test_an_image_that_fails_is_packed_alone(catalog: Catalog) -> None:
    """A pack that could not be made costs the others of it nothing: next time each is alone, three times at most."""
    packs = Packs(catalog, lambda _: None)
    pictures = [one(number) for number in range(5)]
    images = [image for image, _ in pictures]
    soon = dict.fromkeys(images, (0, "aa" * 16))
    together = packs.packs_of(keep(packs, 0, pictures, images, soon))
    assert len(together) == 1
    packs.failed(together)
    alone = keep(packs, 0, pictures, images, soon)
    assert len({each.pack for each in alone}) == 5
    (broken,) = packs.packs_of(each for each in alone if each.video == images[2])
    for _ in range(TRIES):
        packs.failed([broken])
    assert {each.video for each in keep(packs, 0, pictures, images, soon)} == {*images} - {images[2]}


def test_a_pack_that_fails_when_it_is_forgotten_is_packed_alone(catalog: Catalog) -> None:
    """Its generation may be over while it is made; what failed is the pack and its images, not the block it rode on."""
    packs = Packs(catalog, lambda _: None)
    pictures = [one(number) for number in range(80, 84)]
    images = [image for image, _ in pictures]
    soon, late = (dict.fromkeys(images, (k, f"{k}{k}" * 16)) for k in (1, 2))
    (pack,) = packs.packs_of(keep(packs, 1, pictures, images, soon))
    failed = dict[str, Hashable]()
    work = work_of(pack, sources={*images}, failed=failed)
    packs.forget(1)
    assert not keep(packs, 2, [], [], {})
    assert not len(packs)
    work.set_state(0, RowState.FAILED)
    assert failed == {pack.key: pack}
    packs.failed(each for each in failed.values() if isinstance(each, Pack))
    assert len({each.pack for each in keep(packs, 2, pictures, images, late)}) == len(images)


def test_packs_that_are_never_made_are_forgotten(catalog: Catalog) -> None:
    """Under a budget that has no room for any, each generation names others, and no more are remembered."""
    packs = Packs(catalog, lambda _: None)
    pictures = [one(number) for number in range(30)]
    images = [image for image, _ in pictures]
    known = []
    for generation in range(6):
        rotated = images[generation:] + images[:generation]
        blocks = {image: (k // 10, f"{generation}{k // 10:031x}") for k, image in enumerate(rotated)}
        made = keep(packs, generation, pictures, images, blocks)
        assert len(packs.packs_of(made)) == len({each.pack for each in made})
        packs.forget(generation - 1)
        known.append(len(packs))
    assert max(known) <= 6, known


def test_a_pack_that_says_a_picture_twice_is_forgotten_like_any_other(catalog: Catalog) -> None:
    """Such a pack is none of ours, but one may be put into a store; nothing else is decided worse for it."""
    sizes: dict[str, int] = {}
    packs = Packs(catalog, sizes.get)
    (image, recipe), key = one(70), "ee" * 16
    object_id = catalog.next_object_id(1)
    row = ObjectRow(object_id, key, ObjectKind.PACK, None, 1, 10, 0.5, True, "10")
    catalog.record_objects(object_table([row]))
    parts = [
        {"object_id": object_id, "place": place, "key": recipe.key, "video_key": image, "first_byte": place}
        for place in range(2)
    ]
    catalog.record_packs(pa.Table.from_pylist(parts, schema=schemas.PACK_PART))
    catalog.mark_ready([copy(object_id)])
    catalog.flush()
    sizes[key] = 10
    packs.look()
    assert packs.finder()(recipe.key) is not None
    del sizes[key]
    assert not keep(packs, 0, [], [], {})
    assert packs.finder()(recipe.key) is None
    assert not len(packs)


def test_a_pack_of_which_no_pictures_are_known_is_not_asked_for(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows may be lost: at no look is it asked for, and what has pictures is asked for once."""
    sizes: dict[str, int] = {}
    packs, asked, pack_parts = Packs(catalog, sizes.get), list[list[int]](), Catalog.pack_parts

    def asks(mine: Catalog, object_ids: list[int]) -> pa.Table:
        asked.append(object_ids)
        return pack_parts(mine, object_ids)

    monkeypatch.setattr(Catalog, "pack_parts", asks)
    packs.look()
    asked.clear()
    first = catalog.next_object_id(2)
    rows = [ObjectRow(first + k, f"{k}f" * 16, ObjectKind.PACK, None, 1, 10, 0.5, True, "10") for k in range(2)]
    catalog.record_objects(object_table(rows))
    part = {"object_id": first, "place": 0, "key": one(90)[1].key, "video_key": one(90)[0], "first_byte": 0}
    catalog.record_packs(pa.Table.from_pylist([part], schema=schemas.PACK_PART))
    catalog.mark_ready([copy(first), copy(first + 1)])
    catalog.flush()
    assert packs.look()
    assert packs.look()
    assert asked == [[first]]


def test_rows_of_packs_that_were_never_made_leave_with_the_run(
    tmp_path: Path, images: Path, truth: list[NDArray[np.uint8]]
) -> None:
    """At the next opening the catalog tells of packs that lie there, and of no others."""
    packs = filled(tmp_path, images, truth)
    pictures = [one(number) for number in range(6)]
    soon = {image: (0, "aa" * 16) for image, _ in pictures}
    with viewcache.open(config(tmp_path, images, **LONG)) as cache:
        keep(Packs(cache.catalog, lambda _: None), 0, pictures, [*soon], soon)
        named = "select count(distinct pack) from packs"
        assert sql(cache, named) == [(len(packs) + 1,)]
    with viewcache.open(config(tmp_path, images, **LONG)) as cache:
        assert sql(cache, named) == [(len(packs),)]
        assert lying(cache) == packs
        assert same(read(cache), truth)


def work_of(*packs: Pack, sources: set[str], failed: dict[str, Hashable] | None = None) -> PackWork:
    """Packs of a generation in which each image is needed in so many seconds as its number says."""

    class Named(set[str]):
        def of(self, videos: Sequence[str]) -> list[VideoSource]:
            return [VideoSource("", "", "", b"", 1) for _ in videos]

    needs = [lambda images: min(float(int(str(image), 16)) for image in images)]
    return PackWork(GenerationContext(0, Named(sources), needs, 0, {}, failed=failed), packs)


def test_what_cannot_be_made_again_is_of_use_while_it_lies_there() -> None:
    """A pack of which an image is not wanted, or that an earlier run made, has a time of need and no job."""
    (one_image, first), (other_image, second) = one(7), one(8)
    recipe = pack_recipe([first, second])
    images = one_image, other_image
    formed = Pack(1, recipe.key, recipe.bound, images, (first, second), recipe, "bb" * 16)
    found = Pack(2, "cc" * 16, 1000, images)
    for pack, sources, is_open in ((formed, {*images}, True), (formed, {one_image}, False), (found, {*images}, False)):
        work = work_of(pack, sources=sources)
        work.mark_missing(pack.key)
        assert (work.next_planned() == 0) is is_open
        assert bool(work.worth_making(pack.block)) is is_open
        assert work.next_due_in_s(pack.key) == 7.0


def test_a_pack_that_leaves_while_an_image_of_it_is_not_wanted(
    tmp_path: Path, images: Path, truth: list[NDArray[np.uint8]]
) -> None:
    """Packs are taken away again and again while they are read, in the last epoch of a generation too."""
    with viewcache.open(config(tmp_path, images, **LONG)) as cache:
        found = []
        for epoch in range(LONG["epochs"]):
            for iteration in range(cache.task("train").iterations(epoch)):
                found.append(cache.read("train", epoch, iteration).video[:, 0].copy())
                if iteration in (0, 3, 5):
                    cache.owner.look_ahead.wait_idle()
                    for pack, _ in lying(cache)[:2]:
                        for shard in (tmp_path / "objects").rglob(f"{pack}/c.0"):
                            shard.unlink()
        assert same(found, truth)


def test_a_task_of_videos_beside_it_changes_nothing(tmp_path: Path) -> None:
    """Packs that lie there are used, and none of their pictures is kept anew, when a task of videos joins."""
    folder = save_folder(tmp_path / "in", {f"{k:02}.jpg": (64, 48) for k in range(COUNT)})
    encode_folder(folder, {"v.mp4": 40, "w.mp4": 41})
    own = config(tmp_path / "store", folder, **LONG)
    video = {**of_videos(tmp_path / "store", folder, epochs=8)["dataset"], "tag": "clips"}  # type: ignore[dict-item]
    with viewcache.open(own) as cache:
        whole = read(cache)
        packs = lying(cache)
        assert packs
    with viewcache.open(own | {"dataset": [own["dataset"], video]}) as cache:
        cache.read("clips", 0, 0)
        idle(cache)
        assert same(read(cache), whole)
        assert lying(cache) == packs
        pictures = "select count(*) from objects o join images i using (key) where o.kind = 'aug'"
        assert sql(cache, pictures.replace("using (key)", "on i.image_id = o.video_id")) == [(0,)]
        assert packets(cache) <= COUNT + 200, "of the videos, and of the first blocks"


def test_what_attributes_may_say(tmp_path: Path, images: Path, truth: list[NDArray[np.uint8]]) -> None:
    """A pack that is not that of the pictures which it names is no pack of ours."""
    filled(tmp_path, images, truth)
    (path, *_) = (text.parent for text in (tmp_path / "objects").rglob("zarr.json") if '"pack"' in text.read_text())
    good = scan_object(tmp_path, f"objects/{path.parent.name}/{path.name}")
    parts: Any = good.meta.attributes["parts"]
    assert len(list(pack_parts(1, good))) == len(parts)
    other = {**parts[0], "key": "00" * 16}
    said: tuple[Any, ...] = (
        None,
        {},
        [],
        [1],
        parts[:-1],
        [other, *parts[1:]],
        [{**parts[0], "offset": 4096}, *parts[1:]],
        [{**parts[0], "shape": [1]}, *parts[1:]],
        [{**parts[0], "shape": []}, *parts[1:]],
        [{**parts[0], "video_key": "../x"}, *parts[1:]],
    )
    for wrong in said:
        bad = replace(good, meta=replace(good.meta, attributes={**good.meta.attributes, "parts": wrong}))
        with pytest.raises(ChunkDamaged):
            list(pack_parts(1, bad))


@pytest.fixture
def choices(monkeypatch: pytest.MonkeyPatch) -> list[Chosen]:
    """What was chosen for two kinds of clips, as it was decided."""
    found: list[Chosen] = []

    def recorded(*given: Any) -> Chosen | None:
        chosen = choose(*given)
        if chosen is not None and len(chosen.weighed.kinds) == 2:
            found.append(chosen)
        return chosen

    monkeypatch.setattr("viewcache.materializer.retention.keeper.choose", recorded)
    return found


def of_two_sizes(folder: Path, images: Path, budget: str) -> dict[str, Any]:
    """A task beside the usual one, ``small``, whose images are smaller."""
    opened = config(folder, images, cache={"budget": budget}, **LONG)
    small = [single({"resize": {"short_side": 12}}), single({"random_crop": {"shape": [8, 8]}}, of="a", into="b")]
    return opened | {"dataset": [opened["dataset"], opened["dataset"] | {"tag": "small", "augmentation": small}]}


def test_what_is_kept_for_tasks_of_other_sizes_is_counted(tmp_path: Path, images: Path, choices: list[Chosen]) -> None:
    """A way keeps all pictures of an image, of whatever size, and the bytes of all of them are counted."""
    with viewcache.open(of_two_sizes(tmp_path, images, "150kB")) as cache:
        for epoch in range(3):
            for iteration in range(cache.task("train").iterations(epoch)):
                for task in ("train", "small"):
                    cache.read(task, epoch, iteration)
            idle(cache)
        lasting = choices[-1].weighed.lasting
        assert lasting is not None
        known = cache.owner.keeper.lying.find(1, lasting)
        sizes = {copy.key: copy.bytes for copy in cache.owner.ledger.copies().values()}
        parts = cache.catalog.pack_parts(cache.catalog.query("read_packs")["object_id"].to_pylist()).to_pylist()
        pictures_of = Counter(part["pack"] for part in parts)
        there: dict[str, list[float]] = {}
        for part in parts:
            there.setdefault(part["key"], []).append(sizes[part["pack"]] / pictures_of[part["pack"]])
        least, most = (sum(map(of, there.values())) for of in (min, max))  # one may lie in two packs
        assert all(len({each.way for each in mine}) == len(mine) for mine in known.values())
        of_both = [each for mine in known.values() for each in mine if each.way.kept == 0 and not each.is_coming]
        counted = sum(each.bytes * each.share for each in of_both)
        assert least - 1 <= counted <= most + len(parts), "bytes of a picture are rounded up"


def test_pictures_of_one_size_are_no_pictures_of_another(
    tmp_path: Path, images: Path, choices: list[Chosen], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where those of one task lie there, those of a task that joins are to be made, and are weighed as that."""
    opened = of_two_sizes(tmp_path, images, "50MB")
    with viewcache.open(opened | {"dataset": opened["dataset"][1]}) as cache:
        for _ in cache.materialize(2):
            pass
        assert len(sql(cache, "select distinct image from packs where state = 'ready'")) == COUNT
    give_jobs = Dispatcher.give_jobs
    monkeypatch.setattr(Dispatcher, "give_jobs", lambda self: bool(choices) and give_jobs(self))
    with viewcache.open(opened) as cache:
        for _ in cache.materialize():
            pass
    lying_first = choices[0].weighed.lying
    assert len(lying_first) == COUNT
    for mine in lying_first.values():
        (of_both,) = [each for each in mine if each.way.kept == 0]
        assert not of_both.made
        assert of_both.share == pytest.approx((12 / 36) ** 2 / (1 + (12 / 36) ** 2), rel=0.1)
