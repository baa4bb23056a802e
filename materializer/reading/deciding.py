"""What becomes of clips that their video cannot give, decided beside the dispatcher, which serves all others meanwhile.

Whether a file has gone is asked where it lies, and the header of a video that may stand in is read there: both take as
long as a network takes that does not answer. The trade-off: a decision comes a moment later than the dispatcher asked.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from viewcache.catalog import Catalog
from viewcache.catalog.records import EventRow
from viewcache.errors import BadVideo, Closed, ViewcacheError
from viewcache.materializer.reading.frames import SingleWork
from viewcache.materializer.scheduling.bad_rows import Undecided
from viewcache.materializer.scheduling.generation import AudioSchedule
from viewcache.materializer.scheduling.intermediate_work import IntermediateWork
from viewcache.materializer.tasks.missing import has_gone
from viewcache.materializer.tasks.task import Task

__all__ = ["Deciding"]

_Decision = Callable[[], ViewcacheError | None]
_Answer = Future[ViewcacheError | None]


class Deciding:
    """Asks the policies of the open tasks, those of each on a thread that lasts as long as there are cases of it."""

    def __init__(self, catalog: Catalog, tasks: Callable[[], Sequence[Task]]) -> None:
        """Tell the catalog; ``tasks`` gives those that are open."""
        self._catalog = catalog
        self._tasks = tasks
        self._lock = threading.Lock()
        self._cases: dict[int, deque[tuple[_Decision, _Answer]]] = {}
        """Task → what its thread has yet to decide; an entry lasts as long as the thread."""

    def on_bad(self, work: Any, rows: list[int], why: str) -> ViewcacheError | None:
        """What a dispatcher asks of rows that could not be made, see `Dispatcher`; takes no time.

        Raises:
            Undecided: it is found out beside.
        """
        if isinstance(work, SingleWork | IntermediateWork):
            # A frame that was asked for by name has no substitute, and nobody waits for intermediates.
            return BadVideo(f"{why}; the frame cannot be made")
        task = next((task for task in self._tasks() if task.task_id == work.task_id), None)
        if task is None:
            return Closed(f"the task was left while {why}")
        keys = {row: work.key(row) for row in rows}
        answer = self._beside(task.task_id, partial(self._decide, task, work, keys, why))

        def then(*_: object) -> ViewcacheError | None:
            if not answer.done():
                raise Undecided
            return answer.result()

        raise Undecided(then)

    def _decide(self, task: Task, work: Any, keys: Mapping[int, str], why: str) -> ViewcacheError | None:
        clips = work.clips if isinstance(work, AudioSchedule) else work
        videos = {row: clips.video_id(clips.clip_of(row)) for row in keys}  # before the keys: a plan may be replaced
        still = _still(work, keys)
        gone = bool(still) and has_gone(task.dataset, videos[still[0]], self._catalog)
        still = _still(work, keys)  # that may have taken long
        if not still:  # what stands in by now is not what could not be made
            return None
        rows = sorted({clips.clip_of(row) for row in still})  # another video gives the clip and its audio
        told = f"missing_video: {why}" if gone else why
        self._catalog.add_events([EventRow("error", task.task_id, count=len(rows), detail=told)])
        return task.substitute(clips, rows, why, gone=gone)

    def _beside(self, task_id: int, decide: _Decision) -> _Answer:
        answer: _Answer = Future()
        with self._lock:
            waiting = self._cases.get(task_id, deque())
            if task_id not in self._cases:
                try:
                    threading.Thread(target=self._run, args=(task_id,), name="viewcache-deciding", daemon=True).start()
                except RuntimeError:  # the process has as many threads as it may: asked again, there may be one less
                    raise Undecided from None
                self._cases[task_id] = waiting
            waiting.append((decide, answer))
        return answer

    def _run(self, task_id: int) -> None:
        while True:
            with self._lock:
                if not self._cases[task_id]:
                    del self._cases[task_id]
                    return
                decide, answer = self._cases[task_id].popleft()
            try:
                answer.set_result(decide())
            except BaseException as error:  # is the asker's
                answer.set_exception(error)


def _still(work: Any, keys: Mapping[int, str]) -> list[int]:
    """Rows that nothing else gives by now."""
    return [row for row, key in keys.items() if work.key(row) == key]
