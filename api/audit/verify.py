"""Check all that a cache has: every byte of every object, each drawn epoch, and that what was drawn is uniform.

It owns the catalog while it works, so nobody writes meanwhile. Damage found here would also be found by the read that
needs the object; finding it early only saves that read the wait.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from viewcache.api.audit.evidence import Evidence, Recipes, gather
from viewcache.api.audit.quality import Quality, Reached
from viewcache.api.audit.recorded import Drawn
from viewcache.api.config.find import Located
from viewcache.api.upkeep.owned import owned_cache
from viewcache.catalog import Catalog
from viewcache.catalog.records import TaskRow
from viewcache.errors import ChunkDamaged
from viewcache.materializer.dataset.listing import Progress
from viewcache.materializer.planning.digests import digest_of
from viewcache.materializer.planning.recorded_weights import by_weight, shares_by_epoch
from viewcache.materializer.storage.removal import remove
from viewcache.store import Tier
from viewcache.store.format import ChunkTable

__all__ = ["Verified", "verify", "weight_mistake", "weighted_mistake"]


@dataclass(frozen=True, slots=True)
class Verified:
    """What was checked and found."""

    objects: int
    """Copies that the catalog has."""
    bytes: int
    """Of them."""
    damaged: tuple[str, ...]
    """One line for each copy that is missing or not as written."""
    orphans: tuple[str, ...]
    """One line for each object that the catalog does not have; harmless: adopted or deleted at the next start."""
    epochs: int
    """Drawn epochs, over all tasks."""
    draws: tuple[str, ...]
    """One line for each epoch in which a video is missing or comes twice, or more or less often than by weight."""
    repaired: bool
    """Whether damaged copies were dropped."""
    evidence: Evidence
    """What the draws show of their randomness."""
    quality: tuple[Quality, ...] = ()
    """What pictures with a loss have reached, by what was asked."""

    @property
    def wrong(self) -> bool:
        """Whether anything is: damage, a broken epoch, or draws that cannot be uniform."""
        return bool(self.damaged or self.draws or self.evidence.errors)

    def as_dict(self) -> dict[str, object]:
        """The same as plain values."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        return plain | {
            "evidence": self.evidence.as_dict(),
            "quality": [each.as_dict() for each in self.quality],
        }


def verify(located: Located, *, repair: bool = True, progress: Progress | None = None) -> Verified:
    """Check a cache that nobody has open.

    Args:
        located: which.
        repair: drop what is damaged, so that it is made again.
        progress: called with objects done, objects in all, and the place of the last one.

    Raises:
        NotFound: there is no catalog or no store.
        StoreUnreachable: a remote tier does not answer.
        BadInput: the catalog is of another store.
        CatalogBusy: another process owns it.
    """
    with owned_cache(located, writable=repair) as owned:
        catalog, tiers = owned.catalog, {name: owned.tier(name) for name in owned.tier_names}
        copies = [row for row in catalog.load_copies().to_pylist() if row["tier"] in tiers]
        recipes, reached = Recipes(catalog), Reached()
        damaged: list[str] = []
        gone: dict[str, dict[int, str]] = {name: {} for name in tiers}  # tier → object → place
        for done, row in enumerate(copies, 1):
            tier = tiers[row["tier"]]
            try:
                found = tier.verify(row["physical"], ChunkTable.from_bytes(row["table_blob"]))
                recipes.add(row["object_id"], found.meta.attributes)
                reached.add(found.meta.attributes)
            except ChunkDamaged as damage:
                damaged.append(str(damage))
                gone[tier.name][row["object_id"]] = row["physical"]
            if progress is not None:
                progress(done, len(copies), row["physical"])
        if repair and damaged:
            _drop(catalog, tiers, gone)
        known = {(row["tier"], row["physical"]) for row in copies}
        orphans = tuple(
            f"{physical} is in the {tier.name} tier but not in the catalog"
            for tier in tiers.values()
            for physical, _ in tier.iter_objects()
            if (tier.name, physical) not in known
        )
        epochs = [line for task in recipes.tasks for line in _epochs(catalog, task)]
        evidence = gather(catalog, recipes)
    return Verified(
        objects=len(copies),
        bytes=sum(row["bytes"] for row in copies),
        damaged=tuple(damaged),
        orphans=tuple(sorted(orphans)),
        epochs=len(epochs),
        draws=tuple(mistake for mistake in epochs if mistake),
        repaired=repair and bool(damaged),
        evidence=evidence,
        quality=reached.qualities(),
    )


def _drop(catalog: Catalog, tiers: Mapping[str, Tier], gone: Mapping[str, Mapping[int, str]]) -> None:
    def forget() -> None:
        for name, lost in gone.items():
            catalog.mark_gone(list(lost), "damaged", tier=name)

    remove(catalog, [(tiers[name], list(lost.values())) for name, lost in gone.items()], forget)


