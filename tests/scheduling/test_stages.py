"""A slow operation in a job: its time is its own, and what a reader waits for still comes between two pictures."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import viewcache
from tests.scheduling.kept import intermediate_recipe
from tests.tiny import config, encode_folder, single
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.ops import registry
from viewcache.materializer.planning.recipe import Intermediate
from viewcache.materializer.workers.job import FolderTarget, Job, Made, Report
from viewcache.materializer.workers.make import make

SLOW_S = 0.01
FRAMES = 32
MODULE = f"""
import time

import numpy as np
from viewcache.materializer.ops import FrameOp

class Slow(FrameOp):
    name = "slow"

    def resolve(self, params, draw, h, w):
        return np.zeros((len(draw.sample), 0), np.int32), h, w

    def apply(self, params, row, frame):
        ends = time.thread_time() + {SLOW_S}
        while time.thread_time() < ends:
            pass
        return frame.copy()

OPS = [Slow]
"""
RESIZED = {"resize": {"shape": [32, 32]}}
ORDERS: dict[str, list[dict[str, Any]]] = {
    "behind a resize": [single(RESIZED, {"slow": {}})],
    "before one": [single({"slow": {}}, RESIZED)],
    "beside one": [
        single({"slow": {}}, into="x"),
        single({"resize": {"shape": [48, 64]}}, into="y"),
        {"branch_type": "merge", "inputs": ["x", "y"], "outputs": ["z"]},
    ],
}

Jobs = Callable[[list[dict[str, Any]]], Job]


@pytest.fixture
def job_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    """The job of one clip of 32 frames, made by given branches."""
    (tmp_path / "slow_op.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    videos = encode_folder(tmp_path / "videos", {"a.mp4": 40})
    (tmp_path / "made" / "objects").mkdir(parents=True)

    def job(branches: list[dict[str, Any]]) -> Job:
        sampling = {"frames_per_video": FRAMES, "frame_stride": 1, "videos_per_batch": 1}
        cache = {"op_modules": ["slow_op"]}
        given = config(tmp_path / "store", videos, cache=cache, augmentation=branches, probe="full", sampling=sampling)
        with viewcache.open(given) as opened:
            active = opened.task("train").task.generation(0)
            source, recipe = active.source(0), replace(active.recipe(0), codec="raw")
        target = FolderTarget(str(tmp_path / "made"), durable=False)
        return Job(1, source.uri, source.name, source.key, source.index, (recipe,), target)

    with registry.own_registrations():
        yield job


@pytest.mark.parametrize("order", ORDERS)
def test_what_an_operation_takes_is_no_conversion(job_of: Jobs, order: str) -> None:
    """Wherever it stands, and whatever is made of the same frame beside it, its seconds are those of ``augment``."""
    seconds: dict[str, float] = {}
    for said in make(job_of(ORDERS[order]), lambda: False):
        for stage, each in said.seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + each
    assert isinstance(said, Report)
    assert not said.error
    others = sum(each for stage, each in seconds.items() if stage != "augment")
    assert seconds["augment"] > 0.7 * SLOW_S * FRAMES
    assert others < 0.3 * SLOW_S * FRAMES, seconds


def test_messages_are_looked_for_between_kept_pictures(job_of: Jobs) -> None:
    """However few bytes a clip takes, a job that is to give up does so some pictures later, with the rest unmade."""
    job = job_of(ORDERS["behind a resize"])
    (recipe,) = job.clips
    kept = replace(intermediate_recipe(recipe, job.video_key, "aug", VideoIndex.from_bytes(job.index)), codec="raw")
    made, _ = make(replace(job, clips=(kept,)), lambda: False)
    assert isinstance(made, Made)
    there = Intermediate(kept.key, made.stored, kept.frames, kept.program, kept.row)
    looks: list[float] = []

    def third() -> bool:
        looks.append(time.monotonic())
        return len(looks) == 3

    (report,) = make(replace(job, intermediates=(there,)), third)
    assert isinstance(report, Report)
    assert not report.error
    assert report.returned == (recipe.key,)
    assert report.frames["loaded"] <= 4
