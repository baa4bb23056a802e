"""Orders that are recorded as what they are computed from, with a digest that proves it: one row for an epoch.

A task of images draws alone, and each epoch of it as a whole, so its order is a function of the seed, the task, the
epoch and the items that there are (docs/design/0061). The trade-off: an order is computed again when it is asked for,
in a seventh of a second for a million items; in return an epoch takes a hundred bytes instead of six for each item.
"""

from hashlib import blake2b

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.errors import CatalogDamaged
from viewcache.materializer.choices import Media
from viewcache.materializer.planning.order import order_state
from viewcache.materializer.randomness import permuted
from viewcache.materializer.spec import TaskSpec

__all__ = ["computed_order", "computed_orders", "digest_of", "draws_by_digest", "record_orders"]

_SIGN = 1 << 63


def draws_by_digest(spec: TaskSpec, *, together: bool) -> bool:
    """Whether new orders of a task are recorded by their digests.

    Those of videos may be drawn together with others' from one opening to the next, and weights are drawn by lot, place
    by place: both are history, of which each place is a row.
    """
    return spec.dataset.media == Media.IMAGE and spec.dataset.weighted is None and not together


def digest_of(ids: NDArray[np.int64]) -> str:
    """The digest of ids in their order: BLAKE2b of 16 bytes over little-endian 64-bit numbers, as 32 hex characters."""
    return blake2b(np.ascontiguousarray(ids, "<i8").tobytes(), digest_size=16).hexdigest()


def record_orders(
    catalog: Catalog, task: str, task_id: int, seed: int | None, epochs: range, named: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """Draw some epochs, record their orders by digests, and return them, (n,) ids each.

    Args:
        catalog: where they are recorded.
        task: its name.
        task_id: of the task.
        seed: of the task; None = it is not shuffled.
        epochs: which; none of them has an order.
        named: (n,) ids of the items, by name: the version of the dataset that the epochs are drawn of.
    """
    states = [None if seed is None else order_state(seed, task, epoch) for epoch in epochs]
    orders = [named if state is None else named[permuted(state, len(named))] for state in states]
    version = digest_of(named)
    columns = {
        "task_id": np.full(len(epochs), task_id),
        "epoch": np.array(epochs, np.int32),
        "items": np.full(len(epochs), len(named)),
        "version": [version] * len(epochs),
        "word": pa.array([None if state is None else (state ^ _SIGN) - _SIGN for state in states], pa.int64()),
        "digest": [digest_of(order) for order in orders],
    }
    catalog.record_orders(pa.table(columns), _runs(version, named))
    return orders


def computed_orders(catalog: Catalog, task: str, task_id: int, epochs: range) -> dict[int, NDArray[np.int64]]:
    """The orders of those epochs that are recorded by digests: epoch → (n,) ids.

    Raises:
        CatalogDamaged: see `computed_order`.
    """
    versions: dict[str, NDArray[np.int64]] = {}
    rows = catalog.load_orders(task_id, epochs.start, epochs.stop - 1).to_pylist()
    return {row["epoch"]: computed_order(catalog, task, row, versions) for row in rows}


def computed_order(
    catalog: Catalog, task: str, row: dict[str, object], versions: dict[str, NDArray[np.int64]]
) -> NDArray[np.int64]:
    """An order, checked against its digest.

    Args:
        catalog: where it is recorded.
        task: name of the task, for messages.
        row: of `Catalog.load_orders`.
        versions: items of versions by name that are known already; others are added.

    Raises:
        CatalogDamaged: the items of its version, or the order that is computed of them, are not those that were
            recorded.
    """
    version, word = str(row["version"]), row["word"]
    if version not in versions:
        versions[version] = _items(catalog, version)
    named = versions[version]
    _check(task, row, "its items are", version, named)
    order = named if word is None else named[permuted(int(str(word)) % (1 << 64), len(named))]
    _check(task, row, "its order is", str(row["digest"]), order)
    return order


def _check(task: str, row: dict[str, object], what: str, recorded: str, ids: NDArray[np.int64]) -> None:
    found = digest_of(ids)
    if found != recorded or len(ids) != row["items"]:
        raise CatalogDamaged(
            f"epoch {row['epoch']} of task {task!r}: {what} recorded with the digest {recorded} of {row['items']}, and "
            f"what is computed now has {found} of {len(ids)}. Rows of the catalog were changed or lost, or another "
            "release of viewcache draws in another way. An order never changes, so nothing is read. Move the database "
            "of the catalog aside, and the next opening makes it again from its journal; or bring both back from a "
            "copy; or open the cache with the release that wrote it. To draw anew, which gives paths other contents: "
            f"`viewcache forget … {task}`"
        )


def _runs(version: str, named: NDArray[np.int64]) -> pa.Table:
    """Ids that count up by one are one row together: those of a folder that was listed at once all are."""
    first = np.flatnonzero(np.diff(named, prepend=named[:1] - 2) != 1)
    columns = {
        "version": [version] * len(first),
        "first_place": first,
        "first_id": named[first],
        "items": np.diff(first, append=len(named)),
    }
    return pa.table(columns)


def _items(catalog: Catalog, version: str) -> NDArray[np.int64]:
    runs = catalog.load_runs(version)
    places, ids, items = (runs[name].to_numpy() for name in ("first_place", "first_id", "items"))
    return np.asarray(np.repeat(ids - places, items) + np.arange(items.sum(), dtype=np.int64))
