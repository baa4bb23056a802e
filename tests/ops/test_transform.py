"""Functions and other libraries' transforms as operations: what they get, may give, and draw by their keys."""

import importlib
import linecache
import random
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import albumentations  # type: ignore[import-untyped] # has no types
import kornia.augmentation
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.ops.draws import draws, frame
from viewcache.errors import BadInput, OpFailed
from viewcache.materializer.ops import Params, registry
from viewcache.materializer.ops.transforms import Transform
from viewcache.ops import register, transform

Clip = NDArray[np.uint8]


@pytest.fixture(autouse=True)
def own() -> Iterator[None]:
    """Names of these tests are free again afterwards."""
    with registry.own_registrations():
        yield


def clip(frames: int = 4) -> Clip:
    """(frames,3,32,45)."""
    return np.stack([frame(seed=seed) for seed in range(frames)])


def ran(op: Transform, value: object = None, seed: int = 0, given: Clip | None = None) -> Clip:
    """What it makes of a clip."""
    params = op.parse({} if value is None else value)
    rows, h, w = op.resolve(params, draws(1, op.scope, seed=seed), np.array([32]), np.array([45]))
    out = op.run_clip(params, rows[0], clip() if given is None else given)
    assert out.shape == (4, 3, int(h[0]), int(w[0]))
    return out


@transform
def grain(pictures: Clip, rng: np.random.Generator, strength: int = 8) -> Clip:
    """Noise that is another one in each frame."""
    noise = rng.integers(-strength, strength + 1, pictures.shape)
    return np.asarray(np.clip(pictures + noise, 0, 255), np.uint8)


@transform(takes="tensor")
def drop(pictures: torch.Tensor, generator: torch.Generator, share: float = 0.5) -> torch.Tensor:
    """Black out some frames."""
    kept = torch.rand(len(pictures), generator=generator) >= share
    return pictures * kept.view(-1, 1, 1, 1)


@transform
def by_itself(pictures: Clip) -> Clip:
    """Draws from every generator that a process has."""
    shift = random.randrange(100) + int(np.random.randint(100)) + int(torch.randint(100, ()))
    return pictures + np.uint8(shift % 250)


@transform(random=False)
def backwards(pictures: Clip) -> Clip:
    """A view of what it gets."""
    return pictures[::-1]


class _Kornia(torch.nn.Module):
    """Kornia's, which take floats and draw from torch's own generator."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = torch.nn.Sequential(
            kornia.augmentation.RandomHorizontalFlip(p=0.5, same_on_batch=True),
            kornia.augmentation.RandomBrightness((0.5, 1.5), p=1.0, same_on_batch=True),
        )

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = (self.steps(pictures / 255) * 255).round().to(torch.uint8)
        return made


def made_by_albumentations() -> Any:
    """A pipeline of theirs."""
    return albumentations.Compose(
        [albumentations.HorizontalFlip(p=0.5), albumentations.RandomBrightnessContrast(p=1.0)]
    )


def library_ops() -> dict[str, Transform]:
    """Their transforms, as a user would write them."""
    return {
        "kornia": transform(_Kornia(), name="kornia_pair"),
        "albumentations": transform(made_by_albumentations(), name="albumentations_pair"),
    }


DRAWING: dict[str, Callable[[], Transform]] = {
    "rng": lambda: grain,
    "generator": lambda: drop,
    "itself": lambda: by_itself,
    "kornia": lambda: library_ops()["kornia"],
    "albumentations": lambda: library_ops()["albumentations"],
}


@pytest.mark.parametrize("which", DRAWING)
def test_what_it_draws_follows_from_the_key(which: str) -> None:
    """Law 4: the same clip gets the same pixels whatever was drawn before, and other clips get others."""
    op = DRAWING[which]()
    first = [ran(op, seed=seed) for seed in range(6)]
    random.random()
    np.random.rand(3)
    torch.rand(3)
    again = [ran(DRAWING[which](), seed=seed) for seed in reversed(range(6))][::-1]
    assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True))
    assert len({each.tobytes() for each in first}) > 2


def test_a_drawn_transform_is_what_its_library_makes() -> None:
    """Albumentations' own call with the same seed gives the same pixels, frame by frame in one layout or the other."""
    op = library_ops()["albumentations"]
    params = op.parse({})
    (row, *_), *_ = op.resolve(params, draws(1, op.scope), np.array([32]), np.array([45]))
    theirs = made_by_albumentations()
    theirs.set_random_seed(((int(row[0]) << 31) | int(row[1])) % (1 << 32))
    expected = theirs(images=clip().transpose(0, 2, 3, 1).copy())["images"]
    assert np.array_equal(op.run_clip(params, row, clip()), np.asarray(expected).transpose(0, 3, 1, 2))


