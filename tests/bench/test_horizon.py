"""The benchmark of long trainings: its rivals do the work that it says, its sums are right, and it runs whole."""

import json
from argparse import Namespace
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from benchmarks import horizon, rivals
from benchmarks.handmade import KEY_EVERY, Arrays, Best, by_hand, in_process, with_workers
from benchmarks.harness import ROOT, Comparison, Figure, Note, main
from benchmarks.horizon import LOSSY, ONE_GB, Rounds, late, planes_of
from benchmarks.longrun import REENCODED, Long, Took, predicted_s
from tests.clips import encode

LINEAR = Took(
    opened_wall_s=2.0, wall_s=[4.0, 5.0, 6.0], closed_wall_s=7.0,
    imported_cpu_s=1.0, opened_cpu_s=3.0, cpu_s=[8.0, 10.0, 12.0], closed_cpu_s=12.5,
)  # fmt: skip


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    """Clips with reordered frames that nothing refers to, one in a single group of pictures, one of an odd width."""
    folder = tmp_path / "videos"
    folder.mkdir()
    for number, gop in enumerate((6, 12, 100)):
        encode(folder / f"{number}.mp4", frames=40, gop=gop, options={"bf": "2"})
    encode(folder / "odd.mp4", frames=9, size=(130, 96), options={"preset": "ultrafast"})
    return folder


@pytest.fixture
def setting(videos: Path, tmp_path: Path) -> Long:
    """A small run."""
    (tmp_path / "made").mkdir()
    size = Long("", str(videos), str(tmp_path / "made"), 0.0, epochs=2, videos_per_batch=2)
    return replace(size, frames=4, short_side=72, crop=64)


def test_at_its_best_gives_the_frames_that_were_drawn(setting: Long) -> None:
    """By seeking, skipping and cutting come the same bytes as out of arrays of every frame, flips included."""
    best, arrays = Best(setting), Arrays(setting)
    for draw in product(range(4), range(4), range(2)):
        clip = best[draw]
        assert clip.shape == (4, 3, 64, 64)
        assert np.array_equal(clip, arrays[draw]), draw
    rows, columns = slice(0, 64), slice(5, 69)
    tutorial = rivals._OnDemand(setting).window(best.videos[0], 3, rows, columns).transpose(0, 3, 1, 2)
    assert _nearest(tutorial, arrays.pictures[arrays.videos[0].path][:, :, rows, columns]) == [3, 5, 7, 9]


def _nearest(clip: np.ndarray, pictures: np.ndarray) -> list[int]:
    """Which of the pictures each frame of a clip resembles most."""
    return [int(np.abs(pictures.astype(int) - frame).mean((1, 2, 3)).argmin()) for frame in clip]


def test_a_clip_longer_than_its_video_repeats_the_last_frame(setting: Long) -> None:
    """Nine frames give a clip of sixteen at stride 2 in which the last frame comes again."""
    setting = replace(setting, frames=16)
    best, arrays, video = Best(setting), Arrays(setting), 3
    clip = best[0, video, 0]
    assert np.array_equal(clip, arrays[0, video, 0])
    assert all(np.array_equal(clip[4], later) for later in clip[5:])


def test_a_flip_is_numpys(setting: Long) -> None:
    """OpenCV's flip of all rows at once is left for right in every picture."""
    clip = np.random.default_rng(0).integers(0, 256, (2, 3, 5, 7), np.uint8)
    assert np.array_equal(Best(setting).flipped(clip), clip[..., ::-1])


def test_re_encoded_files_show_the_same_frames(setting: Long) -> None:
    """Each file has all frames at the small size, a key frame in 32, and in place what the original has."""
    made = by_hand(setting, "medium")
    best, files = Best(setting), Best(made)
    assert [video.frames for video in files.videos] == [video.frames for video in best.videos]
    assert all((video.height % 2, video.width % 2) == (0, 0) for video in files.videos)
    keys = files.packets[files.videos[2].path].keys
    assert keys == files.packets[files.videos[2].path].shown[::KEY_EVERY]
    arrays, corner = Arrays(setting), slice(0, 64)
    for video, start in product(range(3), (0, 30)):
        clip = files.window(files.videos[video], start, corner, corner)
        pictures = arrays.pictures[arrays.videos[video].path][:, :, corner, corner]
        assert _nearest(clip, pictures) == list(range(start, start + 8, 2)), video
    with av.open(files.videos[0].path) as container:
        assert container.streams.video[0].codec_context.name == "h264"


def test_with_and_without_workers_the_batches_are_the_same(setting: Long) -> None:
    """The buffer that is used again holds what the loader's workers send."""
    arrays = Arrays(setting)
    here = [batch.tobytes() for batch in in_process(arrays)]
    assert here == [batch.tobytes() for batch in with_workers(arrays)]
    assert len(here) == 2 * 2


