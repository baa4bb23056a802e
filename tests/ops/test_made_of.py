"""Law 3: what a transform is made of is in its key by value, and equal in all processes that have the same code."""

import importlib
import linecache
import os
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from viewcache.errors import BadInput
from viewcache.materializer.ops import registry
from viewcache.materializer.ops.transforms import TAKES
from viewcache.ops import transform

LIB = """
import functools, math
ADDED = 1
def one(clip):
    return clip + ADDED
def hook(module, given, out):
    return out + ADDED
class Kind:
    def __call__(self, clip):
        return clip + ADDED
class Lut:
    def of(self, clip):
        return clip + ADDED
class Wrap:
    def __init__(self, function):
        self.function = function
    def __call__(self, *args):
        return self.function(*args)
def wraps(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args) + ADDED
    return call
"""

OPS_OF_LIB = """
import functools
import numpy as np
import torch
import of_lib
from of_lib import Kind, Lut, Wrap, hook, one
from viewcache.ops import FrameOp, transform

def closed(held):
    def tint(clip):
        return held
    return tint

def by(lut, clip):
    return lut.of(clip)

class Decorated:
    @of_lib.wraps
    def __call__(self, clip):
        return clip

class Slotted:
    __slots__ = ("step",)
    def __init__(self, step):
        self.step = step
    def __call__(self, clip):
        return self.step(clip)

@functools.singledispatch
def dispatched(clip):
    return clip
dispatched.register(np.ndarray, one)

hooked = torch.nn.Identity()
hooked.register_forward_hook(hook)

MADE = {
    "a class": closed(Kind),
    "a list": closed([one]),
    "a tuple": closed((1, one)),
    "a dict": closed({"a": one}),
    "a set": closed({one}),
    "an object": closed(Lut()),
    "an object in a dict": closed({"a": [Lut()]}),
    "a partial": functools.partial(by, Lut()),
    "a method": Lut().of,
    "an attribute": Slotted(one),
    "a class that decorates": Wrap(print),
    "what such a class decorates": Slotted(Wrap(one)),
    "a decorated method": Decorated(),
    "singledispatch": dispatched,
    "a hook": hooked,
    "a module": closed(of_lib),
    "a default": closed(lambda clip, step=one: step(clip)),
}
OPS = [transform(made, name=f"op{number}", random=False) for number, made in enumerate(MADE.values())]
"""

OPS_OF_VALUES = """
import enum, functools, pathlib
import numpy as np
import torch
from viewcache.ops import transform

VALUE = int(pathlib.Path(__file__).with_name("value.txt").read_text())

def closed(held):
    def tint(clip):
        return held
    return tint

class Held:
    def __init__(self, held):
        self.held = held
    def __call__(self, clip):
        return clip
    def go(self, clip):
        return clip

class Slotted:
    __slots__ = ("held",)
    def __init__(self, held):
        self.held = held
    def __call__(self, clip):
        return clip

class OfClass:
    table = np.full(3, VALUE)
    def __call__(self, clip):
        return clip

class Net(torch.nn.Module):
    def __init__(self, weight=0.0, plain=None):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([float(weight)]))
        self.plain = plain

class Level(enum.IntEnum):
    LOW = 3
    HIGH = 7

hooked = Net()
hooked.register_forward_pre_hook(closed(VALUE))
noted = closed(0)
noted.table = VALUE

MADE = {
    "a number": closed(VALUE),
    "a text": closed(str(VALUE)),
    "a large number": closed(10**5000 + VALUE),
    "a list of large numbers": closed([10**5000 + VALUE]),
    "a member of an enum": closed(Level(VALUE)),
    "an array": closed(np.full(300, VALUE, np.uint8)),
    "a strided array": closed(np.arange(600).reshape(2, 300)[:, :: VALUE]),
    "an array of objects": closed(np.array([VALUE, None], object)),
    "a masked array": closed(np.ma.masked_equal([3, 7], VALUE)),
    "a scalar": closed(np.float32(VALUE)),
    "a tensor": closed(torch.tensor([VALUE])),
    "a complex tensor": closed(torch.tensor([VALUE * 1j]).conj()),
    "a list of nets": closed([Net(VALUE)]),
    "a net of a method": Held(Net(VALUE)).go,
    "a net of an object": Held(Net(VALUE)),
    "a slot": Slotted(VALUE),
    "a plain tensor of a net": Net(plain=torch.tensor([VALUE])),
    "a net in a dict of a net": Net(plain={"inner": Net(VALUE)}),
    "a library's module": torch.nn.Dropout(VALUE / 10),
    "what a hook holds": hooked,
    "a partial": functools.partial(print, VALUE),
    "a default": closed(lambda clip, by=VALUE: clip),
    "an attribute of a function": noted,
    "an attribute of a class": OfClass(),
    "a set": closed({"a", VALUE, ("b", 1.5)}),
    "an order": closed({each: 0 for each in ("ab" if VALUE == 3 else "ba")}),
}
OPS = [transform(made, name=f"op{number}", random=False, takes="array") for number, made in enumerate(MADE.values())]
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules of these tests can be imported, and are forgotten."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # or an edit within a second is not seen
    with registry.own_registrations():
        yield


def keys(folder: Path, home: str, **texts: str) -> dict[str, str]:
    """Fingerprints of what a module makes, by what it is said to be, when files are so."""
    for name, text in texts.items():
        (folder / name.replace("_txt", ".txt")).write_text(text) if name.endswith("_txt") else (
            folder / f"{name}.py"
        ).write_text(text)
        sys.modules.pop(name, None)
    linecache.clearcache()
    importlib.invalidate_caches()
    module = importlib.import_module(home)
    return {what: op.fingerprint for what, op in zip(module.MADE, module.OPS, strict=True)}


def test_code_that_it_is_made_of_is_seen(tmp_path: Path) -> None:
    """In containers, objects, registries, hooks and methods: where that is edited, keys are others."""
    first = keys(tmp_path, "of_home", of_lib=LIB, of_home=OPS_OF_LIB)
    assert keys(tmp_path, "of_home", of_lib=LIB, of_home=OPS_OF_LIB) == first
    then = keys(tmp_path, "of_home", of_lib=LIB.replace("ADDED = 1", "ADDED = 5"), of_home=OPS_OF_LIB)
    assert [what for what in first if first[what] == then[what]] == []


def test_values_that_it_holds_are_seen(tmp_path: Path) -> None:
    """No source tells of them: they come from a file of data."""
    first = keys(tmp_path, "of_values", value_txt="3", of_values=OPS_OF_VALUES)
    assert keys(tmp_path, "of_values", value_txt="3", of_values=OPS_OF_VALUES) == first
    then = keys(tmp_path, "of_values", value_txt="7", of_values=OPS_OF_VALUES)
    assert [what for what in first if first[what] == then[what]] == []


CLASS_OP = """
from viewcache.ops import FrameOp
class Tint(FrameOp):
    name = "tint"
    def __init__(self, *held):
        self.held = held
        self.calls = 0
    def apply(self, params, row, frame):
        self.calls += 1
        return frame
