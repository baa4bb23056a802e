"""The keys of ``dataset.split``: how a dataset is parted, part of the table in ``keys``."""

from viewcache.api.config.kinds import Key, KeySection

__all__ = ["SPLIT"]

SPLIT = KeySection(
    "split",
    "dataset.split",
    "How a dataset is parted, the same for all tasks that say it: `part` is the one that a task has. By shares, which "
    "are drawn for each video by its name, so that a video never changes its part when others come or go; or by a "
    "column of the label table that names the part. See docs/labels.md.",
    (
        Key(
            "val",
            "number",
            "Share of the part `val`. The rest is the part `train`.",
            None,
            "no such part",
            least=0.0,
            most=1.0,
            inside=True,
        ),
        Key("test", "number", "Share of the part `test`.", None, "no such part", least=0.0, most=1.0, inside=True),
        Key(
            "seed",
            "integer",
            "Seed of the shares; not that of the cache, so that it is the same everywhere.",
            0,
            least=0,
            most=2**63 - 1,
        ),
        Key(
            "by",
            "text",
            "Column of the label table; all videos with one value of it are in one part: `person`.",
            None,
            "each video for itself",
        ),
        Key(
            "column",
            "text",
            "Column of the label table that names each video's part; in the place of shares.",
            None,
            "by shares",
        ),
    ),
)
