"""Tasks with audio keep the laws: each clip comes with what is heard while it is shown (docs/design/0040)."""

import json
import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import torch
import zarr

import viewcache
from tests.clips import encode, real_clips
from tests.sounds import Track, encode_with_audio, nearest, whole_track
from tests.tiny import config, open_cache, pixels, same, sql
from viewcache.api.audit.verify import verify
from viewcache.api.config.find import locate
from viewcache.api.session.cache import Cache
from viewcache.catalog.files import CatalogFiles
from viewcache.errors import BadVideo, BudgetTooSmall, ConfigError, ViewNotFound
from viewcache.materializer.reading.batch import Batch

RATE, COUNT, FPS = 16_000, 6, 10
BY_TIME = {"videos_per_batch": 2, "fps": FPS, "frames_per_video": COUNT, "frame_stride": None, "samples_per_video": 2}
SAMPLES = COUNT * RATE // FPS
Batches = Mapping[tuple[int, int], Batch]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Videos with tracks of several codecs, one that begins later and is shorter, and one without audio."""
    folder = tmp_path_factory.mktemp("heard")
    encode_with_audio(folder / "aac.mp4", [Track("aac")])
    encode_with_audio(folder / "opus.mkv", [Track("libopus", pitch=300)], frames=90)
    encode_with_audio(folder / "mp3.mkv", [Track("libmp3lame", rate=44_100, layout="mono")], rate=30, frames=110)
    encode_with_audio(folder / "later.mp4", [Track("aac", start_s=1.0, seconds=1.5)], frames=80)
    encode(folder / "silent.mp4", frames=70, size=(64, 48))
    return folder


def opened(store: Path, folder: Path, **more: Any) -> Cache:
    """A cache with one task that has audio; what was read stays, to be looked at."""
    given: dict[str, Any] = {"sampling": BY_TIME, "audio": {"rate": RATE}} | more
    given["cache"] = {"eviction": {"trim": False}} | given.get("cache", {})
    return open_cache(store, folder, **given)


def alike(one: Batches, other: Batches) -> bool:
    """Whether two readings gave the same pixels and the same audio."""
    return same(one, other) and all(
        np.array_equal(batch.audio, other[place].audio)  # type: ignore[arg-type]
        for place, batch in one.items()
    )


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Batches:
    """Every batch, made cold and read in order."""
    with opened(tmp_path_factory.mktemp("cold"), folder) as cache:
        return pixels(cache)


def right(cache: Cache, folder: Path, batches: Batches, rate: int, count: int, *, mono: bool = True) -> int:
    """Compare audio with that of whole decodes, from each clip's first frame on; returns how many were not silent."""
    dataset, heard = cache.task("train").task.dataset, 0
    whole: dict[Path, tuple[Fraction, np.ndarray]] = {}
    for batch in batches.values():
        assert batch.audio is not None
        assert batch.audio.dtype == np.float32
        assert batch.audio.shape == (len(batch.videos), 1 if mono else 2, count)
        for name, frames, time_s, audio in zip(batch.videos, batch.frame, batch.time_s, batch.audio, strict=True):
            row = dataset.files.row_of_name[name]
            index = dataset.files.exact_index(row)
            assert index is not None, "it was decoded"
            start = int(index.frame_pts[frames[0]]) * Fraction(*index.time_base)
            assert float(start) == pytest.approx(time_s[0])
            path = Path(dataset.files.uris[row])
            if path not in whole:
                with_audio = path.name != "silent.mp4" and "bikes" not in path.name
                whole[path] = whole_track(path, rate, mono=mono) if with_audio else (Fraction(0), np.zeros((1, 0)))
            expected = nearest(whole[path], start, count, rate)
            assert np.array_equal(audio, np.broadcast_to(expected, audio.shape)), (name, float(start))
            heard += bool(audio.any())
    return heard


def test_each_clip_has_the_audio_of_its_span(tmp_path: Path, folder: Path) -> None:
    """To the bit what a whole decode has from the first frame on; so long as all frames are shown, silence included."""
    with opened(tmp_path / "s", folder) as cache:
        read = pixels(cache)
        assert right(cache, folder, read, RATE, SAMPLES) > 15
        names = Counter(name for place, batch in read.items() if place[0] == 1 for name in batch.videos)
        assert (len(names), set(names.values())) == (5, {2}), "law 1"
        assert sql(cache, "select * from errors") == []


