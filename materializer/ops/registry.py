"""Where operations are found by name: built in, from a module that the cache's settings name, or an entry point.

Nothing is imported because a task's YAML says so: a name is looked up among installed entry points and in modules that
the owner of the cache listed, never imported by its text (law 10).
"""

import importlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from types import FunctionType
from typing import TYPE_CHECKING

from viewcache.errors import BadInput, Broken
from viewcache.materializer.ops.base import ClipOp, FrameOp, Op, ReadOp, TimeOp
from viewcache.materializer.ops.transforms import Transform
from viewcache.suggest import did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "ELSEWHERE",
    "ENTRY_POINTS",
    "Held",
    "builtin_names",
    "check_importable",
    "expect",
    "fingerprints",
    "get",
    "hold",
    "latest",
    "load_modules",
    "names",
    "own_registrations",
    "register",
]

ENTRY_POINTS = "viewcache.ops"
"""Entry point group; each entry's name is the operation's name and its object an Op class or instance."""

ELSEWHERE = {
    "autoaugment": "auto_augment",
    "blur": "blur",
    "centercrop": "center_crop",
    "coarsedropout": "erase",
    "colorjitter": "color_jitter",
    "convertimagedtype": "to_dtype",
    "cutout": "erase",
    "fivecrop": "five_crop",
    "gaussianblur": "blur",
    "grayscale": "grayscale",
    "hflip": "flip",
    "horizontalflip": "flip",
    "mixvideo": "mix_video",
    "normalize": "normalize",
    "normalizevideo": "normalize",
    "randaugment": "rand_augment",
    "randombrightnesscontrast": "color_jitter",
    "randomcrop": "random_crop",
    "randomcropvideo": "random_crop",
    "randomerasing": "erase",
    "randomgrayscale": "grayscale",
    "randomhorizontalflip": "flip",
    "randomhorizontalflipvideo": "flip",
    "randomresizedcrop": "random_resized_crop",
    "randomresizedcropvideo": "random_resized_crop",
    "randomrotation": "rotate",
    "randomshortsidescale": "random_short_side",
    "randomsizedcrop": "random_resized_crop",
    "randomverticalflip": "flip",
    "tencrop": "ten_crop",
    "threecrop": "three_crop",
    "trivialaugment": "trivial_augment_wide",
    "trivialaugmentwide": "trivial_augment_wide",
    "uniformcrop": "three_crop",
    "uniformcropvideo": "three_crop",
    "resize": "resize",
    "rotate": "rotate",
    "scale": "resize",
    "shortsidescale": "resize",
    "smallestmaxsize": "resize",
    "tofloat": "to_dtype",
    "tograyscale": "grayscale",
    "totensor": "to_dtype",
    "totensorv2": "to_dtype",
    "totensorvideo": "to_dtype",
    "uniformtemporalsubsample": "subsample",
    "verticalflip": "flip",
    "vflip": "flip",
}
"""What torchvision, Albumentations and PyTorchVideo call transforms, in lower case → our nearest operation."""

_FAMILIES = ("resize", "crop", "geometry", "color", "auto_augment", "time", "read", "mix", "lossy")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")

_lock = Lock()
_builtin: dict[str, Op] = {}
_custom: dict[str, Op] = {}
_waiting: dict[str, Op] = {}
"""Registered anew while caches are open that use the operation of that name: used when these are closed."""
_held: "list[Held]" = []
_refused: dict[str, str] = {}
"""Name → why the operation must not be used in this process."""


def get(name: str) -> Op:
    """Return the operation of a name.

    Raises:
        BadInput: no such operation; the message lists the known ones, and the nearest or how to name one of your own.
        Broken: this process has other code of it than the one that planned (`expect`).
    """
    op = _builtins().get(name) or _custom.get(name)
    if name in _refused:
        raise Broken(_refused[name])
    if op is not None:
        return op
    for entry in _installed():
        if entry.name == name:
            return _load_entry(name, entry.value, entry.load())
    known = names()
    hint = did_you_mean(name, known, ELSEWHERE) or "one of your own is found in a module that op_modules names"
    raise BadInput(f"unknown op {name!r}; known: {', '.join(known)}; {hint}")


