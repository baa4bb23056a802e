"""How often each item of a weighted task was to come in the epochs that are drawn, on record for `viewcache verify`.

Settings of the catalog: an index of epochs for each task, and what they have in common once, because weights are the
same in most generations.
"""

import base64
import json
import zlib
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.materializer.randomness import ONE

__all__ = ["by_weight", "record_shares", "shares_by_epoch"]


def record_shares(
    catalog: Catalog, task_id: int, epochs: range, ids: NDArray[np.int64], shares: NDArray[np.int64]
) -> None:
    """Record before some epochs are drawn how often each item is to come.

    Args:
        catalog: what we know.
        task_id: whose epochs.
        epochs: which; nothing behind them is drawn.
        ids: (n,) of the items.
        shares: (n,) see `weighted_order.shares_of`.
    """
    if not len(epochs):
        return
    data = np.stack([ids, shares]).astype("<i8").tobytes()
    digest = blake2b(data, digest_size=16).hexdigest()
    if catalog.setting(f"shares {digest}") is None:
        catalog.set_setting(f"shares {digest}", base64.b64encode(zlib.compress(data)).decode())
    kept = [each for each in _index(catalog, task_id) if each[0] < epochs.start]
    catalog.set_setting(f"weights {task_id}", json.dumps([*kept, [epochs.start, epochs.stop, digest]]))


def shares_by_epoch(catalog: Catalog, task_id: int) -> dict[int, dict[int, int]]:
    """Epoch → item → its share, of all epochs of a task of which they are on record."""
    found: dict[str, dict[int, int]] = {}
    out: dict[int, dict[int, int]] = {}
    for start, stop, digest in _index(catalog, task_id):
        if digest not in found:
            text = catalog.setting(f"shares {digest}") or ""
            ids, shares = np.frombuffer(zlib.decompress(base64.b64decode(text)), "<i8").reshape(2, -1).tolist()
            found[digest] = dict(zip(ids, shares, strict=True))
        out |= dict.fromkeys(range(start, stop), found[digest])
    return out


def by_weight(share: int) -> tuple[int, int]:
    """How often an item may come in an epoch: its share rounded down, and up."""
    return share // ONE, -(-share // ONE)


def _index(catalog: Catalog, task_id: int) -> list[tuple[int, int, str]]:
    """(first epoch, the one behind the last, digest) of what is on record, in order."""
    return [tuple(each) for each in json.loads(catalog.setting(f"weights {task_id}") or "[]")]
