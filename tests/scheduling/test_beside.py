"""What a cache takes of cores whatever is kept: by the batch, of the last stretch, without its beginning.

What the catalog is told of it is what `viewcache plan` counts in.
"""

from pathlib import Path

import pytest

import viewcache
from tests.tiny import config, encode_folder
from viewcache.api.queries.ask import ask
from viewcache.catalog import Catalog
from viewcache.catalog.records import IoSampleRow
from viewcache.materializer.clock import BEGINNING, OTHER
from viewcache.materializer.planning.cost import BATCH_S, BEGIN_S, CostModel
from viewcache.materializer.telemetry.beside import LEAST_BATCHES, Beside
from viewcache.materializer.telemetry.usage import PLANNER, READER, SERVE, WORKER


def test_a_stretch_is_counted_by_the_batch() -> None:
    """Nothing is known before a stretch of some batches; then what the last one took, a batch."""
    taken = {(PLANNER, "plan"): 5.0}
    beside = Beside(lambda: taken)
    assert beside.batch_s() == 0.0
    beside.read()
    taken[PLANNER, "plan"] = 9.0  # the cache was opened and its workers started
    assert beside.batch_s() == 0.0
    for stretch_s in (2.0, 1.0):
        for _ in range(LEAST_BATCHES):
            beside.read()
        taken[PLANNER, "plan"] += stretch_s
        assert beside.batch_s() == stretch_s / LEAST_BATCHES
    beside.read()
    taken[PLANNER, "plan"] += 50.0
    assert beside.batch_s() == 1.0 / LEAST_BATCHES  # one batch is no stretch


def test_what_is_weighed_or_of_others_is_left_out() -> None:
    """Stages of workers and the loads of readers are costs of ways; the rest of a training's process is its own."""
    taken = dict.fromkeys(
        [(PLANNER, "catalog"), (PLANNER, SERVE), (READER, "wait"), (WORKER, OTHER), (WORKER, "trial")], 0.0
    )
    left_out = dict.fromkeys([(WORKER, "decode"), (WORKER, "load"), (READER, "load"), (READER, OTHER)], 0.0)
    beside = Beside(lambda: taken | left_out)
    beside.read()
    beside.batch_s()
    for _ in range(LEAST_BATCHES):
        beside.read()
    for stage in left_out:
        left_out[stage] += 100.0
    assert beside.batch_s() == 0.0
    for stage in taken:
        taken[stage] += 1.0
    for _ in range(LEAST_BATCHES):
        beside.read()
    assert beside.batch_s() == len(taken) / LEAST_BATCHES


def test_the_catalog_is_told_how_a_run_began_and_what_each_batch_took_then() -> None:
    """Both once; a run that ends while it begins tells nothing, since nobody knows what a batch of it takes."""
    taken = {(PLANNER, "plan"): 3.0}
    beside = Beside(lambda: taken)
    for _ in range(BEGINNING - 1):
        beside.read()
    assert beside.news() == []
    beside.read()
    taken[PLANNER, "plan"] = 4.0
    assert beside.news() == [IoSampleRow("begin", 0, "", "", 1, 3.0, 0, 3.0)]
    for _ in range(8):
        beside.read()
    taken[PLANNER, "plan"] = 5.0
    for _ in range(4):
        beside.read()
    early, late = (IoSampleRow("batch", bits, "", "", n, 1.0, 0, 1.0) for bits, n in ((3, 8), (4, 4)))
    assert beside.news() == [early, late], "those behind the sixteenth are told apart"
    assert beside.news() == []


def test_what_was_taken_before_a_batch_came_is_told_with_it() -> None:
    """A look between two batches loses nothing."""
    taken = {(PLANNER, "plan"): 0.0}
    beside = Beside(lambda: taken)
    for _ in range(BEGINNING):
        beside.read()
    beside.news()
    taken[PLANNER, "plan"] = 0.5
    assert beside.news() == []
    beside.read()
    assert beside.news() == [IoSampleRow("batch", 3, "", "", 1, 0.5, 0, 0.5)]


def test_it_is_guessed_until_it_was_measured() -> None:
    """The first epochs have the beginning in them, later ones their batches alone."""
    assert CostModel().beside_s(BEGINNING + 10, begins=True) == pytest.approx(BEGIN_S + 10 * BATCH_S)
    assert CostModel().beside_s(10, begins=False) == pytest.approx(10 * BATCH_S)
    assert CostModel().beside_s(1, begins=True) == BEGIN_S
    rows = [IoSampleRow("begin", 0, "", "", 2, 3.0, 0, 3.0), IoSampleRow("batch", 4, "", "", 50, 10.0, 0, 10.0)]
    measured = CostModel.measured(rows)
    assert (measured.begin_s, measured.batch_s) == (1.5, 0.2)
    assert not measured.moved(CostModel())
    later = [IoSampleRow("batch", bits, "", "", n, 1.0, 0, 1.0) for bits, n in ((3, 8), (5, 10), (6, 10))]
    assert CostModel.measured([*rows, *later]).batch_s == 0.1, "late ones say what late ones take"


def test_a_run_is_counted_whole(tmp_path: Path) -> None:
    """What the catalog has of the beginning and of each batch is what `usage` has of the same work."""
    videos = encode_folder(tmp_path / "videos", {f"v{k}.mp4": 40 + k for k in range(4)})
    with viewcache.open(config(tmp_path / "store", videos, epochs=8, cache={"budget": 3_000_000})) as cache:
        batches = 0
        for epoch in range(8):
            for iteration in range(cache.task("train").iterations(epoch)):
                cache.read("train", epoch, iteration)
                batches += 1
    with Catalog.open(tmp_path / "store", create=False) as catalog:
        rows = [row for row in catalog.load_io_samples() if row.op in ("begin", "batch")]
    beside = "class = 'planner' or class = 'worker' and stage in ('other', 'trial')"
    beside += " or class = 'reader' and stage not in ('load', 'other')"
    ((spent_s,),) = ask(str(tmp_path / "store"), f"select sum(cpu_s) from usage where {beside}").rows
    assert sum(row.n for row in rows if row.op == "begin") == 1
    assert sum(row.n for row in rows if row.op == "batch") == batches - BEGINNING
    assert sum(row.seconds for row in rows) == pytest.approx(spent_s, rel=0.1, abs=0.05)
