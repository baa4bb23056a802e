"""Whether the code that runs is that of a source file: who edits a module that is imported changes the file alone.

The file is compiled and searched for the code of the module's functions. The trade-off: what an edit changes outside of
functions, such as a number that a global has, is not noticed.
"""

import functools
import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from types import CodeType, FunctionType, ModuleType

from viewcache.errors import BadInput

__all__ = ["check_loaded", "codes_of_class", "has_codes", "is_generated"]


def check_loaded(module: ModuleType, text: str, codes: Iterable[CodeType] = ()) -> None:
    """Refuse a module whose functions are not as a text of its file has them, as far as that can be told.

    Args:
        module: of one that a hook of the import system may have changed (as pytest does) nothing is said.
        text: of the file.
        codes: of its functions that are found elsewhere, such as closures.

    Raises:
        BadInput: it was edited after it was imported.
    """
    file = getattr(module, "__file__", None)
    plain = type(getattr(module, "__loader__", None)) is SourceFileLoader
    if file is not None and plain and not _is_loaded(module, file, text, codes):
        raise BadInput(
            f"{file} was edited after it was imported, and what its code of before makes would be stored under keys of "
            f"the code that is there now: import {module.__name__} again (importlib.reload), and then what imports it, "
            "or start the process again"
        )


def codes_of_class(kind: type) -> set[CodeType]:
    """Of the functions that were written in a class, also if ``functools.wraps`` or Python's descriptors hold them."""
    found, waiting = set[CodeType](), list(vars(kind).values())
    while waiting:
        each = waiting.pop()
        if type(each) is FunctionType:
            if each.__code__.co_qualname.startswith(f"{kind.__qualname__}."):
                found.add(each.__code__)
            waiting.append(vars(each).get("__wrapped__"))
        else:
            waiting += [getattr(each, name) for name in _HOLDING.get(type(each), ())]
    return found


_HOLDING: dict[type, tuple[str, ...]] = {
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
    functools.cached_property: ("func",),
    functools.partialmethod: ("func",),
    functools.singledispatchmethod: ("func",),
}


def is_generated(function: FunctionType) -> bool:
    """Whether Python itself wrote it for a dataclass or a named tuple, of what the source of that says."""
    home, code = str(function.__globals__.get("__name__")), function.__code__
    written = code.co_qualname.startswith("__create_fn__.") or home.startswith("namedtuple_")
    return written and code.co_filename == "<string>"


def _is_loaded(module: ModuleType, file: str, text: str, codes: Iterable[CodeType]) -> bool:
    path = os.path.abspath(file)
    running = {*codes, *_codes_of(module)}
    written = [code for code in running if os.path.abspath(code.co_filename) == path]  # others are made by exec
    return has_codes(text, file, written)


def has_codes(text: str, file: str, codes: Iterable[CodeType]) -> bool:
    """Whether a text compiles to all of some code objects; the top level of it is not compared."""
    try:
        there = _codes_in(text, file)
    except (SyntaxError, ValueError):  # what runs was compiled
        return False
    return all(_told(code) in there for code in codes if code.co_name != "<module>")


def _codes_of(module: ModuleType) -> Iterator[CodeType]:
    """Of its functions and of the methods of its classes."""
    held = vars(module)
    classes = [each for each in held.values() if isinstance(each, type) and each.__module__ == module.__name__]
    found = [*held.values(), *(value for each in classes for value in vars(each).values())]
    for each in found:
        inner = each.__func__ if isinstance(each, staticmethod | classmethod) else each
        if type(inner) is FunctionType and inner.__globals__ is held:
            yield inner.__code__


@lru_cache(maxsize=64)
def _codes_in(text: str, file: str) -> frozenset[object]:
    """All that a text compiles to."""
    found, waiting = set[object](), [compile(text, file, "exec", dont_inherit=True)]
    while waiting:
        code = waiting.pop()
        found.add(_told(code))
        waiting += [each for each in code.co_consts if isinstance(each, CodeType)]
    return frozenset(found)


def _told(code: CodeType) -> object:
    """What it does: neither where it is written, nor what an interpreter that ran it has noted in it."""
    arguments = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    return code.co_qualname, code.co_code, code.co_exceptiontable, arguments, names, _constant(code.co_consts)


def _constant(value: object) -> object:
    if isinstance(value, CodeType):
        return _told(value)
    if isinstance(value, tuple):
        return tuple(map(_constant, value))
    if isinstance(value, frozenset):
        return frozenset(map(_constant, value))
    return type(value), repr(value)  # of numbers, too: 0.0 and -0.0 are equal, nan is not equal to itself
