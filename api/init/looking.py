"""The videos or images of a folder in numbers: all are listed, the headers of some are read, by limited processes."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from viewcache.errors import BadInput, BadVideo, NotFound
from viewcache.materializer.choices import Media, ProbeMode
from viewcache.materializer.dataset.discover import discover
from viewcache.materializer.dataset.listed import Found, Listed
from viewcache.materializer.dataset.scan import scan
from viewcache.materializer.media.facts import VideoFacts
from viewcache.materializer.spec import DatasetSpec

__all__ = ["Looked", "look"]

MOST_FILES = 128
"""Headers that are read; of more files they are evenly chosen from the sorted list."""
MOST_S = 30.0
"""Until no further header is waited for: files other than MP4 are read whole."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What lies in a folder."""

    folder: Path
    paths: tuple[str, ...]
    """Of all files, below the folder, sorted."""
    facts: tuple[VideoFacts, ...]
    """Of those that were looked into and can be decoded."""
    bad: tuple[str, ...]
    """Why the others of them cannot."""
    media: Media = Media.VIDEO

    @property
    def looked_at(self) -> int:
        """How many were looked into."""
        return len(self.facts) + len(self.bad)

    @property
    def is_whole(self) -> bool:
        """Whether all were."""
        return self.looked_at == len(self.paths)


def look(folder: str, progress: Callable[[int, int, str], None]) -> Looked:
    """Look into a folder.

    Args:
        folder: a local one, searched with its subfolders.
        progress: called with (done, in all, name).

    Raises:
        NotFound: there is no such folder, or neither a video nor an image in it.
        BadInput: it is a URL, a file, or cannot be read.
        BadVideo: none of the files that were looked into can be decoded.
    """
    _check(folder)
    files, media = _listed(os.path.abspath(folder))
    chosen = _spread(files, MOST_FILES)
    bad = [f"{file.path} {file.problem}" for file in chosen if file.problem]
    facts: list[VideoFacts] = []
    good = [file for file in chosen if not file.problem]
    until = time.monotonic() + MOST_S
    with closing(scan(good, DatasetSpec(folder).max_pixels, probe=ProbeMode.LAZY)) as scanned:
        for done, (file, found) in enumerate(scanned, 1):
            if found.facts is not None and not found.error:
                facts.append(found.facts)
            else:
                bad.append(found.error or f"{file.path} cannot be decoded")
            progress(done, len(good), file.path)
            if facts and time.monotonic() > until:
                break
    if not facts:
        raise BadVideo(f"{folder}: none of the {len(bad)} {media}s that were looked into can be decoded; {bad[0]}")
    return Looked(Path(os.path.abspath(folder)), tuple(file.path for file in files), tuple(facts), tuple(bad), media)


def _listed(folder: str) -> tuple[Listed, Media]:
    """The videos of a folder; its images if it has none."""
    try:
        return discover(folder), Media.VIDEO
    except NotFound:
        with suppress(NotFound):
            return discover(folder, media=Media.IMAGE), Media.IMAGE
        raise


def _check(folder: str) -> None:
    """Refuse what is no folder of this machine that can be read."""
    if "://" in folder:
        raise BadInput(f"{folder}: init looks into a local folder; for a URL begin with examples/slowfast.yaml")
    try:
        folder.encode()
        os.scandir(folder).close()
    except UnicodeEncodeError as bad:
        raise BadInput(f"{folder!r}: the folder's name is not UTF-8, and YAML is; rename it") from bad
    except FileNotFoundError as missing:
        raise NotFound(f"{folder}: there is no such folder") from missing
    except NotADirectoryError as file:
        raise BadInput(f"{folder} is a file; init takes the folder that videos or images lie in") from file
    except OSError as error:
        raise BadInput(f"{folder} cannot be read: {error.strerror}; see to its permissions") from error


def _spread(files: Sequence[Found], most: int) -> list[Found]:
    """At most so many, evenly chosen, the first and the last among them."""
    if len(files) <= most:
        return list(files)
    return [files[k * (len(files) - 1) // (most - 1)] for k in range(most)]
