"""Read ``dataset.sampling``: how many frames a clip has, and how far apart they are, in frames or in seconds."""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import partial

from viewcache.api.config.entries import Entries
from viewcache.api.config.keys import MOST_FRAMES, SECTIONS
from viewcache.api.config.media import check_sampling, words_of
from viewcache.api.config.problems import Refused
from viewcache.api.config.yaml_subset import error_at
from viewcache.errors import ConfigCode
from viewcache.materializer.choices import IMAGE_SAMPLING_KEYS, Media
from viewcache.materializer.planning.definition import places_of
from viewcache.materializer.sampling import ClipSelection, SamplingSpec
from viewcache.materializer.spec import DatasetSpec, StepSpec

__all__ = ["check_samples", "check_weighted", "read_sampling"]


def read_sampling(entries: Entries, media: Media) -> SamplingSpec:
    """Read ``sampling`` of a task's entries.

    Args:
        entries: the task's mapping.
        media: what it is of; a clip of an image has one frame.

    Raises:
        ConfigError: keys are missing, or say a thing twice.
        Refused: what is wrong was reported.
    """
    section = SECTIONS["sampling"]
    words = words_of(media, IMAGE_SAMPLING_KEYS)
    sampling = Entries(entries.child("sampling"), section, entries.name_of("sampling"), entries.problems, words)
    sampling.problems.part(partial(check_sampling, sampling, media))
    if media == Media.IMAGE:
        read = sampling.values("videos_per_batch", "samples_per_video", "coordination")
        return SamplingSpec(frames_per_video=1, **read)
    sampling.problems.part(partial(_check_clip_length, sampling))
    read = sampling.values(*(key.name for key in section.keys if key.name not in IMAGE_SAMPLING_KEYS.values()))
    seconds = read.pop("clip_seconds")
    if seconds is not None and read["fps"] is not None:
        # So many times lie in [start, start + seconds); exactly, because 0.3 x 10 is 3.
        read["frames_per_video"] = math.ceil(Fraction(str(seconds)) * Fraction(str(read["fps"])))
        if read["frames_per_video"] > MOST_FRAMES:
            what = (
                f"a clip of clip_seconds x fps frames must have at most {MOST_FRAMES}, got {read['frames_per_video']}"
            )
            raise error_at(sampling.place("clip_seconds"), ConfigCode.OUT_OF_RANGE, f"{sampling.label}: {what}")
    if read["frames_per_video"] is None:
        raise Refused  # that was reported
    return SamplingSpec(**read)


def check_samples(entries: Entries, sampling: SamplingSpec, steps: Sequence[StepSpec]) -> None:
    """Refuse a number of samples that does not go into clips and their crops.

    Raises:
        ConfigError: the message has the numbers.
    """
    places, samples = places_of(steps), sampling.samples_per_video
    if sampling.clips == ClipSelection.RANDOM or samples == places:
        return
    of_each = f"each clip has {places} crops by the number of the sample, so " if places > 1 else ""
    if sampling.clips == ClipSelection.CENTER:
        why = f"with clips: center, {of_each}samples_per_video must be {places}, got {samples}; or use clips: uniform"
    elif samples % places:
        why = f"{of_each}samples_per_video must be a multiple of {places}, got {samples}"
    else:
        return
    raise error_at(entries.place("sampling"), ConfigCode.OUT_OF_RANGE, f"{entries.name_of('sampling')}: {why}")


def check_weighted(entries: Entries, sampling: SamplingSpec, dataset: DatasetSpec) -> None:
    """Refuse fixed clips of videos that may come several times an epoch: each time would be the same.

    Raises:
        ConfigError: the message has the keys.
    """
    if dataset.weighted is not None and sampling.clips != ClipSelection.RANDOM:
        key = "weight" if dataset.weight else "balance" if dataset.balance else "mix"
        why = f"a video that comes again has other clips, and clips: {sampling.clips} has none; use clips: random"
        raise error_at(entries.place(key), ConfigCode.MISPLACED_KEY, f"{entries.name_of(key)}: {why}")


def _check_clip_length(sampling: Entries) -> None:
    """Refuse keys that do not say, or say twice, how many frames a clip has and how far apart they are."""

    def refuse(key: str, code: ConfigCode, why: str) -> None:
        raise error_at(sampling.place(key), code, f"{sampling.label}: {why}")

    if sampling.has("clip_seconds") and not sampling.has("fps"):
        refuse("clip_seconds", ConfigCode.MISSING_KEY, "clip_seconds needs fps, the frames of a second of the clip")
    if sampling.has("clip_seconds") and sampling.has("frames_per_video"):
        why = "clip_seconds and fps say how many frames a clip has: leave out frames_per_video, or clip_seconds"
        refuse("frames_per_video", ConfigCode.GIVEN_TWICE, why)
    if sampling.has("fps") and sampling.has("frame_stride"):
        why = "fps and frame_stride both say how far apart frames are: leave one of them out"
        refuse("frame_stride", ConfigCode.GIVEN_TWICE, why)
    if not sampling.has("clip_seconds"):
        sampling.require("frames_per_video", "frames of one clip; or give clip_seconds and fps", empty=True)
