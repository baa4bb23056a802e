"""Simulated reading: what more room never makes worse, what holds at every step, and what is made once."""

from collections.abc import Hashable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.invented import index_of, plan_of, task_of, videos_of
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.retention.chosen import KeepSettings
from viewcache.materializer.simulation.simulate import Figures, Setting, decodes_more, simulate
from viewcache.materializer.simulation.simulated_dispatcher import SimulatedDispatcher, SimulatedWorker
from viewcache.materializer.simulation.simulated_store import Item, SimulatedGeneration
from viewcache.materializer.simulation.simulated_uses import GenerationUses, UseTrace, groups_of, trace_of

INDEX = index_of(300, 48)
GUESSED = CostModel()
SLOW = 1e6
"""Seconds a batch in which workers make whatever there is room for."""


def trace(
    videos: int, epochs: int, generations: int, samples: int, batch: int, seed: int, horizon: int = 0
) -> UseTrace:
    """One task that reads videos of 300 frames; ``horizon`` of the generations behind each are known to it."""
    task, found = task_of("train", 16, 4, samples=samples, batch=batch), videos_of(videos)
    sections = []
    for number in range(generations):
        later = min(horizon, generations - 1 - number) * epochs
        plan = plan_of(task, found, epochs=epochs, number=number, seed=seed, later=later)
        uses, each = np.arange(len(plan)), len(plan) // epochs
        size = min(batch, videos) * samples
        sections.append(
            GenerationUses(0, number, plan.first_epoch, plan.iterations, each, size, plan, lambda _: INDEX, uses)
        )
    return trace_of([sections])


