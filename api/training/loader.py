"""The PyTorch face: batches as dicts of tensors, read ahead by a thread, resumable in O(1).

There are no DataLoader workers and nothing is pickled: the clips lie in the store, and one thread reads them into
buffers that are used again when the training loop has let go of them.
"""

import os
import queue
import threading
from collections.abc import Iterator, Mapping
from reprlib import repr as short_repr
from typing import TYPE_CHECKING, Any, NoReturn

from viewcache.api.port import TaskSource
from viewcache.errors import BadInput, Closed, MissingExtra, WrongProcess
from viewcache.materializer.reading.batch import Batch, Buffers, rank_share

if TYPE_CHECKING:
    import torch


__all__ = ["LAYOUTS", "Loader"]

LAYOUTS = {"TCHW": (0, 1, 2, 3), "CTHW": (1, 0, 2, 3), "THWC": (0, 2, 3, 1)}
"""Axis order of a clip → permutation of (T,C,H,W); other layouts than TCHW are strided views of the same memory."""

POLL_S = 0.2
"""How soon a reading thread whose batches nobody takes notices that the loop ended or the cache was closed."""

JOIN_S = 5.0
"""How long the end of a loop waits for its thread. Bounded: the garbage collector may end a loop in any thread, also in
one that holds a lock which the reading thread waits for."""

_Ready = queue.Queue[Batch | BaseException | None]