"""


def test_what_an_instance_of_a_class_holds_is_seen(tmp_path: Path) -> None:
    """Arguments of its constructor, which are no parameters; what a call leaves there is not."""
    home = "from of_lib import one\nfrom of_op import Tint\nOPS = [Tint(ARGS)]\nMADE = ['tint']\n"
    texts = {"of_lib": LIB, "of_op": CLASS_OP}

    def of(args: str, **edited: str) -> str:
        return keys(tmp_path, "of_home", **{**texts, **edited}, of_home=home.replace("ARGS", args))["tint"]

    assert of("1") == of("1")
    edited = LIB.replace("ADDED = 1", "ADDED = 5")
    assert len({of(""), of("1"), of("5"), of("one"), of("one", of_lib=edited)}) == 5
    op = importlib.import_module("of_home").OPS[0]
    before = op.fingerprint
    op.run((), np.zeros(0, np.int32), np.zeros((3, 2, 2), np.uint8))
    assert op.calls == 1
    assert op.fingerprint == before
    bare = CLASS_OP.replace("self.held = held", "pass").replace("self.calls = 0", "pass")
    assert of("1", of_op=bare) == of("5", of_op=bare), "it holds nothing"


PROCESS = """
import collections, io, itertools, pathlib, random, socket, sys, threading, weakref
import albumentations, kornia.augmentation
import numpy as np
import torch
import of_home, of_values
from viewcache.ops import transform

class Held:
    def __init__(self, **held):
        vars(self).update(held)
    def __call__(self, clip):
        return clip
    def __repr__(self):
        raise AssertionError
    def __getattr__(self, name):
        raise AssertionError
    def __eq__(self, other):
        raise AssertionError
    __str__ = __hash__ = __iter__ = __len__ = __bool__ = __repr__
    @property
    def asked(self):
        raise AssertionError

class Member:
    def __init__(self, held):
        self.held = held

class Mine(albumentations.ImageOnlyTransform):
    def apply(self, img, **keywords):
        return img

around = Held(lock=threading.Lock(), file=open("/dev/null"), socket=socket.socket(), numbers=itertools.count())
around.self = around
nested = {frozenset({"a", "b", ("c", None)}), frozenset({"d"}), Member({"e", "f", Member}), Member([around])}
for each in list(nested):
    if isinstance(each, Member):
        each.around = nested
