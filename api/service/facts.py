"""What a process was told of a task whose cache another process owns, asked again of each run of the service.

A service that starts again lists the dataset anew: files may have come, gone or been replaced, and with them classes
may have other numbers. So a run is asked what the task is about before it is asked for anything that has labels, and
a class with another number is an error there: no batch that means something else is ever handed out.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from viewcache.api.service import answers, asks
from viewcache.api.service.asking import Ended, check_there
from viewcache.api.service.client import Client
from viewcache.api.service.connected import Connected
from viewcache.api.service.received import change_of
from viewcache.api.training.passes import worker_here
from viewcache.errors import BadInput
from viewcache.materializer.dataset.changes import FileChange, in_short
from viewcache.materializer.gate import Cancelled

__all__ = ["TaskFacts", "Told"]

_QUIET = FileChange.ADDED, FileChange.RETURNED
"""What takes nothing from what was drawn."""

A = TypeVar("A", bound=answers.Answer)

_log = logging.getLogger("viewcache.service")


@dataclass(frozen=True, slots=True)
class Told:
    """What a run of the service told; it goes along to processes that the cache is sent to."""

    run: str
    """Its incarnation."""
    about: answers.AboutTask
    classes: tuple[str, ...]
    """By number: what a label of a batch means to who reads."""
    changes: tuple[answers.ChangeOf, ...]
    """Of this run, behind those of the runs before it that this process asked."""
    shifted: str = ""
    """Why nothing with labels may be read of this run; empty if it may."""


class TaskFacts:
    """What is known of one task. Thread-safe; survives the service."""

    def __init__(self, client: Client, told: Told) -> None:
        """Go on from what was told, here or to the process that sent the cache."""
        self._client = client
        self.latest = told
        """By the last run that was asked; nothing is asked for it."""
        self._by_run = {told.run: told}

    @classmethod
    def of(cls, client: Client, name: str) -> "TaskFacts":
        """Those of a task, by its name at the service.

        Raises:
            ViewNotFound: there is no such task; the message lists those that there are.
        """
        session, about = client.asking(lambda _: (answers.AboutTask, asks.About(name)))
        return cls(client, Told(session.welcome.incarnation, about, about.classes, about.changes))

    def current(self) -> Told:
        """By the run that this process is connected to, which is asked if it was not yet."""
        return self._of(self._client.connected(), None)

    def ask(self, kind: type[A], ask: asks.Ask) -> A:
        """Ask for something with labels.

        Raises:
            BadInput: they would not mean what this process was told.
            ViewcacheError: what the service says.
        """
        return self.asking(lambda _: (kind, ask))[1]

    def asking(
        self,
        question: Callable[[Connected], tuple[type[A], asks.Ask]],
        cancelled: Cancelled | None = None,
        what: str = "",
    ) -> tuple[Connected, A]:
        """The same for a question that depends on the session; see `Client.asking`."""

        def checked(session: Connected) -> tuple[type[A], asks.Ask]:
            told = self._of(session, cancelled)
            if told.run != session.welcome.incarnation:
                raise Ended  # it is over by now: the one that has begun since is asked
            if told.shifted:
                check_there(session.control)  # the next run may have the numbers of before again
                raise BadInput(told.shifted)
            return question(session)

        return self._client.asking(checked, cancelled, what=what)

    def _of(self, session: Connected, cancelled: Cancelled | None) -> Told:
        told = self._by_run.get(session.welcome.incarnation)
        if told is None:
            ask = asks.About(self.latest.about.name)
            asked, about = self._client.asking(lambda _: (answers.AboutTask, ask), cancelled)
            told = self._learned(asked.welcome.incarnation, about)
        return told

    def _learned(self, run: str, about: answers.AboutTask) -> Told:
        before = self.latest
        moved = _moved(before.classes, about)
        shifted = self._shifted(moved) if moved else ""
        # Names that went from behind may come again elsewhere, and batches that have their numbers were handed out.
        keeps = bool(shifted) or (not about.grows and len(about.classes) < len(before.classes))
        classes = before.classes if keeps else about.classes
        past = (each for each in before.changes if each.change != FileChange.BAD)  # that each run tells anew
        told = Told(run, about, classes, (*past, *about.changes), shifted)
        known = self._by_run.setdefault(run, told)
        if known is told:  # of threads that ask at once one tells
            self.latest = told
            _tell(about)
        return known

    def _shifted(self, moved: tuple[str, ...]) -> str:
        return (
            f"task {self.latest.about.name!r}: the service was started again and listed the dataset anew, and its "
            f"labels do not mean any more what this process was told: {in_short(moved, len(moved))}. Open the cache "
            "again to read with the numbers of now; or, for a model that was trained with those of before, give the "
            "names in their old order, new ones behind them, as classes"
        )


def _moved(before: tuple[str, ...], about: answers.AboutTask) -> tuple[str, ...]:
    """Which numbers mean another class than before, in words: none where classes have only come or gone behind them."""
    if about.grows:  # its labels keep their numbers, but for some that nobody was handed yet
        return ()
    if bool(before) != bool(about.classes):
        were, are = ("names", "numbers") if before else ("numbers", "names")
        return (f"labels were {were} and are {are}",)
    now = {name: number for number, name in enumerate(about.classes)}
    return tuple(
        f"class {name!r} was {number} and is {now[name]}"
        if name in now
        else f"{number} was class {name!r} and is {new!r}"
        for number, (name, new) in enumerate(zip(before, about.classes, strict=False))
        if name != new
    )


def _tell(about: answers.AboutTask) -> None:
    """Log what a run that started meanwhile found, as opening a dataset does; of a DataLoader's workers one does."""
    worker = worker_here()
    if about.changes and (worker is None or worker.number == 0):
        level = logging.INFO if all(each.change in _QUIET for each in about.changes) else logging.WARNING
        what = "; ".join(str(change_of(each)) for each in about.changes)
        text = "task %r: the service was started again, and found: %s"
        _log.log(level, text, about.name, what, extra={"action": "files_changed"})
