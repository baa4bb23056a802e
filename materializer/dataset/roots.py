"""The places of a dataset that has several: how they are told apart, and list files.

A place is a folder, one file, a glob, or a URL of one of these. A list file (`.txt`) names one on each line.
"""

import os
import posixpath
from collections.abc import Iterator, Sequence

from viewcache.catalog.files import read_regular
from viewcache.errors import BadInput, DatasetNotFound, MissingExtra
from viewcache.materializer.media.far_files import open_far
from viewcache.materializer.media.reaching import cure, is_absent
from viewcache.materializer.media.source import is_local, local_path, said, shown
from viewcache.materializer.places import places_of

__all__ = ["LIST_SUFFIX", "entries", "is_list", "labels_of", "local_places", "path_in_list"]

LIST_SUFFIX = ".txt"
"""Extension of a list file, in any case."""
MOST_BYTES = 1 << 30
"""Of a list file."""
_COMMENT = "#"


def is_list(place: str) -> bool:
    """Whether a place is a list file, by its name; a folder or a glob may be called so, too."""
    return place.lower().endswith(LIST_SUFFIX) and not (is_local(place) and os.path.isdir(local_path(place)))


def labels_of(bases: Sequence[str]) -> dict[str, str]:
    """A label for each of some folders: as many of its last components as tell it from the others.

    Args:
        bases: absolute paths or URLs of folders.
    """
    parts = {base: shown(base).split("://")[-1].strip("/").split("/") for base in dict.fromkeys(bases)}
    labels: dict[str, str] = {}
    for base, mine in parts.items():
        others = [theirs for other, theirs in parts.items() if other != base]
        length = next((n for n in range(1, len(mine)) if all(mine[-n:] != each[-n:] for each in others)), len(mine))
        labels[base] = "/".join(mine[-length:])
    if len(set(labels.values())) < len(labels):  # a local folder and a bucket with one path
        return {base: shown(base) for base in labels}
    return labels


def path_in_list(uri: str, list_file: str) -> str:
    """The path under its dataset of a file that a list file names: seen from the list's folder; a URL as it is."""
    if is_local(uri) and is_local(list_file):
        return os.path.relpath(local_path(uri), os.path.dirname(local_path(list_file))).replace(os.sep, "/")
    folder = posixpath.dirname(list_file) + "/"
    return uri.removeprefix(folder)


def entries(list_file: str) -> Iterator[tuple[int, str]]:
    """The lines of a list file that name a place, each with its number; relative paths are seen from its folder.

    Empty lines, and those that begin with ``#``, name none.

    Raises:
        DatasetNotFound: there is no such file, or it names nothing.
        BadInput: it is no text, or names another list file.
    """
    text, found = _text(list_file), False
    for number, line in enumerate(text.splitlines(), 1):
        written = line.strip()
        if not written or written.startswith(_COMMENT):
            continue
        place = _absolute(written, list_file)
        if is_list(place):
            raise BadInput(
                f"line {number} of {shown(list_file)}: {shown(written)} is a list file, too; name its places"
            )
        found = True
        yield number, place
    if not found:
        raise DatasetNotFound(f"{shown(list_file)} names no file; it has a path, glob or URL on each line")


def _absolute(written: str, list_file: str) -> str:
    if "://" in written:
        return written
    if is_local(list_file):
        return os.path.normpath(os.path.join(os.path.dirname(local_path(list_file)), written))
    return f"{posixpath.dirname(list_file)}/{posixpath.normpath(written)}"


def _text(list_file: str) -> str:
    try:
        if is_local(list_file):
            data = read_regular(local_path(list_file), MOST_BYTES)
        else:
            with open_far(list_file) as file:
                data = bytes(file.read(MOST_BYTES + 1))
        if len(data) > MOST_BYTES:
            raise BadInput(f"{shown(list_file)} is too large: at most {MOST_BYTES} bytes of a list file are read")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as bad:
        raise BadInput(f"{shown(list_file)} is no list file: it is not UTF-8 text ({bad})") from bad
    except ImportError as missing:
        scheme = list_file.partition("://")[0]
        raise MissingExtra.of_url(f"{shown(list_file)}: reading it", scheme, missing) from missing
    except BadInput:
        raise
    except Exception as failed:  # as in open_source
        if is_absent(failed):
            raise DatasetNotFound(f"{shown(list_file)}: no such list file") from failed
        todo = "" if is_local(list_file) else cure(failed)
        raise DatasetNotFound(f"{shown(list_file)} cannot be read ({said(failed)}){todo}") from failed


def local_places(uri: str) -> list[str]:
    """The places of a dataset that are on this machine, as absolute paths."""
    return [local_path(each) for each in places_of(uri) if is_local(each)]
