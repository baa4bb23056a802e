"""libfuse, which talks to the kernel, by mfusepy, which has it in Python."""

import ctypes
import ctypes.util
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from viewcache.api.mount.requests import MOST
from viewcache.errors import Broken, MissingExtra, UnsupportedPlatform

__all__ = ["Fuse", "load"]

DEVICE = "/dev/fuse"

SYSTEM = "apt-get install fuse3, or your system's package of that name"


@dataclass(frozen=True, slots=True)
class Fuse:
    """What a mount needs of libfuse."""

    serve: Callable[[Any, Path, float], None]
    """Mount operations over a folder and answer until it is unmounted; names are known for so many seconds."""
    reader: Callable[[], int]
    """Process or thread that the calling thread answers; 0 if it lives where it has no number here."""
    interrupted: Callable[[], bool]
    """Whether the reader whom the calling thread answers was interrupted."""


def load() -> Fuse:
    """Find libfuse.

    Raises:
        MissingExtra: mfusepy, libfuse or fusermount3 is not installed.
        UnsupportedPlatform: the kernel, or this container, has no FUSE.
    """
    library = ctypes.util.find_library("fuse3")
    if library is None or shutil.which("fusermount3") is None:
        raise MissingExtra(f"mounting needs libfuse 3 and fusermount3, which are not installed: {SYSTEM}")
    os.environ["FUSE_LIBRARY_PATH"] = library  # else mfusepy may take libfuse 2
    try:
        import mfusepy
    except ImportError as missing:
        raise MissingExtra("mounting needs mfusepy: pip install 'viewcache[mount]'") from missing
    try:
        os.close(os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        raise UnsupportedPlatform(
            f"{DEVICE} cannot be opened ({error.strerror}): load the kernel's module by `modprobe fuse`; a container "
            "needs `--device /dev/fuse --cap-add SYS_ADMIN`"
        ) from error
    interrupted = ctypes.CDLL(library).fuse_interrupted
    options: dict[str, object] = {"max_idle_threads": 16}
    if (mfusepy.fuse_version_major, mfusepy.fuse_version_minor) >= (3, 12):  # before there was no bound
        options["max_threads"] = MOST

    def serve(operations: Any, folder: Path, known_s: float) -> None:
        try:
            mfusepy.FUSE(
                operations,
                str(folder),
                raw_fi=True,
                foreground=True,
                ro=True,
                default_permissions=True,
                fsname="viewcache",
                subtype="viewcache",
                attr_timeout=known_s,
                entry_timeout=known_s,
                **options,
            )
        except RuntimeError as error:
            raise Broken(f"libfuse could not mount {folder}; the line above says why") from error

    return Fuse(serve, lambda: int(mfusepy.fuse_get_context()[2]), lambda: bool(interrupted()))