def read(
    trace: UseTrace,
    budget: int,
    pace_s: float = SLOW,
    rule: str = "cheapest",
    workers: int = 2,
    codec: str = "raw",
    cost: CostModel = GUESSED,
) -> Figures:
    """Simulate it."""
    section = trace.tasks[0][0]
    reserve = min(section.batch * section.plan.bound, budget // 4)
    keep = KeepSettings(budget, rule, codec, 1 << 30)
    return simulate(trace, Setting(keep, cost, workers, reserve, (pace_s,), start_s=0.0))


def generation_bytes(trace: UseTrace) -> int:
    """What all clips of one generation take at most."""
    section = trace.tasks[0][0]
    return len(np.unique(trace.clips_of(section))) * section.plan.bound


def hits(figures: Figures) -> int:
    """Clips that were there when they were asked for."""
    return sum(epoch.hits for epoch in figures.epochs.values())


def once(trace: UseTrace) -> int:
    """Packets when each generation decodes each video once."""
    total = 0
    for section in trace.tasks[0]:
        runs: dict[int, set[tuple[int, int]]] = {}
        for clip in trace.clips_of(section).tolist():
            runs.setdefault(trace.clips.video[clip], set()).update(trace.clips.runs[clip])
        total += sum(stop - start for each in runs.values() for start, stop in set(groups_of(each).values()))
    return total


shapes = st.fixed_dictionaries(
    {
        "videos": st.integers(6, 16),
        "epochs": st.integers(2, 4),
        "generations": st.integers(1, 3),
        "samples": st.integers(1, 2),
        "batch": st.integers(1, 3),
        "seed": st.integers(0, 1000),
    }
)


@settings(deadline=None, max_examples=25)
@given(shapes)
def test_more_room_never_makes_it_worse(shape: dict[str, int]) -> None:
    """Hits do not fall and decoding does not grow with the budget, but for a tenth.

    The tenth is for what the choice is not told: it weighs one generation, and the next one takes the room that is
    left; and what is chosen for a larger budget need not hold all that is chosen for a smaller one. A budget that is
    twice as large is never worse at all.
    """
    reading = trace(**shape)
    whole = generation_bytes(reading)
    least = reading.tasks[0][0].batch * reading.tasks[0][0].plan.bound
    found = [read(reading, max(least, int(whole * part))) for part in (0.2, 0.3, 0.45, 0.6, 0.9, 1.2, 1.8, 2.4)]
    for smaller, larger in pairwise(found):
        assert larger.made.packets <= smaller.made.packets * 1.1
        assert larger.made.decode_s <= smaller.made.decode_s * 1.1
        assert hits(larger) >= hits(smaller) * 0.9
    for smaller, larger in zip(found, found[3:], strict=False):
        assert larger.made.packets <= smaller.made.packets
        assert hits(larger) >= hits(smaller)


@settings(deadline=None, max_examples=25)
@given(shapes, st.sampled_from([SLOW, 0.2, 0.0]))
def test_with_room_for_everything_each_clip_is_made_once(shape: dict[str, int], pace_s: float) -> None:
    """No clip is made twice at any pace; if there is time, no packet is decoded twice either."""
    reading = trace(**shape)
    found = read(reading, 1 << 60, pace_s)
    assert found.made.objects == len(reading.clips.video)
    assert found.evictions == 0
    assert found.made.packets >= once(reading)
    if pace_s == SLOW:
        assert found.made.packets == once(reading)


@settings(deadline=None, max_examples=40)
@given(shapes, st.floats(0.0, 2.5), st.sampled_from([SLOW, 0.3, 0.0]), st.sampled_from(["cheapest", "leaves", "sand"]))
def test_the_budget_holds_and_everything_is_read(shape: dict[str, int], part: float, pace_s: float, rule: str) -> None:
    """Law 7 in the simulation, under every rule and from one batch on: never a byte more, and every use is served."""
    reading = trace(**shape)
    section = reading.tasks[0][0]
    budget = max(section.batch * section.plan.bound, int(generation_bytes(reading) * part))
    found = read(reading, budget, pace_s, rule)
    assert 0 < found.most_bytes <= budget
    assert sum(epoch.uses for epoch in found.epochs.values()) == len(reading)
    assert all(0 <= epoch.hits <= epoch.uses and 0 <= epoch.stall <= 1 for epoch in found.epochs.values())
    assert found.made.objects >= len(reading.clips.video)


def test_seconds_are_those_of_the_work() -> None:
    """One worker that is always needed is busy from its first job to its last; two take about half as long."""
    reading = trace(12, 3, 1, 1, 3, 0)
    one, two = (read(reading, 1 << 60, 0.0, workers=workers) for workers in (1, 2))
    assert one.made.seconds <= one.wall_s <= one.made.seconds + one.load_s + 1e-6
    assert two.wall_s < 0.7 * one.wall_s


def test_a_slow_consumer_waits_for_the_first_batch_only() -> None:
    """What is made in time is a hit and no stall."""
    found = read(trace(10, 3, 2, 1, 2, 0), 1 << 60, 60.0)
    assert [epoch.hits for epoch in found.epochs.values()] == [8, 10, 10, 10, 10, 10]
    assert found.epochs[0].waited_s == found.first_batch_s - found.load_s / 30
    assert not any(epoch.waited_s for number, epoch in found.epochs.items() if number)


def test_what_lasts_is_one_object_of_all_generations() -> None:
    """Where all pictures have room, and readers leave the time to make them, each video is decoded once for all."""
    videos, frames = 4, 300
    pictures = videos * frames * 3 * 256 * 456
    long = trace(videos, epochs=2, generations=6, samples=2, batch=2, seed=7, horizon=30)
    found = read(long, int(0.8 * pictures), 0.3, codec="auto", cost=CostModel(decode_s_per_pixel=2e-8))
    assert found.made.packets == videos * frames


def test_generations_that_are_read_are_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """When what lasts is needed next is asked of the generations to come: a longer training costs as much an epoch."""
    asked, unkept_due_in_s = 0, SimulatedGeneration.unkept_due_in_s

    def ask(self: SimulatedGeneration, videos: Sequence[Hashable]) -> float | None:
        nonlocal asked
        asked += 1
        return unkept_due_in_s(self, videos)

    monkeypatch.setattr(SimulatedGeneration, "unkept_due_in_s", ask)
    each = []
    for generations in (8, 32):
        asked = 0
        long = trace(4, epochs=2, generations=generations, samples=2, batch=2, seed=7, horizon=60)
        read(long, int(0.8 * 4 * 300 * 3 * 256 * 456), 0.3, codec="auto", cost=CostModel(decode_s_per_pixel=2e-8))
        each.append(asked / len(long))
    assert each[0] > 1  # something lasts
    assert each[1] < 1.5 * each[0]


@pytest.mark.parametrize("part", [0.2, 0.6, 2.4])
def test_whether_more_is_decoded_is_told_as_soon_as_it_is(part: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a whole simulation says, for each number of packets; of less than these, less is simulated."""
    reading = trace(12, 3, 2, 2, 2, 3)
    section, steps, step = reading.tasks[0][0], 0, SimulatedDispatcher.step

    def count(self: SimulatedDispatcher, worker: SimulatedWorker, now: float) -> Item | None:
        nonlocal steps
        steps += 1
        return step(self, worker, now)

    monkeypatch.setattr(SimulatedDispatcher, "step", count)
    keep = KeepSettings(int(generation_bytes(reading) * part), "cheapest", "raw", 1 << 30)
    setting = Setting(keep, GUESSED, 2, min(section.batch * section.plan.bound, keep.budget_bytes // 4), (0.0,))
    packets, all_steps = simulate(reading, setting).made.packets, steps
    for asked, more in ((packets - 1, True), (packets, False), (packets // 4, True)):
        steps = 0
        assert decodes_more(reading, setting, asked) == more
        assert steps < all_steps / 2 if asked == packets // 4 else steps <= all_steps


def test_overlapping_groups_are_one() -> None:
    """Runs with one begin go to the last end, and leading pictures of an open GOP join two groups."""
    found = groups_of([(0, 5), (0, 8), (10, 14), (12, 20), (20, 22)])
    assert found == {0: (0, 8), 10: (10, 20), 12: (10, 20), 20: (20, 22)}


def test_what_passes_costs_less_and_takes_no_room() -> None:
    """With memory for clips that are read once, the same uses are served within the budget, with less work."""
    reading = trace(12, 3, 1, 1, 2, 0)
    section = reading.tasks[0][0]
    budget = generation_bytes(reading) // 4
    keep = KeepSettings(budget, "cheapest", "raw", 1 << 30)
    reserve = min(section.batch * section.plan.bound, budget // 4)
    stored, passed = (
        simulate(reading, Setting(keep, CostModel(), 2, reserve, (SLOW,), start_s=0.0, passing_bytes=memory))
        for memory in (0, 1 << 30)
    )
    assert passed.made.seconds + passed.load_s < stored.made.seconds + stored.load_s
    assert passed.most_bytes <= budget
    assert sum(epoch.uses for epoch in passed.epochs.values()) == len(reading)
    assert passed.evictions <= stored.evictions


@pytest.mark.parametrize("part", [1.6, 2.2, 2.8])
def test_a_new_generation_takes_over_what_lasts_of_one_that_is_over(part: float) -> None:
    """Where pictures of some videos last, little more is decoded than if each generation decoded each video once."""
    reading = trace(videos=6, epochs=2, generations=6, samples=1, batch=2, seed=1, horizon=6)
    budget = int(generation_bytes(reading) * part)
    found = read(reading, budget, codec="auto", cost=CostModel(decode_s_per_pixel=2e-8))
    assert found.made.packets <= once(reading) * 1.15
