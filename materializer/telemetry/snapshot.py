"""All counters of an open cache at one moment, as a frozen value: for metrics, the trace, status and tests."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Snapshot", "TaskCounts", "TierBytes", "counter_tracks"]


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """What the readers of one task did since the cache was opened."""

    batches: int
    hits: int
    """Clips that were there, with their audio, when they were asked for."""
    misses: int
    rebuilds: int
    """Objects whose stored bytes were damaged."""
    stalls: Mapping[str, float]
    """Seconds of reads by cause."""


@dataclass(frozen=True, slots=True)
class TierBytes:
    """What a tier holds."""

    used: int
    """Bytes of its objects."""
    reserved: int
    """Bytes promised to jobs."""
    budget: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All counters of an open cache; those that grow count from its opening."""

    tasks: Mapping[str, TaskCounts]
    tiers: Mapping[str, TierBytes]
    """By the tier's name, the fastest first."""
    passing: TierBytes
    """Memory for clips on their way from workers to readers, with places that wait for a clip; all 0 without any."""
    objects: int
    """Objects in the store, each counted once however many tiers hold it."""
    evictions: Mapping[tuple[str, str], int]
    """(tier, reason) → objects that left."""
    readers_waiting: int
    worker_seconds: Mapping[str, float]
    """Seconds that workers were busy, by stage."""
    work: Mapping[str, int]
    """What workers did: ``packets``, ``decoded``, ``converted`` frames, pictures that were ``loaded`` and of these
    ``resident`` ones from memory, ``objects`` and ``object_bytes``, and of these ``passed`` and ``passed_bytes``: what
    went to its reader through memory and was never stored."""
    jobs: int
    """Jobs that were given to workers."""
    jobs_running: int
    jobs_died: int
    """Jobs whose worker died."""
    generations: Mapping[str, int]
    """Generations planned, by task."""
    planning_s: Mapping[str, float]
    """Seconds of planning them, by task."""
    catalog_backlog: int
    """Small changes that wait to be committed to the catalog."""
    cpu_s: Mapping[tuple[str, str], float]
    """(class, stage) → core seconds."""
    joules: Mapping[str, float]
    """Energy by source: ``estimate`` for the cache, and ``rapl`` for the whole machine if it has meters."""


def counter_tracks(now: Snapshot) -> dict[str, dict[str, float]]:
    """The counter tracks of a trace: name → values by name."""
    tiers, tasks = now.tiers.values(), now.tasks.values()
    return {
        "bytes": {
            "used": sum(tier.used for tier in tiers),
            "reserved": sum(tier.reserved for tier in tiers),
            "budget": sum(tier.budget for tier in tiers),
        },
        "jobs running": {"jobs_running": now.jobs_running},
        "readers waiting": {"readers_waiting": now.readers_waiting},
        "clips": {"hits": sum(task.hits for task in tasks), "misses": sum(task.misses for task in tasks)},
        "objects in the store": {"objects": now.objects},
        "catalog backlog": {"catalog_backlog": now.catalog_backlog},
    }
