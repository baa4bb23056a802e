"""The PyTorch face: batches as dicts of tensors, read ahead by a thread, resumable in O(1).

The clips lie in the store, and one thread reads them into buffers that are used again when the training loop has let go
of them. No DataLoader workers are needed, and nothing is pickled.
"""

import inspect
import warnings
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from reprlib import repr as short_repr
from typing import TYPE_CHECKING, Any

from viewcache.api.port import TaskSeat, TaskSource
from viewcache.api.training.hand_over import HandOver
from viewcache.errors import BadInput, Closed, MissingExtra, Misuse, UnknownOption, WrongProcess
from viewcache.materializer.reading.batch import Batch, Buffers, rank_share
from viewcache.suggest import did_you_mean

if TYPE_CHECKING:
    import torch


__all__ = ["LAYOUTS", "Loader", "RepeatedEpochs"]

LAYOUTS = {"TCHW": (0, 1, 2, 3), "CTHW": (1, 0, 2, 3), "THWC": (0, 2, 3, 1)}
"""Axis order of a clip → permutation of (T,C,H,W); other layouts than TCHW are strided views of the same memory."""


_ELSEWHERE = {
    "batch_sampler": "the order is drawn by the task's seed",
    "batch_size": "set videos_per_batch (and samples_per_video) under sampling in the configuration",
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
    "shuffle": "the order is drawn by the task's seed, another one in each epoch, and cannot be switched off",
    "transform": "describe it under augmentation in the configuration, or apply it to the batch in the loop",
    "world_size": "it is called world",
}
"""Options that people know from elsewhere → what there is instead."""


class RepeatedEpochs(UserWarning):
    """A loop that had read all its epochs begins again with the first: in training that is most likely a mistake."""


@dataclass(frozen=True, slots=True)
class _ReadAhead:
    """A batch that was read ahead."""

    batch: Batch
    following: tuple[int, int]
    """Epoch and iteration of the next one."""


@dataclass(frozen=True, slots=True)
class _Turns:
    """Which batches a loop reads: from a place on all of them, or every so many in turn with others."""

    epoch: int
    iteration: int
    turn: int
    turns: int


_Feed = HandOver[_ReadAhead | None]
"""Batches in order, then None; or an error, which ends them."""


