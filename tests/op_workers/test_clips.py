"""Operations on whole clips in an op worker: the bytes of this process, and errors that are their clip's alone."""

from pathlib import Path

import numpy as np
import pytest

from tests.op_workers.served import entry, module, spec
from tests.tiny import open_cache, pixels, same, single, sql
from viewcache.errors import OpWorkerFailed
from viewcache.materializer.op_workers import crew as crews
from viewcache.materializer.op_workers.crew import Crew
from viewcache.materializer.op_workers.remote import RemoteClipOp, remote_op
from viewcache.materializer.ops import ClipOp, get, load_modules, registry

CLIPS = """
import os, time
import numpy as np
from viewcache.ops import ClipOp, Field, Whole, scaled, transform


class Echo(ClipOp):
    '''Each frame is the mean of itself and the one that many before it.'''

    name = "echo"
    fields = (Field("most", Whole(1, 9), 2, "longest distance"),)
    columns = ("back",)

    def resolve(self, params, draw, h, w):
        return (1 + scaled(draw.fraction("back"), dict(params)["most"]))[:, None].astype(np.int32), h, w

    def apply_clip(self, params, row, clip):
        return ((clip.astype(np.uint16) + np.roll(clip, int(row[0]), axis=0)) // 2).astype(np.uint8)


@transform(version="1")
def grain(clip, rng, strength=8):
    clip += rng.integers(0, strength, clip.shape, np.uint8)
    return clip


@transform(version="1")
def shuffled(clip):
    np.random.shuffle(clip)
    return clip


@transform(random=False, size=(8, 24), version="1")
def widened(clip):
    return np.tile(clip[:, :, :8, :8], (1, 1, 1, 3))


@transform(random=False, version="1")
def wrong(clip):
    first = clip[0, 0, 0, 0]
    if first == 1:
        raise ValueError("not today")
    if first == 2:
        return clip[:-1]
    if first == 3:
        return clip / 2
    if first == 4:
        return clip[..., ::2]
    if first == 5:
        os._exit(7)
    if first == 6:
        time.sleep(1000)
    if first == 7:
        return np.zeros((len(clip), 3, 1 << 14, 1 << 14), np.uint8)
    return 255 - clip


OPS = [Echo, grain, shuffled, widened, wrong]
"""
STEPS = [
    single(
        {"resize": {"short_side": 36}},
        {"random_crop": [32, 32]},
        {"echo": {"most": 3}},
        {"grain": {"strength": 20}},
        "shuffled",
    ),
]
STACKED = [
    {"branch_type": "multi", "inputs": ["frame"], "outputs": ["a", "b"], "config": None},
    single({"resize": {"shape": [16, 16]}}, "echo", of="a", into="a2"),
    single({"resize": {"shape": [16, 16]}}, of="b", into="b2"),
    {"branch_type": "merge", "inputs": ["a2", "b2"], "outputs": ["c"], "merge": "stack"},
    single("widened", "grayscale", of="c", into="d"),
]  # fmt: skip


