"""Making ahead what the budget keeps, as `viewcache run` does: what it will take, progress, and what it took."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from viewcache.api.session.placed import placed
from viewcache.materializer.gate import Gate
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.retention.chosen import Chosen, IndexOf, to_come
from viewcache.materializer.retention.forecast import Forecast, forecast
from viewcache.materializer.retention.keeper import Keeper
from viewcache.materializer.scheduling.dispatcher import Dispatcher
from viewcache.materializer.scheduling.generation import ActiveGeneration
from viewcache.materializer.tasks.task import Task

__all__ = ["Making"]


@dataclass(slots=True)
class Making:
    """The first epochs of some tasks, on their way into the store."""

    works: list[tuple[ActiveGeneration, IndexOf]]
    dispatcher: Dispatcher
    predicted: Forecast
    """What it will take, worked out before anything was made."""
    made_before: float = 0.0
    """Objects that the dispatcher had made before."""

    @classmethod
    def begin(cls, tasks: Iterable[Task], epochs: int | None, keeper: Keeper, dispatcher: Dispatcher) -> "Making":
        """Plan the first ``epochs`` of all tasks (None = all), decide what is kept and have the dispatcher make it.

        A task that has fewer is made whole.
        """
        works: list[tuple[ActiveGeneration, IndexOf]] = []
        for task in tasks:
            wanted = task.spec.epochs if epochs is None else min(epochs, task.spec.epochs)
            last = task.generation_of(wanted - 1)
            with placed(task.spec):
                actives = [task.generation(number) for number in range(last + 1)]
            works.extend((active, task.index_of(active.plan)) for active in actives)
        dispatcher.mark_present([active for active, _ in works])
        chosen = keeper.decide(works, dispatcher.guard)
        predicted = _predict(works, chosen, keeper.cost(), dispatcher)
        making = cls(works, dispatcher, predicted, dispatcher.frames["objects"])
        dispatcher.look_ahead([*keeper.intermediates(), *(active for active, _ in works)])
        return making

    def progress(self, gate: Gate) -> Iterator[dict[str, int]]:
        """Counts of clips by state, about twice a second, until all is made."""
        done = False
        while not done:
            done, counts = gate.run(self.step)
            yield counts

    def step(self) -> tuple[bool, dict[str, int]]:
        """Wait half a second; whether all is made, and counts of clips by state."""
        return self.dispatcher.wait_idle(0.5), self.dispatcher.counts([active for active, _ in self.works])

    def made(self) -> tuple[int, int]:
        """How many objects were made since it began, and of how many as predicted.

        Unlike the count of clips that are ready it never goes down, and it ends where the budget ends.
        """
        done = round(self.dispatcher.frames["objects"] - self.made_before)
        return done, max(done, round(self.predicted.objects))

    def measured(self) -> Forecast:
        """What the dispatcher's workers took since the cache was opened, in the same terms."""
        busy, frames = self.dispatcher.busy, self.dispatcher.frames
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
    chosen: Mapping[int, Chosen | None],
    cost: CostModel,
    dispatcher: Dispatcher,
) -> Forecast:
    total = Forecast()
    for group_generation in sorted({work.group_generation for work, _ in works}):
        with dispatcher.guard():
            plans = to_come(each for each in works if each[0].group_generation == group_generation)
        total = total.plus(forecast(plans, chosen[group_generation], cost))
    return total
