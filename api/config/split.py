"""Reads ``dataset.split`` and ``part``: how a dataset is parted, and which part a task has."""

from typing import NoReturn

from viewcache.api.config.entries import Entries
from viewcache.api.config.keys import SECTIONS
from viewcache.api.config.yaml_subset import error_at
from viewcache.errors import ConfigCode
from viewcache.materializer.spec import FOLDERS, SplitSpec

__all__ = ["read_split"]


def read_split(entries: Entries) -> tuple[SplitSpec | None, str | None]:
    """The split of a task's dataset and the part that the task has.

    Raises:
        ConfigError: they do not go together, or a part would be empty.
        Refused: what is wrong was reported.
    """
    part: str | None = entries.value("part")
    if not entries.has("split"):
        if part is not None:
            message = f"{entries.name_of('part')} is a part of a split: say by split how the dataset is parted"
            raise error_at(entries.place("part"), ConfigCode.MISPLACED_KEY, message)
        return None, None
    section = SECTIONS["split"]
    split = Entries(entries.child("split"), section, entries.name_of("split"), entries.problems)
    spec = SplitSpec(**split.values(*(key.name for key in section.keys)))

    def refuse(key: str, code: ConfigCode, why: str) -> NoReturn:
        raise error_at(split.place(key), code, f"{split.label}: {why}")

    shares = {side: share for side in ("val", "test") if (share := getattr(spec, side)) is not None}
    if spec.column is not None:
        for key in ("val", "test", "by", "seed"):
            if split.has(key):
                refuse(key, ConfigCode.GIVEN_TWICE, f"column names the parts already: leave out {key}, or column")
    elif not shares:
        why = "it needs the share of a part, such as val: 0.1, or the column that names the parts"
        refuse("val", ConfigCode.MISSING_KEY, why)
    if sum(shares.values()) >= 1:
        refuse(
            "test",
            ConfigCode.OUT_OF_RANGE,
            f"val and test add up to {sum(shares.values()):g}: nothing is left for train",
        )
    if (spec.by or spec.column) and entries.value("labels") in (None, FOLDERS):
        key = "by" if spec.by else "column"
        refuse(key, ConfigCode.MISPLACED_KEY, f"{key} is a column of a label table: name one by labels")
    if part is None:
        message = f"{entries.label} needs the key part: which part of its split it has"
        raise error_at(entries.place("split"), ConfigCode.MISSING_KEY, message)
    if spec.column is None and part not in spec.parts:
        message = f"{entries.name_of('part')} must be one of {', '.join(spec.parts)}, got {part!r}"
        raise error_at(entries.place("part"), ConfigCode.UNKNOWN_CHOICE, message)
    return spec, part
