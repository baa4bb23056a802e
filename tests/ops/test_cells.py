"""Code that is not from the file of its module: cells of a notebook, and texts that are given to `exec`."""

import importlib
import itertools
import linecache
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from viewcache.errors import BadInput
from viewcache.materializer.ops import registry
from viewcache.ops import Op

HEAD = """
import enum
import functools
import numpy as np
import torch
from dataclasses import dataclass
from viewcache.ops import ClipOp, FrameOp, transform

def given(made, takes="array"):
    return transform(made, name="cap", random=False, takes=takes)
"""

KINDS = {
    "function": "def cap(clip):\n    return np.minimum(clip, 11)\nmade = transform(cap, random=False)",
    "its helper": (
        "def least(clip):\n    return np.minimum(clip, 11)\n"
        "def cap(clip):\n    return least(clip)\nmade = transform(cap, random=False)"
    ),
    "decorated": (
        "def most(function):\n    @functools.wraps(function)\n    def call(clip):\n"
        "        return np.minimum(function(clip), 11)\n    return call\n"
        "@transform(random=False)\n@most\ndef made(clip):\n    return clip"
    ),
    "partial": "def cap(clip, z):\n    return np.minimum(clip, 11)\nmade = given(functools.partial(cap, z=1))",
    "bound method": (
        "class Cap:\n    def run(self, clip):\n        return np.minimum(clip, 11)\nmade = given(Cap().run)"
    ),
    "callable object": (
        "class Cap:\n    def __call__(self, clip):\n        return np.minimum(clip, 11)\nmade = given(Cap())"
    ),
    "property": (
        "class Cap:\n    @property\n    def most(self):\n        return 11\n"
        "    def __call__(self, clip):\n        return np.minimum(clip, self.most)\nmade = given(Cap())"
    ),
    "dataclass": (
        "@dataclass\nclass Cap:\n    z: int = 1\n    def __call__(self, clip):\n        return np.minimum(clip, 11)\n"
        "made = given(Cap())"
    ),
    "enum": (
        "class Cap(enum.Enum):\n    HARD = 1\n    def __call__(self, clip):\n        return np.minimum(clip, 11)\n"
        "made = given(functools.partial(Cap.HARD))"
    ),
    "torch module": (
        "class Cap(torch.nn.Module):\n    def forward(self, clip):\n        return clip.clamp(max=11)\n"
        "made = given(Cap(), 'tensor')"
    ),
    "object of a library": "made = given(torch.nn.Hardtanh(0, 11), 'tensor')",
    "operation": (
        "class Cap(FrameOp):\n    name = 'cap'\n    def apply(self, params, row, frame):\n"
        "        return np.minimum(frame, 11)\nmade = Cap()"
    ),
    "operation without code": (
        "class Base(ClipOp):\n    most = 1\n    def apply_clip(self, params, row, clip):\n"
        "        return np.minimum(clip, self.most)\nclass Cap(Base):\n    name = 'cap'\n    most = 11\nmade = Cap()"
    ),
    "mixin": (
        "class Most:\n    def apply(self, params, row, frame):\n        return np.minimum(frame, 11)\n"
        "class Cap(Most, FrameOp):\n    name = 'cap'\nmade = Cap()"
    ),
    "held": (
        "def cap(x):\n    return np.minimum(x, 11)\nclass Cap(FrameOp):\n    name = 'cap'\n    def __init__(self):\n"
        "        self.of = [cap]\n    def apply(self, params, row, frame):\n        return self.of[0](frame)\n"
        "made = Cap()"
    ),
}
"""How an operation ``made`` may be made that leaves no value above 11."""

_number = itertools.count()


@pytest.fixture(params=["a file", "no file"])
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module that cells are run in: with a file, as in Spyder, or without one, as in Jupyter."""
    if request.param == "a file":
        (tmp_path / "cells_home.py").write_text("# Nothing is here.\n")
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()
        module = importlib.import_module("cells_home")
    else:
        module = ModuleType("cells_home")
    monkeypatch.setitem(sys.modules, "cells_home", module)
    with registry.own_registrations():
        yield module


def run(home: ModuleType, text: str, name: str | None = None) -> Op:
    """What a cell makes; its text is kept under a name of its own, as IPython does, or has the given name."""
    if name is None:
        name = f"<cell of test_cells {next(_number)}>"
        linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    exec(compile(text, name, "exec", dont_inherit=True), vars(home))
    made: Op = vars(home)["made"]
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_a_cell_that_is_run_again(home: ModuleType, kind: str) -> None:
    """Law 3: what was edited has another fingerprint, whatever the file of the module has; what was not, the same."""
    text = HEAD + KINDS[kind]
    first = run(home, text).fingerprint
    assert run(home, text).fingerprint == first
    assert run(home, text.replace("11", "22")).fingerprint != first


@pytest.mark.parametrize("kind", KINDS)
def test_what_left_no_text_is_refused(home: ModuleType, kind: str) -> None:
    """Nothing tells whether a text that was given to `exec` was changed."""
    with pytest.raises(BadInput, match=r"source .*cannot be read.*(version='1'|fingerprint = \"1\")"):
        registry.register(run(home, HEAD + KINDS[kind], "<string>"))


@pytest.mark.parametrize("kind", ["callable object", "operation"])
def test_another_file_that_was_run(home: ModuleType, tmp_path: Path, kind: str) -> None:
    """By `exec`, say: it is the file that counts, and it has to be the one that runs."""
    text, path = HEAD + KINDS[kind], tmp_path / "run.py"
    found = []
    for each in (text, text.replace("11", "22")):
        path.write_text(each)
        found.append(run(home, each, str(path)).fingerprint)
    assert found[0] != found[1]
    path.write_text(text.replace("11", "333"))
    if kind == "callable object":  # a class of an operation has what was there when it was defined
        with pytest.raises(BadInput, match=r"run\.py, which has been edited since"):
            run(home, text.replace("11", "22") + "\n", str(path))


def test_which_of_a_cell(home: ModuleType) -> None:
    """Several classes or functions of one cell that another cell makes an operation of."""
    both = "class One:\n    def __call__(self, clip):\n        return clip\nclass Two(One):\n    pass\n"
    run(home, f"{HEAD}{both}def one(clip):\n    return clip\ndef two(clip):\n    return 255 - clip\nmade = None")
    found = {run(home, f"made = given({what})").fingerprint for what in ("One()", "Two()", "one", "two")}
    assert len(found) == 4
