"""Frames that are encoded together: decoded ones alone, each once, whatever else of them is read or stored."""

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from viewcache.materializer.media.loss import GROUP, Loss
from viewcache.materializer.media.lossy import Group, Unconverted
from viewcache.materializer.media.pixels import yuv_of
from viewcache.materializer.ops import FrameOp, get
from viewcache.materializer.ops.lossy import LOSSY_OP
from viewcache.materializer.planning.program import FrameStep
from viewcache.materializer.workers import lossy
from viewcache.materializer.workers.frame import Frame, PhaseClock
from viewcache.materializer.workers.lossy import LossySteps

RESIZED = FrameStep(None, "resize", (), ())
STEP = FrameStep(RESIZED, LOSSY_OP, (), ())


@dataclass
class Pretended:
    """A frame whose pixels are its number; one that was read has 100 more."""

    number: int
    was_read: bool = False
    made: dict[FrameStep | None, np.ndarray] = field(default_factory=dict)
    settled: set[FrameStep] = field(default_factory=set)

    def at(self, node: FrameStep | None) -> np.ndarray:
        """What it shows, after any step."""
        return self.made.get(node, np.full((3, 1, 1), self.number + 100 * self.was_read, np.uint8))

    def put(self, node: FrameStep, picture: np.ndarray) -> None:
        """Note it."""
        self.made[node] = picture

    def settle(self, nodes: Iterable[FrameStep]) -> None:
        """Note at what."""
        self.settled |= set(nodes)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The pixels of each group that was encoded."""
    groups: list[list[int]] = []

    def encode(pictures: np.ndarray, _: Loss) -> Group:
        groups.append(pictures[:, 0, 0, 0].tolist())
        return Group([b"packet"] * len(pictures), pictures, np.full(len(pictures), 50.0), 18, 0.0, 0.0)

    monkeypatch.setattr(lossy, "encode", encode)
    monkeypatch.setattr(lossy, "loss_of", lambda _: Loss(18, None))
    monkeypatch.setattr(lossy, "stride_of", lambda _: 1)
    return groups


def steps_of(*wanted: int) -> LossySteps:
    """Of a video of two groups, some frames of which are wanted with a loss."""

    def lost(*_: object) -> None:
        pytest.fail("nothing is lost")

    steps = LossySteps(2 * GROUP, lost, lost, lambda _: None)
    for number in wanted:
        steps.want(number, STEP)
    return steps


def test_what_was_read_is_no_member(encoded: list[list[int]]) -> None:
    """A task without loss has its own pictures of frames of the same group: the encoder gets decoded ones."""
    steps = steps_of(*range(5))
    read = [(number, Pretended(number, was_read=True)) for number in (5, 6, 7)]
    decoded = [(number, Pretended(number)) for number in sorted(steps.whole(dict.fromkeys(range(5), 0)))]
    given = list(steps.frames([*read, *decoded], {}, {}))
    assert encoded == [list(range(GROUP))]
    assert [number for number, frame in given if frame.was_read] == [5, 6, 7]


def test_each_frame_comes_once(encoded: list[list[int]]) -> None:
    """The last frame of a group, which makes it whole, does not come again."""
    steps = steps_of(*range(GROUP))
    given = [number for number, _ in steps.frames(((k, Pretended(k)) for k in range(GROUP)), {}, {})]
    assert sorted(given) == list(range(GROUP))
    assert encoded == [list(range(GROUP))]


def test_a_decoded_frame_is_not_held_until_its_group_is_whole(encoded: list[list[int]]) -> None:
    """What waits are resized pictures, also of another task's resize; one that needs the frame itself keeps that."""
    steps = steps_of(0, 1)
    other = FrameStep(None, "resize", (("shape", 4),), ())
    roots: dict[int, set[FrameStep | None]] = {0: {STEP, other}, 1: {STEP, None}}
    frames = [Pretended(k) for k in range(GROUP)]
    given = [number for number, _ in steps.frames(enumerate(frames[:-1]), {}, roots)]
    assert given == list(range(2, GROUP - 1)), "0 and 1 wait for what is made of the whole group"
    assert not encoded
    assert [each.settled for each in frames[:3]] == [{RESIZED, other}, set(), {RESIZED}]


def test_packets_for_two_objects(encoded: list[list[int]]) -> None:
    """Two objects that share a group both get it; then it is held no longer."""
    steps = steps_of(*range(GROUP))
    steps.keep_packets(STEP, range(GROUP))
    steps.keep_packets(STEP, range(2, 2 * GROUP))
    for _ in steps.frames(((k, Pretended(k)) for k in range(GROUP)), {}, {}):
        pass
    assert steps.taken(STEP, 0) is steps.taken(STEP, 3)
    with pytest.raises(KeyError):
        steps.taken(STEP, 0)
    assert len(encoded) == 1


@pytest.mark.parametrize(
    ("name", "row", "shows_a_part"),
    [
        ("random_crop", (3, 5, 10, 12), True),
        ("center_crop", (2, 1, 20, 30), True),
        ("five_crop", (0, 0, 8, 8), True),
        ("three_crop", (0, 9, 24, 24), True),
        ("ten_crop", (3, 5, 10, 12, 1), False),
        ("flip", (1,), False),
    ],
)
def test_what_a_crop_does_not_show_is_not_converted(
    monkeypatch: pytest.MonkeyPatch, name: str, row: tuple[int, ...], shows_a_part: bool
) -> None:
    """Of packets that are kept; whoever asks for more than a window gets the whole picture, and the same pixels."""
    picture = Unconverted(yuv_of(np.random.default_rng(5).integers(0, 256, (3, 24, 36), np.uint8), "yuv444p"))
    exact, converted = picture.whole(), list[tuple[int, int]]()

    def counted(self: Unconverted, y: int, x: int, h: int, w: int) -> np.ndarray:
        converted.append((h, w))
        return exact[:, y : y + h, x : x + w]

    monkeypatch.setattr(Unconverted, "part", counted)
    params: Any = (("direction", "horizontal"),)  # of a flip
    op, node = get(name), FrameStep(STEP, name, params, row)
    assert isinstance(op, FrameOp)
    index: Any = SimpleNamespace(rotation=0, mirrored=False)  # of a video; nothing else is asked
    frame = Frame(None, index, PhaseClock(), {STEP: picture})
    assert np.array_equal(frame.at(node), op.apply(params, np.array(row, np.int32), exact))
    assert converted == [row[2:] if shows_a_part else (24, 36)]
    assert np.array_equal(frame.at(STEP), exact)


def test_a_settled_frame_holds_what_is_wanted_alone() -> None:
    """A crop is a part of the whole picture: it is copied, and that is let go."""
    whole = np.random.default_rng(5).integers(0, 256, (3, 24, 36), np.uint8)
    index: Any = SimpleNamespace(rotation=0, mirrored=False)
    frame, crop = Frame(None, index, PhaseClock(), {None: whole}), FrameStep(None, "random_crop", (), (3, 5, 10, 12))
    expected, let_go = whole[:, 3:13, 5:17].copy(), weakref.ref(whole)
    del whole
    frame.settle([crop])
    assert let_go() is None
    assert np.array_equal(frame.at(crop), expected)
