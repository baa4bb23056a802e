"""Packs that were formed and never made leave no rows behind, and no others are touched; on both databases."""

import pyarrow as pa

from tests.catalog.samples import copy, plan, registered, select
from viewcache.catalog import Catalog, schemas
from viewcache.catalog.kinds import ObjectKind
from viewcache.catalog.records import ObjectRow
from viewcache.catalog.rows import object_table


def test_rows_of_what_was_never_made_are_forgotten(catalog: Catalog) -> None:
    """What lies there, is expected, or was made and evicted stays, and so does every clip."""
    task, videos = registered(catalog)
    catalog.record_plan(plan(catalog, task, videos))
    (clips,) = select(catalog, "select count(*) from objects where kind = 'clip'")
    first = catalog.next_object_id(5)
    made, expected, evicted, *unmade = packs = range(first, first + 5)
    rows = {each: ObjectRow(each, f"{each:032x}", ObjectKind.PACK, None, 1, 10, 0.5, True, "10") for each in packs}
    catalog.record_objects(object_table([*rows.values()]))
    parts = [
        {"object_id": each, "place": place, "key": f"{each * 10 + place:032x}", "video_key": "aa", "first_byte": place}
        for each in packs
        for place in range(2)
    ]
    catalog.record_packs(pa.Table.from_pylist(parts, schema=schemas.PACK_PART))
    (child, *_), *_ = select(catalog, "select min(object_id) from objects where kind = 'clip'")
    made_from = {"child_id": child, "op": "augment", "cost_s": 0.0}
    edges = pa.Table.from_pylist([{"parent_id": each, **made_from} for each in packs], schema=schemas.EDGE)
    keep = pa.Table.from_pylist([{"object_id": each, "keep": True} for each in packs], schema=schemas.KEEP)
    catalog.record_keeping(keep, edges)
    catalog.mark_ready([copy(made), copy(evicted)])
    catalog.flush()
    catalog.mark_evicted({evicted: "was not needed"}, "sand", tier="local")
    catalog.expect_uses({expected: 3})
    catalog.flush()

    assert catalog.forget_unmade_packs() == len(unmade) == 2
    assert catalog.forget_unmade_packs() == 0
    left = [(made,), (expected,), (evicted,)]
    assert select(catalog, "select object_id from objects where kind = 'pack' order by 1") == left
    assert catalog.pack_parts(unmade).num_rows == 0
    assert catalog.pack_parts([made, expected, evicted]).num_rows == 6
    assert select(catalog, "select count(*) from objects where kind = 'clip'") == [clips]
    catalog.record_objects(object_table([rows[each] for each in unmade]))  # formed again
    assert catalog.objects_by_key([rows[each].key for each in unmade]).num_rows == 2
