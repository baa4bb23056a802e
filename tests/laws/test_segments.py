"""Segments keep the laws: a label table's rows are items, each drawn exactly once an epoch (docs/design/0042)."""

import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

import viewcache
from tests import forked
from tests.clips import encode, encode_family, real_clips
from tests.laws.test_randomness import assert_even
from tests.laws.test_same_bytes import converted
from tests.plan.plans import all_even, task_of, videos_of
from tests.streaming.arriving import LONG_AGO_S, aged, streaming
from tests.tiny import AUGMENTATION, config, encode_folder, open_cache, pixels, same, single, sql
from viewcache.api.queries.ask import ask
from viewcache.api.session.cache import Cache
from viewcache.catalog.files import CatalogFiles
from viewcache.errors import BadInput, BadVideo
from viewcache.failpoints import VARIABLE
from viewcache.materializer.dataset.segments import Items
from viewcache.materializer.planning.plan_generation import plan_generation
from viewcache.materializer.randomness import address_word
from viewcache.materializer.reading.batch import Batch
from viewcache.materializer.spec import TaskSpec

Row = tuple[str, float | str, float | str, str]
"""Video, where the segment begins and ends, label; empty where it is open."""

ROWS: list[Row] = [
    ("v0", 0, 1, "run"),
    ("v0", 0.9, 2.5, "jump"),
    ("v0", 3, "", "sit"),
    ("v1", "", 1.5, "run"),
    ("v1", 0.2, 0.8, "jump"),
    ("v2", "", "", "sit"),
    ("v2", 1, 3, "run"),
]
"""Eight items of four videos: v3 has no row, so it is one as a whole."""


def table(path: Path, rows: Sequence[Row]) -> str:
    """A CSV with these rows."""
    path.write_text("video,start_s,end_s,label\n" + "".join(f"{','.join(map(str, row))}\n" for row in rows))
    return str(path)


def opened(folder: Path, videos: Path, rows: Sequence[Row] = ROWS, **more: Any) -> Cache:
    """A cache in a folder of a task whose table has these rows."""
    return open_cache(folder / "s", videos, labels=table(folder / "labels.csv", rows), **more)


def items_of(batches: Mapping[tuple[int, int], Batch]) -> dict[int, list[tuple[str, float, float]]]:
    """Epoch → video, start and end of each clip, in order."""
    found: dict[int, list[tuple[str, float, float]]] = {}
    for (epoch, _), batch in sorted(batches.items()):
        items = zip(batch.videos, batch.start_s.tolist(), batch.end_s.tolist(), strict=True)
        found.setdefault(epoch, []).extend(items)
    return found


