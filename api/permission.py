"""What is said where the operating system keeps this user from a file: which folder or file it is, and what to do.

Stores are their user's own (mode 700), so that somebody else's is met by every command that looks at one.
"""

import os
from errno import ENAMETOOLONG
from pathlib import Path

from viewcache.errors import BadInput, Broken

__all__ = ["refused"]


def refused(error: Exception) -> Broken | BadInput | None:
    """An error of ours in place of the operating system's; None where that names no file, or another error.

    Args:
        error: as the operating system gave it.
    """
    if not isinstance(error, OSError) or not isinstance(error.filename, str | bytes):
        return None
    if error.errno == ENAMETOOLONG:
        return BadInput(f"{os.fsdecode(error.filename)}: {error.strerror}; name a shorter one")
    if not isinstance(error, PermissionError):
        return None
    path = Path(os.fsdecode(error.filename)).absolute()
    place = next((folder for folder in reversed(path.parents) if not os.access(folder, os.X_OK)), path)
    try:
        owner, me = place.lstat().st_uid, os.geteuid()
    except OSError:  # it went meanwhile
        return Broken(f"cannot use {path}: {error.strerror}; check its permissions")
    cure = (
        f"its permissions keep out even the user whose it is: `chmod u+rwX {place}`"
        if owner == me
        else f"it is user {owner}'s, and this process is user {me}'s: run as that user, or use a place of your own"
    )
    return Broken(f"cannot use {path}: {error.strerror} at {place}; {cure}")
