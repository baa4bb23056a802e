"""What is kept of a generation, as a value: chosen under the budget by one rule, without a catalog or workers."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog.kinds import ObjectKind
from viewcache.materializer.choices import KeepRule
from viewcache.materializer.media.media_index import MediaIndex
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.devices import Devices, host_of
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.prices import Prices
from viewcache.materializer.planning.recipe import IntermediateObject
from viewcache.materializer.retention.balance import RULES, Times, times_of
from viewcache.materializer.retention.choice import WayChoice, taken
from viewcache.materializer.retention.density import Densities
from viewcache.materializer.retention.fixed_share import keep_share
from viewcache.materializer.retention.horizon import generations_later, may_last
from viewcache.materializer.retention.kept_ways import KeptWays, by_video
from viewcache.materializer.retention.lasting import Lasting, part_bytes_for
from viewcache.materializer.retention.near import FarFile, far_files, with_files
from viewcache.materializer.retention.needs import Floats
from viewcache.materializer.retention.options import Weighed, weigh
from viewcache.materializer.retention.settled import Settled
from viewcache.materializer.retention.ways import Kept, ToCome, Way, are_images
from viewcache.materializer.scheduling.generation import ActiveGeneration
from viewcache.materializer.scheduling.keeping import Keeping
from viewcache.materializer.spec import CacheSpec
from viewcache.materializer.workers.pool import job_bytes
from viewcache.store.codec import ENCODED
from viewcache.store.tier import LOCAL, REMOTE

__all__ = ["Chosen", "IndexOf", "KeepSettings", "choose", "free_bytes_for", "keepings", "to_come"]

_NAMES = {None: "nothing", ObjectKind.FRAMES: "decoded frames", ObjectKind.AUG: "resized frames"}
_WHOLE_NAMES = {ObjectKind.FRAMES: "all decoded frames", ObjectKind.AUG: "all resized frames"}

_FILE = "the encoded file"

_NEVER = np.iinfo(np.int64).max

IndexOf = Callable[[int], MediaIndex]
"""Gives the packet index of a row of a plan's videos."""

WINDOW_BATCHES, WINDOW_JOBS = 2, 2
"""Room for so many batches of each task is for clips that are made shortly before they are read, and at least for so
many jobs of each worker."""


@dataclass(frozen=True, slots=True)
class KeepSettings:
    """What the cache's settings say about keeping."""

    budget_bytes: int
    """Of all tiers but memory, where only second copies lie."""
    rule: str
    """A name in `RULES`."""
    codec: str
    """Of the objects, ``auto`` if that is chosen for each."""
    most_bytes: int
    """Raw bytes of the largest object that a worker can hold."""
    remote_bytes: int = 0
    """Of the budget, where nothing is made."""
    cores: int = 1
    """That share the work."""
    host: str = ""
    """The machine, as `devices.host_of` tells them apart."""
    mix: float | None = None
    """The share of videos of which something is kept; None = what is best."""

    @property
    def is_stated(self) -> bool:
        """Whether it is said what is kept, so that it is not every clip though there be room."""
        return self.mix is not None

    @property
    def lets_last(self) -> bool:
        """Whether pictures may last: workers read them from the local tier only, which moves to a remote one."""
        return not self.remote_bytes

    @property
    def keeps_files(self) -> bool:
        """Whether the encoded files of videos that lie far away may be kept, which workers read likewise."""
        return self.lets_last and self.rule == KeepRule.CHEAPEST

    @property
    def part_bytes(self) -> int:
        """Most bytes that are promised to one object of pictures that last."""
        return part_bytes_for(self.local_bytes(), self.most_bytes)

    @property
    def whole_bytes(self) -> int:
        """The same for all pictures of a video: one decode makes them, and they are promised before they are packed."""
        return self.local_bytes() // 2

    def local_bytes(self) -> int:
        """Of the budget, where objects are made."""
        return self.budget_bytes - self.remote_bytes

    @classmethod
    def of(cls, cache: CacheSpec) -> "KeepSettings":
        """What the settings of a cache say."""
        most = job_bytes(cache.memory_bytes, cache.worker_count)
        remote = sum(tier.budget_bytes for tier in cache.tiers if tier.name == REMOTE)
        codec, host = cache.local.codec, host_of(cache.local.url)
        return cls(cache.room_bytes, cache.keep, codec, most, remote, cache.worker_count, host, cache.mix)