@pytest.fixture(scope="module")
def hundred(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four videos of 100 frames, 25 a second."""
    return encode_folder(tmp_path_factory.mktemp("segments"), {f"v{k}.mp4": 100 for k in range(4)})


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Videos whose times are in a table, in packets alone, uneven, and on a clock that does not begin at 0."""
    folder = tmp_path_factory.mktemp("uneven")
    encode(folder / "even.mp4", frames=70)
    for name in ("h264_vfr.mkv", "hevc_open_gop.mp4", "vp9_hidden.webm"):
        encode_family(folder, name)
    return folder


# Exactly once --------------------------------------------------------------------------------------------------------


def test_each_item_once_an_epoch(tmp_path: Path, hundred: Path) -> None:
    """Law 1: every item comes with all its samples, under its own label, from its own frames."""
    with opened(tmp_path, hundred) as cache:
        found = {(epoch, k): cache.read("train", epoch, k) for epoch in range(3) for k in range(4)}
        classes = cache.task("train").classes
        rows = sql(cache, "select epoch, video, start_s, end_s from draws order by epoch, position")
    wanted = Counter(
        (name, float(start or 0), float(end or np.inf)) for name, start, end, _ in [*ROWS, ("v3", "", "", "")]
    )
    labels = {(name, float(start or 0), float(end or np.inf)): label for name, start, end, label in ROWS}
    for items in items_of(found).values():
        assert Counter(items) == {item: 2 * count for item, count in wanted.items()}
    drawn = [(epoch, *item) for epoch, items in items_of(found).items() for item in items[::2]]
    assert drawn == [(epoch, name, start or 0, end or np.inf) for epoch, name, start, end in rows]
    for batch in found.values():
        mine = list(zip(batch.videos, batch.start_s.tolist(), batch.end_s.tolist(), strict=True))
        said = [classes[label] if label >= 0 else None for label in batch.label.tolist()]
        assert said == [labels.get(item) for item in mine]
        assert (batch.time_s >= batch.start_s[:, None]).all()
        assert (batch.time_s < batch.end_s[:, None]).all()
        assert ((batch.item == batch.index) == ((batch.start_s == 0) & (batch.end_s == np.inf))).all()


@pytest.mark.parametrize("sampling", [{"frame_stride": 1, "frames_per_video": 3}, {"fps": 8, "frames_per_video": 3}])
def test_frames_are_those_shown_in_the_segment(tmp_path: Path, uneven: Path, sampling: dict[str, object]) -> None:
    """A frame is of a segment if its presentation time is at least its start and below its end, in any container."""
    names = ["even", "h264_vfr", "hevc_open_gop", "vp9_hidden"]
    rows: list[Row] = [(name, start, end, "x") for name in names for start, end in ((0.2, 1.0), (0.5, ""), (0.0, 0.7))]
    given = config(tmp_path / "s", uneven, labels=table(tmp_path / "l.csv", rows), on_short_video="loop")
    given["dataset"]["sampling"] = {"videos_per_batch": 2, "samples_per_video": 2, **sampling}  # type: ignore[index]
    with viewcache.open(given) as cache:
        read = pixels(cache)
        dataset = cache.task("train").task.dataset
        items = dataset.items_of(dataset.base.tolist())
        for at in range(len(items)):
            index = dataset.files.exact_index(dataset.files.row_of[int(items.videos.ids[items.video[at]])])
            assert index is not None, "it was decoded"
            times = index.times_s(np.arange(index.frames))
            mine = np.flatnonzero((times >= items.start_s[at]) & (times < items.end_s[at]))
            assert mine.tolist() == list(range(items.begin[at], items.begin[at] + items.frames[at]))
            assert len(mine) > 1
    for batch in read.values():
        assert (batch.time_s >= batch.start_s[:, None]).all()
        assert (batch.time_s < batch.end_s[:, None]).all()


def test_equal_rows_are_items_of_their_own(tmp_path: Path, hundred: Path) -> None:
    """A row that stands twice is drawn twice, with its own label and its own random numbers; also of a whole video."""
    rows: list[Row] = [("v0", 0, 3, "one"), ("v0", 0, 3, "two"), ("v1", "", "", "one"), ("v1", "", "", "two")]
    with opened(tmp_path, hundred, rows) as cache:
        read = pixels(cache)
    for epoch in range(3):
        mine = [batch for place, batch in read.items() if place[0] == epoch]
        labels = Counter(
            zip((n for b in mine for n in b.videos), (v for b in mine for v in b.label.tolist()), strict=True)
        )
        assert labels == {**{(v, n): 2 for v in ("v0", "v1") for n in (0, 1)}, ("v2", -1): 2, ("v3", -1): 2}
    starts: dict[int, list[int]] = {0: [], 1: []}
    for _, batch in sorted(read.items()):
        for name, label, frames in zip(batch.videos, batch.label.tolist(), batch.frame.tolist(), strict=True):
            if name == "v0":
                starts[label].append(frames[0])
    assert starts[0] != starts[1]


# Random and fixed clips ----------------------------------------------------------------------------------------------


def segments_of(count: int, *, begin: int, frames: int, by_time: bool) -> Items:
    """As many videos with a segment each, at ``begin``, of frames that are 1,000 ticks apart."""
    items = Items.whole(videos_of(count, frames=begin + frames + 20), by_time=by_time)
    whole = np.full(count, begin)
    return Items(
        videos=items.videos,
        ids=items.ids + count,
        video=items.video,
        words=np.array([address_word(f"segment {k}") for k in range(count)], np.uint64),
        first=whole * 1000 if by_time else whole,
        length=np.full(count, (frames - 1) * 1000 + 1 if by_time else frames),
        begin=whole,
        frames=np.full(count, frames),
        start_s=np.full(count, 1.0),
        end_s=np.full(count, 2.0),
    )


@pytest.mark.parametrize("coordination", ["shared", "independent"])
@pytest.mark.parametrize("by_time", [False, True])
def test_clips_start_anywhere_in_a_segment_alike(coordination: str, by_time: bool) -> None:
    """Law 2: for one epoch and sample every start within the segment is as likely, at both ends too."""
    spec, graph = task_of(coordination=coordination, frames=4, stride=3, batch=64)
    if by_time:
        spec = timed(spec)
    items = segments_of(4000, begin=31, frames=47, by_time=by_time)
    starts = []
    for number in range(3):
        draws = np.broadcast_to(np.arange(len(items)), (2, len(items)))
        plan = plan_generation(
            spec, graph, items, draws, seed=0, number=number, first_epoch=2 * number, grid=spec.sampling.pitch,
            ticks_of=all_even,
        )  # fmt: skip
        starts.append(plan.start[(plan.epoch == 2 * number + 1) & (plan.sample == 1)])
        frames = plan.frames(np.arange(len(plan)))
        assert frames.min() == 31
        assert frames.max() == 31 + 46
    chosen = np.concatenate(starts) - items.first[0]
    last = int(items.length[0]) - spec.sampling.span
    counts = np.histogram(chosen, bins=last + 1 if not by_time else 20, range=(0, last + 1))[0]
    assert chosen.min() >= 0
    assert_even(counts)


def timed(spec: TaskSpec) -> TaskSpec:
    """The same task with four frames a tenth of a second apart."""
    return replace(spec, sampling=replace(spec.sampling, fps=10.0))


def test_fixed_clips_of_a_segment(tmp_path: Path, hundred: Path) -> None:
    """Center and uniform clips are those of the segment: its middle; from its first frame to its last."""
    rows: list[Row] = [("v0", 1, 3, "x"), ("v1", 0, 2, "x")]  # frames 25 to 74, and 0 to 49
    fixed = {"frames_per_video": 4, "frame_stride": 2, "samples_per_video": 3, "clips": "uniform"}
    with opened(tmp_path, hundred, rows, shuffle=False, sampling=fixed) as cache:
        batch = cache.read("train", 0, 0)
        assert batch.frame[:, 0].tolist() == [25, 25 + 43 // 2, 74 - 6, 0, 43 // 2, 49 - 6]
    middle = fixed | {"samples_per_video": 1, "clips": "center"}
    with opened(tmp_path, hundred, rows, shuffle=False, sampling=middle, tag="center") as cache:
        assert cache.read("center", 0, 0).frame[:, 0].tolist() == [25 + 43 // 2, 43 // 2]


# Short, empty, bad ---------------------------------------------------------------------------------------------------


def test_short_segments(tmp_path: Path, hundred: Path) -> None:
    """What is shorter than a clip repeats its own last frame, starts again at its own first one, or is left out."""
    rows: list[Row] = [("v0", 1, 1.12, "x"), ("v1", 0, 2, "x")]  # frames 25, 26, 27; and 0 to 49
    for policy, wanted in (("clamp", [25, 27, 27, 27]), ("loop", [25, 27, 26, 25])):
        with opened(tmp_path, hundred, rows, tag=policy, on_short_video=policy, shuffle=False) as cache:
            assert cache.read(policy, 0, 0).frame[0].tolist() == wanted
            used = f"select distinct video, policy, item_id <> video_id from substitutions where task = '{policy}'"
            assert sql(cache, used) == [("v0", policy, True)]
    with opened(tmp_path, hundred, rows, tag="skip", on_short_video="skip") as cache:
        names = [name for items in items_of(pixels(cache, "skip")).values() for name, *_ in items]
        assert set(names) == {"v1", "v2", "v3"}
    by_time = {"fps": 5, "frames_per_video": 4, "frame_stride": None}
    given = config(tmp_path / "t", hundred, labels=str(tmp_path / "labels.csv"), on_short_video="loop", shuffle=False)
    sampling = {"videos_per_batch": 2, "samples_per_video": 1} | by_time
    given["dataset"]["sampling"] = {k: v for k, v in sampling.items() if v is not None}  # type: ignore[index]
    with viewcache.open(given) as cache:
        assert set(cache.read("train", 0, 0).frame[0].tolist()) <= {25, 26, 27}


def test_a_segment_beyond_its_video(tmp_path: Path, hundred: Path) -> None:
    """One that begins behind the last frame is a bad item, by policy; one that ends there is cut to what is there."""
    rows: list[Row] = [("v0", 7, 9, "x"), ("v0", 3, 99, "x"), ("v1", -5, 1, "x")]
    with (
        pytest.raises(BadVideo, match=r"v0\.mp4 has no frame in its segment from 7 s to 9 s: .* from 0 s to 3\.96 s"),
        opened(tmp_path, hundred, rows) as cache,
    ):
        cache.read("train", 0, 0)
    with opened(tmp_path, hundred, rows, tag="cut", on_bad_video="skip") as cache:
        read = pixels(cache, "cut")
    items = {item for each in items_of(read).values() for item in each}
    assert items == {("v0", 3, 99), ("v1", -5, 1), ("v2", 0, np.inf), ("v3", 0, np.inf)}
    with opened(tmp_path, hundred, rows, tag="stand", on_bad_video="replace") as cache:
        read = pixels(cache, "stand")
        assert ("v0", 7, 9) not in {item for each in items_of(read).values() for item in each}
        assert sql(cache, "select count(*) from draws where start_s = 7 and task = 'stand'") == [(3,)]
        assert {len(each) for each in items_of(read).values()} == {10}
    with opened(tmp_path, hundred, rows, tag="stand", on_bad_video="replace") as cache:
        assert same(pixels(cache, "stand"), read)


def test_items_of_a_video_that_cannot_be_decoded(tmp_path: Path, hundred: Path) -> None:
    """Another item stands in for each of them, alone, and a restart gives the same."""
    videos = Path(shutil.copytree(hundred, tmp_path / "v"))
    data = bytearray((videos / "v1.mp4").read_bytes())
    at = data.index(b"mdat") + 4
    end = at - 8 + int.from_bytes(data[at - 8 : at - 4], "big")
    data[at:end] = bytes(range(256)) * ((end - at) // 256 + 1)
    (videos / "v1.mp4").write_bytes(bytes(data[: len(data)]))
    with opened(tmp_path, videos, on_bad_video="replace") as cache:
        read = pixels(cache)
        assert "v1" not in {name for batch in read.values() for name in batch.videos}
        assert {len(each) for each in items_of(read).values()} == {16}
        used = sql(cache, "select count(distinct item_id) from substitutions where video = 'v1' and policy = 'replace'")
        assert used == [(2,)]
    with opened(tmp_path, videos, on_bad_video="replace") as cache:
        assert same(pixels(cache), read)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("v0", 2, 1, "x")], r"the segment in line 2 begins at 2 s and ends at 1 s; it must end after it begins"),
        ([("v1", 0, 1, "x"), ("v0", 1, 1, "x")], r"the segment in line 3 begins at 1 s and ends at 1 s"),
        ([("v0", "nan", 1, "x")], r"start_s in line 2 is nan; it must be a number of seconds, or empty"),
        ([("v0", 0, "inf", "x")], r"end_s in line 2 is inf; it must be a number of seconds"),
        ([("v0", 0, "1:30", "x")], r"end_s in line 2 is '1:30'; it must be a number of seconds"),
        ([("w", 0, 1, "x")], r"none of its 1 rows names a file of the dataset"),
    ],
)
def test_tables_that_make_no_segments(tmp_path: Path, hundred: Path, rows: list[Row], message: str) -> None:
    """Refused when the cache is opened, with the row and its value."""
    with pytest.raises(BadInput, match=message):
        opened(tmp_path, hundred, rows).close()


