"""Measure a task of images on this machine, and record what its devices give (Liquid §4.1).

The task is planned on a copy of the catalog, so nothing is drawn, and what is kept for measuring lies in a folder that
goes again. Only measurements are recorded: of devices with the machine that they are of, of work as any other.
"""

import math
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from viewcache.api.config.load import Config
from viewcache.api.preview.plan import planned_tasks
from viewcache.api.profile.scratch import LAYOUT_BYTES, check_free, owned_store, scratch_folder
from viewcache.api.text import Bar
from viewcache.catalog.records import IoSampleRow
from viewcache.errors import BadInput, NotFound
from viewcache.materializer.choices import Media
from viewcache.materializer.dataset.listing import Progress
from viewcache.materializer.media.source import local_path
from viewcache.materializer.planning.devices import READ, SOURCE, host_of, record_devices
from viewcache.materializer.planning.mounts import mount_of
from viewcache.materializer.profiling.cold import ColdRead
from viewcache.materializer.profiling.measure import STEPS, Measured, free_per_s, measure
from viewcache.materializer.profiling.mixes import TENTHS
from viewcache.materializer.profiling.pipeline import Pipeline, codecs_of
from viewcache.materializer.profiling.rates import Rates
from viewcache.materializer.profiling.sample import Sample, sample_of
from viewcache.store.headroom import headroom
from viewcache.store.tier import LOCAL

__all__ = ["Device", "Kept", "Mix", "Profile", "Tried", "Wanted", "check_seconds", "prepared", "profile"]

LEAST_S, MOST_S = 1.0, 3600.0
"""Of measuring."""
MOST_IMAGES = 256
"""Of a sample."""
BOTH = 0.1
"""What is so much slower, or less, binds as well."""


@dataclass(frozen=True, slots=True)
class Device:
    """What the device of a tier gives."""

    tier: str
    """``source`` for the files of images, ``local`` for kept pictures."""
    where: str
    """File system, device and options of its mount."""
    bytes_per_s: float | None
    """None: memory has the bytes, and the device does not count."""
    image_bytes: float
    """Read for one image, on average."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What pictures give that are kept in one codec."""

    codec: str
    image_bytes: float
    """Of a picture, on average."""
    cores_per_s: float
    """Pictures a second that the cores make of them alone, without waiting for a device."""
    best: int
    """The mix of which most is predicted, in tenths."""
    predicted_per_s: float
    """Images a second of that mix."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What a whole pipeline of a mix gave."""

    per_s: float
    """Images a second."""
    free_per_s: float
    """The same, had nobody else had the cores that its workers waited for."""
    queued: float
    """Part of the time in which workers could have worked, and others had the cores."""


@dataclass(frozen=True, slots=True)
class Mix:
    """One of the eleven shares, in images a second."""

    kept: int
    """Of ten images, made of kept pictures; the others are decoded."""
    devices_per_s: float | None
    """What the devices give alone; None = they do not count."""
    cores_per_s: float
    """What the cores make alone."""
    predicted_per_s: float
    """The smaller one."""
    tried: Tried | None
    """None = only predicted."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What was measured, and what follows."""

    task: str
    images: int
    """That were measured."""
    of_images: int
    """That an epoch has."""
    seconds: float
    """That measuring was to take."""
    workers: int
    cores: int
    devices: tuple[Device, ...]
    codecs: tuple[Kept, ...]
    """One, if the configuration says which."""
    codec: str
    """Of the pictures in the mixes: the one that takes least to pack of those that promise about the most."""
    mixes: tuple[Mix, ...]
    kept: int
    """The best share, in tenths."""
    by_price_per_s: float
    """Images a second that `cache.mix: auto` should give, which chooses image by image by what each costs."""
    by_price_kept: float
    """Part of the images that it would keep."""
    binds: str
    """``device``, ``cores`` or ``both``: what is slower at that share."""
    dataset_bytes: float
    """Of all images and of kept pictures of all, about."""
    memory_bytes: int | None
    """That the page cache could have; None where the system does not say."""
    recorded: bool
    """Whether the catalog has rates of devices now."""

    @property
    def best(self) -> Mix:
        """The row of the best share."""
        return self.mixes[self.kept]

    def as_dict(self) -> dict[str, object]:
        """The same as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be measured: a task's sample, before anything is made of it."""

    sample: Sample
    config: Config

    @property
    def scratch_bytes(self) -> int:
        """Most bytes that kept pictures take for a moment."""
        return LAYOUT_BYTES + len(codecs_of(self.config.cache)) * sum(pack.bound for pack in self.sample.packs)

    def as_dict(self) -> dict[str, object]:
        """What would be measured, as plain values."""
        sample = self.sample
        of = {"task": sample.task, "images": len(sample.parts), "of_images": sample.images}
        return {**of, "scratch_bytes": self.scratch_bytes, "store": self.config.cache.local.url}


def check_seconds(seconds: float) -> None:
    """Refuse a time in which nothing can be measured.

    Raises:
        BadInput: it is too short, or no number.
    """
    if not LEAST_S <= seconds <= MOST_S:
        raise BadInput(f"--seconds {seconds:g}: {LEAST_S:g} to {MOST_S:g}; each of nine measurements takes its share")


