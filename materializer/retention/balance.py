"""Choosing what to keep where a disk is as scarce as cores: for each item one of its ways, by two prices (Liquid §4.1).

An epoch takes what its slowest part takes: the cores together, or one of the devices. Kept pictures save cores and take
more of a device than encoded files do, so neither all nor nothing is best, but a balance of both, and which items are
kept matters as much as how many: those that save the most core seconds for a second of the device. The trade-off: the
price of only one device at a time is looked for; of the others it is seen that none takes longer.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.choices import KeepRule
from viewcache.materializer.retention.choice import Options, WayChoice, collapse, leaves_until_full, prune, taken
from viewcache.materializer.retention.spread import spread

__all__ = ["CORES", "RULES", "Times", "balance", "times_of"]

CORES = "cores"
"""What binds where no device does."""

STEPS = 16
"""So many prices are tried at most; some five are enough to find the two choices that the best one lies between."""

NEARLY = 0.98
"""What is busy for so much of the time is waited for too."""

MOST_PRICE = 16.0
"""A device's second is worth at most so many of every core: the hull of few items has sides that are nearly flat."""

CLOSE = 1e-6
"""Of an epoch's time: what is not worth another price."""

ALIKE = 1e-3
"""Of an epoch's time: what evenness over its batches may cost."""

Ways = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Times:
    """How long each part of the machine is busy with a choice, in seconds."""

    core_s: float
    """All work and what comes on top of it, by the number of cores."""
    device_s: dict[str, float]
    """By device."""

    @property
    def bound_by(self) -> tuple[str, ...]:
        """The parts that are busy about as long as all of it takes: devices, `CORES`, or both."""
        parts = {CORES: self.core_s, **self.device_s}
        return tuple(name for name, s in parts.items() if s >= self.seconds * NEARLY)

    @property
    def seconds(self) -> float:
        """How long all of it takes if parts do not wait for each other."""
        return max(self.core_s, *self.device_s.values()) if self.device_s else self.core_s


def times_of(options: Options, option: Ways) -> Times:
    """What a choice, (V,) columns, takes of each part of the machine."""
    video = np.arange(len(option))
    devices = {name: float(each[video, option].sum()) for name, each in options.device_s.items()}
    return Times((float(options.cost_s[video, option].sum()) + options.beside_s) / options.cores, devices)


def balance(options: Options, budget: int) -> WayChoice:
    """The choice with which an epoch takes least time, within about one item; of equal ones that of least core seconds.

    Without device seconds it is `prune`. It is never slower than any one way for all items that the budget holds.
    """
    cheapest = prune(options, budget)
    if not any(each.any() for each in options.device_s.values()):
        return cheapest
    found, prices = [cheapest.option, *_alike(options, budget)], {}
    for device in options.device_s:
        priced, prices[device] = _priced(options, budget, device, cheapest.option)
        found += priced
    if cheapest.short_bytes:  # the least is too much: nothing can be chosen that fits
        found = [option for option in found if taken(options, option, budget).short_bytes <= cheapest.short_bytes]
    ranked = [(times_of(options, option), option) for option in found]
    least = min(times.seconds for times, _ in ranked)
    best = min((each for each in ranked if each[0].seconds <= least * (1 + CLOSE)), key=lambda each: each[0].core_s)
    waited_for = {device: prices[device] for device in best[0].bound_by if device in prices}
    return replace(taken(options, best[1], budget), device_price=waited_for)


def _alike(options: Options, budget: int) -> Iterator[Ways]:
    """One way for all, of each way that the budget holds."""
    for way in range(options.bytes.shape[1]):
        if np.isfinite(options.cost_s[:, way]).all() and options.bytes[:, way].sum() <= budget:
            yield np.full(len(options.bytes), way, np.int64)


