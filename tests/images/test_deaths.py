"""An image that ends every worker is found among those of its block, and it alone is the policy's case."""

import importlib
import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import viewcache
from tests.images.small import config, picture, save
from tests.images.test_images import Read, read
from tests.tiny import make_decoding_dear, single, sql
from viewcache.api.session.cache import Cache
from viewcache.errors import Broken, WorkerDied
from viewcache.materializer.planning.program import Program
from viewcache.materializer.planning.recipe import Part, Recipe, VideoSource, block_recipe
from viewcache.materializer.scheduling.deaths import MOST_TIMES, TRIES, Deaths
from viewcache.materializer.workers.blocks import make_job
from viewcache.materializer.workers.job import FolderTarget, Job, Report
from viewcache.materializer.workers.pool import Event, EventKind

COUNT, BATCH = 12, 6
RED = np.array([255, 0, 0], np.uint8)
HOWS = {"processes": "os.kill(os.getpid(), signal.SIGKILL)", "threads": "sys.exit(3)"}
"""Kind of worker → what ends one."""
SAID = {"processes": "SIGKILL", "threads": "SystemExit"}
ENDS = """
import os, pathlib, signal, sys
import numpy as np
from viewcache.ops import FrameOp

class Ends(FrameOp):
    name = "{name}"

    def resolve(self, params, draw, h, w):
        return np.zeros((len(draw.sample), 0), np.int32), h, w

    def apply(self, params, row, frame):
        if pathlib.Path("{armed}").exists() and (frame.reshape(3, -1) == [[255], [0], [0]]).all():
            {how}
        return frame

OPS = [Ends]
"""


@pytest.fixture(autouse=True)
def decoding_is_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of small images what to keep would be decided by noise."""
    make_decoding_dear(monkeypatch)


class Case:
    """Twelve images of which some are red, and a task with an operation that a red one ends its worker in."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, red: tuple[int, ...]) -> None:
        self.folder, self.kind, self.red = folder, kind, red
        self.name = f"vc_ends_{kind}_{'_'.join(map(str, red))}_{next(_NUMBERS)}"
        self.armed = folder / "armed"
        text = ENDS.format(name=self.name, how=HOWS[kind], armed=self.armed)
        (folder / f"{self.name}.py").write_text(text)
        monkeypatch.syspath_prepend(folder)
        importlib.invalidate_caches()
        for k in range(COUNT):
            pixels = np.full((48, 64, 3), RED) if k in red else picture(64, 48, k)
            save(folder / "in" / f"{k:02}.png", pixels)

    def config(self, store: str, **dataset: Any) -> dict[str, Any]:
        """What is opened."""
        ops: list[object] = [{"resize": {"short_side": 36}}, {"random_crop": {"shape": [32, 32]}}, {self.name: {}}]
        given = config(
            self.folder / store,
            self.folder / "in",
            cache={"worker_kind": self.kind, "op_modules": [self.name]},
            sampling={"images_per_batch": BATCH},
            augmentation=[single(*ops)],
            epochs=2,
        )
        given["dataset"] |= dataset
        return given

    def truth(self, **dataset: Any) -> Read:
        """What is read where no worker ends."""
        with viewcache.open(self.config("truth", **dataset)) as cache:
            return read(cache)


_NUMBERS = itertools.count()


def deaths(caplog: pytest.LogCaptureFixture) -> int:
    """How many workers ended."""
    return sum(getattr(each, "action", "") == "worker_died" for each in caplog.records)


def idle(cache: Cache) -> None:
    """Wait until all is decided and made that is to be made ahead."""
    cache.owner.look_ahead.wait_idle()
    assert cache.owner.dispatcher is not None
    assert cache.owner.dispatcher.wait_idle(60)


def replaced(cache: Cache) -> Counter[str]:
    """How often a policy was used for each image."""
    return Counter(str(video) for (video,) in sql(cache, "select video from substitutions"))


def others_are_as_before(found: Read, truth: Read, red: set[int]) -> None:
    """All pictures but those of red images are as where no worker ends, and no red one is shown."""
    for place, batch in truth.items():
        now, kept = found[place], ~np.isin(batch["index"], list(red))
        for name in ("image", "index", "sample"):
            np.testing.assert_array_equal(now[name][kept], batch[name][kept])
        assert not np.isin(now["index"], list(red)).any()


def numbers(cache: Cache, red: tuple[int, ...]) -> set[int]:
    """Ids of the red images."""
    names = ", ".join(f"'{each:02}'" for each in red)
    return {int(str(number)) for (number,) in sql(cache, f"select image_id from images where image in ({names})")}


@pytest.mark.parametrize("kind", HOWS)
def test_only_the_culprit_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """Three workers end on its block in each epoch; another image stands in for it, all others come as always."""
    case = Case(tmp_path, monkeypatch, kind, (4,))
    truth = case.truth()
    case.armed.touch()
    with viewcache.open(case.config("store", on_bad_image="replace")) as cache:
        others_are_as_before(read(cache), truth, numbers(cache, case.red))
        assert replaced(cache) == {"04": 2}
        for (why,) in sql(cache, "select reason from substitutions"):
            assert "04.png: 3 workers died on it, the last was" in str(why)
            assert SAID[kind] in str(why)
    assert deaths(caplog) == 2 * TRIES


