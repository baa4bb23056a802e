"""Making ahead what the budget keeps, as `viewcache run` does: what it will take, progress, and what it took."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viewcache.api.session.made import Making
from viewcache.api.session.placed import placed
from viewcache.materializer.gate import Gate
from viewcache.materializer.retention.chosen import IndexOf, to_come
from viewcache.materializer.retention.forecast import Forecast, forecast, forecast_audio
from viewcache.materializer.retention.keeper import Keeper
from viewcache.materializer.retention.kept_ways import KeptWays
from viewcache.materializer.retention.ways import Way, are_images
from viewcache.materializer.scheduling.dispatcher import Dispatcher
from viewcache.materializer.scheduling.generation import ActiveGeneration
from viewcache.materializer.spec import AudioSpec
from viewcache.materializer.tasks.look_ahead import LookAhead, Planned
from viewcache.materializer.tasks.task import Task

__all__ = ["AheadOfTime"]


@dataclass(slots=True)
class AheadOfTime:
    """The first epochs of some tasks, on their way into the store."""

    works: Sequence[Planned]
    look_ahead: LookAhead
    dispatcher: Dispatcher
    predicted: Forecast
    """What it will take, worked out before anything was made."""
    before: Forecast
    """What the workers had done when it began."""

    @classmethod
    def begin(
        cls, tasks: Iterable[Task], epochs: int | None, keeper: Keeper, look_ahead: LookAhead, dispatcher: Dispatcher
    ) -> "AheadOfTime":
        """Plan the first ``epochs`` of all tasks (None = all), decide what is kept and have the dispatcher make it.

        A task that has fewer is made whole.
        """
        works: list[Planned] = []
        for task in tasks:
            wanted = task.spec.epochs if epochs is None else min(epochs, task.spec.epochs)
            last = task.generation_of(wanted - 1)
            with placed(task.spec):
                works.extend((task, task.generation(number)) for number in range(last + 1))
        dispatcher.mark_present([each for _, active in works for each in active.schedules])
        chosen = look_ahead.decide_ahead(works)
        try:
            weighed = [(active, task.index_of(active.plan)) for task, active in works]
            predicted = _predict(weighed, chosen, keeper, dispatcher)
        except BaseException:
            look_ahead.end_ahead(works)
            raise
        before = _worked(dispatcher)
        look_ahead.announce()
        return cls(works, look_ahead, dispatcher, predicted, before)

    def progress(self, gate: Gate) -> Generator[Making]:
        """How far it is, about twice a second, until all is made; who asks no more gives up the rest."""
        try:
            over = False
            while not over:
                over, now = gate.run(self.step)
                yield now
        finally:
            self.end()

    def step(self) -> tuple[bool, Making]:
        """Wait half a second; whether all is made, and how far it is."""
        over = self.dispatcher.wait_idle(0.5)
        measured = _worked(self.dispatcher).minus(self.before)
        clips = self.dispatcher.counts([active for _, active in self.works])
        # Beside readers the dispatcher may never be idle.
        all_made = clips["ready"] + clips["failed"] == sum(len(active.plan) for _, active in self.works)
        over = over or all_made
        with self.dispatcher.lock:
            from_kept = sum(active.from_kept() for _, active in self.works) if over else 0
        return over, Making(clips, self.predicted, measured, self.dispatcher.tally.failure, from_kept)

    def end(self) -> None:
        """Make no more of it but for who reads it; harmless when done twice."""
        self.look_ahead.end_ahead(self.works)


def _worked(dispatcher: Dispatcher) -> Forecast:
    """What the workers have done since the cache was opened, in the terms of a forecast."""
    busy, frames = dispatcher.tally.busy, dispatcher.tally.frames
    return Forecast(
        packets=frames["packets"],
        frames=frames["converted"],
        objects=frames["objects"],
        object_bytes=frames["object_bytes"],
        decode_s=busy["decode"],
        convert_s=busy["convert"],
        augment_s=busy["augment"],
        store_s=busy["store"],
    )


def _predict(
    works: list[tuple[ActiveGeneration, IndexOf]],
    chosen: Mapping[int, KeptWays | None],
    keeper: Keeper,
    dispatcher: Dispatcher,
) -> Forecast:
    total, cost, made = Forecast(), keeper.cost(), dict[str, Way]()
    for group_generation in sorted({work.group_generation for work, _ in works}):
        with dispatcher.lock:
            plans = to_come(each for each in works if each[0].group_generation == group_generation)
        mine = chosen[group_generation]
        total = total.plus(forecast(plans, mine, cost, made))
        if mine is not None:
            ways = mine.way_of()
            is_image = are_images(plans, [*ways]).tolist()  # whose kept picture is one, however long it was to last
            of_both = zip(ways.items(), is_image, strict=True)
            made |= {key: way for (key, way), one in of_both if way.intermediate is not None and (way.lasts or one)}
    return total.plus(forecast_audio(_audio_missing([work for work, _ in works], dispatcher), cost))


def _audio_missing(works: Sequence[ActiveGeneration], dispatcher: Dispatcher) -> dict[AudioSpec, int]:
    """How many objects of each kind of audio are to be made; tasks that hear the same share them."""
    missing: dict[AudioSpec, list[NDArray[np.void]]] = {}
    with dispatcher.lock:
        for work in works:
            if work.audio is not None and work.plan.audio is not None:
                missing.setdefault(work.plan.audio, []).append(work.audio.missing())
    return {audio: len(np.unique(np.concatenate(keys))) for audio, keys in missing.items()}
