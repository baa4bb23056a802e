"""Versions of a file that was replaced after its video was drawn: how the old one and the new one are called.

A name stays with the content that it was given to, since it is the address of that video's random numbers and of its
frames. So the old content keeps name and id, and the new one is a new video; nobody can open the old one any more.
"""

import re
from collections.abc import Container

from viewcache.errors import BadUrl
from viewcache.materializer.dataset.names import MAX_NAME, escape, shortened, stem, unescape
from viewcache.materializer.media.source import file_of, shown

__all__ = ["missing_reason", "path_of", "version_name"]

_VERSION = re.compile(r"(?<!\.)\.v\d+$")


def version_name(path: str, taken: Container[str]) -> str:
    """The name of the next version of a file: the usual one of its path with ``.v2``, or the first number that is free.

    Args:
        path: under the dataset.
        taken: names that were given.
    """
    number = 2
    while True:
        name = f"{escape(stem(path))}.v{number}"
        if len(name) > MAX_NAME:
            name = shortened(f"{path}\0{number}")
        if name not in taken:
            return name
        number += 1


def missing_reason(uri: str, dataset: str, *, grows: bool) -> str:
    """Why there is nothing to decode of a video that is gone, by its URI and that of its dataset, which may grow."""
    file = file_of(uri)
    if file != uri:
        return f"{shown(file)} has other content by now, and the content of before is not in {shown(dataset)} any more"
    return f"{shown(file)} is not in {shown(dataset)} any more" + (
        ", or is another file than when it joined" if grows else ""
    )


def path_of(name: str, uri: str) -> str:
    """The path under its dataset of a file that is gone, by its name and its URI.

    Of one whose name was too long to hold its path it is the file's name alone.
    """
    uri = file_of(uri)
    file = uri.rsplit("/", 1)[-1]
    try:
        path = unescape(_VERSION.sub("", name))
    except BadUrl:
        return file
    if f"/{uri}".endswith(f"/{path}"):
        return path
    return path + file[len(stem(file)) :]
