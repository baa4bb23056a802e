"""Choosing what to keep where a disk is as scarce as cores: for each item one of its ways, by two prices (Liquid §4.1).

An epoch takes what its slowest part takes: the cores together, or one of the devices. Kept pictures save cores and take
more of a device than encoded files do, so neither all nor nothing is best, but a balance of both, and which items are
kept matters as much as how many: those that save the most core seconds for a second of the device. Of several devices
the prices are looked for at once. The trade-off: what is best is a mixture of a few choices, and it is made of whole
items, so it is off by about as many of them as there are devices.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.choices import KeepRule
from viewcache.materializer.retention.choice import Options, WayChoice, collapse, leaves_until_full, prune, taken
from viewcache.materializer.retention.spread import spread

__all__ = ["CORES", "RULES", "Times", "balance", "times_of"]

CORES = "cores"
"""What binds where no device does."""

STEPS = 32
"""So many prices are tried at most; with one device some five are enough to find the choices that the best one lies
between, with two some ten."""

NEARLY = 0.98
"""What is busy for so much of the time is waited for too."""

MOST_PRICE = 16.0
"""A device's second is worth at most so many of every core: the hull of few items has sides that are nearly flat."""

CLOSE = 1e-6
"""Of an epoch's time: what is not worth another price."""

ALIKE = 1e-3
"""Of an epoch's time: what evenness over its batches may cost."""

SINGULAR = 1e-12
"""A determinant, or a gain, that is nothing but rounding; of numbers from 1 to 2."""

Ways = NDArray[np.int64]
Floats = NDArray[np.float64]


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
    """The choice with which an epoch takes least time, within about an item for each device.

    Of equal ones the one of least core seconds. Without device seconds it is `prune`. It is never slower than any one
    way for all items that the budget holds.
    """
    cheapest = prune(options, budget)
    if not any(each.any() for each in options.device_s.values()):
        return cheapest
    priced, prices = _priced(options, budget, cheapest.option)
    found = [cheapest.option, *_alike(options, budget), *priced]
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


def _priced(options: Options, budget: int, cheapest: Ways) -> tuple[list[Ways], dict[str, float]]:
    """The choices at the prices at which all parts come closest to each other, and a mixture of them.

    Beside them the core seconds that a second of each device is worth then. One that is waited for whatever is chosen
    keeps all cores waiting: its second is worth one of each.

    All choices are points, of the seconds of each part, and the best are corners of their lower hull. Prices are a
    direction, and what is best in it a corner: the hull's side that the diagonal goes through is closed in on, by the
    prices at which the corners that are known are worth the same. Items of which its corners are as good as each other
    are then moved one by one from one corner to the next.
    """
    cores, *devices = _busy(options)

    def at(price: Floats) -> Ways:
        cost_s = cores * max(price[0], CLOSE)  # not 0, so that of equal device seconds the least work is taken
        for each, worth in zip(devices, price[1:], strict=True):
            cost_s = cost_s + np.where(np.isfinite(cost_s), each * worth, 0)
        return prune(replace(options, cost_s=cost_s), budget).option

    found = [cheapest, *map(at, np.eye(1 + len(devices))[1:])]
    corners = found.copy()
    points = np.array([_point(options, option) for option in corners])
    for _ in range(STEPS):
        price, weights = _meeting(points)
        further = at(price)
        point = _point(options, further)
        if price @ point >= (weights @ points).max() * (1 - CLOSE):
            break
        found.append(further)
        corners = [option for option, weight in zip(corners, weights, strict=True) if weight] + [further]
        points = np.concatenate([points[weights > 0], point[None]])
    price, weights = _meeting(points)
    order = [k for k in np.argsort(points[:, 0], kind="stable") if weights[k]]
    mixed = _mixed(options, budget, [corners[k] for k in order], weights[order])
    worth = np.minimum(price[1:] / price[0], MOST_PRICE) if price[0] > CLOSE else price[1:]
    prices = {name: options.cores * float(each) for name, each in zip(options.device_s, worth, strict=True) if each}
    return [*found, mixed], prices


def _busy(options: Options) -> list[Floats]:
    """(V, options) how long each way keeps each part busy: cores, and each device."""
    return [options.cost_s / options.cores, *options.device_s.values()]


def _point(options: Options, option: Ways) -> Floats:
    """(parts,) the same of a choice, with what comes on top."""
    times = times_of(options, option)
    return np.array([times.core_s, *times.device_s.values()])


def _meeting(points: Floats) -> tuple[Floats, Floats]:
    """Where the lower hull of some points, (n, parts), meets the diagonal.

    Returns:
        (parts,) prices, of a sum of 1, at which the least point is worth the most, and (n,) weights of the mixture of
        points whose largest part is least. Both are worth the same: of a game of two, in which one chooses a part and
        the other a point, they are the best strategies, and as many points as parts have weight, whose equations are
        solved for each choice of them.
    """
    count, parts = points.shape
    shifted = points / max(points.max(), 1e-300) + 1  # so that none is worth nothing; it changes no strategy
    best: tuple[float, Floats, Floats] = np.inf, np.zeros(parts), np.zeros(count)
    for size in range(1, min(count, parts) + 1):
        for some, of in product(combinations(range(count), size), combinations(range(parts), size)):
            square = shifted[np.ix_(some, of)]
            if abs(np.linalg.det(square)) < SINGULAR:
                continue
            price, weights = np.zeros(parts), np.zeros(count)
            price[list(of)], weights[list(some)] = (np.linalg.solve(each, np.ones(size)) for each in (square, square.T))
            if min(price.min(), weights.min()) < 0:
                continue
            price, weights = price / price.sum(), weights / weights.sum()
            gap = float((weights @ shifted).max() - (shifted @ price).min())
            if gap < best[0] - SINGULAR:
                best = gap, price, weights
    return best[1:]


def _mixed(options: Options, budget: int, corners: Sequence[Ways], weights: Floats) -> Ways:
    """Some choices as one, of these weights: it is taken on the way from one to the next, and from there on."""
    option = corners[0]
    points = np.array([_point(options, each) for each in corners])
    for k in range(1, len(corners)):
        others = weights[k + 1 :] @ points[k + 1 :]  # to which the way goes next
        option = _between(options, budget, option, corners[k], 1 - float(weights[k + 1 :].sum()), others)
    return option


def _between(options: Options, budget: int, start: Ways, end: Ways, weight: float, others: Floats) -> Ways:
    """The best of the choices on the way from one to another, item by item, none of which is over the budget.

    It is to be of some weight in a mixture with others, (parts,) seconds.
    """
    video = options.in_turn(np.flatnonzero(start != end))
    video = video[_in_room(options, budget, start, end, video)]

    def along(seconds: Floats, first: float) -> Floats:
        """(n + 1,) after each of the steps."""
        steps = np.cumsum(seconds[video, end[video]] - seconds[video, start[video]])
        return first + np.concatenate([[0.0], steps])

    ways = np.array([along(*each) for each in zip(_busy(options), _point(options, start), strict=True)])
    seconds = (weight * ways + others[:, None]).max(axis=0)
    count = int(seconds.argmin())
    option = np.where(_among(len(start), video[:count]), end, start)
    if options.batches is None:
        return option
    # Where the items are about as good as one another, as many of them that are spread over the batches do as well.
    evenly = video[spread(options.batches[:, video], count, np.arange(len(video)))]
    other = np.where(_among(len(start), evenly), end, start)
    fits = not taken(options, other, budget).short_bytes
    takes = (weight * _point(options, other) + others).max()
    return other if fits and takes <= seconds[count] * (1 + ALIKE) else option


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
