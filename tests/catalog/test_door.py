"""The catalog's verbs, on DuckDB and on PostgreSQL."""

import time
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.catalog.samples import copy, draws, plan, registered, select, task, video
from viewcache import errors
from viewcache.catalog import Catalog, schemas, tasks
from viewcache.catalog.door import ID_BLOCK
from viewcache.catalog.engine import Session
from viewcache.catalog.kinds import ObjectKind
from viewcache.catalog.packed_rows import PACKED_AT_ONCE
from viewcache.catalog.records import (
    EventRow,
    GenerationRow,
    IoSampleRow,
    ObjectRow,
    PlanTables,
    ProgressRow,
    SubstitutionRow,
    TaskRow,
    TierRow,
    VideoColumnRow,
)
from viewcache.catalog.rows import object_table

MANY = 30_000


def test_a_dataset_keeps_its_id(catalog: Catalog) -> None:
    """The same uri is the same dataset; another is another."""
    first = catalog.register_dataset("/a")
    assert catalog.register_dataset("/a") == first
    assert catalog.register_dataset("/b") != first


def test_a_video_keeps_its_id_when_its_content_changes(catalog: Catalog) -> None:
    """A rescan updates the row in place; new files get new ids, in the order given."""
    dataset = catalog.register_dataset("/videos")
    before = catalog.upsert_videos(dataset, [video(0), video(1, index_at=7, label="dog")])
    after = catalog.upsert_videos(dataset, [video(2), video(1, key="f" * 32, status="gone")])
    assert after[1] == before[1]
    assert after[0] not in before
    rows = {row["video_id"]: row for row in catalog.load_videos(dataset).to_pylist()}
    assert rows[before[1]]["key"] == "f" * 32
    assert rows[before[1]]["status"] == "gone"
    assert rows[before[0]]["status"] == "ok"


def test_videos_come_back_as_they_were_given(catalog: Catalog) -> None:
    """Every field, empty text, null, bytes and words of any script included, survives the trip."""
    dataset = catalog.register_dataset("/videos")
    rows = [
        video(0, label="", error='a "quoted", line\nand more', etag="ü漢", index_at=0),
        video(
            1,
            size_bytes=2**60,
            mtime_ns=2**62,
            fps=23.976,
            width=1920,
            index_at=2**62,
            time_first=-(2**40),
            time_step=512,
        ),
    ]
    catalog.upsert_videos(dataset, rows)
    table = catalog.load_videos(dataset)
    assert table.schema.names == schemas.VIDEO.names
    for given, found in zip(rows, table.to_pylist(), strict=True):
        assert {name: found[name] for name in type(given).__slots__ if name != "video_id"} == {
            name: getattr(given, name) for name in type(given).__slots__ if name != "video_id"
        }


def test_many_videos_come_by_id(catalog: Catalog) -> None:
    """However the database has them, and in however many parts they are read: each with what is its own."""
    dataset, count = catalog.register_dataset("/videos"), PACKED_AT_ONCE + 10_000
    for first in range(0, count, 20_000):
        numbers = range(first, min(first + 20_000, count))
        texts = {"uri": "/videos/{}.jpg", "name": "{}", "key": "{:032x}", "status": "listed", "etag": "e{}"}
        rows = {name: [text.format(number) for number in numbers] for name, text in texts.items()}
        catalog.upsert_videos(dataset, pa.table(rows | {"size_bytes": pa.array(numbers, pa.int64())}))
    found = catalog.load_videos(dataset)
    assert found["video_id"].to_pylist() == sorted(found["video_id"].to_pylist())
    numbers = found["size_bytes"].to_pylist()
    assert numbers == list(range(count))
    assert found["name"].to_pylist() == list(map(str, numbers))
    assert found["etag"].to_pylist() == [f"e{number}" for number in numbers]
    assert set(found["status"].to_pylist()) == {"listed"}
    assert found["label"].null_count == count


def test_a_uri_given_twice_is_refused(catalog: Catalog) -> None:
    """One scan cannot describe the same file in two ways."""
    dataset = catalog.register_dataset("/videos")
    with pytest.raises(errors.BadInput, match="given twice"):
        catalog.upsert_videos(dataset, [video(0), video(0)])
    assert catalog.load_videos(dataset).num_rows == 0


