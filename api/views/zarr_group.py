"""A batch as a Zarr v3 group: the files that a Zarr client asks for, made up from the plan when it asks.

Nothing of it is stored. One chunk of ``video`` is one clip, so a client that wants a clip makes one clip; every key
that the metadata promises is there, because a Zarr client takes a missing chunk for zeros.
"""

import json
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from viewcache.api.views.payload import Payload
from viewcache.materializer.field_values import FieldValues, Ragged, as_lists, is_text
from viewcache.materializer.reading.batch import PER_CLIP, Batch

__all__ = ["view_group"]

_TIMED = ("frame", "time_s")
"""Arrays with an entry for each frame."""
_CLIP = ("time", "channel", "height", "width")


def view_group(
    batch: Batch,
    shape: tuple[int, ...],
    load: Callable[[range], NDArray[np.uint8]],
    hear: Callable[[range], NDArray[np.uint8]],
) -> dict[str, Payload]:
    """The group's files by their path inside it.

    Args:
        batch: as planned; of its ``audio`` only the shape is looked at, of its ``video`` nothing.
        shape: of its pixels; of images without an axis of time.
        load: gives some clips of it.
        hear: gives the audio of some clips as bytes; asked where the task has audio.
    """
    attributes = {
        "task": batch.task,
        "epoch": batch.epoch,
        "iteration": batch.iteration,
        "videos": list(batch.videos),
        "keys": list(batch.keys),
        "texts": {name: as_lists(each) for name, each in batch.fields.items() if is_text(each)},
    }
    files = {"zarr.json": _json({"zarr_format": 3, "node_type": "group", "attributes": attributes})}
    is_image = len(shape) < len(batch.video.shape)
    files |= _pixels("image" if is_image else "video", shape, _CLIP[1:] if is_image else _CLIP, load)
    if batch.audio is not None:
        files |= _by_clip("audio", batch.audio.shape, "float32", ("clip", "channel", "sample"), hear)
    for name in PER_CLIP:
        files |= _small(name, np.asarray(getattr(batch, name)))
    for name, values in batch.fields.items():
        files |= _field(name, values)
    return files


def _field(name: str, values: FieldValues) -> dict[str, Payload]:
    """A further column: an array, or a group of values and offsets; texts are attributes of the batch's group."""
    if isinstance(values, Ragged):
        group = {f"{name}/zarr.json": _json({"zarr_format": 3, "node_type": "group", "attributes": {}})}
        return group | _small(f"{name}/values", values.values) | _small(f"{name}/offsets", values.offsets)
    return _small(name, values) if isinstance(values, np.ndarray) else {}


def _pixels(
    name: str, shape: tuple[int, ...], clip: tuple[str, ...], load: Callable[[range], NDArray[np.uint8]]
) -> dict[str, Payload]:
    names = ("clip", *(("stream",) if len(shape) - 1 > len(clip) else ()), *clip)
    return _by_clip(name, shape, "uint8", names, load)


def _by_clip(
    name: str, shape: tuple[int, ...], dtype: str, names: tuple[str, ...], load: Callable[[range], NDArray[np.uint8]]
) -> dict[str, Payload]:
    """An array of which each chunk is of one clip, made when it is read."""
    clip = shape[1:]
    files = {f"{name}/zarr.json": _array(shape, (1, *clip), dtype, names)}
    rest, size = "/0" * len(clip), int(np.prod(clip)) * np.dtype(dtype).itemsize
    for number in range(shape[0]):
        files[f"{name}/c/{number}{rest}"] = Payload(b"", 1, size, _one(load, number))
    return files


def _one(load: Callable[[range], NDArray[np.uint8]], number: int) -> Callable[[range], NDArray[np.uint8]]:
    return lambda rows: load(range(number, number + 1))


def _small(name: str, values: NDArray[np.generic]) -> dict[str, Payload]:
    data = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"))).tobytes()
    chunk = tuple(max(1, length) for length in values.shape)
    files = {f"{name}/zarr.json": _array(values.shape, chunk, values.dtype.name, _dimensions(name, values.ndim))}
    return files | ({f"{name}/c" + "/0" * values.ndim: Payload(data)} if values.size else {})


def _dimensions(name: str, count: int) -> tuple[str | None, ...]:
    """Names of an array's axes, where they have one."""
    if name in _TIMED:
        return ("clip", "stream", "time") if count == 3 else ("clip", "time")
    first = None if "/" in name else "clip"
    return (first, *("class" if name == "label" else None for _ in range(count - 1)))


def _array(shape: tuple[int, ...], chunk: tuple[int, ...], dtype: str, names: tuple[str | None, ...]) -> Payload:
    codec: dict[str, object] = {"name": "bytes"}
    if dtype not in ("uint8", "bool"):
        codec["configuration"] = {"endian": "little"}
    return _json(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": shape,
            "data_type": dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": False if dtype == "bool" else 0,
            "codecs": [codec],
            "attributes": {},
            "dimension_names": names,
        }
    )


def _json(value: dict[str, object]) -> Payload:
    return Payload(json.dumps(value).encode())
