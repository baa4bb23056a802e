"""Operations for an op worker: well ones, and one for each way to be wrong."""

import sys
import textwrap
from pathlib import Path
from typing import Any

from viewcache.materializer.op_workers.crew import Crew
from viewcache.materializer.op_workers.process import python_command
from viewcache.materializer.op_workers.remote import RemoteOp, remote_op
from viewcache.materializer.spec import OpWorkerSpec

__all__ = ["SOLARIZE", "entry", "module", "spec", "the_op"]

SOLARIZE = """
import numpy as np
from viewcache.ops import Field, FrameOp, WholeRange, scaled


class Solarize(FrameOp):
    name = "solarize"
    shorthand = "threshold"
    fields = (Field("threshold", WholeRange(0, 255), (128, 128), "lowest and highest threshold, both included"),)
    columns = ("threshold",)
    keyed = ()

    def resolve(self, params, draw, h, w):
        low, high = dict(params)["threshold"]
        threshold = low + scaled(draw.fraction("threshold"), high - low + 1)
        return threshold[:, None].astype(np.int32), h, w

    def apply(self, params, row, frame):
        return np.where(frame >= row[0], 255 - frame, frame)


class Tile(FrameOp):
    '''Twice as high, and as wide as was drawn: what comes out is larger than what goes in.'''

    name = "tile"
    fields = (Field("times", WholeRange(1, 9), (2, 2), "how often beside itself"),)
    columns = ("times",)
    sizes = True

    def resolve(self, params, draw, h, w):
        low, high = dict(params)["times"]
        times = low + scaled(draw.fraction("times"), high - low + 1)
        return times[:, None].astype(np.int32), 2 * h, times * w

    def out_size(self, params, size):
        low, high = dict(params)["times"]
        return None if size is None or low != high else (2 * size[0], low * size[1])

    def apply(self, params, row, frame):
        return np.tile(frame, (1, 2, int(row[0])))


OPS = [Solarize, Tile]
"""
"""As in docs/custom-ops.md, and one that changes sizes."""

_ONE = """
import ctypes, os, resource, socket, sys, threading, time
import numpy as np
from viewcache.ops import FrameOp


class Own(FrameOp):
    name = "own"
    columns = ("number",)

    def resolve(self, params, draw, h, w):
        return (draw.fraction("number") % 4).astype(np.int32)[:, None], h, w

    def apply(self, params, row, frame):
{body}


OPS = [Own]
"""


def module(folder: Path, name: str, text: str) -> Path:
    """Write a module of operations; ``text`` is all of it, or the body of `apply` of an operation ``own``."""
    folder.mkdir(exist_ok=True)
    whole = text if "OPS =" in text else _ONE.format(body=textwrap.indent(textwrap.dedent(text), 8 * " "))
    (folder / f"{name}.py").write_text(whole)
    return folder


def entry(folder: Path, name: str, python: Path | str = sys.executable, **more: Any) -> dict[str, Any]:
    """The configuration of an op worker ``mine``."""
    return {"op_workers": {"mine": {"python": str(python), "path": [str(folder)], "modules": [name], **more}}}


def spec(folder: Path, name: str, python: Path | str = sys.executable, **more: Any) -> OpWorkerSpec:
    """The same as it is after loading."""
    return OpWorkerSpec("mine", python_command(str(python), (str(folder),)), (name,), **more)


def the_op(crew: Crew, name: str = "own") -> RemoteOp:
    """An operation on frames that it serves."""
    op = next(remote_op(crew, each) for each in crew.ops() if each.name == name)
    assert isinstance(op, RemoteOp)
    return op
