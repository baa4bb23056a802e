"""What a loader's batches are made of: PyTorch's tensors, NumPy's arrays or JAX's; none needs another to be installed.

A framework is imported when a loader asks for it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput, MissingExtra
from viewcache.materializer.choices import Layout, Media
from viewcache.materializer.field_values import FieldValues, Ragged, in_batch
from viewcache.materializer.reading.batch import Buffers

if TYPE_CHECKING:
    import torch

__all__ = ["FRAMEWORKS", "LAYOUTS", "Finish", "Framework", "tensors_in"]

LAYOUTS = {
    "TCHW": (0, 1, 2, 3),
    "CTHW": (1, 0, 2, 3),
    "THWC": (0, 2, 3, 1),
    "CHW": (0, 1, 2),
    "HWC": (1, 2, 0),
}
"""Axis order of a clip → permutation of (T,C,H,W), or of an image's (C,H,W); other layouts than TCHW and CHW are
strided views of the same memory."""

ReadArrays = Mapping[str, FieldValues]
"""``video`` (b,T,C,H,W), or (b,V,T,C,H,W) of several views; of images the same as ``image``, with one frame; further
arrays with a row for each clip, and fields of the label table."""

Finish = Callable[[Any], Any]
"""Applies the operations that run at reading to the pixels."""


class Framework(Protocol):
    """Makes a loader's batches out of what was read."""

    early: bool
    """Whether a batch is made when it is read ahead, and not when it is handed out."""

    def place(self) -> tuple[int, int]:
        """Rank and world of this process, where nobody says them."""

    def buffers(self) -> Buffers:
        """What pixels are read into."""
        return Buffers()

    def made(self, arrays: ReadArrays, finish: Finish, layout: str) -> dict[str, Any]:
        """The same arrays as the framework's, the pixels finished and in a layout."""

    def taken(self, made: Mapping[str, Any]) -> None:
        """Learn that a batch is handed out which was made early; in the training loop's thread."""
        return


class Torch(Framework):
    """Tensors that share the memory that was read into, unless they go to a device."""

    early = False

    def __init__(self, device: "str | torch.device | None", pin_memory: bool) -> None:
        """Make tensors on a device.

        Raises:
            MissingExtra: torch is not installed.
            BadInput: there is no such device.
        """
        try:
            import torch
        except ImportError as missing:
            raise MissingExtra("the loader needs PyTorch: pip install 'viewcache[torch]'") from missing
        self._torch = torch
        self.device = None if device is None else self._checked(device)
        self._pin = pin_memory and torch.accelerator.is_available()

    def register(self, kind: type) -> None:
        """Let a DataLoader take objects of a class as an IterableDataset."""
        self._torch.utils.data.IterableDataset.register(kind)

    def _checked(self, device: "str | torch.device") -> "torch.device":
        """The device, after a try: torch's own error would come with the first batch."""
        try:
            return self._torch.empty(0, device=device).device
        except (AssertionError, RuntimeError, TypeError) as error:
            why = str(error).partition("\n")[0]
            raise BadInput(f"device {str(device)!r} is none that this PyTorch can use: {why}") from error

    def place(self) -> tuple[int, int]:
        """As torch.distributed says, if it is initialized."""
        distributed = self._torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return 0, 1

    def made(self, arrays: ReadArrays, finish: Finish, layout: str) -> dict[str, Any]:
        """See `Framework.made`."""
        name, rest = _apart(arrays)
        tensors = {name: in_batch(values, self._tensor) for name, values in rest.items()}
        pixels = shown(finish(self._torch.from_numpy(arrays[name])), layout)
        return {name: self._placed(pixels.permute(*_axes(pixels.ndim, layout))), **tensors}

    def _tensor(self, array: NDArray[Any]) -> "torch.Tensor":
        return self._placed(self._torch.from_numpy(array))

    def _placed(self, tensor: "torch.Tensor") -> "torch.Tensor":
        """A tensor where the batch goes."""
        if self._pin:
            tensor = tensor.pin_memory()
        return tensor if self.device is None else tensor.to(self.device, non_blocking=self._pin)


class TorchOnGpu(Torch):
    """Tensors on a GPU, whole when they are handed out: neither the training loop nor its kernels wait for a copy.

    The reading thread reads into pinned memory, and sends from there on a stream of its own.
    """

    early = True

    def __init__(self, device: "torch.device") -> None:
        """Make tensors on a device that is there."""
        super().__init__(device, pin_memory=True)
        self._stream = _stream_to(device)

    def buffers(self) -> Buffers:
        """See `Framework.buffers`; pinned."""
        return Buffers(self._pinned)

    def _pinned(self, size: int) -> NDArray[np.uint8]:
        pinned: NDArray[np.uint8] = self._torch.empty(size, dtype=self._torch.uint8, pin_memory=True).numpy()
        return pinned

    def made(self, arrays: ReadArrays, finish: Finish, layout: str) -> dict[str, Any]:
        """See `Framework.made`. All is on the device when this returns: what was read into may be used again."""
        with self._torch.cuda.stream(self._stream):
            made = super().made(arrays, finish, layout)
        self._stream.synchronize()
        return made

    def taken(self, made: Mapping[str, Any]) -> None:
        """See `Framework.taken`. The memory of a batch becomes that of a later one when the loop's kernels have run."""
        reads = self._torch.cuda.current_stream(self.device)
        for tensor in tensors_in(made, self._torch.Tensor):
            tensor.record_stream(reads)