def test_by_frames_in_two_channels(tmp_path: Path, folder: Path) -> None:
    """Clips that are sampled by frames have so many seconds as the task says, whatever their videos' rates."""
    sampling, audio = {"samples_per_video": 1}, {"rate": 44_100, "mono": False, "seconds": 0.25}
    with open_cache(tmp_path / "s", folder, sampling=sampling, audio=audio) as cache:
        assert right(cache, folder, pixels(cache), 44_100, 11_025, mono=False) > 5


def test_real_clips(tmp_path: Path) -> None:
    """Of real clips too: AAC, Vorbis, MP3 in AVI, and one without audio."""
    wanted = ("cups_720p", "car_432p", "bbb_720p_vp8", "mpeg4_bframes", "bikes_272p")
    paths = [path for path in real_clips("train", "edge") if path.name.startswith(wanted)]
    if not paths:
        pytest.skip("the real clips are not there; set VIEWCACHE_TEST_VIDEOS to the folder of real clips")
    folder = tmp_path / "v"
    folder.mkdir()
    for path in paths:
        shutil.copy(path, folder)
    with opened(tmp_path / "s", folder, epochs=1) as cache:
        assert right(cache, folder, pixels(cache), RATE, SAMPLES) >= 2


def test_warm_reopened_evicted_and_damaged_reads_give_the_same(tmp_path: Path, folder: Path, cold: Batches) -> None:
    """Laws 3, 5 and 7: by another worker, after a restart, with objects gone or cut short, and out of a tiny budget."""
    with opened(tmp_path, folder, cache={"workers": 2}) as cache:
        assert alike(pixels(cache), cold)
        assert alike(pixels(cache), cold), "warm"
        need, _ = cache.task("train").task.outline.batch_bound()
    objects = {
        path.parent: json.loads(path.read_text())["attributes"] for path in tmp_path.glob("objects/*/*/zarr.json")
    }
    audio = [folder for folder, attributes in objects.items() if attributes["kind"] == "audio"]
    assert 25 <= len(audio) <= 30, "clips that begin with one frame have one audio"
    for number, place in enumerate(sorted(audio)):
        (shard,) = place.glob("c.*")
        if number % 3 == 0:
            shutil.rmtree(place)
        elif number % 3 == 1:
            shard.write_bytes(shard.read_bytes()[:-7])
    with opened(tmp_path, folder) as cache:
        assert alike(pixels(cache), cold), "deleted and damaged"
        assert cache.task("train").spent.rebuilt > 0
        jobs = cache.owner.dispatcher_now().tally.frames["decoded"]
        assert jobs == 0, "pixels were not decoded again for it"
    with opened(tmp_path, folder, cache={"budget": need}) as cache:
        backwards = {place: cache.read("train", *place) for place in reversed(list(cold))}
        assert alike({place: backwards[place] for place in cold}, cold), "evicted and rebuilt, last batch first"
        assert cache.tier.used_bytes <= need
    with pytest.raises(BudgetTooSmall), opened(tmp_path / "less", folder, cache={"budget": need - 1}):
        pass


def test_it_comes_with_the_decode_of_its_clips(tmp_path: Path, folder: Path, cold: Batches) -> None:
    """Made ahead in the jobs that decode the pictures: no read waits, and no video is decoded again for its audio."""
    with opened(tmp_path / "s", folder, epochs=2) as cache:
        *_, last = cache.materialize()
        assert last["ready"] == 20
        dispatcher = cache.owner.dispatcher_now()
        assert dispatcher.wait_idle(60)
        assert dispatcher.tally.busy["audio"] > 0
        read = pixels(cache)
        assert cache.task("train").spent.misses == 0
    assert alike(read, {place: batch for place, batch in cold.items() if place in read})


