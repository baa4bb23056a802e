"""Where an operation runs changes nothing: bytes, keys and draws are those of the same operation in this process."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.op_workers.served import SOLARIZE, entry, module, spec, the_op
from tests.tiny import open_cache, pixels, same, single, sql
from viewcache.materializer.op_workers.crew import Crew
from viewcache.materializer.ops import Draw, FrameOp, get, load_modules, registry
from viewcache.materializer.randomness import address_word

CHAIN = [
    single({"resize": {"short_side": 36}}, {"solarize": [64, 192]}, {"random_crop": [32, 32]}, {"solarize": [0, 99]}),
]
"""Two of them with operations of this process around them."""
MERGED = [
    {"branch_type": "multi", "inputs": ["frame"], "outputs": ["a", "b"], "config": None},
    single({"resize": {"shape": [24, 24]}}, {"tile": None}, of="a", into="a2"),
    single({"resize": {"shape": [24, 24]}}, {"tile": {"times": [2, 2]}}, "grayscale", of="b", into="b2"),
    {"branch_type": "merge", "inputs": ["a2", "b2"], "outputs": ["c"], "merge": "mean"},
    single({"solarize": [10, 240]}, of="c", into="d"),
]
"""Sizes change, and the last one gets whole clips."""


def _read(store: Path, videos: Path, cache: Mapping[str, object], steps: list[Any]) -> tuple[Any, set[str]]:
    with registry.own_registrations(), open_cache(store, videos, cache=cache, augmentation=steps) as open_one:
        return pixels(open_one), set(map(str, sql(open_one, "select key from objects where kind = 'clip'")))


@pytest.mark.parametrize("steps", [CHAIN, MERGED], ids=["chain", "merged"])
def test_bytes_and_keys_are_those_of_this_process(
    steps: list[Any], other_python: Path, videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole cache with the operations in another environment, with another NumPy, and one with them in its own."""
    folder = module(tmp_path / "ops", "equal_ops", SOLARIZE)
    there, keys_there = _read(tmp_path / "one", videos, entry(folder, "equal_ops", other_python), steps)
    monkeypatch.syspath_prepend(folder)
    here, keys_here = _read(tmp_path / "two", videos, {"op_modules": ["equal_ops"]}, steps)
    assert same(there, here)
    assert keys_there == keys_here


@pytest.mark.long
def test_frames_that_were_kept_go_there_too(videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a budget that keeps frames instead of clips, and asked for by frame, all is as in this process."""
    folder = module(tmp_path / "ops", "kept_ops", SOLARIZE)
    monkeypatch.syspath_prepend(folder)
    found = []
    for store, code in (("one", entry(folder, "kept_ops")), ("two", {"op_modules": ["kept_ops"]})):
        cache = {"budget": 800_000, "epochs_per_generation": 4, **code}
        sampling = {"samples_per_video": 3}
        with (
            registry.own_registrations(),
            open_cache(
                tmp_path / store, videos, cache=cache, sampling=sampling, epochs=4, augmentation=CHAIN
            ) as opened,
        ):
            frame = opened.aug("train", "v0", 3, 1)
            found.append((pixels(opened), frame, sql(opened, "select count(*) from objects where kind = 'frames'")))
    (there, frame_there, kept), (here, frame_here, _) = found
    assert same(there, here)
    assert np.array_equal(frame_there, frame_here)
    assert kept != [(0,)]


def test_threads_use_an_op_worker_each(videos: Path, tmp_path: Path) -> None:
    """Workers that are threads of this process give the same."""
    cache = entry(module(tmp_path / "ops", "thread_ops", SOLARIZE), "thread_ops")
    processes, _ = _read(tmp_path / "one", videos, cache, CHAIN)
    threads, _ = _read(tmp_path / "two", videos, cache | {"worker_kind": "threads", "workers": 2}, CHAIN)
    assert same(processes, threads)


@pytest.mark.parametrize("name", ["solarize", "tile"])
def test_each_method_answers_as_here(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters, sizes, draws and frames of thousands of clips, asked for in one go."""
    folder = module(tmp_path / "ops", f"each_{name}", SOLARIZE)
    monkeypatch.syspath_prepend(folder)
    load_modules([f"each_{name}"])
    here = get(name)
    assert isinstance(here, FrameOp)
    crew = Crew(spec(folder, f"each_{name}"))
    there = the_op(crew, name)
    params = here.parse(None if name == "solarize" else {"times": [1, 3]})
    assert there.parse(None if name == "solarize" else {"times": [1, 3]}) == params
    facts = ("name", "fingerprint", "effect", "scope", "columns", "keyed", "sizes", "stage", "native")
    assert [getattr(there, fact) for fact in facts] == [getattr(here, fact) for fact in facts]
    assert there.key_params(params) == here.key_params(params)
    assert there.out_size(params, (7, 9)) == here.out_size(params, (7, 9))
    assert there.size_hint(params) == here.size_hint(params)
    n = 5000
    video = np.array([address_word(f"v{k % 7}") for k in range(n)], np.uint64)
    draw = Draw(2**62, here.scope, 1, video, np.arange(n) // 100, np.arange(n) % 100, 2**64 - 1)
    sizes = np.full(n, 24), np.arange(1, n + 1)
    for k in range(3):
        drawn, drawn_there = here.resolve(params, draw, *sizes)[k], there.resolve(params, draw, *sizes)[k]
        assert drawn.dtype == drawn_there.dtype
        assert np.array_equal(drawn, drawn_there)
    row = here.resolve(params, draw, *sizes)[0][3]
    frame = np.random.default_rng(3).integers(0, 256, (40, 50, 3), np.uint8)
    frames = [np.flip(frame, k % 2).transpose(2, 0, 1) for k in range(40)]  # more than one call takes, not contiguous
    for ours, theirs in zip(here.run_all(params, row, frames), there.run_all(params, row, frames), strict=True):
        assert np.array_equal(ours, theirs)
    crew.close()


def test_nothing_is_drawn_for_nobody(tmp_path: Path) -> None:
    """No clips, no rows."""
    crew = Crew(spec(module(tmp_path / "ops", "empty_ops", SOLARIZE), "empty_ops"))
    none = np.zeros(0, np.int64)
    op = the_op(crew, "solarize")
    rows, height, width = op.resolve(op.parse(None), Draw(1, "s", 0, none.astype(np.uint64), none, none), none, none)
    assert rows.shape == (0, 1)
    assert len(height) == len(width) == 0
    crew.close()
