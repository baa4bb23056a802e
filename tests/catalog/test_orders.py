"""Orders that are one row an epoch: both databases compute from it the very places that the materializer computes."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.catalog.samples import draws, plan, registered, select, task
from viewcache.catalog import Catalog
from viewcache.catalog.files import CatalogFiles
from viewcache.catalog.records import TaskRow
from viewcache.errors import CatalogDamaged, Misuse
from viewcache.materializer.planning.digests import computed_orders, record_orders
from viewcache.materializer.planning.order import draw_epoch

SEEDS = (0, 7, 2**63 + 11)


def _places(catalog: Catalog, row: TaskRow, epoch: int) -> list[object]:
    text = f"select item_id from order_places where task_id = {row.task_id} and epoch = {epoch} order by position"
    return [each for (each,) in select(catalog, text)]


def _some_ids(count: int, seed: int) -> NDArray[np.int64]:
    """Ids with gaps, not in their order, some beyond 32 bits."""
    random = np.random.default_rng(seed)
    ids = np.cumsum(random.integers(1, 3, count)).astype(np.int64)
    ids[count // 2 :] += 2**33
    return np.roll(ids, count // 3)


@pytest.mark.parametrize("count", [1, 2, 65, 3001])
def test_sql_gives_the_order_that_is_drawn(catalog: Catalog, count: int) -> None:
    """To the place, for seeds of more than 63 bits, ids with gaps and runs of one: on both databases."""
    row, _ = registered(catalog)
    for seed in SEEDS:
        catalog.forget_task(row.name)
        row = catalog.ensure_task(task(row.dataset_id))
        named = _some_ids(count, seed % 1000)
        made = record_orders(catalog, "train", row.task_id, seed, range(1, 4), named)
        for epoch, order in zip(range(1, 4), made, strict=True):
            assert order.tolist() == named[draw_epoch(seed, "train", epoch, count)].tolist()
            assert _places(catalog, row, epoch) == order.tolist()
        rows = catalog.load_draws(row.task_id, 2, 3)
        assert rows["position"].to_pylist() == [*range(count)] * 2
        assert rows["video_id"].to_pylist() == [*made[1].tolist(), *made[2].tolist()]
        computed = computed_orders(catalog, "train", row.task_id, range(3))
        assert {epoch: order.tolist() for epoch, order in computed.items()} == {
            1: made[0].tolist(),
            2: made[1].tolist(),
        }


def test_what_is_not_shuffled_stands_by_name(catalog: Catalog) -> None:
    """Without a word the order is the version's own."""
    row, ids = registered(catalog)
    named = np.array(ids[::-1])
    record_orders(catalog, "train", row.task_id, None, range(1), named)
    assert _places(catalog, row, 0) == named.tolist()
    assert computed_orders(catalog, "train", row.task_id, range(1))[0].tolist() == named.tolist()


def test_every_question_about_draws_is_answered(catalog: Catalog) -> None:
    """Epoch 0 has a row for each place, as an older release wrote it, and epochs 1 and 2 have one row each."""
    row, ids = registered(catalog)
    catalog.record_plan(plan(catalog, row, ids))
    catalog.record_draws(draws(row, 0, ids))
    made = record_orders(catalog, "train", row.task_id, 7, range(1, 3), np.array(ids))
    shown = select(catalog, "select epoch, item_id, video_id, video from draws order by epoch, position")
    wanted = [(0, each) for each in ids] + [(epoch, each) for epoch in (1, 2) for each in made[epoch - 1].tolist()]
    assert shown == [(epoch, each, each, str(each - ids[0])) for epoch, each in wanted]
    assert select(catalog, "select task, epoch, items from orders order by epoch") == [("train", 1, 4), ("train", 2, 4)]
    assert select(catalog, "select count(distinct version), count(distinct digest) from orders") == [(1, 2)]
    assert select(catalog, "select item_id from order_items order by place") == [(each,) for each in ids]
    assert select(catalog, "select epoch, count(*) from deadlines where drawn group by epoch order by epoch") == [
        (0, 8),
        (1, 8),
    ]
    assert [catalog.is_drawn(row.task_id, epoch) for epoch in range(4)] == [True, True, True, False]
    assert catalog.count_places(row.task_id, 0, 9) == 12
    assert catalog.count_places(row.task_id, 2, 2) == 4
    assert catalog.query("count_draws", task_id=row.task_id)["drawn"].to_pylist() == [12]
    assert [catalog.newest_drawn(row.task_id, epoch) for epoch in (0, 2, 3)] == [max(ids), max(ids), None]
    assert catalog.load_draw_rows(row.task_id, 0, 9).num_rows == 4
    assert catalog.load_draws(row.task_id, 0, 9).num_rows == 12


