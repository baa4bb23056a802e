"""What of a task decides which files are listed, and how thoroughly they are looked into before it draws."""

import re
from collections.abc import Iterable
from dataclasses import replace

from viewcache.materializer.choices import OnBadVideo, OnChangedVideo, OnShortVideo, ProbeMode
from viewcache.materializer.dataset.labels import has_segments
from viewcache.materializer.spec import DatasetSpec, TaskSpec

__all__ = ["files_of", "needs_headers", "policies_among"]

_BY_HEADER = re.compile(r"\b(frames|fps|duration_s|height|width|codec|status)\b", re.IGNORECASE)
"""Columns of a predicate that are known of a video whose header was read."""
_BY_TIMES = re.compile(r"\b(fps|duration_s)\b", re.IGNORECASE)
"""Those that are sure only where it is known when frames are shown: some headers do not tell, and packets do."""


def files_of(task: TaskSpec, probe: ProbeMode | None = None) -> DatasetSpec:
    """What of a task decides which files are listed, and how they are looked into; ``probe`` in place of its own."""
    dataset = task.dataset
    if probe is None:
        # Who shares a dataset that grows sees it grow at the same place, so it is looked into in one way for all.
        columns = dataset.label_start_column, dataset.label_end_column
        timed = task.sampling.by_time or dataset.grows or has_segments(dataset.labels, *columns)
        # A video must not be selected by what its header claims, and be left out by what its packets tell later.
        timed = timed or _names(dataset, _BY_TIMES)
        by_header = ProbeMode.TIMES if timed else ProbeMode.LAZY
        probe = by_header if dataset.probe == ProbeMode.LAZY else dataset.probe
    listed = DatasetSpec(
        dataset.uri,
        max_pixels=dataset.max_pixels,
        probe=probe,
        follow_links=dataset.follow_links,
        link_roots=dataset.link_roots,
        media=dataset.media,
        exif=dataset.exif,
    )
    return replace(listed, input_source=dataset.input_source, settle=dataset.settle) if dataset.grows else listed


def policies_among(tasks: Iterable[TaskSpec], dataset: DatasetSpec) -> dict[str, OnChangedVideo]:
    """Task over a dataset → what it says of files that were replaced after it has drawn their videos."""
    return {each.name: each.dataset.on_changed_video for each in tasks if each.dataset.known_as == dataset.known_as}


def needs_headers(spec: DatasetSpec) -> bool:
    """Whether it cannot be said which videos are drawn before all headers are read.

    Orders must not depend on how far reading them is, or two caches would draw different ones. Of a dataset that grows
    only files join whose header was read.
    """
    skips = spec.on_bad_video == OnBadVideo.SKIP or spec.on_short_video == OnShortVideo.SKIP
    return spec.grows or skips or _names(spec, _BY_HEADER)


def _names(spec: DatasetSpec, columns: re.Pattern[str]) -> bool:
    """Whether a dataset's predicate names one of some columns."""
    return spec.where is not None and columns.search(spec.where) is not None
