"""Functions and other libraries' transforms as operations: called with a whole clip, and with random numbers by key.

A clip draws 62 bits while it is planned, and whatever the transform draws follows from these: it is the same in any
process, at any time. The trade-off: two clips share such a transform only if they are the same clip.
"""

import inspect
import random
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType, MappingProxyType
from typing import Any, cast, overload

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput, OpFailed
from viewcache.materializer.ops.base import ClipOp, Draw, Fixed, Rows, Size
from viewcache.materializer.ops.fields import (
    MAX_SIDE,
    Field,
    FieldKind,
    Flag,
    Numbers,
    Params,
    Real,
    Text,
    Whole,
)
from viewcache.materializer.ops.fingerprint import fingerprint_of
from viewcache.materializer.randomness import scaled

__all__ = ["TAKES", "Transform", "transform"]

TAKES = ("array", "tensor", "images")
"""How a transform takes a clip, see `transform`."""

_SEEDS = ("seed_high", "seed_low")
_GENERATORS = ("rng", "generator")
_MOST = 1 << 53
"""Largest whole number that a parameter may be: any reader of YAML and JSON keeps it exactly."""


class Transform(ClipOp):
    """A transform as an operation; made by `transform`. Called, it is the transform itself."""

    function: Callable[..., Any]
    takes: str
    generator: str | None
    """The name of the function's parameter for a generator."""
    size: Size | None
    keyed = None

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """The transform, as it was given."""
        return self.function(*args, **keywords)

    def resolve(self, params: Params, draw: Draw, h: np.ndarray, w: np.ndarray) -> tuple[Rows, Fixed, Fixed]:
        """Draw what the random numbers follow from."""
        rows = np.zeros((len(h), len(self.columns)), np.int32)
        for k, name in enumerate(self.columns):
            rows[:, k] = scaled(draw.fraction(name), 1 << 31)
        height, width = self.size or (h, w)
        return rows, np.broadcast_to(np.int64(height), len(h)), np.broadcast_to(np.int64(width), len(w))

    def out_size(self, params: Params, size: Size | None) -> Size | None:
        """As it was said, or that of the clip."""
        return self.size or size

    def apply_clip(self, params: Params, row: np.ndarray, clip: np.ndarray) -> np.ndarray:
        """Call it in its own terms."""
        seed = (int(row[0]) << 31) | int(row[1]) if len(row) else None
        if self.generator is not None and seed is not None:
            return self._called(params, clip, {self.generator: _generator(self.takes, seed)})
        if seed is None:
            return self._called(params, clip)
        has_torch = "torch" in sys.modules
        before = clip if has_torch else clip.copy()
        out = self._seeded(params, clip, seed)
        if not has_torch and "torch" in sys.modules:  # the call imported it, and may have drawn before it was seeded
            out = self._seeded(params, before, seed)
        return out

    def _seeded(self, params: Params, clip: np.ndarray, seed: int) -> np.ndarray:
        """Call it with the generators of this process seeded."""
        _seed(self.name, seed)
        if hasattr(self.function, "set_random_seed"):  # Albumentations has generators of its own
            self.function.set_random_seed(seed % (1 << 32))
        return self._called(params, clip)

    def _called(
        self, params: Params, clip: np.ndarray, keywords: Mapping[str, object] = MappingProxyType({})
    ) -> np.ndarray:
        given = _GIVEN[self.takes](clip)
        if self.takes == "images":
            return self._taken(params, self.function(images=given, **dict(params), **keywords)["images"], clip)
        return self._taken(params, self.function(given, **dict(params), **keywords), clip)

    def _taken(self, params: Params, out: object, clip: np.ndarray) -> np.ndarray:
        """What it gave, as an array (T,C,H,W)."""
        if self.takes == "tensor" and hasattr(out, "numpy"):
            if str(out.dtype) != "torch.uint8":  # type: ignore[attr-defined] # of a tensor
                raise self.unlike(params, out, clip)
            out = out.detach().cpu().numpy()  # type: ignore[attr-defined] # the same
        if self.takes == "images" and isinstance(out, np.ndarray) and out.ndim == 4:
            out = out.transpose(0, 3, 1, 2)
        return cast(np.ndarray, out)  # `run_clip` looks what it is


@overload
def transform(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    takes: str | None = None,
    size: int | tuple[int, int] | None = None,
    random: bool = True,
    version: str | None = None,
) -> Transform: ...


@overload
def transform(
    function: None = None,
    *,
    name: str | None = None,
    takes: str | None = None,
    size: int | tuple[int, int] | None = None,
    random: bool = True,
    version: str | None = None,
) -> Callable[[Callable[..., Any]], Transform]: ...


def transform(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    takes: str | None = None,
    size: int | tuple[int, int] | None = None,
    random: bool = True,
    version: str | None = None,
) -> Transform | Callable[[Callable[..., Any]], Transform]:
    """Make an operation of a function, or of another library's transform; also a decorator, with or without arguments.

    Args:
        function: called with a clip; gives a clip of as many frames, uint8. Its further parameters are those of the
            operation: each has a default, whose type says what is allowed (bool, int, float, str or numbers). A
            parameter ``rng`` or ``generator`` gets a generator instead: NumPy's, or torch's where it takes tensors.
        name: of the operation; None = the function's own.
        takes: ``array``: NumPy (T,C,H,W); ``tensor``: torch (T,C,H,W); ``images``: the keyword ``images``, NumPy
            (T,H,W,C), and a dict with it comes back, as Albumentations do. None = ``tensor`` for a torch module,
            ``images`` for Albumentations, else ``array``.
        size: height and width of what it gives; one number for both; None = those of what it gets.
        random: whether it draws. If it takes no generator, those of Python, NumPy and torch are seeded for the call.
        version: to be changed with every change of what it gives; None = a hash of the source of its module, of your
            own modules that it is made of, and of the values that it holds, such as the weights of torch modules.

    Returns:
        The operation, for a module's list ``OPS``, an entry point or `register`. It can be called as the function.

    Raises:
        BadInput: the function cannot be one, or its source or what it holds cannot be read.
    """
    made = partial(
        _transform, caller=sys._getframe(1), name=name, takes=takes, size=size, random=random, version=version
    )
    return made if function is None else made(function)