def test_what_was_drawn_first_and_by_whom(catalog: Catalog) -> None:
    """A version that came later has the items that joined; each item counts from the first epoch that has it."""
    row, ids = registered(catalog)
    record_orders(catalog, "train", row.task_id, 7, range(2), np.array(ids[:2]))
    record_orders(catalog, "train", row.task_id, 7, range(2, 4), np.array(ids[:3]))
    first = catalog.first_drawn(row.task_id)
    assert dict(zip(first["video_id"].to_pylist(), first["epoch"].to_pylist(), strict=True)) == {
        ids[0]: 0,
        ids[1]: 0,
        ids[2]: 2,
    }
    found = catalog.drawn_among(ids[1:])
    assert found.to_pylist() == [{"task_id": row.task_id, "task": "train", "video_id": each} for each in ids[1:3]]


def test_an_order_never_changes(catalog: Catalog) -> None:
    """The same may be recorded again; another one, single places of it, or one where places are rows, may not."""
    row, ids = registered(catalog)
    first = record_orders(catalog, "train", row.task_id, 7, range(1), np.array(ids))
    again = record_orders(catalog, "train", row.task_id, 7, range(1), np.array(ids))
    assert first[0].tolist() == again[0].tolist()
    for seed, items in ((8, ids), (7, ids[:3])):
        with pytest.raises(Misuse, match="epoch 0 has another order on record"):
            record_orders(catalog, "train", row.task_id, seed, range(1), np.array(items))
    with pytest.raises(Misuse, match="epoch 0 is recorded as a whole"):
        catalog.record_draws(draws(row, 0, ids))
    catalog.record_draws(draws(row, 1, ids))
    with pytest.raises(Misuse, match="epoch 1 has another order on record"):
        record_orders(catalog, "train", row.task_id, 7, range(1, 2), np.array(ids))
    assert _places(catalog, row, 0) == first[0].tolist()
    assert select(catalog, "select count(*) from order_items") == [(4,)]


def test_a_forgotten_task_leaves_no_order(catalog: Catalog) -> None:
    """Its orders go, and its versions unless another task has them."""
    row, ids = registered(catalog)
    other = catalog.ensure_task(task(row.dataset_id, "other"))
    record_orders(catalog, "train", row.task_id, 7, range(1), np.array(ids))
    record_orders(catalog, "train", row.task_id, 7, range(1, 2), np.array(ids[:2]))
    record_orders(catalog, "other", other.task_id, 7, range(1), np.array(ids))
    catalog.forget_task("train")
    assert select(catalog, "select task, epoch from orders") == [("other", 0)]
    assert select(catalog, "select count(*) from order_items") == [(4,)]
    catalog.forget_task("other")
    assert select(catalog, "select count(*) from order_items") == [(0,)]


@pytest.mark.parametrize(
    "change",
    [
        "update epoch_order set word = word + 1",
        "update epoch_order set digest = '00'",
        "update version_run set first_id = first_id + 1",
        "delete from version_run",
        "update version_run set items = items - 1",
    ],
)
def test_a_changed_row_is_noticed(folder: Path, change: str) -> None:
    """What is computed of changed rows is another order, and is refused with a way on."""
    import duckdb

    with Catalog.open(folder) as catalog:
        row, ids = registered(catalog)
        record_orders(catalog, "train", row.task_id, 7, range(2), np.array(ids))
    with duckdb.connect(str(CatalogFiles(folder).database)) as connection:
        connection.execute(change)
    refused = pytest.raises(CatalogDamaged, match=r"epoch 0 of task 'train'.*viewcache forget … train")
    with Catalog.open(folder) as catalog, refused:
        computed_orders(catalog, "train", row.task_id, range(2))


def test_a_rebuilt_catalog_has_the_orders(folder: Path) -> None:
    """The journal has one line for the orders of a generation, and gives them back; also when it was written anew."""
    with Catalog.open(folder) as catalog:
        row, ids = registered(catalog)
        made = record_orders(catalog, "train", row.task_id, 7, range(3), np.array(ids))
    layout = CatalogFiles(folder)
    assert sum(b"upsert_orders" in line for line in layout.journal.read_bytes().splitlines()) == 1
    for _ in range(2):
        layout.database.unlink()
        with Catalog.open(folder) as catalog:
            computed = computed_orders(catalog, "train", row.task_id, range(3))
            assert [computed[epoch].tolist() for epoch in range(3)] == [order.tolist() for order in made]
            assert select(catalog, "select count(*) from draws") == [(12,)]
        with Catalog.open(folder) as catalog:  # a journal that is not of this catalog is written anew from its rows
            catalog.set_setting("journal", "another")
        Catalog.open(folder).close()