def latest(name: str) -> Op:
    """Return the operation of a name for a cache that is opened now; see `get`.

    Raises:
        BadInput: also if it was registered anew with other code, and a cache is open that uses the code before.
        Broken: see `get`.
    """
    op = get(name)
    with _lock:
        anew = _waiting.get(name)
        if anew is not None and anew.fingerprint != op.fingerprint:
            raise BadInput(
                f"op {name!r} was registered anew with other code, and a cache is open in this process that uses the "
                "code before: close that cache first (cache.close())"
            )
    return op


class Held:
    """Operations of a cache that is open in this process: as long as it is, their names mean what they meant."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {*names}

    def add(self, names: Iterable[str]) -> None:
        """Further ones, of tasks that join."""
        with _lock:
            self._names |= {*names}

    def release(self) -> None:
        """The cache is closed; harmless when done twice."""
        with _lock:
            if self in _held:
                _held.remove(self)
            for name in [name for name in _waiting if not _is_held(name)]:
                _custom[name] = _waiting.pop(name)

    def __contains__(self, name: object) -> bool:
        """Whether it is one of them."""
        return name in self._names


def hold(names: Iterable[str]) -> Held:
    """Keep operations as they are for a cache that is being opened, until it lets go of them."""
    held = Held(names)
    with _lock:
        _held.append(held)
    return held


def _is_held(name: str) -> bool:
    return any(name in each for each in _held)


def expect(fingerprints: Mapping[str, str]) -> None:
    """Refuse operations whose code is not the one that keys were made of: the file was changed meanwhile.

    Args:
        fingerprints: of custom operations by name, in the process that plans. Names that are not known here are passed
            over.
    """
    for name, planned in fingerprints.items():
        op = _custom.get(name)
        if op is not None and op.fingerprint != planned:
            _refused[name] = (
                f"operation {name!r}: its file was changed after it was imported, and what it makes would be "
                "stored under keys of the code before; end the service by `viewcache stop`, or open the cache in a new "
                "process. If no file was changed it holds other weights or values in each process: seed or load them "
                "where its module makes them, and hold nothing of the time or of the process"
            )


def check_importable(wanted: Iterable[str]) -> None:
    """Refuse operations that worker processes cannot have: what they apply was registered in ``__main__`` only.

    Raises:
        BadInput: one is; with the cures.
    """
    for name in sorted({*wanted} - _builtins().keys()):
        op = get(name)
        if type(op).__module__ == "__main__" and isinstance(op, FrameOp | ClipOp) and not op.out_of_process:
            raise BadInput(
                f"op {name!r} was registered in this process only (a notebook's cell, or the script itself), and "
                "worker processes import what they apply: put it into a module and name that in cache.op_modules, or "
                "set cache.worker_kind: threads"
            )


def fingerprints(wanted: Iterable[str]) -> dict[str, str]:
    """Fingerprints by name of those of the operations that are not built in."""
    return {name: get(name).fingerprint for name in sorted({*wanted} - _builtins().keys())}


def names() -> tuple[str, ...]:
    """Return the names of all operations: built in, registered and installed, sorted."""
    return tuple(sorted({*builtin_names(), *_custom, *(entry.name for entry in _installed())}))


def _installed() -> "Iterable[EntryPoint]":
    """Operations that other distributions bring."""
    from importlib.metadata import entry_points  # not above: it loads the parser of mail, in each process that works

    return entry_points(group=ENTRY_POINTS)


def builtin_names() -> tuple[str, ...]:
    """Return the names of the built-in operations that a configuration may name, sorted."""
    return tuple(sorted(name for name, op in _builtins().items() if not op.hidden))


def register(op: Op | type[Op]) -> Op:
    """Add a custom operation to this process.

    One that comes from where the operation of that name came from, as when a cell of a notebook is run again, takes its
    place: for caches that are opened from then on, and not for those that are open.

    Args:
        op: an instance, or a class that takes no arguments.

    Returns:
        The instance.

    Raises:
        BadInput: not an operation, a wrong name, or the name is taken by other code.
    """
    return _add(_checked(op))


def _checked(op: object) -> Op:
    made = op() if isinstance(op, type) and issubclass(op, Op) else op
    if not isinstance(made, FrameOp | ClipOp | TimeOp | ReadOp):
        kind = type(made).__name__
        raise BadInput(f"op {op!r}: got {kind}; allowed: a subclass of FrameOp, NativeOp, ClipOp, TimeOp or ReadOp")
    name = getattr(made, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadInput(f"op {type(made).__name__}: its name is {name!r}; allowed: [a-z][a-z0-9_]*, up to 64 characters")
    return made


def _add(made: Op) -> Op:
    name, fingerprint = made.name, made.fingerprint  # raises now, not in a plan, if the source cannot be read
    with _lock:
        if name in _builtins():
            raise _taken(made)
        there = _waiting.get(name) or _custom.get(name)
        if there is None:
            _custom[name] = made
            return made
        if there.fingerprint == fingerprint and (type(there) is type(made) or not _is_again(there, made)):
            return there
        if not _is_again(there, made):
            raise _taken(made)
        if _is_held(name):
            _waiting[name] = made
        else:
            _custom[name] = made
        return made


def _is_again(there: Op, made: Op) -> bool:
    """Whether one operation is another state of the other's code; what op workers serve is known to them only."""
    return _origin(there) == _origin(made) and not there.out_of_process and not made.out_of_process


