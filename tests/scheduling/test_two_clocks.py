"""The dispatcher and the simulation decide the same: both are given one state, and their jobs are compared."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.scheduling.harness import WAIT_S, Harness, Reading, ScriptedPool, until
from viewcache.catalog.records import ProgressRow
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.scheduling.keeping import Keeping
from viewcache.materializer.scheduling.work import Demand, Position
from viewcache.materializer.simulation import simulated_dispatcher, simulated_store
from viewcache.materializer.simulation.simulated_dispatcher import SimulatedDispatcher, SimulatedWorker
from viewcache.materializer.simulation.simulated_store import SimulatedStore
from viewcache.materializer.simulation.simulated_uses import UseTrace, section_of, trace_of
from viewcache.store import ArrayMeta, LocalTier, write_object

ONE_CLIP: dict[str, Any] = {"videos_per_batch": 1, "samples_per_video": 1, "epochs": 4, "epochs_per_generation": 4}
"""Four videos, sixteen clips, each a batch of its own."""


class Recorded(SimulatedDispatcher):
    """A simulated dispatcher whose one worker does a job when the test says so."""

    def __init__(self, trace: UseTrace, store: SimulatedStore, reserve: int) -> None:
        self.given: list[list[int]] = []
        """The clips of all jobs so far, in the order in which they are made."""
        self._due: tuple[float, SimulatedWorker] = 0.0, SimulatedWorker()
        super().__init__(trace, store, CostModel(), 1 << 28, reserve, 0.0, 1, self._note_due)

    def _note_due(self, when: float, worker: SimulatedWorker, turn: int) -> None:
        self._due = when, worker

    def _submit(self, number: int) -> bool:
        self.given.append([item for item, _ in self._jobs[number].items if isinstance(item, int)])
        return super()._submit(number)

    def do_job(self) -> None:
        """Make all of the job that is running."""
        now, worker = self._due
        while worker.jobs:
            now = max(now, self._due[0])
            self.step(worker, now)


def clip_bytes(folder: Path, harness: Harness) -> int:
    """What a clip takes on disk."""
    recipe = harness.active.recipe(0)
    tier, meta = LocalTier(folder / "one", 1 << 20), ArrayMeta(recipe.shape, recipe.shape, "raw", {})
    return write_object(tier.root, recipe.key, np.full(recipe.shape, 7, np.uint8), meta).bytes


class Both:
    """One generation in a real dispatcher over a scripted pool, and the same in a simulation."""

    def __init__(self, harness: Harness, pool: ScriptedPool, clip_bytes: int) -> None:
        self.harness, self.pool = harness, pool
        task, active = harness.task, harness.active
        section = section_of(0, active, task.index_of(active.plan))
        self.trace = trace_of([[section]])
        self.reading = simulated_store.SimulatedGeneration(self.trace, section, Position(0, 0, 1.0))
        uses = [[] for _ in self.trace.clips.video]  # type: list[list[tuple[float, simulated_store.SimulatedGeneration, int]]]
        for rank, clip in enumerate(self.reading.clips):
            uses[clip].append((self.reading.due_in_s(rank), self.reading, rank))
        budget = harness.tier.budget_bytes
        self.store = SimulatedStore(budget, [clip_bytes] * len(uses), uses)
        self.simulated = Recorded(self.trace, self.store, harness.dispatcher.demand_reserve)
        self.simulated.state.ahead = [self.reading]
        self.rows = section.rows.tolist()
        self.waiting: list[tuple[Reading, Demand[simulated_store.Item]]] = []

    def keep(self, clips: "np.ndarray", window: int, free_bytes: int) -> None:
        """Keep some clips of both."""
        self.harness.active.keep(Keeping(clips, window, free_bytes))
        self.reading.keep(Keeping(clips[self.rows], window, free_bytes))

    def begin(self) -> None:
        """Let both look for work."""
        self.harness.dispatcher.look_ahead([self.harness.active])
        self.simulated.dispatch(0.0)

    def wait_for(self, ranks: list[int]) -> None:
        """A reader waits for some clips in both."""
        reading, demand = (
            Reading(self.harness, [self.rows[rank] for rank in ranks]),
            Demand(self.reading, ranks),
        )
        if all(self.reading.key(rank) in self.store.ready for rank in ranks):
            assert reading.end() is None
        else:
            self.waiting.append((reading, demand))
            self.simulated.state.demands.append(demand)
        self.look_again()

    def had(self, position: Position) -> None:
        """The task's reader has come to a position."""
        seq = position.epoch * self.harness.active.iterations + position.iteration
        progress = ProgressRow(self.harness.task.task_id, 0, *position.place, seq, position.pace_s)
        self.harness.catalog.advance(progress)
        self.harness.dispatcher.progressed(self.harness.active, position)
        self.reading.at(position)
        for item in self.store.ready:
            self.store.note(item)
        self.look_again()

    def look_again(self) -> None:
        """As the dispatcher does by itself, the simulation looks for work."""
        self.simulated.full = False
        self.simulated.dispatch(0.0)

    def do_job(self, number: int) -> None:
        """Both do their job; who has what he waits for goes."""
        job = self.pool.nth(number)
        self.pool.make(job)
        self.simulated.do_job()
        until(lambda: all(map(self.harness.ledger.has, job.keys)), "the clips to be counted")
        for each in list(self.waiting):
            reading, demand = each
            if all(self.reading.key(row) in self.store.ready for row in demand.rows):
                assert reading.end() is None
                self.waiting.remove(each)
                self.simulated.state.demands.remove(demand)
        self.pool.end(job)
        self.look_again()

    def compare(self, jobs: int) -> None:
        """Assert that both have given out the same jobs, and as many."""
        if len(self.simulated.given) < jobs:
            assert self.harness.dispatcher.wait_idle(WAIT_S), "the simulation has no more to do, but the dispatcher has"
        names = [tuple(self.harness.active.key(self.rows[self.reading.clips.index(c)]) for c in each)
                 for each in self.simulated.given]  # fmt: skip
        until(lambda: len(self.pool.given) >= len(names), "the dispatcher to do what the simulation does")
        assert [job.keys for job in self.pool.given] == names


