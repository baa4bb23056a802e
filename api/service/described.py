"""The tables of docs/protocol.md and docs/op-workers.md, from the structs themselves.

``python -m viewcache.api.service.described docs`` writes them.
"""

import ast
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import msgspec

from viewcache.api.service import answers, asks
from viewcache.materializer.op_workers import answers as op_answers
from viewcache.materializer.op_workers import asks as op_asks

__all__ = ["PAGES", "tables"]

_MARK = "<!-- generated: {} -->"

PAGES: dict[str, tuple[tuple[ModuleType, str], ...]] = {
    "protocol.md": ((asks, "## What a client says"), (answers, "## What the service says")),
    "op-workers.md": ((op_asks, "## What an op worker is asked"), (op_answers, "## What it answers")),
}
"""Page → the modules whose structs it lists, each under a title."""


def tables(page: str) -> str:
    """What can be asked and answered, as Markdown: one heading for each struct, one line for each field."""
    parts = []
    for module, title in PAGES[page]:
        parts.append(title)
        parts.extend(_described(module))
    return "\n\n".join(parts).replace("``", "`") + "\n"


def _described(module: ModuleType) -> Iterator[str]:
    meanings = _field_meanings(module)
    for name in re.findall(r"^class (\w+)\(", inspect.getsource(module), re.MULTILINE):
        struct = getattr(module, name)
        info = msgspec.inspect.type_info(struct)
        assert isinstance(info, msgspec.inspect.StructType)
        if struct.__subclasses__():
            continue  # the base of the others
        heading = f"### `{info.tag}`" if info.tag is not None else f"### {name}"
        lines = [heading, "", inspect.cleandoc(struct.__doc__ or "")]
        own = [each.name for each in info.fields if each.name in struct.__annotations__]
        if own:
            lines += ["", "| field | type | |", "|---|---|---|"]
            kinds = typing.get_type_hints(struct)
            lines += [f"| `{each}` | {_kind(kinds[each])} | {meanings.get((name, each), '')} |" for each in own]
        yield "\n".join(lines)


def _kind(kind: object) -> str:
    text = inspect.formatannotation(kind).replace("viewcache.api.service.", "").replace("|", "or")
    text = text.replace("viewcache.materializer.op_workers.", "").replace("typing.Any", "any")
    return text.replace("asks.", "").replace("answers.", "")


def _field_meanings(module: ModuleType) -> dict[tuple[str, str], str]:
    """(struct, field) → the text below the field."""
    found: dict[tuple[str, str], str] = {}
    for struct in ast.parse(inspect.getsource(module)).body:
        if isinstance(struct, ast.ClassDef):
            for field, text in zip(struct.body, struct.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    value = text.value if isinstance(text, ast.Expr) else None
                    if isinstance(value, ast.Constant) and isinstance(value.value, str):
                        found[struct.name, field.target.id] = " ".join(value.value.split())
    return found


def _write(folder: Path) -> None:
    begin, end = _MARK.format("begin"), _MARK.format("end")
    for name in PAGES:
        page = folder / name
        text = page.read_text(encoding="utf-8")
        before, after = text.split(begin)[0], text.split(end)[1]
        page.write_text(f"{before}{begin}\n{tables(name)}{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
