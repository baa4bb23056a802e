"""What choosing image by image gives beside mixes, which draw their images without regard to what each costs.

The same rule as in training (`retention/balance`), over the images of a sample and the rates that were measured. The
trade-off: decoding is taken to cost as much as an image has pixels, and reading a kept picture as much as it has bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.planning.devices import SOURCE
from viewcache.materializer.profiling.rates import Rates
from viewcache.materializer.retention.balance import balance
from viewcache.materializer.retention.choice import Options
from viewcache.store.tier import LOCAL

__all__ = ["ByPrice", "Images", "by_price"]

_ENCODED, _KEPT = 0, 1
"""Columns: made of the file, made of a picture that is kept in the first codec; the other codecs come behind."""


@dataclass(frozen=True, slots=True)
class Images:
    """Of each of n images; (n,) arrays but for one."""

    file_bytes: NDArray[np.float64]
    pixels: NDArray[np.float64]
    """Of the file's picture."""
    picture_bytes: NDArray[np.float64]
    """Of the picture that may be kept."""
    kept_bytes: NDArray[np.float64]
    """(n, codecs) that it takes in each codec."""


@dataclass(frozen=True, slots=True)
class ByPrice:
    """What the choice should give."""

    per_s: float
    """Images a second."""
    kept: float
    """Part of the images that is kept."""


def by_price(rates: Sequence[Rates], images: Images) -> ByPrice:
    """Choose among images of which there is room for all.

    Args:
        rates: means of these images, for each codec in which pictures may be kept.
        images: the sample.
    """
    some, forms = rates[0], (rates[0].source, *(each.kept for each in rates))
    kept = images.picture_bytes / images.picture_bytes.mean()
    sizes = np.stack([images.pixels / images.pixels.mean(), *[kept] * len(rates)], axis=1)
    worker_s, reader_s = (sizes * [getattr(form, name) for form in forms] for name in ("worker_s", "reader_s"))
    # Of two limits of the cores that one is weighed which binds where most is decoded.
    of_workers = some.source.worker_s / some.workers > (some.source.worker_s + some.source.reader_s) / some.cores
    core_s, cores = (worker_s, some.workers) if of_workers else (worker_s + reader_s, some.cores)
    from_kept = np.column_stack([np.zeros(len(kept)), images.kept_bytes])
    from_files = np.zeros_like(from_kept)
    from_files[:, _ENCODED] = images.file_bytes
    device_s = {SOURCE: from_files / some.source.bytes_per_s, LOCAL: from_kept / some.kept.bytes_per_s}
    if some.one_device:
        device_s = {LOCAL: device_s[SOURCE] + device_s[LOCAL]}
    options = Options(from_kept.astype(np.int64), core_s, core_s, _KEPT, _ENCODED, device_s, cores)
    option = balance(options, int(options.bytes.max(axis=1).sum())).option

    def mean(each: NDArray[np.float64]) -> float:
        return float(each[np.arange(len(option)), option].mean())

    busy = some.core_s(mean(worker_s), mean(reader_s)), some.device_s(mean(from_files), mean(from_kept))
    return ByPrice(1 / max(busy), float((option != _ENCODED).mean()))
