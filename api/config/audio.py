"""Read ``dataset.audio``: what of a video's sound comes with each clip, and how many samples that are."""

from fractions import Fraction

from viewcache.api.config.entries import Entries
from viewcache.api.config.keys import SECTIONS
from viewcache.api.config.yaml_subset import error_at
from viewcache.errors import ConfigCode
from viewcache.materializer.choices import OnShortVideo
from viewcache.materializer.sampling import SamplingSpec
from viewcache.materializer.spec import AudioSpec

__all__ = ["read_audio"]

MOST_SAMPLES = 1 << 26
"""Of one clip, over all channels: 256 MiB, which is an hour of one channel at 16 kHz."""


def read_audio(entries: Entries, sampling: SamplingSpec, on_short: OnShortVideo) -> AudioSpec | None:
    """Read ``audio`` of a task's entries; None where there is none.

    Raises:
        ConfigError: keys say a thing twice, or the number of samples is not the same for all clips, or out of range.
        Refused: what is wrong was reported.
    """
    if not entries.has("audio"):
        return None
    audio = Entries(entries.child("audio"), SECTIONS["audio"], entries.name_of("audio"), entries.problems)
    read = audio.values(*(key.name for key in SECTIONS["audio"].keys))
    seconds, track, language = read.pop("seconds"), read.pop("track"), read.pop("language")
    if track is not None and language is not None:
        why = "track and language both say which audio track: leave one of them out"
        raise error_at(audio.place("language"), ConfigCode.GIVEN_TWICE, f"{audio.label}: {why}")
    if on_short == OnShortVideo.LOOP:
        why = "a video that starts again (on_short_video: loop) has no audio that does: use clamp or skip"
        raise error_at(audio.node.place, ConfigCode.MISPLACED_KEY, f"{audio.label}: {why}")
    if seconds is None and sampling.fps is None:
        why = (
            "clips by frame_stride last as long as the rates of their videos say, so audio needs seconds, the same for "
            "all; or sample by fps"
        )
        raise error_at(audio.node.place, ConfigCode.MISSING_KEY, f"{audio.label}: {why}")
    # Exactly, because 0.1 x 44100 is 4410.
    length_s = (
        Fraction(str(seconds)) if seconds is not None else sampling.frames_per_video / Fraction(str(sampling.fps))
    )
    samples = round(length_s * read["rate"])
    most = MOST_SAMPLES // (1 if read["mono"] else 2)
    if not 1 <= samples <= most:
        why = f"{float(length_s):g} s at a rate of {read['rate']} are {samples} samples; a clip has 1 to {most}"
        raise error_at(audio.node.place, ConfigCode.OUT_OF_RANGE, f"{audio.label}: {why}")
    return AudioSpec(samples=samples, track=track if language is None else language, **read)
