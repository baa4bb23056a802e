"""Options that people know from other loaders, and where the same is set here."""

from collections.abc import Sequence

from viewcache.suggest import did_you_mean

__all__ = ["unknown_option"]

_ELSEWHERE = {
    "batch_sampler": "the order is drawn by the task's seed",
    "batch_size": "set videos_per_batch (and samples_per_video), or images_per_batch, under sampling in the "
    "configuration",
    "collate_fn": "a batch is a dict of tensors already",
    "drop_last": "set drop_last in the configuration's dataset",
    "frame_stride": "set it under sampling in the configuration",
    "frames_per_video": "set it under sampling in the configuration",
    "multiprocessing_context": "the cache has its own workers; set cache.worker_kind in the configuration",
    "num_replicas": "it is called world",
    "num_workers": "the cache has its own workers; set cache.workers in the configuration",
    "persistent_workers": "the cache has its own workers, which last until it is closed",
    "prefetch_factor": "it is called prefetch",
    "sampler": "the order is drawn by the task's seed",
    "seed": "set seed in the configuration's dataset or cache",
    "shuffle": "the order is drawn by the task's seed, another one in each epoch; for a fixed one "
    "set shuffle: false in the configuration's dataset",
    "transform": "describe it under augmentation in the configuration, or apply it to the batch in the loop",
    "world_size": "it is called world",
}
"""Options that people know from elsewhere → what there is instead."""


def unknown_option(name: str, known: Sequence[str]) -> str:
    """What to say about an option that the loader does not have."""
    instead = _ELSEWHERE.get(name) or did_you_mean(name, known) or "none is like it"
    return f"the loader has no option {name!r}: {instead}; it has {', '.join(known)}"
