"""What a cache is given by its users: NumPy's numbers are numbers, and what is of another type is named."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import viewcache
from viewcache.api.arguments import flag, integer, number, optional, several, text
from viewcache.api.session.cache import Cache
from viewcache.errors import BadInput

V = "cat"
"""Name of a video."""

WHOLE = "a whole number is needed, and this is of type"
LIST = "a list is needed, and this is of type"
TEXT = "text is needed, and this is of type"

WRONG: dict[str, tuple[Callable[[Any], object], str]] = {
    "epoch of text": (lambda c: c.read("train", "0", 0), rf"^epoch='0': {WHOLE} str; write int\('0'\)$"),
    "epoch of a float": (lambda c: c.read("train", 0.0, 0), rf"^epoch=0\.0: {WHOLE} float; write int\(0\.0\)$"),
    "epoch of a truth": (lambda c: c.read("train", True, 0), rf"^epoch=True: {WHOLE} bool$"),
    "no epoch": (lambda c: c.read("train", None, 0), rf"^epoch=None: {WHOLE} NoneType$"),
    "epoch too large": (
        lambda c: c.read("train", 2**70, 0),
        r"^epoch=1180591620717411303424: at most 9223372036854775807",
    ),
    "iteration": (lambda c: c.read("train", 0, [0]), rf"^iteration=\[0\]: {WHOLE} list$"),
    "rank": (lambda c: c.read("train", 0, 0, rank="0", world="2"), "^rank='0': "),
    "world": (lambda c: c.read("train", 0, 0, rank=0, world="2"), "^world='2': "),
    "task": (lambda c: c.read(3, 0, 0), f"^task=3: {TEXT} int$"),
    "tasks": (lambda c: c.classes(["train"]), rf"^task=\['train'\]: {TEXT} list$"),
    "task of a loader": (lambda c: c.loader(None), f"^task=None: {TEXT} NoneType$"),
    "task that left": (lambda c: c.leave(3), f"^name=3: {TEXT} int$"),
    "video": (lambda c: c.frames("train", 3, [1]), f"^video=3: {TEXT} int$"),
    "name": (lambda c: c.video("train", b"cat"), f"^name=b'cat': {TEXT} bytes$"),
    "frame": (lambda c: c.frame("train", V, 1.0), "^i=1.0: "),
    "part of a frame": (lambda c: c.frames("train", V, [0, 1.5]), rf"^numbers\[1\]=1\.5: {WHOLE} float$"),
    "number of text": (lambda c: c.frames("train", V, ["a"]), rf"^numbers\[0\]='a': {WHOLE} str$"),
    "one number": (lambda c: c.frames("train", V, 5), rf"^numbers=5: {LIST} int; write \[5\]$"),
    "text for numbers": (lambda c: c.frames("train", V, "12"), f"^numbers='12': {LIST} str"),
    "one time": (lambda c: c.frames("train", V, seconds=1.0), rf"^seconds=1\.0: {LIST} float; write \[1\.0\]$"),
    "text for times": (lambda c: c.frames("train", V, seconds="1"), f"^seconds='1': {LIST} str"),
    "time of text": (
        lambda c: c.frames("train", V, seconds=[0.1, "1"]),
        r"^seconds\[1\]='1': a number is needed, and this is of type str; write float\('1'\)$",
    ),
    "endless time": (lambda c: c.frames("train", V, seconds=[float("inf")]), r"^seconds\[0\]=inf: a finite number$"),
    "depth": (lambda c: c.aug("train", V, 0, "1"), "^depth='1': "),
    "epoch of a frame": (lambda c: c.aug("train", V, 0, 1, epoch="0"), "^epoch='0': "),
    "sample": (lambda c: c.aug("train", V, 0, 1, sample=None), "^sample=None: "),
    "output": (lambda c: c.aug("train", V, 0, 1, output=1), f"^output=1: {TEXT} int$"),
    "item": (lambda c: c.aug("train", V, 0, 1, item="1"), "^item='1': "),
    "epoch shown": (lambda c: c.show("train", epoch="0"), "^epoch='0': "),
    "iteration shown": (lambda c: c.show("train", 0, "0"), "^iteration='0': "),
    "video shown": (lambda c: c.show("train", video=3), f"^video=3: {TEXT} int$"),
    "columns": (lambda c: c.show("train", columns=2.5), "^columns=2.5: "),
    "height": (lambda c: c.show("train", height="64"), "^height='64': "),
    "epochs made": (lambda c: c.materialize("2"), "^epochs='2': "),
    "query": (lambda c: c.sql(3), f"^query=3: {TEXT} int$"),
    "seconds of a query": (lambda c: c.sql("select 1", seconds="x"), "^seconds='x': a number is needed"),
    "no time for a query": (lambda c: c.sql("select 1", seconds=0), "^seconds=0: more than 0, and at most 1000000$"),
    "much time for a query": (lambda c: c.sql("select 1", seconds=1e12), "more than 0, and at most 1000000$"),
    "rows of a query": (lambda c: c.sql("select 1", rows=1.5), f"^rows=1.5: {WHOLE} float$"),
    "negative rows": (lambda c: c.sql("select 1", rows=-1), "^rows=-1: at least 0$"),
}
"""Calls of a cache → what is said of them."""


@pytest.mark.parametrize("name", WRONG)
def test_what_is_of_another_type_is_named(cache: Cache, name: str) -> None:
    """The error names the argument and its value, and nothing is taken for something that it is not."""
    call, message = WRONG[name]
    with pytest.raises(BadInput, match=message):
        call(cache)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.array, torch.tensor])
def test_what_stands_for_a_number_is_one(cache: Cache, kind: Callable[[int], Any]) -> None:
    """NumPy's integers, and whatever else has an index, read what an ``int`` reads."""
    batch = cache.read("train", kind(0), kind(1), kind(0), kind(1))
    assert type(batch.epoch) is type(batch.iteration) is int
    assert np.array_equal(batch.video, cache.read("train", 0, 1).video)
    assert np.array_equal(cache.frame("train", V, kind(3)), cache.frame("train", V, 3))
    assert np.array_equal(
        cache.aug("train", V, kind(3), kind(1), epoch=kind(0), sample=kind(1)),
        cache.aug("train", V, 3, 1, epoch=0, sample=1),
    )