def test_further_columns_are_replaced(catalog: Catalog) -> None:
    """A new labels table takes the old one's place for the videos that it names."""
    _, ids = registered(catalog)
    catalog.set_video_columns([VideoColumnRow(ids[0], "size", "3", 3.0), VideoColumnRow(ids[1], "size", "x")])
    catalog.set_video_columns([VideoColumnRow(ids[0], "colour", "red")])
    assert catalog.load_video_columns(1).to_pylist() == [
        {"video_id": ids[0], "name": "colour", "text_value": "red", "number_value": None},
        {"video_id": ids[1], "name": "size", "text_value": "x", "number_value": None},
    ]


def test_a_task_keeps_its_id_and_group(catalog: Catalog) -> None:
    """The same description is the same task; tasks of one dataset are one group."""
    row, _ = registered(catalog)
    assert catalog.ensure_task(task(row.dataset_id)) == row
    other = catalog.ensure_task(task(row.dataset_id, "val"))
    assert other.task_id != row.task_id
    assert other.group_id == row.group_id
    assert catalog.load_tasks() == [row, other]


def test_more_epochs_are_not_another_definition(catalog: Catalog) -> None:
    """Training longer keeps every path's meaning."""
    row, ids = registered(catalog)
    catalog.record_draws(draws(row, 0, ids))
    assert catalog.ensure_task(task(row.dataset_id, epochs=9)).epochs == 9
    assert catalog.load_tasks()[0].epochs == 9


def test_a_new_definition_before_any_draw_forgets_the_plan(catalog: Catalog) -> None:
    """Nobody has read a path yet, so it may mean something else."""
    row, ids = registered(catalog)
    catalog.record_plan(plan(catalog, row, ids))
    changed = catalog.ensure_task(task(row.dataset_id, definition_key="other"))
    assert changed.task_id == row.task_id
    assert catalog.load_generations(row.task_id) == []
    assert catalog.due_next().num_rows == 0


def test_a_new_definition_after_a_draw_is_refused(catalog: Catalog) -> None:
    """A path never changes its meaning (law 4)."""
    row, ids = registered(catalog)
    catalog.record_draws(draws(row, 0, ids[:1]))
    with pytest.raises(errors.BadInput, match="another tag"):
        catalog.ensure_task(task(row.dataset_id, definition_key="other"))
    assert catalog.load_tasks() == [row]


def test_draws_are_recorded_once(catalog: Catalog) -> None:
    """Giving a draw again changes nothing; contradicting one is refused and records nothing (law 4)."""
    row, ids = registered(catalog)
    catalog.record_draws(draws(row, 0, ids[:2]))
    catalog.record_draws(draws(row, 0, ids))
    wrong = pa.concat_tables([draws(row, 1, ids), draws(row, 0, [ids[3]], first=1)])
    with pytest.raises(errors.Misuse, match=f"epoch 0 position 1 was drawn as video {ids[1]}"):
        catalog.record_draws(wrong)
    assert catalog.load_draws(row.task_id, 0, 9).equals(draws(row, 0, ids))


def _settled(row: TaskRow, epoch: int, positions: int) -> pa.Table:
    return pa.table({"task_id": [row.task_id], "epoch": pa.array([epoch], pa.int32()), "positions": [positions]})


def test_planned_positions_may_change_and_settled_ones_not(catalog: Catalog) -> None:
    """Drawing exchanges videos behind what is settled, with their uses' objects; what is settled stays (law 4)."""
    row, ids = registered(catalog)
    planned = plan(catalog, row, ids)
    catalog.record_plan(planned)
    catalog.record_draws(draws(row, 0, ids), _settled(row, 0, 0))
    assert select(catalog, "select count(*) from draws") == [(0,)]
    assert select(catalog, "select count(*) filter (where drawn), count(*) from deadlines where epoch = 0") == [(0, 8)]
    objects = [use["object_id"] for use in planned.uses.to_pylist() if use["epoch"] == 0]
    moved = {
        "task_id": [row.task_id] * 4,
        "epoch": pa.array([0] * 4, pa.int32()),
        "position": pa.array([0, 0, 2, 2], pa.int32()),
        "sample": pa.array([0, 1, 0, 1], pa.int32()),
        "object_id": [objects[4], objects[5], objects[0], objects[1]],
    }
    exchanged = pa.concat_tables([draws(row, 0, [ids[2]], first=0), draws(row, 0, [ids[0]], first=2)])
    catalog.settle_draws(exchanged, pa.table(moved), _settled(row, 0, 1))
    assert catalog.load_draws(row.task_id, 0, 0)["video_id"].to_pylist() == [ids[2], ids[1], ids[0], ids[3]]
    assert catalog.load_use_ids(row.task_id, 0, 0)["object_id"].to_pylist() == [
        *objects[4:6], *objects[2:4], *objects[0:2], *objects[6:8]
    ]  # fmt: skip
    assert select(catalog, "select epoch, position, video_id from draws") == [(0, 0, ids[2])]
    assert select(catalog, "select position, sample from deadlines where drawn order by position, sample") == [
        (0, 0),
        (0, 1),
    ]
    assert catalog.load_settled(row.task_id) == {0: 1}
    wrong = pa.concat_tables([draws(row, 0, [ids[0]], first=0), draws(row, 0, [ids[2]], first=2)])
    with pytest.raises(errors.Misuse, match=f"epoch 0 position 0 was drawn as video {ids[2]}"):
        catalog.settle_draws(wrong, pa.table(moved), _settled(row, 0, 2))
    assert catalog.load_settled(row.task_id) == {0: 1}


