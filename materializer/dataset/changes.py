"""What has happened to a dataset's files since its cache was opened last, as values that can cross to another process.

A change is told once, by the opening that finds it, and stays in ``events``; what a file did stays in its row.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["DatasetChange", "FileChange", "FileChanges", "Names", "in_short"]

NAMED = 3
"""Videos, and views, that a line names."""

Names = Mapping[int, str]
"""``video_id`` → name of a video."""


class FileChange(StrEnum):
    """What happened to some files, or to classes. The words stand in the catalog, behind ``videos_``."""

    ADDED = "added"
    REMOVED = "removed"
    REPLACED = "replaced"
    """They have other content."""
    RETURNED = "returned"
    """They were gone, and are there again."""
    RENUMBERED = "renumbered"
    """No files: classes whose numbers are other ones, since classes came or went, or names were given."""
    BAD = "bad"
    """They cannot be decoded, and nothing more is drawn as long as they are there. Each opening tells it anew."""


@dataclass(frozen=True, slots=True)
class FileChanges:
    """What happened to a dataset's files."""

    of: Mapping[FileChange, Names] = field(default_factory=dict)
    """Videos by what happened to them; nothing of what did not happen."""

    def __iter__(self) -> Iterator[tuple[FileChange, Names]]:
        """What happened, with the videos, in the order of `FileChange`."""
        return ((change, self.of[change]) for change in FileChange if self.of.get(change))


@dataclass(frozen=True, slots=True)
class DatasetChange:
    """What one kind of change means for one task."""

    change: FileChange
    count: int
    """Videos; or classes that were renumbered."""
    names: tuple[str, ...]
    """The first of them, by name; of classes ``class 'b' was 0 and is 1``; of bad ones a text: why, and what to do."""
    from_epoch: int | None = None
    """Of videos that were added or are back: the first epoch that may have them; None where the task has no more. Of
    bad ones the first that cannot be drawn."""
    views: int = 0
    """Of videos that were removed or replaced: batches that were read and show one of them."""
    first_views: tuple[tuple[int, int], ...] = ()
    """Epoch and iteration of the first of these batches."""

    def __str__(self) -> str:
        """In words, as ``2 files were removed (a, b), which 3 batches that were read show: 0/1, 0/4, 1/0``."""
        if self.change == FileChange.RENUMBERED:
            have = "1 class has another number" if self.count == 1 else f"{self.count} classes have other numbers"
            return (
                f"{have} than before ({in_short(self.names, self.count)}), also in epochs that are drawn; a model that "
                "was trained with those of before needs the names in their old order, new ones behind them, as "
                "classes, under another tag where this one has classes already"
            )
        if self.change == FileChange.BAD:
            return f"from epoch {self.from_epoch} on nothing can be drawn: {', '.join(self.names)}"
        was, files = ("was", "file") if self.count == 1 else ("were", "files")
        what = "returned" if self.change == FileChange.RETURNED else f"{was} {self.change}"
        text = f"{self.count} {files} {what} ({in_short(self.names, self.count)})"
        if self.change in (FileChange.ADDED, FileChange.RETURNED):
            joins = "for no epoch: all are drawn" if self.from_epoch is None else f"from epoch {self.from_epoch} on"
            return f"{text}, {joins}"
        if not self.views:
            return f"{text}, which no batch that was read shows"
        places = in_short([f"{epoch}/{iteration}" for epoch, iteration in self.first_views], self.views)
        batches = "one batch that was read shows" if self.views == 1 else f"{self.views} batches that were read show"
        return f"{text}, which {batches}: {places}"


def in_short(names: tuple[str, ...] | list[str], count: int) -> str:
    """The first of some names, and how many more there are of ``count``."""
    more = count - min(len(names), NAMED)
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