@cache
def _stream_to(device: "torch.device") -> "torch.cuda.Stream":
    """The one on which all loaders send: torch keeps what was freed for the stream that it was allocated on."""
    import torch

    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch has no types for it


class Arrays(Framework):
    """NumPy's arrays, which share the memory that was read into."""

    early = False

    def __init__(self, device: object, pin_memory: bool) -> None:
        """Make arrays.

        Raises:
            BadInput: a device or pinned memory is asked for, which NumPy does not have.
        """
        if device is not None or pin_memory:
            raise BadInput(
                f"device={device!r}, pin_memory={pin_memory}: NumPy's arrays lie in plain memory; leave both out, or "
                "take framework='torch' or 'jax'"
            )

    def place(self) -> tuple[int, int]:
        """The only one: NumPy knows nothing of ranks."""
        return 0, 1

    def made(self, arrays: ReadArrays, finish: Finish, layout: str) -> dict[str, Any]:
        """See `Framework.made`."""
        return _finished(arrays, finish, layout)


class Jax(Framework):
    """JAX's arrays, sent to a device while earlier batches are learned from."""

    early = True

    def __init__(self, device: object, pin_memory: bool) -> None:
        """Make arrays on a device.

        Args:
            device: a `jax.Device`, a `jax.sharding.Sharding`, a platform's name such as ``gpu``, or None for JAX's own
                choice.
            pin_memory: refused.

        Raises:
            MissingExtra: jax is not installed.
            BadInput: there is no such device.
        """
        try:
            self._jax = import_module("jax")
        except ImportError as missing:
            raise MissingExtra("framework='jax' needs JAX: pip install 'viewcache[jax]'") from missing
        if pin_memory:
            raise BadInput("pin_memory=True is for framework='torch'; JAX sends batches to the device ahead anyway")
        try:
            self._device = self._jax.devices(device)[0] if isinstance(device, str) else device
            self._jax.device_put(np.zeros(1, np.uint8), self._device)
        except (RuntimeError, TypeError, ValueError) as error:
            why = str(error).partition("\n")[0]
            raise BadInput(f"device {str(device)!r} is none that this JAX can use: {why}") from error

    def place(self) -> tuple[int, int]:
        """As jax.distributed says, if it is initialized."""
        return self._jax.process_index(), self._jax.process_count()

    def made(self, arrays: ReadArrays, finish: Finish, layout: str) -> dict[str, Any]:
        """See `Framework.made`. The copy is under way when this returns; the memory behind it is kept till then."""
        made = _finished(arrays, finish, layout)
        texts = {name: values for name, values in made.items() if isinstance(values, list)}
        sent: dict[str, Any] = self._jax.device_put(
            {name: each for name, each in made.items() if name not in texts}, self._device
        )
        return sent | texts


def _finished(arrays: ReadArrays, finish: Finish, layout: str) -> dict[str, Any]:
    name, rest = _apart(arrays)
    pixels = shown(finish(arrays[name]), layout)
    others = {name: in_batch(values, lambda array: array) for name, values in rest.items()}
    return {name: pixels.transpose(_axes(pixels.ndim, layout)), **others}


def _apart(arrays: ReadArrays) -> tuple[str, ReadArrays]:
    """What the pixels are called, and all but these."""
    name = "image" if "image" in arrays else "video"
    return name, {other: values for other, values in arrays.items() if other != name}


def shown(pixels: Any, layout: str) -> Any:
    """Pixels (…,T,C,H,W) as a layout has axes: an image has no T."""
    return pixels[..., 0, :, :, :] if Layout(layout).media == Media.IMAGE else pixels


def tensors_in(made: Mapping[str, Any], kind: type) -> Iterator[Any]:
    """All of a batch that is of a kind, lists of different lengths included; not its texts and numbers."""
    for each in made.values():
        yield from (one for one in (each if isinstance(each, Ragged) else (each,)) if isinstance(one, kind))


def _axes(dimensions: int, layout: str) -> Sequence[int]:
    """The clips' axes in the order of a layout, behind those of the batch and the views."""
    lead = dimensions - len(LAYOUTS[layout])
    return (*range(lead), *(lead + axis for axis in LAYOUTS[layout]))


def _torch(device: Any, pin_memory: bool) -> Torch:
    """Torch's tensors for a device."""
    plain = Torch(device, pin_memory)
    return TorchOnGpu(plain.device) if plain.device is not None and plain.device.type == "cuda" else plain


FRAMEWORKS: dict[str, Callable[[Any, bool], Framework]] = {"torch": _torch, "numpy": Arrays, "jax": Jax}
"""Name → what makes its batches, for a device and with or without pinned memory."""
