"""The dependent sampler by itself, for any indexed dataset, images too (JOADER §4; docs/sampling.md).

Jobs that train at the same time on overlapping data each get a uniformly random order, and these orders coincide as
often as they can, so that what one job loads the others find in a cache. Nothing here knows of videos or catalogs.
"""

import threading
from array import array
from collections.abc import Iterable, Iterator, Mapping
from reprlib import repr as short_repr
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from viewcache.api.arguments import integer, text
from viewcache.errors import BadInput, Closed, Misuse, NotFound
from viewcache.materializer.planning.joint_order import DependentOrder, KeyedChance

if TYPE_CHECKING:
    from torch.utils.data import Sampler

__all__ = ["DependentSampler", "JobSampler"]


class DependentSampler:
    """Draws the orders of all jobs over one dataset. Thread-safe; jobs may join and leave at any time."""

    def __init__(self, elements: int, *, seed: int = 0, ahead: int = 64) -> None:
        """Start without jobs.

        Args:
            elements: how many the dataset has; an element is an index below.
            seed: of the random numbers.
            ahead: how far, in elements, the orders of slower jobs may be drawn while faster ones draw. It bounds how
                long a cache must keep an element for the slowest job; jobs further apart draw apart.

        Raises:
            BadInput: what is given is no whole number, or out of range.
        """
        self.elements = integer("elements", elements, least=1)
        self.seed = integer("seed", seed)
        self.ahead = integer("ahead", ahead, least=1)
        self._order = DependentOrder(self.elements, KeyedChance(self.seed))
        self._jobs: dict[str, JobSampler] = {}
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        """Say who draws from what."""
        return f"DependentSampler({self.elements} elements, jobs: {', '.join(self._jobs) or 'none'})"

    @property
    def jobs(self) -> tuple[str, ...]:
        """Names of the jobs, in the order in which they joined."""
        return tuple(self._jobs)

    def join(self, name: str, elements: Iterable[int] | None = None, *, epochs: int | None = None) -> "JobSampler":
        """Let a job draw from now on.

        Args:
            name: of the job; its random numbers depend on it and on the seed.
            elements: what it trains on, distinct indices in any order; None is all.
            epochs: how many it will have. Known, its next epoch is drawn before the last one is used up.

        Raises:
            BadInput: the name is taken or no text, or there are no elements, or an element is out of range or given
                twice.
        """
        name = text("name", name)
        try:
            chosen = np.arange(self.elements) if elements is None else np.array([*elements])
        except (TypeError, ValueError):  # nothing to go through, or lists of different lengths
            raise BadInput(f"elements={short_repr(elements)}: distinct indices are needed, or None for all") from None
        if len(chosen) == 0 or chosen.dtype.kind not in "iu" or chosen.ndim != 1:
            raise BadInput(f"job {name!r} needs elements, as whole numbers; got {len(chosen)} of {chosen.dtype}")
        most = None if epochs is None else integer("epochs", epochs, least=1)
        with self._lock:
            job = JobSampler(self, name, chosen.astype(np.int64), most)
            self._order.insert(name, job.elements)
            self._jobs[name] = job
            return job

    def leave(self, name: str) -> None:
        """Let a job go; what it has not been handed is not drawn for it any more.

        Raises:
            NotFound: there is no such job.
        """
        with self._lock:
            if self._jobs.pop(name, None) is None:
                raise NotFound(f"no job {name!r}; there are {', '.join(self._jobs) or 'none'}")
            self._order.remove(name)

    def references(self) -> NDArray[np.int64]:
        """(elements,) how many jobs have each element still before them in their epochs: JOADER's reference counts.

        A cache that gives up the lowest first keeps what will be asked for again.
        """
        with self._lock:
            counts = self._order.needs()
            for job in self._jobs.values():
                np.add.at(counts, job._waiting(), 1)
            return counts

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on: what each job has drawn and been handed. Nothing else is remembered."""
        with self._lock:
            return {
                "elements": self.elements,
                "seed": self.seed,
                "jobs": {name: job._state() for name, job in self._jobs.items()},
            }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken; jobs that joined before are replaced, those of the state are back.

        `job` gives them to you. What was drawn stays as it was drawn.

        Raises:
            BadInput: it is no such state, or that of a dataset of another size or of another seed. Nothing has changed.
        """
        given: object = state
        if not isinstance(given, Mapping) or not given.keys() >= {"elements", "seed", "jobs"}:
            raise BadInput(f"load_state_dict: state={short_repr(given)}: what `state_dict` gave is needed")
        for what in ("elements", "seed"):
            if state[what] != getattr(self, what):
                raise BadInput(
                    f"the state has {what} = {state[what]}, this sampler {getattr(self, what)}; make one like the other"
                )
        order = DependentOrder(self.elements, KeyedChance(self.seed))
        jobs: dict[str, JobSampler] = {}
        try:
            for name, kept in state["jobs"].items():
                elements = np.asarray(kept["elements"], np.int64)
                job = JobSampler(self, name, elements, kept["epochs"])
                needs = job._restore(kept)
                order.insert(name, needs, epoch=job._drawing, position=len(elements) - len(needs))
                jobs[name] = job
        except BadInput:
            raise
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            what = f"{type(error).__name__}: {error}"
            raise BadInput(f"load_state_dict: the jobs of state are not what `state_dict` gave ({what})") from error
        with self._lock:
            self._order, self._jobs = order, jobs

    def job(self, name: str) -> "JobSampler":
        """The sampler of a job.

        Raises:
            NotFound: there is no such job.
        """
        if name not in self._jobs:
            raise NotFound(f"no job {name!r}; there are {', '.join(self._jobs) or 'none'}")
        return self._jobs[name]

    def _next(self, job: "JobSampler", epoch: int) -> int | None:
        """Hand a job its next element; None when the epoch is over, or another loop of the job has gone on."""
        with self._lock:
            if self._jobs.get(job.name) is not job or job.epoch != epoch or job.handed == len(job):
                return None
            if not job._ahead():
                self._draw(job)
            element = job._drawn[epoch][job.handed]
            job.handed += 1
            return element

    def _draw(self, job: "JobSampler") -> None:
        """One round, with all jobs whose order is not drawn far ahead already: drawn as late as can be."""
        for pick in self._order.draw([each.name for each in self._jobs.values() if each._ahead() < self.ahead]):
            self._jobs[pick.job]._drawn[pick.epoch].append(pick.element)
            if not self._order.left(pick.job):
                self._go_on(self._jobs[pick.job])

    def _go_on(self, job: "JobSampler") -> None:
        """An epoch is drawn; the next one begins if the job will have it for certain."""
        if job.epochs is not None and job._drawing + 1 < job.epochs:
            self._open(job, job._drawing + 1)

    def _open(self, job: "JobSampler", epoch: int) -> None:
        self._order.remove(job.name)
        job._drawing = epoch
        job._drawn[epoch] = array("q")
        self._order.insert(job.name, job.elements, epoch=epoch)


