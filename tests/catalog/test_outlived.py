"""What nothing wants any more while training goes on, against the definition in Python, on both databases."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

from tests.catalog.samples import copy, plan, registered, video
from viewcache.catalog import Catalog, schemas
from viewcache.catalog.kinds import ObjectKind
from viewcache.catalog.records import WENT_WHILE_OPEN, ObjectRow, ProgressRow, TaskRow, VideoStatus
from viewcache.catalog.rows import object_table

K, EPOCHS, VIDEOS = 2, 8, 3
PER_EPOCH = 2
"""Batches."""


@dataclass(slots=True)
class Asked:
    """An object's uses by one task, itself and by what is made from it."""

    task_id: int
    last_epoch: int
    """Of the task."""


@dataclass(slots=True)
class Walk:
    """A random history of tasks that join, read and share clips, told to the catalog and kept here."""

    catalog: Catalog
    random: random.Random
    tasks: list[TaskRow] = field(default_factory=list)
    videos: list[int] = field(default_factory=list)
    joined: dict[int, int] = field(default_factory=dict)
    planned: dict[int, int] = field(default_factory=dict)
    at: dict[int, int] = field(default_factory=dict)
    """Task → epoch of the next batch that it needs."""
    readers: dict[int, int] = field(default_factory=dict)
    """Task → epoch that a reader of this run is in; where it was recorded last may be another."""
    clips: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """Video, epoch of the group and sample → the clip, where one task has planned it."""
    kinds: dict[int, str] = field(default_factory=dict)
    parents: dict[int, set[int]] = field(default_factory=dict)
    """Clip → pictures that it is made from."""
    uses: dict[int, list[Asked]] = field(default_factory=dict)
    """Of clips, by themselves."""
    asked: dict[int, list[Asked]] = field(default_factory=dict)
    copies: set[int] = field(default_factory=set)
    expected: set[int] = field(default_factory=set)

    def begin(self, names: tuple[str, ...]) -> None:
        for name in names:
            row, self.videos = registered(self.catalog, VIDEOS, name)
            row = self.catalog.ensure_task(replace(row, epochs=EPOCHS))
            self.tasks.append(row)
            self.planned[row.task_id] = 0
            self.joined[row.task_id] = self.random.choice([0, 0, K])

    def step(self) -> None:
        self.random.choice([self.plan, self.make, self.make, self.read, self.read, self.back, self.expect])()
        self.catalog.flush()

    def plan(self) -> None:
        row = self.random.choice(self.tasks)
        number, joined = self.planned[row.task_id], self.joined[row.task_id]
        if number == EPOCHS // K:
            return
        self.planned[row.task_id] += 1
        given = plan(self.catalog, row, self.videos, number, K)
        uses, edges = given.uses.to_pylist(), given.edges.to_pylist()
        shared = {}
        for use in uses:
            place = self.videos[use["position"]], use["epoch"] + joined, use["sample"]
            shared[use["object_id"]] = use["object_id"] = self.clips.setdefault(place, use["object_id"])
        fresh = [
            each for each in given.objects.to_pylist() if shared.get(each["object_id"]) in (None, each["object_id"])
        ]
        edges = [each | {"child_id": shared[each["child_id"]]} for each in edges]
        generation = replace(given.generation, group_epoch=given.generation.first_epoch + joined)
        tables = pa.Table.from_pylist(fresh, schemas.OBJECT), pa.Table.from_pylist(edges, schemas.EDGE)
        self.catalog.record_plan(
            replace(
                given,
                generation=generation,
                objects=tables[0],
                edges=tables[1],
                uses=pa.Table.from_pylist(uses, schemas.USE),
            )
        )
        last = number * K + K - 1
        for each in fresh:
            self.kinds[each["object_id"]] = each["kind"]
            self.asked.setdefault(each["object_id"], []).append(Asked(row.task_id, last))
        for edge in edges:
            self.parents.setdefault(edge["child_id"], set()).add(edge["parent_id"])
            self.asked[edge["parent_id"]] += self.uses.get(edge["child_id"], [])
        for use in uses:
            asked = Asked(row.task_id, use["epoch"])
            self.uses.setdefault(use["object_id"], []).append(asked)
            for object_id in (use["object_id"], *self.parents.get(use["object_id"], ())):
                self.asked[object_id].append(asked)

    def make(self) -> None:
        for object_id in self.random.sample(sorted(self.kinds), min(len(self.kinds), 10)):
            self.catalog.mark_ready([copy(object_id)])
            self.copies.add(object_id)

    def read(self) -> None:
        row = self.random.choice(self.tasks)
        most = min(EPOCHS, self.planned[row.task_id] * K)
        epoch = self.at[row.task_id] = min(self.at.get(row.task_id, 0) + self.random.randint(0, 2), most)
        for part in range(2):  # the slower one of two ranks counts
            place = epoch + part, 0, (epoch + part) * PER_EPOCH
            self.catalog.advance(ProgressRow(row.task_id, part, *place, 1.0, seen_at=1.0))

    def back(self) -> None:
        """A reader goes on from a checkpoint."""
        row = self.random.choice(self.tasks)
        self.readers[row.task_id] = self.random.randrange(EPOCHS)

    def going(self) -> dict[int, tuple[int | None, bool]]:
        """What is said of the tasks that are open."""
        mine = [row.task_id for row in self.tasks if self.random.random() < 0.8]
        return {each: (self.readers.get(each), self.random.random() < 0.8) for each in mine}

    def expect(self) -> None:
        pictures = [each for each, kind in self.kinds.items() if kind != "clip"]
        self.expected = set(self.random.sample(pictures, len(pictures) // 3))
        self.catalog.expect_uses(dict.fromkeys(self.expected, 5))

    # What the definition says --------------------------------------------------------------------------------------

    def present(self, going: dict[int, tuple[int | None, bool]]) -> Iterator[tuple[TaskRow, int]]:
        """The tasks that go on, and where the generation begins that each is in."""
        for row in self.tasks:
            epoch = self.at.get(row.task_id, 0)
            reader, _ = going.get(row.task_id, (None, False))
            epoch = epoch if reader is None else min(epoch, reader)
            if self.planned[row.task_id] and epoch < EPOCHS:
                yield row, epoch - epoch % K if epoch < self.planned[row.task_id] * K else epoch

    def outlived(self, going: dict[int, tuple[int | None, bool]]) -> set[int]:
        begins = {row.task_id: epoch for row, epoch in self.present(going)}
        read = self.at.keys() | {each for each, (epoch, _) in going.items() if epoch is not None}
        open_ = [epoch + self.joined[each] for each, epoch in begins.items() if each in going and each in read]
        weighed = all(going.get(each, (None, False))[1] for each in begins)
        found = set()
        for object_id in self.copies - self.expected if open_ else ():
            past = all(
                each.last_epoch + self.joined[each.task_id] < min(open_)
                and each.last_epoch < begins.get(each.task_id, EPOCHS)
                for each in self.asked[object_id]
            )
            if past and (self.kinds[object_id] == "clip" or weighed):
                found.add(object_id)
        return found


@pytest.mark.parametrize("seed", range(6))
def test_it_is_what_the_definition_says(catalog: Catalog, seed: int) -> None:
    """After any history; and whatever it is, no use to come wants it, and the oldest comes first."""
    walk = Walk(catalog, random.Random(seed))
    walk.begin(("train", "val", "third"))
    some = 0
    for _ in range(80):
        walk.step()
        going = walk.going()
        rows = catalog.outlived([(task_id, *said) for task_id, said in going.items()])
        found = rows["object_id"].to_pylist()
        assert set(found) == walk.outlived(going)
        assert rows["last_epoch"].to_pylist() == sorted(rows["last_epoch"].to_pylist())
        assert not catalog.wanted_among(found)
        some += len(found)
    assert some, "the history has something to find"


def test_what_went_while_it_was_open_stays(catalog: Catalog) -> None:
    """Of a file that went while the cache was open, until it is back; what an opening said of a file stays said."""
    row, ids = registered(catalog)
    row = catalog.ensure_task(replace(row, epochs=EPOCHS))
    given = plan(catalog, row, ids, 0, K)
    catalog.record_plan(given)
    of_video = {each["object_id"]: each["video_id"] for each in given.objects.to_pylist()}
    catalog.mark_ready([copy(each) for each in of_video])
    catalog.advance(ProgressRow(row.task_id, 0, K, 0, K * PER_EPOCH, 1.0))

    def over() -> set[int]:
        catalog.flush()
        found: set[int] = set(catalog.outlived([(row.task_id, None, True)])["object_id"].to_pylist())
        assert catalog.lost_among(list(of_video)) == of_video.keys() - found
        return {of_video[each] for each in found}

    assert over() == set(ids)
    catalog.mark_missing(ids[:2])
    catalog.mark_missing([])
    assert over() == set(ids[2:])
    told = catalog.load_videos(row.dataset_id)
    assert told["status"].to_pylist() == ["gone", "gone", "ok", "ok"]
    assert told["error"].to_pylist() == [WENT_WHILE_OPEN, WENT_WHILE_OPEN, None, None]
    catalog.mark_missing(ids[:2])
    catalog.mark_missing(ids[1:], missing=False)  # the last word counts
    assert over() == set(ids[1:])
    catalog.upsert_videos(row.dataset_id, [replace(video(3), status=VideoStatus.GONE, error="the file is gone")])
    catalog.upsert_videos(row.dataset_id, [replace(video(2), status=VideoStatus.BAD, error="no packets")])
    catalog.mark_missing(ids, missing=False)
    assert over() == set(ids[:2])
    catalog.mark_missing(ids)
    assert over() == set()
    errors = catalog.load_videos(row.dataset_id)["error"].to_pylist()
    assert errors == [WENT_WHILE_OPEN, WENT_WHILE_OPEN, "no packets", "the file is gone"]


def test_what_has_no_past_stays(catalog: Catalog) -> None:
    """A frame that was asked for by its path belongs to no generation; an object of a kind to come is not known."""
    row, ids = registered(catalog)
    row = catalog.ensure_task(replace(row, epochs=EPOCHS))
    for number in range(2):
        catalog.record_plan(plan(catalog, row, ids, number, K))
    first = catalog.next_object_id(1)
    single = ObjectRow(
        object_id=first,
        key=f"{first:032x}",
        kind=ObjectKind.FRAMES,
        video_id=ids[0],
        depth=0,
        est_bytes=1,
        cost_s=0.0,
        keep=False,
        shape="1",
        frame_start=3,
        frame_stride=1,
        frame_count=1,
    )
    catalog.record_objects(object_table([single]))
    catalog.mark_ready([copy(first), copy(first, tier="remote"), copy(1), copy(1, tier="remote")])
    catalog.advance(ProgressRow(row.task_id, 0, K, 0, K * PER_EPOCH, 1.0))
    catalog.flush()
    rows = catalog.outlived([(row.task_id, None, True)]).to_pylist()
    assert [(each["object_id"], each["tier"]) for each in rows] == [(1, "local"), (1, "remote")], "of every tier"


def test_what_cannot_be_made_again_stays(catalog: Catalog) -> None:
    """A clip that was read is all there is of a video that is gone: who goes back finds it."""
    row, ids = registered(catalog)
    row = catalog.ensure_task(replace(row, epochs=EPOCHS))
    given = plan(catalog, row, ids, 0, K)
    catalog.record_plan(given)
    catalog.mark_ready([copy(each) for each in given.objects["object_id"].to_pylist()])
    catalog.upsert_videos(row.dataset_id, [video(0, status="gone")])
    catalog.advance(ProgressRow(row.task_id, 0, K, 0, K * PER_EPOCH, 1.0))
    catalog.flush()
    found = set(catalog.outlived([(row.task_id, None, True)])["object_id"].to_pylist())
    of_video = {each["object_id"]: each["video_id"] for each in given.objects.to_pylist()}
    assert {of_video[each] for each in found} == set(ids[1:])


@pytest.mark.parametrize("there", [True, False])
def test_pictures_that_were_given_up_stay_until_others_are_there(catalog: Catalog, there: bool) -> None:
    """The keeper keeps a video in another way now: the old pictures are what the new ones are made from."""
    row, ids = registered(catalog)
    row = catalog.ensure_task(replace(row, epochs=EPOCHS))
    catalog.record_plan(plan(catalog, row, ids, 0, K))
    old = catalog.next_object_id(2)
    new = old + 1
    both = [
        ObjectRow(
            object_id=each,
            key=f"{each:032x}",
            kind=ObjectKind.AUG,
            video_id=ids[0],
            depth=1,
            est_bytes=1,
            cost_s=0.0,
            keep=each == new,
            shape="2",
            frame_list=[0, 1],
        )
        for each in (old, new)
    ]
    catalog.record_objects(object_table(both))
    catalog.expect_uses({new: 3})
    catalog.mark_ready([copy(each) for each in ((old, new) if there else (old,))])
    catalog.flush()
    assert catalog.outlived([(row.task_id, 0, True)])["object_id"].to_pylist() == ([old] if there else [])
    assert not catalog.outlived([(row.task_id, 0, False)]).num_rows, "it is not known what the task needs"


@pytest.mark.parametrize(("kept", "leaves"), [(range(4), True), (range(3), False), ((), False)])
def test_packs_that_were_given_up_stay_until_all_images_lie_elsewhere(
    catalog: Catalog, kept: Sequence[int], leaves: bool
) -> None:
    """A pack has pictures of many images: it leaves when each of them lies in a pack that is kept now."""
    row, ids = registered(catalog)
    row = catalog.ensure_task(replace(row, epochs=EPOCHS))
    catalog.record_plan(plan(catalog, row, ids, 0, K))
    keys = catalog.load_videos(row.dataset_id)["key"].to_pylist()
    old = catalog.next_object_id(3)
    new = [old + 1, old + 2]
    packs = [
        ObjectRow(
            object_id=each,
            key=f"{each:032x}",
            kind=ObjectKind.PACK,
            video_id=None,
            depth=1,
            est_bytes=1,
            cost_s=0.0,
            keep=each in new,
            shape="2",
        )
        for each in (old, *new)
    ]
    catalog.record_objects(object_table(packs))
    of_pack = {old: range(4), new[0]: [each for each in kept if each < 2], new[1]: [each for each in kept if each >= 2]}
    parts = [
        {"object_id": each, "place": place, "key": f"{each}.{place}", "video_key": keys[image], "first_byte": place}
        for each, images in of_pack.items()
        for place, image in enumerate(images)
    ]
    catalog.record_packs(pa.Table.from_pylist(parts, schema=schemas.PACK_PART))
    catalog.expect_uses(dict.fromkeys(new, 3))
    catalog.mark_ready([copy(each) for each in (old, *new)])
    catalog.flush()
    assert catalog.outlived([(row.task_id, 0, True)])["object_id"].to_pylist() == ([old] if leaves else [])
    assert not catalog.outlived([(row.task_id, 0, False)]).num_rows, "it is not known what the task needs"
    assert not catalog.outlived([(row.task_id, None, True)]).num_rows, "nobody has read"
