"""The body of a scanning process: take a file, index it, say what was found, wait for the next.

Run as `python -m viewcache.materializer.dataset.scan_worker FD MEMORY_BYTES` by the scan; it ends when the other side
of FD closes.
"""

import sys
from multiprocessing.connection import Connection

from viewcache.errors import Full, ViewcacheError
from viewcache.materializer.limits import limit_worker
from viewcache.materializer.media.probe import probe

__all__ = ["main"]


def serve(connection: Connection) -> None:
    """Take (URI, max_pixels), answer (index bytes, error, whether it is the video's), until the connection closes."""
    while True:
        try:
            uri, max_pixels = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer = (probe(uri, max_pixels).to_bytes(), "", True)
        except ViewcacheError as bad:
            answer = (b"", str(bad), not isinstance(bad, Full))
        connection.send(answer)


def main() -> None:
    """Set the limits, then serve."""
    fd, memory_bytes = int(sys.argv[1]), int(sys.argv[2])
    limit_worker(memory_bytes, writes=False)
    serve(Connection(fd))


if __name__ == "__main__":
    main()