def test_ranks_loops_and_resuming(tmp_path: Path, folder: Path, cold: Batches) -> None:
    """Each rank has its share; a loop gives tensors of the framework; a state goes on where it was."""
    with opened(tmp_path / "s", folder) as cache:
        halves = [cache.read("train", 0, 0, rank, 2).audio for rank in range(2)]
        assert np.array_equal(np.concatenate(halves), cold[0, 0].audio)  # type: ignore[arg-type]
        loader, places = cache.loader("train"), [place for place in cold if place[0] == 0]
        state = None
        for number, (place, batch) in enumerate(zip(places, loader, strict=True)):
            assert batch["audio"].dtype == torch.float32
            assert np.array_equal(batch["audio"].numpy(), cold[place].audio)  # type: ignore[arg-type]
            if number == 0:
                state = loader.state_dict()
        again = cache.loader("train", framework="numpy")
        again.load_state_dict(state)
        assert np.array_equal(next(iter(again))["audio"], cold[places[1]].audio)  # type: ignore[arg-type]
        *_, filled = cache.loader("train", even=True, epochs=1)
        assert filled["audio"].shape == (4, 1, SAMPLES)
        assert not filled["audio"][~filled["valid"]].any(), "filling is silent"


def test_paths(tmp_path: Path, folder: Path, cold: Batches) -> None:
    """As .npy, in the batch's Zarr group, and as plain Zarr in the store; of a task without audio there is no such."""
    audio = cold[1, 0].audio
    assert audio is not None
    with opened(tmp_path / "s", folder) as cache:
        fs = fsspec.filesystem("view")
        with fs.open("view://train/1/0/audio") as file:
            assert np.array_equal(np.load(file), audio)
        with fs.open("view://train/1/0/audio?rank=1&world=2") as file:
            assert np.array_equal(np.load(file), audio[2:])
        assert "train/1/0/audio" in "\n".join(fs.ls("view://train/1/0", detail=False))
        with fs.open("view://train/1/0/audio?clip=2") as file:
            assert np.array_equal(np.load(file), audio[2])
        with fs.open("view://train/1/0/audio?rank=1&world=2&clip=1") as file:
            assert np.array_equal(np.load(file), audio[3])
        one = fs.info("view://train/1/0/audio?clip=2")["view"]
        assert (one["shape"], one["videos"]) == ([1, SAMPLES], [cold[1, 0].videos[2]])
        with pytest.raises(ViewNotFound, match="it has clips 0 to 3"):
            fs.open("view://train/1/0/audio?clip=4")
        about = fs.info("view://train/1/0/audio")["view"]
        assert (about["shape"], about["dtype"]) == ([4, 1, SAMPLES], "float32")
        group = zarr.open_group("view://train/1/0/view.zarr", mode="r")
        assert np.array_equal(np.asarray(group["audio"]), audio)
        assert np.array_equal(np.asarray(group["video"]), cold[1, 0].video)
    stored = [zarr.open_array(path.parent, mode="r") for path in (tmp_path / "s").glob("objects/*/*/zarr.json")]
    heard = {bytes(each[:].tobytes()) for each in stored if each.attrs["kind"] == "audio"}  # type: ignore[union-attr]
    assert {each.dtype for each in stored if each.attrs["kind"] == "audio"} == {np.dtype("<f4")}
    assert {clip.tobytes() for clip in audio} <= heard
    with open_cache(tmp_path / "quiet", folder) as cache:
        assert cache.read("train", 0, 0).audio is None
        assert "audio" not in next(iter(cache.loader("train")))
        with pytest.raises(ViewNotFound, match="has no audio"):
            fsspec.filesystem("view").open("view://train/0/0/audio")


def test_pixels_are_shared_with_a_task_without(tmp_path: Path, folder: Path, cold: Batches) -> None:
    """Clips have the keys that they have without audio, and two tasks store them once; audio is beside them."""
    with open_cache(tmp_path / "quiet", folder, sampling=BY_TIME) as cache:
        quiet, silent_task = pixels(cache), cache.config.canonical(cache.config.tasks[0])
        assert "audio" not in silent_task
    assert all(batch.keys == cold[place].keys for place, batch in quiet.items())
    both = config(tmp_path / "two", folder, sampling=BY_TIME, epochs=3)
    task = both["dataset"]
    assert isinstance(task, dict)
    both["dataset"] = [task | {"tag": "seen"}, task | {"tag": "heard", "audio": {"rate": RATE}}]
    with viewcache.open(both) as cache:
        seen, heard = pixels(cache, "seen"), pixels(cache, "heard")
        by_clip = {(place[0], *clip): key for place, batch in seen.items() for clip, key in _clips(batch)}
        for place, batch in heard.items():
            assert all(by_clip[place[0], *clip] == key for clip, key in _clips(batch))
        counted = Counter(kind for (kind,) in sql(cache, "select kind from objects"))
        assert counted["clip"] == len(set(by_clip.values())) >= counted["audio"]
        uses = sql(cache, "select task, count(*) from uses where sample < 0 group by task")
        assert uses == [("heard", 30)]
        assert sql(cache, "select count(*) from views where clips <> 4 and iteration < 2") == [(0,)]


