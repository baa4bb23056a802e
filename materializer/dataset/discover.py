"""Find a dataset's files: a folder, one file, a glob, a URL, a list file or several of these become a sorted list.

Order is by path, so that it does not depend on the file system; nothing outside the dataset's folders is ever listed,
unless links are followed (`Links`).
"""

import glob
import logging
import os
import posixpath
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, cast

from viewcache.errors import BadInput, DatasetNotFound, MissingExtra, SourceUnreachable, ViewcacheError
from viewcache.materializer.choices import Media
from viewcache.materializer.dataset.folders import (
    check_folders,
    is_file,
    link_above,
    refuse_unreachable,
    refused_folder,
    relative_to,
    walk,
)
from viewcache.materializer.dataset.links import NO_LINKS, Links, to_nothing
from viewcache.materializer.dataset.listed import Found, Listed
from viewcache.materializer.dataset.names import SUFFIXES
from viewcache.materializer.dataset.roots import entries, is_list, labels_of, path_in_list
from viewcache.materializer.media.far_files import AT_ONCE, far_file, files_below, walks, with_sizes
from viewcache.materializer.media.reaching import cure, is_absent, is_passing, reach
from viewcache.materializer.media.source import is_local, local_path, said, shown
from viewcache.materializer.media.stamp import Stamp, stamp_of
from viewcache.materializer.places import places_of
from viewcache.suggest import did_you_mean

__all__ = ["discover"]

_MAGIC = frozenset("*?[")
_log = logging.getLogger("viewcache.dataset")


def discover(uri: str, links: Links = NO_LINKS, media: Media = Media.VIDEO) -> Listed:
    """List the videos of a dataset, or its images.

    Args:
        uri: a folder (searched to any depth), a file, a glob (``**`` allowed), an fsspec URL of one of these, a list
            file, or several places, see `places.joined`.
        links: where symbolic links may lead.
        media: which of these.

    Returns:
        Files with such an extension, sorted by path, each once; hidden files and folders are left out. Links that
        lead elsewhere are listed with their ``problem`` and never followed.

    Raises:
        DatasetNotFound: nothing is there, or no such files are; of several places, at one of them.
        BadInput: the URL holds a user or password, or chains file systems; or a list file is none.
        MissingExtra: the package that reaches such a URL is not installed.
    """
    places = places_of(uri)
    if links.follow:
        links = replace(links, roots=(*links.roots, *(_base(local_path(each)) for each in places if is_local(each))))
    others: Counter[Media | None] = Counter()
    if len(places) > 1:
        listed = Listed.of(_of_places(places, links, media))
    elif is_list(places[0]):
        listed = Listed.of(_of_list(places[0], links, media))
    else:
        _, listed = _videos(places[0], links, media, others)
    if not listed:
        more = "".join(
            f"; {count} {kind}s are there: {kind}_dataset_path takes them"
            if kind
            else f"; {count} other files are there"
            for kind, count in sorted(others.items(), key=lambda each: each[0] is None)
        )
        raise DatasetNotFound(
            f"{shown(uri)} holds no {media}s: looked for {' '.join('*' + each for each in SUFFIXES[media])}{more}"
        )
    return listed.by_path()


def _videos(place: str, links: Links, media: Media, others: Counter[Media | None] | None = None) -> tuple[str, Listed]:
    """One place: the folder that paths are seen from, and its videos; what else is there is counted in ``others``."""
    others = Counter() if others is None else others
    if not is_local(place):
        base, remote = _remote(place, media)
        return base, Listed.of(_of_kind(remote, media, others))
    path = local_path(place)
    base = _base(path)
    if os.path.isdir(path):
        return base, _folder(path, links, media, others)
    return base, Listed.of(_of_kind(_local(place, path, base, links, media), media, others))


def _of_kind(found: Iterable[Found], media: Media, others: Counter[Media | None]) -> Iterator[Found]:
    for each in found:
        if _is_listed(each.path, media):
            yield each
        else:
            others[_media_of(each.path)] += 1


def _media_of(name: str) -> Media | None:
    """What a file is by its name; None if it is neither."""
    return next((media for media in Media if name.lower().endswith(SUFFIXES[media])), None)


def _of_places(places: Iterable[str], links: Links, media: Media) -> Iterator[Found]:
    """Several places: the paths of each begin with its label."""
    parts = []
    for place in places:
        if is_list(place):
            raise BadInput(
                f"{shown(place)}: a list file is a dataset of its own; name it alone, with the other places in it"
            )
        base, found = _videos(place, links, media)
        parts.append((base, found))
    labels = labels_of([base for base, _ in parts])
    seen = _Once()
    for base, videos in parts:
        real, label = os.path.realpath(base) if is_local(base) else base, labels[base]
        for each in videos:
            if seen.first(os.path.realpath(each.uri) if links.follow and is_local(base) else f"{real}/{each.path}"):
                yield each._replace(path=f"{label}/{each.path}", root=label)
    seen.tell(places)