def test_parameters_come_from_the_defaults() -> None:
    """Their types say what is allowed; a wrong one is named with its value."""

    @transform(random=False)
    def many(
        pictures: Clip,
        flag: bool = True,
        count: int = 3,
        share: float = 0.5,
        how: str = "a",
        mean: tuple[float, ...] = (1, 2),
    ) -> Clip:
        return pictures

    assert many.parse({"count": 4}) == (
        ("count", 4), ("flag", True), ("how", "a"), ("mean", (1.0, 2.0)), ("share", 0.5),
    )  # fmt: skip
    for wrong in ({"count": 0.5}, {"flag": 1}, {"share": "x"}, {"how": 3}, {"mean": 3}, {"mean": ["a"]}, {"other": 1}):
        with pytest.raises(BadInput, match=f"many.*{next(iter(wrong))}"):
            many.parse(wrong)
    assert not np.array_equal(ran(grain, {"strength": 1}), ran(grain, {"strength": 100}))


def test_what_draws_nothing_is_shared_by_clips() -> None:
    """It has no numbers, so that equal frames are equal work; a view of its input is fine."""
    assert backwards.columns == ()
    assert np.array_equal(ran(backwards), clip()[::-1])


def test_it_may_write_to_what_it_gets() -> None:
    """Its clip is its own, also where another step reads the same frames."""

    @transform(random=False)
    def blacken(pictures: Clip) -> Clip:
        pictures[:] = 0
        return pictures

    shared = clip()
    shared.flags.writeable = False
    assert not ran(blacken, given=shared).any()
    assert shared.any()


def test_another_size_is_said_beforehand() -> None:
    """A size is known before anything is decoded."""
    halved = transform(
        lambda pictures: pictures[:, :, ::2, ::3], name="halved", size=(16, 15), random=False, version="1"
    )
    assert halved.sizes
    assert halved.out_size((), None) == (16, 15)
    assert ran(halved).shape == (4, 3, 16, 15)


WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "float": (lambda pictures: pictures / 255, "gave float64"),
    "nothing": (lambda pictures: None, "gave NoneType"),
    "fewer frames": (lambda pictures: pictures[1:], r"gave uint8 \(3, 3, 32, 45\)"),
    "frames behind": (lambda pictures: pictures.transpose(1, 0, 2, 3), r"gave uint8 \(3, 4"),
    "grey": (lambda pictures: pictures[:, :1], r"gave uint8 \(4, 1"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_it_must_not_give(what: str) -> None:
    """Another type or shape is an error that says what came, and what to do."""
    function, told = WRONG[what]
    op = transform(function, name="wrong", random=False, version="1")
    with pytest.raises(OpFailed, match=f"operation 'wrong' {told}.*must give uint8 .4, 3, h, w.*to_dtype"):
        op.run_clip((), np.zeros(0, np.int32), clip())


def test_tensors_of_floats_are_refused() -> None:
    """As arrays are."""
    op = transform(lambda pictures: pictures / 255, name="wrong", takes="tensor", random=False, version="1")
    with pytest.raises(OpFailed, match=r"gave torch\.float32"):
        op.run_clip((), np.zeros(0, np.int32), clip())


def test_what_cannot_be_an_operation() -> None:
    """It is refused where it is written, with the cure."""

    def no_default(pictures: Clip, strength: int) -> Clip:
        return pictures

    def anything(pictures: Clip, **keywords: int) -> Clip:
        return pictures

    def object_default(pictures: Clip, what: object = None) -> Clip:
        return pictures

    for function, told in ((no_default, "default"), (anything, "name each"), (object_default, "got None")):
        with pytest.raises(BadInput, match=f"transform '{function.__name__}'.*{told}"):
            transform(function)
    with pytest.raises(BadInput, match="name='…'"):
        transform(_Kornia())
    with pytest.raises(BadInput, match="takes='frames'; allowed: array, tensor, images"):
        transform(anything, takes="frames")
    with pytest.raises(BadInput, match="size=0; allowed"):
        transform(lambda pictures: pictures, name="x", size=0)
    with pytest.raises(BadInput, match="'grain' takes 'rng' and is said to draw nothing"):
        transform(grain.function, random=False)
    with pytest.raises(BadInput, match="source cannot be read; pass version"):
        transform(eval("lambda pictures: pictures", {"__name__": "nowhere"}), name="typed")
    with pytest.raises(BadInput, match="its name is 'Großes'"):
        register(transform(lambda pictures: pictures, name="Großes", version="1"))


def test_keys_are_of_source_and_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of the library that draws is another fingerprint; a declared one is what it says."""
    before = {name: op.fingerprint for name, op in library_ops().items()} | {"grain": grain.fingerprint}
    assert before == {name: op.fingerprint for name, op in library_ops().items()} | {"grain": grain.fingerprint}
    assert len(set(before.values())) == len(before)
    with monkeypatch.context() as patch:
        installed = metadata.version
        patch.setattr(metadata, "version", lambda name: "9" if name == "kornia" else installed(name))
        assert library_ops()["kornia"].fingerprint != before["kornia"], "a part of a module of one's own"
        assert library_ops()["albumentations"].fingerprint == before["albumentations"]
    monkeypatch.setattr(metadata, "version", lambda name: f"another of {name}")
    for name, op in library_ops().items():
        assert op.fingerprint != before[name]
    assert transform(grain.function).fingerprint != before["grain"], "NumPy draws for it"
    assert transform(backwards.function, random=False).fingerprint == backwards.fingerprint, "nobody draws for it"
    assert transform(grain.function, version="7").fingerprint == "declared-7"


@pytest.mark.parametrize("edited", ["home", "decorators", "paints"])
def test_keys_are_of_every_module_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edited: str) -> None:
    """Of a decorated function its own module and the decorator's, of an instance that of its class."""
    texts = {
        "decorators": """
            import functools
            ADDED = 1

            def twice(function):
                @functools.wraps(function)
                def called(clip):
                    return function(function(clip)) + ADDED
                return called
        """,
        "paints": """
            STRENGTH = 1

            class Paint:
                def __call__(self, clip):
                    return clip + STRENGTH
        """,
        "home": """
            from decorators import twice
            from paints import Paint
            from viewcache.ops import transform
            STRENGTH = 1

            @transform(random=False)
            @twice
            def plain(clip):
                return clip + STRENGTH

            class Own(Paint):
                pass

            made = transform(Own(), name="made", random=False)
        """,
    }
    monkeypatch.syspath_prepend(tmp_path)

    def imported() -> tuple[str, str]:
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
            monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        home = importlib.import_module("home")
        return home.plain.fingerprint, home.made.fingerprint

    plain, made = imported()
    assert imported() == (plain, made)
    texts[edited] = texts[edited].replace("= 1", "= 200")
    plain_then, made_then = imported()
    assert (plain_then != plain, made_then != made) == (edited != "paints", edited != "decorators")


def test_keys_are_of_weights() -> None:
    """Of two modules with the same weights one key, whatever made them; others have another."""

    def of(seed: int) -> str:
        torch.manual_seed(seed)
        return transform(torch.nn.Linear(3, 3), name="linear", random=False).fingerprint

    assert of(1) == of(1) != of(2)


def test_torch_is_seeded_for_who_imports_it_in_the_call(tmp_path: Path) -> None:
    """The first clip of a process is what it would be as the second."""
    (tmp_path / "late.py").write_text(
        textwrap.dedent("""
            import sys
            import numpy as np
            from viewcache.ops import transform

            @transform
            def drawn(clip):
                import torch
                clip += torch.randint(0, 256, clip.shape, dtype=torch.uint8).numpy()  # also in its place
                return clip

            assert "torch" not in sys.modules
            for seed in map(int, sys.argv[1:]):
                row = np.array([seed, seed], np.int32)
                print(seed, drawn.apply_clip((), row, np.zeros((1, 3, 2, 2), np.uint8)).tolist())
        """)
    )

    def lines(*seeds: str) -> set[str]:
        asked = [sys.executable, str(tmp_path / "late.py"), *seeds]
        return {*subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()}

    assert lines("3", "4") == lines("4", "3")


DECORATORS = """import functools
FACTOR = 1
def logged(function):
    @functools.wraps(function)
    def call(clip):
        return function(clip)
    return call
def bare(function):
    return lambda clip: function(clip) * FACTOR
class Paint:
    def __call__(self, clip):
        return clip * FACTOR
"""

HOME = """import functools, torch
import paint_lib
from viewcache.ops import transform
STRENGTH = 10
def plain(clip):
    return clip * 0 + STRENGTH
class More(paint_lib.Paint):
    pass
OPS = [
    transform(plain, random=False),
    transform(torch.no_grad()(plain), name="no_grad", random=False),
    transform(paint_lib.logged(plain), name="logged", random=False),
    transform(paint_lib.bare(plain), name="bare", random=False),
    transform(paint_lib.Paint(), name="paint", random=False),
    transform(More(), name="more", random=False),
    transform(paint_lib.Paint().__call__, name="bound", random=False),
    transform(functools.partial(paint_lib.Paint.__call__, None), name="partial", random=False),
]
"""


def test_a_key_has_all_modules_that_it_is_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 3: behind a decorator, with it, in a class or its base, what is changed makes other keys."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # or an edit within a second is not seen

    def keys(home: str, lib: str) -> dict[str, str]:
        for name, text in (("paint_lib", lib), ("paint_home", home)):
            (tmp_path / f"{name}.py").write_text(text)
            sys.modules.pop(name, None)
            linecache.clearcache()
        importlib.invalidate_caches()
        return {op.name: op.fingerprint for op in importlib.import_module("paint_home").OPS}

    first = keys(HOME, DECORATORS)
    assert keys(HOME, DECORATORS) == first
    of_home = keys(HOME.replace("STRENGTH = 10", "STRENGTH = 200"), DECORATORS)
    assert [name for name in first if of_home[name] == first[name]] == []
    of_lib = keys(HOME, DECORATORS.replace("FACTOR = 1", "FACTOR = 2"))
    assert [name for name in first if of_lib[name] == first[name]] == ["plain", "no_grad"]


CHOICES = """
import functools

def same(frame): return frame
def other(frame): return 255 - frame
LAMBDAS = [lambda frame: frame, lambda frame: 255 - frame]

def kept(function):
    @functools.wraps(function)
    def inner(frame): return function(frame)
    return inner

def turned(function):
    @functools.wraps(function)
    def inner(frame): return 255 - function(frame)
    return inner

class Both:
    def same(self, frame): return frame
    def other(self, frame): return 255 - frame

PAIRS = {
    "function": (same, other),
    "lambda": LAMBDAS,
    "decorator": (kept(same), turned(same)),
    "method": (Both().same, Both().other),
    "partial": (functools.partial(same), functools.partial(other)),
    "partial of lambda": tuple(map(functools.partial, LAMBDAS)),
}
"""


def test_a_key_tells_which_of_a_module_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same name and the same source, one function of it is not another one: law 3."""
    (tmp_path / "choices_of_one.py").write_text(CHOICES)
    monkeypatch.syspath_prepend(tmp_path)
    for kind, pair in importlib.import_module("choices_of_one").PAIRS.items():
        one, other = (transform(each, name="chosen").fingerprint for each in pair)
        assert one != other, kind
        assert one == transform(pair[0], name="chosen").fingerprint


def test_what_is_edited_in_place_is_keyed_by_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is installed by ``pip install -e`` keeps its version whatever is edited."""
    info = tmp_path / "paint_place-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: paint-place\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("paint_place\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    seen = []
    for factor in (1, 2):
        (tmp_path / "paint_place.py").write_text(DECORATORS.replace("FACTOR = 1", f"FACTOR = {factor}"))
        sys.modules.pop("paint_place", None)
        linecache.clearcache()
        importlib.invalidate_caches()
        paint = importlib.import_module("paint_place").Paint()
        seen.append(transform(paint, name="paint", random=False).fingerprint)
    assert metadata.packages_distributions()["paint_place"] == ["paint-place"]
    assert seen[0] != seen[1]


class _Weighted(torch.nn.Module):
    """Multiplies by a parameter, and has a buffer that is in no state."""

    offset: torch.Tensor

    def __init__(self, weight: float, offset: float = 0) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3, 1, 1), weight, dtype=torch.bfloat16))
        self.register_buffer("offset", torch.tensor(offset), persistent=False)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = (pictures * self.weight + self.offset).to(torch.uint8)
        return made