def _clips(batch: Batch) -> list[tuple[tuple[str, int], str]]:
    return list(zip(zip(batch.videos, batch.sample.tolist(), strict=True), batch.keys, strict=True))


def test_no_audio_by_policy(tmp_path: Path, folder: Path) -> None:
    """Silence, or a bad video; the same where only a track of another language is there."""
    bad = {"rate": RATE, "on_no_audio": "bad"}
    with (
        pytest.raises(BadVideo, match=r"silent.mp4: it has no audio"),
        opened(tmp_path / "a", folder, audio=bad) as cache,
    ):
        pixels(cache)
    with opened(tmp_path / "b", folder, audio=bad, on_bad_video="replace") as cache:
        read = pixels(cache)
        assert all("silent" not in batch.videos for batch in read.values())
        assert right(cache, folder, read, RATE, SAMPLES) > 15
        reasons = {str(reason) for (reason,) in sql(cache, "select reason from substitutions")}
        assert all("it has no audio" in reason for reason in reasons)
        assert reasons
    with opened(tmp_path / "b", folder, audio=bad, on_bad_video="replace") as cache:
        assert alike(pixels(cache), read), "what stands in stays"
    with opened(tmp_path / "c", folder, audio={"rate": RATE, "language": "fra"}) as cache:
        assert not any(batch.audio.any() for batch in pixels(cache).values())  # type: ignore[union-attr]
        ((message,),) = sql(cache, "select message from errors")
        assert re.search(r"no audio track 'fra'; it has 1, from 0: .*its clips are silent", str(message)), "told once"
    with (
        pytest.raises(BadVideo, match="no audio track 'fra'"),
        opened(tmp_path / "d", folder, audio=bad | {"language": "fra"}) as cache,
    ):
        pixels(cache)


def test_silence_takes_no_room(tmp_path: Path, folder: Path) -> None:
    """Of a clip that is silent, by policy or because its track is, the zeros are packed; so they are for any client.

    How fast they are read is not taken for a measurement of the codec, which would be chosen for pixels then.
    """
    audio = {"rate": 48_000, "mono": False, "seconds": 4.0}
    whole = 48_000 * 2 * 4 * 4
    with opened(tmp_path / "s", folder, audio=audio, cache={"budget": "500MB"}) as cache:  # room for all: none passes
        read = pixels(cache)
        stored = sql(cache, "select key, video, codec, bytes from objects where kind = 'audio'")
        codecs = sql(cache, "select distinct codec from io_samples where op = 'load' and codec = 'lz4'")
    assert {codec for _, video, codec, _ in stored if video == "silent"} == {"lz4"}
    assert all(int(str(size)) < whole / 50 for _, video, _, size in stored if video == "silent")
    assert {codec for _, video, codec, _ in stored if video in ("aac", "opus", "mp3")} == {"raw"}
    assert codecs == []
    for batch in read.values():
        for name, samples in zip(batch.videos, batch.audio, strict=True):  # type: ignore[arg-type]
            assert not (name == "silent" and samples.any())
    keys = {str(key) for key, video, _, _ in stored if video == "silent"}
    places = [path.parent for path in (tmp_path / "s").glob("objects/*/*/zarr.json") if path.parent.name in keys]
    assert len(places) == len(keys) > 0
    for place in places:
        array = zarr.open_array(place, mode="r")
        assert (array.shape, array.dtype) == ((2, 192_000), np.dtype("<f4"))
        assert not np.asarray(array[:]).any()


