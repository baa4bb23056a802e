"""A user's own operation that raises an error: what is said names it, and shows the user's lines and no others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ops.draws import draws, frame
from viewcache.errors import OpFailed
from viewcache.materializer.ops import ClipOp, FrameOp, Op, get
from viewcache.materializer.ops.geometry import Flip
from viewcache.ops import transform

CLIP = np.stack([frame(seed=seed) for seed in range(2)])


def below(clip: object) -> Any:
    """What an operation calls."""
    raise ValueError(f"boom of {type(clip).__name__}")


class Framed(FrameOp):
    """Fails on a frame."""

    name = "framed"

    def apply(self, params: Any, row: Any, frame: Any) -> Any:
        """See the base."""
        return below(frame)


class Mirrored(Flip):
    """A built-in operation with a mistake."""

    name = "mirrored"

    def apply(self, params: Any, row: Any, frame: Any) -> Any:
        """See the base."""
        return below(super().apply(params, row, frame))


@transform
def clipped(clip: Any, rng: Any, strength: int = 8, how: str = "soft") -> Any:
    """Fails on a clip."""
    return below(clip)


def run(op: Op) -> None:
    """Apply it, as a worker does."""
    params = op.parse({})
    (row, *_), *_ = op.resolve(params, draws(1), np.array([32]), np.array([45]))
    if isinstance(op, ClipOp):
        op.run_clip(params, row, CLIP)
    elif isinstance(op, FrameOp):
        op.run(params, row, CLIP[0])


@pytest.mark.parametrize(
    ("op", "begin"),
    [
        (Framed(), "operation 'framed' failed:"),
        (Mirrored(), "operation 'mirrored' with direction='horizontal', flip_prob=0.5 failed:"),
        (clipped, "operation 'clipped' with how='soft', strength=8 failed:"),
    ],
    ids=["frame", "of a built-in one", "function"],
)
def test_an_exception_is_told_with_its_own_lines(op: Op, begin: str) -> None:
    """The operation, its parameters, the exception and the user's code that led there; nothing of viewcache."""
    with pytest.raises(OpFailed) as failed:
        run(op)
    first, *lines = str(failed.value).splitlines()
    assert first == begin
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "ValueError: boom of ndarray"
    files = [line.split('"')[1] for line in lines if line.startswith("  File")]
    assert files == [str(Path(__file__))] * 2
    assert any("return below(" in line for line in lines)


def test_a_mistake_of_ours_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception of a built-in operation is not put down to the user."""
    monkeypatch.setattr(Flip, "apply", lambda self, params, row, frame: below(frame))
    with pytest.raises(ValueError, match="boom") as failed:
        run(get("flip"))
    assert not isinstance(failed.value, OpFailed)


def test_causes_are_told() -> None:
    """An error that was raised from another one shows both."""

    @transform(random=False, version="1")
    def chained(clip: Any) -> Any:
        try:
            below(clip)
        except ValueError as error:
            raise RuntimeError("worse") from error

    with pytest.raises(OpFailed, match=r"(?s)ValueError: boom.*direct cause.*RuntimeError: worse$"):
        run(chained)
