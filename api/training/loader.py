"""Batches for a training loop, as those of torch's DataLoader: one pass is one epoch, read ahead by a thread.

The clips lie in the store, and one thread reads them into buffers that are used again when the training loop has let go
of them. No DataLoader workers are needed, and nothing is pickled. A pass and a state of it cost O(1) memory.
"""

import inspect
import warnings
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from reprlib import repr as short_repr
from typing import Any

from viewcache.api.arguments import flag, integer, optional, text
from viewcache.api.port import TaskSeat, TaskSource
from viewcache.api.training.frameworks import FRAMEWORKS, LAYOUTS, Torch
from viewcache.api.training.hand_over import HandOver
from viewcache.api.training.handed_out import handed_out
from viewcache.api.training.mixing import MixedBatches, Mixture
from viewcache.api.training.options import unknown_option
from viewcache.api.training.passes import SharedPasses, Worker, WorkerCopy, worker_here
from viewcache.api.training.places import Place, Turns
from viewcache.errors import BadInput, Closed, Misuse, UnknownOption, ViewcacheError, WrongProcess
from viewcache.materializer.choices import Layout
from viewcache.materializer.reading.batch import Batch, Buffers, check_rank, check_shares
from viewcache.materializer.shown import html_table

__all__ = ["Loader", "RepeatedEpochs"]


MOST_PREFETCH = 1000
"""Batches, each of which is in memory."""


class RepeatedEpochs(UserWarning):
    """A loader that had read all its epochs begins again with the first: in training that is most likely a mistake."""


@dataclass(frozen=True, slots=True)
class _ReadAhead:
    """A batch that was read ahead."""

    batch: Batch | dict[str, Any]
    mixture: Mixture | None
    """What it is mixed with; None where it is not mixed, or already is."""
    following: Place


_Feed = HandOver[_ReadAhead | None]
"""Batches in order, then None; or an error, which ends them."""


