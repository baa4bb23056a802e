"""The encoded files that are kept near, as they were decided: work for the dispatcher, and rows of the catalog."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from viewcache.catalog import Catalog
from viewcache.materializer.planning.recipe import IntermediateObject, KeptFile
from viewcache.materializer.retention.chosen import Chosen, KeepSettings
from viewcache.materializer.retention.clip_sources import ClipSources, clip_code
from viewcache.materializer.retention.horizon import epochs_left
from viewcache.materializer.retention.intermediates import Named
from viewcache.materializer.retention.near import FarFile, far_files
from viewcache.materializer.retention.ways import ToCome
from viewcache.materializer.scheduling.generation import ActiveGeneration
from viewcache.materializer.scheduling.intermediate_work import FileWork, GenerationContext

__all__ = ["NearFiles"]


@dataclass(frozen=True, slots=True)
class _Decided:
    """Of one generation of the group."""

    work: FileWork | None = None
    near: dict[str, KeptFile] = field(default_factory=dict)
    """Content key of a video → the copy of its file."""


class NearFiles:
    """Which files are kept. The keeper's lock guards what decides; `near_of` may be called by any thread."""

    def __init__(self, catalog: Catalog, settings: KeepSettings, has: Callable[[str], bool], named: Named) -> None:
        """Nothing is decided yet; ``has`` says whether an object lies in the store, by its content key."""
        self._catalog, self._settings, self._has, self._named = catalog, settings, has, named
        self._decided: dict[int, _Decided] = {}

    def decide(
        self,
        group_generation: int,
        chosen: Chosen | None,
        plans: Sequence[ToCome],
        works: Sequence[ActiveGeneration],
        free_bytes: int,
    ) -> dict[int, int]:
        """Take over what was chosen of a generation; returns of how much use each file that is kept is expected to be.

        Whatever is kept from now on, a copy that lies there is used.
        """
        files = self._known(chosen, plans)
        kept = {} if chosen is None else chosen.kept_files()
        mine = {video: file for video, file in files.items() if video in kept or self._has(file.recipe.key)}
        if not mine:
            self._decided.pop(group_generation, None)
            return {}
        named = self._named([(video, file.video_id, file.recipe) for video, file in mine.items()])
        objects = [each for each in named if each.video in kept]
        epochs = max(epochs_left(each.plan) for each in plans)
        clips = {video: clip_code(file.row, file.plan, len(works)) for video, file in mine.items()}
        names = {each.recipe.key for each in objects} if epochs else set[str]()
        sources, needs = ClipSources(works, plans, clips), [work.unkept_due_in_s for work in works]
        work = FileWork(GenerationContext(group_generation, sources, needs, free_bytes, {}, names), objects)
        work.mark_present(self._has)
        near = {video: KeptFile(file.recipe.key, file.stamp) for video, file in mine.items()}
        self._decided[group_generation] = _Decided(work if objects else None, near)
        self._record(named, {each.object_id for each in objects})
        return {each.object_id: max(1, epochs) for each in objects}

    def _known(self, chosen: Chosen | None, plans: Sequence[ToCome]) -> "dict[str, FarFile]":
        if chosen is not None:
            return dict(chosen.files)
        return far_files(plans) if self._settings.keeps_files else {}

    def forget(self, group_generation: int) -> None:
        """A generation is not made any more."""
        self._decided.pop(group_generation, None)

    def works(self) -> list[FileWork]:
        """What is to be made."""
        return [each.work for each in list(self._decided.values()) if each.work is not None]

    def near_of(self, video: str) -> KeptFile | None:
        """The copy of a video's file, by the video's content key; None if none is kept, or lies there."""
        return next((each.near[video] for each in list(self._decided.values()) if video in each.near), None)

    def _record(self, named: Sequence[IntermediateObject], kept: set[int]) -> None:
        ids = np.array([each.object_id for each in named], np.int64)
        keep = pa.table({"object_id": ids, "keep": np.array([each in kept for each in ids.tolist()], bool)})
        nothing = pa.array([], pa.int64())
        edges = pa.table(
            {
                "parent_id": nothing,
                "child_id": nothing,
                "op": pa.array([], pa.string()),
                "cost_s": pa.array([], pa.float64()),
            }
        )
        self._catalog.record_keeping(keep, edges, [])
