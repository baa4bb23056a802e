"""Whether the bytes of a video lie far away: behind a URL, or on a file system that is somebody else's machine."""

import ctypes
import os
from functools import cache

from viewcache.materializer.dataset.dataset import Dataset
from viewcache.materializer.media.source import Stamp, is_local, local_path

__all__ = ["FAR_FILE_SYSTEMS", "far_stamp", "file_system_of", "is_far", "is_far_folder", "libc_statfs"]

FAR_FILE_SYSTEMS = {
    0x6969: "NFS",
    0xFF534D42: "CIFS",
    0xFE534D42: "SMB2",
    0x517B: "SMB",
    0x0BD00BD0: "Lustre",
    0x65735546: "FUSE",
    0x00C36400: "Ceph",
    0x47504653: "GPFS",
    0x19830326: "BeeGFS",
    0xAAD7AAEA: "PanFS",
    0x20030528: "OrangeFS",
    0x5346414F: "AFS",
    0x6B414653: "AFS of the kernel",
    0x01021997: "9P",
    0x73757245: "Coda",
}
"""The ``f_type`` of `statfs(2)` → its name. Below FUSE may lie anything: `remote: false` says that it is near."""

STATFS_BYTES = 256
"""More than ``struct statfs`` has on any architecture; it begins with the type, a long on all but S/390."""


def far_stamp(dataset: Dataset, video_id: int) -> Stamp | None:
    """The version of a video's file if it lies far away, as `dataset.remote` says or as it is found; else None."""
    said, files = dataset.spec.remote, dataset.files
    if said is False:
        return None
    row = files.row_of[video_id]
    if not (said or is_far(files.uris[row])):
        return None
    stamp = files.stamp(row)
    return stamp if stamp.size > 0 else None


def is_far(uri: str) -> bool:
    """Whether a file lies behind a URL, or in a folder of a file system that reads over a network."""
    return not is_local(uri) or is_far_folder(os.path.dirname(local_path(uri)))


@cache
def is_far_folder(folder: str) -> bool:
    """Whether a folder is of such a file system; remembered."""
    return file_system_of(folder) in FAR_FILE_SYSTEMS


def file_system_of(folder: str) -> int:
    """The type of the file system that a folder is of; 0 where that cannot be found out."""
    found = ctypes.create_string_buffer(STATFS_BYTES)
    statfs = libc_statfs()
    if statfs is None or statfs(os.fsencode(folder), found) != 0:
        return 0
    return ctypes.c_long.from_buffer(found).value & 0xFFFFFFFF


@cache
def libc_statfs():  # type: ignore[no-untyped-def]  # a function pointer of ctypes has no type that can be named
    """The call of the C library; None where it has none."""
    return getattr(ctypes.CDLL(None), "statfs", None)