# Same bytes, once drawn ----------------------------------------------------------------------------------------------


def test_same_bytes(tmp_path: Path, hundred: Path) -> None:
    """Law 3: with two workers, opened again, without its objects, and with the table in another order."""
    with opened(tmp_path, hundred) as cache:
        read = pixels(cache)
    shutil.rmtree(tmp_path / "s" / "objects")
    with opened(tmp_path, hundred, cache={"workers": 2}) as cache:
        assert same(pixels(cache), read)
    (tmp_path / "other").mkdir()
    with opened(tmp_path / "other", hundred, ROWS[::-1]) as cache:
        again = pixels(cache)
    assert same(again, read)
    assert all(again[place].keys == batch.keys for place, batch in read.items())


def test_an_edited_table_keeps_what_was_drawn(tmp_path: Path, hundred: Path) -> None:
    """Law 4: rows that come, go and move change no epoch that was drawn; the next generation draws what is there."""
    with opened(tmp_path, hundred, epochs=4) as cache:
        before = {(epoch, k): cache.read("train", epoch, k) for epoch in range(2) for k in range(4)}
        labels = {place: batch.label.tolist() for place, batch in before.items()}
    last = ask(str(tmp_path / "s"), "select max(epoch) from draws").rows[0][0]  # the look-ahead may have drawn more
    assert isinstance(last, int)
    rows: list[Row] = [("v3", 1, 2, "run"), *ROWS[:0:-1], ("v1", 2, 3, "run")]  # the first is gone, v3 has one now
    with opened(tmp_path, hundred, rows, epochs=8) as cache:
        after = pixels(cache)
        assert same({place: after[place] for place in before}, before)
        assert {place: after[place].label.tolist() for place in before} == labels
    found = items_of(after)
    for epoch, items in found.items():
        mine = set(items)
        assert len(items) == 2 * len(mine)
        assert (("v0", 0, 1) in mine) == (epoch <= last)
        assert (("v1", 2, 3) in mine) == (("v0", 0, 1) not in mine)
        assert (("v3", 0, np.inf) in mine) == (("v0", 0, 1) in mine)
    with opened(tmp_path, hundred, [("v2", 0, 1, "run")], epochs=8) as cache:
        assert same(pixels(cache), after)


