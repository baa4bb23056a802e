"""Each object gets its own codec where bytes cost something (docs/design/0060), and no batch differs for it (law 3)."""

import math
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import viewcache
from tests.clips import encode
from tests.faults.caches import config, read_all
from tests.images.small import config as of_images
from tests.images.small import save
from tests.tiny import make_decoding_dear, sql
from viewcache.api.session.cache import Cache
from viewcache.catalog import Catalog
from viewcache.catalog.kinds import ObjectKind
from viewcache.catalog.records import IoSampleRow
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.devices import FREE, Devices, host_of, record_devices
from viewcache.materializer.planning.ladder import trial_rows
from viewcache.materializer.planning.prices import Prices
from viewcache.materializer.planning.program import Program
from viewcache.materializer.planning.recipe import Recipe
from viewcache.materializer.retention.keeper import Keeper
from viewcache.materializer.storage.codecs import CodecChooser, Rates, cheapest_codec, costs_of
from viewcache.materializer.storage.ratios import AT_FIRST, ENOUGH, LEAST_RATIO, Ratios
from viewcache.store import CODECS, ArrayMeta, LocalTier, Stored, copy_object
from viewcache.store.codec_trial import SHARE, Trial, sample_bytes
from viewcache.store.format import ChunkTable

SIZE, FRAMES, EPOCHS = 160, 24, 4
MIB = 1 << 20

LEARNT = trial_rows(
    [
        Trial("lz4", MIB, 16 * MIB, 8 * MIB, 16 * MIB * 0.4e-9, 16 * MIB * 0.2e-9),
        Trial("zstd1", MIB, 16 * MIB, 8 * MIB, 16 * MIB * 2.5e-9, 16 * MIB * 0.75e-9),
    ]
)
"""How fast codecs are, as measured on the machine of docs/benchmarks.md; that they halve what they are given is not."""

SHORT = Prices(byte_s=5e-9)
"""Bytes are so dear that whatever packs well is packed."""


def noise(seed: int) -> np.ndarray:
    """A picture that nothing packs."""
    return np.random.default_rng(seed).integers(0, 256, (SIZE, SIZE, 3), np.uint8)


def cartoon(seed: int) -> np.ndarray:
    """A flat picture: a rectangle that moves over a plain."""
    picture = np.full((SIZE, SIZE, 3), 200, np.uint8)
    picture[40:90, seed % 100 : seed % 100 + 50] = 30, 90, 160
    return picture


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One video of noise, and one of a flat cartoon."""
    folder = tmp_path_factory.mktemp("videos")
    for name, paint in (("noise", noise), ("cartoon", cartoon)):
        encode(folder / f"{name}.mp4", frames=FRAMES, size=(SIZE, SIZE), source=[paint(k) for k in range(FRAMES)])
    return folder


def settings(store: Path, videos: Path, budget: int, **more: Any) -> dict[str, Any]:
    """Clips of 8 frames of 128x128, so 393 kB each, of which each epoch has 16."""
    sampling: dict[str, Any] = {
        "epochs_per_generation": EPOCHS,
        "frames_per_video": 8,
        "frame_stride": 1,
        "samples_per_video": 8,
    }
    found = config(store, videos, budget=budget, **{"epochs": EPOCHS, **sampling, **more})
    found["dataset"]["augmentation"][0]["config"] = [{"random_crop": {"shape": [128, 128]}}]
    return found


def learnt(store: Path, read_bytes_per_s: float = 0.0) -> None:
    """Leave a catalog that knows how fast codecs are, and what the disk gives if that is said."""
    with Catalog.open(store) as catalog:
        catalog.add_io_samples(LEARNT)
        if read_bytes_per_s:
            rows = [IoSampleRow("read", 20, "", "local", 100, 1e8 / read_bytes_per_s, 10**8)]
            record_devices(catalog, rows, host_of(store), 1.0)


def sampled(cache: Cache) -> int:
    """How many samples were packed to choose a codec."""
    return cache.owner.dispatcher_now().tally.frames["sampled"]


def codecs(cache: Cache, video: str) -> Counter[str]:
    """How the objects of a video are written that lie in the store."""
    rows = sql(cache, f"select codec from objects where state = 'ready' and video = '{video}'")
    return Counter(str(codec) for (codec,) in rows)


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory, videos: Path) -> dict[tuple[int, int], str]:
    """What is read where all objects are raw."""
    with viewcache.open(settings(tmp_path_factory.mktemp("raw"), videos, 10**9, codec="raw")) as cache:
        return dict(read_all(cache, EPOCHS))


@pytest.mark.parametrize("keep", ["leaves", "cheapest"])
def test_noise_is_raw_and_a_cartoon_is_packed(
    tmp_path: Path, videos: Path, truth: Any, monkeypatch: pytest.MonkeyPatch, keep: str
) -> None:
    """Where bytes are dear, in one run, of clips and of kept pictures."""
    monkeypatch.setattr(Keeper, "prices", lambda _: SHORT)
    learnt(tmp_path)
    with viewcache.open(settings(tmp_path, videos, 14_000_000, codec="auto", keep=keep)) as cache:
        assert dict(read_all(cache, EPOCHS)) == truth
        assert set(codecs(cache, "noise")) == {"raw"}
        assert not {"raw"} & set(codecs(cache, "cartoon"))
        assert sampled(cache) > 0


def test_samples_take_a_fiftieth_of_the_time_to_store(
    tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both by the clocks of the CPU, of all objects of a run.

    What tries all codecs, in one job of many, says how fast these are, and belongs to no object.
    """
    monkeypatch.setattr(Keeper, "prices", lambda _: SHORT)
    learnt(tmp_path)
    with viewcache.open(settings(tmp_path, videos, 10**9, codec="auto", epochs=12)) as cache:
        dict(read_all(cache, 12))
        cache.catalog.flush()
        store_s = sum(row.cpu_s for row in cache.catalog.load_io_samples() if row.op == "store")
        assert sampled(cache) > 0
        assert cache.owner.dispatcher_now().tally.frames["sampled_us"] < 0.02 * 1e6 * store_s


