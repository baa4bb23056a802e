"""The relation `frame_runs` against `frames`, of which it is the sum, on both databases."""

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.catalog.samples import registered, select
from viewcache.catalog import Catalog
from viewcache.catalog.kinds import ObjectKind
from viewcache.catalog.records import ObjectRow
from viewcache.catalog.rows import object_table

Shown = dict[str, object]
"""How an object says which frames it shows."""
_PLACES = st.integers(0, 30)
_REGULAR = st.builds(
    lambda start, stride, count: {"frame_start": start, "frame_stride": stride, "frame_count": count},
    _PLACES,
    st.sampled_from([1, 2, 3, 4, 6]),
    st.integers(1, 8),
)
_LISTED = st.lists(_PLACES, max_size=8).map(lambda frames: {"frame_list": frames})
_OBJECTS = st.lists(
    st.tuples(st.sampled_from([0, 1, None]), st.sampled_from([ObjectKind.CLIP, ObjectKind.FRAMES]), _REGULAR | _LISTED),
    min_size=1,
    max_size=12,
)


def _record(catalog: Catalog, objects: list[tuple[int | None, ObjectKind, Shown]], ids: list[int]) -> None:
    """Objects of two videos, by place, or of none."""
    first = catalog.next_object_id(len(objects))
    common = {"depth": 0, "est_bytes": 1, "cost_s": 0.5, "keep": True, "shape": "1x3x2x2"}
    rows = [
        ObjectRow(k, f"{k:032x}", kind, None if place is None else ids[place], **common, **shown)  # type: ignore[arg-type]
        for k, (place, kind, shown) in enumerate(objects, first)
    ]
    catalog.record_objects(object_table(rows))


def _runs(catalog: Catalog) -> list[tuple[object, str, int, int, int, int]]:
    columns = "video_id, kind, first_frame, step, frames, objects"
    return select(catalog, f"select {columns} from frame_runs")  # type: ignore[return-value]


def _singly(catalog: Catalog) -> dict[tuple[object, ...], int]:
    """How often each frame of each video is shown by each kind, counted one by one."""
    counted = "select video_id, kind, frame, count(*) from frames group by video_id, kind, frame"
    return {tuple(key): count for *key, count in select(catalog, counted)}  # type: ignore[misc]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(objects=_OBJECTS)
def test_runs_are_the_sum_of_frames(catalog: Catalog, objects: list[tuple[int | None, ObjectKind, Shown]]) -> None:
    """Whatever strides, lists and videos objects have: each shown frame is in one run, which says how often."""
    _, ids = registered(catalog, 2)
    _record(catalog, objects, ids)
    told = Counter[tuple[object, ...]]()
    for video, kind, first, step, frames, count in _runs(catalog):
        assert frames > 0
        assert count > 0
        for k in range(frames):
            assert (video, kind, first + k * step) not in told
            told[video, kind, first + k * step] = count
    assert dict(told) == _singly(catalog)


def test_a_run_is_as_long_as_it_can_be(catalog: Catalog) -> None:
    """Clips that overlap are one run before, one within and one behind; strides 2 and 3 have runs of every sixth."""
    _, ids = registered(catalog, 2)
    even: list[Shown] = [{"frame_start": start, "frame_stride": 2, "frame_count": 4} for start in (0, 4)]
    mixed: list[Shown] = [{"frame_start": 0, "frame_stride": stride, "frame_count": 6} for stride in (2, 3)]
    listed: list[Shown] = [{"frame_list": [7, 8, 9, 3]}]
    _record(catalog, [(0, ObjectKind.CLIP, each) for each in even], ids)
    _record(catalog, [(1, ObjectKind.CLIP, each) for each in mixed], ids)
    _record(catalog, [(1, ObjectKind.FRAMES, each) for each in listed], ids)
    found = sorted(_runs(catalog))
    assert [row[2:] for row in found if row[0] == ids[0]] == [(0, 2, 2, 1), (4, 2, 2, 2), (8, 2, 2, 1)]
    assert [row[2:] for row in found if row[0] == ids[1] and row[1] == "clip"] == [
        (0, 6, 2, 2),
        (2, 6, 2, 1),
        (3, 6, 3, 1),
        (4, 6, 2, 1),
        (12, 6, 1, 1),
    ]
    assert [row[2:] for row in found if row[1] == "frames"] == [(3, 1, 1, 1), (7, 1, 3, 1)]
