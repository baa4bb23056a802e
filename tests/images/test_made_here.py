"""Pictures that a job of several images makes itself are those that a job for each image makes."""

import gc
import math
import os
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import viewcache
from tests.images.small import config, jobs_given, picture, save
from viewcache.materializer.workers.blocks import make_job
from viewcache.materializer.workers.image import PictureMaker
from viewcache.materializer.workers.job import FolderTarget, Job, Made, Report
from viewcache.materializer.workers.make import make


def save_all_kinds(folder: Path) -> int:
    """A picture of each kind that is decoded, in several sizes; how many there are."""
    turned = Image.Exif()
    for k, size in enumerate([(64, 48), (51, 38), (48, 65)]):
        pixels = picture(*size, k)
        rgb, gray = Image.fromarray(pixels), Image.fromarray(pixels[:, :, 0])
        for name, subsampling in (("444", 0), ("422", 1), ("420", 2)):
            save(folder / f"{k} {name}.jpg", pixels, subsampling=subsampling)
        save(folder / f"{k} progressive.jpg", pixels, progressive=True)
        for orientation in (3, 5, 6):
            turned[0x0112] = orientation
            save(folder / f"{k} turned {orientation}.jpg", pixels, exif=turned)
        gray.save(folder / f"{k} gray.jpg")
        rgb.convert("CMYK").save(folder / f"{k} inks.jpg")
        save(folder / f"{k}.png", pixels)
        gray.save(folder / f"{k} gray.png")
        rgb.quantize(16).save(folder / f"{k} palette.png")
        rgb.convert("RGBA").save(folder / f"{k} alpha.png")
        Image.fromarray(pixels[:, :, 0].astype(np.uint16) * 257).save(folder / f"{k} deep.png")
        save(folder / f"{k}.webp", pixels)
        rgb.save(folder / f"{k} lossy.webp", quality=80)
        save(folder / f"{k}.bmp", pixels)
    return len(list(folder.iterdir()))


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """What a worker is asked of an epoch of one batch, as the owner asked: the block, and packs of what is kept."""
    jobs = jobs_given(monkeypatch)
    images = tmp_path / "images"
    images.mkdir()
    count = save_all_kinds(images)
    with viewcache.open(config(tmp_path / "cache", images, epochs=8, sampling={"images_per_batch": count})) as cache:
        cache.read("train", 0, 0)
        cache.owner.look_ahead.wait_idle()
        assert cache.owner.dispatcher is not None
        assert cache.owner.dispatcher.wait_idle(60)
    found = next(each for each in jobs if each.block is not None and len(each.clips) > 1)
    return replace(found, intermediates=(), near=None, trial=False)


def made(job: Job, folder: Path) -> tuple[dict[str, bytes], Report]:
    """Do a job into an empty folder; all files that it leaves, and what it says at the end."""
    (folder / "objects").mkdir(parents=True)
    *objects, report = make_job(replace(job, target=FolderTarget(str(folder), durable=False)), lambda: False)
    assert all(isinstance(each, Made) for each in objects)
    assert isinstance(report, Report)
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}, report


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the images that had a job of their own."""
    names: list[str] = []
    usual = make

    def noted(job: Job, pause: Callable[[], bool]) -> Iterator[Made | Report]:
        names.append(job.name)
        return usual(job, pause)

    monkeypatch.setattr("viewcache.materializer.workers.blocks.make", noted)
    return names


def test_they_are_the_same(tmp_path: Path, job: Job, others: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Pixels, and all that is stored beside them, of every kind of picture; the counts too."""
    here, report = made(job, tmp_path / "here")
    assert others == []
    assert not report.failed
    assert not report.bad_parts
    monkeypatch.setattr(PictureMaker, "decoded", lambda *_: False)
    apart, said = made(job, tmp_path / "apart")
    assert len(others) == len({part.source.key for clip in job.clips for part in clip.parts})
    assert here == apart
    counts = ("packets", "decoded", "wanted", "converted", "frame_bytes")
    assert {name: report.frames[name] for name in counts} == {name: said.frames[name] for name in counts}


@pytest.mark.parametrize("harm", ["cut", "gone", "another", "empty"])
def test_what_is_wrong_is_said_by_a_job_of_its_own(tmp_path: Path, job: Job, others: list[str], harm: str) -> None:
    """Of an image that is not what it was the block says so, in the words of a job for that image alone."""
    block = job.block
    assert block is not None
    place = next(k for k, part in enumerate(block.parts) if Path(part.source.uri).name == "1 420.jpg")
    source = block.parts[place].source
    path = Path(source.uri)
    if harm == "gone":
        path.unlink()
    elif harm == "another":
        save(path, picture(80, 60, 9))
    else:
        kept = path.stat()
        os.truncate(path, 0 if harm == "empty" else kept.st_size // 2)
    _, report = made(job, tmp_path / "harmed")
    assert others == [source.name]
    if harm == "another":
        assert [key for key, _ in report.contradicted] == [source.key] or place in report.bad_parts[block.key]
    else:
        assert list(report.bad_parts[block.key]) == [place]
        assert path.name in report.bad_parts[block.key][place]


def test_its_buffers_are_free_at_once(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker uses the memory of one job for the next, and need not look for cyclic garbage to have it."""
    empty, buffers = np.empty, list[weakref.ref[np.ndarray]]()

    def noted(*given: Any, **named: Any) -> np.ndarray:
        made: np.ndarray = empty(*given, **named)
        buffers.append(weakref.ref(made))
        return made

    gc.collect()
    gc.disable()
    try:
        monkeypatch.setattr(np, "empty", noted)
        assert isinstance([*make_job(job, lambda: False)][-1], Report)
        least = min(math.prod(clip.shape) for clip in job.clips)
        assert len(buffers) >= len(job.clips)
        assert not [each.shape for made in buffers if (each := made()) is not None and each.nbytes >= least]
    finally:
        gc.enable()