def _transform(
    function: Any,
    *,
    caller: FrameType,
    name: str | None,
    takes: str | None,
    size: int | tuple[int, int] | None,
    random: bool,
    version: str | None,
) -> Transform:
    called = name or getattr(function, "__name__", None)
    if not callable(function) or called is None:
        raise BadInput(f"transform({function!r}): give a function, or name='…' with another callable")
    takes = _usual_takes(function) if takes is None else takes
    if takes not in TAKES:
        raise BadInput(f"transform {called!r}: takes={takes!r}; allowed: {', '.join(TAKES)}")
    plain = inspect.isfunction(function)
    parameters = list(inspect.signature(function).parameters.values())[1:] if plain else []
    generator = next((each.name for each in parameters if each.name in _GENERATORS), None)
    if generator is not None and not random:
        raise BadInput(f"transform {called!r} takes {generator!r} and is said to draw nothing: leave out one of them")
    drawing = () if not random else ("numpy", "torch") if takes == "tensor" else ("numpy",)
    home = function.__module__ if plain else caller.f_globals.get("__name__", "__main__")
    said = () if takes == _usual_takes(function) else (f"takes {takes}",)
    fingerprint = f"declared-{version}" if version else fingerprint_of(called, function, home, caller, drawing, said)
    made = type(
        called,
        (Transform,),
        {
            "__doc__": inspect.getdoc(function if plain else type(function)),
            "__module__": home,
            "name": called,
            "function": staticmethod(function),
            "takes": takes,
            "generator": generator,
            "size": _size(called, size),
            "sizes": size is not None,
            "fields": tuple(_field(called, each) for each in parameters if each.name != generator),
            "columns": _SEEDS if random else (),
            "fingerprint": fingerprint,
        },
    )
    op: Transform = made()
    return op


def _field(name: str, parameter: inspect.Parameter) -> Field:
    """A parameter of a function as one of the operation, by its default."""
    default = parameter.default
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
        raise BadInput(f"transform {name!r}: parameter {parameter} cannot be written in a configuration; name each")
    for kinds, kind in _KINDS:
        if isinstance(default, kinds):
            return Field(parameter.name, kind, kind.read(default), "")
    raise BadInput(
        f"transform {name!r}: parameter {parameter.name!r} needs a default that is a bool, an int, a float, a str or a "
        f"tuple of numbers, got {'none' if default is parameter.empty else repr(default)}"
    )


_KINDS: tuple[tuple[type | tuple[type, ...], FieldKind], ...] = (
    (bool, Flag()),
    (int, Whole(-_MOST, _MOST)),
    (float, Real(-1e300, 1e300)),
    (str, Text()),
    ((tuple, list), Numbers()),
)
"""Types of a default, and what is allowed then; a bool is an int, too, so it is first."""


def _size(name: str, size: object) -> Size | None:
    sides = (size, size) if isinstance(size, int) else size
    if sides is None:
        return None
    if (
        not isinstance(sides, tuple)
        or len(sides) != 2
        or not all(type(each) is int and 1 <= each <= MAX_SIDE for each in sides)
    ):
        raise BadInput(f"transform {name!r}: size={size!r}; allowed: height and width from 1 to {MAX_SIDE}")
    return sides


def _usual_takes(function: object) -> str:
    homes = {each.__module__.partition(".")[0] for each in type(function).__mro__}
    return "images" if "albumentations" in homes else "tensor" if "torch" in homes else "array"


# What it gets --------------------------------------------------------------------------------------------------------


def _array(clip: NDArray[np.uint8]) -> object:
    return clip


def _tensor(clip: NDArray[np.uint8]) -> object:
    import torch

    return torch.from_numpy(clip)


def _images(clip: NDArray[np.uint8]) -> object:
    return np.ascontiguousarray(clip.transpose(0, 2, 3, 1))


_GIVEN: Mapping[str, Callable[[NDArray[np.uint8]], object]] = {"array": _array, "tensor": _tensor, "images": _images}


def _generator(takes: str, seed: int) -> object:
    if takes != "tensor":
        return np.random.default_rng(seed)
    import torch

    return torch.Generator().manual_seed(seed)


def _seed(name: str, seed: int) -> None:
    """Seed the generators of this process, a worker in which nobody else draws."""
    if threading.current_thread() is not threading.main_thread():
        raise OpFailed(
            f"transform {name!r} draws from the generators of this process, as its other threads may: let it take "
            "`rng` or `generator`, say random=False, or use cache.worker_kind: processes"
        )
    random.seed(seed)
    np.random.seed(seed % (1 << 32))
    if (torch := sys.modules.get("torch")) is not None:  # who has not imported it does not draw from it
        torch.default_generator.manual_seed(seed)  # that of the CPU: seeding all devices takes 0.2 ms