def test_cost_of_epochs_that_were_run_and_that_were_not() -> None:
    """Imports are left out, opening and closing counted, and further epochs cost what those after the first do."""
    assert LINEAR.cost(0) == (2.0, 2.0)
    assert LINEAR.cost(2) == (5.0, 9.0)
    assert LINEAR.cost(3) == (7.0, 11.5)
    assert LINEAR.cost(10) == (7.0 + 7 * 1.0, 11.5 + 7 * 2.0)
    assert LINEAR.halves() == 1.0
    ends = [1.0, 2.0, 3.0, 5.0, 7.0]
    assert Took(cpu_s=ends, wall_s=ends).halves() == 2.0


def test_a_late_epoch_is_one_after_the_tenth() -> None:
    """The first ten are not in it, nor the last generation, whose successor nobody makes ahead."""
    ends = [100.0] * 10 + [100.0 + 2 * k for k in range(1, 6)] + [110.0] * 5
    assert late(Took(cpu_s=ends, wall_s=ends), 5) == (2.0, 2.0)
    assert late(LINEAR, 5) == (1.0, 2.0)
    assert late(Took(cpu_s=[5.0, 5.0, 5.0, 11.0], wall_s=[5.0, 5.0, 5.0, 11.0]), 2) == (2.0, 2.0)


def test_planes_are_counted_after_the_resize(tmp_path: Path) -> None:
    """RGB is three bytes a pixel; 4:2:0 rounds its colour planes up."""
    encode(tmp_path / "a.mp4", frames=10, size=(130, 96))
    planes = planes_of(tmp_path, 72)
    assert (planes.frames, planes.rgb_bytes) == (10, 10 * 3 * 72 * 98)
    assert planes.yuv420_bytes == 10 * (72 * 98 + 2 * 36 * 49)


def test_what_plan_predicts_is_compared_or_said_to_be_missing() -> None:
    """An answer that looks no further than a generation is no prediction."""
    assert predicted_s({"tasks": []}) == {}
    assert predicted_s({"horizon": {"epoch_s": {"1": 3, "10": 0.5}}}) == {"1": 3.0, "10": 0.5}
    (note,) = horizon.predicted("ours", [LINEAR], 1)
    assert isinstance(note, Note)
    said = {"1": 6.0, "10": 2.2, "100": 1.0}
    short = replace(LINEAR, predicted_cpu_s=said, consumer_cpu_s=1.5)  # half a second in each of three epochs
    (first,) = horizon.predicted("ours", [short], 2)
    assert isinstance(first, Figure)
    assert first.value == pytest.approx(6.0 / (LINEAR.mean(0, 2)[1] - 0.5))
    ends = [10.0 * k for k in range(1, 11)] + [100.0 + 2 * k for k in range(1, 11)]
    long = Took(cpu_s=ends, wall_s=ends, predicted_cpu_s=said)
    found = [each.value for each in horizon.predicted("ours", [long], 5) if isinstance(each, Figure)]
    assert found == pytest.approx([0.6, 0.22, 0.41, 0.5]), "the first, the tenth's, both, and those behind"
    del said["100"]
    *_, late_one = horizon.predicted("ours", [long], 5)
    assert isinstance(late_one, Figure)
    assert late_one.value == pytest.approx(1.1), "a tenth epoch is as late as it gets"


def test_what_was_refused_is_left_out_with_a_word() -> None:
    """A row whose run our system refused is a note, not a ratio of nothing."""
    rounds = Rounds(Namespace(epochs=3), {REENCODED: [LINEAR], LOSSY: [Took(refused="unknown key")], ONE_GB: [LINEAR]})
    (note,) = horizon.ROWS["10-45db"].answer(rounds)
    assert isinstance(note, Note)
    assert LOSSY in note.text
    (comparison,) = horizon.ROWS["1gb"].answer(rounds)
    assert isinstance(comparison, Comparison)
    assert comparison.ratios(ONE_GB) == [1.0]


def test_rows_of_one_run(videos: Path, tmp_path: Path) -> None:
    """A short run answers the rows that it is asked for, shares the runs between them, and tells what each took."""
    values = _results(videos, tmp_path, "1gb", "10-45db")
    tables = [each for each in values if each["kind"] == "table"]
    rows, until = (each["rows"] for each in tables)
    assert {REENCODED, ONE_GB} <= rows.keys()
    assert rows[ONE_GB][0] == 2
    assert all(0 < row[0] < row[1] for row in until.values())
    titles = [each.get("title", each.get("text", "")) for each in values]
    assert titles[0].startswith("the resized planes of all 129 frames")
    assert any(LOSSY in title for title in titles)
    assert not list(tmp_path.glob("viewcache-longrun-*"))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_row(videos: Path, tmp_path: Path) -> None:
    """All rows run, those that are not usual too, and a budget too small for the clips is a note."""
    values = _results(videos, tmp_path, *horizon.ROWS, "--before", str(ROOT))
    assert sum(each["kind"] == "comparison" for each in values) >= 6


def _results(videos: Path, folder: Path, *rows: str) -> list[dict[str, Any]]:
    out = folder / "out.json"
    command = ["--quick", "--epochs", "2", "--rival-epochs", "2", "--repeats", "1", "--videos", str(videos)]
    command += ["--dir", str(folder), "--json", str(out), "--rows", *rows]
    main(horizon.__doc__, horizon.bench, horizon._arguments, command)
    results: list[dict[str, Any]] = json.loads(out.read_text())["results"]
    return results
