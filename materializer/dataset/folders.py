"""The folders below one: what cannot be listed is an error, since files that are not seen count as removed."""

import errno
import glob
import logging
import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator

from viewcache.errors import SourceUnreachable
from viewcache.materializer.choices import Media
from viewcache.materializer.dataset.links import Links
from viewcache.materializer.dataset.listed import Found
from viewcache.materializer.dataset.names import SUFFIXES
from viewcache.materializer.media.source import shown
from viewcache.materializer.media.stamp import Stamp

__all__ = [
    "check_folders",
    "is_file",
    "link_above",
    "refuse_unreachable",
    "refused_folder",
    "relative_to",
    "walk",
]

_log = logging.getLogger("viewcache.dataset")

_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
"""What the system says of what is not there, or of links that lead nowhere."""
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
        for folder, folders, files in os.walk(top, onerror=refuse_unreachable):
            if links.follow:
                real = os.path.realpath(folder)
                if real in searched:
                    folders.clear()
                    continue
                searched.add(real)
            folders[:] = sorted(each for each in folders if not each.startswith("."))
            refused = []
            if links.follow:
                _check_links(folder, files, media)
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


def _check_links(folder: str, files: Iterable[str], media: Media) -> None:
    """See where links lead that are no videos by their names: one to a folder out of reach looks like a file."""
    for each in files:
        path = os.path.join(folder, each)
        if not each.lower().endswith(SUFFIXES[media]) and os.path.islink(path):
            try:
                os.stat(path)
            except OSError as error:
                refuse_unreachable(error)


def check_folders(pattern: str, base: str, links: Links, media: Media) -> None:
    """See that what a glob looks into can be looked into: it passes over what it cannot.

    A folder that it lists must be one that can be listed. Where it goes on by a name, as to ``videos`` of
    ``/data/*/videos/*.mp4``, a folder that keeps this user out counts as one without that name.

    Raises:
        SourceUnreachable: something cannot be looked into.
    """
    parts = pattern.split(os.sep)
    first = next(place for place, part in enumerate(parts) if glob.has_magic(part))
    for end in range(first, len(parts)):
        is_listed = glob.has_magic(parts[end])
        for each in glob.iglob(os.sep.join(parts[:end]) or os.sep, recursive=True):
            if each.lower().endswith(SUFFIXES[media]):  # of these there may be a million
                continue
            try:
                if is_listed:
                    os.scandir(each).close()
                else:
                    os.lstat(os.path.join(each, parts[end]))
            except OSError as error:
                counts = is_listed or not isinstance(error, PermissionError)
                if counts and link_above(os.path.join(os.path.abspath(each), "_"), base, links) is None:
                    refuse_unreachable(error)


def link_above(path: str, base: str, links: Links) -> str | None:
    """The folder above a path that is a link which is not followed; None if there is none."""
    if links.allows(os.path.dirname(path), base):
        return None
    at = base
    for part in relative_to(path, base).split("/"):
        at = os.path.join(at, part)
        if not links.allows(at, base):
            return at
    return path


def is_file(path: str) -> bool:
    """Whether there is a file, or a link, under a path.

    Raises:
        SourceUnreachable: it cannot be told.
    """
    try:
        mode = os.lstat(path).st_mode
    except OSError as error:
        refuse_unreachable(error)
        return False
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def refuse_unreachable(error: OSError) -> None:
    """Refuse what keeps a file or a folder from being seen, but for that it is not there.

    Raises:
        SourceUnreachable: it may be there.
    """
    name = shown(os.fsdecode(error.filename or ""))
    if error.errno not in _NOTHING and os.path.basename(name.rstrip(os.sep)) != _OF_THE_DISK:
        raise SourceUnreachable(
            f"{name}: cannot be looked at ({error.strerror}); nothing is taken for removed: see to the permissions of "
            "its folder and to the disk, or name a dataset without it"
        ) from error


def refused_folder(link: str, base: str, links: Links, media: Media) -> Found:
    """A linked folder, as a file of that name, so that the policy for bad videos and not silence is what people get."""
    return Found(link, relative_to(link, base) + SUFFIXES[media][0], Stamp(0), links.problem(link))


def relative_to(path: str, base: str) -> str:
    """A path as it is seen from a folder, with slashes."""
    prefix = os.path.join(base, "")
    relative = path[len(prefix) :] if path.startswith(prefix) else os.path.relpath(path, base)
    return relative.replace(os.sep, "/")
