"""What headers tell of a dataset's files, in columns: see `RepeatedRows`, of which there are three.

Of images almost all facts are the same; sizes repeat by themselves, and when frames are shown is found out later.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewcache.materializer.dataset.numbers import RepeatedRows, distinct_rows, numbers
from viewcache.materializer.media.facts import VideoFacts
from viewcache.materializer.media.planes import native_bytes

__all__ = ["MEASURES", "facts_of", "learned_facts", "learned_size", "sizes_of", "unknown_ticks"]

MEASURES = ("fps", "duration_s")
"""What nothing is planned from; not a number where it is not known."""
_TIMES = ("time_first", "time_step", "time_numerator", "time_denominator")
_WHOLE = ("frames", "keyframes", *_TIMES)
_FACTS = np.dtype([("frames", "i8"), ("keyframes", "i8"), ("times", "i8", 4), ("fps", "f8"), ("duration_s", "f8")])
_SIZES = np.dtype([("coded", "i8", 2), ("height", "i8"), ("width", "i8"), ("native_bytes", "i8")])
_TICKS = np.dtype([("pace", "i8", 2), ("last", "i8")])


def facts_of(rows: pa.Table) -> RepeatedRows:
    """Frames (0 if unknown), key frames, when frames are shown and `MEASURES` of each file."""
    few, codes = distinct_rows({name: rows[name] for name in (*_WHOLE, *MEASURES)})
    values = np.zeros(len(few["frames"]), _FACTS)
    values["frames"], values["keyframes"] = numbers(few["frames"]), np.maximum(numbers(few["keyframes"]), 1)
    values["times"] = np.stack([numbers(few[name], -1) for name in _TIMES], axis=1)
    for name in MEASURES:
        values[name] = pc.fill_null(few[name], np.nan).to_numpy(zero_copy_only=False)
    return RepeatedRows(values, codes)


def sizes_of(rows: pa.Table) -> RepeatedRows:
    """Size of the frames of each file, as coded and as shown, and the bytes of one in the decoder's own planes.

    0 where a size is unknown; -1 where planes are not kept.
    """
    few, codes = distinct_rows({name: rows[name] for name in ("height", "width", "rotation", "pix_fmt")})
    values = np.zeros(len(few["height"]), _SIZES)
    values["coded"] = coded = np.stack([numbers(few["height"]), numbers(few["width"])], axis=1)
    across = np.isin(numbers(few["rotation"]), (90, 270)).astype(int)
    each = np.arange(len(coded))
    values["height"], values["width"] = coded[each, across], coded[each, 1 - across]
    kinds = zip(few["pix_fmt"].to_pylist(), *coded.T.tolist(), strict=True)
    values["native_bytes"] = [native_bytes(pix_fmt or "", width, height) for pix_fmt, height, width in kinds]
    return RepeatedRows(values, codes)


def unknown_ticks(count: int) -> RepeatedRows:
    """Pace and last tick of files of which neither has been found out, see `Videos`."""
    return RepeatedRows.alike(count, np.array([((0, 0), -1)], _TICKS))


def learned_facts(facts: VideoFacts) -> tuple[object, ...]:
    """What `facts_of` has of a file whose header was read."""
    times = facts.times
    spaced = (-1, -1, -1, -1) if times is None else (times.first, times.step, times.numerator, times.denominator)
    return facts.frames, max(1, facts.keyframes), spaced, *(getattr(facts, name) for name in MEASURES)


def learned_size(facts: VideoFacts) -> tuple[object, ...]:
    """What `sizes_of` has of a file whose header was read."""
    coded = facts.height, facts.width
    return coded, *facts.shown_size, native_bytes(facts.pix_fmt, facts.width, facts.height)
