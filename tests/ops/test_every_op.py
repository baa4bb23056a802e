"""Promises that every built-in operation keeps, and the bytes that they give."""

import hashlib
import pickle

import numpy as np
import pytest

from tests.ops.draws import EXAMPLES, draws, frame, parse
from viewcache.materializer.media.pixels import INTERPOLATIONS
from viewcache.materializer.ops import Draw, FrameOp, Op, Params, Rows, builtin_names, get, resize
from viewcache.materializer.ops.base import Fixed

CASES = [(name, value) for name, values in EXAMPLES.items() for value in values]
FRAME_CASES = [case for case in CASES if get(case[0]).stage == "frame"]
N = 40


def resolved(name: str, value: object, h: int = 32, w: int = 45, **where: int) -> tuple[Op, Params, Rows, Fixed, Fixed]:
    """Operation, parameters, rows and sizes for N clips of one frame size."""
    op, params = parse(name, value)
    rows, out_h, out_w = op.resolve(params, draws(N, op.scope, **where), np.full(N, h), np.full(N, w))
    return op, params, rows, out_h, out_w


def test_every_builtin_has_an_example() -> None:
    """The promises below are tested for all built-in operations: none is without an example."""
    assert set(EXAMPLES) == set(builtin_names())


@pytest.mark.parametrize(("name", "value"), CASES)
def test_parameters_are_canonical(name: str, value: object) -> None:
    """Parsing fills in every field, sorts by name, and is stable: parsing its own result changes nothing."""
    op, params = parse(name, value)
    assert [key for key, _ in params] == sorted(field.name for field in op.fields)
    assert op.parse({key: item for key, item in params if item is not None}) == params
    assert hash(params) == hash(pickle.loads(pickle.dumps(params)))


@pytest.mark.parametrize(("name", "value"), CASES)
def test_rows_are_int32_and_depend_on_the_address_only(name: str, value: object) -> None:
    """Rows are int32 with the named columns; each clip's row is the same alone as among others (law 11)."""
    op, params, rows, *_ = resolved(name, value)
    assert rows.dtype == np.int32
    assert rows.shape == (N, len(op.columns))
    one = draws(N, op.scope)
    alone = [
        op.resolve(
            params,
            Draw(0, op.scope, 0, one.video[i : i + 1], one.epoch[i : i + 1], one.sample[i : i + 1]),
            np.array([32]),
            np.array([45]),
        )[0][0].tolist()
        for i in range(N)
    ]
    assert rows.tolist() == alone


@pytest.mark.parametrize(("name", "value"), CASES)
def test_no_clips_is_no_problem(name: str, value: object) -> None:
    """Resolving zero clips gives zero rows, as an empty generation needs."""
    op, params = parse(name, value)
    rows, h, w = op.resolve(params, draws(0, op.scope), np.zeros(0, int), np.zeros(0, int))
    assert rows.shape == (0, len(op.columns))
    assert len(h) == len(w) == 0


@pytest.mark.parametrize(("name", "value"), FRAME_CASES)
def test_frames_have_the_resolved_size(name: str, value: object) -> None:
    """Every clip's output is uint8 (3,h,w) of the size that resolving promised; the input is never written to."""
    op, params, rows, out_h, out_w = resolved(name, value)
    assert isinstance(op, FrameOp)
    picture = frame()
    before = picture.copy()
    for row, h, w in zip(rows, out_h, out_w, strict=True):
        out = op.apply(params, row, picture)
        assert out.shape == (3, h, w)
        assert out.dtype == np.uint8
    assert np.array_equal(picture, before)


@pytest.mark.parametrize(("name", "value"), FRAME_CASES)
def test_views_give_the_same_as_copies(name: str, value: object) -> None:
    """A frame that is a mirrored, turned or cropped view gives the same bytes as its contiguous copy."""
    op, params, rows, *_ = resolved(name, value)
    assert isinstance(op, FrameOp)
    big = frame(40, 60)
    views = [big[:, 3:35, 5:50], big[:, 34:2:-1, 49:4:-1], np.rot90(frame(45, 32), 1, axes=(1, 2))]
    for view in views:
        for row in rows[:6]:
            assert np.array_equal(op.apply(params, row, view), op.apply(params, row, np.ascontiguousarray(view)))


@pytest.mark.parametrize(("name", "value"), FRAME_CASES)
def test_identity_is_true_only_where_nothing_changes(name: str, value: object) -> None:
    """Where an operation says that it changes nothing, applying it changes nothing, so leaving it out is right."""
    op, params, rows, *_ = resolved(name, value)
    assert isinstance(op, FrameOp)
    picture = frame()
    for row, same in zip(rows, op.identity(params, rows, np.full(N, 32), np.full(N, 45)), strict=True):
        if same:
            assert np.array_equal(op.apply(params, row, picture), picture)