_Counts = dict[str, dict[int, int]]
"""``least`` and ``most``: how often each video comes in the epochs of a generation so far."""


def _epochs(catalog: Catalog, task: TaskRow) -> Iterator[str]:
    """For each drawn epoch of a task what is wrong with it, or nothing."""
    last = np.iinfo(np.int32).max
    drawn = catalog.load_draws(task.task_id, 0, int(last))
    epoch, position, video = (drawn[name].to_numpy() for name in ("epoch", "position", "video_id"))
    weighted = Drawn.of(task).weighted
    shares = shares_by_epoch(catalog, task.task_id) if weighted else {}
    digests = {row["epoch"]: row["digest"] for row in catalog.load_orders(task.task_id, 0, int(last)).to_pylist()}
    generations = {g.number: (g.first_epoch, g.last_epoch) for g in catalog.load_generations(task.task_id)}
    expected: dict[tuple[int, int], NDArray[np.int64]] = {}
    seen: dict[tuple[int, int], _Counts] = {}
    for number in sorted({*np.unique(epoch).tolist(), *digests}):
        mine = epoch == number
        videos = np.sort(video[mine])
        span = next((s for s in generations.values() if s[0] <= number <= s[1]), (number, number))
        before = expected.setdefault(span, videos)
        if weighted:
            counts = seen.setdefault(span, {})
            wrong = weighted_mistake(task.name, number, np.sort(position[mine]), videos, len(before), counts)
            yield wrong or weight_mistake(task.name, number, videos, shares.get(number))
        else:
            wrong = _mistake(task.name, number, np.sort(position[mine]), videos, before)
            if not wrong and number in digests and digest_of(video[mine]) != digests[number]:
                wrong = f"epoch {number} of task {task.name!r} has another order than that whose digest is recorded"
            yield wrong


def weighted_mistake(
    task: str, epoch: int, positions: NDArray[np.int64], videos: NDArray[np.int64], length: int, counts: _Counts
) -> str:
    """What is wrong with an epoch in which each video comes ⌊w⌋ or ⌈w⌉ times.

    What holds without the weights is asked, also of draws that an earlier release has recorded: the epochs of a
    generation have one length, and in any two of them a video comes equally often, or once more.
    """
    if not np.array_equal(positions, np.arange(len(positions))):
        return f"task {task!r} epoch {epoch}: its {len(positions)} draws have gaps or repeats in their positions"
    if len(videos) != length:
        return f"task {task!r} epoch {epoch}: it has {len(videos)} draws, the first epoch of its generation {length}"
    here = dict(zip(*(each.tolist() for each in np.unique(videos, return_counts=True)), strict=True))
    others = counts["least"].keys() if counts else here.keys()
    least, most = counts.setdefault("least", dict(here)), counts.setdefault("most", dict(here))
    for each in here.keys() | others:
        count = here.get(each, 0)
        least[each], most[each] = min(least.get(each, 0), count), max(most.get(each, 0), count)
        if most[each] - least[each] > 1:
            return (
                f"task {task!r} epoch {epoch}: video {each} is drawn {count} times, and {least[each]} to {most[each]} "
                "times in the epochs of its generation, where once more or less is all that weights allow"
            )
    return ""


def weight_mistake(task: str, epoch: int, videos: NDArray[np.int64], shares: Mapping[int, int] | None) -> str:
    """What of an epoch is not as the weights say by which it was drawn; nothing where these are not on record.

    Args:
        task: whose epoch.
        epoch: which.
        videos: the ids of its draws, sorted.
        shares: of each item, in units of 2**-32.
    """
    if shares is None:
        return ""
    here = dict(zip(*(each.tolist() for each in np.unique(videos, return_counts=True)), strict=True))
    for each in sorted(shares.keys() | here.keys()):
        count, (least, most) = here.get(each, 0), by_weight(shares.get(each, 0))
        if not least <= count <= most:
            times = f"{least} times" if least == most else f"{least} or {most} times"
            return f"task {task!r} epoch {epoch}: video {each} is drawn {count} times, and by its weight comes {times}"
    return ""


def _mistake(
    task: str, epoch: int, positions: NDArray[np.int64], videos: NDArray[np.int64], same: NDArray[np.int64]
) -> str:
    """What breaks law 1 (exactly once) in one epoch."""
    if not np.array_equal(positions, np.arange(len(positions))):
        return f"task {task!r} epoch {epoch}: its {len(positions)} draws have gaps or repeats in their positions"
    twice = videos[1:][videos[1:] == videos[:-1]]
    if len(twice):
        return f"task {task!r} epoch {epoch}: video {int(twice[0])} is drawn twice"
    if not np.array_equal(videos, same):
        return f"task {task!r} epoch {epoch}: it draws other videos than the first epoch of its generation"
    return ""
