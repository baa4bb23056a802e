"""Who is at the other end of a connection, and when that process ends."""

import os
import socket
import struct

__all__ = ["peer", "process_file"]

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_PEER_PIDFD = 77  # SO_PEERPIDFD, since Linux 6.5


def peer(line: socket.socket) -> tuple[int, int]:
    """Process and user at the other end; a process of another PID namespace is 0."""
    pid, uid, _ = _CREDENTIALS.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid


def process_file(line: socket.socket, pid: int) -> int | None:
    """A descriptor that can be read once the process at the other end has ended; None if the system gives none.

    A forked child keeps a connection open when its parent is gone, so the connection's end does not tell.
    """
    try:
        return line.getsockopt(socket.SOL_SOCKET, _PEER_PIDFD)
    except OSError:
        try:
            return os.pidfd_open(pid) if pid else None
        except OSError:
            return None