class Loader:
    """Iterates over the batches of one task, for one rank: each pass is the next epoch.

    Each batch is a dict: ``video`` uint8 (b,T,C,H,W) in the task's layout (or what its read-time operations make),
    ``label`` int64 (b,), ``index`` int64 (b,) ids of the videos, ``frame`` int64 (b,T), ``time_s`` float64 (b,T),
    ``sample`` int64 (b,) ordinals of the clips among those of their item, ``item`` int64 (b,) and ``start_s``,
    ``end_s`` float64 (b,) the segment that each is of, the task's ``fields``, and the numbers ``epoch`` and
    ``iteration``; with ``even`` also ``valid`` bool (b,). Several labels are float32 (b, classes). A task that mixes
    clips adds ``label_mixed`` float32 (b, classes), ``label_other`` like ``label`` and ``lam`` float32 (b,); one with
    audio ``audio`` float32 (b,C,n). A batch counts as read when it is handed out. It is a
    `torch.utils.data.IterableDataset`, for `DataLoader(loader, batch_size=None)`; with workers where a service owns the
    cache.
    """

    def __init__(
        self,
        cache: TaskSource,
        task: str,
        *,
        epochs: int | None = None,
        rank: int | None = None,
        world: int | None = None,
        layout: str | None = None,
        even: bool = False,
        prefetch: int = 2,
        framework: str = "torch",
        device: Any = None,
        pin_memory: bool = False,
        **unknown: object,
    ) -> None:
        """Describe what to read; nothing is read before the first pass.

        Args:
            cache: an open cache.
            task: its task's name.
            epochs: how many epochs, from the first; None = as the task says.
            rank: this process's number among ``world``; None asks the framework, or is 0.
            world: number of ranks; None asks the framework, or is 1.
            layout: axis order, None = as the task says.
            even: fill up each rank's part of a batch, so that all batches of all ranks have one shape; ``valid`` says
                which rows are clips. False = the ranks' parts differ by one video, and the last batch of an epoch is
                as short as it is.
            prefetch: batches that are read before they are asked for.
            framework: what a batch is made of: ``torch``, ``numpy`` or ``jax``.
            device: where the tensors go. The reading thread sends them to a GPU ahead, through pinned memory.
            pin_memory: of tensors that stay on the CPU, or go to another accelerator; without any it changes nothing.
            unknown: refused, with what to do instead.

        Raises:
            MissingExtra: the framework is not installed.
            UnknownOption: there is no such option, as one of DataLoader's.
            BadInput: an option is of another type or out of range, a rank would get an empty batch, there is no such
                device, ranks in several processes would have different orders, or a task mixes labels and it is not
                known how many classes there are.
            ViewNotFound: no such task, or more epochs than it has.
        """
        if unknown:
            known = inspect.signature(Loader).parameters.values()
            options = [each.name for each in known if each.kind is each.KEYWORD_ONLY]
            raise UnknownOption(unknown_option(next(iter(unknown)), options))
        if text("framework", framework) not in FRAMEWORKS:
            raise BadInput(f"framework {framework!r} is not one of {', '.join(FRAMEWORKS)}")
        self._framework = FRAMEWORKS[framework](device, flag("pin_memory", pin_memory))
        if isinstance(self._framework, Torch):
            self._framework.register(Loader)
        self._cache = cache
        self.task = task = text("task", task)
        handle = cache.task(task)
        self.layout = handle.layout if layout is None else layout
        fitting = Layout.of(Layout(handle.layout).media)
        if self.layout not in fitting:
            raise BadInput(f"layout {self.layout!r} is not one of {', '.join(fitting)}")
        self._prefetch = integer("prefetch", prefetch, least=1, most=MOST_PREFETCH)
        epochs = optional(integer, "epochs", epochs)
        self.epochs = handle.epochs if epochs is None else epochs
        if self.epochs < 1:
            raise BadInput(f"epochs={epochs}: at least 1; leave it out for all {handle.epochs} of task {task!r}")
        handle.check_epochs(self.epochs)
        own_rank, own_world = self._framework.place()
        self.rank = own_rank if rank is None else integer("rank", rank)
        self.world = own_world if world is None else integer("world", world)
        handle.check_world(self.world)
        check_rank(self.rank, self.world)
        self.even = flag("even", even)
        for videos in {handle.videos_per_batch} if self.even else handle.batch_sizes():
            check_shares(videos, self.world, Layout(handle.layout).media)
        self._mixed = MixedBatches.of(handle, self.rank, self.world)
        # What makes (epoch, iteration) the same place for two loaders.
        self._same = {
            "task": task,
            "seed": handle.seed,
            "videos_per_batch": handle.videos_per_batch,
        }
        self._next = Place(0, 0, exactly=True)
        self._told = self._begun = False
        self._passes = SharedPasses() if cache.pid is None else None
        """What a DataLoader's workers have read; a process that owns its cache cannot have any."""
        self._version = 0
        self._buffers = cache.batch_memory.of(self._framework.buffers, self._prefetch + 2)
        self._copy = WorkerCopy()
        """What this process knows of passes as a worker."""
        self._options = {
            "epochs": epochs,
            "rank": self.rank,
            "world": self.world,
            "layout": layout,
            "even": self.even,
            "prefetch": self._prefetch,
            "framework": framework,
            "device": device,
            "pin_memory": pin_memory,
        }

    # What it is ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Batches in one epoch, the same for every rank."""
        return self._iterations(self._next.epoch if self._next.epoch < self.epochs else 0)

    def _iterations(self, epoch: int) -> int:
        return self._cache.task(self.task).iterations(epoch)

    def _facts(self) -> dict[str, object]:
        """What it says of itself; nothing is read or made for it."""
        epoch, iteration, _ = self._next
        facts = {
            "epochs": self.epochs,
            "rank": f"{self.rank} of {self.world}",
            "next": f"epoch {epoch}, iteration {iteration}" if epoch < self.epochs else "all epochs are read",
            "store": self._cache.where,
        }
        try:
            handle = self._cache.task(self.task)
            axes = LAYOUTS[self.layout]
            whole = handle.clip_shape
            lead, clip = whole[:-4], whole[-len(axes) :]
            clips = handle.videos_per_batch * handle.samples_per_video
            shape = (clips, *lead, *(clip[axis] for axis in axes))
        except ViewcacheError as error:
            return facts | {"state": error.kind}
        return {"batch": f"{shape} {self.layout}"} | facts

    def __repr__(self) -> str:
        """One line: task, batches, epochs, place and store."""
        facts = ", ".join(f"{name} {value}" for name, value in self._facts().items())
        return f"<viewcache.Loader of task {self.task!r}: {facts}>"

    def _repr_html_(self) -> str:
        """The same as a table, for a notebook."""
        return html_table(f"viewcache.Loader of task {self.task!r}", self._facts())

    # Where it is ---------------------------------------------------------------------------------------------------

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass read an epoch, as `DistributedSampler.set_epoch`; one that a state is in is finished first.

        An epoch beyond the last counts on from the first, with a warning, as a further pass would.

        Raises:
            BadInput: not a whole number from 0.
        """
        number = integer("epoch", epoch, least=0)
        ran = self._passes is not None and self._passes.last(self._version) is not None
        if self._next.exactly and self._next.epoch == number and not ran:
            return
        if number >= self.epochs:
            self._tell_of_repeating(number % self.epochs, stacklevel=3)
        self._move(Place(number % self.epochs, 0, exactly=True))

    def state_dict(self) -> dict[str, Any]:
        """Where the loop is, namely the batch that comes next: constant size, valid for any number of ranks.

        Raises:
            Misuse: the workers of a DataLoader read, so that this process does not know how far they are.
        """
        if not self._begun and self._cache.task(self.task).parts > 1:
            raise Misuse(
                f"the batches of task {self.task!r} are read by the workers of a DataLoader, and this process does not "
                "know which of them were handed out: iterate over the loader itself, or take the states of a "
                "torchdata StatefulDataLoader"
            )
        return self._state()

    def _state(self) -> dict[str, Any]:
        return {**self._same, "epoch": self._next.epoch, "iteration": self._next.iteration}

    def load_state_dict(self, state: Any) -> None:
        """Let the next pass go on from a state, also with another number of ranks, to the end of the state's epoch.

        After a state of the end the next pass has nothing to read.

        Raises:
            BadInput: not a state of this task's loader, or of a place that it does not have.
        """
        message = f"not a state of the loader of task {self.task!r}: {short_repr(state)}"
        if not isinstance(state, Mapping) or state.keys() != self._state().keys():
            raise BadInput(f"{message}; it has the keys {', '.join(self._state())}")
        for name, own in self._same.items():
            if state[name] != own:
                raise BadInput(f"{message}; its {name} is {state[name]!r}, here it is {own!r}")
        epoch, iteration = state["epoch"], state["iteration"]
        if type(epoch) is not int or type(iteration) is not int or epoch < 0 or iteration < 0:
            raise BadInput(f"{message}; epoch and iteration are whole numbers from 0")
        if (epoch, iteration) > (self.epochs, 0):
            raise BadInput(f"{message}; this loader has epochs 0 to {self.epochs - 1}: raise its option epochs")
        # A worker that is through with its part of an epoch waits there for the others.
        beyond = 0 if worker_here() is None else 1
        if epoch < self.epochs and iteration >= self._iterations(epoch) + beyond:
            raise BadInput(f"{message}; epoch {epoch} has iterations 0 to {self._iterations(epoch) - 1}")
        self._move(Place(epoch, iteration, exactly=True))

    def _move(self, place: Place) -> None:
        """Let the next pass begin at a place: here, or in a worker, or in all workers."""
        self._next = place
        if worker_here() is not None:
            self._copy.told()
        elif self._passes is not None:
            self._version = self._passes.move(place)

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to another process with the place of the loop; a cache that this process owns cannot.

        Raises:
            WrongProcess: this process owns the cache.
        """
        if self._cache.pid is None:
            return _again, (self._cache, self.task, self._options, self._next, self._passes, self._version)
        raise WrongProcess(
            f"the loader of task {self.task!r} cannot be sent to another process: iterate over it here, or open the "
            "cache there; a DataLoader around it needs num_workers=0, because the cache has its own workers; or let a "
            "service own it: cache.service: auto"
        )

    # Passes --------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the batches of the next epoch, or those that a state has left of its own.

        Raises:
            WrongProcess: this is a worker of a DataLoader, or another child of the process that opened the cache.
            Closed: the cache was closed.
        """
        worker = self._checked_worker()
        start = self._start() if worker is None else self._start_in_worker(worker)
        turns = Turns(start.epoch, start.iteration, start.epoch)
        if worker is not None:
            turns = Turns(start.epoch, start.iteration, start.epoch, worker.number, worker.workers, in_worker=True)
        return self._loop(turns, start)

    def all_epochs(self) -> Iterator[dict[str, Any]]:
        """Yield the batches of the next epoch and of all that follow it, in one loop.

        Raises:
            Misuse: this is a worker of a DataLoader, whose passes are epochs.
            WrongProcess: this is another child of the process that opened the cache.
            Closed: the cache was closed.
        """
        if self._checked_worker() is not None:
            raise Misuse("all_epochs() in a worker of a DataLoader: let the DataLoader have the loader itself")
        start = self._start()
        return self._loop(Turns(start.epoch, start.iteration, self.epochs - 1), start)

    def _loop(self, turns: Turns, start: Place) -> Iterator[dict[str, Any]]:
        self._cache.check_open()
        if self._passes is not None and not turns.in_worker:  # workers that there are go on behind this loop
            self._version = self._passes.move(Place(turns.last + 1, 0, exactly=False))
        self._next = start
        self._begun = True
        feed = _Feed(self._prefetch)
        loop = self._batches(feed, turns)
        feed.watch(loop)
        return loop

    def _checked_worker(self) -> Worker | None:
        """Which of a DataLoader's workers this process is, if any."""
        worker = worker_here()
        if worker is not None and self._cache.pid is not None:
            raise WrongProcess(
                f"this is worker {worker.number} of a DataLoader with num_workers={worker.workers}: iterate over the "
                "loader itself or use num_workers=0, because the cache has its own workers; or let a service own the "
                "cache, cache.service: auto, which any process can read"
            )
        return worker

    def _start(self) -> Place:
        """Where the next pass of this process begins."""
        if self._passes is not None:
            last = self._passes.last(self._version)
            if last is not None:  # workers read since
                self._next = Place(last % self.epochs + 1, 0, exactly=False)
        epoch, iteration = self._next.begins()
        if epoch >= self.epochs and not self._next.exactly:
            self._tell_of_repeating(0, stacklevel=4)
            epoch = 0
        return Place(epoch, iteration, exactly=True)

    def _start_in_worker(self, worker: Worker) -> Place:
        """Where the next pass of a DataLoader begins: its workers agree on it."""
        assert self._passes is not None  # a service owns the cache
        start = self._copy.start(worker, self._passes, self._version, self._next, self.epochs)
        self._version = start.version
        if start.repeats and worker.number == 0:
            self._tell_of_repeating(0, stacklevel=4)
        return start.place

    def _tell_of_repeating(self, epoch: int, stacklevel: int) -> None:
        """Warn once: with one epoch, as for validation, beginning again is what people mean."""
        if self.epochs > 1 and not self._told:
            self._told = True
            warnings.warn(
                f"the passes over task {self.task!r} begin again, with epoch {epoch}: this loader has {self.epochs} "
                "epochs, and the pass before this one read the last of them. Training that goes on sees the same clips "
                "again: raise epochs of the task, and of the loader if it says any; for validation make a loader with "
                "epochs=1",
                RepeatedEpochs,
                stacklevel=stacklevel,
            )

    def _batches(self, feed: _Feed, turns: Turns) -> Generator[dict[str, Any], None, None]:
        try:
            feed.start(lambda: self._read(feed, turns), "viewcache-loader")
            while True:
                self._cache.check_open()  # also because in a forked child nobody would ever put something
                item = feed.get()
                self._cache.check_open()  # comes first: what closing did to the thread is no news
                if item is None:
                    if turns.epoch >= self.epochs and self._next.epoch >= self.epochs:
                        self._next = self._next._replace(exactly=False)  # the empty pass after a state of the end
                    return
                if isinstance(item, BaseException):
                    try:
                        raise item
                    finally:
                        del item  # its traceback refers to this frame
                tensors, following = self._made(item.batch, item.mixture), item.following
                del item  # the buffer must be free again when the training loop lets go of the tensors
                self._next = following  # handed out; python takes no interrupt between here and the yield
                yield tensors
                del tensors
                feed.let_go()  # not before: while the loop goes on to the next batch, it has both
        finally:
            feed.end()

    def _made(self, batch: Batch | dict[str, Any], mixture: Mixture | None) -> dict[str, Any]:
        """What is handed out: a plain dict, which any library walks through."""
        if isinstance(batch, dict):
            self._framework.taken(batch)
            return batch
        handle = self._cache.task(self.task)
        clips = -(-handle.videos_per_batch // self.world) * handle.samples_per_video if self.even else None
        return handed_out(batch, mixture, handle.finish, self._framework, self.layout, clips)

    # The reading thread --------------------------------------------------------------------------------------------

    def _read(self, feed: _Feed, turns: Turns) -> None:
        """The reading thread: batches in order, then None; an error ends it."""
        try:
            task = self._cache.task(self.task)
            place = turns.epoch, turns.iteration
            seat = task.sit(self.rank, self.world, turns.turn, turns.turns, *place)
            buffers = self._buffers.take()
            try:
                self._read_from(seat, feed, turns, buffers)
            finally:
                seat.rise()
                self._buffers.over(buffers, is_last=turns.last + 1 == self.epochs)
        except BaseException as error:  # it belongs to the consumer, in whose loop it is raised
            feed.put(error, self._is_open)

    def _read_from(self, seat: TaskSeat, feed: _Feed, turns: Turns, buffers: Buffers) -> None:
        buffers_before = Buffers()
        for epoch, iteration, following in turns.places(self.epochs, self._iterations):
            batch: Any = seat.read(epoch, iteration, buffers, feed)
            mixture = self._mixed.mixture(batch, buffers_before, feed) if batch is not None and self._mixed else None
            if batch is not None and self._framework.early:
                batch, mixture = self._made(batch, mixture), None
            if batch is None or not feed.put(_ReadAhead(batch, mixture, following), self._is_open):
                return
            del batch, mixture
        feed.put(None, self._is_open)

    def _is_open(self) -> bool:
        try:
            self._cache.check_open()
        except Closed:
            return False
        return True


def _again(
    cache: TaskSource, task: str, options: dict[str, Any], place: Place, passes: SharedPasses, version: int
) -> Loader:
    """The loader that was sent to this process."""
    loader = Loader(cache, task, **options)
    # The place is that of the version it was sent with: one that the loader moves to meanwhile is yet to be seen.
    loader._next, loader._passes, loader._version = place, passes, min(version, passes.version)
    return loader