def _priced(options: Options, budget: int, device: str, cheapest: Ways) -> tuple[list[Ways], float]:
    """The choices at the prices of a device at which it and the cores come closest to each other, and one between them.

    Beside them the core seconds that a second of the device is worth then. One that is waited for whatever is chosen
    keeps all cores waiting: its second is worth one of each.

    All choices are points (core seconds, device seconds), and the best are corners of their lower hull. A price is a
    direction, and what is best in it a corner: the hull's side that crosses the diagonal is closed in on from both
    ends. Items of which both ends are as good at that price are then moved one by one from one end to the other.
    """

    def at(price: float) -> Ways:
        core_s = options.cost_s * ((1 - price) / options.cores)
        priced = core_s + np.where(np.isfinite(core_s), options.device_s[device] * price, 0)
        return prune(replace(options, cost_s=priced), budget).option

    def point(option: Ways) -> tuple[float, float]:
        times = times_of(options, option)
        return times.core_s, times.device_s[device]

    low, high = cheapest, at(1 - CLOSE)  # not all of it, so that of equal device seconds the least work is taken
    found = [high]
    if point(low)[1] <= point(low)[0] or point(high)[1] >= point(high)[0]:
        return found, float(options.cores)  # cores are waited for whatever is chosen, or the device is
    price = 0.5
    for _ in range(STEPS):
        (low_core, low_device), (high_core, high_device) = point(low), point(high)
        # Below 0 or above 1 only where an end is an item off the best: the sum is of two positive gaps.
        price = (high_core - low_core) / ((high_core - high_device) + (low_device - low_core))
        price = min(max(price, 0.0), 1 - CLOSE)
        between = at(price)
        core, on_device = point(between)
        side = (1 - price) * low_core + price * low_device
        if (1 - price) * core + price * on_device >= side * (1 - CLOSE):
            break
        found.append(between)
        if on_device > core:
            low = between
        else:
            high = between
    worth = options.cores * price / (1 - price)
    return [*found, low, _between(options, budget, low, high)], min(worth, options.cores * MOST_PRICE)


def _between(options: Options, budget: int, start: Ways, end: Ways) -> Ways:
    """The best of the choices on the way from one to another, item by item, none of which is over the budget."""
    video = options.in_turn(np.flatnonzero(start != end))
    video = video[_in_room(options, budget, start, end, video)]

    def along(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n + 1,) after each of the steps."""
        first = float(seconds[np.arange(len(start)), start].sum())
        return np.asarray(
            first + np.concatenate([[0.0], np.cumsum(seconds[video, end[video]] - seconds[video, start[video]])])
        )

    seconds = (along(options.cost_s) + options.beside_s) / options.cores
    for each in options.device_s.values():
        seconds = np.maximum(seconds, along(each))
    count = int(seconds.argmin())
    option = np.where(_among(len(start), video[:count]), end, start)
    if options.batches is None:
        return option
    # Where the items are about as good as one another, as many of them that are spread over the batches do as well.
    evenly = video[spread(options.batches[:, video], count, np.arange(len(video)))]
    other = np.where(_among(len(start), evenly), end, start)
    least = times_of(options, option).seconds
    fits = not taken(options, other, budget).short_bytes
    return other if fits and times_of(options, other).seconds <= least * (1 + ALIKE) else option


def _among(count: int, items: Ways) -> NDArray[np.bool_]:
    """(count,) whether each is one of some items."""
    found = np.zeros(count, np.bool_)
    found[items] = True
    return found


def _in_room(options: Options, budget: int, start: Ways, end: Ways, video: Ways) -> Ways:
    """An order of steps in which the budget holds after each, and as little of it as can be is left.

    Items that grow and items that shrink take turns, each in the order in which they are given.
    """
    more = options.bytes[video, end[video]] - options.bytes[video, start[video]]
    left = budget - int(options.bytes[np.arange(len(start)), start].sum())
    growing, shrinking = (np.flatnonzero(each)[::-1].tolist() for each in (more > 0, more <= 0))
    order = []
    while growing or shrinking:
        fits = growing and (int(more[growing[-1]]) <= left or not shrinking)
        step = (growing if fits else shrinking).pop()
        order.append(step)
        left -= int(more[step])
    return np.array(order, np.int64)


RULES: dict[str, Callable[[Options, int], WayChoice]] = {
    KeepRule.CHEAPEST: balance,
    KeepRule.LEAVES: leaves_until_full,
    KeepRule.SAND: collapse,
}
"""What ``cache.keep`` in a configuration may say."""