def written(cache: Cache) -> set[str]:
    """The codecs of all objects that were made."""
    cache.catalog.flush()
    return {row.codec for row in cache.catalog.load_io_samples() if row.op == "store"}


def decoding_takes(monkeypatch: pytest.MonkeyPatch, pixel_s: float, devices: Devices = FREE) -> None:
    """Of small videos what to keep would be decided by noise."""
    cost = CostModel(decode_s_per_pixel=pixel_s, convert_s_per_pixel=pixel_s / 10, devices=devices)
    monkeypatch.setattr(CostModel, "measured", classmethod(lambda *_: cost))


def test_a_budget_that_is_short_makes_bytes_dear(
    tmp_path: Path, videos: Path, truth: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is, without a price that a test has set: what is packed is of the cartoon."""
    decoding_takes(monkeypatch, 5e-8)
    learnt(tmp_path)
    tight = settings(tmp_path, videos, 14_000_000, codec="auto", keep="leaves")
    with viewcache.open(tight) as cache:
        for place, digest in read_all(cache, EPOCHS):
            assert digest == truth[place]
        assert written(cache) - {"raw"}
        assert set(codecs(cache, "noise")) <= {"raw"}


def test_a_disk_that_is_waited_for_makes_bytes_dear(
    tmp_path: Path, videos: Path, truth: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though there is room for all: what is read of a slow disk is packed where that makes it less."""
    decoding_takes(monkeypatch, 1e-8, Devices({"local": 1.2e8}))
    learnt(tmp_path)
    with viewcache.open(settings(tmp_path, videos, 10**9, codec="auto")) as cache:
        for place, digest in read_all(cache, EPOCHS):
            assert digest == truth[place]
        assert written(cache) - {"raw"}
        assert set(codecs(cache, "noise")) <= {"raw"}


@pytest.mark.parametrize("bytes_per_s", [0.0, 1e11])
def test_where_bytes_cost_nothing_nothing_is_sampled(
    tmp_path: Path, videos: Path, truth: Any, bytes_per_s: float
) -> None:
    """There is room for all, and the disk was not measured, or nobody waits for it: zero samples, all is raw."""
    learnt(tmp_path, bytes_per_s)
    with viewcache.open(settings(tmp_path, videos, 10**9, codec="auto")) as cache:
        assert dict(read_all(cache, EPOCHS)) == truth
        assert sampled(cache) == 0
        assert {*codecs(cache, "noise"), *codecs(cache, "cartoon")} == {"raw"}


@pytest.mark.parametrize(("content", "packed"), [("noise", False), ("cartoon", True)])
def test_a_pack_gets_its_own_codec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, packed: bool) -> None:
    """Kept pictures of images lie in packs that are raw or not by what they show, and are found again."""
    monkeypatch.setattr(Keeper, "prices", lambda _: SHORT)
    make_decoding_dear(monkeypatch)
    paint = {"noise": noise, "cartoon": cartoon}[content]
    for number in range(8):
        save(tmp_path / "images" / f"{number}.png", paint(number))
    long: dict[str, Any] = {"epochs": 6, "sampling": {"images_per_batch": 4}}
    (tmp_path / "store").mkdir()
    learnt(tmp_path / "store")
    asked = of_images(tmp_path / "store", tmp_path / "images", **long)
    raw = of_images(tmp_path / "raw", tmp_path / "images", cache={"budget": "100kB"}, **long)
    with viewcache.open(raw) as cache:
        every = {place: cache.read("train", *place).video.copy() for place in places(cache)}
    for run in range(2):
        with viewcache.open(asked) as cache:
            for place in places(cache):
                assert np.array_equal(cache.read("train", *place).video, every[place])
                cache.owner.look_ahead.wait_idle()
                assert cache.owner.dispatcher_now().wait_idle(60)
            packs = sql(cache, "select codec from objects where kind = 'pack' and state = 'ready'")
            found = {codec for (codec,) in packs}
            assert found
            assert ("raw" not in found) if packed else (found == {"raw"})
            if run:
                assert cache.owner.dispatcher_now().tally.frames["decoded"] == 0