def test_damaged_audio_by_policy(tmp_path: Path) -> None:
    """An error, another video, or silence that a row of errors tells; never something that only sounds right."""
    folder = tmp_path / "v"
    folder.mkdir()
    encode_with_audio(folder / "good.mp4")
    _hurt(encode_with_audio(folder / "hurt.mp4", [Track(pitch=700)]))
    sampling = {"videos_per_batch": 2, "fps": FPS, "frames_per_video": 20, "samples_per_video": 1}
    settings = {"sampling": sampling | {"frame_stride": None}, "epochs": 2}
    with (
        pytest.raises(BadVideo, match=r"hurt.mp4: its audio is damaged near"),
        opened(tmp_path / "a", folder, **settings) as cache,
    ):
        pixels(cache)
    with opened(tmp_path / "b", folder, on_bad_video="replace", **settings) as cache:
        assert {name for batch in pixels(cache).values() for name in batch.videos} == {"good"}
    silence = {"rate": RATE, "on_bad_audio": "silence"}
    with opened(tmp_path / "c", folder, audio=silence, **settings) as cache:
        read = pixels(cache)
        errors = [str(message) for (message,) in sql(cache, "select message from errors")]
        assert {name for batch in read.values() for name in batch.videos} == {"good", "hurt"}
    assert errors
    assert all("hurt.mp4: its audio is damaged" in each for each in errors)


def _hurt(path: Path) -> None:
    """Overwrite its audio from the first second on."""
    import av

    data = bytearray(path.read_bytes())
    with av.open(str(path)) as container:
        for packet in container.demux(container.streams.audio[0]):
            if packet.size and packet.pts is not None and packet.pts * packet.time_base > 1:
                assert packet.pos is not None
                data[packet.pos : packet.pos + packet.size] = b"\xff" * packet.size
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("audio", "more", "message"),
    [
        ({"rate": 0}, {}, "audio.rate must be a whole number from 1000 to 192000"),
        ({"rate": 1_000_000}, {}, "audio.rate must be a whole number from 1000 to 192000"),
        ({}, {}, "needs the key rate"),
        ({"rate": RATE, "track": 0, "language": "eng"}, {}, "leave one of them out"),
        ({"rate": RATE, "seconds": 0.001, "mono": 1}, {}, "audio.mono must be true or false"),
        ({"rate": 192_000, "seconds": 3600}, {}, "a clip has 1 to 67108864"),
        ({"rate": RATE}, {"sampling": {}}, "audio needs seconds, the same for all; or sample by fps"),
        ({"rate": RATE}, {"on_short_video": "loop"}, "use clamp or skip"),
    ],
)
def test_bad_settings(tmp_path: Path, folder: Path, audio: Any, more: dict[str, Any], message: str) -> None:
    """What cannot be, or cannot be the same for all clips, is refused where it is written."""
    with pytest.raises(ConfigError, match=message):
        opened(tmp_path, folder, audio=audio, **more)


def test_early_batches_have_it_too(tmp_path: Path, folder: Path, cold: Batches, large: Callable[..., None]) -> None:
    """A batch that is read before its generation is planned has the audio that the plan gives it."""
    with opened(tmp_path / "s", folder) as cache:
        assert alike(pixels(cache), cold)


def test_a_lost_catalog_knows_it_again(tmp_path: Path, folder: Path, cold: Batches) -> None:
    """Audio in the store describes itself: it gets its rows back, nothing is made again, and uses are as before."""
    objects = "select key, kind, video, depth, state, bytes, est_bytes, shape from objects where kind <> 'frames'"
    uses = "select u.seq, u.position, u.sample, o.key from uses u join objects o on o.object_id = u.object_id"

    def known(cache: Cache) -> list[list[tuple[object, ...]]]:
        cache.owner.look_ahead.wait_idle()
        assert cache.owner.dispatcher_now().wait_idle(60)
        cache.catalog.flush()
        return [sorted(sql(cache, each), key=str) for each in (objects, uses)]

    with opened(tmp_path, folder) as cache:
        assert alike(pixels(cache), cold)
        before = known(cache)
    CatalogFiles(tmp_path).database.unlink()
    with opened(tmp_path, folder) as cache:
        assert alike(pixels(cache), cold)
        assert known(cache) == before
        assert cache.owner.dispatcher_now().tally.busy["audio"] == 0


