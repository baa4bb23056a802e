"""Recording what policies did: which video stood in for a bad one, which were left out, clamped or looped."""

from collections.abc import Iterable

from viewcache.catalog import Catalog
from viewcache.catalog.records import SubstitutionRow
from viewcache.materializer.scheduling.generation import ActiveGeneration

__all__ = ["record_policies"]


def record_policies(
    catalog: Catalog, active: ActiveGeneration, used: Iterable[SubstitutionRow], known: Iterable[SubstitutionRow] = ()
) -> None:
    """Record uses of policies whose place is settled; the others wait until theirs is.

    A stand-in is recorded whenever one is chosen; what a policy leaves out or fills up only once, by what is ``known``.
    Places that ``drop_last`` leaves out are never read, and nothing is recorded of them.
    """
    certain, fresh = {_use(each) for each in known}, []
    for row in used:
        if row.position >= active.order.positions:
            continue
        if row.position >= active.settled(row.epoch):
            active.policies.setdefault(active.planned_index(row.epoch, row.position), []).append(row)
        elif row.policy == "replace" or _use(row) not in certain:
            fresh.append(row)
    catalog.add_substitutions(fresh)


def _use(row: SubstitutionRow) -> tuple[object, ...]:
    """Which use of a policy a row is of."""
    return row.epoch, row.position, row.sample, row.video_id, row.policy, row.replacement_id