def test_a_table_of_whole_videos_becomes_one_of_segments(tmp_path: Path, hundred: Path) -> None:
    """What was drawn of whole videos stays theirs, with its bytes; segments come in the next generation."""
    whole = tmp_path / "labels.csv"
    whole.write_text("video,label\nv0,a\nv1,b\nv2,a\nv3,b\n")
    with open_cache(tmp_path / "s", hundred, labels=str(whole), epochs=2) as cache:
        before = pixels(cache)
    rows: list[Row] = [(f"v{k}", k / 2, k / 2 + 1, "a") for k in range(4)]
    with opened(tmp_path, hundred, rows, epochs=4) as cache:
        after = pixels(cache)
    assert same({place: after[place] for place in before}, before)
    assert {item for epoch in (2, 3) for item in items_of(after)[epoch]} == {(n, s, e) for n, s, e, _ in rows}


def test_a_lost_catalog_is_rebuilt(tmp_path: Path, hundred: Path) -> None:
    """Laws 4 and 8: the journal tells the segments and their numbers, also those that the table has no more."""
    items = "select item_id, video, start_s, end_s from items order by item_id"
    with opened(tmp_path, hundred, epochs=2) as cache:
        before, known = pixels(cache), sql(cache, items)
    CatalogFiles(tmp_path / "s").database.unlink()
    with opened(tmp_path, hundred, [*ROWS[2:], ("v0", 0.5, 1, "new")], epochs=2) as cache:
        assert same(pixels(cache), before)
        now = sql(cache, items)
    assert now[:-1] == known
    assert now[-1][1:] == ("v0", 0.5, 1)