def _origin(op: Op) -> tuple[str, str]:
    """Module and qualified name of its class; of a function's or another library's transform, of that."""
    what: object = type(op)
    if isinstance(op, Transform):
        what = op.function if isinstance(op.function, FunctionType) else type(op.function)
    return type(op).__module__, what.__qualname__  # type: ignore[attr-defined] # functions and classes have one


def _taken(op: Op) -> BadInput:
    return BadInput(f"op {op.name!r} from {type(op).__module__}: the name is taken; give it another name")


@contextmanager
def own_registrations() -> Iterator[None]:
    """Know no custom operation when the block begins, and forget when it ends what was registered in it: for tests."""
    with _lock:
        before = dict(_custom)
        _custom.clear()
    try:
        yield
    finally:
        with _lock:
            _custom.clear()
            _waiting.clear()
            _custom.update(before)
            _refused.clear()


def load_modules(
    modules: Iterable[str], *, key: str = "op_modules", hint: str = "is it installed here, or its folder on PYTHONPATH?"
) -> tuple[str, ...]:
    """Import the modules of ``cache.op_modules`` and register their operations; each worker process does this too.

    Args:
        modules: dotted names; each module lists its operations (classes or instances) in ``OPS``.
        key: of the configuration that names them, for messages.
        hint: what to look at where one cannot be imported.

    Returns:
        The names of the registered operations.

    Raises:
        BadInput: a module cannot be imported or has no ``OPS``.
    """
    found: list[str] = []
    for module in modules:
        if not _MODULE.fullmatch(module):
            raise BadInput(f"{key}: got {module!r}; allowed: the dotted name of an importable module")
        try:
            ops = importlib.import_module(module).OPS
        except ImportError as error:
            raise BadInput(f"{key}: {module} cannot be imported: {error}; {hint}") from error
        except AttributeError as error:
            raise BadInput(f"{key}: {module} has no list OPS of operations: {error}") from error
        made = [_checked(op) for op in ops]
        one_each = {op.name: op for op in reversed(made)}
        for op in made:
            if op.fingerprint != one_each[op.name].fingerprint:  # it would take the place of the one before it
                raise _taken(op)
        found += [_add(op).name for op in made]
    return tuple(found)


def _load_entry(name: str, where: str, loaded: object) -> Op:
    op = register(loaded)  # type: ignore[arg-type] # register checks what an entry point really gave
    if op.name != name:
        raise BadInput(f"entry point {name!r} ({where}) is an op named {op.name!r}; the two names must be equal")
    return op


def _builtins() -> dict[str, Op]:
    """All built-in operations by name, imported on first use."""
    if not _builtin:
        modules = (importlib.import_module(f"viewcache.materializer.ops.{family}") for family in _FAMILIES)
        _builtin.update({op.name: op for module in modules for op in module.OPS})
    return _builtin
