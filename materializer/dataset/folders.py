"""The folders below one: what cannot be listed is an error, since files that are not seen count as removed."""

import glob
import logging
import os
from collections import deque
from collections.abc import Iterator

from viewcache.errors import SourceUnreachable
from viewcache.materializer.choices import Media
from viewcache.materializer.dataset.links import Links
from viewcache.materializer.dataset.listed import Found
from viewcache.materializer.dataset.names import SUFFIXES
from viewcache.materializer.media.stamp import Stamp

__all__ = ["check_folders", "refused_folder", "relative_to", "walk"]

_log = logging.getLogger("viewcache.dataset")

_OF_THE_DISK = "lost+found"
"""Where a file system's check puts what it finds: readable by root alone, and nobody's data."""


def walk(base: str, links: Links, media: Media) -> Iterator[tuple[str, list[str], list[Found]]]:
    """Each folder below one, and itself: its path with a slash, its files' names, and its links that are not followed.

    Linked folders come last, and none is searched twice, so that a circle ends. What is hidden is left out.

    Raises:
        SourceUnreachable: a folder cannot be listed.
    """
    searched: set[str] = set()
    linked = deque([base])
    again = 0
    while linked:
        top = linked.popleft()
        again += os.path.realpath(top) in searched
        for folder, folders, files in os.walk(top, onerror=_unreadable):
            if links.follow:
                real = os.path.realpath(folder)
                if real in searched:
                    folders.clear()
                    continue
                searched.add(real)
            folders[:] = sorted(each for each in folders if not each.startswith("."))
            refused = []
            for each in folders:
                path = os.path.join(folder, each)
                if os.path.islink(path):
                    if not links.allows(path, base):
                        refused.append(refused_folder(path, base, links, media))
                    elif links.follow:
                        linked.append(path)
            yield os.path.join(folder, ""), [each for each in files if not each.startswith(".")], refused
    if again:
        _log.warning(
            "%s: %d links lead to folders that are searched already; nothing is listed twice",
            base,
            again,
            extra={"action": "links_again"},
        )


def check_folders(pattern: str) -> None:
    """See that each folder can be listed that a glob looks into, which itself passes over those that cannot.

    Raises:
        SourceUnreachable: one cannot.
    """
    parts = pattern.split(os.sep)
    for end in range(1, len(parts)):
        if any(map(glob.has_magic, parts[: end + 1])):
            for each in glob.iglob(os.path.join(os.sep.join(parts[:end]) or os.sep, ""), recursive=True):
                try:
                    os.scandir(each).close()
                except OSError as error:
                    _unreadable(error)


def _unreadable(error: OSError) -> None:
    """Pass over a folder that went meanwhile, and over no other.

    Raises:
        SourceUnreachable: it is there, and what lies in it cannot be told.
    """
    name = str(error.filename)
    if not isinstance(error, FileNotFoundError | NotADirectoryError) and os.path.basename(name.rstrip(os.sep)) != (
        _OF_THE_DISK
    ):
        raise SourceUnreachable(
            f"{name}: cannot be listed ({error.strerror}); its files are not taken for removed: see to the folder's "
            "permissions and its disk, or name a dataset without it"
        ) from error


def refused_folder(link: str, base: str, links: Links, media: Media) -> Found:
    """A linked folder, as a file of that name, so that the policy for bad videos and not silence is what people get."""
    return Found(link, relative_to(link, base) + SUFFIXES[media][0], Stamp(0), links.problem(link))


def relative_to(path: str, base: str) -> str:
    """A path as it is seen from a folder, with slashes."""
    prefix = os.path.join(base, "")
    relative = path[len(prefix) :] if path.startswith(prefix) else os.path.relpath(path, base)
    return relative.replace(os.sep, "/")
