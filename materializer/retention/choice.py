"""Choosing what to keep under a budget: for each video one of a few ways, of known bytes and cost (SAND §5.3).

The choice starts with the least bytes everywhere and spends the budget where a byte saves the most seconds, along each
video's lower convex hull. Two rivals stand beside it for comparison: keeping clips until the budget is full, and the
paper's Algorithm 1 with its exits repaired (docs/design/0011). All of it is pure: numbers in, numbers out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.retention.spread import spread

__all__ = ["Options", "WayChoice", "collapse", "leaves_until_full", "prune", "taken"]


@dataclass(frozen=True, slots=True)
class Options:
    """Ways to keep each of V videos; arrays are (V, options), videos in the order in which they are needed."""

    bytes: NDArray[np.int64]
    """What is kept, for the whole generation."""
    cost_s: NDArray[np.float64]
    """Expected core seconds of all uses, loading what is kept included; infinite where a way is not to be had."""
    work_s: NDArray[np.float64]
    """Of these, making again what is not kept: the paper's edge weights, which leave loading out."""
    leaf: int
    """The column that keeps every clip."""
    nothing: int
    """The column that keeps nothing; it can always be had."""
    device_s: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    """Seconds for which each way has a device to itself, (V, options) by its name; a device that is missing is free."""
    cores: int = 1
    """Those that share the work."""
    beside_s: float = 0.0
    """Core seconds that come on top of all work, whatever is chosen."""
    ties: NDArray[np.uint64] | None = None
    """(V,) by what videos are sorted that are as good as one another, see `shuffled`; None = as they are needed."""
    batches: NDArray[np.int32] | None = None
    """(epochs, V) the batch of each video in each epoch, see `spread`; None = it does not matter."""

    def only(self, columns: Sequence[int]) -> "Options":
        """Some of the ways, ``leaf`` and ``nothing`` among them."""
        return replace(
            self,
            bytes=self.bytes[:, columns],
            cost_s=self.cost_s[:, columns],
            work_s=self.work_s[:, columns],
            leaf=columns.index(self.leaf),
            nothing=columns.index(self.nothing),
            device_s={name: each[:, columns] for name, each in self.device_s.items()},
        )

    def in_turn(self, video: NDArray[np.int64]) -> NDArray[np.int64]:
        """Some videos in the order in which they are taken where they are as good as one another."""
        return video if self.ties is None else video[np.argsort(self.ties[video], kind="stable")]


@dataclass(frozen=True, slots=True)
class WayChoice:
    """A way for each video."""

    option: NDArray[np.int64]
    """(V,) column of `Options`."""
    bytes: int
    cost_s: float
    short_bytes: int = 0
    """By how much the budget is missed; 0 = it holds."""
    device_price: Mapping[str, float] = field(default_factory=dict)
    """Core seconds that a second of each device is worth that is waited for."""


def taken(options: Options, option: NDArray[np.int64], budget: int) -> WayChoice:
    """A choice, and what it takes."""
    video = np.arange(len(option))
    size = int(options.bytes[video, option].sum())
    return WayChoice(option, size, float(options.cost_s[video, option].sum()), max(0, size - budget))


def prune(options: Options, budget: int) -> WayChoice:
    """The cheapest choice within one item of the best there is (Lagrangian bound), in O(V h log V) for h options.

    Never worse than `leaves_until_full`, and its cost never rises with the budget.
    """
    greedy = taken(options, _greedy(options, budget), budget)
    # Clips that cost more to keep than to make again are left out of the rival too: what remains never gets worse.
    leaves = leaves_until_full(options, budget, only_if_cheaper=True)
    return leaves if leaves.cost_s < greedy.cost_s else greedy


def _greedy(options: Options, budget: int) -> NDArray[np.int64]:
    """Steps along the hulls by seconds saved a byte, while they fit; a step that does not ends its video's way."""
    option = _least(options)
    left = budget - int(np.take_along_axis(options.bytes, option[:, None], 1).sum())
    video, target, size, rate = _steps(options, option)
    order = _in_order(options, video, rate)
    fits = np.cumsum(size[order]) <= left
    sure = int(fits.argmin()) if not fits.all() else len(fits)
    if options.batches is not None and 0 < sure < len(order):
        order = _evenly(options.batches, video, rate, order, sure)
        fits = np.cumsum(size[order]) <= left
        sure = int(fits.argmin()) if not fits.all() else len(fits)
    # Later steps of a video overwrite earlier ones.
    option[video[order[:sure]]] = target[order[:sure]]
    left -= int(size[order[:sure]].sum())
    rest = order[sure:]
    ended: set[int] = set()
    least = int(size[rest].min()) if len(rest) else 0
    for v, to, more in zip(video[rest].tolist(), target[rest].tolist(), size[rest].tolist(), strict=True):
        if left < least:
            break
        if v in ended:
            continue
        if more <= left:
            option[v], left = to, left - more
        else:
            ended.add(v)
    return option


