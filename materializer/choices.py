"""The closed sets of words that a configuration chooses from.

Their values are written into files, definitions and the catalog: they may be added to, and never change.
"""

from enum import StrEnum

__all__ = [
    "IMAGE_KEYS",
    "IMAGE_SAMPLING_KEYS",
    "BranchType",
    "Durability",
    "Exif",
    "InputSource",
    "Join",
    "KeepRule",
    "Layout",
    "Media",
    "Merge",
    "OnBadAudio",
    "OnBadVideo",
    "OnChangedVideo",
    "OnLowFps",
    "OnMissingVideo",
    "OnNoAudio",
    "OnShortVideo",
    "ProbeMode",
    "ServiceMode",
    "WorkerKind",
]


class BranchType(StrEnum):
    """What a step of ``augmentation`` does."""

    SINGLE = "single"
    """Operations in a row."""
    CONDITIONAL = "conditional"
    """The first branch whose condition holds."""
    RANDOM = "random"
    """One branch by chance."""
    MULTI = "multi"
    """Copies of a stream."""
    MERGE = "merge"
    """Several streams become one."""


class Merge(StrEnum):
    """How a step of type ``merge`` makes one stream of several."""

    CONCAT = "concat"
    """One after the other in time."""
    STACK = "stack"
    """Side by side on a new axis before T."""
    MEAN = "mean"


class Media(StrEnum):
    """What a dataset is of."""

    VIDEO = "video"
    IMAGE = "image"
    """An image is a video of one frame, and a clip of it one picture."""

    def written(self, key: str) -> str:
        """What a key of a task of videos, or of its sampling, is called in a configuration of these."""
        return {**IMAGE_KEYS, **IMAGE_SAMPLING_KEYS}.get(key, key) if self == Media.IMAGE else key

    @property
    def batch_key(self) -> str:
        """The key of a configuration that says how many are in a batch, for messages."""
        return f"{self}s_per_batch"

    @property
    def samples_key(self) -> str:
        """The same of how often each comes in an epoch."""
        return f"samples_per_{self}"

    @property
    def clip(self) -> str:
        """What a batch has of each, for messages."""
        return "picture" if self == Media.IMAGE else "clip"


IMAGE_KEYS = {
    "video_dataset_path": "image_dataset_path",
    "on_bad_video": "on_bad_image",
    "label_video_column": "label_image_column",
}
"""Key of a task of videos → the key that has its place in a task of images."""
IMAGE_SAMPLING_KEYS = {"videos_per_batch": "images_per_batch", "samples_per_video": "samples_per_image"}
"""The same below ``sampling``."""


class Exif(StrEnum):
    """What becomes of the orientation that an image's EXIF data tell."""

    APPLY = "apply"
    """The image is turned and mirrored as they say, as viewers do."""
    IGNORE = "ignore"
    """It is taken as it is stored."""


class InputSource(StrEnum):
    """Where a dataset's videos come from."""

    FILE = "file"
    """What is there when the cache is opened."""
    STREAMING = "streaming"
    """A folder or prefix that grows: it is listed again while the cache is open."""


class Join(StrEnum):
    """When the new videos of a dataset that grows join."""

    GENERATION = "generation"
    """At the next generation that is not drawn."""
    EPOCH = "epoch"
    """At the next epoch that is not drawn: each epoch is a generation of its own."""


class ProbeMode(StrEnum):
    """How thoroughly a new file is looked into before it is drawn."""

    LAZY = "lazy"
    """By its header, where that tells enough; every packet is looked at when the video is decoded first."""
    TIMES = "times"
    """Likewise, but by its packets also where the header does not tell when frames are shown. No word of the YAML:
    sampling by time asks for it, and a ``where`` by rates or lengths."""
    FULL = "full"
    """Every packet, of every file."""


class OnBadVideo(StrEnum):
    """What a video that cannot be decoded does."""

    RAISE = "raise"
    SKIP = "skip"
    REPLACE = "replace"


class OnShortVideo(StrEnum):
    """What a video that is shorter than a clip does."""

    CLAMP = "clamp"
    """Its last frame is repeated."""
    LOOP = "loop"
    """It starts again."""
    SKIP = "skip"


class OnLowFps(StrEnum):
    """What a video with fewer frames a second than a task asks for does."""

    REPEAT = "repeat"
    """Its frames are shown more than once."""
    BAD = "bad"
    """It is a bad video: ``on_bad_video`` says what that means."""


class OnNoAudio(StrEnum):
    """What a video without the audio track that a task asks for does."""

    SILENCE = "silence"
    """Its clips are silent."""
    BAD = "bad"
    """It is a bad video: ``on_bad_video`` says what that means."""


class OnBadAudio(StrEnum):
    """What a clip does whose audio is damaged."""

    BAD = "bad"
    """Its video cannot give it: ``on_bad_video`` says what that means."""
    SILENCE = "silence"
    """What is lost is silent, and a row in ``errors`` tells so."""


class OnChangedVideo(StrEnum):
    """What a file does that was replaced by other content after its video was drawn."""

    RAISE = "raise"
    WARN = "warn"
    """Its views show the new content."""
    VERSION = "version"
    """It is a new video from then on; the old content counts as a video that is gone."""


class OnMissingVideo(StrEnum):
    """What a drawn video does whose file is gone, where its clips are not in the store any more."""

    REPLACE = "replace"
    """Another video stands in for it, which is recorded."""
    RAISE = "raise"


class Layout(StrEnum):
    """Axis order of the loader's tensors, as strided views."""

    TCHW = "TCHW"
    CTHW = "CTHW"
    THWC = "THWC"
    CHW = "CHW"
    """Of images, which have no T."""
    HWC = "HWC"

    @property
    def media(self) -> Media:
        """What has such tensors."""
        return Media.IMAGE if self in (Layout.CHW, Layout.HWC) else Media.VIDEO

    @classmethod
    def of(cls, media: Media) -> list["Layout"]:
        """Those of videos, or of images."""
        return [each for each in cls if each.media == media]


class KeepRule(StrEnum):
    """What is kept when the budget cannot hold every clip."""

    CHEAPEST = "cheapest"
    """For each video its clips, its frames or nothing, so that making the rest again costs least."""
    LEAVES = "leaves"
    """Clips, soonest first, until the budget is full."""
    SAND = "sand"
    """Algorithm 1 of the SAND paper."""


class WorkerKind(StrEnum):
    """What workers are."""

    PROCESSES = "processes"
    THREADS = "threads"


class ServiceMode(StrEnum):
    """Who owns the store that a process opens."""

    AUTO = "auto"
    """A service of its own, which the first process starts."""
    OFF = "off"
    """This process."""
    ATTACH = "attach"
    """A service that runs already."""


class Durability(StrEnum):
    """Whether what is written is forced to disk."""

    CACHE = "cache"
    """Nothing is; what a crash of the machine loses is noticed and made again."""
    DURABLE = "durable"
    """Before it counts."""
