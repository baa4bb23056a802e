"""All problems of a configuration at once, and what is allowed but most likely not meant.

The loader stops at the first error, as it must. Here what it complained of is taken out and the rest is checked again,
until nothing is left to complain of. An error that may only follow from something taken out is not told.
"""

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from viewcache.api.cli_terminal import size
from viewcache.api.config import Config, assemble, read_documents
from viewcache.api.yaml_reader import Node
from viewcache.errors import BadVideo, BudgetTooSmall, ConfigError, NotFound, ViewcacheError
from viewcache.materializer.dataset import Progress
from viewcache.materializer.sampling import clip_span
from viewcache.materializer.spec import Place, TaskSpec

__all__ = ["Problem", "lint"]

MOST_PROBLEMS = 100
"""A file with more has another problem."""
LITTLE = 0.5
"""Of a generation's clips: a budget that keeps less is worth a word."""

_MISSING = " needs the key "
"""In the message about a mapping that lacks a key: the place is the mapping's own, not that of an entry."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One line of lint."""

    level: str
    """``error`` (the configuration is refused) or ``warning``."""
    kind: str
    """Of the error; for warnings a word for what is odd."""
    message: str
    place: Place

    @property
    def text(self) -> str:
        """As compilers print it."""
        where = [self.place.file, *(str(n) for n in (self.place.line, self.place.column) if n)]
        return f"{':'.join(where)}: {self.level}: {self.message}"

    def as_dict(self) -> dict[str, object]:
        """The same as plain values."""
        return asdict(self)


def lint(paths: Sequence[str], *, scan: bool = False, progress: Progress | None = None) -> list[Problem]:
    """Check configuration files together.

    Args:
        paths: YAML files.
        scan: look at the videos too.
        progress: called while videos are looked at.

    Returns:
        Errors in the order of the files, then warnings.

    Raises:
        NotFound: a file does not exist.
    """
    written: list[tuple[Node, str]] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            written += read_documents(Path(path), [])
        except ConfigError as error:
            problems.append(_of(error))
    config, found = _all_errors(written)
    problems += found
    problems.sort(key=lambda problem: (problem.place.file, problem.place.line, problem.place.column))
    if config is not None:
        problems += _datasets(config, guess=not scan)
        if scan and not any(problem.level == "error" for problem in problems):
            problems += _scanned(config, progress)
    return problems


def _of(error: ConfigError) -> Problem:
    return Problem("error", error.kind, error.reason, Place(error.file, error.line, error.column))


def _all_errors(written: list[tuple[Node, str]]) -> tuple[Config | None, list[Problem]]:
    """The configuration, None unless it is whole, and every error."""
    problems: list[Problem] = []
    cuts = _Cuts()
    while written:
        try:
            config = assemble(written)
        except ConfigError as error:
            if not cuts.explain(error):
                problems.append(_of(error))
            written, done = cuts.without(written, error)
            if not done or len(problems) >= MOST_PROBLEMS:
                return None, problems
        else:
            return None if problems else config, problems
    return None, problems


class _Cuts:
    """What was taken out so far."""

    def __init__(self) -> None:
        self._keys: set[tuple[Place, str]] = set()
        """Place of a mapping and the key that was taken out of it."""

    def explain(self, error: ConfigError) -> bool:
        """Whether an error may come of what was taken out, and not of what the user wrote."""
        if not self._keys:
            return False
        place = Place(error.file, error.line, error.column)
        if not error.line or any(at == place and f"{_MISSING}{key}:" in error.reason for at, key in self._keys):
            return True
        return any(frame.filename.endswith("graph_check.py") for frame in traceback.extract_tb(error.__traceback__))

    def without(self, written: list[tuple[Node, str]], error: ConfigError) -> tuple[list[tuple[Node, str]], bool]:
        """The documents without what the error is about, and whether anything was found to take out."""
        place = Place(error.file, error.line, error.column)
        for position, (root, folder) in enumerate(written):
            if root.place.file != error.file:
                continue
            cut = self._cut(root, place, whole=_MISSING in error.reason)
            if cut is not root:
                kept = [] if cut is None else [(cut, folder)]
                return [*written[:position], *kept, *written[position + 1 :]], True
        return written, False

    def _cut(self, node: Node, place: Place, *, whole: bool) -> Node | None:
        """The node without its innermost part at a place; None if nothing is left, the node itself if nothing is there.

        A mapping in block style stands where its first key stands; ``whole`` says that the mapping is meant.
        """
        if isinstance(node.value, dict):
            for name, child in node.value.items():
                cut = None if node.keys[name] == place and not whole else self._cut(child, place, whole=whole)
                if cut is None:
                    return self._dropped(node, name)
                if cut is not child:
                    return replace(node, value={**node.value, name: cut})
        if isinstance(node.value, tuple):
            for number, child in enumerate(node.value):
                cut = self._cut(child, place, whole=whole)
                if cut is not child:
                    kept = () if cut is None else (cut,)
                    return replace(node, value=(*node.value[:number], *kept, *node.value[number + 1 :]))
        return None if node.place == place else node

    def _dropped(self, node: Node, name: str) -> Node | None:
        assert isinstance(node.value, dict)
        self._keys.add((node.place, name))
        entries = {key: child for key, child in node.value.items() if key != name}
        if not entries:
            return None
        return replace(node, value=entries, keys={key: place for key, place in node.keys.items() if key != name})