pipeline = albumentations.Compose([albumentations.GaussNoise(), albumentations.HorizontalFlip()])
flips = kornia.augmentation.RandomHorizontalFlip(p=0.5)
made = {
    "unreadable": around,
    "generators": Held(numpy=np.random.default_rng(), python=random.Random(), old=np.random.RandomState(),
                       torch=torch.Generator(), weak=weakref.ref(around), made=(each for each in "ab"),
                       file=io.BytesIO()),
    "sets": Held(nested=nested, names={*map(str, range(99))}, kinds={int, str, Held, Member, len}),
    "containers": Held(a=collections.OrderedDict(b=1), c=collections.defaultdict(list, d=[around]),
                       e=collections.deque([1, around]), f=pathlib.Path("x"), g=slice(1, 2), h=range(3),
                       i=torch.float16, j=np.dtype("u2,f4"), k=np.float64(1), l=torch.device("cpu"), m=lambda: 1),
    "scripted": torch.jit.script(torch.nn.Linear(1, 1).requires_grad_(False).apply(lambda one: one.weight.zero_())
                                 .apply(lambda one: one.bias.zero_())),
    "albumentations": pipeline,
    "one's own of albumentations": Mine(),
    "a compiled function": torch.compile(of_home.one),
    "a compiled module": torch.compile(of_values.Net()),
    "kornia": Held(steps=torch.nn.Sequential(flips, kornia.augmentation.RandomBrightness((0.5, 1.5)))),
}
for name, each in made.items():
    print(name, transform(of_home.closed(each), random=False).fingerprint)
for home in (of_home, of_values):
    for what, op in zip(home.MADE, home.OPS):
        print(what, op.fingerprint)
"""


def test_each_process_finds_the_same(tmp_path: Path) -> None:
    """Whatever strings hash to, whatever else was hooked before, and wherever objects lie; no code of theirs is run."""
    for name, text in (("of_lib", LIB), ("of_home", OPS_OF_LIB), ("of_values", OPS_OF_VALUES), ("process", PROCESS)):
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "value.txt").write_text("3")

    def lines(seed: str, first: str) -> list[str]:
        environ = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
        asked = [sys.executable, "-W", "ignore", "-c", f"{first}; import process"]
        done = subprocess.run(asked, capture_output=True, text=True, check=False, env=environ)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    hooked = "import torch; torch.nn.Identity().register_forward_hook(print); held = [object() for _ in range(99)]"
    assert lines("1", "pass") == lines("2", hooked)


def closed(held: object) -> Any:
    """A function that closes over something."""
    return lambda pictures: (held, pictures)[1]


def of(held: object) -> str:
    """The key of a function that closes over it."""
    return str(transform(closed(held), name="closed", random=False).fingerprint)


@pytest.mark.parametrize(
    "pair",
    [
        ([1, [2]], [[1], 2]),
        (["ab", "c"], ["a", "bc"]),
        ((1,), [1]),
        (1, True),
        ("1", 1),
        (0.0, -0.0),
        (b"a", "a"),
        (np.zeros(2, np.uint8), np.zeros(2, np.int8)),
        (np.zeros((1, 2)), np.zeros((2, 1))),
        (np.zeros(0, np.uint8), np.zeros(0, np.int8)),
        (torch.zeros(2), torch.zeros(1, 2)),
        (np.add, np.subtract),
        (len, max),
        (partial(max, 1), partial(max, 2)),
        (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)),
        ({"a": None}, {"a": {}}),
    ],
    ids=lambda pair: f"{pair[0]!r:.40}".replace("\n", " "),
)
def test_other_values_are_other_keys(pair: tuple[object, object]) -> None:
    """Also where they are equal in Python, or read the same one after the other."""
    assert of(pair[0]) != of(pair[1])


def test_how_it_takes_a_clip_is_in_the_key() -> None:
    """Where that is said: a function may do something else to tensors. The usual way is no change."""
    said = {takes: transform(closed(None), name="copy", takes=takes, random=False).fingerprint for takes in TAKES}
    assert len({*said.values()}) == 3
    assert transform(closed(None), name="copy", random=False).fingerprint == said["array"]


def test_equal_values_are_one_key() -> None:
    """Whatever the memory is like that they lie in."""
    ways: tuple[Callable[[], Any], ...] = (
        lambda: np.arange(6).reshape(2, 3),
        lambda: np.asfortranarray(np.arange(6).reshape(2, 3)),
        lambda: np.arange(12).reshape(2, 6)[:, ::2] // 2 + np.array([[0], [0]]),
    )
    assert len({of(way()) for way in ways}) == 1
    assert of(torch.arange(6).reshape(2, 3).T.contiguous()) == of(torch.arange(6).reshape(2, 3).T)


def test_what_cannot_be_read_is_refused() -> None:
    """With the cure: a tensor without numbers, nesting without end, and more than can be looked through."""
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep, print]
    for held, told in (
        (torch.empty(1, device="meta"), "a tensor that it holds cannot be read"),
        ([torch.nn.LazyLinear(3)], "weights of LazyLinear cannot be read"),
        (deep, "nested too deeply"),
        ([[print] for _ in range(200_001)], "more than 200,000 objects"),
    ):
        with pytest.raises(BadInput, match=f"'closed'.*{told}.*version='1'"):
            of(held)


def test_many_plain_values_cost_little() -> None:
    """A table of a million numbers is read at once, and not one by one."""
    assert of(list(range(2_000_000))) != of(list(range(1, 2_000_001)))
