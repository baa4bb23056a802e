"""``cache.show`` of a task with audio: a strip below each clip has what is heard of it, and words how loud that is."""

from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from tests.clips import encode
from tests.sounds import Track, encode_with_audio
from tests.tiny import open_cache
from viewcache.api.pictures.picture import Picture
from viewcache.api.pictures.waveform import GROUND, HEIGHT, NOW, WAVE, waveform
from viewcache.api.session.cache import Cache

SAMPLING = {"videos_per_batch": 2, "fps": 10, "frames_per_video": 6, "frame_stride": None, "samples_per_video": 1}


def opened(store: Path, folder: Path) -> Cache:
    """Two videos a batch, one of which is heard."""
    encode_with_audio(folder / "heard.mp4", [Track("aac")])
    encode(folder / "silent.mp4", frames=70, size=(64, 48))
    return open_cache(store, folder, sampling=SAMPLING, audio={"rate": 16_000})


def clips_of(picture: Picture) -> list[dict[str, Any]]:
    """What a picture says of each clip."""
    clips = picture.facts["clips"]
    assert isinstance(clips, list)
    return clips


def has_strip(picture: np.ndarray, strip: np.ndarray) -> bool:
    """Whether a picture has a strip in it, to the bit, at the left margin of its rows."""
    height, width = strip.shape[:2]
    return any(np.array_equal(picture[y : y + height, 4 : 4 + width], strip) for y in range(len(picture) - height + 1))


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Picture, np.ndarray]:
    """The picture of a batch and the batch's audio."""
    folder = tmp_path_factory.mktemp("heard")
    with opened(tmp_path_factory.mktemp("store") / "cache", folder) as cache:
        picture = cache.show("train", 0, 0)
        batch = cache.read("train", 0, 0)
    assert batch.audio is not None
    return picture, batch.audio


def test_a_strip_below_each_clip_has_its_audio(shown: tuple[Picture, np.ndarray]) -> None:
    """As wide as its six frames of 32 pixels; that of a video without audio is flat; peaks are told as data."""
    picture, audio = shown
    assert all(has_strip(picture.sheet, waveform(each, 6 * 32 + 5 * 4)) for each in audio)
    loud = [clip["video"] == "heard" for clip in clips_of(picture)]
    assert [clip["audio_peak"] for clip in clips_of(picture)] == [float(np.abs(each).max()) for each in audio]
    assert [clip["audio_peak"] > 0.1 for clip in clips_of(picture)] == loud


def test_a_line_goes_over_the_strips_of_a_film(shown: tuple[Picture, np.ndarray], tmp_path: Path) -> None:
    """It is at the left in the first picture, and in the middle in the fourth of six; every picture has one size."""
    picture, _ = shown
    frames = list(picture.film.pictures())
    assert len({frame.shape for frame in frames}) == 1
    places = [int(np.argwhere((frame == NOW).all(-1))[:, 1].min()) for frame in frames]
    assert places[0] == min(places)
    assert places[3] - places[0] == 80, "a clip's place is 160 wide"
    with av.open(str(picture.save(tmp_path / "x.mp4"))) as container:
        assert len(list(container.decode(video=0))) == len(frames)


def test_a_waveform_is_as_high_as_it_is_loud() -> None:
    """Scaled to its loudest sample: half as loud is half as high; silence is a line; one sample fills a strip."""
    samples = np.zeros((2, 300), np.float32)
    samples[1, :100], samples[0, 100:200] = 0.2, -0.1
    wave = (waveform(samples, 30) == WAVE).all(-1)
    assert wave[: HEIGHT // 2, 0].all(), "up to the top"
    assert not wave[HEIGHT // 2 + 1 :, 0].any(), "and not below the line"
    assert wave[HEIGHT // 2 :, 15].sum() == pytest.approx(HEIGHT / 4, abs=1)
    assert (waveform(np.zeros((1, 10), np.float32), 30)[HEIGHT // 2] == WAVE).all()
    assert (waveform(np.zeros((1, 10), np.float32), 30)[0] == GROUND).all()
    assert waveform(np.ones((1, 1), np.float32), 30).shape == (HEIGHT, 30, 3)
