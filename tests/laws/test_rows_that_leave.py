"""Law 4 of what is said of videos: a row that leaves the label table takes nothing from what was drawn of it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.tiny import AUGMENTATION, config, open_cache, pixels, same, single, sql
from viewcache.api.session.cache import Cache
from viewcache.errors import BadVideo
from viewcache.materializer.field_values import as_lists
from viewcache.materializer.reading.batch import Batch

Place = tuple[int, int]
Row = Mapping[str, Any]

VIDEOS: list[Row] = [
    {"video": f"v{k}", "label": name, "age": 10 + k, "share": k / 3, "caption": f"clip {k}", "indoors": k % 2 == 0}
    for k, name in enumerate("aecbd")
]
SEGMENTS: list[Row] = [
    {**row, "start_s": start, "end_s": start + 0.7} for row in VIDEOS for start in (0.0, 0.5) if row["video"] != "v4"
]
"""Two of each video but v4, which is one item as a whole."""
FIELDS = ["age", "share", "caption", "indoors"]
SEVERAL = [{**row, "label": [row["label"], "z"]} for row in VIDEOS]
NUMBERS = [{**row, "label": k} for k, row in enumerate(VIDEOS)]
NAMES = ["ann", "bob", "cid", "dan", "eve"]


def written(path: Path, rows: Sequence[Row]) -> str:
    """A table of JSON lines with these rows."""
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def opened(folder: Path, videos: Path, rows: Sequence[Row], **more: Any) -> Cache:
    """A cache in a folder, of a task whose table has these rows now."""
    fields = FIELDS if "where" in more else ["share", "caption"]  # whole numbers may be missing in no drawn video
    return open_cache(folder / "s", videos, **{"labels": written(folder / "t.jsonl", rows), "fields": fields, **more})


def said(read: Mapping[Place, Batch], epochs: range) -> dict[Place, object]:
    """What batches of some epochs say of their clips, as plain values."""
    return {
        place: (batch.label.tolist(), {name: as_lists(each) for name, each in batch.fields.items()})
        for place, batch in read.items()
        if place[0] in epochs
    }


def items(read: Mapping[Place, Batch], epoch: int) -> set[tuple[str, float]]:
    """The videos of an epoch, and where their segments begin."""
    mine = (batch for place, batch in read.items() if place[0] == epoch)
    return {each for batch in mine for each in zip(batch.videos, batch.start_s.tolist(), strict=True)}


@pytest.mark.parametrize(
    ("rows", "more"),
    [
        (SEGMENTS, {}),
        (SEGMENTS, {"classes": ["e", "d", "c", "b", "a"]}),
        (VIDEOS, {}),
        (VIDEOS, {"where": "label is not null"}),
        (VIDEOS, {"where": "age is not null", "classes": ["a", "b", "c", "d", "e"]}),
        (SEVERAL, {"where": "label is not null"}),
        (SEVERAL, {}),
        (NUMBERS, {"where": "label is not null"}),
        (NUMBERS, {"classes": NAMES}),
    ],
)
def test_what_was_drawn_keeps_its_label_and_fields(
    tmp_path: Path, videos: Path, rows: Sequence[Row], more: Mapping[str, Any]
) -> None:
    """The only rows of a class leave: drawn epochs say what they said, numbers of classes stay, in any form."""
    with opened(tmp_path, videos, rows, epochs=2, **more) as cache:
        before, classes = pixels(cache), cache.classes("train")
    left = [row for row in rows if row["video"] not in ("v0", "v3")]
    for _ in range(2):  # it is recorded, and not only known to the opening that finds it
        with opened(tmp_path, videos, left, epochs=4, **more) as cache:
            after = pixels(cache)
            assert cache.classes("train") == classes
        drawn = range(2)
        assert same({place: after[place] for place in before}, before)
        assert said(after, drawn) == said(before, drawn)
    of_rows = {(row["video"], row.get("start_s", 0.0)) for row in left}
    whole = {(f"v{k}", 0.0) for k in range(5)} - {(row["video"], 0.0) for row in left}
    for epoch in (2, 3):
        assert items(after, epoch) == of_rows | (set() if "where" in more else whole)
    for place, batch in after.items():
        for name, label in zip(batch.videos, batch.label.tolist(), strict=True):
            has_none = not any(label) if isinstance(label, list) else label < 0
            was_unlabelled = rows is SEGMENTS and name == "v4"
            assert has_none == (was_unlabelled or (place[0] > 1 and name in ("v0", "v3")))
    with opened(tmp_path, videos, rows, epochs=4, **more) as cache:
        again = pixels(cache)
    assert same(again, after)
    assert said(again, drawn) == said(before, drawn), "rows that are back say what they say, and as much as before"


def test_lists_are_not_recorded(tmp_path: Path, videos: Path) -> None:
    """A column of lists is empty, or NaN, where its row has left; its form is that of the table, as before."""
    rows = [{**row, "boxes": [[1, 2]] * k, "at": [0.5, k]} for k, row in enumerate(VIDEOS)]
    more: dict[str, Any] = {"fields": ["boxes", "at"], "where": "label is not null", "epochs": 2}
    with opened(tmp_path, videos, rows, **more) as cache:
        before = pixels(cache)
    with opened(tmp_path, videos, rows[:3] + rows[4:], **more) as cache:
        after = pixels(cache)
    for place, batch in after.items():
        for k, name in enumerate(batch.videos):
            lists = [as_lists(each.fields[key])[k] for each in (batch, before[place]) for key in ("boxes", "at")]
            assert lists[:2] == ([[], [None, None]] if name == "v3" else lists[2:])


def test_mixed_labels_of_a_row_that_left(tmp_path: Path, videos: Path) -> None:
    """A task that mixes clips goes on: no clip that was drawn with a label has none afterwards."""
    steps = [*AUGMENTATION, single({"mixup": 0.8}, of="a", into="b")]
    more: dict[str, Any] = {
        "epochs": 2,
        "augmentation": steps,
        "fields": [],
        "sampling": {"coordination": "independent"},
    }
    rows = [*SEGMENTS, {"video": "v4", "label": "d", "start_s": 0, "end_s": 1}]

    def mixed(cache: Cache) -> list[Any]:
        return [batch["label_mixed"].tolist() for batch in cache.loader("train", epochs=2)]

    with opened(tmp_path, videos, rows, **more) as cache:
        before = mixed(cache)
    with opened(tmp_path, videos, rows[2:], **more) as cache:
        assert mixed(cache) == before


def test_a_table_of_another_task_says_nothing_of_this_one(tmp_path: Path, videos: Path) -> None:
    """Labels that only another task's table has for a video are none of this one's, though it draws that video."""

    def both(extra: Sequence[Row]) -> dict[str, Any]:
        val = [{**row, "label": row["label"] * 2} for row in VIDEOS[3:]]
        tables: dict[str, Sequence[Row]] = {"train": VIDEOS[:3], "val": [*val, *extra]}
        made = [
            config(tmp_path / "s", videos, tag=tag, labels=written(tmp_path / f"{tag}.jsonl", rows), epochs=4)
            for tag, rows in tables.items()
        ]
        return {"cache": made[0]["cache"], "dataset": [each["dataset"] for each in made]}

    read: list[dict[str, dict[Place, object]]] = []
    extras: list[list[Row]] = [[], [{"video": "v0", "label": "x"}], []]
    for extra in extras:
        with viewcache.open(both(extra)) as cache:
            epochs = range(2) if not read else range(4)
            tasks = ("train", "val")
            batches = {tag: {(e, k): cache.read(tag, e, k) for e in epochs for k in range(3)} for tag in tasks}
            read.append({tag: said(batches[tag], range(2)) for tag in tasks})
            assert cache.classes("train") == ("a", "c", "e")
    assert read[0]["train"] == read[1]["train"] == read[2]["train"]


def test_a_row_that_the_predicate_leaves_out(tmp_path: Path, videos: Path) -> None:
    """A drawn video whose row says something else now is told by what is true: the file is there."""
    more: dict[str, Any] = {"where": "age < 100", "epochs": 2}
    with opened(tmp_path, videos, VIDEOS, **more) as cache:
        cache.task("train").task.generation(0)
    edited = [{**VIDEOS[0], "age": 200}, *VIDEOS[1:]]
    told = (
        r"v0\.mp4 is not selected by where: 'age < 100' any more; task 'train' has drawn it: put its row of the "
        r"label table back as it was; or, to go on without it, set on_bad_video: replace"
    )
    with pytest.raises(BadVideo, match=told):
        opened(tmp_path, videos, edited, **more)
    with opened(tmp_path, videos, VIDEOS[1:], **more) as cache:
        assert any("v0" in batch.videos for batch in pixels(cache).values())
    with opened(tmp_path, videos, edited, **more, on_bad_video="replace") as cache:
        assert all("v0" not in batch.videos for batch in pixels(cache).values())


def test_a_label_that_is_corrected_holds(tmp_path: Path, videos: Path) -> None:
    """A row that stays says what it says now, in all batches: an emptied cell is no label."""
    with opened(tmp_path, videos, VIDEOS, epochs=2) as cache:
        pixels(cache)
    with opened(tmp_path, videos, [{**VIDEOS[0], "label": None}, *VIDEOS[1:]], epochs=2) as cache:
        read = pixels(cache)
        rows = sql(cache, "select label from videos order by video")
    assert [label for (label,) in rows] == [None, "e", "c", "b", "d"]
    unlabelled = {name for batch in read.values() for name in np.array(batch.videos)[batch.label < 0].tolist()}
    assert unlabelled == {"v0"}