@dataclass(frozen=True, slots=True)
class EpochCosts:
    """Core seconds of an epoch of all tasks together, as expected: making and reading its clips, and what is beside."""

    now_s: float
    """Of this generation, on average: what lasts longer is made in it."""
    later_s: float
    """Of every generation behind it."""
    without_s: float
    """Of these, if nothing lasted behind its generation."""
    pays_after: float
    """Epochs after which what lasts has cost less than that; infinite = never."""
    now_beside_s: float = 0.0
    """What the cache takes besides, whatever is kept, in an epoch of this generation: planning, the catalog, handing
    batches over, and the start of workers if a training begins with it."""
    later_beside_s: float = 0.0
    """Of every generation behind it."""
    pay_after: Mapping[str, float] = field(default_factory=dict)
    """The same as ``pays_after`` of the videos of which each of what lasts is kept, by its name in `Chosen.ways`."""


_UNSETTLED = Settled()


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a rule chose for some plans."""

    weighed: Weighed
    choice: WayChoice
    budget_bytes: int
    """For what is kept; the rest of the cache's budget is for what is about to be read."""
    clip_bytes: int
    """Most bytes that all clips take, without those of the epoch that is being read."""
    part_bytes: int = 0
    """Most bytes that are promised to an object of what lasts; 0 = nothing does."""
    later: float = 0.0
    """Generations like this one that come behind it; costs count them."""
    epochs: int = 1
    """Of the generation."""
    rule: str = KeepRule.CHEAPEST
    """By which it was chosen."""
    files: Mapping[str, FarFile] = field(default_factory=dict)
    """Of the videos those that lie far away, by content key; kept or not."""
    beside_s: tuple[float, float] = (0.0, 0.0)
    """Core seconds that this generation, and one behind it, take whatever is kept."""

    def times(self) -> Times:
        """How long all epochs take of each part of the machine, as far as it was measured."""
        return times_of(self.weighed.options, self.choice.option)

    @property
    def kept_share(self) -> float:
        """Of how many of the videos something is kept."""
        options, video = self.weighed.options, np.arange(len(self.choice.option))
        return float((options.bytes[video, self.choice.option] > 0).mean()) if len(video) else 0.0

    def epoch_costs(self) -> EpochCosts | None:
        """What an epoch costs now and later; None where no epoch comes behind the generation."""
        again_s = self.weighed.again_s
        if again_s is None or not len(self.choice.option):
            return None
        video, options = np.arange(len(self.choice.option)), self.weighed.options
        plain = self.weighed.plain or len(self.weighed.ways)
        passing = [k for k, way in enumerate(self.weighed.ways[:plain]) if not way.lasts]
        others = options.only(passing)
        rival = np.array(passing)[RULES[self.rule](others, self.budget_bytes).option]
        later, rival_later = (again_s[video, each] for each in (self.choice.option, rival))
        now, rival_now = (
            options.cost_s[video, each] - self.later * other
            for each, other in ((self.choice.option, later), (rival, rival_later))
        )
        k = self.epochs

        def pays_after(mine: NDArray[np.bool_]) -> float:
            more, saved = float((now - rival_now)[mine].sum()), float((rival_later - later)[mine].sum()) / k
            return 0.0 if more <= 0 else k + more / saved if saved > 0 else math.inf

        names = self._names()
        lasting = {names[each] for each in np.unique(self.choice.option) if self.weighed.ways[each].lasts}
        each_after = {name: pays_after(np.array(names)[self.choice.option] == name) for name in sorted(lasting)}
        now_s, later_s, without_s = (float(each.sum()) / k for each in (now, later, rival_later))
        beside_s, later_beside_s = (each / k for each in self.beside_s)
        return EpochCosts(now_s, later_s, without_s, pays_after(video >= 0), beside_s, later_beside_s, each_after)

    @property
    def lasts(self) -> bool:
        """Whether something is kept, or lies in the store, that is of use behind its generation."""
        chosen = (self.weighed.ways[each] for each in np.unique(self.choice.option).tolist())
        return bool(self.weighed.lying or self.kept_files()) or any(way.lasts for way in chosen)

    def kept_files(self) -> dict[str, FarFile]:
        """The encoded files that are kept near, by the content key of the video."""
        if not self.weighed.plain:
            return {}
        kept = zip(self.weighed.videos, (self.choice.option >= self.weighed.plain).tolist(), strict=True)
        return {video: self.files[video] for video, is_kept in kept if is_kept}

    def rivals(self) -> dict[str, WayChoice]:
        """What each rule would choose, this one's among them; worked out now."""
        return {name: rule(self.weighed.options, self.budget_bytes) for name, rule in RULES.items()}

    def way_of(self) -> dict[str, Way]:
        """What is kept of each video, by its content key."""
        return by_video(self.weighed.videos, self.weighed.ways, self.choice.option)

    def kept_ways(self) -> KeptWays:
        """What is kept, without what it was chosen by."""
        option = self.choice.option.astype(np.int16)
        return KeptWays(self.weighed.videos, self.weighed.ways, option, self.part_bytes)

    @property
    def spare_bytes(self) -> int:
        """Of the budget, which nothing that is kept takes."""
        return max(0, self.budget_bytes - self.choice.bytes)

    @property
    def byte_s(self) -> float:
        """Seconds of work that the byte saves which is the least worth keeping: about what one byte more is worth.

        Nothing where all has room that would save work.
        """
        options, video = self.weighed.options, np.arange(len(self.choice.option))
        size, cost_s = (each[video, self.choice.option] for each in (options.bytes, options.cost_s))
        left = self.budget_bytes - self.choice.bytes
        if not ((options.cost_s < cost_s[:, None]) & (options.bytes - size[:, None] > left)).any():
            return 0.0
        saved = options.cost_s[:, options.nothing] - cost_s
        kept = size > 0
        # A clip's byte is free again when its generation is over, and another one's takes its place.
        return max(0.0, float((saved[kept] / size[kept]).min())) / (1 + self.later) if kept.any() else 0.0

    def prices(self, devices: Devices) -> Prices:
        """What bytes of the local tier are worth; ``devices`` are those for which it was chosen."""
        read_s = self.choice.device_price.get(LOCAL, 0.0) * devices.s_per_byte(LOCAL)
        return Prices(self.byte_s, read_s, 1 + self.later)

    def ways(self) -> dict[str, int]:
        """What is kept of a video → of how many; the videos of which all clips are kept first."""
        names = self._names()
        order = [self.weighed.options.leaf, *range(len(names))]
        counts = np.bincount(self.choice.option, minlength=len(names)).tolist()
        return {names[each]: counts[each] for each in order if counts[each]}

    def _names(self) -> list[str]:
        """Of each way."""
        names = [_named(way, len(self.weighed.kinds)) for way in self.weighed.ways]
        for k in range(self.weighed.plain, len(names) if self.weighed.plain else 0):
            names[k] = _FILE if names[k] == _NAMES[None] else f"{names[k]} and {_FILE}"
        return names

    def describe(self) -> str:
        """What is kept, in words."""
        ways = ", ".join(f"{what} of {count}" for what, count in self.ways().items())
        return f"{self.choice.bytes} bytes, where clips of later epochs take {self.clip_bytes}; of the videos {ways}"


