"""Whether a task is of videos or of images: an image is a video of one frame, whose keys have names of their own."""

from collections.abc import Mapping, Sequence

from viewcache.api.config.entries import Entries
from viewcache.api.config.yaml_subset import Node, error_at
from viewcache.errors import ConfigCode
from viewcache.materializer.choices import IMAGE_KEYS, IMAGE_SAMPLING_KEYS, BranchType, Layout, Media, Merge
from viewcache.materializer.planning.definition import stage_of
from viewcache.materializer.spec import StepSpec

__all__ = ["check_keys", "check_sampling", "check_steps", "media_of", "read_layout", "words_of"]

_NEEDS_TIME = ("audio", "intermediate", "on_short_video", "on_low_fps")
"""Keys of a task that an image has no use for."""
_OF_IMAGES = {"exif": "frames of a video are turned as its container says"}
"""Key of a task of images → why one of videos has no use for it."""
_CLIP_KEYS = ("frames_per_video", "frame_stride", "fps", "clip_seconds", "clips", "spread")
"""The same below ``sampling``."""


def media_of(node: Node) -> Media:
    """What the task of a mapping is of: videos, unless it names a path of images."""
    given = node.value if isinstance(node.value, dict) else {}
    return Media.IMAGE if "image_dataset_path" in given and "video_dataset_path" not in given else Media.VIDEO


def words_of(media: Media, of_images: Mapping[str, str] = IMAGE_KEYS) -> Mapping[str, str]:
    """What `Entries` are to look for in the place of the keys of videos."""
    return of_images if media == Media.IMAGE else {}


def check_keys(entries: Entries, media: Media) -> None:
    """Refuse keys of a task, and of its sampling, that are not for what it is of.

    Raises:
        ConfigError: the first of them, with what to give instead.
    """
    if entries.has("image_dataset_path") and media == Media.VIDEO:
        why = "a task is of videos or of images: video_dataset_path is given too, leave one of them out"
        place = entries.place("image_dataset_path")
        raise error_at(place, ConfigCode.GIVEN_TWICE, f"{entries.name_of('image_dataset_path')}: {why}")
    _refuse_others(entries, media, IMAGE_KEYS, _NEEDS_TIME, _OF_IMAGES)


def check_sampling(sampling: Entries, media: Media) -> None:
    """The same below ``sampling``; see `check_keys`."""
    _refuse_others(sampling, media, IMAGE_SAMPLING_KEYS, _CLIP_KEYS, {})


def _refuse_others(
    entries: Entries,
    media: Media,
    names: Mapping[str, str],
    of_videos: Sequence[str],
    of_images: Mapping[str, str],
) -> None:
    """Refuse keys of the other media: those that have another name, see `words_of`, and those that have none."""
    given = entries.node.value
    assert isinstance(given, dict)  # Entries has seen to it
    if media == Media.IMAGE:
        cures = dict.fromkeys(of_videos, "leave it out")
        cures |= {video: f"give {image} in its place" for video, image in names.items()}
    else:
        cures = {key: f"{why}: leave it out" for key, why in of_images.items()}
        cures |= {image: f"give {video} in its place" for video, image in names.items()}
    for key, cure in cures.items():
        if key not in given or given[key].value is None:
            continue
        why = f"this task is of {media}s: {cure}"
        message = f"{entries.label}.{key}: {why}"
        raise error_at(given[key].place, ConfigCode.MISPLACED_KEY, message)


def read_layout(entries: Entries, media: Media) -> Layout:
    """The axis order of a task's tensors.

    Raises:
        ConfigError: it is one of the other media.
    """
    if media == Media.IMAGE and not entries.has("layout"):
        return Layout.CHW
    layout = Layout(entries.value("layout"))
    if layout.media != media:
        why = f"{layout} is of {layout.media}s and this task of {media}s; use one of {', '.join(Layout.of(media))}"
        raise error_at(entries.place("layout"), ConfigCode.OUT_OF_RANGE, f"{entries.name_of('layout')}: {why}")
    return layout


def check_steps(steps: Sequence[StepSpec], media: Media) -> None:
    """Refuse steps of a task of images that need, or make, several frames.

    Raises:
        ConfigError: at the operation, or at the step.
    """
    if media == Media.VIDEO:
        return
    for step in steps:
        if step.branch_type == BranchType.MERGE and step.merge == Merge.CONCAT:
            why = "merge: concat puts clips one after the other in time, which images do not have; use stack or mean"
            raise error_at(step.place, ConfigCode.MISPLACED_KEY, f"step {step.name!r}: {why}")
        for call in step.calls:
            if stage_of(call) == "time":
                why = "it chooses among the frames of a clip, and an image has one"
                raise error_at(call.place, ConfigCode.MISPLACED_KEY, f"{call.name}: {why}")
