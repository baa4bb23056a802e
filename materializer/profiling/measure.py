"""What a sample takes of devices and cores, and what mixes of it really give: one profile of a machine (Liquid §4.1).

Each part is measured alone, then whole pipelines of the mixes that the search asks for. The trade-off: a profile takes
some twenty seconds, so each mix gets two or three; a machine that others use needs more of them, or gives less.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from viewcache.catalog.records import IoSampleRow
from viewcache.materializer.profiling.by_price import ByPrice, by_price
from viewcache.materializer.profiling.cold import ColdRead, read_cold, write_back
from viewcache.materializer.profiling.mixes import MOST_PROBES, TENTHS, Probed, Search, search
from viewcache.materializer.profiling.pipeline import WINDOWS, Pipeline, Throughput
from viewcache.materializer.profiling.rates import Form, Rates
from viewcache.store import CODECS

__all__ = ["STEPS", "Measured", "measure"]

_READ_WINDOWS = 3
"""Of the device, for files and for kept pictures."""

STEPS = 3 + len(CODECS) + MOST_PROBES
"""Measurements at most: of two devices, of the cores for files and for pictures in each codec, of mixes."""

_ALL_WINDOWS = 2 * _READ_WINDOWS + (1 + len(CODECS) + MOST_PROBES) * WINDOWS
"""That all seconds are parted into."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A profile of a sample."""

    images: int
    """Of which pictures were kept: those that can be decoded."""
    source: ColdRead
    """Of files of images."""
    kept: ColdRead
    """Of kept pictures."""
    codec: str
    """Of the pictures in the mixes: the one that takes least to pack of those that promise about the most."""
    rates: Mapping[str, Rates]
    """By the codec of kept pictures."""
    search: Search
    mixes: Mapping[int, Throughput]
    """What was measured of each mix that was tried, by tenths: the window of the median rate."""
    by_price: ByPrice
    """What should come of choosing image by image."""
    work: Sequence[IoSampleRow]
    """What stages of work and codecs take of a core."""


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
    files, pictures = pipeline.files(), pipeline.extents(pipeline.codecs[0])
    every = (files, *map(pipeline.extents, pipeline.codecs))
    write_back(extent for groups in every for group in groups for extent in group)
    source = read_cold(files, pipeline.workers, _READ_WINDOWS * window_s)
    tell("kept pictures from their device")
    kept = read_cold(pictures, pipeline.workers, _READ_WINDOWS * window_s)
    tell("cores, of images")
    of_source = _form(pipeline, None, window_s, source)
    is_one = len({os.stat(groups[0][0].path).st_dev for groups in (files, pictures)}) == 1
    rates: dict[str, Rates] = {}
    for name in pipeline.codecs:
        tell(f"cores, of pictures kept as {name}")
        rates[name] = Rates(of_source, _form(pipeline, name, window_s, kept), is_one, pipeline.workers, cores)
    promised = {name: each.predicted(each.best) for name, each in rates.items()}
    codec = next(name for name in rates if promised[name] >= _NEARLY * max(promised.values()))
    of_codec = rates[codec]
    cold = source.is_of_device or kept.is_of_device
    mixes: dict[int, Throughput] = {}

    def probe(tenths: int) -> Probed:
        tell(f"{tenths} of 10 kept")
        windows = pipeline.run(tenths, codec, window_s, cold=cold)
        middle = median(each.per_s for each in windows)
        found = mixes[tenths] = next(each for each in windows if each.per_s == middle)
        device_s = of_codec.device_s(found.source_bytes, found.kept_bytes)
        return Probed(free_per_s(of_codec, found), device_s > of_codec.core_s(found.worker_s, found.reader_s))

    found, chosen = search(probe), by_price(list(rates.values()), pipeline.images())
    return Measured(pipeline.kept_images, source, kept, codec, rates, found, mixes, chosen, pipeline.measured_work())


def free_per_s(rates: Rates, found: Throughput) -> float:
    """What a mix would have given, had no other process had the cores for which its workers waited.

    Where devices bind, waiting for a core costs nothing: something else is waited for meanwhile.
    """
    device_s = rates.device_s(found.source_bytes, found.kept_bytes)
    free = found.per_s / (1 - min(found.queued, _MOST_QUEUED))
    return max(found.per_s, min(free, 1 / device_s)) if device_s else free


_NEARLY = 0.95
"""What promises so much of the most is as good: measured once, it says no more."""

_MOST_QUEUED = 0.9
"""More than this says nothing of what workers would do with the cores."""


def _form(pipeline: Pipeline, codec: str | None, window_s: float, read: ColdRead) -> Form:
    """Pictures in a codec, or files, from memory, by the calmest window: what disturbs makes work take longer."""
    tenths = TENTHS[0] if codec is None else TENTHS[-1]
    windows = pipeline.run(tenths, codec or pipeline.codecs[0], window_s, cold=False)
    return Form(
        min(each.worker_s for each in windows),
        min(each.reader_s for each in windows),
        pipeline.image_bytes(codec),
        read.bytes_per_s if read.is_of_device else float("inf"),
    )