def _of_list(list_file: str, links: Links, media: Media) -> Iterator[Found]:
    """The places that a list file names, a line each; paths are seen from its folder."""
    seen, remote = _Once(), []
    at = list_file if is_local(list_file) else _canonical(*_file_system(list_file))
    for number, place in entries(list_file):
        line = f"line {number} of {shown(list_file)}"
        is_file = place.lower().endswith(SUFFIXES[media]) and not _MAGIC & set(place)
        if is_file and not is_local(place):
            remote.append((place, line))
            continue
        one = is_file and not os.path.isdir(place)
        try:
            found = [_of_line(local_path(place), line, links)] if one else _videos(place, links, media)[1]
        except DatasetNotFound as missing:
            raise DatasetNotFound(f"{line}: {missing}") from missing
        if not found:
            raise BadInput(f"{line} names no {media}: {shown(place)}; looked for {' '.join(SUFFIXES[media])}")
        yield from (_placed(each, at) for each in found if seen.first(each.uri))
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for each in threads.map(lambda asked: _remote_file(*asked), remote):
            if seen.first(each.uri):
                yield _placed(each, at)
    seen.tell([list_file])


def _placed(found: Found, list_file: str) -> Found:
    path = path_in_list(found.uri, list_file)
    return found._replace(path=path, root=posixpath.dirname(path) or ".")


def _of_line(path: str, line: str, links: Links) -> Found:
    try:
        os.lstat(path)
    except (OSError, ValueError) as error:  # a name that cannot be one
        if isinstance(error, OSError):
            refuse_unreachable(error)
        return Found(path, path, Stamp(0), f"is not there, and is named by {line}", absent=True)
    return _file(path, os.path.dirname(path), links)


class _Once:
    """Lets each file pass once, and tells of those that came again."""

    def __init__(self) -> None:
        """Nothing has passed."""
        self._seen: set[str] = set()
        self._again: list[str] = []

    def first(self, file: str) -> bool:
        """Whether a file comes for the first time."""
        if file in self._seen:
            self._again.append(file)
            return False
        self._seen.add(file)
        return True

    def tell(self, places: Iterable[str]) -> None:
        """Log what came again."""
        if self._again:
            _log.warning(
                "%s: %d files are named more than once, such as %s; each counts once",
                ", ".join(map(shown, places)),
                len(self._again),
                shown(self._again[0]),
                extra={"action": "named_twice"},
            )


def _is_listed(path: str, media: Media) -> bool:
    return path.lower().endswith(SUFFIXES[media]) and "/." not in path and path[0] != "."


def _base(path: str) -> str:
    """The folder that the paths of a local place are seen from."""
    if os.path.isdir(path):
        return path
    return _fixed_part(path, os.sep) if _MAGIC & set(path) and not os.path.isfile(path) else os.path.dirname(path)


def _local(uri: str, path: str, base: str, links: Links, media: Media) -> Iterator[Found]:
    """A local file, or those of a glob."""
    if os.path.isfile(path):
        yield _file(path, base, links)
    elif _MAGIC & set(path):
        yield from _glob(path, base, links, media)
    else:
        hint = f"; {base} is there" if os.path.isdir(base) else ""
        raise DatasetNotFound(f"{uri}: no such folder, file or glob (looked for {path}{hint})")


def _glob(path: str, base: str, links: Links, media: Media) -> Iterator[Found]:
    if links.follow:  # each folder is searched once, however many links lead to it
        patterns = relative_to(path, base).split("/")
        for above, names, refused in walk(base, links, media):
            yield from refused
            inside = relative_to(above, base)
            for name in names:
                if _matches((inside + name).split("/"), patterns):
                    yield _file(above + name, base, links, inside + name)
        return
    check_folders(path, base, links, media)
    refused_folders: set[str] = set()
    for each in map(os.path.abspath, glob.iglob(path, recursive=True)):
        link = link_above(each, base, links)
        if link is None:
            if is_file(each):
                yield _file(each, base, links)
        elif link not in refused_folders:
            refused_folders.add(link)
            yield refused_folder(link, base, links, media)


