"""What a cache takes of cores whatever is kept: by the batch, of the last stretch, without its beginning."""

from viewcache.materializer.clock import OTHER
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
    taken = dict.fromkeys([(PLANNER, "catalog"), (PLANNER, SERVE), (READER, "wait"), (WORKER, OTHER)], 0.0)
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
