"""Whether the code that runs is that of its file: decorated, nested, generated and nameless functions."""

import functools
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import pytest

from viewcache.errors import BadInput
from viewcache.materializer.ops.loaded import check_loaded

TEXT = """
from __future__ import annotations

import functools
from dataclasses import dataclass

NAMES = {"b", "a"}

def counted(function):
    @functools.wraps(function)
    def call(*arguments):
        return function(*arguments) + 10
    return call

@counted
def plain(x):
    "Doc."
    return x + 11 if x in {"c", "d", 1.0} else -0.0

@functools.lru_cache
def kept(x):
    return x + 12

def made(by):
    def inner(x):
        return [x + by + 13 for _ in range(2)]
    return inner

taken = made(5)
nameless = lambda x, *, y=14: x + y

@dataclass
class Held:
    x: int = 1

    @property
    def twice(self):
        return self.x * 15

    @staticmethod
    def still(x):
        return x + 16

    class Inner:
        def deep(self):
            try:
                return 17
            except ValueError:
                return float("nan")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module that was imported from a file."""
    (tmp_path / "loaded_code.py").write_text(TEXT)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("loaded_code")
    del sys.modules["loaded_code"]


def codes(module: ModuleType) -> set[CodeType]:
    """What a transform over all of them would find."""
    functions: list[FunctionType] = [
        module.taken,
        module.plain.__wrapped__,
        module.kept.__wrapped__,
        module.Held.twice.fget,
        module.Held.Inner.deep,
    ]
    return {each.__code__ for each in functions}


def test_what_was_not_edited_is_loaded(module: ModuleType) -> None:
    """From source or bytecode, also after it ran, and wherever a comment has moved it."""
    for _ in range(2000):  # what runs often is rewritten by the interpreter
        module.plain(1)
        module.taken(1)
        module.Held().twice  # noqa: B018 - it runs
    check_loaded(module, TEXT, codes(module))
    check_loaded(module, "# A comment.\n\n" + TEXT.replace("return x + 16", "return x + 16  # sixteen"), codes(module))
    reloaded = importlib.reload(module)  # from its bytecode
    check_loaded(reloaded, TEXT, codes(reloaded))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *((f"{number}", f"{number + 100}") for number in (10, 11, 12, 13, 15, 16, 17)),
        *(("float", "int"), ('"c"', '"e"'), ("-0.0", "0.0"), ("x in", "x not in"), ("y=14", "z=14"), ("def deep", "(")),
    ],
)
def test_what_was_edited_is_refused(old: str, new: str, module: ModuleType) -> None:
    """A number, a name or a text in any of its functions; and what does not compile."""
    assert old in TEXT
    with pytest.raises(BadInput, match=r"loaded_code\.py was edited after it was imported"):
        check_loaded(module, TEXT.replace(old, new), codes(module))


def test_what_a_hook_changed_is_passed_over(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """As pytest changes test modules; and functions that no file has are no matter of it."""
    space = {"__name__": module.__name__}
    exec(compile("def typed(x):\n    return x\n", "<string>", "exec"), space)
    module.typed = FunctionType(space["typed"].__code__, vars(module))  # type: ignore[attr-defined]
    check_loaded(module, TEXT)
    monkeypatch.setattr(module, "__loader__", functools.partial(str))
    check_loaded(module, "x = 1")
