"""What status says that an epoch has cost, and what was expected: of rows that a test wrote, and of a real cache."""

from pathlib import Path

import pytest

import viewcache
from tests.catalog.conftest import catalog, duckdb_template, postgres_template, server, where
from tests.catalog.samples import plan, registered, select
from tests.tiny import config, encode_folder, make_decoding_dear
from viewcache.api.cli.tables import status_tables
from viewcache.api.queries.ask import question
from viewcache.api.queries.status import Status, status
from viewcache.catalog import Catalog
from viewcache.catalog.records import EventRow

__all__ = ["catalog", "duckdb_template", "postgres_template", "server", "where"]


def of_epochs(opened: Catalog) -> list[tuple[object, ...]]:
    """What status says."""
    return select(opened, question("status_epochs"))


def ended(opened: Catalog, task_id: int, epoch: int, seconds: float, at_s: float) -> None:
    """Readers of a task are through with an epoch; ``seconds`` of work since any task's was."""
    opened.add_events([EventRow("epoch", task_id, seconds=seconds, detail=str(epoch), at_s=at_s)])
    opened.flush()


def test_an_epoch_costs_what_all_tasks_took_meanwhile(catalog: Catalog) -> None:
    """Two tasks in turn: what is done for both counts in the epochs of both; a forecast is compared with its own."""
    (train, ids), (val, _) = registered(catalog, name="train"), registered(catalog, name="val")
    for number in range(2):
        catalog.record_plan(plan(catalog, train, ids, number))
    catalog.record_plan(plan(catalog, val, ids, 0))
    assert of_epochs(catalog) == [], "nothing was read"
    forecasts = [(train, "0", 3.0), (train, "1", 9.0), (train, "1", 10.0)]
    for n, (row, named, seconds) in enumerate(forecasts):
        catalog.add_events([EventRow("forecast", row.task_id, seconds=seconds, detail=named, at_s=10.0 + n)])
    ended(catalog, train.task_id, 0, 4.0, 20.0)
    ended(catalog, val.task_id, 0, 1.0, 21.0)
    ended(catalog, train.task_id, 1, 2.0, 22.0)
    names = ["task", "epochs", "epoch_s", "generation", "generation_epoch_s", "expected_s", "ratio"]
    found = [dict(zip(names, row, strict=True)) for row in of_epochs(catalog)]
    assert found[0] == dict(zip(names, ["train", 2, 3.5, 0, 3.5, 3.0, 3.5 / 3.0], strict=True))
    assert found[1] == dict(zip(names, ["val", 1, 1.0, None, None, None, None], strict=True)), "half a generation"
    ended(catalog, train.task_id, 2, 8.0, 23.0)
    ended(catalog, train.task_id, 3, 12.0, 24.0)
    found = [dict(zip(names, row, strict=True)) for row in of_epochs(catalog)]
    assert found[0] == dict(zip(names, ["train", 4, 6.75, 1, 10.0, 10.0, 1.0], strict=True))


def test_a_cache_counts_its_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All seconds of workers and readers are in some epoch, also after a restart; both forms of status show it."""
    make_decoding_dear(monkeypatch)
    videos = encode_folder(tmp_path / "videos", {f"v{k}.mp4": 40 + k for k in range(4)})
    one = config(tmp_path / "store", videos, epochs=6, cache={"budget": 3_000_000})
    spent = 0.0
    for epochs in (range(3), range(3, 5)):
        with viewcache.open(one) as cache:
            for epoch in epochs:
                for iteration in range(2):
                    cache.read("train", epoch, iteration)
            cache.owner.look_ahead.wait_idle()
            assert cache.owner.dispatcher is not None
            assert cache.owner.dispatcher.wait_idle(60)
            tally = cache.owner.dispatcher.tally
            spent += sum(tally.busy.values()) + cache.task("train").spent.loaded_s - tally.spent_s()
    found = status(str(tmp_path / "store"))
    (row,) = found.parts["epochs"]
    assert row["epochs"] == 5
    assert row["generation"] == 1
    assert float(str(row["epoch_s"])) * 5 == pytest.approx(spent)
    assert float(str(row["expected_s"])) > 0
    assert found.as_dict()["epochs"] == [row]
    title, heads, rows = status_tables(found)[1]
    assert title == "core seconds of an epoch"
    assert len(rows) == 1
    assert len(rows[0]) == len(heads)


def test_what_is_not_known_is_left_out() -> None:
    """No generation was read whole, or nothing was expected of it: the table has the average alone."""
    row = {"task": "t", "epochs": 1, "epoch_s": 2.0, "generation": None}
    row |= dict.fromkeys(("generation_epoch_s", "expected_s", "ratio"))
    parts: dict[str, list[dict[str, object]]] = {
        name: [] for name in ("tasks", "objects", "tiers", "residents", "passing", "waiting", "changes", "errors")
    }
    _, _, rows = status_tables(Status({**parts, "epochs": [row]}, "", counts_memory=True))[1]
    assert rows == [("t", 1, "2 s", "", "", "")]