# Together ------------------------------------------------------------------------------------------------------------


def both(folder: Path, videos: Path, **more: Any) -> dict[str, Any]:
    """Two tasks over the same segments that draw together, of clips of two lengths."""
    labels = table(folder / "labels.csv", ROWS)
    wide, narrow = (
        config(folder / "s", videos, cache={"draw_ahead": 1}, labels=labels, tag=tag, sampling=sampling, **more)
        for tag, sampling in (("wide", {"frame_stride": 3}), ("narrow", {"frame_stride": 3, "frames_per_video": 2}))
    )
    return {"cache": wide["cache"], "dataset": [wide["dataset"], narrow["dataset"]]}


def test_tasks_over_the_same_segments_share(tmp_path: Path, hundred: Path) -> None:
    """Drawn together, each task has each item once an epoch, and short clips lie where long ones do."""
    with viewcache.open(both(tmp_path, hundred)) as cache:
        turns = [(epoch, k) for epoch in range(3) for k in range(4)]
        read = {tag: {place: cache.read(tag, *place) for place in turns} for tag in ("wide", "narrow")}
        assert cache.task("wide").task.draws_together
        assert sql(cache, "select distinct count(*) from draws group by task, epoch") == [(8,)]
    frames: dict[str, set[tuple[str, int]]] = {"wide": set(), "narrow": set()}
    for tag, batches in read.items():
        for items in items_of(batches).values():
            assert set(Counter(items).values()) == {2}
        for batch in batches.values():
            for name, numbers in zip(batch.videos, batch.frame.tolist(), strict=True):
                frames[tag] |= {(name, number) for number in numbers}
    apart = len(frames["narrow"] - frames["wide"])
    assert apart < len(frames["narrow"]) / 2, "most frames of the shorter clips are among those of the longer ones"


