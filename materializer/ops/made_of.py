"""What a transform is made of, read without running any of its code: what it closes over, holds, wraps and consists of.

One walk gives a digest of values and names, and the modules that these are from. It is the same in each process with
the same code: nothing in it is an address, and what has no order is sorted. The trade-off: of an object of a library
its class counts, and not what it holds, unless it is a container, an array or a torch module.
"""

import functools
import hashlib
import operator
import re
import sys
from collections import ChainMap, OrderedDict, UserDict, UserList, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PosixPath, PurePosixPath, PureWindowsPath
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any
from uuid import UUID

import numpy as np

from viewcache.materializer.ops.loaded import codes_of_class, is_generated

__all__ = ["TAKEN", "MadeOf", "UnreadableError", "attributes", "made_of", "place_of"]

TAKEN = "_viewcache_fingerprint"
"""Attribute in which an operation keeps its fingerprint once it is taken: no value of its own."""

_MOST = 200_000
"""Objects, beside plain values and containers of such: a second or two."""

_PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None), type(...), type(NotImplemented)})
_TELLING = frozenset({range, Decimal, Fraction, date, timedelta, UUID, PosixPath, PurePosixPath, PureWindowsPath})
"""Whose text is their value."""
_REDUCED = frozenset({datetime, time, operator.itemgetter, operator.attrgetter, operator.methodcaller})
"""What Python makes another one of by its parts, which may be one's own."""
_BASES: tuple[type, ...] = (int, float, complex, str, bytes)
_READ = (SimpleNamespace, UserDict, UserList, ChainMap)
"""Python's own containers that keep what they hold in attributes."""
_HOOKS = re.compile(r"_(forward|backward|state_dict|load_state_dict)_.*hooks")
"""Names under which a torch module holds its hooks."""

_Parts = Iterator[tuple[str, Any]]


class UnreadableError(Exception):
    """Something of it cannot be read by value; the text is the beginning of a message."""


@dataclass(frozen=True, slots=True)
class MadeOf:
    """What was found."""

    origins: frozenset[str]
    """Modules of functions, of classes and of their bases."""
    codes: Mapping[str, frozenset[CodeType]]
    """Of functions, by their modules."""
    digest: str | None
    """Of values and names; None where there is nothing but the function, or the object and its class."""


def made_of(what: object, is_own: Callable[[str], bool]) -> MadeOf:
    """Look through something.

    Args:
        what: a transform, whose own defaults are left out since they are parameters, or a dict of what something holds.
        is_own: whether the source of a module may change while no version of a library does.

    Raises:
        UnreadableError: some of it cannot be read, or it is too much.
    """
    walk = _Walk(what, is_own)
    try:
        digest = walk.digest(what)
    except RecursionError:
        raise UnreadableError("what it holds is nested too deeply to be read") from None
    codes = {module: frozenset(found) for module, found in walk.codes.items()}
    is_bare = callable(what) and not walk.has_parts
    return MadeOf(frozenset(walk.origins), codes, None if is_bare else digest.hex())


def attributes(each: object) -> dict[str, object]:
    """What an object holds in its ``__dict__`` and slots, sorted, without asking code of its class."""
    try:
        held: Any = object.__getattribute__(each, "__dict__")
    except AttributeError:
        held = {}
    found = {str(name): value for name, value in dict.items(held)} if isinstance(held, dict) else {}
    for kind in type(each).__mro__:
        names = _namespace(kind)
        for name, slot in names.items() if "__slots__" in names else ():
            if type(slot) is MemberDescriptorType:
                try:
                    found.setdefault(name, slot.__get__(each))
                except AttributeError:  # it was not set
                    continue
    return _of_its_own(found)


def _of_its_own(held: Mapping[str, object]) -> dict[str, object]:
    """Attributes without notes of this process: ``torch.compile`` writes down an address."""
    return {name: held[name] for name in sorted(held) if name != TAKEN and not name.startswith("_torchdynamo_")}


