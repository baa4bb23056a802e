"""What the bytes of an operation depend on, as a fingerprint: source of modules, versions of libraries, and values.

It sees what a transform is made of: what it wraps, closes over, holds or has as steps, and the classes of all that. The
trade-off: what its modules import, and what their globals hold, it does not see.
"""

import hashlib
import inspect
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

from viewcache.errors import BadInput
from viewcache.materializer.ops.cells import cells_of, has_text, is_in_file
from viewcache.materializer.ops.loaded import check_loaded
from viewcache.materializer.ops.made_of import UnreadableError, attributes, made_of, place_of

__all__ = ["fingerprint_of", "held_by"]

_INSTALLED = {"site-packages", "dist-packages"}
"""Names of folders whose files change with the version of their distribution only."""
_BINDINGS = re.compile(r"pybind11_builtins|nanobind|_cython_\w+")
"""What compiled libraries say that bases of their classes are of: there is no such file."""


def fingerprint_of(
    name: str, function: Any, home: str, caller: FrameType, drawing: Iterable[str], said: Iterable[str] = ()
) -> str:
    """A hash of the modules that a transform is made of, of versions of libraries, and of the values that it holds.

    Args:
        name: of the operation.
        function: the transform.
        home: the module whose source is hashed as a whole; of a notebook, which has no file, the cells that are found.
        caller: what made an operation of it.
        drawing: distributions whose generators it may draw from.
        said: what else was said of it that changes what it gives.

    Raises:
        BadInput: the source, the weights or other values cannot be read.
    """
    try:
        parts = [name, *_parts(function, home, caller, drawing), *said]
    except UnreadableError as error:
        raise BadInput(f"transform {name!r}: {error}; pass version='1', and another one with every change") from error
    return "source-" + hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


def held_by(instance: object) -> list[str]:
    """What an object holds, as parts of a fingerprint: its values, sources, and versions of libraries.

    Raises:
        UnreadableError: it cannot be read.
    """
    held = attributes(instance)
    if not held:
        return []
    made = made_of(held, _is_own)
    libraries, own = _told_apart(made.origins)
    return [*_texts(made.codes, own), *_versions(libraries), f"values {made.digest}"]


def _parts(function: Any, home: str, caller: FrameType, drawing: Iterable[str]) -> Iterator[str]:
    made = made_of(function, _is_own)
    codes = {module: {*found} for module, found in made.codes.items()}
    origins, plain = {*made.origins}, inspect.isfunction(function)
    calling = str(caller.f_globals.get("__name__", "__main__"))
    if _is_made_by_another(function) and _is_read(caller.f_code, calling):
        origins.add(calling)  # it says what the function was made with
        codes.setdefault(calling, set()).add(caller.f_code)
    inner = inspect.unwrap(function) if plain else None
    written = getattr(inner, "__code__", None) if plain else caller.f_code
    if written is not None:
        codes.setdefault(home, set()).add(written)
    # Which one it is of several in a module or cell, and what is around it.
    yield f"{type(function).__module__}.{type(function).__qualname__}"
    yield from (place_of(each) for each in (function, inner) if isinstance(each, FunctionType))
    yield from _sources(home, codes.get(home, ()), "its source")
    libraries, own = _told_apart(origins)
    yield from _texts(codes, own - {home})
    yield from _versions(libraries | {*drawing})
    if made.digest is not None:
        yield f"values {made.digest}"


def _texts(codes: Mapping[str, Collection[CodeType]], own: Iterable[str]) -> Iterator[str]:
    """Sources of modules."""
    for each in sorted(own):
        yield from _sources(each, codes.get(each, ()), f"the source of {each}")


def _sources(name: str, codes: Collection[CodeType], whose: str) -> Iterator[str]:
    """Of a module as a whole; of code in it that is not from its file, the cells, and the file if other code is."""
    module = sys.modules.get(name)
    typed = {code for code in codes if not is_in_file(code, module)}
    yield from cells_of(typed, whose)
    if not typed or len(typed) < len(codes):
        yield _source_of(module, frozenset(codes) - typed, whose)


def _versions(libraries: Iterable[str]) -> list[str]:
    return [f"{each} {_version(each)}" for each in sorted(libraries)]


def _is_made_by_another(function: object) -> bool:
    return isinstance(function, FunctionType) and (function.__closure__ is not None or hasattr(function, "__wrapped__"))


def _is_read(code: CodeType, module: str) -> bool:
    """Whether there is a text of it, or should be: what was typed into Python's own prompt leaves none."""
    return getattr(sys.modules.get(module), "__file__", None) is not None or has_text(code)


# Where that is from ---------------------------------------------------------------------------------------------------


@cache
def _distributions() -> Mapping[str, list[str]]:
    """Which distributions each package is of: to ask takes a fifth of a second; workers that start ask, too."""
    from importlib.metadata import packages_distributions  # not above: it loads the parser of mail

    return packages_distributions()


def _told_apart(modules: Iterable[str]) -> tuple[set[str], set[str]]:
    """Distributions that modules are of, and those modules whose source may change while no version does."""
    libraries, own = set[str](), set[str]()
    tops = {module: module.partition(".")[0] for module in modules}
    others = {"viewcache", *sys.stdlib_module_names}
    theirs = {module: top for module, top in tops.items() if top not in others and not _BINDINGS.fullmatch(top)}
    for module, top in theirs.items():
        library = min(_distributions().get(top, [""]))
        if library:
            libraries.add(library)
        if not library or _is_edited_in_place(module):
            own.add(module)
    return libraries, own


def _is_own(module: str) -> bool:
    return bool(_told_apart({module})[1])


def _is_edited_in_place(module: str) -> bool:
    """Whether a module of a distribution is read from a folder of one's own, as by ``pip install -e``."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and file.endswith(".py") and _INSTALLED.isdisjoint(Path(file).parts)


def _source_of(module: Any, codes: frozenset[CodeType], whose: str) -> str:
    """Of a module as a whole; refused if that is not what runs."""
    text = _source(module, whose)
    check_loaded(module, text, codes)
    return text


def _source(what: Any, whose: str = "its source") -> str:
    try:
        return inspect.getsource(what)
    except (OSError, TypeError):
        raise UnreadableError(f"{whose} cannot be read") from None


def _version(distribution: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
