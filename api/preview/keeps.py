"""What would be kept of a generation, and what an epoch costs by and by (SAND §5.3), before anything runs."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from viewcache.api.config.load import Config
from viewcache.catalog import Catalog
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.retention.chosen import Chosen, KeepSettings, choose, free_bytes_for, to_come
from viewcache.materializer.retention.keeper import Keeper
from viewcache.materializer.scheduling.generation import ActiveGeneration
from viewcache.materializer.tasks.task import Task

__all__ = ["Horizon", "Keep", "Pace", "chosen_for", "horizon_of", "keeps"]


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast what is kept can be read and the rest made, where the devices were profiled."""

    devices: tuple[tuple[str, float], ...]
    """Each and the bytes a second that it gives: ``source`` for the files, and the tiers."""
    profiled_at_s: float
    """When that was measured, in seconds since 1970."""
    cores: int
    kept_share: float
    """Of how many of the videos or images something is kept."""
    per_s: float
    """Clips, or images, a second over all epochs that are left, if nobody waits for anything else."""
    of_images: bool
    bound_by: tuple[str, ...]
    """The devices that are busy all the time; ``cores`` if these are."""
    counts_batches: bool
    """Whether what keeping, planning and handing batches over take is known from a training, and counted in."""


@dataclass(frozen=True, slots=True)
class Keep:
    """What is kept of a generation of all tasks (SAND §5.3)."""

    generation: int
    rule: str
    """The one that the configuration asks for; ``mix`` and the share if it says that; empty where every clip is kept
    since all of them fit."""
    clip_bytes: int
    """Most bytes that all clips take, without those of the epoch that is being read."""
    budget_bytes: int
    """For what is kept; the rest of the budget is for what is about to be read."""
    ways: tuple[tuple[str, int], ...]
    """What is kept of a video, and of how many."""
    rules: tuple[tuple[str, int, float], ...]
    """Every rule with the bytes that it keeps and the core seconds that all epochs to come cost with it, estimated;
    empty where all clips fit."""
    horizon: "Horizon"
    """What an epoch costs by and by."""
    pace: Pace | None = None
    """None where no device was profiled on this machine."""


@dataclass(frozen=True, slots=True)
class Horizon:
    """What an epoch costs by and by."""

    epoch_s: tuple[tuple[int, float], ...] = ()
    """Epoch, from 1, and the core seconds that it costs, all that the cache takes in it: of this generation on average,
    where what lasts longer is made, and of the tenth and hundredth if there are such behind it; empty where nothing is
    to come."""
    beside_s: tuple[tuple[int, float], ...] = ()
    """How many of these it costs whatever is kept: planning, the catalog, handing batches over, starting workers."""
    without_s: float | None = None
    """What later epochs would cost if nothing lasted behind its generation; None where no epoch comes behind it."""
    pays_after: float = 0.0
    """Epochs after which what lasts has cost less than that; infinite = never."""
    pay_after: tuple[tuple[str, float], ...] = ()
    """The same of the videos of which each of what lasts is kept; names as in `Keep.ways`."""


def horizon_of(chosen: Chosen, tasks: Sequence[Task]) -> Horizon:
    """What an epoch costs by and by with what was chosen."""
    if not len(chosen.choice.option):
        return Horizon()
    costs = chosen.epoch_costs()
    if costs is None:
        own_s, beside_s = (each / chosen.epochs for each in (chosen.choice.cost_s, chosen.beside_s[0]))
        return Horizon(((1, own_s + beside_s),), ((1, beside_s),))
    last = max(task.spec.epochs for task in tasks)
    later = [epoch for epoch in (10, 100) if chosen.epochs < epoch <= last]
    beside = (1, costs.now_beside_s), *((epoch, costs.later_beside_s) for epoch in later)
    kept = costs.now_s, *(costs.later_s for _ in later)
    epochs = tuple((epoch, kept_s + beside_s) for kept_s, (epoch, beside_s) in zip(kept, beside, strict=True))
    without_s, each = costs.without_s + costs.later_beside_s, tuple(costs.pay_after.items())
    return Horizon(epochs, beside, without_s, costs.pays_after, each)


def chosen_for(
    works: Sequence[tuple[ActiveGeneration, Task]], settings: KeepSettings, cost: CostModel
) -> Chosen | None:
    """What is chosen for some generations of which nothing is made, also where that is every clip."""
    plans = to_come([(work, task.index_of(work.plan)) for work, task in works])
    free = free_bytes_for([each.plan for each in plans], settings)
    return choose(plans, cost, settings, free, tells=True)


def keeps(config: Config, tasks: Sequence[Task], numbers: Sequence[int], catalog: Catalog) -> Iterator[Keep]:
    """Decide what is kept of some generations of which nothing is made, on a catalog that is thrown away."""
    settings = KeepSettings.of(config.cache)
    for number in numbers:
        having = [task for task in tasks if 0 <= number <= task.last_generation()]
        works = [(task.generation(number), task) for task in having]
        choices: dict[int, Chosen | None] = {}
        keeper = Keeper(catalog, settings, lambda _: None, on_choice=choices.__setitem__)
        keeper.decide([(work, task.index_of(work.plan)) for work, task in works], nullcontext)
        cost = keeper.cost()
        for group_generation in sorted({work.group_generation for work, _ in works}):
            mine = [(work, task) for work, task in works if work.group_generation == group_generation]
            chosen = choices.get(group_generation)
            rules: tuple[tuple[str, int, float], ...] = ()
            if chosen is not None:
                rule, found = config.cache.keep.value, chosen.rivals()
                if config.cache.mix is not None:
                    rule = f"mix {config.cache.mix:g}"
                    found[rule] = chosen.choice
                rules = tuple((name, each.bytes, each.cost_s) for name, each in found.items())
            else:  # every clip: what that costs is asked for only here
                rule, chosen = "", chosen_for(mine, settings, cost)
            if chosen is not None:
                ways, sizes = tuple(chosen.ways().items()), (chosen.clip_bytes, chosen.budget_bytes)
                pace = _pace(chosen, [work.plan for work, _ in mine], cost)
                yield Keep(number, rule, *sizes, ways, rules, horizon_of(chosen, having), pace)


def _pace(chosen: Chosen, plans: Sequence[GenerationPlan], cost: CostModel) -> Pace | None:
    """How fast some plans are read; None where no device was profiled."""
    times, devices = chosen.times(), cost.devices
    if not devices.bytes_per_s or not times.seconds:
        return None
    return Pace(
        devices=tuple(sorted(devices.bytes_per_s.items())),
        profiled_at_s=devices.at_s,
        cores=chosen.weighed.options.cores,
        kept_share=chosen.kept_share,
        per_s=sum(map(len, plans)) * (1 + chosen.later) / times.seconds,
        of_images=all(plan.blocks is not None for plan in plans),
        bound_by=times.bound_by,
        counts_batches=cost.batch_s > 0,
    )
