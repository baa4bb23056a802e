"""The page's picture of a clip has its audio below, of a task that has some."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

import viewcache
from tests.page.conftest import cookie, served
from tests.page.test_server import get
from tests.sounds import Track, encode_with_audio
from tests.tiny import config
from viewcache.api.config.find import locate
from viewcache.api.page.gather import gather
from viewcache.api.pictures.waveform import HEIGHT, waveform
from viewcache.api.queries.ask import ask
from viewcache.api.sheet import contact_sheet

PLACE = "task=train&epoch=0&iteration=0"


@pytest.mark.parametrize("rate", [None, 16_000])
def test_a_stored_clip_is_shown_with_its_audio(tmp_path: Path, rate: int | None) -> None:
    """Read where it lies, as the pixels are; of a task without audio the picture is what it was."""
    (tmp_path / "videos").mkdir()
    for number in range(2):
        encode_with_audio(tmp_path / "videos" / f"v{number}.mp4", [Track("aac", pitch=300.0 * (1 + number))])
    given = config(
        tmp_path / "store", tmp_path / "videos", sampling={"fps": 10, "frame_stride": None, "frames_per_video": 6}
    )
    dataset = given["dataset"]
    assert isinstance(dataset, dict)
    if rate is not None:
        dataset["audio"] = {"rate": rate}
    with viewcache.open(given, service="off") as cache:
        batch = cache.read("train", 0, 0)
    with served(locate(str(tmp_path / "store"))) as page:
        assert len(json.loads(get(page, f"/batch.json?{PLACE}", cookie(page))[1])["clips"]) == 4
        for clip in range(4):
            body = get(page, f"/clip.jpg?{PLACE}&clip={clip}", cookie(page))[1]
            decoded = cv2.imdecode(np.frombuffer(body, np.uint8), cv2.IMREAD_COLOR)
            assert decoded is not None
            sheet = contact_sheet(batch.video[clip : clip + 1])
            assert decoded.shape[0] == len(sheet) + (0 if rate is None else HEIGHT)
            if batch.audio is not None:
                strip = waveform(batch.audio[clip], sheet.shape[1])
                differs = np.abs(decoded[len(sheet) :, :, ::-1].astype(int) - strip.astype(int))
                assert differs.mean() < 16, "no more than JPEG changes thin lines"


def test_audio_counts_as_no_clip(tmp_path: Path) -> None:
    """A clip is one clip with its audio, in hits and misses; what is missing are objects, of which it has two."""
    (tmp_path / "videos").mkdir()
    for number in range(4):
        encode_with_audio(tmp_path / "videos" / f"v{number}.mp4", [Track("aac", pitch=300.0 * (1 + number))])
    sampling = {"fps": 10, "frame_stride": None, "frames_per_video": 6}
    given = config(tmp_path / "store", tmp_path / "videos", sampling=sampling, audio={"rate": 16_000})
    with viewcache.open(given, service="off") as cache:
        clips = 2 * len(cache.read("train", 0, 0).videos)  # of the batch, which is read twice
        cache.read("train", 0, 0)
        counts = cache.snapshot().tasks["train"]
        assert (counts.hits + counts.misses, counts.hits >= clips // 2) == (clips, True)
    found = gather(locate(str(tmp_path / "store")))
    (task,) = found.tasks
    assert (task.hits, task.misses) == (counts.hits, counts.misses)
    assert found.due
    absent = "select count(distinct object_id) from deadlines where object_id not in (select object_id from copies)"
    for batch in found.due:
        place = f"epoch = {batch.epoch} and iteration = {batch.iteration}"
        assert [(batch.missing,)] == ask(str(tmp_path / "store"), f"{absent} and {place}").rows
        assert batch.clips == clips // 2