def test_lists_of_any_kind_are_taken(cache: Cache) -> None:
    """Tuples, ranges, arrays and generators of frames; times are any finite numbers."""
    wanted = cache.frames("train", V, [0, 2, 4])
    for numbers in ((0, 2, 4), range(0, 5, 2), np.arange(0, 5, 2), torch.arange(0, 5, 2), iter([0, 2, 4])):
        assert np.array_equal(cache.frames("train", V, numbers), wanted)  # type: ignore[arg-type]  # more than is said
    for seconds in ([0], (0.0,), np.zeros(1, np.float32), [Fraction(0)]):
        assert np.array_equal(cache.frames("train", V, seconds=seconds), wanted[:1])  # type: ignore[arg-type]


@pytest.mark.parametrize("source", [3, None, b"train.yaml", [3], object(), "", [""]])
def test_a_configuration_is_a_path_a_text_or_a_mapping(source: Any) -> None:
    """All else is refused before anything is opened."""
    with pytest.raises(BadInput, match=r"^source=.*, of type .*: name a path, YAML text or a mapping"):
        viewcache.open(source)


def test_a_word_for_the_owner_that_is_misspelt() -> None:
    """The nearest one is named."""
    with pytest.raises(BadInput, match=r"service='of': .*; did you mean off\?$"):
        viewcache.open({"cache": {"store": "never"}}, service="of")


@pytest.mark.parametrize("service", [False, 3, ["off"]])
def test_who_owns_the_store_is_a_word(service: Any) -> None:
    """``service=False`` does not mean what the configuration says."""
    with pytest.raises(BadInput, match=r"service=.*: who owns the store is one of auto, off, attach"):
        viewcache.open({"cache": {"store": "never"}}, service=service)


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_an_integer_stays_what_it_is(value: int) -> None:
    """Of 64 bits, also as NumPy's."""
    assert integer("x", value) == integer("x", np.int64(value)) == value


@given(st.one_of(st.text(), st.floats(), st.booleans(), st.none(), st.binary(), st.lists(st.integers())))
def test_nothing_else_is_an_integer(value: object) -> None:
    """Neither text of digits nor a float without a fraction."""
    with pytest.raises(BadInput, match=r"^x="):
        integer("x", value)


class Says:
    """Says that it is text or a number, and is not."""

    def __iter__(self) -> Iterator[int]:
        """It is none."""
        raise TypeError("no list")

    def __index__(self) -> int:
        """It is none."""
        raise TypeError("no whole number")

    def __float__(self) -> float:
        """It is none."""
        raise TypeError("no number")


def texts(name: str, value: object) -> list[str]:
    """Several texts."""
    return several(text, name, value)


def each_with(check: Callable[[str, object], object], *values: object) -> list[tuple[object, object]]:
    """A check with each of some values."""
    return [(check, value) for value in values]


@pytest.mark.parametrize(
    ("check", "value"),
    [
        *each_with(number, "1", True, np.True_, None, np.zeros(1), 10**400, float("nan"), Says()),
        *each_with(flag, "yes", "", 0, 1, None, []),
        *each_with(text, b"a", 1, None, ["a"]),
        *each_with(integer, np.zeros(1, int), np.True_, torch.zeros(()), Says()),
        *each_with(texts, "ab", {"a": 1}, np.array("a"), None, Says()),
    ],
)
def test_what_is_none_is_refused(check: Callable[[str, object], object], value: object) -> None:
    """Whatever is given, there is one error, and it begins with the argument's name."""
    with pytest.raises(BadInput, match=r"^x"):
        check("x", value)


def test_what_is_one_is_taken() -> None:
    """As Python's own type, so that it can be kept, compared and sent."""
    assert optional(integer, "x", None) is None
    assert optional(integer, "x", np.int8(3)) == 3
    assert flag("x", np.False_) is False
    assert type(text("x", np.str_("a"))) is str
    assert type(number("x", np.float32(0.5))) is float