def _matches(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether a path matches a glob, both by component."""
    if not patterns or not parts:
        return not patterns and not parts
    if patterns[0] == "**":
        return len(patterns) == 1 or any(_matches(parts[k:], patterns[1:]) for k in range(len(parts)))
    return fnmatchcase(parts[0], patterns[0]) and _matches(parts[1:], patterns[1:])


def _folder(base: str, links: Links, media: Media, others: Counter[Media | None]) -> Listed:
    """The videos below a folder; of other files it is counted how many there are."""
    apart: list[Found] = []
    """Links, and what cannot be read."""

    def plain() -> Iterator[tuple[str, int, int]]:
        for above, names, refused in walk(base, links, media):
            apart.extend(refused)
            mine = sorted(name for name in names if name.lower().endswith(SUFFIXES[media]))
            if len(mine) < len(names):
                others.update(kind for kind in map(_media_of, names) if kind != media)
            inside = relative_to(above, base)
            for name in mine:
                try:
                    status = os.lstat(above + name)
                except OSError:
                    apart.append(_file(above + name, base, links, inside + name))
                    continue
                if stat.S_ISLNK(status.st_mode):
                    apart.append(_file(above + name, base, links, inside + name))
                    continue
                yield inside + name, status.st_size, status.st_mtime_ns

    found = Listed.below(os.path.join(base, ""), plain())
    return found.joined(Listed.of(apart)) if apart else found


def _file(path: str, base: str, links: Links, relative: str = "") -> Found:
    relative = relative or relative_to(path, base)
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            if not links.allows(path, base):
                return Found(path, relative, Stamp(0), links.problem(path))
            status = os.stat(path)
    except OSError as gone:
        refuse_unreachable(gone)
        return Found(path, relative, Stamp(0), to_nothing(path) or f"cannot be read ({gone.strerror})")
    return Found(path, relative, Stamp(status.st_size, status.st_mtime_ns))


def _fixed_part(path: str, separator: str) -> str:
    """The folder above the first component with a wildcard."""
    parts = path.split(separator)
    first = next(number for number, part in enumerate(parts) if _MAGIC & set(part))
    return separator.join(parts[:first]) or separator


def _remote(uri: str, media: Media) -> tuple[str, list[Found]]:
    """A remote place: the folder that paths are seen from, as a URL, and the files."""
    fs, path = _file_system(uri)
    try:
        one = fs.info(path) if _is_listed(path, media) and not _MAGIC & set(path) else {}
        if one.get("type") == "file":
            base, found = posixpath.dirname(path), {path: one}
        elif _MAGIC & set(path):
            base = _fixed_part(path, "/")
            found = _matching(fs, path, base)
        else:
            base, found = path, files_below(fs, path)
        found = with_sizes(fs, found, lambda name: _is_listed(name, media))
    except Exception as failed:  # as in open_source
        if not is_absent(failed):
            raise _not_listed(uri, failed) from failed
        found, base = {}, ""
    if not found:
        raise DatasetNotFound(f"{shown(uri)}: nothing is there")
    prefix = base.rstrip("/") + "/"
    return _canonical(fs, base), [
        Found(_canonical(fs, name), name.removeprefix(prefix), stamp_of(info))
        for name, info in found.items()
        if info.get("type") == "file"
    ]


def _matching(fs: Any, path: str, base: str) -> dict[str, dict[str, Any]]:
    """The remote files that a glob names."""
    if not walks(fs):
        return cast(dict[str, dict[str, Any]], fs.glob(path, detail=True))
    folder = base.rstrip("/") + "/"
    patterns = path.removeprefix(folder).split("/")
    found = files_below(fs, folder, None if "**" in patterns else len(patterns))
    return {name: info for name, info in found.items() if _matches(name.removeprefix(folder).split("/"), patterns)}


def _remote_file(uri: str, line: str) -> Found:
    """A remote file that a list file names."""
    fs, path = _file_system(uri)
    file = _canonical(fs, path)
    try:
        info = reach(lambda: fs.info(path))
    except Exception as failed:  # as in open_source
        if not is_absent(failed):
            raise _not_listed(uri, failed) from failed
        return Found(file, file, Stamp(0), f"is not there, and is named by {line}", absent=True)
    return Found(file, file, stamp_of(info))


def _canonical(fs: Any, path: str) -> str:
    """The URL of a remote file as all listings give it."""
    return str(fs.unstrip_protocol(path))


def _file_system(uri: str) -> tuple[Any, str]:
    """The file system of a URL, and the path there."""
    if "::" in uri:
        raise BadInput(
            f"{shown(uri)}: chained file systems cannot hold a dataset; give the URL of the one that has the files"
        )
    if "@" in uri.split("://", 1)[1].partition("/")[0]:
        raise BadInput(
            f"{shown(uri)}: no user or password in a dataset's URL; use the file system's own profile or environment"
        )
    refuse_unknown_scheme(uri)
    try:
        fs, path = far_file(uri)
    except ImportError as missing:
        raise MissingExtra.of_url(f"{shown(uri)}: listing it", uri.partition("://")[0], missing) from missing
    except Exception as failed:  # as in open_source
        raise _not_listed(uri, failed) from failed
    return fs, path


def refuse_unknown_scheme(uri: str) -> None:
    """Refuse a URL that no file system of fsspec is for; nobody is asked over a network.

    Raises:
        DatasetNotFound: so it is, with the scheme that was most likely meant.
    """
    from fsspec import available_protocols

    scheme, known = uri.partition("://")[0], available_protocols()
    if scheme not in known:
        meant = did_you_mean(scheme, known) or "fsspec.available_protocols() lists those that it has"
        raise DatasetNotFound(f"{shown(uri)}: fsspec has no file system for {scheme}://; {meant}")


def _not_listed(uri: str, failed: Exception) -> ViewcacheError:
    if is_passing(failed):
        return SourceUnreachable(f"{shown(uri)} cannot be listed just now ({said(failed)})")
    return DatasetNotFound(f"{shown(uri)} cannot be listed ({said(failed)}){cure(failed)}")