def test_weights_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 3: other parameters or buffers, also of a step of a pipeline or behind a closure, are another key."""

    def of(module: Any) -> str:
        return str(transform(module, name="weighted", takes="tensor", random=False).fingerprint)

    def closed(module: torch.nn.Module) -> Any:
        return lambda pictures: module(pictures)

    class Pipeline:
        def __init__(self, *steps: Any) -> None:
            self.transforms = list(steps)

        def __call__(self, pictures: Any) -> Any:
            return pictures

    kinds: tuple[Callable[[torch.nn.Module], Any], ...] = (lambda module: module, closed, Pipeline, torch.nn.Sequential)
    for kind in kinds:
        assert of(kind(_Weighted(1))) == of(kind(_Weighted(1)))
        assert len({of(kind(_Weighted(*each))) for each in ((1,), (0.5,), (1, 2))}) == 3
    lazy = torch.nn.LazyLinear(3)
    with pytest.raises(BadInput, match=r"weights of LazyLinear cannot be read.*version='1'"):
        of(lazy)
    assert transform(lazy, name="weighted", version="1").fingerprint == "declared-1"


def test_a_cell_of_a_notebook() -> None:
    """What was typed in is keyed by the text of its cell as a whole, and not by that of other cells."""

    def cell(text: str) -> Any:
        name = f"<cell {len(linecache.cache)}>"
        linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(text, name, "exec"), names)
        return names["invert"]

    text = "def invert(clip):\n    return {} - clip\n"
    one, other = (transform(cell(text.format(number)), random=False).fingerprint for number in (255, 254))
    assert one != other
    assert transform(cell(text.format(255)), random=False).fingerprint == one
    assert transform(cell("x = 1\n\n" + text.format(255)), random=False).fingerprint not in (one, other)
    wrapped = (
        "import functools\ndef halved(function):\n    @functools.wraps(function)\n    def call(clip):\n"
        "        return function(clip) // {}\n    return call\n@halved\n" + text.format(255)
    )
    two, three = (transform(cell(wrapped.format(number)), random=False).fingerprint for number in (2, 3))
    assert len({one, two, three}) == 3


def test_it_is_still_the_function() -> None:
    """A decorated function can be called as it was."""
    assert np.array_equal(backwards(clip()), clip()[::-1])
    assert type(grain).__doc__ == "Noise that is another one in each frame."


def test_threads_may_not_draw_from_what_all_share() -> None:
    """In a worker that is a thread of the training process, only what takes a generator is repeatable."""
    caught: list[BaseException] = []
    params: Params = ()

    def work() -> None:
        ran(grain)
        try:
            by_itself.run_clip(params, np.zeros(2, np.int32), clip())
        except OpFailed as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    (error,) = caught
    assert "let it take `rng` or `generator`" in str(error)
