"""A profile as a table of eleven mixes and a few lines that say what follows from them."""

from collections.abc import Iterator

from viewcache.api.profile.profile import Device, Profile, Wanted
from viewcache.api.text import counted, size
from viewcache.materializer.profiling.mixes import TENTHS

__all__ = ["HEADS", "dry_lines", "profile_lines", "profile_rows", "profile_title"]

HEADS = ("kept : decoded", "device", "cores", "predicted", "measured", "with free cores")
"""Of the table, in images a second."""

NOISY = 0.1
"""Where workers waited for a core for so much of their time, rates say more of others than of this machine."""

AIM = 0.15
"""What a prediction may be off."""


def profile_title(found: Profile) -> str:
    """What the table is of."""
    return (
        f"images a second: task {found.task!r}, {found.images} of {counted(found.of_images, 'image')} kept as "
        f"{found.codec}, {counted(found.workers, 'worker')} on {counted(found.cores, 'core')}"
    )


def profile_rows(found: Profile) -> list[tuple[object, ...]]:
    """The eleven mixes; ``*`` is the chosen one."""
    return [
        (
            f"{mix.kept} : {TENTHS[-1] - mix.kept}{' *' if mix.kept == found.kept else ''}",
            _rate(mix.devices_per_s),
            _rate(mix.cores_per_s),
            _rate(mix.predicted_per_s),
            _rate(None if mix.tried is None else mix.tried.per_s),
            _rate(None if mix.tried is None else mix.tried.free_per_s),
        )
        for mix in found.mixes
    ]


def profile_lines(found: Profile) -> Iterator[str]:
    """What follows, in words."""
    best = found.best
    assert best.tried is not None  # the best one of those that were
    bound = {"device": "the device binds", "cores": "the cores bind", "both": "device and cores are about as fast"}
    yield (
        f"best: keep {best.kept} of 10 images as {found.codec} pictures, {best.tried.per_s:,.0f} images a second; "
        f"{bound[found.binds]}"
    )
    for each in found.codecs:
        yield (
            f"kept as {each.codec}: {size(each.image_bytes)} each, cores make {each.cores_per_s:,.0f} images a second "
            f"of them; {each.predicted_per_s:,.0f} predicted of the best mix, {each.best} of 10"
        )
    most = max(mix.predicted_per_s for mix in found.mixes)
    yield (
        f"by price, image by image, as `cache.mix: auto` chooses: {found.by_price_per_s:,.0f} images a second, "
        f"{found.by_price_per_s / most:.2f} times what is predicted of the best mix; {found.by_price_kept:.0%} kept"
    )
    yield from map(_device_line, found.devices)
    ratio = best.tried.free_per_s / best.predicted_per_s
    far = "" if abs(ratio - 1) <= AIM else f": more than {AIM:.0%} off, so take the table with care"
    yield f"measured, with free cores, against predicted: {ratio:.2f}{far}"
    queued = max(mix.tried.queued for mix in found.mixes if mix.tried is not None)
    if queued > NOISY:
        yield (
            f"other processes had the cores for up to {queued:.0%} of the time in which workers could have worked; "
            "measure again when they are quiet"
        )
    memory = found.memory_bytes
    if memory is not None and found.dataset_bytes < memory and any(each.bytes_per_s for each in found.devices):
        yield (
            f"all images and kept pictures take about {size(found.dataset_bytes)}, and {size(memory)} of memory are "
            "free: once they are read the page cache has them, and the device does not count"
        )
    yield "recorded in io_samples, for plans to come: what stages of work and codecs take of a core"
    if found.recorded:
        yield "recorded there too, for this machine: what devices give, as rows of the op `read`"
    else:
        yield "no device is recorded: without rates it counts as free, which it is here"


def _device_line(device: Device) -> str:
    what = {"source": "images", "local": "kept pictures"}[device.tier]
    if device.bytes_per_s is None:
        rate = "memory has them even after they were dropped: the page cache has it, the device does not count"
    else:
        rate = f"{size(device.bytes_per_s)} a second, read cold"
    return f"{what}: {size(device.image_bytes)} each on {device.where}; {rate}"


def dry_lines(wanted: Wanted, seconds: float) -> Iterator[str]:
    """What a profile would do."""
    sample = wanted.sample
    yield (
        f"would measure {counted(len(sample.parts), 'image')} of {sample.images} of task {sample.task!r} for about "
        f"{seconds:g} s"
    )
    yield (
        f"would keep up to {size(wanted.scratch_bytes)} of pictures in {wanted.config.cache.local.url} meanwhile, and "
        "record what devices give and what work takes"
    )


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.0f}"