class _Walk:
    """Digests of objects. Each is read once; one that is met again inside itself counts as how far above it is."""

    def __init__(self, root: object, is_own: Callable[[str], bool]) -> None:
        self.origins = set[str]()
        self.codes: dict[str, set[CodeType]] = {}
        self.has_parts = False
        self._root = root
        self._is_own = functools.cache(is_own)
        self._known: dict[int, tuple[object, bytes]] = {}
        """Digests by identity, with what they are of: an identity is free again when its object is."""
        self._path: dict[int, object] = {}
        self._count = 0

    def digest(self, each: Any) -> bytes:
        leaf = _plain(each)
        if leaf is not None:
            return leaf
        if id(each) in self._path:
            return _hashed("above", list(self._path).index(id(each)))
        if id(each) in self._known:
            return self._known[id(each)][1]
        self._count += 1
        if self._count > _MOST:
            raise UnreadableError(f"it holds more than {_MOST:,} objects")
        self._path[id(each)] = each
        made = self._digest(each)
        del self._path[id(each)]
        self._known[id(each)] = each, made
        return made

    def _digest(self, each: Any) -> bytes:
        kind = type(each)
        self._came_from(kind)
        torch = _torch()
        name = _name(kind)
        value: bytes | None = None
        parts: Iterable[tuple[str, Any]] = self._parts(each)
        if kind is FunctionType:
            name = f"{name} {place_of(each)}"
        elif issubclass(kind, type):
            name = f"{name} {_name(each)}"
        elif issubclass(kind, np.ndarray):
            value = _array(each)
        elif torch is not None and issubclass(kind, torch.Tensor):
            value = self._tensor(each)
        elif torch is not None and kind is torch.ScriptObject:  # weights of a quantized module
            raise self._unreadable(f"{name} has no value")
        elif issubclass(kind, set | frozenset):
            value = self._unordered((set if issubclass(kind, set) else frozenset).__iter__(each))
        found = []
        for label, part in parts:
            self.has_parts = self.has_parts or label != "class"
            found += [label.encode("utf-8", "surrogatepass"), self.digest(part)]
        return _hashed(name, *([] if value is None else [value]), *found)

    def _came_from(self, kind: type) -> None:
        self.origins.update(str(base.__module__) for base in kind.__mro__)

    # Its parts --------------------------------------------------------------------------------------------------------

    def _parts(self, each: Any) -> _Parts:
        kind = type(each)
        torch = _torch()
        if kind is FunctionType:
            yield from self._of_function(each)
        elif issubclass(kind, type):
            yield from self._of_class(each)
        elif kind is ModuleType:
            self.origins.add(str(each.__name__))
            yield "module", str(each.__name__)
        elif issubclass(kind, functools.partial):
            yield from (("of", each.func), ("args", each.args), ("keywords", each.keywords))
        elif kind in _UNPACKED:
            yield from ((name, getattr(each, name)) for name in _UNPACKED[kind])
        elif kind in _REDUCED:
            yield "made by", each.__reduce__()[1:]
        elif issubclass(kind, Enum):
            yield "class", kind
        elif torch is not None and issubclass(kind, torch.nn.Module):
            yield from self._of_torch_module(each)
        elif self._is_own(str(kind.__module__)) or kind in _READ:
            yield "class", kind
            yield from ((name, self._held(kind, value)) for name, value in attributes(each).items())
        elif callable(each):
            yield from _of_library_object(each)
        yield from _items(each)

    def _of_function(self, each: FunctionType) -> _Parts:
        module = str(each.__globals__.get("__name__"))
        self.origins.add(module)
        if not is_generated(each):
            self.codes.setdefault(module, set()).add(each.__code__)
        held = vars(each)
        if module == "functools" and "registry" in held:  # singledispatch; it closes over caches, too
            found = ((_name(kind), function) for kind, function in held["registry"].items())
            yield from sorted(found, key=operator.itemgetter(0))
            return
        if module == "functools" and each.__qualname__.startswith("singledispatch."):
            return
        for number, cell in enumerate(each.__closure__ or ()):
            try:
                yield f"closure {number}", cell.cell_contents
            except ValueError:  # it has none yet
                continue
        if each is not self._root:
            for default in each.__defaults__ or ():
                yield "default", default
            for name, default in sorted((each.__kwdefaults__ or {}).items()):
                yield f"default {name}", default
        if self._is_own(module):
            yield from _of_its_own(held).items()
        elif "__wrapped__" in held:
            yield "wrapped", held["__wrapped__"]

    def _of_class(self, each: type) -> _Parts:
        """Methods, for what decorates them, and values; other objects of a class are like those of a module."""
        self._came_from(each)
        for kind in each.__mro__:
            if not self._is_own(str(kind.__module__)):
                continue
            self.codes.setdefault(str(kind.__module__), set()).update(codes_of_class(kind))
            if issubclass(each, Enum):
                continue
            for name, value in sorted(_namespace(kind).items()):
                is_value = not name.startswith("__") and _is_value(value)
                if is_value or ((callable(value) or type(value) in _UNPACKED) and self._is_more_than_source(value)):
                    yield f"{_name(kind)}.{name}", value

    def _is_more_than_source(self, method: Any) -> bool:
        """Whether there is more to it than what the source of its module tells; its code is taken down."""
        inner = method.__func__ if type(method) in (staticmethod, classmethod) else method
        if type(inner) is not FunctionType:
            return True
        if is_generated(inner):
            return False
        self.codes.setdefault(str(inner.__globals__.get("__name__")), set()).add(inner.__code__)
        return bool(inner.__closure__ or vars(inner) or inner.__defaults__ or inner.__kwdefaults__)

    def _of_torch_module(self, each: Any) -> _Parts:
        yield "class", type(each)
        for name, value in attributes(each).items():
            if name in ("_parameters", "_buffers", "_modules"):  # of a scripted module they are no dicts
                yield from ((f"{name} {inner}", part) for inner, part in value.items())  # type: ignore[attr-defined]
            elif _HOOKS.match(name) and isinstance(value, dict):  # by numbers that count all hooks of a process
                yield name, tuple(value.values())
            else:
                yield name, self._held(type(each), value)

    def _held(self, kind: type, value: Any) -> Any:
        """An attribute; a dict without its order if a library may have set it, as Albumentations do from a set."""
        if type(value) is dict and any(self._is_of_library(base) for base in kind.__mro__):
            return self._unordered(value.items())
        return value

    def _is_of_library(self, kind: type) -> bool:
        module = str(kind.__module__)
        known = {"torch", "viewcache", *sys.stdlib_module_names}  # their attributes have an order of their own
        return module.partition(".")[0] not in known and not self._is_own(module)

    # Values -----------------------------------------------------------------------------------------------------------

    def _unordered(self, items: Iterable[Any]) -> bytes:
        """Of a set, say: what one item was found to be must not matter for the next, whichever process it is in."""
        known, digests = self._known, []
        for item in items:
            self.has_parts = True
            digest = _plain(item)
            if digest is None:
                self._known = known.copy()
                digest = self.digest(item)
            digests.append(digest)
        self._known = known
        return _hashed("items", *sorted(digests))

    def _tensor(self, tensor: Any) -> bytes:
        torch: Any = _torch()
        if torch.nn.parameter.is_lazy(tensor):
            raise self._unreadable("they are not made yet")
        try:
            with torch._C.DisableTorchFunctionSubclass():  # of a class of one's own, code of its own
                there = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
                flat = there.reshape(-1).view(torch.uint8).numpy()  # as it lies in memory: no copy of a large network
        except Exception as error:  # of a lazy, quantized or sparse one: many kinds
            raise self._unreadable(str(error)) from error
        self.has_parts = True
        return _hashed("tensor", str(tensor.dtype), str(tuple(there.shape)), flat)

    def _unreadable(self, why: str) -> UnreadableError:
        torch: Any = _torch()
        holders = [type(each).__name__ for each in self._path.values() if issubclass(type(each), torch.nn.Module)]
        what = f"the weights of {holders[-1]}" if holders else "a tensor that it holds"
        return UnreadableError(f"{what} cannot be read ({why})")


