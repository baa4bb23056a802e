"""An operation of the user's own that breaks its contract spoils no batch, and people can see what happened."""

from pathlib import Path

import pytest

import viewcache
from tests.faults.caches import config
from viewcache.api.queries.ask import ask
from viewcache.errors import Broken, OpFailed
from viewcache.materializer.ops import registry

MODULE = """
import numpy as np
from viewcache.materializer.ops import FrameOp

class Spoil(FrameOp):
    name = "spoil_{what}"

    def resolve(self, params, draw, h, w):
        return np.zeros((len(draw.sample), 0), np.int32), h, w

    def apply(self, params, row, frame):
        {body}

OPS = [Spoil]
"""
SPOILT = {
    "float": ("return frame.astype(np.float32) * 2", "gave float32 (3, "),
    "list": ("return frame.tolist()", "gave list for a frame"),
    "flat": ("return frame[0]", "it must give (3, h, w) uint8"),
    "write": ("frame[:] = 0; return frame", "read-only"),
    "raise": ("raise ValueError('not today')", "ValueError: not today"),
    "size": ("return frame[:, ::2, ::2]", "by 'spoil_size'; another size is said beforehand"),
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_broken_contract_is_an_error_that_is_recorded(
    what: str, store: Path, videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong types and shapes, writing into a shared frame, an exception: the read fails, `errors` says why."""
    body, told = SPOILT[what]
    (tmp_path / f"spoil_{what}.py").write_text(MODULE.format(what=what, body=body))
    monkeypatch.syspath_prepend(tmp_path)
    given = config(tmp_path / "own", videos)
    given["cache"]["op_modules"] = [f"spoil_{what}"]
    given["dataset"]["augmentation"][-1]["config"].append({f"spoil_{what}": {}})
    with registry.own_registrations(), viewcache.open(given) as cache:
        with pytest.raises(OpFailed, match=r"^v\d\.mp4: |^v\d: ") as failed:
            cache.read("t", 0, 0)
        assert told in str(failed.value)
        assert f"spoil_{what}" in str(failed.value)
        assert "/viewcache/" not in str(failed.value)
    messages = [row["message"] for row in ask(str(tmp_path / "own"), "select message from errors").dicts()]
    assert messages
    assert all(told in str(message) and str(message).startswith("op_failed: ") for message in messages)


DRAWS = """
from viewcache.materializer.ops import FrameOp, TimeOp

class Draws(FrameOp):
    name = "draws"

    def resolve(self, params, draw, h, w):
        return {}["no such draw"]

    def apply(self, params, row, frame):
        return frame

class Chooses(TimeOp):
    name = "chooses"

    def frames(self, params, rows, idx):
        return idx["no such frame"]

OPS = [Draws, Chooses]
"""


@pytest.mark.parametrize("what", ["draws", "chooses"])
def test_choices_that_fail_are_told(what: str, videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception while a generation is planned names the operation, too, and not viewcache's planning."""
    (tmp_path / "own_draws.py").write_text(DRAWS)
    monkeypatch.syspath_prepend(tmp_path)
    given = config(tmp_path / "own", videos)
    given["cache"]["op_modules"] = ["own_draws"]
    given["dataset"]["augmentation"][-1]["config"].append({what: {}})
    with (
        registry.own_registrations(),
        pytest.raises(OpFailed, match=rf"(?s)operation '{what}' failed.*own_draws\.py.*no such|indices") as failed,
        viewcache.open(given) as cache,
    ):
        cache.read("t", 0, 0)
    assert "/viewcache/" not in str(failed.value)


def test_a_worker_that_finds_other_code_makes_nothing(
    store: Path, videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file was edited after the cache was opened: what the worker would make has the key of the code before."""
    source = tmp_path / "edited_ops.py"
    source.write_text(MODULE.format(what="edited", body="return 255 - frame"))
    monkeypatch.syspath_prepend(tmp_path)
    given = config(tmp_path / "own", videos)
    given["cache"]["op_modules"] = ["edited_ops"]
    given["dataset"]["augmentation"][-1]["config"].append({"spoil_edited": {}})
    with registry.own_registrations(), viewcache.open(given) as cache:
        source.write_text(MODULE.format(what="edited", body="return 254 - frame"))
        with pytest.raises(Broken, match=r"'spoil_edited': its file was changed after it was imported.*viewcache stop"):
            cache.read("t", 0, 0)


def test_a_fingerprint_is_of_the_code_that_was_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit changes what the next process runs, and not what this one says of what it has loaded."""
    source = tmp_path / "loaded_ops.py"
    source.write_text(MODULE.format(what="loaded", body="return 255 - frame"))
    monkeypatch.syspath_prepend(tmp_path)
    with registry.own_registrations():
        registry.load_modules(["loaded_ops"])
        before = registry.get("spoil_loaded").fingerprint
        source.write_text(MODULE.format(what="loaded", body="return 254 - frame"))
        assert registry.get("spoil_loaded").fingerprint == before
