"""Laws 3 and 4 for functions of one's own: a path has one meaning, whoever makes it, and in whatever order."""

import importlib
import linecache
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.tiny import config, single
from viewcache.api.session.cache import Cache
from viewcache.errors import BadInput, Broken, ConfigError, OpFailed, ViewNotFound
from viewcache.materializer.ops import registry
from viewcache.ops import FrameOp, register, transform

MODULE = """
import numpy as np
from viewcache.ops import transform

@transform
def grain(clip, rng, strength=20):
    return np.clip(clip + rng.integers(-strength, strength + 1, clip.shape), 0, 255).astype(np.uint8)

@transform
def shuffled(clip):
    np.random.shuffle(clip)
    return clip

@transform(random=False)
def black_begin(clip):
    clip[0] = 0
    return clip

@transform(random=False, size=16)
def halved(clip):
    return clip[..., ::2, ::2]

@transform(random=False)
def floats(clip):
    return clip / 255

OPS = [grain, shuffled, black_begin, halved, floats]
"""

WEIGHTED = """
import torch
from viewcache.ops import transform

class Weighted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(DRAWN)

    @torch.no_grad()
    def forward(self, clip):
        return (clip * self.weight).to(torch.uint8)

OPS = [transform(Weighted(), name="weighted", random=False)]
"""

