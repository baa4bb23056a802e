"""Videos and tasks that need no files, for benchmarks that plan and count but decode nothing."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from viewcache.api.config.load import Config, load
from viewcache.catalog import Catalog
from viewcache.catalog.records import TaskRow, VideoRow
from viewcache.materializer import randomness
from viewcache.materializer.dataset.dataset import Dataset
from viewcache.materializer.dataset.files import Files
from viewcache.materializer.dataset.listed import Found, Listed
from viewcache.materializer.dataset.recording import facts_table, key_found
from viewcache.materializer.dataset.segments import Items
from viewcache.materializer.dataset.texts import Keys, Texts
from viewcache.materializer.dataset.videos import Videos
from viewcache.materializer.media.facts import Scanned, VideoFacts
from viewcache.materializer.media.index import KEY, REFERENCE, VideoIndex
from viewcache.materializer.planning.graph import AbstractGraph
from viewcache.materializer.planning.order import draw_epoch
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.plan_generation import plan_generation
from viewcache.materializer.spec import TaskSpec
from viewcache.materializer.tasks.settings import TaskSettings
from viewcache.materializer.tasks.task import Task
from viewcache.materializer.telemetry.observer import Observer

__all__ = [
    "AskedTask",
    "dataset_of",
    "index_of",
    "plan_of",
    "recorded_files",
    "recorded_task",
    "task_of",
    "videos_of",
]

AskedTask = tuple[TaskSpec, AbstractGraph]


def dataset_of(
    tag: str, frames: int, stride: int, *, crop: int = 224, samples: int = 1, batch: int = 8, **more: object
) -> dict[str, object]:
    """A ``dataset`` section: resize to a short side of 256, crop at random, flip. ``more`` goes into ``sampling``."""
    operations = [
        {"resize": {"short_side": 256}},
        {"random_crop": {"shape": [crop, crop]}},
        {"flip": {"flip_prob": 0.5}},
    ]
    return {
        "tag": tag,
        "video_dataset_path": "/videos",
        "epochs": 1000,
        "sampling": {
            "videos_per_batch": batch,
            "frames_per_video": frames,
            "frame_stride": stride,
            "samples_per_video": samples,
            **more,
        },
        "augmentation": [{"branch_type": "single", "inputs": ["frame"], "outputs": ["a"], "config": operations}],
    }


def task_of(tag: str, frames: int, stride: int, **more: object) -> AskedTask:
    """The task of `dataset_of`, read as a configuration is."""
    config = load({"dataset": dataset_of(tag, frames, stride, **more)})  # type: ignore[arg-type]  # passed on
    return config.tasks[0], config.graph(config.tasks[0])


def videos_of(count: int, *, first: int = 0, frames: int = 300, height: int = 360, width: int = 480) -> Videos:
    """Videos number ``first`` and following, of one length and size, in frames and pixels; ids start at 1."""
    names = tuple(f"v{k:07}" for k in range(first, first + count))
    return Videos(
        ids=np.arange(first, first + count, dtype=np.int64) + 1,
        names=Texts.of(names),
        uris=Texts.of(f"/videos/{name}.mp4" for name in names),
        keys=Keys.of(f"{k:032x}" for k in range(first, first + count)),
        words=np.array([randomness.address_word(name) for name in names], np.uint64),
        frames=np.full(count, frames, np.int64),
        height=np.full(count, height, np.int64),
        width=np.full(count, width, np.int64),
        keyframes=np.full(count, 2, np.int64),
        file_bytes=np.full(count, frames * height * width // 20),
        native_bytes=np.full(count, height * width * 3 // 2, np.int64),
        pace=np.tile(np.array([[1000, 1]]), (count, 1)),
        last=np.full(count, (frames - 1) * 1000, np.int64),
    )


def index_of(frames: int, gop: int, *, height: int = 360, width: int = 480) -> VideoIndex:
    """The packet index of a video with a key frame every ``gop`` frames and no reordered frames."""
    flags = np.full(frames, REFERENCE, np.uint8)
    flags[::gop] |= KEY
    times = np.arange(frames, dtype=np.int64) * 512
    return VideoIndex(
        codec="h264",
        decoder="h264",
        extradata=b"",
        width=width,
        height=height,
        pix_fmt="yuv420p",
        color_space=2,
        color_range=0,
        rotation=0,
        time_base=(1, 15360),
        fps=30.0,
        mode="packets",
        stream=0,
        file_size=frames * 1000,
        mtime_ns=0,
        etag="",
        damage="",
        pos=np.arange(frames, dtype=np.int64) * 1000,
        size=np.full(frames, 1000, np.int32),
        crc=np.zeros(frames, np.uint32),
        pts=times,
        dts=times,
        flags=flags,
        order=np.arange(frames, dtype=np.int32),
        frame_pts=times,
    )


def plan_of(
    task: AskedTask, videos: Videos, *, epochs: int, number: int = 0, grid: int = 1, seed: int = 0, later: int = 0
) -> GenerationPlan:
    """A generation of so many epochs, in the orders that the task draws alone; ``later`` epochs come behind it."""
    spec, graph = task
    first = number * epochs
    spec = replace(spec, epochs=first + epochs + later)
    draws = np.stack([draw_epoch(seed, spec.name, epoch, len(videos)) for epoch in range(first, first + epochs)])
    return plan_generation(
        spec,
        graph,
        Items.whole(videos),
        draws,
        seed=seed,
        number=number,
        first_epoch=first,
        grid=grid,
        ticks_of=all_even,
    )


def all_even(video_id: int) -> NDArray[np.int64]:
    """These videos have evenly spaced frames, so nobody asks."""
    raise AssertionError(video_id)


def recorded_files(catalog: Catalog, count: int, index: VideoIndex) -> Files:
    """So many videos that all have this index, recorded as a scan records them."""
    dataset_id, facts, blob = catalog.register_dataset("/videos"), VideoFacts.of(index), index.to_bytes()
    uris = [f"/videos/v{k:07}.mp4" for k in range(count)]
    looked = [(Found(uri, uri, facts.stamp), Scanned(facts, b"blob")) for uri in uris]
    rows = [VideoRow(uri, Path(uri).stem, key_found(*each)) for uri, each in zip(uris, looked, strict=True)]
    ids = catalog.upsert_videos(dataset_id, rows)
    index_at = catalog.write_indexes([(row.key, blob) for row in rows])
    catalog.record_facts(facts_table(ids, looked, index_at))
    catalog.flush()
    listed = Listed.of(file for file, _ in looked)
    return Files(catalog, "/videos", dataset_id, catalog.load_videos(dataset_id), listed, {}, (), max_pixels=1 << 30)


def recorded_task(catalog: Catalog, config: Config, spec: TaskSpec, files: Files, epochs: int) -> Task:
    """A task over these videos, recorded as opening it records it; ``epochs`` are planned at once."""
    dataset = Dataset(spec.dataset, spec.sampling, files, catalog)
    sampling = spec.sampling
    row = TaskRow(
        name=spec.name,
        dataset_id=dataset.dataset_id,
        definition_key="",
        definition="",
        epochs=spec.epochs,
        videos_per_batch=sampling.videos_per_batch,
        samples_per_video=sampling.samples_per_video,
        frames_per_clip=sampling.frames_per_video,
        frame_stride=sampling.frame_stride,
        seed=0,
        drop_last=False,
    )
    settings = TaskSettings(0, epochs, 10**12)
    return Task(spec, config.graph(spec), settings, catalog, dataset, catalog.ensure_task(row).task_id, Observer())
