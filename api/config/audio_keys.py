"""The keys of ``dataset.audio``: what of a video's sound comes with each clip."""

from viewcache.api.config.kinds import REQUIRED, Key, KeySection
from viewcache.materializer.choices import OnBadAudio, OnNoAudio

__all__ = ["AUDIO"]

AUDIO = KeySection(
    "audio",
    "dataset.audio",
    'The audio of each clip, from its first frame on, as `batch["audio"]`, float32 (b, C, n). See docs/audio.md.',
    (
        Key("rate", "integer", "Samples a second, after resampling.", REQUIRED, least=1000, most=192_000),
        Key("mono", "flag", "One channel, mixed from all that there are. `false`: two.", True),
        Key(
            "seconds",
            "number",
            "Length in seconds. Clips of `sampling.fps` have one of their own: their frames, each shown for `1 / fps`. "
            "Clips by `frame_stride` last longer or shorter by the rate of their video, so theirs must be given.",
            None,
            "the clip's, with `sampling.fps`",
            least=0.001,
            most=3600.0,
        ),
        Key(
            "track",
            "integer",
            "Number of the audio track in the file, from 0.",
            None,
            "the file's default track",
            least=0,
            most=255,
        ),
        Key(
            "language",
            "text",
            "In the place of `track`, the language of the track, as the file has it: `eng`. The first such track.",
            None,
            "any",
        ),
        Key(
            "on_no_audio",
            "choice",
            "What a video without audio, or without that track, does: its clips are silent, or it counts as a bad "
            "video, as `on_bad_video` says.",
            OnNoAudio.SILENCE,
            choices=tuple(OnNoAudio),
        ),
        Key(
            "on_bad_audio",
            "choice",
            "What a clip does whose audio is damaged: its video counts as bad, as `on_bad_video` says; or what is lost "
            "is silent, and a row in `errors` tells so.",
            OnBadAudio.BAD,
            choices=tuple(OnBadAudio),
        ),
    ),
)