@pytest.mark.parametrize(("name", "value"), FRAME_CASES)
def test_key_params_and_row_decide_the_bytes(name: str, value: object) -> None:
    """Two frames made with equal key parameters and rows are equal, whatever the other parameters say."""
    op, params, rows, *_ = resolved(name, value)
    assert isinstance(op, FrameOp)
    kept = dict(op.key_params(params))
    other = tuple((key, item if key in kept else "ignored") for key, item in params)
    assert np.array_equal(op.apply(params, rows[0], frame()), op.apply(other, rows[0], frame()))


@pytest.mark.parametrize(("name", "value"), FRAME_CASES)
def test_static_size_is_the_true_size(name: str, value: object) -> None:
    """If an operation names one output size for an input size, every clip has it; None means that sizes vary."""
    op, params, _, out_h, out_w = resolved(name, value)
    size = op.out_size(params, (32, 45))
    sizes = set(zip(out_h.tolist(), out_w.tolist(), strict=True))
    assert sizes == {size} if size is not None else len(sizes) > 1


def test_interpolations_are_those_of_the_pixel_step() -> None:
    """The names that a config may use are the names that the swscale step knows."""
    assert set(resize.INTERPOLATIONS) == set(INTERPOLATIONS)


GOLDEN = {
    "random_short_side {'range': [16, 40]}": "f4bc3b12a335dfc7",
    "random_crop {'shape': [12, 17]}": "678bd83ab7764842",
    "center_crop 11": "85f1fab9abd75553",
    "five_crop {'shape': [9, 14]}": "a8a24dfd5fefcb77",
    "three_crop {'shape': [9, 14]}": "ac2fdc9a966715b0",
    "ten_crop {'shape': [9, 14]}": "8ee149522564b5d2",
    "random_resized_crop {'shape': [16, 16]}": "3f1d4e5fc89e471e",
    "random_resized_crop {'shape': 20, 'scale': [0.9, 1.0], 'ratio': [3.0, 4.0]}": "c14b5680c43ab6b4",
    "flip {'flip_prob': 0.5}": "39de661461d141e7",
    "flip {'direction': 'vertical'}": "0b8565042a854ad1",
    "rotate {'degrees': [-30, 30]}": "600bd06355fc9c1c",
    "rotate {'degrees': 90}": "7bde5d4b931c172c",
    "rotate {'degrees': 180}": "4185b1ed8733a3d4",
    "rotate {'degrees': 12.5, 'fill': [9, 99, 199]}": "0a11a0e1cae27511",
    "color_jitter {'brightness': 0.4, 'contrast': 0.4, 'saturation': 0.4, 'hue': 0.1, 'prob': 0.8}": "a355aad44f2affa0",
    "grayscale {'prob': 0.5}": "d80e879ca7f88759",
    "blur {'sigma': [0.1, 2.0], 'prob': 0.5}": "085ec1ae585438a4",
    "erase {}": "b5e8781f2fdae207",
    "erase {'prob': 1, 'fill': [1, 2, 3]}": "1b2659a3e921ee63",
    "rand_augment None": "248b199484749d0c",
    "rand_augment {'num_ops': 4, 'interpolation': 'bilinear', 'fill': [9, 99, 199]}": "0ab1a8955fcb07a3",
    "trivial_augment_wide None": "16251d046cf9a8b3",
    "auto_augment None": "a23258add1a82d95",
    "auto_augment cifar10": "1a8af1a231270382",
    "auto_augment {'policy': 'svhn', 'fill': 128}": "e0f729635bd29d64",
}


@pytest.mark.parametrize(("name", "value"), [case for case in FRAME_CASES if case[0] != "resize"])
def test_bytes_are_fixed(name: str, value: object) -> None:
    """The draws and pixels of an operation never change; if they must, its fingerprint changes with them.

    Operations that resize are left to the tests of the swscale step, except for their draws.
    """
    op, params, rows, *_ = resolved(name, value)
    assert isinstance(op, FrameOp)
    digest = hashlib.blake2b(op.fingerprint.encode() + rows.astype("<i4").tobytes(), digest_size=8)
    if not (op.sizes and "interpolation" in dict(params)):
        for row in rows[:8]:
            digest.update(np.ascontiguousarray(op.apply(params, row, frame())).tobytes())
    assert digest.hexdigest() == GOLDEN[f"{name} {value}"]
