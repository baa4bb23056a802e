"""Reads what a task says of labels: the label table, the names of the classes, the columns that come with a batch."""

from functools import partial
from typing import Any, NoReturn

from viewcache.api.config.entries import Entries
from viewcache.api.config.values import local_path
from viewcache.api.config.yaml_subset import error_at
from viewcache.catalog.files import read_regular
from viewcache.errors import BadInput, ConfigCode
from viewcache.materializer.reading.batch import RESERVED
from viewcache.materializer.spec import FOLDERS, LABEL, ROOT, TABLE_SUFFIXES

__all__ = ["OF_LABELS", "read_labels"]

OF_LABELS = (
    "labels",
    "label_video_column",
    "label_column",
    "label_separator",
    "classes",
    "fields",
    "weight",
    "balance",
    "mix",
    "mix_column",
)
"""What `read_labels` reads of a dataset."""

MOST_CLASSES_BYTES = 16 << 20
"""Of a file of class names: a million names are smaller."""


def read_labels(entries: Entries, folder: str) -> dict[str, Any]:
    """The fields of a `DatasetSpec` that say what is known of its videos beside their pixels.

    Args:
        entries: of the task.
        folder: where relative paths start.

    Raises:
        ConfigError: they are wrong, or do not go together.
        Refused: what is wrong was reported.
    """
    problems = entries.problems
    plain = problems.part(partial(entries.values, "label_video_column", "label_column", "label_separator"))
    labels = problems.part(partial(_labels, entries, folder))
    classes = problems.part(partial(_classes, entries, folder))
    fields = problems.part(partial(_batch_columns, entries))
    weights = problems.part(partial(_weights, entries))
    problems.part(partial(_check_table, entries))
    return {**plain.value, **weights.value, "labels": labels.value, "classes": classes.value, "fields": fields.value}


def _labels(entries: Entries, folder: str) -> str | None:
    labels: str | None = entries.value("labels")
    if labels is None or labels == FOLDERS:
        return labels
    if not labels.lower().endswith(TABLE_SUFFIXES):
        raise error_at(
            entries.place("labels"),
            ConfigCode.WRONG_FORMAT,
            f"{entries.name_of('labels')} must be a .csv, .parquet, .jsonl or .ndjson file, or folders, "
            f"got {entries.child('labels').shown()}",
        )
    return local_path(labels, folder) or labels


def _classes(entries: Entries, folder: str) -> tuple[str, ...]:
    """The names of the classes, out of their file where there is one: a task is defined by the names themselves."""
    given: tuple[str, ...] | str = entries.value("classes")
    if isinstance(given, tuple):
        return given
    path = local_path(given, folder)
    label, place = entries.name_of("classes"), entries.place("classes")
    if path is None:
        raise error_at(
            place, ConfigCode.WRONG_FORMAT, f"{label} is a local file, got {entries.child('classes').shown()}"
        )
    try:
        text = read_regular(path, MOST_CLASSES_BYTES).decode("utf-8-sig")
    except (BadInput, OSError, UnicodeDecodeError) as failed:
        why = f"{path}: no such file" if isinstance(failed, FileNotFoundError) else f"{path} cannot be read ({failed})"
        message = f"{label}: {why}; it has one name in each line, as UTF-8"
        raise error_at(place, ConfigCode.WRONG_FORMAT, message) from failed
    names = [name for line in text.splitlines() if (name := line.strip())]
    if not names:
        raise error_at(place, ConfigCode.OUT_OF_RANGE, f"{label}: {path} has no names")
    if len(set(names)) < len(names):
        twice = next(name for k, name in enumerate(names) if name in names[:k])
        raise error_at(place, ConfigCode.GIVEN_TWICE, f"{label}: {path} has {twice!r} twice")
    return tuple(names)


def _batch_columns(entries: Entries) -> tuple[str, ...]:
    fields: tuple[str, ...] = entries.value("fields")
    for name in fields:
        why = ""
        if name == entries.value("label_column"):
            why = "is the label, which a batch has as 'label'"
        elif name in RESERVED:
            why = f"is what a batch calls something else: it has {', '.join(RESERVED)} of its own"
        if why:
            message = f"{entries.name_of('fields')}: {name!r} {why}; give the column another name"
            raise error_at(entries.place("fields"), ConfigCode.GIVEN_TWICE, message)
    return fields


def _weights(entries: Entries) -> dict[str, Any]:
    """What says that videos come more or less often than once an epoch."""
    read = entries.values("weight", "balance", "mix", "mix_column")
    given = [key for key in ("weight", "balance", "mix") if entries.has(key)]

    def refuse(key: str, code: ConfigCode, why: str) -> NoReturn:
        raise error_at(entries.place(key), code, f"{entries.name_of(key)}: {why}")

    if len(given) > 1:
        first, second = given[:2]
        refuse(second, ConfigCode.GIVEN_TWICE, f"{first} says already how often videos come: leave one of them out")
    if entries.has("mix_column") and not read["mix"]:
        refuse("mix_column", ConfigCode.MISPLACED_KEY, "it is for the shares of mix: name them, or leave it out")
    if not given:
        return read
    key, labels = given[0], entries.value("labels")
    column = read["mix_column"] if key == "mix" else read[key]
    table = labels not in (None, FOLDERS)
    if key == "mix" and column == ROOT:
        if not table and len(entries.value("video_dataset_path")) < 2:
            places = entries.written("video_dataset_path")
            refuse(key, ConfigCode.MISPLACED_KEY, f"{places} is one place, so there is nothing to mix")
    elif not table and (labels is None or column not in (LABEL, entries.value("label_column"))):
        what = f"mix_column, {column!r}," if key == "mix" else "it"
        refuse(key, ConfigCode.MISPLACED_KEY, f"{what} is a column of a label table: name one by labels")
    if not entries.value("shuffle"):
        refuse(key, ConfigCode.MISPLACED_KEY, "videos that come by weight are drawn by lot, so shuffle must be true")
    return read


def _check_table(entries: Entries) -> None:
    """Refuse keys of a table, or of labels, where there are none."""
    labels = entries.value("labels")
    of_table = [key for key in ("fields", "label_separator") if entries.has(key)]
    if of_table and labels in (None, FOLDERS):
        key = of_table[0]
        message = f"{entries.name_of(key)} is for a label table: name one by labels, or leave it out"
        raise error_at(entries.place(key), ConfigCode.MISPLACED_KEY, message)
    if entries.has("classes") and labels is None:
        message = f"{entries.name_of('classes')} is for labels: say by labels where they are, or leave it out"
        raise error_at(entries.place("classes"), ConfigCode.MISPLACED_KEY, message)