class Loader:
    """Iterates over the batches of one task, for one rank.

    Each batch is a dict: ``video`` uint8 (b,T,C,H,W) in the task's layout (or what its read-time operations make),
    ``label`` int64 (b,), ``index`` int64 (b,) ids of the videos, ``frame`` int64 (b,T), ``time_s`` float64 (b,T).
    A batch counts as read when it is handed out. Iterating again goes on behind the last batch that was; at the end of
    the last epoch it starts over. It is a `torch.utils.data.IterableDataset`, for `DataLoader(loader, batch_size=None)`
    without workers.
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

        Raises:
            MissingExtra: torch is not installed.
            BadInput: epochs, rank, world, layout or prefetch are out of range, a rank would get an empty batch, there
                is no such device, or processes of torch.distributed would have different orders.
            ViewNotFound: no such task, or more epochs than it has.
        """
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
        self._epoch = 0
        self._iteration = 0
        self._loaded = False

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
        ranks = distributed.get_world_size() if joined and world is None else 1
        if ranks > 1 and self._cache.task(self.task).draws_together:
            raise BadInput(
                f"task {self.task!r} draws its order with other tasks, which no other process can know, so ranks would "
                "read different batches; set coordination: independent under its sampling, or open it alone"
            )
        return (
            (distributed.get_rank() if joined else 0) if rank is None else rank,
            (distributed.get_world_size() if joined else 1) if world is None else world,
        )

    def __len__(self) -> int:
        """Batches in one epoch, the same for every rank."""
        return self._iterations(self._epoch if self._epoch < self.epochs else 0)

    def _iterations(self, epoch: int) -> int:
        return self._cache.task(self.task).iterations(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the loop is, namely the batch that comes next: constant size, valid for any number of ranks."""
        return {**self._same, "epoch": self._epoch, "iteration": self._iteration}

    def load_state_dict(self, state: Any) -> None:
        """Go on from a state, also with another number of ranks; after a state of the end nothing is left to read.

        Raises:
            BadInput: not a state of this task's loader, or of a place that it does not have.
        """
        told = f"not a state of the loader of task {self.task!r}: {short_repr(state)}"
        if not isinstance(state, Mapping) or state.keys() != self.state_dict().keys():
            raise BadInput(f"{told}; it has the keys {', '.join(self.state_dict())}")
        for name, own in self._same.items():
            if state[name] != own:
                raise BadInput(f"{told}; its {name} is {state[name]!r}, here it is {own!r}")
        epoch, iteration = state["epoch"], state["iteration"]
        if type(epoch) is not int or type(iteration) is not int or epoch < 0 or iteration < 0:
            raise BadInput(f"{told}; epoch and iteration are whole numbers from 0")
        if (epoch, iteration) > (self.epochs, 0):
            raise BadInput(f"{told}; this loader has epochs 0 to {self.epochs - 1}: raise its option epochs")
        if epoch < self.epochs and iteration >= self._iterations(epoch):
            raise BadInput(f"{told}; epoch {epoch} has iterations 0 to {self._iterations(epoch) - 1}")
        self._epoch, self._iteration = epoch, iteration
        self._loaded = True

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: a cache lives in one process."""
        raise WrongProcess(
            f"the loader of task {self.task!r} cannot be sent to another process: iterate over it here, or open the "
            "cache there; a DataLoader around it needs num_workers=0, because the cache has its own workers"
        )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the remaining batches.

        Raises:
            WrongProcess: this is a worker of a DataLoader, or another child of the process that opened the cache.
            Closed: the cache was closed.
        """
        worker = self._torch.utils.data.get_worker_info()
        if worker is not None:
            raise WrongProcess(
                f"this is worker {worker.id} of a DataLoader with num_workers={worker.num_workers}: iterate over the "
                "loader itself or use num_workers=0, because the cache has its own workers"
            )
        self._cache.check_open()
        if self._epoch >= self.epochs and not self._loaded:
            self._epoch = self._iteration = 0
        self._loaded = False
        return self._batches(self._epoch, self._iteration)

    def _batches(self, epoch: int, iteration: int) -> Iterator[dict[str, Any]]:
        ready: _Ready = queue.Queue()
        room, stop = threading.Semaphore(self._prefetch), threading.Event()
        args = (epoch, iteration, ready, room, stop)
        thread = threading.Thread(target=self._read, args=args, name="viewcache-loader", daemon=True)
        thread.start()
        pid = os.getpid()
        try:
            while True:
                self._cache.check_open()  # also because in a forked child nobody would ever put something
                item = ready.get()
                self._cache.check_open()  # comes first: what closing did to the thread is no news
                if item is None:
                    return
                if isinstance(item, BaseException):
                    try:
                        raise item
                    finally:
                        del item  # its traceback refers to this frame
                tensors = self._tensors(item)
                self._count(item.epoch, item.iteration)
                del item  # the buffer must be free again when the training loop lets go of the tensors
                yield tensors
                del tensors
                room.release()  # not before: while the loop goes on to the next batch, it has both
        finally:
            # In a forked child the thread does not exist, and the queue's lock may be held for ever.
            if os.getpid() == pid:
                stop.set()
                room.release()
                _drain(ready)
                if thread is not threading.current_thread():
                    thread.join(JOIN_S)

    def _count(self, epoch: int, iteration: int) -> None:
        """Note that a batch is handed out: the next one is what is left."""
        last = iteration + 1 >= self._iterations(epoch)
        self._epoch, self._iteration = (epoch + 1, 0) if last else (epoch, iteration + 1)

    def _read(
        self, epoch: int, iteration: int, ready: _Ready, room: threading.Semaphore, stop: threading.Event
    ) -> None:
        """The reading thread: batches in order, then None; an error ends it."""
        try:
            buffers = Buffers()
            task = self._cache.task(self.task)
            while epoch < self.epochs:
                if iteration >= task.iterations(epoch):
                    epoch, iteration = epoch + 1, 0
                    continue
                batch = task.read(epoch, iteration, self.rank, self.world, buffers, stop)
                if batch is None or not self._put(ready, batch, room, stop):
                    return
                del batch
                iteration += 1
            self._put(ready, None, room, stop)
        except BaseException as error:  # it belongs to the consumer, in whose loop it is raised
            self._put(ready, error, room, stop)

    def _put(
        self, ready: _Ready, item: Batch | BaseException | None, room: threading.Semaphore, stop: threading.Event
    ) -> bool:
        """Wait until there is room; False when nobody will ask for it any more."""
        while not stop.is_set():
            if room.acquire(timeout=POLL_S):
                ready.put(item)
                return True
            try:
                self._cache.check_open()
            except Closed:
                return False
        return False

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


def _drain(ready: _Ready) -> None:
    while True:
        try:
            ready.get_nowait()
        except queue.Empty:
            return
