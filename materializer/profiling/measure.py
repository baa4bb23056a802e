"""What a sample takes of devices and cores, and what mixes of it really give: one profile of a machine (Liquid §4.1).

Each part is measured alone, then whole pipelines of the mixes that the search asks for. The trade-off: a profile takes
some twenty seconds, so each mix gets two or three; a machine that others use needs more of them, or gives less.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from viewcache.materializer.profiling.by_price import ByPrice, by_price
from viewcache.materializer.profiling.cold import ColdRead, read_cold, write_back
from viewcache.materializer.profiling.mixes import MOST_PROBES, TENTHS, Probed, Search, search
from viewcache.materializer.profiling.pipeline import WINDOWS, Pipeline, Throughput
from viewcache.materializer.profiling.rates import Form, Rates

__all__ = ["STEPS", "Measured", "measure"]

_READ_WINDOWS = 2
"""Of the device, for files and for kept pictures."""

STEPS = 4 + MOST_PROBES
"""Measurements at most: of two devices, of the cores for two forms, of mixes."""

_ALL_WINDOWS = 2 * _READ_WINDOWS + (2 + MOST_PROBES) * WINDOWS
"""That all seconds are parted into."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A profile of a sample."""

    source: ColdRead
    """Of files of images."""
    kept: ColdRead
    """Of kept pictures."""
    rates: Rates
    search: Search
    mixes: Mapping[int, Throughput]
    """What was measured of each mix that was tried, by tenths: the window of the median rate."""
    by_price: ByPrice
    """What should come of choosing image by image."""


def measure(pipeline: Pipeline, seconds: float, cores: int, tell: Callable[[str], None]) -> Measured:
    """Measure a sample of which pictures are kept.

    Args:
        pipeline: of which `Pipeline.keep` is over.
        seconds: in all, about.
        cores: of the machine, that this process may use.
        tell: called with a few words before each of at most `STEPS` measurements.

    Raises:
        Full: the machine has no memory for it.
        WorkerDied: a worker ended.
        BadVideo: files were changed meanwhile.
    """
    window_s = seconds / _ALL_WINDOWS
    tell("images from their device")
    files, pictures = pipeline.files(), pipeline.extents(kept=True)
    write_back(extent for groups in (files, pictures) for group in groups for extent in group)
    source = read_cold(files, pipeline.workers, _READ_WINDOWS * window_s)
    tell("kept pictures from their device")
    kept = read_cold(pictures, pipeline.workers, _READ_WINDOWS * window_s)
    tell("cores, of images")
    of_source = _form(pipeline, TENTHS[0], window_s, source)
    tell("cores, of kept pictures")
    of_kept = _form(pipeline, TENTHS[-1], window_s, kept)
    devices = {os.stat(pipeline.extents(kept=each)[0][0].path).st_dev for each in (False, True)}
    rates = Rates(of_source, of_kept, len(devices) == 1, pipeline.workers, cores)
    cold = source.is_of_device or kept.is_of_device
    mixes: dict[int, Throughput] = {}

    def probe(tenths: int) -> Probed:
        tell(f"{tenths} of 10 kept")
        windows = pipeline.run(tenths, window_s, cold=cold)
        middle = median(each.per_s for each in windows)
        found = mixes[tenths] = next(each for each in windows if each.per_s == middle)
        device_s = rates.device_s(found.source_bytes, found.kept_bytes)
        return Probed(free_per_s(rates, found), device_s > rates.core_s(found.worker_s, found.reader_s))

    return Measured(source, kept, rates, search(probe), mixes, by_price(rates, pipeline.images()))


def free_per_s(rates: Rates, found: Throughput) -> float:
    """What a mix would have given, had no other process had the cores for which its workers waited.

    Where devices bind, waiting for a core costs nothing: something else is waited for meanwhile.
    """
    device_s = rates.device_s(found.source_bytes, found.kept_bytes)
    free = found.per_s / (1 - min(found.queued, _MOST_QUEUED))
    return max(found.per_s, min(free, 1 / device_s)) if device_s else free


_MOST_QUEUED = 0.9
"""More than this says nothing of what workers would do with the cores."""


def _form(pipeline: Pipeline, tenths: int, window_s: float, read: ColdRead) -> Form:
    """One pure form, read from memory, by its calmest window: what disturbs makes work take longer, never less."""
    windows = pipeline.run(tenths, window_s, cold=False)
    return Form(
        min(each.worker_s for each in windows),
        min(each.reader_s for each in windows),
        pipeline.image_bytes(kept=tenths > 0),
        read.bytes_per_s if read.is_of_device else float("inf"),
    )
