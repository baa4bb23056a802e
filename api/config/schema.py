"""Writes what is generated: from the table of keys the JSON Schema and docs/config.md, from the views docs/catalog.md.

``python -m viewcache.api.config.schema`` prints the JSON Schema; with ``docs`` behind it, it writes the files.
The schema lets an editor complete and check a file while it is written; the loader checks more, and has the last word.
"""

import json
import sys
from pathlib import Path
from typing import Any

from viewcache.api.config.keys import KINDS, NAME, SECTIONS, STEP_KEYS, Key, KeySection
from viewcache.catalog.views import ORDER, read_view
from viewcache.materializer.choices import BranchType

__all__ = ["generated", "json_schema", "key_tables", "main", "relation_tables"]


def json_schema() -> dict[str, object]:
    """The JSON Schema (2020-12) of one document of a configuration file."""
    definitions = {name: _section_schema(section) for name, section in SECTIONS.items() if name != "document"}
    definitions["step"]["allOf"] = [_step_rule(branch_type) for branch_type in STEP_KEYS]
    _one_of(definitions["dataset"], ["video_dataset_path"], ["image_dataset_path"])
    by_frames, by_time = ["videos_per_batch", "frames_per_video"], ["videos_per_batch", "clip_seconds", "fps"]
    _one_of(definitions["sampling"], by_frames, by_time, ["images_per_batch"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "viewcache configuration",
        **_section_schema(SECTIONS["document"]),
        "$defs": definitions,
    }


def _one_of(schema: dict[str, Any], *groups: list[str]) -> None:
    """Require the keys of just one of several groups."""
    grouped = {key for keys in groups for key in keys}
    schema["required"] = [key for key in schema["required"] if key not in grouped]
    schema["oneOf"] = [{"required": keys} for keys in groups]


def _section_schema(section: KeySection) -> dict[str, Any]:
    return {
        "description": section.doc,
        "type": "object",
        "additionalProperties": False,
        "required": [key.name for key in section.keys if key.required],
        "properties": {key.name: _key_schema(key) for key in section.keys},
    }


def _key_schema(key: Key) -> dict[str, object]:
    inner: dict[str, object] = {"$ref": f"#/$defs/{key.section}"}
    listed: dict[str, object] = {"type": "array", "items": inner}
    by_kind: dict[str, dict[str, object]] = {
        "section": inner,
        "sections": listed,
        "workers": {"type": "object", "propertyNames": {"pattern": f"^{NAME}$"}, "additionalProperties": inner},
        "tasks": {"oneOf": [inner, listed]},
        "store": {"oneOf": [KINDS["url"].schema, listed | {"minItems": 1}]},
    }
    schema: dict[str, object] = {"description": key.doc, **by_kind.get(key.kind, KINDS[key.kind].schema)}
    if key.choices:
        schema["enum"] = list(key.choices)
    if key.least is not None:
        schema["exclusiveMinimum" if key.inside else "minimum"] = key.least
    if key.most is not None:
        schema["exclusiveMaximum" if key.inside else "maximum"] = key.most
    if key.required:
        return schema
    if isinstance(key.default, str | int | float):
        schema["default"] = key.default
    description = schema.pop("description")
    # An empty value (`labels:`) is the default, as if the key were absent.
    return {"description": description, "anyOf": [schema, {"type": "null"}]}


def _step_rule(branch_type: BranchType) -> dict[str, object]:
    """Which keys a type of step has, and has not."""
    own = STEP_KEYS[branch_type]
    foreign = sorted({key for keys in STEP_KEYS.values() for key in keys} - set(own))
    return {
        "if": {"properties": {"branch_type": {"const": branch_type}}},
        "then": {
            "required": [key for key in own if key != "merge"],
            "properties": dict.fromkeys(foreign, False),
        },
    }


def key_tables() -> str:
    """The part of docs/config.md that lists every key, as Markdown."""
    return "\n".join(_table(section) for section in SECTIONS.values())


def _table(section: KeySection) -> str:
    title = f"### `{section.path}`" if section.path else "### A document"
    lines = [title, "", section.doc, "", "| key | value | default | meaning |", "|---|---|---|---|"]
    lines += [f"| `{key.name}` | {key.expects()} | {_default(key)} | {key.doc} |" for key in section.keys]
    return "\n".join([*lines, ""])


def _default(key: Key) -> str:
    if key.required:
        return "must be given"
    if key.default_words:
        return key.default_words
    if isinstance(key.default, bool):
        return f"`{str(key.default).lower()}`"
    return "" if key.default is None or key.default == () else f"`{key.default}`"


def relation_tables() -> str:
    """The part of docs/catalog.md that lists every public relation with its columns, as Markdown."""
    return "\n".join(_relation(name) for name in sorted(ORDER))


def _relation(name: str) -> str:
    view = read_view(name, "duckdb")
    lines = [f"### `{name}`", "", view.purpose, "", "| column | meaning |", "|---|---|"]
    lines += [f"| `{column}` | {meaning} |" for column, meaning in view.columns]
    return "\n".join([*lines, ""])


_PARTS = {"config.md": ("keys", key_tables), "catalog.md": ("relations", relation_tables)}
_END = "<!-- generated: end -->"


def generated(folder: Path) -> dict[Path, str]:
    """What the generated files of a documentation folder should hold: path to text; pages only if they are there."""
    texts = {folder / "config.schema.json": json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"}
    for name, (part, tables) in _PARTS.items():
        page = folder / name
        if page.exists():
            begin = f"<!-- generated: {part} -->"
            head, _, rest = page.read_text("utf-8").partition(begin)
            _, _, tail = rest.partition(_END)
            texts[page] = f"{head}{begin}\n\n{tables()}\n{_END}{tail}"
    return texts


def main(arguments: list[str]) -> int:
    """Print the JSON Schema, or write the generated files of the folder that is named."""
    if not arguments:
        print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
        return 0
    for path, text in generated(Path(arguments[0])).items():
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