def places(cache: Cache) -> list[tuple[int, int]]:
    """All batches, in order."""
    task = cache.task("train")
    return [(epoch, k) for epoch in range(task.epochs) for k in range(task.iterations(epoch))]


# The chooser -------------------------------------------------------------------------------------------------------


def chooser(prices: Prices = SHORT, rows: list[IoSampleRow] = LEARNT, **fixed: str) -> CodecChooser:
    """Of a cache in which codecs were tried."""
    return CodecChooser({"local": "auto", "remote": "auto", "memory": "auto"} | fixed, lambda: rows, lambda: prices)


def clip(size: int = MIB, kind: ObjectKind = ObjectKind.CLIP, **more: Any) -> Recipe:
    """A new object of so many bytes, of no steps."""
    nothing = np.zeros(0, np.int32)
    return Recipe("ab" * 16, Program(()), nothing, nothing, (1, size), 0, 2 * size, kind, **more)


def test_without_a_price_no_table_is_made() -> None:
    """The codec is the one that is chosen for all alike."""
    made = chooser(Prices()).for_recipe(clip(), "v")
    assert (made.codec, made.codecs) == ("raw", None)


@pytest.mark.parametrize("kind", [ObjectKind.AUDIO, ObjectKind.SOURCE])
def test_sound_and_files_are_not_asked(kind: ObjectKind) -> None:
    """They hardly get smaller."""
    assert chooser().for_recipe(clip(kind=kind, codec_is_chosen=True), "v").codecs is None


def test_groups_and_what_is_configured_stay_as_they_are() -> None:
    """Neither is chosen by the object."""
    made = chooser().for_recipe(clip(kind=ObjectKind.AUG, codec="delta-lz4", codec_is_chosen=True), "v")
    assert (made.codec, made.codecs) == ("delta-lz4", None)
    made = chooser(local="zstd1").for_recipe(clip(), "v")
    assert (made.codec, made.codecs) == ("zstd1", None)


def test_what_was_decided_takes_no_more_bytes() -> None:
    """Pictures that were reckoned with as lz4 may get raw only if that is no more."""
    made = chooser().for_recipe(clip(kind=ObjectKind.AUG, codec="lz4", codec_is_chosen=True), "v")
    assert made.codecs is not None
    assert made.codecs.cheapest({"lz4": 1.0, "zstd1": 1.0}) == "raw"
    assert made.codecs.cheapest({"lz4": 0.5, "zstd1": 0.9}) == "lz4"


def test_a_video_that_was_seen_is_not_sampled_for_ever() -> None:
    """Once little is left for samples, its objects take the ratio of the others, and another video has its own."""
    choose, size = chooser(), 2 * MIB
    tables = 0
    while (made := choose.for_recipe(clip(size), "v")).codecs is not None:
        choose.note("v", [Trial("lz4", size, 100, 5, 0.0, None), Trial("zstd1", size, 100, 4, 0.0, None)])
        tables += 1
    assert 0 < tables < AT_FIRST // sample_bytes(size)
    assert made.codec == "lz4"
    assert choose.for_recipe(clip(size), "w").codecs is not None


def test_one_job_does_not_use_up_what_there_is_for_samples() -> None:
    """Many objects of a video that are described before the first is made share its sample."""
    choose = chooser()
    tables = [choose.for_recipe(clip(1 << 17), "v").codecs for _ in range(100)]
    assert all(tables)
    assert 0 < sum(table.is_own for table in tables if table is not None) < AT_FIRST // sample_bytes(1 << 17) / 2
    other = choose.for_recipe(clip(1 << 17), "w").codecs
    assert other is not None
    assert other.is_own


def test_an_object_that_nobody_looks_at_is_like_the_others() -> None:
    """Where no sample may be taken the mean of all decides, as it did for all objects before."""
    choose = chooser(Prices(byte_s=1e-8))
    videos = iter(range(1 << 20))
    while (made := choose.for_recipe(clip(), str(next(videos)))).codecs is not None:
        pass
    assert made.codec == choose.pick("local", MIB, 1.0) == "lz4"


