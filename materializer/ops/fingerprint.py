"""What the bytes of a transform depend on, as a fingerprint: source of modules, versions of libraries, and weights.

It sees what a transform is made of: what it wraps, closes over or has as steps, and the classes of all that. The
trade-off: what its modules import, and what their globals hold, it does not see.
"""

import hashlib
import inspect
import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

from viewcache.errors import BadInput

__all__ = ["fingerprint_of"]

_INSTALLED = {"site-packages", "dist-packages"}
"""Names of folders whose files change with the version of their distribution only."""


def fingerprint_of(name: str, function: Any, home: str, caller: str, drawing: Iterable[str]) -> str:
    """A hash of the modules that a transform is made of, of versions of libraries, and of weights.

    Args:
        name: of the operation.
        function: the transform.
        home: the module whose source is hashed as a whole; of a notebook, which has no file, only the function's.
        caller: the module that made an operation of it.
        drawing: distributions whose generators it may draw from.

    Raises:
        BadInput: the source or the weights cannot be read.
    """
    made_of = _made_of(function)
    module, plain = sys.modules.get(home), inspect.isfunction(function)
    written = getattr(inspect.unwrap(function), "__code__", None) if plain else None
    file = getattr(module, "__file__", None)
    if file is not None and (written is None or os.path.abspath(written.co_filename) == os.path.abspath(file)):
        texts = [_source(name, module)]
    else:
        codes = [each.__code__ for each in made_of if _is_function_of(home, each) and each.__code__ is not written]
        texts = [_source(name, function), *(_source(name, code) for code in codes)]
    origins = {kind.__module__ for each in made_of for kind in type(each).__mro__}
    origins |= {str(each.__globals__.get("__name__")) for each in made_of if isinstance(each, FunctionType)} - {home}
    if _is_made_by_another(function) and getattr(sys.modules.get(caller), "__file__", None) is not None:
        origins.add(caller)  # it says what the function was made with
    libraries, own = _told_apart(origins)
    texts += [_source(name, sys.modules.get(each)) for each in sorted(own - {home})]
    versions = [f"{each} {_version(each)}" for each in sorted(libraries | {*drawing})]
    parts = [name, *texts, *versions, *_weights(name, made_of)]
    return "source-" + hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


# What it is made of ---------------------------------------------------------------------------------------------------


def _made_of(function: object) -> list[Any]:
    """A transform, and all that it wraps, closes over or has as steps, each once, in an order that is always the same.

    A class is no part: what is made of it in a call follows from the source.
    """
    found: dict[int, object] = {}
    waiting = [function]
    while waiting:
        each = waiting.pop()
        if id(each) not in found:
            found[id(each)] = each
            waiting += [part for part in _parts(each) if callable(part) and not isinstance(part, type)]
    return list(found.values())


def _parts(each: Any) -> Iterator[object]:
    yield getattr(each, "__wrapped__", None)
    if isinstance(each, FunctionType):
        for cell in each.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # it has none yet
                continue
    elif isinstance(each, MethodType):
        yield from (each.__self__, each.__func__)
    elif isinstance(each, partial):
        yield from (each.func, *each.args, *each.keywords.values())
    elif _is_torch_module(each):
        yield from each.modules()
    steps = getattr(each, "transforms", None)  # of a pipeline of torchvision or Albumentations
    if isinstance(steps, list | tuple):
        yield from steps


def _is_torch_module(each: object) -> bool:
    torch = sys.modules.get("torch")  # who has not imported it has no module of it
    return torch is not None and isinstance(each, torch.nn.Module)


def _is_function_of(module: str, each: object) -> bool:
    return isinstance(each, FunctionType) and each.__globals__.get("__name__") == module


def _is_made_by_another(function: object) -> bool:
    return isinstance(function, FunctionType) and (function.__closure__ is not None or hasattr(function, "__wrapped__"))


# Where that is from ---------------------------------------------------------------------------------------------------


_distributions = cache(packages_distributions)
"""Which distributions each package is of: to ask takes a fifth of a second, and workers ask when they start, too."""


def _told_apart(modules: Iterable[str]) -> tuple[set[str], set[str]]:
    """Distributions that modules are of, and those modules whose source may change while no version does."""
    libraries, own = set[str](), set[str]()
    tops = {module: module.partition(".")[0] for module in modules}
    theirs = {module: top for module, top in tops.items() if top not in {"viewcache", *sys.stdlib_module_names}}
    for module, top in theirs.items():
        library = min(_distributions().get(top, [""]))
        if library:
            libraries.add(library)
        if not library or _is_edited_in_place(module):
            own.add(module)
    return libraries, own


def _is_edited_in_place(module: str) -> bool:
    """Whether a module of a distribution is read from a folder of one's own, as by ``pip install -e``."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and file.endswith(".py") and _INSTALLED.isdisjoint(Path(file).parts)


def _source(name: str, what: Any) -> str:
    try:
        return inspect.getsource(what)
    except (OSError, TypeError):
        raise BadInput(
            f"transform {name!r}: its source cannot be read; pass version='1', and another one with every change"
        ) from None


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


# Weights --------------------------------------------------------------------------------------------------------------


def _weights(name: str, made_of: Iterable[Any]) -> Iterator[str]:
    """A hash for each torch module that has parameters or buffers; those of its modules are its own."""
    seen = set[int]()
    for each in made_of:
        if id(each) in seen or not _is_torch_module(each):
            continue
        seen.update(id(module) for module in each.modules())
        try:
            digest = _digest({**each.state_dict(), **dict(each.named_buffers())})  # some buffers are in no state
        except Exception as error:  # of a lazy, quantized or sparse module: many kinds
            raise BadInput(
                f"transform {name!r}: the weights of {type(each).__name__} cannot be read ({error}); pass version='1', "
                "and another one with every change"
            ) from error
        if digest is not None:
            yield f"weights {digest}"


def _digest(state: dict[str, Any]) -> str | None:
    import torch

    tensors = {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}
    digest = hashlib.blake2b(digest_size=16)
    for key, tensor in sorted(tensors.items()):
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
        flat: Any = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        digest.update(flat)  # as it lies in memory: no copy of a large network
    return digest.hexdigest() if tensors else None