def _named(way: Way, kinds: int) -> str:
    intermediate = _NAMES[way.intermediate]
    if way.lasts and way.intermediate is not None:
        intermediate = f"{_WHOLE_NAMES[way.intermediate]} as {way.codec}"
    if not way.kept:
        return intermediate
    return "all clips" if way.kept == kinds else f"small clips and {intermediate}"


def choose(
    plans: Sequence[ToCome],
    cost: CostModel,
    settings: KeepSettings,
    free_bytes: int,
    before: Mapping[str, Sequence[Kept]] = MappingProxyType({}),
    refused: Set[str] = frozenset(),
    lying: Callable[[Lasting], Mapping[str, Sequence[Kept]]] | None = None,
    settled: Settled = _UNSETTLED,
    densities: Densities | None = None,
    average: Callable[[tuple[str, ...], tuple[Way, ...], Floats], Floats] = lambda *given: given[-1],
    has: Callable[[str], bool] = lambda _: False,
    *,
    tells: bool = False,
) -> Chosen | None:
    """Choose what to keep of the clips to come; None = every clip, since the budget holds them and that is best.

    Args:
        plans: one generation of each task.
        cost: seconds of each kind of work.
        settings: of the cache.
        free_bytes: of the budget, for clips that are about to be read.
        before: intermediates that were chosen before, by the content key of the video.
        refused: videos of which no intermediate can be made.
        lying: tells which of what lasts lies in the store, see `weigh`.
        settled: what was chosen for other generations.
        densities: what packed pictures of each video took.
        average: of what a generation costs, see `weigh`.
        has: whether an object lies in the store, by its content key.
        tells: say what it costs too where every clip is kept.
    """
    budget = settings.budget_bytes - free_bytes
    later = [each.rows & (each.plan.epoch > each.plan.epoch[each.rows].min(initial=_NEVER)) for each in plans]
    keys = np.concatenate([each.plan.clip_keys[rows] for each, rows in zip(plans, later, strict=True)])
    bounds = np.concatenate([np.full(int(rows.sum()), each.plan.room) for each, rows in zip(plans, later, strict=True)])
    total = int(bounds[np.unique(keys, return_index=True)[1]].sum())
    whole = [each.plan for each in plans]
    lasts = settings.lets_last and may_last(whole) and any(each.rows.any() for each in plans)
    # A block of images is made by itself, so what is kept for the next one is weighed also where all blocks fit.
    of_images = any(each.plan.blocks is not None and each.rows.any() for each in plans)
    # Where a device has a price, a clip that is made ahead may cost more than one that is not.
    priced = bool(cost.devices.bytes_per_s)
    asked = (priced or settings.is_stated) and any(each.rows.any() for each in plans)
    if total <= budget and not (lasts or of_images or asked or tells):
        return None
    parts = settings.part_bytes if lasts else 0
    weighed = weigh(
        plans,
        cost,
        most_bytes=settings.most_bytes,
        before=before,
        lying=lying,
        part_bytes=parts,
        whole_bytes=settings.whole_bytes,
        densities=densities,
        average=average,
        others=settled.others,
    )
    unusable = np.flatnonzero([video in refused for video in weighed.videos] if refused else [])
    for column in (k for k, way in enumerate(weighed.ways) if way.intermediate is not None):
        weighed.options.cost_s[unusable, column] = np.inf
    if of_images and settings.rule == KeepRule.CHEAPEST:  # groups of packed pictures are of one video
        rows = np.flatnonzero(are_images(plans, weighed.videos))
        columns = np.flatnonzero([way.kept > 0 or way.codec in ENCODED for way in weighed.ways])
        weighed.options.cost_s[np.ix_(rows, columns)] = np.inf
    if settings.rule != KeepRule.CHEAPEST:  # the rivals look at one generation
        weighed.options.cost_s[:, [k for k, way in enumerate(weighed.ways) if way.lasts]] = np.inf
    behind = generations_later(whole) if lasts else 0.0
    files = far_files(plans) if settings.keeps_files else {}
    if files:
        weighed = with_files(weighed, plans, behind, cost, files, has)
    batches, batches_behind = sum(each.batches() for each in plans), sum(each.anew().batches() for each in plans)
    on_top = replace(weighed.options, cores=settings.cores, beside_s=cost.batch_s * (batches + behind * batches_behind))
    weighed = replace(weighed, options=on_top)
    if settings.mix is None:
        choice = settled.choice(weighed, RULES[settings.rule], budget)
    else:
        keeps = np.array([way.keeps for way in weighed.ways])
        choice = keep_share(settled.seen_in(weighed), budget, settings.mix, keeps, settled.stays_in(weighed))
    cost_s = weighed.options.cost_s[np.arange(len(choice.option)), choice.option].sum()
    choice = replace(choice, cost_s=float(cost_s))
    epochs = max(plan.context.epochs for plan in whole)
    begins = all(plan.first_epoch == 0 for plan in whole)
    beside_s = cost.beside_s(batches, begins=begins), cost.beside_s(batches_behind, begins=False)
    chosen = Chosen(weighed, choice, budget, total, parts, behind, epochs, settings.rule, files, beside_s)
    # Also where every clip is kept, how it is packed depends on whether the disk is waited for.
    if asked and (choice.device_price or (choice.option != weighed.options.leaf).any()):
        return chosen
    if total > budget or chosen.lasts or of_images:
        return chosen
    every_clip = np.full(len(choice.option), weighed.options.leaf, np.int64)
    return replace(chosen, choice=taken(weighed.options, every_clip, budget)) if tells else None


