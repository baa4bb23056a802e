"""The pictures of a video that are kept, as a worker is asked for them."""

import numpy as np

from viewcache.catalog.kinds import ObjectKind
from viewcache.materializer.keys import content_key
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.planning.program import Program
from viewcache.materializer.planning.recipe import Recipe

__all__ = ["intermediate_recipe"]


def intermediate_recipe(recipe: Recipe, video: str, way: str, index: VideoIndex) -> Recipe:
    """All frames of a video, as decoded or after the first operation of a clip's recipe."""
    frames = np.arange(index.frames, dtype=np.int32)
    if way == "frames":
        size = index.width * index.height * 3 // 2
        shape: tuple[int, ...] = (len(frames), size)
        program, row = Program(()), np.zeros(0, np.int32)
    else:
        program = Program(recipe.program.instructions[:1])
        row = recipe.row[: program.columns]
        shape = (len(frames), 3, *row.tolist())
    key = content_key(way, bytes.fromhex(video), frames.tobytes())
    return Recipe(key, program, row, frames, shape, 0, 10**7, ObjectKind(way), native=way == "frames")