def test_pictures_of_the_others_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pack of a deadly image is given up; in a later generation the others of it are packed without it."""
    case = Case(tmp_path, monkeypatch, "threads", (4,))
    truth = case.truth(epochs=8)
    case.armed.touch()
    with viewcache.open(case.config("store", on_bad_image="replace", epochs=8)) as cache:
        loader = cache.loader("train", framework="numpy")
        found: Read = {}
        for epoch in range(6):  # what is kept for the last two is still wanted then
            for iteration, batch in enumerate(loader):
                found[epoch, iteration] = {name: np.array(batch[name]) for name in ("image", "index", "sample")}
            idle(cache)
        others_are_as_before(found, {place: truth[place] for place in found}, numbers(cache, case.red))
        assert replaced(cache)["04"] >= 6
        kept = {str(name) for (name,) in sql(cache, "select image from packs where state = 'ready'")}
        assert kept >= {f"{k:02}" for k in range(COUNT) if k not in case.red}


def test_two_of_one_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is found in its turn."""
    case = Case(tmp_path, monkeypatch, "threads", (2, 7))
    sampling = {"images_per_batch": COUNT}
    truth = case.truth(sampling=sampling)
    case.armed.touch()
    with viewcache.open(case.config("store", sampling=sampling, on_bad_image="replace", epochs=1)) as cache:
        found = read(cache)
        others_are_as_before(found, {place: truth[place] for place in found}, numbers(cache, case.red))
        assert replaced(cache) == {"02": 1, "07": 1}


def test_an_image_that_a_block_has_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Both of its pictures are replaced at once: no further worker ends for the second one."""
    case = Case(tmp_path, monkeypatch, "threads", (4,))
    sampling = {"images_per_batch": BATCH, "samples_per_image": 2}
    case.armed.touch()
    with viewcache.open(case.config("store", sampling=sampling, on_bad_image="replace", epochs=1)) as cache:
        read(cache)
        assert replaced(cache) == {"04": 2}
    assert deaths(caplog) == TRIES


@pytest.mark.parametrize("kind", HOWS)
def test_with_raise_its_batch_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The batch that has it is an error with its name; the other one of the epoch is read."""
    case = Case(tmp_path, monkeypatch, kind, (4,))
    case.armed.touch()
    with viewcache.open(case.config("store", epochs=1)) as cache:
        (number,) = numbers(cache, case.red)
        for iteration in range(COUNT // BATCH):
            if number in cache.task("train").describe(0, iteration).index:
                with pytest.raises(WorkerDied, match=rf"04\.png: 3 workers died on it, the last was .*{SAID[kind]}"):
                    cache.read("train", 0, iteration)
            else:
                assert len(cache.read("train", 0, iteration).keys) == BATCH


def job_of(images: int) -> Job:
    """A job that makes a block of so many images."""
    program, nothing = Program(()), np.zeros(0, np.int32)
    frames = np.zeros(1, np.int32)
    parts = [
        Part(
            VideoSource(f"/in/{k}.png", str(k), f"image{k}", b"", 1),
            Recipe(f"part{k}", program, nothing, frames, (1, 3, 4, 4), 0, 100),
        )
        for k in range(images)
    ]
    return Job(1, "/in/0.png", "0", "block", b"", (block_recipe("block", parts, 0, 1000),), FolderTarget("/", False))


def test_a_block_that_cannot_be_begun_fails_its_job() -> None:
    """What we did not think of ends no worker: the job's report says what it was."""
    job = job_of(3)
    (block,) = job.clips
    (report,) = make_job(replace(job, clips=(replace(block, shape=(4, *block.shape[1:])),)), lambda: False)
    assert isinstance(report, Report)
    assert report.error_kind == Broken.kind
    assert report.error.startswith("0: Traceback")
    assert "reshape" in report.error


@given(st.lists(st.integers(-1, 2), min_size=MOST_TIMES * TRIES, max_size=MOST_TIMES * TRIES))
def test_what_is_to_blame(begun: list[int]) -> None:
    """The image that the two last of three deaths were on; where they are on many, the last one of six."""
    known, job = Deaths(), job_of(3)
    for count, image in enumerate(begun, 1):
        named = f"image{image}" if image >= 0 and count > 1 else ""
        assert known.watched(job).names_images == (count > 1)
        blame = known.add(Event(EventKind.DIED, job, reason="killed", begun=named))
        again = [each for each in begun[1:count] if each == image]
        if count == MOST_TIMES * TRIES or (count >= TRIES and len(again) >= TRIES - 1):
            assert blame is not None
            file = f"/in/{max(image, 0)}.png"
            assert blame.why == f"{file}: {count} workers died on it, the last was killed"
            assert (blame.whole, dict(blame.parts)) == (
                ((), {"block": {image: blame.why}}) if image >= 0 else (("block",), {})
            )
            assert not known
            return
        assert blame is None
        assert known
