"""Where code was written: in the file of its module, or elsewhere, such as in a cell of a notebook.

A code object names its "file". IPython and Spyder give each cell a name of its own, under which `linecache` has the
text. The trade-off: a cell counts as a whole, so whatever is edited in it makes other keys.
"""

import linecache
import os
import sys
from collections.abc import Collection, Iterable
from types import CodeType, FrameType
from typing import Any

from viewcache.materializer.ops.loaded import codes_of_class, has_codes
from viewcache.materializer.ops.made_of import UnreadableError

__all__ = ["cell_of", "cells_of", "cells_of_class", "has_text", "is_in_file"]


def is_in_file(code: CodeType, module: Any) -> bool:
    """Whether a code object is from the file of a module; of one that has none, nothing is."""
    file = getattr(module, "__file__", None)
    return file is not None and os.path.abspath(code.co_filename) == os.path.abspath(file)


def cells_of(codes: Iterable[CodeType], whose: str = "its source") -> list[str]:
    """Texts of the cells that code is from, sorted.

    Raises:
        UnreadableError: nothing is known of one, as of a text that was given to ``exec``; the file was edited since.
    """
    of_each: dict[str, set[CodeType]] = {}
    for code in codes:
        of_each.setdefault(code.co_filename, set()).add(code)
    return sorted(_cell(name, found, whose) for name, found in of_each.items())


def cells_of_class(kind: type) -> list[str]:
    """Texts of the cells that the functions of a class are from; none if its module's file has them, or it has none.

    Raises:
        UnreadableError: see `cells_of`.
    """
    module = sys.modules.get(kind.__module__)
    found = [code for code in codes_of_class(kind) if not is_in_file(code, module)]
    return cells_of(found, f"the source of {kind.__qualname__}")


def cell_of(kind: type, frame: FrameType | None) -> list[str]:
    """Text of the cell that is defining a class just now; none if the file of its module does.

    Args:
        kind: the class.
        frame: of what Python calls for a new class; what defines it is above.

    Raises:
        UnreadableError: see `cells_of`.
    """
    while frame is not None and frame.f_globals.get("__name__") != kind.__module__:
        frame = frame.f_back
    if frame is None or is_in_file(frame.f_code, sys.modules.get(kind.__module__)):
        return []
    return cells_of([frame.f_code], f"the source of {kind.__qualname__}")


def has_text(code: CodeType) -> bool:
    """Whether the text that a code object is from can be read."""
    return bool(_text(code.co_filename))


def _cell(name: str, codes: Collection[CodeType], whose: str) -> str:
    text = _text(name)
    if not text:
        raise UnreadableError(f"{whose} cannot be read")
    if os.path.exists(name) and not has_codes(text, name, codes):
        raise UnreadableError(f"{whose} was run as {name}, which has been edited since")
    return text


def _text(name: str) -> str:
    if name == "<string>":  # of all that is given to exec
        return ""
    linecache.checkcache(name)
    return "".join(linecache.getlines(name))
