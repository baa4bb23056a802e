"""The keys of ``dataset.intermediate``: what of its pictures a task may lose."""

from viewcache.api.config.kinds import Key, KeySection

__all__ = ["INTERMEDIATE"]

INTERMEDIATE = KeySection(
    "intermediate",
    "dataset.intermediate",
    "Loss that is allowed behind the first resize. Every batch of the task is then made from pictures that were "
    "encoded with it, the first one too. It is part of what the task's paths mean. See docs/keeping.md.",
    (
        Key(
            "quality",
            "decibels",
            "Least luma PSNR of every picture, such as `45dB`: pictures are encoded so that each has it.",
            None,
            "none; give this or `crf`",
            least=30,
            most=50,
        ),
        Key(
            "codec",
            "choice",
            "How pictures are encoded: H.264 by FFmpeg's libx264, eight frames of a video at a time.",
            "h264",
            choices=("h264",),
        ),
        Key(
            "crf",
            "integer",
            "In the place of `quality`, the constant rate factor of x264: 0 loses next to nothing, 18 is hardly seen.",
            None,
            "none",
            least=0,
            most=40,
        ),
    ),
)
