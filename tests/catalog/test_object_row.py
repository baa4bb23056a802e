"""One value for one planned object, whoever plans it."""

from dataclasses import fields

from viewcache.catalog import schemas
from viewcache.catalog.kinds import ObjectKind
from viewcache.catalog.records import ObjectRow
from viewcache.catalog.rows import object_table


def test_an_object_row_mirrors_the_bulk_form() -> None:
    """Its fields are the columns that the catalog takes in bulk, in their order."""
    assert [field.name for field in fields(ObjectRow)] == schemas.OBJECT.names


def test_object_rows_become_the_bulk_form() -> None:
    """Regular frames stand as start, stride and count, others as a list; kinds are plain text."""
    common = {"video_id": 3, "depth": 1, "est_bytes": 12, "cost_s": 0.5, "keep": True, "shape": "1x3x2x2"}
    rows = [
        ObjectRow(1, "a" * 32, ObjectKind.AUG, **common, frame_start=7, frame_stride=1, frame_count=1),  # type: ignore[arg-type]
        ObjectRow(2, "b" * 32, ObjectKind.FRAMES, **common, frame_list=[1, 5]),  # type: ignore[arg-type]
    ]
    table = object_table(rows)
    assert table.schema.equals(schemas.OBJECT)
    assert table["kind"].to_pylist() == ["aug", "frames"]
    assert table["frame_start"].to_pylist() == [7, None]
    assert table["frame_list"].to_pylist() == [None, [1, 5]]
    assert object_table([]).num_rows == 0