SECONDS = st.floats(1e-10, 1e-7)


@given(
    st.fixed_dictionaries({name: st.builds(Rates, SECONDS, SECONDS, st.floats(0.01, 1.0)) for name in CODECS}),
    st.floats(0.1, 10),
    st.floats(0, 1e-6),
)
def test_at_its_mean_ratio_a_codec_costs_what_it_did(known: dict[str, Rates], uses: float, byte_s: float) -> None:
    """The costs by ratio are those that all objects alike are weighed by, told apart by what they depend on."""
    known["raw"] = Rates(0.0, known["raw"].load_s, 1.0)
    raw_s = known["raw"].load_s
    known = {name: replace(each, load_s=each.load_s + raw_s * each.packed) for name, each in known.items()}
    known["raw"] = Rates(0.0, raw_s, 1.0)
    costs = costs_of(known, uses=uses, byte_s=byte_s)
    for name, each in known.items():
        before = each.pack_s + uses * each.load_s + byte_s * each.packed
        assert math.isclose(costs[name].at(each.packed), before, rel_tol=1e-9)
    cheapest = cheapest_codec(known, uses=uses, byte_s=byte_s)
    least = min(costs[name].at(known[name].packed) for name in known)
    assert math.isclose(costs[cheapest].at(known[cheapest].packed), least, rel_tol=1e-9)


def test_speeds_are_known_of_other_sizes_ratios_are_not() -> None:
    """Pictures are packed as fast as clips; how small they get is looked for."""
    made = chooser(Prices(byte_s=1e-8)).for_recipe(clip(1 << 15, ObjectKind.AUG), "v")
    assert made.codecs is not None
    assert set(made.codecs.unknown()) == {"lz4", "zstd1"}


# How well objects pack ---------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 64 * MIB), st.booleans()), max_size=60))
def test_samples_are_a_small_part_of_what_is_stored(objects: list[tuple[int, bool]]) -> None:
    """One byte in so many, and some at first; whichever objects come."""
    ratios, stored, taken = Ratios(), 0, 0
    for size, seen in objects:
        ratios.stores(size)
        stored += size
        taken += sample_bytes(size) if ratios.may_sample(size, seen=seen) else 0
        assert taken <= AT_FIRST + stored / SHARE


def test_the_smallest_ratio_is_believed_once_enough_were_seen() -> None:
    """Before, a codec might do better than it has; and what packs best is never forgotten."""
    ratios = Ratios()
    for number in range(ENOUGH):
        assert ratios.least("lz4", 20) == LEAST_RATIO
        ratios.note(f"v{number}", [Trial("lz4", MIB, 100, 90 + number % 2, 0.0, None)])
    assert ratios.least("lz4", 20) == 0.9
    assert ratios.least("lz4", 19) == LEAST_RATIO
    ratios.note("w", [Trial("lz4", MIB, 100, 3, 0.0, 0.0)])
    assert ratios.least("lz4", 20) == 0.03


# Copies ------------------------------------------------------------------------------------------------------------


def stored(tier: LocalTier, key: str, array: np.ndarray) -> Stored:
    """An object that lies in a tier, raw."""
    written = tier.write(key, array, ArrayMeta(array.shape, (1, *array.shape[1:]), "raw", {"kind": "aug"}))
    table = ChunkTable.from_bytes(written.table)
    return Stored(written.physical, written.shape, written.chunk_rows, written.codec, table)


def test_a_copy_in_the_bucket_is_packed_by_what_it_shows(tmp_path: Path) -> None:
    """Each with the same pixels; what was packed to choose is recorded."""
    told: list[IoSampleRow] = []
    prices = Prices(byte_s=1e-8)
    choose = CodecChooser({"remote": "auto"}, lambda: LEARNT, lambda: prices, told.extend)
    pictures = {"raw": np.stack([noise(k) for k in range(4)]), "lz4": np.stack([cartoon(k) for k in range(4)])}
    with closing(LocalTier(tmp_path / "one", 10**8)) as source, closing(LocalTier(tmp_path / "other", 10**8)) as target:
        for number, (expected, array) in enumerate(pictures.items()):
            key = f"{number:032x}"
            there = stored(source, key, array)
            codec, by_sample = choose.for_copy("remote", there)
            assert by_sample is not None
            written = copy_object(source, there, target, codec, key, choose=by_sample)
            assert written.codec == expected
            table = ChunkTable.from_bytes(written.table)
            out = np.empty_like(array)
            target.read(Stored(written.physical, written.shape, written.chunk_rows, written.codec, table), out)
            assert np.array_equal(out, array)
    assert {(row.op, row.codec) for row in told} == {
        (op, name) for op in ("pack", "packed") for name in ("lz4", "zstd1")
    }
