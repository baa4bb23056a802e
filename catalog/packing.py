"""Columns of rows in a line of the journal: one value where all are equal, whole numbers packed, else a list.

A draw is three whole numbers, and an epoch of a large dataset has as many draws as videos: as text they take five times
the bytes.
"""

import base64
import zlib

import numpy as np
import pyarrow as pa

__all__ = ["expand", "pack"]

FEWEST = 64
"""Values that are worth packing; fewer can be read in the file."""

_NUMBER = np.dtype("<i8")


def pack(column: pa.ChunkedArray) -> object:
    """A column as JSON has it."""
    if len(column) < FEWEST or column.null_count or not pa.types.is_integer(column.type):
        values = column.to_pylist()
        return values[0] if values and all(each == values[0] for each in values) else values
    numbers = column.to_numpy().astype(_NUMBER)
    if (numbers == numbers[0]).all():
        return int(numbers[0])
    # The first bytes of all numbers, then their second ones: what is zero in all of them takes nothing.
    planes = np.ascontiguousarray(numbers.view(np.uint8).reshape(-1, _NUMBER.itemsize).T)
    return {"packed": base64.b64encode(zlib.compress(planes.tobytes(), 1)).decode()}


def expand(written: object, count: int, kind: pa.DataType) -> pa.Array:
    """What `pack` wrote.

    Args:
        written: as JSON has it; None where the column was not written.
        count: values of the column.
        kind: their type.

    Raises:
        LookupError, TypeError, ValueError, ArithmeticError: it is no such column.
    """
    if isinstance(written, dict):
        size, unpacker = count * _NUMBER.itemsize, zlib.decompressobj()
        try:  # what is longer than announced is not unpacked
            planes = unpacker.decompress(base64.b64decode(written["packed"], validate=True), size + 1)
        except zlib.error as error:
            raise ValueError(f"a packed column cannot be unpacked: {error}") from error
        if len(planes) != size or not unpacker.eof:
            raise ValueError(f"a packed column does not hold {count} numbers")
        bytes_of = np.frombuffer(planes, np.uint8).reshape(_NUMBER.itemsize, count)
        return pa.array(np.ascontiguousarray(bytes_of.T).view(_NUMBER).reshape(-1)).cast(kind)
    return pa.array(written if isinstance(written, list) else [written] * count, kind)
