"""A picture of a video: its first frame that can be decoded, by a process with limits, since files may be hostile.

The price is the start of a process, half a second; a picture is made when somebody looks at it, and kept.
"""

import json
import os
import subprocess
import sys
import threading
from collections import OrderedDict

from viewcache.api.config.find import Located
from viewcache.api.queries.ask import ask_all, question
from viewcache.errors import BadVideo, Broken, NotFound
from viewcache.materializer.child import import_path

__all__ = ["Pictures"]

WORKER = "viewcache.api.page.first_frame_worker"
LIMIT_S = 20.0
"""How long one picture may take."""
SLOTS = 2
"""Processes at a time."""
KEPT = 128
"""Pictures that are remembered, some kilobytes each; so is why there is none."""


class Pictures:
    """Pictures of the videos of one cache. Thread-safe."""

    def __init__(self, located: Located) -> None:
        """Make none yet."""
        self._located = located
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(SLOTS)
        self._kept: OrderedDict[int, bytes | BadVideo] = OrderedDict()

    def of(self, video_id: int) -> bytes:
        """The picture as JPEG.

        Args:
            video_id: number of the video in the catalog.

        Raises:
            NotFound: the catalog has no such video.
            BadVideo: no frame of it can be decoded.
            Broken: the process took too long, or too much memory.
        """
        with self._lock:
            kept = self._kept.get(video_id)
        if kept is None:
            kept = self._make(video_id)
            with self._lock:
                self._kept[video_id] = kept
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
        if isinstance(kept, BadVideo):
            raise BadVideo(str(kept))
        return kept

    def _make(self, video_id: int) -> bytes | BadVideo:
        (answer,) = ask_all(self._located.catalog, [question("page_video")], parameters={"video_id": video_id})
        if not answer.rows:
            raise NotFound(f"the catalog has no video {video_id}")
        with self._slots:
            row = answer.dicts()[0]
            return _decoded(str(row["uri"]), as_stored=bool(row["as_stored"]))


def _decoded(uri: str, *, as_stored: bool) -> bytes | BadVideo:
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", WORKER],
            input=json.dumps({"uri": uri, "as_stored": as_stored}).encode(),
            capture_output=True,
            timeout=LIMIT_S,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": import_path()},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Broken(f"no frame of it was decoded within {LIMIT_S:.0f} s") from error
    if done.returncode == 0:
        return done.stdout
    if done.returncode == 1:
        return BadVideo(done.stderr.decode(errors="replace").strip()[-500:])
    raise Broken(f"the process that decodes a frame of it ended with status {done.returncode}")