def test_verify_finds_nothing_wrong(tmp_path: Path, folder: Path) -> None:
    """Every object is read and checked, laws are counted by clips, and audio is not taken for one."""
    with opened(tmp_path, folder) as cache:
        pixels(cache)
    given = config(tmp_path, folder, sampling=BY_TIME, audio={"rate": RATE})
    (tmp_path / "train.yaml").write_text(json.dumps(given))
    found = verify(locate(str(tmp_path / "train.yaml")))
    assert not found.wrong
    assert found.objects >= 55
    with opened(tmp_path, folder) as cache:
        counted = sql(cache, "select count(*), sum(clips), sum(ready) from views")
        assert counted == [(9, 30, 30)]


def test_a_killed_run_goes_on(tmp_path: Path, folder: Path, cold: Batches) -> None:
    """Law 8: what was made before a worker died is there, and what was half made is made anew, to the same bytes."""
    with opened(tmp_path, folder) as cache:
        first = {place: cache.read("train", *place) for place in list(cold)[:2]}
        for worker in cache.owner.dispatcher_now().pool.pids():
            os.kill(worker, signal.SIGKILL)
        rest = {place: cache.read("train", *place) for place in list(cold)[2:]}
    assert alike(first | rest, cold)


def test_jobs_of_one_definition_share_it(tmp_path: Path, folder: Path) -> None:
    """Tasks that differ in their tags alone have plans of one another, in orders of their own, audio included."""
    both = config(tmp_path / "two", folder, sampling=BY_TIME, epochs=2, audio={"rate": RATE})
    task = both["dataset"]
    assert isinstance(task, dict)
    both["dataset"] = [task | {"tag": "train"}, task | {"tag": "other"}]
    with viewcache.open(both) as cache:
        assert right(cache, folder, pixels(cache), RATE, SAMPLES) > 10
        assert right(cache, folder, pixels(cache, "other"), RATE, SAMPLES) > 10
        uses = sql(cache, "select task, count(*) from uses where sample < 0 group by task order by task")
        assert uses == [("other", 20), ("train", 20)]
        assert sql(cache, "select max(n) from (select count(*) n from objects group by key)") == [(1,)]


def test_what_is_stored_is_not_made_again(tmp_path: Path, folder: Path, cold: Batches) -> None:
    """A cache that is opened again reads the pixels and the audio that it has; nothing is made or rebuilt."""
    made = "select kind, sum(count) from events where kind in ('miss', 'rebuild') group by all order by all"
    with opened(tmp_path / "s", folder) as cache:
        assert alike(pixels(cache), cold)
    with opened(tmp_path / "s", folder) as cache:
        before = sql(cache, made)
        assert alike(pixels(cache), cold)
        assert sql(cache, made) == before


def test_a_removed_clip_is_served_whole_or_replaced(tmp_path: Path, folder: Path) -> None:
    """Of a file that is gone stored clips are heard as before; where pixels or audio are lost, another stands in."""
    videos = tmp_path / "videos"
    shutil.copytree(folder, videos)
    with opened(tmp_path / "s", videos, on_missing_video="replace") as cache:
        before = pixels(cache)
    (videos / "opus.mkv").unlink()
    with opened(tmp_path / "s", videos, on_missing_video="replace") as cache:
        assert alike(pixels(cache), before)
        lost = sql(
            cache,
            "select o.key from objects o join videos v using (video_id) where v.video = 'opus' and kind = 'audio'",
        )
        copies = cache.owner.ledger.copies()
        cache.owner.dispatcher_now().evictor.give_up([copies[key] for (key,) in lost if key in copies])
    with opened(tmp_path / "s", videos, on_missing_video="replace") as cache:
        after = pixels(cache)
        assert lost
    for place, batch in before.items():
        now = after[place]
        assert now.audio is not None
        assert batch.audio is not None
        assert "opus" not in now.videos
        for k, name in enumerate(batch.videos):
            if name != "opus":
                assert now.videos[k] == name
                assert np.array_equal(now.video[k], batch.video[k])
                assert np.array_equal(now.audio[k], batch.audio[k])
