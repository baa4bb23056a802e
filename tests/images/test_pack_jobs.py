"""What a worker makes of a job with packs."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import viewcache
from tests.images.small import config, jobs_given, save_folder
from viewcache.materializer.planning.recipe import Recipe, pack_recipe
from viewcache.materializer.workers.blocks import make_job
from viewcache.materializer.workers.job import FolderTarget, Job, Made, Report


def test_packs_of_one_job_may_share_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture that belongs in two packs is made once and lies in both; an image that is bad lets both fail."""
    jobs = jobs_given(monkeypatch)
    images = save_folder(tmp_path / "images", {f"{k:02}.jpg": (60 + k % 5, 48 + k % 3) for k in range(8)})
    with viewcache.open(config(tmp_path / "cache", images, epochs=8, sampling={"images_per_batch": 4})) as cache:
        cache.read("train", 0, 0)
        cache.owner.look_ahead.wait_idle()
        assert cache.owner.dispatcher is not None
        assert cache.owner.dispatcher.wait_idle(60)
    job, whole = next((job, each) for job in jobs for each in job.clips if each.kind == "pack")
    parts = whole.parts
    assert len(parts) > 2
    part = replace(pack_recipe([each.recipe for each in parts[1:]]), parts=parts[1:])
    (tmp_path / "two" / "objects").mkdir(parents=True)
    target = FolderTarget(str(tmp_path / "two"), durable=False)

    def of(*packs: Recipe) -> Job:
        return replace(job, clips=packs, intermediates=(), target=target, near=None)

    *made, report = make_job(of(whole, part), lambda: False)
    assert isinstance(report, Report)
    assert (report.failed, report.returned, report.error) == ({}, (), "")
    assert report.frames["packets"] == len(parts)
    found = {each.key: each.stored for each in made if isinstance(each, Made)}
    assert found.keys() == {whole.key, part.key}
    pixels = {}
    for recipe in (whole, part):
        out = np.zeros(recipe.shape, np.uint8)
        target.read_into(found[recipe.key], out, range(len(found[recipe.key].table.offsets)))
        for each, first in zip(recipe.parts, recipe.layout.firsts, strict=True):
            size = math.prod(each.recipe.shape)
            pixels[recipe.key, each.recipe.key] = out[first : first + size].tobytes()
    for each in parts[1:]:
        assert pixels[whole.key, each.recipe.key] == pixels[part.key, each.recipe.key]

    (tmp_path / "bad.jpg").write_bytes(b"\xff\xd8 no image")
    source = replace(parts[-1].source, uri=str(tmp_path / "bad.jpg"))
    bad = [replace(each, parts=(*each.parts[:-1], replace(parts[-1], source=source))) for each in (whole, part)]
    *made, report = make_job(of(*bad), lambda: False)
    assert isinstance(report, Report)
    assert not made
    assert set(report.failed) == {whole.key, part.key}