def to_come(works: Iterable[tuple[ActiveGeneration, IndexOf]]) -> list[ToCome]:
    """How far some generations are; their lock is held."""
    return [
        ToCome(work.plan, index_of, work.to_come(), work.ready(), partial(work.far, work.plan))
        for work, index_of in works
    ]


def free_bytes_for(plans: Iterable[GenerationPlan], settings: KeepSettings) -> int:
    """Room for what is made shortly before it is read, of every task: an eighth of the budget at most.

    That is some batches, and some jobs of each worker: a worker that is done goes on while readers take what it made.
    At least what the dispatcher leaves free for readers that wait: a batch, a quarter of the budget at most.
    """
    batches, windows, budget = list[int](), list[int](), settings.local_bytes()
    for plan in plans:
        clips = len(plan.rows(plan.first_epoch, 0))
        of_job = plan.task.sampling.samples_per_video if plan.blocks is None else plan.blocks.most
        batches.append(clips * plan.room)
        windows.append(max(WINDOW_BATCHES * clips, WINDOW_JOBS * settings.cores * of_job) * plan.room)
    return max(min(sum(windows), budget // 8), min(max(batches), budget // 4))


def keepings(
    plans: Sequence[GenerationPlan],
    chosen: Chosen | None,
    free_bytes: int,
    intermediates: Mapping[str, tuple[IntermediateObject, ...]] = MappingProxyType({}),
) -> list[Keeping]:
    """What is kept of each of some plans' clips, after `choose`; without a choice every clip is.

    Args:
        plans: one generation of each task.
        chosen: what was chosen for them.
        free_bytes: as for `choose`; shared by the tasks.
        intermediates: content key of a video → what its clips are made from.
    """
    clips = [np.ones(len(plan), np.bool_) for plan in plans]
    if chosen is not None:
        kept = np.array([way.kept for way in chosen.weighed.ways])[chosen.choice.option]
        for number, kind in enumerate(chosen.weighed.kinds):
            mine = {chosen.weighed.videos[place] for place in np.flatnonzero(kept > number).tolist()}
            for k in kind.plans:
                keeps = [key in mine for key in plans[k].videos.keys] if mine else [False] * len(plans[k].videos)
                clips[k] = np.array(keeps)[plans[k].video]
    windows = [max(1, free_bytes // len(plans) // plan.clip_room) for plan in plans]
    return [Keeping(mine, window, free_bytes, intermediates) for mine, window in zip(clips, windows, strict=True)]
