"""How a picture is to be turned for display: the orientation in its EXIF data.

FFmpeg's decoders tell the rotation of a picture and lose that it is mirrored, so we read it ourselves.
"""

from typing import Literal

__all__ = ["TURNS", "UPRIGHT", "orientation"]

UPRIGHT = 1
"""The orientation of a picture that is shown as it is stored."""

TURNS = {
    1: (0, False),
    2: (0, True),
    3: (180, False),
    4: (180, True),
    5: (270, True),
    6: (270, False),
    7: (90, True),
    8: (90, False),
}
"""EXIF's orientation → degrees to turn the picture counter-clockwise, and whether to mirror it left to right after."""
_TAG, _SHORT = 0x0112, 3


def orientation(tiff: bytes) -> int:
    """The orientation in EXIF data, which are a TIFF file.

    Args:
        tiff: from the byte order mark on; it may be cut off behind its first directory.

    Returns:
        1 to 8; 1 if none is said, or nothing that is understood: EXIF data are often damaged, pictures seldom.
    """
    order: Literal["little", "big"]
    if tiff.startswith(b"II*\0"):
        order = "little"
    elif tiff.startswith(b"MM\0*"):
        order = "big"
    else:
        return 1

    def number(at: int, size: int) -> int:
        return int.from_bytes(tiff[at : at + size], order)

    at = number(4, 4)
    for entry in range(at + 2, min(at + 2 + 12 * number(at, 2), len(tiff) - 11), 12):
        if number(entry, 2) == _TAG:
            value = number(entry + 8, 2)
            return value if number(entry + 2, 2) == _SHORT and value in TURNS else 1
    return 1