HOLDING = """
import os
import numpy as np
from viewcache.ops import transform

class Holder:
    def __init__(self, held):
        self.held = held

    def __call__(self, clip):
        return clip

OPS = [transform(Holder(HELD), name="holder", random=False)]
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of these tests can be imported, here and by workers."""
    (tmp_path / "clip_ops.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def given(store: Path, videos: Path, *operations: object, steps: object = None, **cache: object) -> dict[str, object]:
    """A task whose clips, of 32x32, go through operations."""
    first = single({"resize": {"shape": [32, 32]}}, *operations)
    return config(
        store, videos, cache={"op_modules": ["clip_ops"], **cache}, augmentation=[first] if steps is None else steps
    )


def read(what: dict[str, object], places: list[tuple[int, int]]) -> dict[tuple[int, int], bytes]:
    """Pixels of some batches, read in an order, and their keys."""
    with registry.own_registrations(), viewcache.open(what) as cache:
        return {place: cache.read("train", *place).video.tobytes() for place in places}


PLACES = [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize("operations", [["grain"], ["shuffled"], [{"grain": {"strength": 3}}, "shuffled", "halved"]])
def test_the_order_of_making_changes_nothing(operations: list[object], tmp_path: Path, videos: Path) -> None:
    """Read backwards, by other workers and in another store, the batches are the same; drawn clips differ."""
    forward = read(given(tmp_path / "one", videos, *operations), PLACES)
    backward = read(given(tmp_path / "two", videos, *operations, workers=2), PLACES[::-1])
    assert forward == backward
    assert len(set(forward.values())) == len(PLACES)


@pytest.mark.parametrize("drawn", ["torch.rand(3, 1, 1)", "torch.full((3, 1, 1), 0.5)"])
def test_weights_that_each_process_draws_are_refused(
    drawn: str, tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 3: a clip that is made again would have other bytes; what to do is said. Equal weights are well."""
    name = f"weighted_{len(drawn)}"
    (tmp_path / f"{name}.py").write_text(WEIGHTED.replace("DRAWN", drawn))
    monkeypatch.syspath_prepend(tmp_path)
    what = given(tmp_path / "own", videos, "weighted", op_modules=[name])
    if "rand" in drawn:
        with pytest.raises(Broken, match=r"operation 'weighted': .*seed or load them"):
            read(what, PLACES[:1])
    else:
        assert read(what, PLACES[:1])


@pytest.mark.parametrize("held", ["os.getpid()", "np.random.default_rng()"])
def test_values_that_each_process_has_its_own_of_are_refused(
    held: str, tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As weights are; the state of a generator is no value."""
    name = f"holding_{len(held)}"
    (tmp_path / f"{name}.py").write_text(HOLDING.replace("HELD", held))
    monkeypatch.syspath_prepend(tmp_path)
    what = given(tmp_path / "own", videos, "holder", op_modules=[name])
    if "getpid" in held:
        with pytest.raises(Broken, match=r"operation 'holder': .*hold nothing of the time or of the process"):
            read(what, PLACES[:1])
    else:
        assert read(what, PLACES[:1])


def test_what_is_made_is_what_the_function_makes(tmp_path: Path, videos: Path) -> None:
    """Pixels are those of the clip before, through the function, with the recorded numbers."""
    plain = given(tmp_path / "plain", videos)
    with registry.own_registrations(), viewcache.open(plain) as cache:
        before = cache.read("train", 0, 0).video
    with registry.own_registrations(), viewcache.open(given(tmp_path / "own", videos, "grain")) as cache:
        batch = cache.read("train", 0, 0)
        recipes = cache.task("train").recipes(0, 0)
    for clip, made, recipe in zip(before, batch.video, recipes, strict=True):
        drawn: Any = recipe.steps[-1]["drawn"]
        rng = np.random.default_rng((drawn["seed_high"] << 31) | drawn["seed_low"])
        assert np.array_equal(made, np.clip(clip + rng.integers(-20, 21, clip.shape), 0, 255))


def test_two_ways_from_one_clip(tmp_path: Path, videos: Path) -> None:
    """A function that writes to its clip changes no other way's."""
    steps = [
        single({"resize": {"shape": [32, 32]}}),
        {"branch_type": "multi", "inputs": ["a"], "outputs": ["x", "y"]},
        single("black_begin", of="x", into="z"),
        {"branch_type": "merge", "inputs": ["z", "y"], "outputs": ["m"], "merge": "stack"},
        single("black_begin", {"flip": {"flip_prob": 1.0}}, of="m", into="n"),
    ]
    with registry.own_registrations(), viewcache.open(given(tmp_path / "plain", videos)) as cache:
        before = cache.read("train", 0, 0).video
    expected = before.copy()
    expected[:, 0] = 0
    for last, black in ((steps[:4], [True, False]), (steps, [True, True])):
        store = tmp_path / f"ways{len(last)}"
        with registry.own_registrations(), viewcache.open(given(store, videos, steps=last)) as cache:
            got = cache.read("train", 0, 0).video
        got = got[..., ::-1] if len(last) == 5 else got
        for view, is_black in enumerate(black):
            assert np.array_equal(got[:, view], expected if is_black else before)


def test_single_frames_end_before_whole_clips(tmp_path: Path, videos: Path) -> None:
    """A step that sees all frames together has no single ones; those before it have."""
    steps = [
        single({"resize": {"shape": [32, 32]}}),
        single("grain", of="a", into="b"),
        single("halved", of="b", into="c"),
    ]
    with registry.own_registrations(), viewcache.open(given(tmp_path / "own", videos, steps=steps)) as cache:
        name = cache.read("train", 0, 0).videos[0]
        assert cache.task("train").depths() == (1,)
        assert cache.aug("train", name, 0, 1, epoch=0).shape == (3, 32, 32)
        for depth in (2, 3):
            with pytest.raises(ViewNotFound, match=f"step {depth} .*sees whole clips.*after steps 1"):
                cache.aug("train", name, 0, depth, epoch=0)


def test_what_is_no_clip_is_told(tmp_path: Path, videos: Path) -> None:
    """A function that gives floats: the read fails and says what to do; the cache lives on."""
    with (
        registry.own_registrations(),
        viewcache.open(given(tmp_path / "own", videos, "floats")) as cache,
        pytest.raises(OpFailed, match=r"operation 'floats' gave float64 \(4, 3, 32, 32.*to_dtype"),
    ):
        cache.read("train", 0, 0)


def test_what_is_registered_here_runs_in_threads(tmp_path: Path, videos: Path) -> None:
    """As a notebook does: no module at all, and workers that are threads of the process that knows the function."""
    what = given(tmp_path / "own", videos, "brighter", worker_kind="threads", op_modules=[])
    with registry.own_registrations():
        register(transform(lambda clip: clip | 1, name="brighter", random=False))
        with viewcache.open(what) as cache:
            assert (cache.read("train", 0, 0).video & 1).all()


SHADE = "def shade(clip):\n    return clip | {}\n"
"""It sets bits."""

SHADE_CLASS = """
class Shade(FrameOp):
    name = "shade"
    def apply(self, params, row, frame):
        return frame | {}
"""


def run_cell(number: int, shade: str = SHADE) -> None:
    """Run a cell of a notebook that makes an operation, and register that."""
    text, name = shade.format(number), f"<cell {len(linecache.cache)}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name  # as IPython notes what was typed in
    names: dict[str, Any] = {"__name__": "__main__", "FrameOp": FrameOp}
    exec(compile(text, name, "exec"), names)
    register(names["Shade"] if "Shade" in names else transform(names["shade"], random=False))


def bits(cache: Cache, iteration: int = 0) -> int:
    """Which of the two lowest bits are set in each pixel of a batch."""
    return int(np.bitwise_and.reduce(cache.read("train", 0, iteration).video, axis=None)) & 3


@pytest.mark.parametrize("shade", [SHADE, SHADE_CLASS], ids=["function", "class"])
def test_a_cell_may_be_run_again(tmp_path: Path, videos: Path, shade: str) -> None:
    """Changed or not: caches that are opened from then on have what was registered last, under keys of its own."""
    what = given(tmp_path / "own", videos, "shade", worker_kind="threads", op_modules=[])
    with registry.own_registrations():
        for number in (1, 1, 2, 1):
            run_cell(number, shade)
            with viewcache.open(what) as cache:
                assert bits(cache) == number


@pytest.mark.parametrize("shade", [SHADE, SHADE_CLASS], ids=["function", "class"])
def test_a_cell_is_nothing_for_worker_processes(tmp_path: Path, videos: Path, shade: str) -> None:
    """They import what they apply: that is said when a cache is opened or a task joins, and not at the first read."""
    what = given(tmp_path / "own", videos, "shade", op_modules=[])
    with registry.own_registrations():
        run_cell(1, shade)
        with pytest.raises(BadInput, match=r"'shade' was registered in this process only.*op_modules.*threads"):
            viewcache.open(what)
        plain = config(tmp_path / "own", videos, augmentation=[single("grayscale")])
        with viewcache.open(plain) as cache:
            what["dataset"]["tag"] = "other"  # type: ignore[index] # a mapping
            with pytest.raises(BadInput, match="'shade' was registered in this process only"):
                cache.join({"dataset": what["dataset"]})
            assert cache.read("train", 0, 0).video.size


def test_an_open_cache_keeps_its_operations(tmp_path: Path, videos: Path) -> None:
    """A cell that is run again changes nothing in a cache that is open; another is opened when that is closed."""
    one, other, third = (
        given(tmp_path / store, videos, "shade", worker_kind="threads", op_modules=[]) for store in "abc"
    )
    with registry.own_registrations():
        run_cell(1)
        with viewcache.open(one) as cache:
            run_cell(2)
            assert bits(cache) == 1
            with pytest.raises(BadInput, match=r"'shade' was registered anew.*close that cache first"):
                viewcache.open(other)
            run_cell(1)
            with viewcache.open(other) as beside:  # the code of before is back
                assert bits(beside) == 1
            run_cell(2)
            assert bits(cache, 1) == 1
        with viewcache.open(third) as cache:
            assert bits(cache) == 2


def test_a_module_may_be_reloaded(tmp_path: Path, videos: Path) -> None:
    """After an edit and `importlib.reload` a cache that is opened anew makes clips with the code of now."""
    what, file = given(tmp_path / "own", videos, "shade", op_modules=["shade_ops"]), tmp_path / "shade_ops.py"
    text = "from viewcache.ops import transform\n\n{}\nOPS = [transform(shade, random=False)]\n"
    with registry.own_registrations():
        for number in (1, 2):
            file.write_text(text.format(SHADE.format(number)) + "#" * number)  # of another size: no stale bytecode
            if number == 2:
                importlib.reload(sys.modules["shade_ops"])
            with viewcache.open(what) as cache:
                assert bits(cache) == number


CLASS = """
from viewcache.ops import ClipOp

BITS = {}

class Shade(ClipOp):
    name = "shade"

    def apply_clip(self, params, row, clip):
        return clip | BITS

OPS = [Shade]
"""


def test_an_edit_before_the_cache_is_opened(tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 3: what a class of before makes in threads is not stored under the key of what its file has by then."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    what = given(tmp_path / "own", videos, "shade", op_modules=["shading_ops"], worker_kind="threads")
    file = tmp_path / "shading_ops.py"
    file.write_text(CLASS.format(1))
    module = importlib.import_module("shading_ops")
    file.write_text(CLASS.format(2))
    with registry.own_registrations():
        with viewcache.open(what) as cache:
            assert bits(cache) == 1
        importlib.reload(module)
        with viewcache.open(what) as cache:
            assert bits(cache) == 2


def test_a_helper_that_was_edited_is_refused(tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function of another module than the transform's: its file has other code than runs. Reloading it cures that."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    what = given(tmp_path / "own", videos, "shade", op_modules=["taking_ops"], worker_kind="threads")
    (tmp_path / "taking_ops.py").write_text(
        "import shades\nfrom viewcache.ops import transform\nOPS = [transform(shades.shade, random=False)]\n"
    )
    helper = tmp_path / "shades.py"
    helper.write_text(SHADE.format(1))
    module = importlib.import_module("shades")
    helper.write_text(SHADE.format(2))
    with registry.own_registrations():
        with pytest.raises(ConfigError, match=r"shades\.py was edited after it was imported.*importlib\.reload"):
            viewcache.open(what)
        importlib.reload(module)
        with viewcache.open(what) as cache:
            assert bits(cache) == 2


def test_threads_take_what_takes_a_generator(tmp_path: Path, videos: Path) -> None:
    """Workers that are threads give the same pixels, or say why they cannot."""
    threads = {"worker_kind": "threads"}
    drawn = read(given(tmp_path / "threads", videos, "grain", **threads), PLACES[:1])
    assert drawn == read(given(tmp_path / "processes", videos, "grain"), PLACES[:1])
    with (
        registry.own_registrations(),
        viewcache.open(given(tmp_path / "own", videos, "shuffled", **threads)) as cache,
        pytest.raises(OpFailed, match="'shuffled' draws from the generators of this process"),
    ):
        cache.read("train", 0, 0)
