"""Making ahead what the budget keeps, as `viewcache run` does: what it will take, progress, and what it took."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass

from viewcache.api.config.placed import placed
from viewcache.api.session.made import Making
from viewcache.materializer.gate import Gate
from viewcache.materializer.retention.chosen import IndexOf, to_come
from viewcache.materializer.retention.forecast import Forecast, forecast
from viewcache.materializer.retention.keeper import Keeper
from viewcache.materializer.retention.kept_ways import KeptWays
from viewcache.materializer.scheduling.ahead import Ahead, ahead_of
from viewcache.materializer.scheduling.dispatcher import Dispatcher
from viewcache.materializer.scheduling.generation import ActiveGeneration
from viewcache.materializer.tasks.look_ahead import LookAhead, Planned
from viewcache.materializer.tasks.task import Task

__all__ = ["AheadOfTime"]


@dataclass(slots=True)
class AheadOfTime:
    """The first epochs of some tasks, on their way into the store."""

    works: Sequence[Planned]
    keeper: Keeper
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
        planned = [each for _, active in works for each in active.schedules]
        dispatcher.mark_present([*planned, *keeper.intermediates()])
        chosen = look_ahead.decide_ahead(works)
        try:
            weighed = [(active, task.index_of(active.plan)) for task, active in works]
            predicted = _predict(weighed, chosen, keeper, dispatcher)
        except BaseException:
            look_ahead.end_ahead(works)
            raise
        before = _worked(dispatcher)
        look_ahead.announce()
        return cls(works, keeper, look_ahead, dispatcher, predicted, before)

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
        over = self.dispatcher.wait_idle(0.5) or self._is_nothing_left()
        measured = _worked(self.dispatcher).minus(self.before)
        clips = self.dispatcher.counts([active for _, active in self.works])
        with self.dispatcher.lock:
            from_kept = sum(active.from_kept() for _, active in self.works) if over else 0
        return over, Making(clips, self.predicted, measured, self.dispatcher.tally.failure, from_kept)

    def _is_nothing_left(self) -> bool:
        """Whether nothing of it is worth making or being made: beside readers the dispatcher may never be idle."""
        numbers = {active.group_generation for _, active in self.works}
        kept = [each for each in self.keeper.intermediates() if each.group_generation in numbers]
        works = [*kept, *(each for _, active in self.works for each in active.schedules)]
        with self.dispatcher.lock:
            is_planned = any(each.next_planned() is not None for each in works)
        return not is_planned and not self.dispatcher.counts(works).get("making")

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
    total, cost, ahead, intermediates = Forecast(), keeper.cost(), Ahead(), keeper.intermediates()
    for number in sorted({work.group_generation for work, _ in works}):
        mine = [each for each in works if each[0].group_generation == number]
        kept = [each for each in intermediates if each.group_generation == number]
        with dispatcher.lock:
            plans = to_come(mine)
            ahead = ahead_of([work for work, _ in mine], kept, ahead.keys)
        total = total.plus(forecast(plans, chosen[number], cost, ahead))
    return total