@pytest.mark.parametrize("steps", [STEPS, STACKED], ids=["chain", "stacked"])
def test_bytes_and_keys_are_those_of_this_process(
    steps: list[object], other_python: Path, videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole cache with clips in another environment, with another NumPy, and one with them in its own processes."""
    folder = module(tmp_path / "ops", "clips_equal", CLIPS)
    monkeypatch.syspath_prepend(folder)
    found = []
    for store, code in (("one", entry(folder, "clips_equal", other_python)), ("two", {"op_modules": ["clips_equal"]})):
        with (
            registry.own_registrations(),
            open_cache(tmp_path / store, videos, cache=code, augmentation=steps) as cache,
        ):
            found.append((pixels(cache), set(map(str, sql(cache, "select key from objects where kind = 'clip'")))))
    (there, keys_there), (here, keys_here) = found
    assert same(there, here)
    assert keys_there == keys_here


def the_op(crew: Crew, name: str) -> RemoteClipOp:
    """An operation on clips that it serves."""
    op = next(remote_op(crew, each) for each in crew.ops() if each.name == name)
    assert isinstance(op, RemoteClipOp)
    return op


def test_each_method_answers_as_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts, parameters, sizes and clips of a class and of functions; the clip that is given stays as it is."""
    folder = module(tmp_path / "ops", "clips_each", CLIPS)
    monkeypatch.syspath_prepend(folder)
    load_modules(["clips_each"])
    crew = Crew(spec(folder, "clips_each"))
    clip = np.random.default_rng(3).integers(0, 256, (40, 16, 20, 3), np.uint8).transpose(0, 3, 1, 2)  # not contiguous
    clip.flags.writeable = False
    before = clip.copy()
    for name, drawn in (("echo", [2]), ("grain", [3, 4]), ("shuffled", [3, 4]), ("widened", [])):
        here, there = get(name), the_op(crew, name)
        assert isinstance(here, ClipOp)
        facts = ("name", "fingerprint", "effect", "scope", "columns", "keyed", "sizes", "stage")
        assert [getattr(there, fact) for fact in facts] == [getattr(here, fact) for fact in facts]
        params, row = here.parse(None), np.array(drawn, np.int32)
        assert there.parse(None) == params
        assert there.out_size(params, (16, 20)) == here.out_size(params, (16, 20))
        assert np.array_equal(there.run_clip(params, row, clip), here.run_clip(params, row, clip))
    assert np.array_equal(clip, before)
    crew.close()


WRONG = {
    1: "ValueError: not today",
    2: r"gave uint8 \(5, 3, 8, 8\) for a clip of \(6, 3, 8, 8\)",
    3: "gave float64",
    4: "a frame of 8x4 for one of 8x8, but says that it keeps sizes",
    5: "ended with exit status 7",
    6: "gave no answer within 2 s",
    7: "asks for .* bytes of shared memory|MemoryError",
}


@pytest.mark.parametrize("first", WRONG)
def test_a_clip_that_fails_says_why(first: int, tmp_path: Path) -> None:
    """Exceptions, nonsense, crashes, hangs: an error of the clip; the next clip is well."""
    folder = module(tmp_path / "ops", f"clips_wrong_{first}", CLIPS)
    crew = Crew(spec(folder, f"clips_wrong_{first}", timeout_s=2.0 if first == 6 else 10.0, memory_bytes=1 << 30))
    op, none = the_op(crew, "wrong"), np.zeros(0, np.int32)
    clip = np.full((6, 3, 8, 8), first, np.uint8)
    with pytest.raises(OpWorkerFailed, match=rf"(?s)op worker 'mine': operation 'wrong': .*{WRONG[first]}") as failed:
        op.run_clip((), none, clip)
    assert failed.value.of_clip
    assert (op.run_clip((), none, clip + 90) == 255 - 90 - first).all()
    crew.close()


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clip that does not go into the memory of one call is refused before any is taken, with what to do."""
    crew = Crew(spec(module(tmp_path / "ops", "clips_large", CLIPS), "clips_large"))
    op = the_op(crew, "wrong")
    monkeypatch.setattr(crews, "MOST_BYTES", 1 << 20)
    with pytest.raises(OpWorkerFailed, match=r"64 frames of 64x64 need 1572864 bytes .* crop before it"):
        op.run_clip((), np.zeros(0, np.int32), np.zeros((64, 3, 64, 64), np.uint8))
    crew.close()


def test_readers_are_told(videos: Path, tmp_path: Path) -> None:
    """A clip that cannot be made is `op_worker_failed` for who reads it, in the operation's words and the policy's."""
    folder = module(tmp_path / "ops", "clips_policy", CLIPS.replace("first = clip[0, 0, 0, 0]", "first = 1"))
    steps = [single({"resize": {"shape": [16, 16]}}, "wrong")]
    told = pytest.raises(OpWorkerFailed, match=r"not today; .*set on_bad_video: replace$")
    with (
        registry.own_registrations(),
        open_cache(tmp_path / "one", videos, cache=entry(folder, "clips_policy"), augmentation=steps) as cache,
        told,
    ):
        pixels(cache)
