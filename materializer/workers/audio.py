"""Make the audio of a job's clips: one pass over each track, whatever clips and tasks want of it.

It begins with the frame that a clip begins with, and so with the very moment that the batch's times tell.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadVideo
from viewcache.materializer.choices import OnBadAudio, OnNoAudio
from viewcache.materializer.media.audio import AudioTrack, NoSuchTrack, NoTrack, Stretch, read_stretches_from
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.media.source import Source, shown
from viewcache.materializer.planning.recipe import Recipe

if TYPE_CHECKING:
    from viewcache.materializer.spec import AudioSpec

__all__ = ["AudioMaker", "MadeAudio"]

SILENCE_CODEC = "lz4"
"""Makes a few hundred bytes of any number of zeros, and is the fastest to read."""

MadeAudio = tuple[Recipe, NDArray[np.uint8], dict[str, object]]
"""What was made: the samples' bytes, uint8 (C, 4n), and attributes beside them."""


class AudioMaker:
    """The audio of one job."""

    def __init__(self, uri: str, index: VideoIndex, opened: Callable[[], Source]) -> None:
        """Read of a file, whose frames are where the index says; ``opened`` gives it, and keeps it open."""
        self._uri = uri
        self._index = index
        self._opened = opened
        self.failed: dict[str, str] = {}
        """Key → why, for audio that this video cannot give."""
        self.silenced: dict[str, str] = {}
        """Key → what is wrong, for audio of which something is silent instead."""
        self.untracked: dict[str, str] = {}
        """A track that was asked for → what the video has instead, for audio that is silent therefore."""

    @staticmethod
    def codec(recipe: Recipe, samples: NDArray[np.uint8]) -> str:
        """The codec that samples are stored in: silence is packed, and takes a block of the disk however long it is."""
        return recipe.codec if samples.any() else SILENCE_CODEC

    def make(self, recipes: Sequence[Recipe], stop: Callable[[], bool]) -> Iterator[MadeAudio]:
        """Give the audio of each recipe when it is whole; what is missing at the end failed, or was stopped."""
        alike: dict[AudioSpec, list[Recipe]] = {}
        for recipe in recipes:
            assert recipe.audio is not None  # it is of audio
            alike.setdefault(_as_made(recipe.audio), []).append(recipe)
        for audio, some in alike.items():
            yield from self._pass(audio, some, stop)

    def _pass(self, audio: "AudioSpec", recipes: Sequence[Recipe], stop: Callable[[], bool]) -> Iterator[MadeAudio]:
        of = [(Stretch(self._time(recipe), np.zeros(audio.shape, np.float32)), recipe) for recipe in recipes]
        recipe_of = {id(stretch): recipe for stretch, recipe in of}
        wanted, index = AudioTrack(audio.rate, audio.channels, audio.track), self._index
        try:
            for stretch in read_stretches_from(
                self._opened(), lambda source: source.stamp.same(index.stamp), wanted, [each for each, _ in of], stop
            ):
                made = self._judged(recipe_of.pop(id(stretch)), stretch)
                if made is not None:
                    yield made
        except NoTrack as missing:
            why = f"{shown(self._uri)}: {missing}"
            for stretch, recipe in of:
                assert recipe.audio is not None
                if recipe.audio.on_no_audio == OnNoAudio.BAD:
                    self.failed[recipe.key] = f"{why}; audio.on_no_audio is bad"
                    continue
                if isinstance(missing, NoSuchTrack):
                    self.untracked[str(audio.track)] = why
                yield _made(recipe, stretch)
        except BadVideo as bad:
            for recipe in recipe_of.values():
                self.failed[recipe.key] = str(bad)

    def _time(self, recipe: Recipe) -> Fraction:
        """When a clip begins: the presentation time of its first frame, exactly."""
        return int(self._index.frame_pts[int(recipe.frames[0])]) * Fraction(*self._index.time_base)

    def _judged(self, recipe: Recipe, stretch: Stretch) -> MadeAudio | None:
        if not stretch.damaged:
            return _made(recipe, stretch)
        begin_s = float(stretch.start_s)
        why = f"{shown(self._uri)}: its audio is damaged near {begin_s:.3f} s: {stretch.damaged[0]}"
        assert recipe.audio is not None
        if recipe.audio.on_bad_audio == OnBadAudio.BAD:
            self.failed[recipe.key] = f"{why}; or set audio.on_bad_audio: silence"
            return None
        self.silenced[recipe.key] = why
        return _made(recipe, stretch)


def _as_made(audio: "AudioSpec") -> "AudioSpec":
    """The same without what only says what is done with trouble."""
    return replace(audio, on_no_audio=OnNoAudio.SILENCE, on_bad_audio=OnBadAudio.SILENCE)


def _made(recipe: Recipe, stretch: Stretch) -> MadeAudio:
    audio = recipe.audio
    assert audio is not None
    attributes: dict[str, object] = {
        "rate": audio.rate,
        "track": audio.track,
        "start_s": float(stretch.start_s),
        "silent_samples": stretch.count - stretch.heard,
        "damage": list(dict.fromkeys(stretch.damaged)),
        "made_by": _libraries(),
    }
    return recipe, stretch.samples.astype("<f4", copy=False).view(np.uint8), attributes


def _libraries() -> str:
    """What decoded and resampled, for who asks later."""
    import av

    versions = {name: ".".join(map(str, av.library_versions[name])) for name in ("libavcodec", "libswresample")}
    return ", ".join(f"{name} {version}" for name, version in versions.items())
