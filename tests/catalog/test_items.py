"""Segments in the catalog: numbers that are given once, on DuckDB and on PostgreSQL."""

import pyarrow as pa
import pytest

from tests.catalog.samples import draws, registered, select
from viewcache.catalog import Catalog
from viewcache.errors import BadInput

Segment = tuple[int, float | None, float | None, int]
"""Video, where it begins and ends, ordinal."""


def segments(*rows: Segment) -> pa.Table:
    """As `Catalog.register_items` takes them."""
    kinds = pa.int64(), pa.float64(), pa.float64(), pa.int32()
    names = "video_id", "start_s", "end_s", "ordinal"
    columns = zip(*rows, strict=True)
    return pa.table({name: pa.array(each, kind) for name, each, kind in zip(names, columns, kinds, strict=True)})


def test_a_segment_keeps_its_number(catalog: Catalog) -> None:
    """By video, both times to the bit and ordinal, whatever stands beside it; no number is a video's."""
    task, ids = registered(catalog)
    rows: list[Segment] = [(ids[0], 0.1, 0.3, 0), (ids[0], 0.1, 0.3, 1), (ids[1], None, 2.0, 0), (ids[1], 2.0, None, 0)]
    first = catalog.register_items(task.dataset_id, segments(*rows))
    assert len({*first, *ids}) == 8
    later = [(ids[2], 0.1, 0.1 + 0.2, 0), *rows[::-1], (ids[2], 0.1, 0.3, 0)]
    again = catalog.register_items(task.dataset_id, segments(*later))
    assert again[1:5] == first[::-1]
    assert len({*again, *ids}) == 10, "0.1 + 0.2 is not 0.3"
    known = catalog.load_items(task.dataset_id)
    assert known["item_id"].to_pylist() == sorted(again)
    assert select(catalog, "select count(*) from items") == [(10,)]
    with pytest.raises(BadInput, match="a segment was given twice"):
        catalog.register_items(task.dataset_id, segments(rows[0], rows[0]))


def test_relations_tell_segments(catalog: Catalog) -> None:
    """Draws name the item and its video, labels are the item's, and whole videos are items of their own number."""
    task, ids = registered(catalog)
    one, two = catalog.register_items(task.dataset_id, segments((ids[0], 0.0, 1.0, 0), (ids[0], 1.0, None, 0)))
    catalog.set_item_labels({one: "run", two: None})
    catalog.record_draws(draws(task, 0, [two, ids[1], one]))
    drawn = select(catalog, "select position, item_id, video_id, start_s, end_s from draws order by position")
    assert drawn == [(0, two, ids[0], 1.0, None), (1, ids[1], ids[1], None, None), (2, one, ids[0], 0.0, 1.0)]
    told = select(
        catalog, f"select item_id, video_id, label from items where item_id in ({one}, {two}) order by item_id"
    )
    assert told == [(one, ids[0], "run"), (two, ids[0], None)]
    first = {row["video_id"]: row["label"] for row in catalog.first_drawn(task.task_id).to_pylist()}
    assert first.keys() == {one, two, ids[1]}
    assert first[one] == "run"
    assert first[two] is None
    touched = catalog.drawn_among([ids[0], ids[2]])
    assert touched["video_id"].to_pylist() == [ids[0]]