class Loader:
    """Iterates over the batches of one task, for one rank.

    Each batch is a dict: ``video`` uint8 (b,T,C,H,W) in the task's layout (or what its read-time operations make),
    ``label`` int64 (b,), ``index`` int64 (b,) ids of the videos, ``frame`` int64 (b,T), ``time_s`` float64 (b,T).
    A batch counts as read when it is handed out. Iterating again goes on behind the last batch that was; at the end of
    the last epoch it starts over. It is a `torch.utils.data.IterableDataset`, for
    `DataLoader(loader, batch_size=None)`; with workers where a service owns the cache.
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
        prefetch: int = 2,
        device: "str | torch.device | None" = None,
        pin_memory: bool = False,
        **unknown: object,
    ) -> None:
        """Describe what to read; nothing is read before the first iteration.

        Args:
            cache: an open cache.
            task: its task's name.
            epochs: how many epochs, from the first; None = as the task says.
            rank: this process's number among ``world``; None asks torch.distributed, or is 0.
            world: number of ranks; None asks torch.distributed, or is 1.
            layout: axis order, None = as the task says.
            prefetch: batches that are read before they are asked for.
            device: where the tensors go; copied without waiting when memory is pinned.
            pin_memory: copy into pinned memory first; without an accelerator there is nothing to pin for.
            unknown: refused, with what to do instead.

        Raises:
            MissingExtra: torch is not installed.
            UnknownOption: there is no such option, as one of DataLoader's.
            BadInput: epochs, rank, world, layout or prefetch are out of range, a rank would get an empty batch, there
                is no such device, or ranks in several processes would have different orders.
            ViewNotFound: no such task, or more epochs than it has.
        """
        if unknown:
            raise UnknownOption(_unknown(next(iter(unknown))))
        try:
            import torch
        except ImportError as missing:
            raise MissingExtra("the loader needs PyTorch: pip install 'viewcache[torch]'") from missing
        torch.utils.data.IterableDataset.register(Loader)
        self._torch = torch
        self._cache = cache
        self.task = task
        handle = cache.task(task)
        self.layout = handle.layout if layout is None else layout
        if self.layout not in LAYOUTS:
            raise BadInput(f"layout {self.layout!r} is not one of {', '.join(LAYOUTS)}")
        if prefetch < 1:
            raise BadInput(f"prefetch={prefetch}: at least 1")
        self.epochs = handle.epochs if epochs is None else epochs
        if self.epochs < 1:
            raise BadInput(f"epochs={epochs}: at least 1; leave it out for all {handle.epochs} of task {task!r}")
        handle.check_epochs(self.epochs)
        self.rank, self.world = self._place(rank, world)
        handle.check_world(self.world)
        for videos in handle.batch_sizes():
            rank_share(videos, 1, self.rank, self.world)
        self._prefetch = prefetch
        self._device = None if device is None else self._checked(device)
        self._pin = pin_memory and torch.accelerator.is_available()
        # What makes (epoch, iteration) the same place for two loaders.
        self._same = {
            "task": task,
            "seed": handle.seed,
            "videos_per_batch": handle.videos_per_batch,
        }
        self._next = 0, 0
        """Epoch and iteration of the batch that comes next: one value, so that no interrupt can part the two."""
        self._loaded = self._told = self._begun = False
        self._options = {
            "epochs": epochs,
            "rank": self.rank,
            "world": self.world,
            "layout": layout,
            "prefetch": prefetch,
            "device": device,
            "pin_memory": pin_memory,
        }

    def _checked(self, device: "str | torch.device") -> "torch.device":
        """The device, after a try: torch's own error would come with the first batch."""
        try:
            return self._torch.empty(0, device=device).device
        except (AssertionError, RuntimeError) as error:
            why = str(error).partition("\n")[0]
            raise BadInput(f"device {str(device)!r} is none that this PyTorch can use: {why}") from error

    def _place(self, rank: int | None, world: int | None) -> tuple[int, int]:
        distributed = self._torch.distributed
        joined = distributed.is_available() and distributed.is_initialized()
        return (
            (distributed.get_rank() if joined else 0) if rank is None else rank,
            (distributed.get_world_size() if joined else 1) if world is None else world,
        )

    def __len__(self) -> int:
        """Batches in one epoch, the same for every rank."""
        epoch, _ = self._next
        return self._iterations(epoch if epoch < self.epochs else 0)

    def _iterations(self, epoch: int) -> int:
        return self._cache.task(self.task).iterations(epoch)

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
        epoch, iteration = self._next
        return {**self._same, "epoch": epoch, "iteration": iteration}

    def load_state_dict(self, state: Any) -> None:
        """Go on from a state, also with another number of ranks; after a state of the end nothing is left to read.

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
        if epoch < self.epochs and iteration >= self._iterations(epoch):
            raise BadInput(f"{message}; epoch {epoch} has iterations 0 to {self._iterations(epoch) - 1}")
        self._next = epoch, iteration
        self._loaded = True

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to another process with the place of the loop; a cache that this process owns cannot.

        Raises:
            WrongProcess: this process owns the cache.
        """
        if self._cache.pid is None:
            return _again, (self._cache, self.task, self._options, self._next, self._loaded)
        raise WrongProcess(
            f"the loader of task {self.task!r} cannot be sent to another process: iterate over it here, or open the "
            "cache there; a DataLoader around it needs num_workers=0, because the cache has its own workers; or let a "
            "service own it: cache.service: auto"
        )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the remaining batches.

        Raises:
            WrongProcess: this is a worker of a DataLoader, or another child of the process that opened the cache.
            Closed: the cache was closed.
        """
        turn, turns = self._turn()
        self._cache.check_open()
        self._begun = True
        if self._next[0] >= self.epochs and not self._loaded:
            self._next = 0, 0
            self._tell_of_repeating()
        self._loaded = False
        feed = _Feed(self._prefetch)
        loop = self._batches(feed, _Turns(*self._next, turn, turns))
        feed.watch(loop)
        return loop

    def _turn(self) -> tuple[int, int]:
        """Which of the batches this process reads, of how many in turn: those of a DataLoader's worker, or all."""
        worker = self._torch.utils.data.get_worker_info()
        if worker is None:
            return 0, 1
        if self._cache.pid is not None:
            raise WrongProcess(
                f"this is worker {worker.id} of a DataLoader with num_workers={worker.num_workers}: iterate over the "
                "loader itself or use num_workers=0, because the cache has its own workers; or let a service own the "
                "cache, cache.service: auto, which any process can read"
            )
        return worker.id, worker.num_workers

    def _tell_of_repeating(self) -> None:
        """Warn once: with one epoch, as for validation, beginning again is what people mean."""
        if self.epochs > 1 and not self._told:
            self._told = True
            warnings.warn(
                f"this loop over task {self.task!r} begins again with epoch 0, although a loop has read all "
                f"{self.epochs} epochs: one loop runs through all of them, so leave out the loop around it; to read "
                "epoch 0 again and again, make a loader with epochs=1",
                RepeatedEpochs,
                stacklevel=3,
            )

    def _batches(self, feed: _Feed, turns: "_Turns") -> Generator[dict[str, Any], None, None]:
        try:
            feed.start(lambda: self._read(feed, turns), "viewcache-loader")
            while True:
                self._cache.check_open()  # also because in a forked child nobody would ever put something
                item = feed.get()
                self._cache.check_open()  # comes first: what closing did to the thread is no news
                if item is None:
                    return
                if isinstance(item, BaseException):
                    try:
                        raise item
                    finally:
                        del item  # its traceback refers to this frame
                tensors, following = self._tensors(item.batch), item.following
                del item  # the buffer must be free again when the training loop lets go of the tensors
                self._next = following  # handed out; python takes no interrupt between here and the yield
                yield tensors
                del tensors
                feed.let_go()  # not before: while the loop goes on to the next batch, it has both
        finally:
            feed.end()

    def _read(self, feed: _Feed, turns: "_Turns") -> None:
        """The reading thread: batches in order, then None; an error ends it."""
        try:
            task = self._cache.task(self.task)
            place = turns.epoch, turns.iteration
            seat = task.sit(self.rank, self.world, turns.turn, turns.turns, *place)
            try:
                self._read_from(seat, feed, turns)
            finally:
                seat.rise()
        except BaseException as error:  # it belongs to the consumer, in whose loop it is raised
            feed.put(error, self._is_open)

    def _read_from(self, seat: TaskSeat, feed: _Feed, turns: "_Turns") -> None:
        buffers = Buffers()
        for number, (epoch, iteration, following) in enumerate(self._places(turns.epoch, turns.iteration)):
            if number % turns.turns == turns.turn:
                batch = seat.read(epoch, iteration, buffers, feed)
                if batch is None or not feed.put(_ReadAhead(batch, following), self._is_open):
                    return
                del batch
        feed.put(None, self._is_open)

    def _places(self, epoch: int, iteration: int) -> Iterator[tuple[int, int, tuple[int, int]]]:
        """Epoch and iteration of all batches from one on, each with those of the next."""
        while epoch < self.epochs:
            batches = self._iterations(epoch)
            for each in range(iteration, batches):
                yield epoch, each, (epoch, each + 1) if each + 1 < batches else (epoch + 1, 0)
            epoch, iteration = epoch + 1, 0

    def _is_open(self) -> bool:
        try:
            self._cache.check_open()
        except Closed:
            return False
        return True

    def _tensors(self, batch: Batch) -> dict[str, Any]:
        torch = self._torch
        video = self._cache.task(self.task).finish(torch.from_numpy(batch.video))
        lead = video.ndim - 4
        video = video.permute(*range(lead), *(lead + axis for axis in LAYOUTS[self.layout]))
        tensors = {
            "video": video,
            "label": torch.from_numpy(batch.label),
            "index": torch.from_numpy(batch.index),
            "frame": torch.from_numpy(batch.frame),
            "time_s": torch.from_numpy(batch.time_s),
        }
        if self._pin:
            tensors = {name: tensor.pin_memory() for name, tensor in tensors.items()}
        if self._device is not None:
            tensors = {name: tensor.to(self._device, non_blocking=self._pin) for name, tensor in tensors.items()}
        return tensors


def _again(cache: TaskSource, task: str, options: dict[str, Any], place: tuple[int, int], loaded: bool) -> Loader:
    """The loader that was sent to this process."""
    loader = Loader(cache, task, **options)
    loader._next, loader._loaded = place, loaded
    return loader


def _unknown(name: str) -> str:
    """What to say about an option that the loader does not have."""
    known = [each.name for each in inspect.signature(Loader).parameters.values() if each.kind is each.KEYWORD_ONLY]
    instead = _ELSEWHERE.get(name) or did_you_mean(name, known) or "none is like it"
    return f"the loader has no option {name!r}: {instead}; it has {', '.join(known)}"
