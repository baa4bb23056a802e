"""What choosing image by image gives beside mixes, which draw their images without regard to what each costs.

The same rule as in training (`retention/balance`), over the images of a sample and the rates that were measured. The
trade-off: decoding is taken to cost as much as an image has pixels, and reading a kept picture as much as it has bytes.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.planning.devices import SOURCE
from viewcache.materializer.profiling.rates import Form, Rates
from viewcache.materializer.retention.balance import balance
from viewcache.materializer.retention.choice import Options
from viewcache.store.tier import LOCAL

__all__ = ["ByPrice", "Images", "by_price"]

_ENCODED, _KEPT = 0, 1
"""Columns: made of the file, made of a kept picture."""


@dataclass(frozen=True, slots=True)
class Images:
    """Of each of n images; (n,) arrays."""

    file_bytes: NDArray[np.float64]
    pixels: NDArray[np.float64]
    """Of the file's picture."""
    kept_bytes: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ByPrice:
    """What the choice should give."""

    per_s: float
    """Images a second."""
    kept: float
    """Part of the images that is kept."""


def by_price(rates: Rates, images: Images) -> ByPrice:
    """Choose among images of which there is room for all.

    Args:
        rates: means of these images.
        images: the sample.
    """
    sizes = images.pixels / images.pixels.mean(), images.kept_bytes / images.kept_bytes.mean()
    forms = rates.source, rates.kept
    # Of two limits of the cores that one is weighed which binds where most is decoded.
    of_workers = rates.source.worker_s / rates.workers > (rates.source.worker_s + rates.source.reader_s) / rates.cores
    cores = rates.workers if of_workers else rates.cores
    core_s = np.stack([size * _core_s(form, of_workers) for size, form in zip(sizes, forms, strict=True)], axis=1)
    nothing = np.zeros(len(images.pixels))
    file_s, kept_s = images.file_bytes / rates.source.bytes_per_s, images.kept_bytes / rates.kept.bytes_per_s
    if rates.one_device:
        device_s = {LOCAL: np.stack([file_s, kept_s], axis=1)}
    else:
        device_s = {SOURCE: np.stack([file_s, nothing], axis=1), LOCAL: np.stack([nothing, kept_s], axis=1)}
    size = np.stack([nothing, images.kept_bytes], axis=1).astype(np.int64)
    options = Options(size, core_s, core_s, _KEPT, _ENCODED, device_s, cores)
    kept = balance(options, int(size.sum())).option == _KEPT
    worker_s, reader_s = (
        float(np.where(kept, sizes[_KEPT] * of_kept, sizes[_ENCODED] * of_source).mean())
        for of_source, of_kept in (
            (rates.source.worker_s, rates.kept.worker_s),
            (rates.source.reader_s, rates.kept.reader_s),
        )
    )
    read = float(np.where(kept, 0, images.file_bytes).mean()), float(np.where(kept, images.kept_bytes, 0).mean())
    return ByPrice(1 / max(rates.core_s(worker_s, reader_s), rates.device_s(*read)), float(kept.mean()))


def _core_s(form: Form, of_workers: bool) -> float:
    return form.worker_s if of_workers else form.worker_s + form.reader_s
