"""Segments where people look: plans, pictures, single frames, SQL conditions, and what verify says of them."""

from collections import Counter
from io import BytesIO
from pathlib import Path

import fsspec
import numpy as np
import pytest

import viewcache
from tests.api.test_show import words
from tests.tiny import config, encode_folder, pixels, sql
from viewcache.api.audit.recorded import Footage
from viewcache.api.audit.segment_starts import Spans
from viewcache.api.audit.uniformity import Verdict
from viewcache.api.audit.verify import verify
from viewcache.api.cli.tables import preview_lines
from viewcache.api.config.find import Located
from viewcache.api.config.load import load
from viewcache.api.preview.plan import previews
from viewcache.errors import BadUrl, ViewNotFound
from viewcache.materializer.planning import plan
from viewcache.materializer.planning.clip_starts import clip_starts

ROWS = "video,start_s,end_s,label,split\n" + "".join(
    f"v{k},{start},{start + 1},{label},{split}\n"
    for k in range(4)
    for start, label, split in ((0, "run", "a"), (0.5, "jump", "b"), (2, "sit", "a"))
)


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five videos of 100 frames, one of which has no row."""
    return encode_folder(tmp_path_factory.mktemp("looked"), {f"v{k}.mp4": 100 for k in range(5)})


@pytest.fixture
def described(tmp_path: Path, videos: Path) -> dict[str, object]:
    """A task of thirteen items."""
    table = tmp_path / "labels.csv"
    table.write_text(ROWS)
    return config(tmp_path / "s", videos, labels=str(table), epochs=12)


def test_a_plan_tells_items(described: dict[str, object]) -> None:
    """How many items of how many videos an epoch draws, and how many of them are segments."""
    (preview,) = previews(load(described), [0]).tasks
    assert (preview.items, preview.segments, preview.summary.videos) == (13, 12, 5)
    assert "an epoch draws 13 items of 5 videos, 12 of them segments" in preview_lines(preview)


def test_pictures_tell_segments(described: dict[str, object]) -> None:
    """A batch's and a video's captions and facts have the segment of each clip."""
    with viewcache.open(described) as cache:
        batch = cache.read("train", 0, 0)
        facts = words(cache.show("train", 0, 0))
        shown = [(each["item"], each["start_s"], each["end_s"]) for each in facts]
        assert [item for item, *_ in shown] == batch.item.tolist()
        assert [start or 0.0 for _, start, _ in shown] == batch.start_s.tolist()
        film = words(cache.show("train", epoch=0, video="v1"))
        assert Counter((each["start_s"], each["end_s"]) for each in film) == {
            (0.0, 1.0): 2,
            (0.5, 1.5): 2,
            (2.0, 3.0): 2,
        }
        assert cache.aug("train", "v1", 10, 1, epoch=0).shape == (3, 32, 32)


def test_a_single_frame_of_each_item(described: dict[str, object]) -> None:
    """With ``item`` a path, and `aug`, gives the frame as the batch has it, whichever segment of the video it is of."""
    with viewcache.open(described) as cache:
        fs = fsspec.filesystem("view")
        several = 0
        for iteration in range(cache.task("train").iterations(0)):
            batch = cache.read("train", 0, iteration)
            for k, (name, item) in enumerate(zip(batch.videos, batch.item.tolist(), strict=True)):
                frame, sample = int(batch.frame[k, 0]), int(batch.sample[k])
                path = f"view://train/{name}/frame{frame}/aug1?epoch=0&item={item}&sample={sample}"
                assert np.array_equal(np.load(BytesIO(fs.cat_file(path))), batch.video[k, 0])
                assert fs.info(path)["view"]["label"] == [int(batch.label[k])]
                made = cache.aug("train", name, frame, 1, epoch=0, sample=sample, item=item)
                assert np.array_equal(made, batch.video[k, 0])
                first = cache.aug("train", name, frame, 1, epoch=0, sample=sample)
                several += not np.array_equal(first, made)
        assert several, "without it all segments of a video give one clip's"
        ((other,),) = sql(cache, "select max(item_id) from items where video = 'v2'")
        with pytest.raises(ViewNotFound, match=rf"video 'v1' has the items [\d, ]+; asked for {other}"):
            fs.cat_file(f"view://train/v1/frame3/aug1?epoch=0&item={other}")
        whole = cache.task("train").video("v1").video_id
        with pytest.raises(ViewNotFound, match=rf"item {whole} of video 'v1' is not drawn in epoch 0 of task 'train'"):
            fs.cat_file(f"view://train/v1/frame3/aug1?epoch=0&item={whole}")
        with pytest.raises(BadUrl, match=r"item='x' is not a whole number"):
            fs.cat_file("view://train/v1/frame3/aug1?item=x")
        with pytest.raises(BadUrl, match=r"\?item= is not asked of it here"):
            fs.cat_file("view://train/v1/frame3?item=1")


def test_conditions_choose_rows(tmp_path: Path, videos: Path, described: dict[str, object]) -> None:
    """`where` sees each row's own columns and its times; further columns are in SQL by item."""
    given = config(tmp_path / "w", videos, labels=str(tmp_path / "labels.csv"), where="split = 'a' and end_s <= 1.5")
    with viewcache.open(given) as cache:
        found = {
            (name, start)
            for batch in pixels(cache).values()
            for name, start in zip(batch.videos, batch.start_s, strict=True)
        }
        assert found == {(f"v{k}", 0.0) for k in range(4)}
        counted = (
            "select count(*), count(distinct c.item_id) from video_columns c join items i on i.item_id = c.item_id"
        )
        rows = cache.sql(f"{counted} where c.name = 'split' and i.start_s is not null").to_pylist()
        assert [tuple(row.values()) for row in rows] == [(12, 12)]


def test_verify_knows_segments(tmp_path: Path, described: dict[str, object]) -> None:
    """Orders and starts are tested by item; the uniform ones of a plan are found to be that."""
    with viewcache.open(described) as cache:
        pixels(cache)
    located = Located(str(tmp_path / "s"), str(tmp_path / "s"), load(described))
    found = verify(located)
    assert (found.draws, found.damaged, found.orphans) == ((), (), ())
    assert found.epochs == 12
    assert found.evidence.errors == ()
    (task,) = found.evidence.tasks
    (start,) = (check for check in task.checks if check.about == "start")
    assert start.n == 13 * 2 * 6, "one of each item, sample and generation"
    assert start.verdict == Verdict.FITS
    assert "item" in start.of
    assert found.evidence.diversity == ()


def test_verify_finds_starts_that_are_biased(
    tmp_path: Path, described: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clips that are only ever taken from the first half of their segments are no chance: verify says so."""
    monkeypatch.setattr(plan, "clip_starts", lambda *given, **more: clip_starts(*given, **more) // 2)
    with viewcache.open(described) as cache:
        pixels(cache)
    found = verify(Located(str(tmp_path / "s"), str(tmp_path / "s"), load(described)))
    assert found.wrong
    (error,) = found.evidence.errors
    assert "start" in error


def test_frames_of_recorded_segments(tmp_path: Path, described: dict[str, object]) -> None:
    """What verify counts as the frames of a segment is what the plan took it to have."""
    with viewcache.open(described) as cache:
        pixels(cache)
        dataset = cache.task("train").task.dataset
        spans = Spans.load(cache.catalog, dataset.dataset_id, Footage.load(cache.catalog, dataset.dataset_id))
        items = dataset.items_of(dataset.base.tolist())
        at = np.searchsorted(spans.ids, items.ids)
        assert np.array_equal(spans.begin[at], items.begin)
        assert np.array_equal(spans.frames[at], items.frames)
