"""The PyTorch face: batches as dicts of tensors, read ahead by a thread, resumable in O(1).

There are no DataLoader workers and nothing is pickled: the clips lie in the store, and one thread reads them into
buffers that are used again when the training loop has let go of them.
"""

import queue
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from viewcache.errors import BadInput, MissingExtra
from viewcache.materializer.batch import Batch, rank_share

if TYPE_CHECKING:
    import torch

    from viewcache.api.session import Cache

__all__ = ["LAYOUTS", "Loader"]

LAYOUTS = {"TCHW": (0, 1, 2, 3), "CTHW": (1, 0, 2, 3), "THWC": (0, 2, 3, 1)}
"""Axis order of a clip → permutation of (T,C,H,W); other layouts than TCHW are strided views of the same memory."""


class Loader:
    """Iterates over the batches of one task, for one rank.

    Each batch is a dict: ``video`` uint8 (b,T,C,H,W) in the task's layout (or what its read-time operations make),
    ``label`` int64 (b,), ``index`` int64 (b,) ids of the videos, ``frame`` int64 (b,T), ``time_s`` float64 (b,T).
    Iterating again goes on where the last iteration stopped; at the end of the last epoch it starts over.
    """

    def __init__(
        self,
        cache: "Cache",
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
            pin_memory: copy into pinned memory first.

        Raises:
            MissingExtra: torch is not installed.
            BadInput: rank, world, layout or prefetch are out of range, or a rank would get an empty batch.
            ViewNotFound: no such task, or more epochs than it has.
        """
        try:
            import torch
        except ImportError as missing:
            raise MissingExtra("the loader needs PyTorch: pip install 'viewcache[torch]'") from missing
        self._torch = torch
        self._cache = cache
        self.task = task
        spec = cache.task(task).spec
        self.layout = spec.layout if layout is None else layout
        if self.layout not in LAYOUTS:
            raise BadInput(f"layout {self.layout!r} is not one of {', '.join(LAYOUTS)}")
        if prefetch < 1:
            raise BadInput(f"prefetch={prefetch}: at least 1")
        self.epochs = spec.epochs if epochs is None else epochs
        cache.task(task).task.check_epochs(self.epochs)
        self.rank, self.world = self._place(rank, world)
        for videos in cache.task(task).task.batch_sizes():
            rank_share(videos, 1, self.rank, self.world)
        self._prefetch = prefetch
        self._device = device
        self._pin = pin_memory
        self._epoch = 0
        self._iteration = 0

    def _place(self, rank: int | None, world: int | None) -> tuple[int, int]:
        distributed = self._torch.distributed
        joined = distributed.is_available() and distributed.is_initialized()
        return (
            (distributed.get_rank() if joined else 0) if rank is None else rank,
            (distributed.get_world_size() if joined else 1) if world is None else world,
        )

    def __len__(self) -> int:
        """Batches in one epoch, the same for every rank."""
        return self._cache.task(self.task).task.iterations(self._epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the loop is: constant size, valid for any number of ranks."""
        return {"task": self.task, "epoch": self._epoch, "iteration": self._iteration}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state, also with another number of ranks.

        Raises:
            BadInput: not a state of this task's loader.
        """
        place = (state.get("epoch"), state.get("iteration"))
        if state.get("task") != self.task or not all(isinstance(number, int) and number >= 0 for number in place):
            raise BadInput(f"not a state of the loader of task {self.task!r}: {state!r}")
        self._epoch, self._iteration = state["epoch"], state["iteration"]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the remaining batches; a batch counts as read when the next one is asked for."""
        if self._epoch >= self.epochs:
            self._epoch = self._iteration = 0
        ready: queue.Queue[Batch | BaseException | None] = queue.Queue(self._prefetch)
        stop = threading.Event()
        start = (self._epoch, self._iteration)
        thread = threading.Thread(target=self._read, args=(start, ready, stop), name="viewcache-loader", daemon=True)
        thread.start()
        try:
            while True:
                item = ready.get()
                if item is None:
                    self._epoch, self._iteration = self.epochs, 0
                    return
                if isinstance(item, BaseException):
                    raise item
                self._epoch, self._iteration = item.epoch, item.iteration
                tensors = self._tensors(item)
                del item  # the buffer must be free again when the training loop lets go of the tensors
                yield tensors
                del tensors
                self._step()
        finally:
            stop.set()
            _drain(ready)
            thread.join()

    def _step(self) -> None:
        self._iteration += 1
        if self._iteration >= self._cache.task(self.task).task.iterations(self._epoch):
            self._epoch, self._iteration = self._epoch + 1, 0

    def _read(
        self, start: tuple[int, int], ready: "queue.Queue[Batch | BaseException | None]", stop: threading.Event
    ) -> None:
        """The reading thread: batches in order, then None; an error ends it."""
        from viewcache.materializer.batch import Buffers

        buffers = Buffers()
        reader = self._cache.task(self.task)
        epoch, iteration = start
        try:
            while epoch < self.epochs and not stop.is_set():
                if iteration >= reader.task.iterations(epoch):
                    epoch, iteration = epoch + 1, 0
                    continue
                batch = reader.read(epoch, iteration, self.rank, self.world, buffers, stop)
                if batch is None:
                    return
                _put(ready, batch, stop)
                del batch
                iteration += 1
            _put(ready, None, stop)
        except BaseException as error:  # it belongs to the consumer, in whose loop it is raised
            _put(ready, error, stop)

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


def _put(
    ready: "queue.Queue[Batch | BaseException | None]", item: Batch | BaseException | None, stop: threading.Event
) -> None:
    while not stop.is_set():
        try:
            ready.put(item, timeout=0.2)
            return
        except queue.Full:
            continue


def _drain(ready: "queue.Queue[Batch | BaseException | None]") -> None:
    while True:
        try:
            ready.get_nowait()
        except queue.Empty:
            return