def test_a_further_job_of_the_same_definition(tmp_path: Path, hundred: Path) -> None:
    """Jobs of one search share every object of the segments, whatever their orders."""
    given = both(tmp_path, hundred)
    given["dataset"] = [given["dataset"][0] | {"tag": tag} for tag in ("one", "two")]
    with viewcache.open(given) as cache:
        keys = {
            tag: {key for epoch in range(2) for k in range(4) for key in cache.read(tag, epoch, k).keys}
            for tag in ("one", "two")
        }
    assert keys["one"] == keys["two"]


@pytest.mark.usefixtures("large")
def test_batches_before_their_generation_is_planned(tmp_path: Path, uneven: Path) -> None:
    """Of a large dataset whose headers are not read, an early batch is that of the plan."""
    names = ["even", "h264_vfr", "hevc_open_gop", "vp9_hidden"]
    rows: list[Row] = [(name, start, end, "x") for name in names for start, end in ((0.2, 1.0), (0.5, ""))]
    with opened(tmp_path, uneven, rows, augmentation=AUGMENTATION) as cache:
        early = {(epoch, k): cache.read("train", epoch, k) for epoch in range(2) for k in range(4)}
    (tmp_path / "t").mkdir()
    with opened(tmp_path / "t", uneven, rows, augmentation=AUGMENTATION) as cache:
        cache.task("train").task.generation(0)
        planned = {place: cache.read("train", *place) for place in early}
    assert same(early, planned)


# Pixels --------------------------------------------------------------------------------------------------------------