_UNPACKED: Mapping[type, tuple[str, ...]] = {
    MethodType: ("__self__", "__func__"),
    BuiltinFunctionType: ("__self__", "__name__"),
    MethodWrapperType: ("__self__", "__name__"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget",),
    functools.cached_property: ("func",),
    functools.partialmethod: ("func", "args", "keywords"),
    functools.singledispatchmethod: ("dispatcher",),
    slice: ("start", "stop", "step"),
    re.Pattern: ("pattern", "flags"),
}
"""Python's own objects, and those of their attributes that say what they are."""


def _of_library_object(each: Any) -> _Parts:
    """What it wraps or has as steps; a few of them say so by code of their own."""
    try:
        wrapped, steps = getattr(each, "__wrapped__", None), getattr(each, "transforms", None)
        name = getattr(each, "__name__", None)
    except Exception:  # of a proxy without an object, say
        return
    if isinstance(name, str):
        yield "name", name
    if callable(wrapped):
        yield "wrapped", wrapped
    if type(steps) in (list, tuple):  # of a pipeline of torchvision or Albumentations
        yield "transforms", steps


def _is_value(each: object) -> bool:
    torch = _torch()
    weights: tuple[type, ...] = () if torch is None else (torch.Tensor, torch.nn.Module)
    return issubclass(type(each), (*_BASES, Enum, tuple, frozenset, np.ndarray, np.generic, *weights)) or (
        type(each) in _PLAIN | _TELLING
    )


def _items(each: Any) -> _Parts:
    """What containers hold, in their order; of subclasses, too, without asking these."""
    kind = type(each)
    if issubclass(kind, list | tuple | deque):
        ordered: Any = next(base for base in (list, tuple, deque) if issubclass(kind, base))
        yield from (("item", item) for item in ordered.__iter__(each))
    elif issubclass(kind, dict) or kind is MappingProxyType:
        items = each.items() if kind in (OrderedDict, MappingProxyType) else dict.items(each)
        for key, value in items:
            yield "key", key
            yield "value", value
    elif issubclass(kind, np.ndarray) and each.dtype.hasobject:
        yield from (("item", item) for item in np.ndarray.view(each, np.ndarray).ravel().tolist())
    elif (masked := sys.modules.get("numpy.ma")) is not None and issubclass(kind, masked.MaskedArray):
        yield "mask", masked.getmask(each)
    elif issubclass(kind, Enum):
        yield "name", object.__getattribute__(each, "_name_")
        yield "value", object.__getattribute__(each, "_value_")
    elif issubclass(kind, _BASES):
        base: Any = next(base for base in _BASES if issubclass(kind, base))
        yield "value", base.__repr__(each)


def _plain(each: Any) -> bytes | None:
    """Of a number, a text or another value of Python, NumPy or torch, and of a list or dict of such."""
    kind = type(each)
    if kind is bytes:
        return _hashed("bytes", each)
    if kind is bytearray or kind is memoryview:
        return _hashed(kind.__name__, bytes(each))
    if kind is int and each.bit_length() > 64:  # Python writes no decimal number of thousands of digits
        return _hashed("int", hex(each))
    if kind in _PLAIN or _is_plain_container(each):
        try:
            return _hashed(kind.__name__, ascii(each))
        except ValueError:  # of a number of thousands of digits in a list
            return None
    if kind in _TELLING or issubclass(kind, np.dtype):
        return _hashed(kind.__name__, repr(each))
    if issubclass(kind, np.generic) and not each.dtype.hasobject:
        return _hashed("scalar", repr(each.dtype), each.tobytes())
    torch = _torch()
    if torch is not None and kind in (torch.dtype, torch.device, torch.layout, torch.memory_format):
        return _hashed(_name(kind), str(each))
    return None


def _is_plain_container(each: Any) -> bool:
    kind = type(each)
    if kind is dict:
        return _PLAIN.issuperset(map(type, each)) and _PLAIN.issuperset(map(type, each.values()))
    return kind in (list, tuple) and _PLAIN.issuperset(map(type, each))


def _array(array: Any) -> bytes:
    plain = np.ndarray.view(array, np.ndarray)
    if plain.dtype.hasobject or not plain.size or not plain.dtype.itemsize:
        return _hashed("array", repr(plain.dtype), str(plain.shape))
    flat = np.ascontiguousarray(plain).reshape(-1).view(np.uint8)  # a copy only of what is not contiguous
    return _hashed("array", repr(plain.dtype), str(plain.shape), flat)


def _torch() -> Any:
    return sys.modules.get("torch")  # who has not imported it has nothing of it


def _name(each: Any) -> str:
    """Of a class or function."""
    return f"{each.__module__}.{each.__qualname__}"


def place_of(function: FunctionType) -> str:
    """Where a function is written, and of several on a line which one; what decorates it may have another's name."""
    module, code = function.__globals__.get("__name__"), function.__code__
    begun = next(((line, column) for line, _, column, _ in code.co_positions() if column), (code.co_firstlineno, 0))
    return f"{module}.{code.co_qualname} {begun[0]}:{begun[1]}"


def _namespace(kind: type) -> Mapping[str, Any]:
    """Of a class, without asking its metaclass."""
    found: Mapping[str, Any] = type.__dict__["__dict__"].__get__(kind)
    return found


def _hashed(*parts: Any) -> bytes:
    """Of texts, numbers and bytes: other parts give another one, also where all of them together read the same."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = str(part).encode("utf-8", "surrogatepass") if isinstance(part, str | int) else part
        digest.update(f"{len(data)} ".encode())
        digest.update(data)
    return digest.digest()
