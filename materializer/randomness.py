"""Random numbers with addresses: every draw is a hash of (seed, what, where), never the state of a generator.

The price is one 64-bit mix per part of an address; the gain is that any process can make any draw alone, in any order,
and gets the same value for ever (law 11). The algorithm is part of the data: docs/design/0005-randomness.md defines it
and tests/ops/test_keyed.py pins its values.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput

__all__ = [
    "FRACTION_BITS",
    "ONE",
    "Sequence",
    "Words",
    "address_word",
    "begin_address",
    "fraction",
    "hash_address",
    "permutation",
    "permuted",
    "scaled",
    "threshold",
    "uniform",
]

Words = NDArray[np.uint64]

FRACTION_BITS = 32
ONE = 1 << FRACTION_BITS
"""A fraction in [0, 1) is an integer numerator below ONE, so that offsets are exact on every machine."""

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


def address_word(text: str) -> int:
    """Return the 64-bit address word of a text, e.g. of a video's key or a task's name."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, person=b"viewcache-word").digest(), "little")


def hash_address(seed: int, what: str, *parts: int | np.ndarray) -> Words:
    """Hash an address to 64 uniformly distributed bits.

    Args:
        seed: any integer.
        what: the purpose of the draw, e.g. ``"clip/start"``; different purposes are independent.
        *parts: where: integers (taken modulo 2**64) or integer arrays that broadcast together. Their order and number
            matter. Put integers before arrays: they are mixed once instead of once per element.

    Returns:
        uint64 array of the broadcast shape of ``parts`` (0-dimensional if all are integers).

    Raises:
        BadInput: a part is not of an integer type.
    """
    scalar = _start(seed, what, len(parts))
    state: Words | None = None
    for part in parts:
        if isinstance(part, int):
            mixed = _mix_int((part + _GOLDEN) & _MASK)
            if state is None:
                scalar = _mix_int(((scalar ^ mixed) + _GOLDEN) & _MASK)
                continue
            state = state ^ np.uint64(mixed)
        else:
            words = _as_words(part)
            words = _mix(words + np.uint64(_GOLDEN))
            state = words ^ (np.uint64(scalar) if state is None else state)
        state = np.asarray(state)
        state += np.uint64(_GOLDEN)
        state = _mix(state)
    return np.array(scalar, dtype=np.uint64) if state is None else state


def begin_address(seed: int, what: str, *parts: int) -> int:
    """Return the 64-bit state of an address that has one more part, which is still to come: see `permuted`.

    Args:
        seed: any integer.
        what: the purpose of the draw.
        *parts: where, but for the last part.
    """
    state = _start(seed, what, len(parts) + 1)
    for part in parts:
        state = _mix_int(((state ^ _mix_int((part + _GOLDEN) & _MASK)) + _GOLDEN) & _MASK)
    return state


def _start(seed: int, what: str, parts: int) -> int:
    text = f"{seed}\0{parts}\0{what}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, person=b"viewcache-keyed1").digest(), "little")


def fraction(seed: int, what: str, *parts: int | np.ndarray) -> Words:
    """Return uniform fractions in [0, 1) as numerators over ``ONE``: the high 32 bits of ``fold``."""
    return np.asarray(hash_address(seed, what, *parts) >> np.uint64(64 - FRACTION_BITS))


def uniform(seed: int, what: str, *parts: int | np.ndarray) -> NDArray[np.float64]:
    """Return uniform float64 in [0, 1): the high 53 bits of ``fold`` times 2**-53, which is exact."""
    return np.asarray((hash_address(seed, what, *parts) >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def scaled(fractions: Words, count: int | np.ndarray) -> NDArray[np.int64]:
    """Return floor(fraction * count), exactly: an index below ``count``, each hit by ONE/count numerators within 1.

    Args:
        fractions: numerators below ``ONE``.
        count: number of choices, 1 to 2**31, one or an array that broadcasts.
    """
    counts = np.asarray(count).astype(np.uint64)
    return np.asarray((fractions * counts) >> np.uint64(FRACTION_BITS)).astype(np.int64)


def threshold(probability: float) -> np.uint64:
    """Return the numerator t for which ``fraction < t`` holds with the given probability (to 2**-32)."""
    return np.uint64(int(probability * ONE + 0.5))


def permutation(seed: int, what: str, n: int, *parts: int) -> NDArray[np.int64]:
    """Return a uniformly random order of 0..n-1: the numbers sorted by their own keyed word.

    Args:
        seed: any integer.
        what: the purpose, e.g. ``"order"``.
        n: how many.
        *parts: where, e.g. the task's word and the epoch.

    Returns:
        int64 array of length n. Equal words (chance n**2 / 2**65) keep their numeric order.
    """
    return permuted(begin_address(seed, what, *parts), n)


def permuted(state: int, n: int) -> NDArray[np.int64]:
    """Return the order that `permutation` gives, from the state of `begin_address` and how many there are.

    The view `order_places` of the catalog computes the same in SQL.
    """
    words = _mix(np.arange(n, dtype=np.uint64) + np.uint64(_GOLDEN)) ^ np.uint64(state)
    return np.argsort(_mix(words + np.uint64(_GOLDEN)), kind="stable")


class Sequence:
    """As many numbers as a use needs, from one keyed word: SplitMix64 started there. For loops in Python."""

    __slots__ = ("_state",)

    def __init__(self, start: int) -> None:
        """Start at a word of `hash_address`; uses with different words are independent."""
        self._state = start

    def below(self, n: int) -> int:
        """Return a number below ``n``, uniform to 2**-64."""
        self._state = state = (self._state + _GOLDEN) & _MASK
        return _mix_int(state) * n >> 64


def _as_words(part: np.ndarray) -> Words:
    """Any integer array as uint64, negative numbers by two's complement."""
    array = np.asarray(part)
    if array.dtype.kind not in "iub":
        raise BadInput(f"part of a random address: got an array of {array.dtype}; allowed: integers")
    return array.astype(np.uint64)


def _mix_int(z: int) -> int:
    """One finalizer of SplitMix64 (Steele, Lea and Flood 2014) on a Python integer."""
    z = ((z ^ (z >> 30)) * _MIX_1) & _MASK
    z = ((z ^ (z >> 27)) * _MIX_2) & _MASK
    return z ^ (z >> 31)


def _mix(z: np.ndarray) -> Words:
    """The same on a uint64 array, which it overwrites (arrays wrap silently where NumPy scalars would warn)."""
    out = np.atleast_1d(z)
    out ^= out >> np.uint64(30)
    out *= np.uint64(_MIX_1)
    out ^= out >> np.uint64(27)
    out *= np.uint64(_MIX_2)
    out ^= out >> np.uint64(31)
    return out.reshape(np.shape(z))


def nested_offset(fractions: Words, size: np.ndarray, window: int | np.ndarray) -> NDArray[np.int64]:
    """Place a window inside a side: floor(A * (size - window + 1)).

    Uniform for every window, and for one A a smaller window lies inside a larger one.

    Args:
        fractions: A, numerators over ``ONE``.
        size: length of the side, at least ``window``.
        window: length of the window.
    """
    return scaled(fractions, np.asarray(size, dtype=np.int64) - window + 1)