def _in_order(options: Options, video: NDArray[Any], rate: NDArray[Any]) -> NDArray[np.int64]:
    """Steps by their rates, the best first; a video's own stay in their order."""
    if options.ties is None:
        return np.argsort(-rate, kind="stable")
    return np.lexsort((options.ties[video], _alike(-rate)))


def _alike(rate: NDArray[Any]) -> NDArray[np.float32]:
    """Rates of which those that differ by the rounding of sums are one."""
    return rate.astype(np.float32)


def _evenly(
    batches: NDArray[np.int32], video: NDArray[Any], rate: NDArray[Any], order: NDArray[np.int64], sure: int
) -> NDArray[np.int64]:
    """The same order where the steps that are as good as the first that does not fit are spread over the batches."""
    rates = _alike(-rate[order])
    start, end = np.searchsorted(rates, rates[sure], "left"), np.searchsorted(rates, rates[sure], "right")
    same = order[start:end]
    first = spread(batches[:, video[same]], sure - int(start), np.arange(len(same)))
    return np.concatenate([order[:start], same[first], same[~first], order[end:]])


def _least(options: Options) -> NDArray[np.int64]:
    """The cheapest of the ways with the least bytes."""
    size = np.where(np.isfinite(options.cost_s), options.bytes, np.iinfo(np.int64).max)
    least = size == size.min(axis=1, keepdims=True)
    return np.asarray(np.where(least, options.cost_s, np.inf).argmin(axis=1), np.int64)


def _steps(options: Options, start: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
    """The corners of every video's lower convex hull: video, column, further bytes, seconds saved by each of them."""
    video, now = np.arange(len(start)), start.copy()
    nothing = np.zeros(0, np.int64)
    found: list[tuple[NDArray[Any], ...]] = [(nothing, nothing, nothing, np.zeros(0))]
    while len(video):
        size = options.bytes[video] - options.bytes[video, now[video]][:, None]
        with np.errstate(invalid="ignore"):
            saved = options.cost_s[video, now[video]][:, None] - options.cost_s[video]
            rate = np.where((size > 0) & (saved > 0), saved / np.maximum(size, 1), 0.0)
        best = rate.max(axis=1)
        # Of equal rates the longest step: the hull has no corner in the middle of a side.
        target = np.where(rate == best[:, None], size, -1).argmax(axis=1)
        going = best > 0
        rows = np.flatnonzero(going)
        video, target = video[rows], target[rows]
        found.append((video, target, size[rows, target], best[rows]))
        now[video] = target
    return tuple(np.concatenate(each) for each in zip(*found, strict=True))


def leaves_until_full(options: Options, budget: int, *, only_if_cheaper: bool = False) -> WayChoice:
    """The rival without a plan: every clip of one video after the other, soonest first, until one does not fit."""
    wanted = np.isfinite(options.cost_s[:, options.leaf])
    if only_if_cheaper:
        wanted &= options.cost_s[:, options.leaf] < options.cost_s[:, options.nothing]
    size = np.where(wanted, options.bytes[:, options.leaf], 0)
    kept = wanted & (np.cumsum(size) <= budget)
    return taken(options, np.where(kept, options.leaf, options.nothing), budget)


def collapse(options: Options, budget: int) -> WayChoice:
    """The paper's Algorithm 1, repaired: all clips at first, then video by video one step up until the budget holds.

    A step goes to the way that makes least again among those that take less room; what loading costs is not asked.
    Repairs: it stops when the budget holds, not when it does not; a video that cannot shrink saves nothing; a whole
    round without a step ends it.
    """
    video, option = np.arange(len(options.bytes)), np.full(len(options.bytes), options.leaf, np.int64)
    total = int(options.bytes[:, options.leaf].sum())
    while total > budget:
        size = options.bytes[video, option]
        smaller = (options.bytes < size[:, None]) & np.isfinite(options.cost_s)
        moves: NDArray[np.bool_] = np.asarray(smaller.any(axis=1))
        if not moves.any():
            break
        target = np.where(smaller, options.work_s, np.inf).argmin(axis=1)
        left = total - np.cumsum(np.where(moves, size - options.bytes[video, target], 0))
        stop = int(np.argmax(left <= budget)) + 1 if left[-1] <= budget else len(video)
        moves[stop:] = False
        option[moves] = target[moves]
        total = int(left[stop - 1])
    return taken(options, option, budget)