def test_real_clips_give_what_pyav_decodes(tmp_path: Path) -> None:
    """Real videos, an uneven one and one on a late clock among them: pixels of a segment are those of a full decode."""
    chosen = {"cups_720p_h264_aac.mp4", "bbb_720p_vp8.webm", "vfr_1080p_h264.mkv", "offset_720p_hevc.ts"}
    clips = [clip for clip in real_clips("train", "edge") if clip.name in chosen]
    if len(clips) < len(chosen):
        pytest.skip("no real clips; set VIEWCACHE_TEST_VIDEOS to their folder")
    videos = tmp_path / "v"
    videos.mkdir()
    shown: dict[str, list[float]] = {}
    for clip in clips:
        shutil.copy(clip, videos / clip.name)
        with av.open(str(clip)) as container:
            shown[clip.stem] = sorted(float(frame.time or 0) for frame in container.decode(video=0))
    rows: list[Row] = [
        (name, round(times[0] + share, 3), round(times[0] + share + 1, 3), "x")
        for name, times in shown.items()
        for share in (0.31, 1.02)
    ]
    given = config(tmp_path / "s", videos, labels=table(tmp_path / "l.csv", rows), epochs=1)
    given["dataset"]["sampling"] = {"videos_per_batch": 1, "frames_per_video": 2, "frame_stride": 2}  # type: ignore[index]
    given["dataset"]["augmentation"] = [single({"resize": {"shape": [180, 320]}})]  # type: ignore[index]
    with viewcache.open(given) as cache:
        read = list(pixels(cache).values())
    for batch in read:
        name, frames = batch.videos[0], batch.frame[0].tolist()
        assert batch.time_s[0].tolist() == pytest.approx([shown[name][frame] for frame in frames])
        assert batch.start_s[0] <= batch.time_s[0].min()
        assert batch.time_s[0].max() < batch.end_s[0]
        path = next(path for path in videos.iterdir() if path.stem == name)
        with av.open(str(path)) as container:
            decoded = sorted(container.decode(video=0), key=lambda frame: float(frame.time or 0))
            for k, number in enumerate(frames):
                assert np.array_equal(batch.video[0, k], converted(decoded[number], 180, 320)), (name, number)


# Killed, and growing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("visit", [1, 3, 6])
@pytest.mark.parametrize("place", ["journal.before-write", "journal.after-write"])
def test_killed_while_segments_are_recorded(tmp_path: Path, hundred: Path, place: str, visit: int) -> None:
    """Law 8: wherever the process ends, the next start numbers segments once, and gives the batches of a whole run."""
    (tmp_path / "whole").mkdir()
    with opened(tmp_path / "whole", hundred, epochs=2) as cache:
        wanted = pixels(cache)
    given = config(tmp_path / "s", hundred, labels=table(tmp_path / "labels.csv", ROWS), epochs=2)
    program = f"import viewcache\nviewcache.open({given!r}).read('train', 1, 0)"
    environment = {**os.environ, VARIABLE: f"{place}:{visit}:kill"}
    ended = forked.run([sys.executable, "-c", program], env=environment, capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    with opened(tmp_path, hundred, epochs=2) as cache:
        assert same(pixels(cache), wanted)
        numbers = sql(
            cache, "select count(*), count(distinct item_id), count(distinct (video, start_s, end_s)) from items"
        )
    assert numbers == [(4 + 6, 10, 10)]


def test_a_table_that_grows(tmp_path: Path, hundred: Path) -> None:
    """In a dataset that grows, rows that are added while it is read join at the next generation, of old videos too."""
    videos = Path(shutil.copytree(hundred, tmp_path / "v"))
    for path in videos.iterdir():
        aged(path, LONG_AGO_S)
    rows: list[Row] = [("v0", 0, 1, "a"), ("v1", 1, 2, "a")]
    given = streaming(tmp_path / "s", videos, labels=table(tmp_path / "labels.csv", rows), epochs=6)
    with viewcache.open(given) as cache:
        first = [(epoch, 0) for epoch in range(2)]
        read = {place: cache.read("train", *place) for place in first}
        cache.owner.look_ahead.wait_idle(60)
        table(tmp_path / "labels.csv", [*rows, ("v0", 2, 3, "b"), ("v2", 0, 2, "b")])
        drawn = len(sql(cache, "select distinct epoch from draws"))
        read |= {(epoch, k): cache.read("train", epoch, k) for epoch in (4, 5) for k in range(2)}
    found = items_of(read)
    assert drawn <= 4
    assert [set(found[epoch]) for epoch in (0, 1)] == [{("v0", 0, 1), ("v1", 1, 2)}] * 2
    assert [sorted(found[epoch]) for epoch in (4, 5)] == [[("v0", 0, 1), ("v0", 2, 3), ("v1", 1, 2), ("v2", 0, 2)]] * 2
    with viewcache.open(given) as cache:
        assert same({place: cache.read("train", *place) for place in read}, read)