class JobSampler:
    """The order of one job: ``for index in sampler`` is one epoch. A DataLoader takes it as ``sampler``.

    A loop that was left early goes on behind the last element it was handed. Make it with `DependentSampler.join`.
    """

    def __init__(
        self, shared: DependentSampler, name: str, elements: NDArray[np.int64], epochs: int | None = None
    ) -> None:
        """Stand before the first epoch."""
        self.name = name
        self.elements = elements
        """(n,) int64: what an epoch has."""
        self.epochs = epochs
        self.epoch = 0
        """That is being handed out."""
        self.handed = 0
        """Elements of it that have been."""
        self._shared = shared
        self._drawing = 0
        self._drawn = {0: array("q")}
        """Epoch → what is drawn of it, from the one that is being handed out on."""

    def __len__(self) -> int:
        """Elements of an epoch."""
        return len(self.elements)

    def __repr__(self) -> str:
        """Say where it stands."""
        return f"JobSampler({self.name!r}, epoch {self.epoch}: {self.handed} of {len(self)})"

    def __iter__(self) -> Iterator[int]:
        """Yield what is left of the epoch, or the next epoch when nothing is.

        Raises:
            Closed: the job has left.
            Misuse: it has had all its epochs.
        """
        epoch = self._begin()
        while (element := self._shared._next(self, epoch)) is not None:
            yield element

    def leave(self) -> None:
        """Draw no more; see `DependentSampler.leave`."""
        self._shared.leave(self.name)

    def as_torch(self) -> "Sampler[int]":
        """The same as a `torch.utils.data.Sampler`, for code that asks for the class."""
        from viewcache.api.training.torch_sampler import TorchSampler

        return TorchSampler(self)

    def _begin(self) -> int:
        with self._shared._lock:
            if self._shared._jobs.get(self.name) is not self:
                raise Closed(f"job {self.name!r} has left the sampler; join again")
            if self.handed == len(self):
                if self.epochs is not None and self.epoch + 1 >= self.epochs:
                    raise Misuse(f"job {self.name!r} has had its {self.epochs} epochs")
                self._drawn.pop(self.epoch)
                self.epoch, self.handed = self.epoch + 1, 0
                if self.epoch > self._drawing:
                    self._shared._open(self, self.epoch)
            return self.epoch

    def _ahead(self) -> int:
        """How many elements are drawn and not handed out."""
        return sum(map(len, self._drawn.values())) - self.handed

    def _waiting(self) -> NDArray[np.int64]:
        drawn = np.concatenate([np.frombuffer(each, np.int64) for each in self._drawn.values()])
        return drawn[self.handed :]

    def _state(self) -> dict[str, Any]:
        return {
            "elements": self.elements,
            "epochs": self.epochs,
            "epoch": self.epoch,
            "handed": self.handed,
            "drawn": {epoch: np.array(drawn) for epoch, drawn in self._drawn.items()},
        }

    def _restore(self, state: dict[str, Any]) -> NDArray[np.int64]:
        """Take over a state; returns what is not drawn yet of the epoch that is being drawn."""
        self.epoch, self.handed = state["epoch"], state["handed"]
        drawn = {epoch: np.asarray(each, np.int64) for epoch, each in state["drawn"].items()}
        self._drawn = {epoch: array("q", each.tobytes()) for epoch, each in drawn.items()}
        self._drawing = max(self._drawn)
        return np.setdiff1d(self.elements, drawn[self._drawing])