def test_a_plan_of_which_nothing_is_settled_may_be_defined_anew(catalog: Catalog) -> None:
    """Planned positions mean nothing yet, so they are forgotten with the plan."""
    row, ids = registered(catalog)
    catalog.record_draws(draws(row, 0, ids), _settled(row, 0, 0))
    changed = catalog.ensure_task(task(row.dataset_id, definition_key="other"))
    assert catalog.load_draws(changed.task_id, 0, 9).num_rows == 0
    assert catalog.load_settled(changed.task_id) == {}
    catalog.record_draws(draws(changed, 0, ids), _settled(changed, 0, 1))
    with pytest.raises(errors.BadInput, match="1 of its draws"):
        catalog.ensure_task(task(row.dataset_id, definition_key="third"))
    catalog.forget_task("train")
    assert catalog.load_settled(changed.task_id) == {}


def test_draws_come_back_by_epoch_and_position(catalog: Catalog) -> None:
    """Only the epochs asked for, in order, whatever the order of recording."""
    row, ids = registered(catalog)
    for epoch in (2, 0, 1):
        catalog.record_draws(draws(row, epoch, ids[::-1]))
    assert catalog.load_draws(row.task_id, 1, 2).equals(
        pa.concat_tables([draws(row, 1, ids[::-1]), draws(row, 2, ids[::-1])]).combine_chunks()
    )


def test_ids_are_never_given_out_twice(catalog: Catalog) -> None:
    """Blocks of object ids do not overlap; an empty block is allowed, a negative one is not."""
    first = catalog.next_object_id(10)
    second = catalog.next_object_id(0)
    assert second == first + 10
    assert catalog.next_object_id(1) == second
    with pytest.raises(errors.BadInput, match="-1"):
        catalog.next_object_id(-1)


