"""What is made before anybody waits: the generation that each reader is in, and the one after it.

Tasks that share clips are planned and announced together, so that one decode of a video serves all of them (SAND §5.2).
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from viewcache.errors import Closed, ViewcacheError
from viewcache.materializer.engine import Engine
from viewcache.materializer.task import Task

__all__ = ["LookAhead"]

_log = logging.getLogger("viewcache")


class LookAhead:
    """Plans in a thread of its own what readers will need, and tells the engine. Thread-safe."""

    def __init__(self, engine: Callable[[], Engine]) -> None:
        """Start with nobody reading; ``engine`` is asked for when there is something to make."""
        self._engine = engine
        self._lock = threading.Lock()
        self._current: dict[int, tuple[Task, int]] = {}
        """Task → the generation that its reader is in, or that others of its group are in when it was not read yet."""
        self._planner = ThreadPoolExecutor(1, thread_name_prefix="viewcache-planner")

    def reading(self, task: Task, number: int) -> None:
        """A generation is being read: make it, and plan the next one meanwhile."""
        with self._lock:
            if self._current.get(task.task_id) == (task, number):
                return
            self._current[task.task_id] = task, number
        if task.group is None:
            self._announce()
        self._planner.submit(self._plan, task, number)

    def forget(self, task: Task) -> None:
        """Nobody reads a task any more."""
        with self._lock:
            gone = self._current.pop(task.task_id, None)
        if gone is not None:
            self._announce()

    def close(self) -> None:
        """Plan no more."""
        self._planner.shutdown(cancel_futures=True)

    def _plan(self, task: Task, number: int) -> None:
        """Plan a generation and the next one, for all tasks that share clips with this one, and announce them."""
        wanted = [(task, n) for n in (number, number + 1) if n <= task.last_generation()]
        if task.group is not None:
            wanted += [each for _, n in list(wanted) for each in task.group.alike(task, n)]
        for each, generation in wanted:
            try:
                each.generation(generation)
            except Closed:
                return  # nobody will read it
            except ViewcacheError as error:
                # The reader that gets there meets it again; until then there is nothing to make.
                name = each.spec.name
                _log.warning("generation %d of %s: %s", generation, name, error, extra={"action": "plan_failed"})
            with self._lock:
                self._current.setdefault(each.task_id, (each, generation))
        with suppress(Closed):
            self._announce()

    def _announce(self) -> None:
        with self._lock:
            current = list(self._current.values())
        planned = [task.planned(each) for task, number in current for each in (number, number + 1)]
        self._engine().look_ahead([active for active in planned if active is not None])