# What is allowed but odd ------------------------------------------------------------------------------------------


def _datasets(config: Config, *, guess: bool) -> Iterator[Problem]:
    """What can be told from the names of the files alone; ``guess`` what the budget keeps by their number."""
    from viewcache.materializer.discover import discover
    from viewcache.materializer.source import is_local

    for task in config.tasks:
        if not is_local(task.dataset.uri):
            continue
        try:
            files = len(discover(task.dataset.uri))
        except ViewcacheError as error:
            yield Problem("error", error.kind, str(error), task.place)
            continue
        batch = task.sampling.videos_per_batch
        if files < batch:
            empty = ", so with drop_last an epoch is empty" if task.drop_last else ""
            text = f"task {task.name!r}: a batch has {batch} videos, the dataset {files}{empty}"
            yield Problem("warning", "batch_larger_than_dataset", text, task.place)
        clip = _clip_bytes(task)
        if guess and clip:
            epochs = min(task.epochs, config.cache.epochs_per_generation)
            need = clip * files * task.sampling.samples_per_video * epochs
            yield from _little(config, task, min(1.0, config.cache.tiers[0].budget_bytes / need), need)


def _clip_bytes(task: TaskSpec) -> int:
    """Raw bytes of a clip where its size is written in the configuration, else 0."""
    shapes = [dict(op.params).get("shape") for step in task.steps for op in step.ops]
    last = next((shape for shape in reversed(shapes) if isinstance(shape, tuple) and len(shape) == 2), None)
    return task.sampling.frames_per_video * 3 * int(last[0]) * int(last[1]) if last else 0


def _little(config: Config, task: TaskSpec, kept: float, need: int) -> Iterator[Problem]:
    if kept < LITTLE:
        budget = size(config.cache.tiers[0].budget_bytes)
        text = (
            f"task {task.name!r}: cache.budget {budget} keeps about {kept:.0%} of the {size(need)} that a "
            "generation takes; the rest is made again when it is read"
        )
        yield Problem("warning", "budget_keeps_little", text, task.place)


def _scanned(config: Config, progress: Progress | None) -> Iterator[Problem]:
    """What only the videos themselves tell."""
    from viewcache.api.planning import planned_tasks

    with planned_tasks(config, progress) as tasks:
        for task, _, refused in tasks:
            spec = task.spec
            yield from (Problem("warning", "refused", text, spec.place) for text in refused)
            for bad in task.dataset.bad:
                yield Problem("warning", "bad_video", f"task {spec.name!r}: {bad.error}", spec.place)
            try:
                plan = task.generation(0).plan
            except (BadVideo, NotFound, BudgetTooSmall, ViewcacheError) as error:
                yield Problem("error", error.kind, f"task {spec.name!r}: {error}", spec.place)
                continue
            span = clip_span(spec.sampling.frames_per_video, spec.sampling.frame_stride)
            short = int((plan.videos.frames < span).sum())
            if 2 * short > len(plan.videos):
                text = (
                    f"task {spec.name!r}: a clip spans {span} frames, but {short} of {len(plan.videos)} videos are "
                    f"shorter (on_short_video: {spec.dataset.on_short_video})"
                )
                yield Problem("warning", "clip_longer_than_videos", text, spec.place)
            summary = task.summary(0)
            yield from _little(config, task.spec, summary.kept_clips / max(summary.clips, 1), summary.clip_bytes)
