"""docs/custom-ops.md: every example is run as it stands, and its tables are compared with what there is."""

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import viewcache.ops
from tests.ops.draws import draws
from viewcache.errors import BadInput
from viewcache.materializer.ops import ClipOp, FrameOp, Op, ReadOp, TimeOp, fields, get, load_modules, registry
from viewcache.ops import Draw

DOCUMENT = (Path(__file__).parents[2] / "docs/custom-ops.md").read_text()
MODULES: list[str] = re.findall(r"```python\n(.*?)```", DOCUMENT, re.S)

Load = Callable[[str], Op]


@pytest.fixture
def documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Gives the last operation of the documented module whose docstring begins with some words."""
    monkeypatch.syspath_prepend(tmp_path)

    def load(head: str) -> Op:
        (source,) = (each for each in MODULES if each.startswith(f'"""{head}'))
        name = f"{head.split()[0].lower()}_documented"
        (tmp_path / f"{name}.py").write_text(source)
        return get(load_modules([name])[-1])

    with registry.own_registrations():
        yield load
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)


def section(heading: str) -> str:
    """What stands under a heading."""
    return re.split(r"^## ", DOCUMENT.split(f"\n## {heading}\n")[1], maxsplit=1, flags=re.M)[0]


def table(heading: str) -> list[list[str]]:
    """The rows of the first table under a heading, without its head; code without its marks."""
    rows = [line for line in section(heading).splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split(" |")] for line in rows[2:]]


def rows_of(op: Op, params: Any, n: int = 500, h: int = 6, w: int = 8) -> Any:
    """Rows and sizes of n clips."""
    return op.resolve(params, draws(n, op.scope), np.full(n, h), np.full(n, w))


def test_every_module_has_its_test() -> None:
    """No example of the document is left out by these tests and those of `test_registry`."""
    heads = [ast.get_docstring(ast.parse(module)) or "" for module in MODULES]
    assert [head.partition(":")[0].partition(",")[0] for head in heads] == [
        "Film grain", "Solarize", "Vignette", "Freeze", "Pad", "BGR",
    ]  # fmt: skip


def test_the_torch_module(documented: Load) -> None:
    """It darkens corners and not the middle, by one strength for all frames, which the clip's key decides."""
    op = documented("Vignette")
    assert isinstance(op, ClipOp)
    rows, *_ = rows_of(op, ())
    clip = np.full((2, 3, 7, 9), 200, np.uint8)
    first, again, other = (op.run_clip((), rows[k], clip.copy()) for k in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert (first[:, :, 3, 4] == 200).all()
    assert first[0, 0, 0, 0] < 200
    assert np.array_equal(first[0], first[1])


def test_the_choice_of_frames(documented: Load) -> None:
    """Half of the clips move on; the others repeat one frame, which is anywhere, to the end."""
    op = documented("Freeze")
    assert isinstance(op, TimeOp)
    params = op.parse(None)
    rows, *_ = rows_of(op, params)
    idx = np.tile(np.arange(10, 30, 2), (500, 1))
    out = op.frames(params, rows, idx)
    same = op.identity(params, rows, np.full(500, 6), np.full(500, 8))
    assert 0.4 < same.mean() < 0.6
    assert np.array_equal(out[same], idx[same])
    assert all(
        np.array_equal(op.frames(params, row, line), given) for row, line, given in zip(rows, idx, out, strict=True)
    )
    for line in out[~same]:
        last = int(np.argmax(line == line[-1]))
        assert np.array_equal(line, np.minimum(np.arange(10), last) * 2 + 10)
    assert len({int(line[-1]) for line in out[~same]}) == 10


def test_another_size(documented: Load) -> None:
    """Frames come whole to all places of the larger shape; one that is too large is refused with what to do."""
    op = documented("Pad")
    assert isinstance(op, FrameOp)
    params = op.parse({"shape": [8, 9], "fill": [1, 2, 3]})
    rows, h, w = rows_of(op, params)
    assert (set(h.tolist()), set(w.tolist()), op.out_size(params, None)) == ({8}, {9}, (8, 9))
    assert {tuple(row) for row in rows.tolist()} == {(y, x) for y in range(3) for x in range(2)}
    frame = np.arange(144, dtype=np.uint8).reshape(3, 6, 8)
    out = op.run(params, rows[0], frame)
    y, x = rows[0]
    assert np.array_equal(out[:, y : y + 6, x : x + 8], frame)
    assert int(out.astype(int).sum() - frame.astype(int).sum()) == (1 + 2 + 3) * (72 - 48)
    with pytest.raises(BadInput, match=r"pad: a frame of 9x8 .* is larger than shape; resize first"):
        rows_of(op, params, h=9)


@pytest.mark.parametrize("kind", ["array", "tensor"])
def test_at_read_time(documented: Load, kind: str) -> None:
    """Channels come in the other order, of arrays and tensors, in new memory."""
    op = documented("BGR")
    assert isinstance(op, ReadOp)
    batch = np.arange(2 * 3 * 4 * 5).reshape(1, 2, 3, 4, 5).astype(np.uint8)
    out: Any = op.apply_batch((), torch.from_numpy(batch) if kind == "tensor" else batch)
    assert np.array_equal(np.asarray(out), batch[:, :, ::-1])
    assert not np.shares_memory(np.asarray(out), batch)


def test_all_kinds_of_parameters_are_told() -> None:
    """The table has each kind that there is; it reads the YAML to the value, says what is allowed, refuses the rest."""
    names = vars(viewcache.ops)
    told = set()
    for declared, written, value, allowed, refused in table("Kinds of parameters"):
        kind = eval(declared, {"__builtins__": {}}, dict(names))  # the document's own words
        told.add(type(kind).__name__)
        got = kind.read(yaml.safe_load(written))
        assert (got, repr(got)) == (ast.literal_eval(value), repr(ast.literal_eval(value))), declared
        assert kind.allowed == allowed
        assert _refuses(kind, yaml.safe_load(refused)), declared
    there = {name for name in fields.__all__ if hasattr(getattr(fields, name), "read")} - {"FieldKind"}
    assert told == there
    assert there <= set(viewcache.ops.__all__)


def _refuses(kind: Any, value: object) -> bool:
    try:
        kind.read(value)
    except ValueError:
        return True
    return False


def test_all_ways_to_draw_are_told() -> None:
    """The table has each method of `Draw`; each call is one that works and gives numbers of the stated type."""
    told = {}
    for call, gives, _ in table("Draws"):
        numbers = eval(call, {"__builtins__": {}}, {"draw": draws(100)})  # the document's own words
        assert numbers.shape == (100,)
        assert gives.startswith(numbers.dtype.name), call
        told[call.split("(")[0].removeprefix("draw.")] = numbers
    methods = {name for name, _ in inspect.getmembers(Draw, inspect.isfunction) if not name.startswith("_")}
    assert set(told) == methods
    assert told["fraction"].max() < viewcache.ops.ONE
    assert 0 <= told["uniform"].min() < told["uniform"].max() < 1
