"""The body of the process that decodes one frame of a video: what is asked comes in as JSON, a JPEG goes out.

Asked are ``uri`` and ``as_stored``, see `first_frame`. Run as ``python -m viewcache.api.page.first_frame_worker``.
Exit status 1 with a line of words: no frame can be decoded.
"""

import json
import resource
import sys
from itertools import islice

import numpy as np
from av.video.stream import VideoStream
from numpy.typing import NDArray

from viewcache.api.sheet import jpeg
from viewcache.errors import BadVideo, ViewcacheError
from viewcache.materializer.limits import limit_worker
from viewcache.materializer.media.decode import decode_from
from viewcache.materializer.media.demux import configure, video_stream
from viewcache.materializer.media.picture_head import is_picture, picture_index
from viewcache.materializer.media.pixels import to_rgb
from viewcache.materializer.media.probe import DEFAULT_MAX_PIXELS
from viewcache.materializer.media.source import open_container, open_source, shown

__all__ = ["first_frame", "main"]

MEMORY_BYTES = 1 << 30
CPU_S = 10
PACKETS = 600
"""Most that are tried: those of ten seconds and more."""
HEIGHT, WIDTH = 120, 320
"""Most pixels of the picture."""


def first_frame(uri: str, *, as_stored: bool = False) -> NDArray[np.uint8]:
    """The first frame of a video that can be decoded, small.

    Args:
        uri: a local path or any fsspec URL.
        as_stored: whether an image is taken as it is stored, whatever orientation it tells.

    Returns:
        uint8 (height, width, 3), RGB.

    Raises:
        BadVideo: none can.
    """
    if is_picture(uri):
        with open_source(uri) as source:
            index = picture_index(source, DEFAULT_MAX_PIXELS, as_stored=as_stored)
            ((_, frame),) = decode_from(source, index, np.zeros(1, np.int64))
            picture = to_rgb(frame, *_fitting(*index.shown_size), rotation=index.rotation, mirrored=index.mirrored)
            return np.ascontiguousarray(picture.transpose(1, 2, 0))
    with open_source(uri) as source, open_container(source) as container:
        stream = video_stream(container)
        if not isinstance(stream, VideoStream):
            raise BadVideo(f"{shown(uri)}: has no video stream")
        context = stream.codec_context
        configure(context, context.name, DEFAULT_MAX_PIXELS, 1)
        for packet in islice(container.demux(stream), PACKETS):
            try:
                frames = packet.decode()
            except Exception:
                continue
            for frame in frames:
                height, width = _fitting(frame.height, frame.width)
                return frame.to_ndarray(format="rgb24", width=width, height=height).astype(np.uint8, copy=False)
    raise BadVideo(f"{shown(uri)}: none of its first {PACKETS} packets gives a frame")


def _fitting(height: int, width: int) -> tuple[int, int]:
    """The size of a small picture of one of this size."""
    scale = min(HEIGHT / height, WIDTH / width, 1.0)
    return max(2, round(height * scale)), max(2, round(width * scale))


def main() -> int:
    """Set the limits, then decode; returns the exit status."""
    limit_worker(MEMORY_BYTES, writes=False)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    asked = json.loads(sys.stdin.buffer.read())
    uri = asked["uri"]
    try:
        picture = jpeg(first_frame(uri, as_stored=asked["as_stored"]))
    except ViewcacheError as error:
        sys.stderr.write(str(error))
        return 1
    except Exception as error:  # of the bindings, for hostile files
        sys.stderr.write(f"{shown(uri)}: {type(error).__name__}: {error}")
        return 1
    sys.stdout.buffer.write(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