def prepared(config: Config, tier: str = LOCAL, progress: Progress | None = None, *, dry_run: bool = False) -> Wanted:
    """Find the sample of a configuration's first task of images; nothing is made or recorded.

    Args:
        config: what is asked.
        tier: where kept pictures are to lie.
        progress: called while images are looked at.
        dry_run: nothing will be measured, so the store may be in use.

    Raises:
        CatalogBusy: another process has the cache open.
        BadInput: there is no task of images, its images lie far away, nothing smaller can be kept, or workers do not
            read kept pictures from that tier.
        NotFound: the configuration has no such tier.
        DatasetNotFound: the dataset is not there, or is empty.
    """
    names = [each.name for each in config.cache.tiers]
    if tier not in names:
        raise NotFound(f"--tier {tier}: the configuration has no such tier; it has {', '.join(names)}")
    if tier != LOCAL:
        raise BadInput(f"--tier {tier}: workers read kept pictures from the {LOCAL} tier alone; measure that one")
    if not hasattr(os, "posix_fadvise"):
        raise BadInput("this system cannot be told to forget what it has read; profiles are made on Linux")
    images = tuple(task for task in config.tasks if task.dataset.media == Media.IMAGE)
    if config.tasks and not images:
        raise BadInput(
            f"task {config.tasks[0].name!r} is of videos, of which clips are kept and not shares of images: no mix is "
            "measured of them. What devices give counts for videos, too: measure it by a configuration with this store "
            "and a task of images (image_dataset_path) whose files lie on the disk of the videos"
        )
    if not dry_run:
        check_free(config)  # the headers of a million images take minutes
    with planned_tasks(replace(config, tasks=images[:1]), progress) as tasks:
        task, _, _ = next(tasks)
        return Wanted(sample_of(task, MOST_IMAGES), config)


def profile(wanted: Wanted, seconds: float, bar: Bar) -> Profile:
    """Measure, and record what devices give and what work takes.

    Args:
        wanted: see `prepared`.
        seconds: of measuring, about; making the pictures that are kept comes on top.
        bar: shows how far it is.

    Raises:
        BadInput: too few seconds, or too few images that can be decoded.
        CatalogBusy: another process has the cache open.
        BudgetTooSmall: the local tier has no room for the sample.
        Full: the disk has none.
        WorkerDied: a worker ended.
    """
    check_seconds(seconds)
    sample, cache = wanted.sample, wanted.config.cache
    with owned_store(wanted.config) as (catalog, tier):
        with scratch_folder(tier, wanted.scratch_bytes) as folder, Pipeline(cache, sample, folder) as pipeline:
            pictures = len(sample.parts) * len(pipeline.codecs)
            for done in pipeline.keep():
                bar.at(done, pictures + STEPS, "pictures to keep")
            steps = iter(range(pictures, pictures + STEPS))
            cores = len(os.sched_getaffinity(0))
            found = measure(pipeline, seconds, cores, lambda what: bar.at(next(steps), pictures + STEPS, what))
        rows = [*_row(SOURCE, found.source), *_row(LOCAL, found.kept)]
        is_one = found.rates[found.codec].one_device
        record_devices(catalog, rows, host_of(tier.root), time.time(), is_one=is_one)
        catalog.add_io_samples(found.work)
    return _profile(wanted, seconds, found, recorded=bool(rows))


def _row(tier: str, read: ColdRead) -> Sequence[IoSampleRow]:
    """What is recorded of a device; nothing where it was not the device that was read."""
    bucket = (read.bytes // read.pictures).bit_length() - 1
    return [IoSampleRow(READ, bucket, "", tier, read.pictures, read.seconds, read.bytes)] if read.is_of_device else []


def _profile(wanted: Wanted, seconds: float, found: Measured, *, recorded: bool) -> Profile:
    sample, rates, best = wanted.sample, found.rates[found.codec], found.search.best
    source, kept = rates.source, rates.kept
    places = {SOURCE: local_path(sample.parts[0].source.uri), LOCAL: wanted.config.cache.local.url}
    forms = {SOURCE: source, LOCAL: kept}
    devices = tuple(
        Device(tier, mount_of(places[tier]).words, _finite(form.bytes_per_s), form.bytes)
        for tier, form in forms.items()
    )
    slower, faster = sorted((rates.devices_per_s(best), rates.cores_per_s(best)))
    binds = "device" if slower == rates.devices_per_s(best) else "cores"
    memory = headroom()
    return Profile(
        sample.task,
        found.images,
        sample.images,
        seconds,
        rates.workers,
        rates.cores,
        devices,
        tuple(_kept(codec, each) for codec, each in found.rates.items()),
        found.codec,
        tuple(_mix(found, tenths) for tenths in TENTHS),
        best,
        found.by_price.per_s,
        found.by_price.kept,
        "both" if faster <= slower * (1 + BOTH) else binds,
        sample.images * (source.bytes + kept.bytes),
        None if memory is None else memory.available,
        recorded,
    )


def _kept(codec: str, rates: Rates) -> Kept:
    best = rates.best
    return Kept(codec, rates.kept.bytes, rates.cores_per_s(TENTHS[-1]), best, rates.predicted(best))


def _mix(found: Measured, tenths: int) -> Mix:
    rates, seen = found.rates[found.codec], found.mixes.get(tenths)
    tried = None if seen is None else Tried(seen.per_s, free_per_s(rates, seen), seen.queued)
    devices = _finite(rates.devices_per_s(tenths))
    return Mix(tenths, devices, rates.cores_per_s(tenths), rates.predicted(tenths), tried)


def _finite(rate: float) -> float | None:
    return None if math.isinf(rate) else rate