@pytest.mark.parametrize("second", [1, 4])
@pytest.mark.parametrize("kept", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("clips", [4, 7, 10, 16])
def test_both_drivers_decide_the_same(
    tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch, clips: int, kept: float, second: int
) -> None:
    """Look-ahead, readers elsewhere, a reader that moves on, and room for a part: job for job the same clips.

    The second reader waits with the first one, whose clips may not leave for it, or when the first one has gone.
    One worker pauses nothing here, since a scripted one cannot. A batch is one clip: of two that are due at the same
    time the policy and the simulation may each evict another one.
    """
    monkeypatch.setattr(simulated_dispatcher, "DEPTH", 1)
    pool = ScriptedPool()
    with Harness(tmp_path / "store", videos, pool, **ONE_CLIP) as harness:
        bound = harness.bound
        harness.tier.resize(clips * bound)
        harness.dispatcher.leave_to_readers(bound)
        both = Both(harness, pool, clip_bytes(tmp_path, harness))
        count, chance = len(harness.active.plan), np.random.default_rng(clips)
        if kept < 1:
            both.keep(chance.random(count) < kept, 3, 2 * bound)
        both.begin()
        number = 0
        for step in range(12):
            both.compare(step + 1)
            if step == 1:
                both.wait_for([count - 1, count - 2, 3])
            if step == second:
                both.wait_for([9, 7])
            if step == 3:
                both.had(Position(1, 1, 1.0))
            if number < len(both.simulated.given):
                both.do_job(number)
                number += 1
        assert not both.waiting
        assert number >= 4