def test_ids_are_claimed_by_the_thousand(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim is a commit, which takes longer than planning a video; larger blocks are claimed as they are."""
    claimed = list[int]()
    claim = tasks.claim_ids

    def noted(session: Session, name: str, n: int) -> int:
        claimed.append(n)
        return claim(session, name, n)

    monkeypatch.setattr(tasks, "claim_ids", noted)
    starts = [catalog.next_object_id(n) for n in (1, 100, 7, 2 * ID_BLOCK, 1)]
    assert claimed == [ID_BLOCK, 2 * ID_BLOCK, ID_BLOCK]
    assert starts[:3] == [starts[0], starts[0] + 1, starts[0] + 101]
    assert starts[3] >= starts[2] + 7
    assert starts[4] >= starts[3] + 2 * ID_BLOCK


def test_a_plan_comes_back_as_it_was_recorded(catalog: Catalog) -> None:
    """Objects, edges and uses survive the trip, frame lists and nulls included."""
    row, ids = registered(catalog)
    given = plan(catalog, row, ids)
    generation = catalog.record_plan(given)
    found = catalog.load_plan(row.task_id, 0)
    assert found is not None
    assert found.generation == generation
    assert generation.objects == given.objects.num_rows
    assert found.objects.to_pylist() == given.objects.sort_by("object_id").to_pylist()
    assert found.edges.to_pylist() == given.edges.sort_by("child_id").to_pylist()
    assert found.uses.to_pylist() == given.uses.to_pylist()
    assert catalog.load_plan(row.task_id, 1) is None


def test_a_plan_takes_the_place_of_an_earlier_one(catalog: Catalog) -> None:
    """When videos have changed a generation is planned anew; its old uses are gone, its old objects stay."""
    row, ids = registered(catalog)
    first = plan(catalog, row, ids)
    catalog.record_plan(first)
    second = plan(catalog, row, ids[:2])
    generation = catalog.record_plan(second)
    assert catalog.load_generations(row.task_id) == [generation]
    found = catalog.load_plan(row.task_id, 0)
    assert found is not None
    assert found.uses.to_pylist() == second.uses.to_pylist()
    assert catalog.objects_by_key(first.objects["key"]).num_rows == first.objects.num_rows


def test_a_generation_is_begun_before_it_is_planned(catalog: Catalog) -> None:
    """What its clips depend on is known then; its plan takes the place of that, and beginning it again changes none."""
    row, ids = registered(catalog)
    catalog.begin_generation(GenerationRow(row.task_id, 0, 0, 1, group_epoch=2, grid=6))
    (begun,) = catalog.load_generations(row.task_id)
    assert (begun.group_epoch, begun.grid, begun.objects) == (2, 6, 0)
    given = plan(catalog, row, ids)
    generation = catalog.record_plan(given)
    catalog.begin_generation(GenerationRow(row.task_id, 0, 0, 1, group_epoch=2, grid=6))
    assert catalog.load_generations(row.task_id) == [generation]
    found = catalog.load_plan(row.task_id, 0)
    assert found is not None
    assert found.uses.to_pylist() == given.uses.to_pylist()
    with pytest.raises(errors.BadInput, match="task 99, which is not registered"):
        catalog.begin_generation(GenerationRow(99, 0, 0, 1))


def test_use_ids_come_in_reading_order(catalog: Catalog) -> None:
    """Clip after clip, as batches are read."""
    row, ids = registered(catalog)
    given = plan(catalog, row, ids)
    catalog.record_plan(given)
    wanted = [use["object_id"] for use in given.uses.to_pylist() if use["epoch"] == 1]
    assert catalog.load_use_ids(row.task_id, 1, 1)["object_id"].to_pylist() == wanted


def test_clips_come_with_their_frames(catalog: Catalog) -> None:
    """Each use of some epochs in reading order, with the video and the frames of its object; sizes without indexes."""
    row, ids = registered(catalog)
    given = plan(catalog, row, ids)
    catalog.record_plan(given)
    clips = catalog.load_clips(row.task_id, 1, 1).to_pylist()
    uses = [use for use in given.uses.to_pylist() if use["epoch"] == 1]
    assert [clip["object_id"] for clip in clips] == [use["object_id"] for use in uses]
    assert [clip["video_id"] for clip in clips] == [ids[use["position"]] for use in uses]
    assert [clip["frame_start"] for clip in clips] == [use["sample"] for use in uses]
    sizes = catalog.load_video_sizes(row.dataset_id)
    assert sizes["video_id"].to_pylist() == ids
    assert "index_at" not in sizes.column_names


def test_objects_of_no_plan_are_found(catalog: Catalog) -> None:
    """Single frames that somebody read are objects like any other."""
    row, ids = registered(catalog)
    given = plan(catalog, row, ids)
    catalog.record_objects(given.objects.slice(0, 1))
    assert catalog.objects_by_key(given.objects["key"]).num_rows == 1
    assert select(catalog, "select kind, state, generation from objects") == [("frames", "planned", None)]


def test_a_forgotten_task_leaves_its_name_free(catalog: Catalog) -> None:
    """On purpose only: its draws, plans and progress go, so that the name can mean something else."""
    row, ids = registered(catalog)
    catalog.record_plan(plan(catalog, row, ids))
    catalog.record_draws(draws(row, 0, ids))
    assert catalog.forget_task("train") == row
    assert catalog.load_tasks() == []
    assert catalog.ensure_task(task(row.dataset_id, definition_key="other")).task_id != row.task_id
    assert select(catalog, "select count(*) from uses") == [(0,)]
    with pytest.raises(errors.NotFound, match="'absent'"):
        catalog.forget_task("absent")


def test_a_forgotten_task_leaves_no_objects_that_were_only_planned(catalog: Catalog) -> None:
    """What lies in the store, was evicted or failed stays, and what another task reads, with what it is made from."""
    row, ids = registered(catalog)
    given = plan(catalog, row, ids)
    catalog.record_plan(given)
    made, evicted, failed, shared = given.uses["object_id"].to_pylist()[:4]
    catalog.mark_ready([copy(made), copy(evicted)])
    catalog.flush()
    catalog.mark_gone([evicted], "missing", tier="local")
    catalog.add_events([EventRow("error", object_id=failed, detail="no such frame")])
    other, _ = registered(catalog, name="other")
    read = pa.Table.from_pylist([given.uses.to_pylist()[3] | {"task_id": other.task_id}], schemas.USE)
    generation = replace(given.generation, task_id=other.task_id)
    catalog.record_plan(PlanTables(generation, given.objects.slice(0, 0), given.edges.slice(0, 0), read))
    catalog.record_objects(object_table([ObjectRow(99, "99", ObjectKind.FRAMES, ids[0], 0, 10, 0.5, False, "10")]))

    catalog.forget_task("train")
    parents = {edge["child_id"]: edge["parent_id"] for edge in given.edges.to_pylist()}
    stays = {each: parents[each] for each in (made, evicted, failed, shared)}
    there = {each for (each,) in select(catalog, "select object_id from objects")}
    assert there == {*stays, *stays.values(), 99}
    left = catalog.load_plan(other.task_id, 0)
    assert left is not None
    assert {*left.objects["object_id"].to_pylist()} == {shared, stays[shared]}
    catalog.forget_task("other")
    assert {each for (each,) in select(catalog, "select object_id from objects")} < there


def test_a_task_of_many_objects_is_forgotten_soon(catalog: Catalog) -> None:
    """One look through what stays for all of them together, not one for each: that took minutes on PostgreSQL."""
    for name in ("train", "other"):
        row, ids = registered(catalog, name=name)
        given = plan(catalog, row, ids)
        first, example = catalog.next_object_id(MANY), given.objects.to_pylist()[-1]
        many = [example | {"object_id": first + k, "key": f"{first + k:032x}"} for k in range(MANY)]
        made = [{"parent_id": first + k, "child_id": first + k + 1, "op": "", "cost_s": 0.0} for k in range(0, MANY, 2)]
        objects = pa.concat_tables([given.objects, pa.Table.from_pylist(many, schemas.OBJECT)])
        edges = pa.concat_tables([given.edges, pa.Table.from_pylist(made, schemas.EDGE)])
        catalog.record_plan(replace(given, objects=objects, edges=edges))
    begun = time.monotonic()
    catalog.forget_task("train")
    assert time.monotonic() - begun < 8
    assert select(catalog, "select count(*) from objects") == [(len(objects),)]


def test_uses_may_come_in_any_order(catalog: Catalog) -> None:
    """The catalog sorts them, because a window of iterations is read as neighbouring rows."""
    row, ids = registered(catalog)
    given = plan(catalog, row, ids)
    backwards = given.uses.sort_by([("seq", "descending"), ("object_id", "descending")])
    catalog.record_plan(PlanTables(given.generation, given.objects, given.edges, backwards))
    found = catalog.load_plan(row.task_id, 0)
    assert found is not None
    assert found.uses.to_pylist() == given.uses.to_pylist()


def test_a_later_plan_may_use_objects_of_an_earlier_one(catalog: Catalog) -> None:
    """An object is stored once; loading the later plan brings it and its ancestors along."""
    row, ids = registered(catalog)
    first = plan(catalog, row, ids, 0)
    catalog.record_plan(first)
    second = plan(catalog, row, ids, 1)
    reused = PlanTables(
        second.generation,
        schemas.empty(schemas.OBJECT),
        schemas.empty(schemas.EDGE),
        second.uses.set_column(6, "object_id", first.uses["object_id"]),
    )
    assert catalog.record_plan(reused).objects == 0
    found = catalog.load_plan(row.task_id, 1)
    assert found is not None
    assert found.objects.to_pylist() == first.objects.sort_by("object_id").to_pylist()
    assert found.edges.num_rows == first.edges.num_rows


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.drop_columns(["key"]), "missing \\['key'\\]"),
        (lambda t: t.append_column("colour", t["key"]), "not known \\['colour'\\]"),
        (lambda t: t.set_column(1, "key", pa.nulls(t.num_rows, pa.string())), "key has nulls"),
        (lambda t: t.set_column(0, "object_id", t["kind"]), "objects of a plan"),
    ],
)
def test_a_plan_of_the_wrong_shape_is_refused(catalog: Catalog, change: object, says: str) -> None:
    """The message names the table and the column; nothing is recorded."""
    row, ids = registered(catalog, 2)
    given = plan(catalog, row, ids)
    with pytest.raises(errors.BadInput, match=says):
        catalog.record_plan(PlanTables(given.generation, change(given.objects), given.edges, given.uses))  # type: ignore[operator]
    assert catalog.load_generations(row.task_id) == []


def test_a_plan_of_an_unknown_task_is_refused(catalog: Catalog) -> None:
    """Its uses would belong to nobody."""
    row, ids = registered(catalog, 2)
    given = plan(catalog, row, ids)
    with pytest.raises(errors.BadInput, match="not registered"):
        catalog.record_plan(replace(given, generation=replace(given.generation, task_id=99)))


def test_objects_are_found_by_key(catalog: Catalog) -> None:
    """Known keys give ids, unknown ones nothing."""
    row, ids = registered(catalog, 2)
    given = plan(catalog, row, ids)
    catalog.record_plan(given)
    keys = [*given.objects["key"].to_pylist()[:3], "e" * 32]
    found = catalog.objects_by_key(keys).to_pylist()
    assert found == [{"key": key, "object_id": int(key, 16), "adopted": False} for key in keys[:3]]


def test_copies_come_back_as_they_were_marked(catalog: Catalog) -> None:
    """Every field survives, the last word per object and tier counts, other tiers are left alone."""
    catalog.mark_ready([copy(1), copy(2), copy(1, tier="remote", bytes=7)])
    catalog.mark_ready([copy(1, bytes=55)])
    catalog.flush()
    catalog.mark_gone([2], "policy", tier="local")
    catalog.flush()
    table = catalog.load_copies()
    assert table.schema.names == schemas.COPY.names
    assert table.to_pylist() == [
        {name: getattr(row, name) for name in type(row).__slots__}
        for row in (copy(1, bytes=55), copy(1, tier="remote", bytes=7))
    ]


def test_an_eviction_is_remembered_with_its_reason(catalog: Catalog) -> None:
    """What was removed, how large it was and why stays queryable; removing nothing leaves no trace."""
    row, ids = registered(catalog, 2)
    catalog.record_plan(plan(catalog, row, ids))
    catalog.mark_ready([copy(1)])
    catalog.flush()
    catalog.mark_gone([1, 2], "budget", tier="local")
    catalog.flush()
    found = select(catalog, "select object_id, bytes, reason from evictions")
    assert found == [(1, 100, "budget")]


def test_touching_moves_the_tick_forward_only(catalog: Catalog) -> None:
    """A late report of an early read does not make a copy older; a copy that is gone is not revived."""
    catalog.mark_ready([copy(1, access_tick=3)])
    catalog.flush()
    catalog.touch([1, 9], tier="local", tick=8)
    catalog.touch([1], tier="local", tick=5)
    catalog.flush()
    catalog.touch([1], tier="local", tick=6)
    catalog.flush()
    assert catalog.load_copies()["access_tick"].to_pylist() == [8]


def test_copies_are_counted_again(catalog: Catalog) -> None:
    """Each in its own tier; the others stay as they are."""
    catalog.mark_ready([copy(1, bytes=10), copy(2, bytes=20), copy(1, tier="remote", bytes=30)])
    catalog.flush()
    catalog.recount_copies(pa.table({"object_id": [1, 2, 9], "tier": ["local"] * 3, "bytes": [11, 22, 99]}))
    found = {(row["object_id"], row["tier"]): row["bytes"] for row in catalog.load_copies().to_pylist()}
    assert found == {(1, "local"): 11, (2, "local"): 22, (1, "remote"): 30}


def test_copies_of_changed_videos_are_found(catalog: Catalog) -> None:
    """A changed file invalidates its own objects and no others."""
    row, ids = registered(catalog, 4)
    given = plan(catalog, row, ids)
    catalog.record_plan(given)
    catalog.mark_ready([copy(i) for i in given.objects["object_id"].to_pylist()])
    catalog.flush()
    found = catalog.copies_of_videos([ids[1]])
    mine = [o["object_id"] for o in given.objects.to_pylist() if o["video_id"] == ids[1]]
    assert found["object_id"].to_pylist() == sorted(mine)


def test_progress_is_kept_per_rank(catalog: Catalog) -> None:
    """The last report of each rank counts."""
    row, _ = registered(catalog)
    for seq in range(3):
        for rank in range(2):
            catalog.advance(ProgressRow(row.task_id, rank, 0, seq, seq, 0.5))
        catalog.flush()
    catalog.advance(ProgressRow(row.task_id, 1, 1, 0, 4, 0.25))
    catalog.flush()
    assert catalog.load_progress(row.task_id) == [
        ProgressRow(row.task_id, 0, 0, 2, 2, 0.5),
        ProgressRow(row.task_id, 1, 1, 0, 4, 0.25),
    ]


def test_a_rank_that_is_no_more_holds_nothing_back(catalog: Catalog) -> None:
    """When a task goes on with fewer ranks, where the others were is forgotten; before the commit and after it."""
    row, _ = registered(catalog)
    for flushed in (True, False):
        for rank in range(3):
            catalog.advance(ProgressRow(row.task_id, rank, 0, rank, rank, 0.5))
        if flushed:
            catalog.flush()
        catalog.limit_seats(row.task_id, 1)
        catalog.advance(ProgressRow(row.task_id, 0, 0, 9, 9, 0.5))
        catalog.flush()
        assert catalog.load_progress(row.task_id) == [ProgressRow(row.task_id, 0, 0, 9, 9, 0.5)]


def test_measures_add_up(catalog: Catalog) -> None:
    """Within a commit and over commits, per (op, size, codec, tier)."""
    sample = IoSampleRow("decode", 20, "h264", "source", 2, 0.5, 1000)
    catalog.add_io_samples([sample, sample])
    catalog.flush()
    catalog.add_io_samples([sample, IoSampleRow("load", 20, "raw", "local", 1, 0.1, 5)])
    catalog.flush()
    found = select(catalog, "select op, size_bucket, n, seconds, bytes, seconds_each from io_samples order by op")
    assert found == [("decode", 20, 6, 1.5, 3000, 0.25), ("load", 20, 1, 0.1, 5, 0.1)]


def test_of_measured_work_it_is_told_what_was_waited_for(catalog: Catalog) -> None:
    """Core seconds add up beside seconds; the rest is waiting, and never less than nothing."""
    catalog.add_io_samples([IoSampleRow("store", 20, "raw", "local", 1, 1.0, 10, 0.25)])
    catalog.flush()
    catalog.add_io_samples(
        [
            IoSampleRow("store", 20, "raw", "local", 1, 1.0, 10, 0.5),
            IoSampleRow("load", 20, "raw", "local", 1, 0.1, 10, 0.2),
        ]
    )
    catalog.flush()
    found = select(catalog, "select op, seconds, cpu_s, wait_s from io_samples order by op")
    assert found == [("load", 0.1, 0.2, 0.0), ("store", 2.0, 0.75, 1.25)]


def test_what_devices_give_is_measured_anew(catalog: Catalog) -> None:
    """A later profile takes the place of the one before, all in one step; other measures stay."""
    decoded = IoSampleRow("decode", 20, "h264", "source", 2, 0.5, 1000, 0.5)
    catalog.add_io_samples([decoded])
    reads = [IoSampleRow("read", 20, "", tier, 8, 1.0, 8 << 20) for tier in ("source", "local")]
    catalog.record_reads(reads, "profile", "one")
    catalog.record_reads([reads[1]], "profile", "two")
    catalog.flush()
    assert catalog.setting("profile") == "two"
    assert sorted(catalog.load_io_samples(), key=lambda row: row.op) == [decoded, reads[1]]
    catalog.record_reads([], "profile", "three")
    assert catalog.load_io_samples() == [decoded]


def test_events_of_one_second_are_one_row(catalog: Catalog) -> None:
    """Ten thousand hits are not ten thousand rows; other seconds and kinds are rows of their own."""
    row, _ = registered(catalog)
    catalog.add_events([EventRow("hit", row.task_id, bytes=10, seconds=0.5, at_s=100.25)] * 4)
    catalog.add_events([EventRow("hit", row.task_id, at_s=101.0), EventRow("miss", row.task_id, at_s=100.0)])
    catalog.flush()
    catalog.add_events([EventRow("error", object_id=5, detail="bad_video: x", at_s=102.0)])
    catalog.flush()
    found = select(catalog, "select kind, count, bytes, seconds from events order by at_s, event_id")
    assert found == [
        ("miss", 1, 0, 0.0),
        ("hit", 4, 40, 2.0),
        ("hit", 1, 0, 0.0),
        ("error", 1, 0, 0.0),
    ]
    assert select(catalog, "select count(distinct event_id) from events") == [(4,)]


def test_substitutions_are_rows(catalog: Catalog) -> None:
    """No gap is silent (law 1): each use of a policy can be queried."""
    row, ids = registered(catalog)
    given = SubstitutionRow(row.task_id, 0, 3, -1, ids[0], "replace", "bad_video: torn", ids[1], 12.5)
    catalog.add_substitutions([given])
    catalog.flush()
    found = select(catalog, "select sample, video, policy, replacement, reason, at_s from substitutions")
    assert found == [(-1, "0", "replace", "1", "bad_video: torn", 12.5)]


def test_settings_and_tiers_take_the_last_word(catalog: Catalog) -> None:
    """Both may change from run to run."""
    assert catalog.setting("seed") is None
    for value in ("1", "2"):
        catalog.set_setting("seed", value)
        catalog.set_tiers([TierRow("local", "/store", int(value) * 10)])
    assert catalog.setting("seed") == "2"
    assert select(catalog, "select tier, url, budget_bytes from tiers") == [("local", "/store", 20)]


def test_what_was_committed_is_there_after_reopening(where: str) -> None:
    """Closing commits what waits; leases of an owner that is gone are forgotten on DuckDB."""
    with Catalog.open(where) as catalog:
        row, ids = registered(catalog)
        generation = catalog.record_plan(plan(catalog, row, ids))
        catalog.mark_ready([copy(1)])
        catalog.hold([1], holder="worker 1", expires_at=1e12)
    with Catalog.open(where, create=False) as catalog:
        assert catalog.load_tasks() == [row]
        assert catalog.load_generations(row.task_id) == [generation]
        assert catalog.load_copies().num_rows == 1
        assert catalog.next_object_id(1) > generation.objects
        assert select(catalog, "select count(*) from leases") == [(0 if catalog.dialect == "duckdb" else 1,)]


def test_an_unknown_query_lists_the_known(catalog: Catalog) -> None:
    """A mistyped name shows what there is; wrong parameters show what it takes."""
    with pytest.raises(errors.NotFound, match="due_next"):
        catalog.query("due_nxt")
    with pytest.raises(errors.BadInput, match="window"):
        catalog.query("due_next", n=1)


def test_what_is_kept_may_be_decided_again(catalog: Catalog) -> None:
    """Flags follow the last decision; what clips are made from is recorded once, and forgotten when it is given up."""
    row, video_ids = registered(catalog, videos=2)
    recorded = plan(catalog, row, video_ids)
    catalog.record_plan(recorded)
    clips = [each["object_id"] for each in recorded.objects.to_pylist() if each["kind"] == "clip"]
    base = next(each["object_id"] for each in recorded.objects.to_pylist() if each["kind"] == "frames")

    def edges(children: list[int]) -> pa.Table:
        count = len(children)
        columns = {
            "parent_id": [base] * count,
            "child_id": children,
            "op": ["augment"] * count,
            "cost_s": [0.0] * count,
        }
        return pa.table(columns, schema=schemas.EDGE)

    def kept() -> set[object]:
        return {each for (each,) in select(catalog, "select object_id from objects where keep and kind = 'clip'")}

    def made_from_it() -> int:
        (generation,) = catalog.load_generations(row.task_id)
        found = catalog.load_plan(row.task_id, generation.number)
        assert found is not None
        return int(found.edges.to_pydict()["parent_id"].count(base))

    def flags(keep: bool) -> pa.Table:
        return pa.table({"object_id": clips, "keep": [keep] * len(clips)}, schema=schemas.KEEP)

    before = made_from_it()
    catalog.record_keeping(flags(False), edges(clips[:1] * 2))
    assert not kept()
    assert made_from_it() == before, "it was known, and given twice"
    catalog.record_keeping(flags(False), edges(clips[-1:] * 2))
    assert made_from_it() == before + 1
    catalog.record_keeping(flags(False), edges([]), [base])
    assert made_from_it() == 0
    catalog.keep_all(row.task_id, 0, 0)
    first = {each for (each,) in select(catalog, "select object_id from uses where epoch = 0")}
    assert kept() == first
    catalog.record_keeping(flags(True), edges([]))
    assert kept() == set(clips)


def test_measured_work_is_given_back_added_up(catalog: Catalog) -> None:
    """By kind, size, codec and tier."""
    catalog.add_io_samples(
        [IoSampleRow("load", 20, "raw", "local", 2, 0.5, 100), IoSampleRow("load", 20, "raw", "local", 1, 0.5, 50)]
    )
    catalog.flush()
    assert catalog.load_io_samples() == [IoSampleRow("load", 20, "raw", "local", 3, 1.0, 150)]
