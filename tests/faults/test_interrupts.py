"""Ctrl-C while the main thread asks something of a cache, and then going on, as in a notebook."""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import viewcache
from tests.laws.test_groups import SMALL, several
from tests.tiny import encode_folder, same
from viewcache.api.session.cache import Cache

VIDEOS, EPOCHS = 4, 60
MOST = 2000
"""Places at which a call may be interrupted; more would take minutes, and mean that the main thread works itself."""


def interrupted(call: Callable[[], object], at: int) -> bool:
    """Raise KeyboardInterrupt where Python would at a signal: after the ``at``-th call of a function began or returned.

    Returns whether the call was over before.
    """
    seen = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal seen
        if event == "c_call":  # C code is not interrupted before it runs
            return
        seen += 1
        if seen > at:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(count)
    try:
        call()
    except KeyboardInterrupt:
        return False
    finally:
        sys.setprofile(None)
    return True


def together(folder: Path) -> dict[str, Any]:
    """Two tasks that are drawn together, one iteration ahead."""
    videos = encode_folder(folder / "v", {f"v{k}.mp4": 20 + k for k in range(VIDEOS)})
    sampling = {"videos_per_batch": 1, "frames_per_video": 2, "samples_per_video": 1}
    tasks = [{"tag": tag, "epochs": EPOCHS, "augmentation": SMALL, "sampling": sampling} for tag in ("a", "b")]
    return several(folder / "s", videos, *tasks, worker_kind="threads", draw_ahead=1)


@pytest.mark.parametrize("verb", ["read", "frame", "iterations", "materialize"])
def test_an_interrupted_call_leaves_nothing_behind(tmp_path: Path, verb: str) -> None:
    """Wherever it is interrupted, the next call gives what it would have given, and the cache closes."""
    verbs: dict[str, Callable[[Cache, int], object]] = {
        "read": lambda cache, n: cache.read("a", *divmod(n % (EPOCHS * VIDEOS), VIDEOS)),
        "frame": lambda cache, n: cache.frame("a", f"v{n % VIDEOS}", n % 20),
        "iterations": lambda cache, n: cache.task("a").iterations(n % EPOCHS),
        "materialize": lambda cache, n: next(begun.setdefault(n, cache.materialize(1))),
    }
    begun: dict[int, Iterator[dict[str, int]]] = {}
    whole = together(tmp_path)
    with viewcache.open(whole) as cache:
        at = 0
        while not interrupted(partial(verbs[verb], cache, at), at):
            batch = cache.read("b", *divmod(at % (EPOCHS * VIDEOS), VIDEOS))
            at += 1
            assert at < MOST
        before = cache.read("a", 0, 0)
    assert batch.video.size
    with viewcache.open(whole) as cache:
        assert same({(0, 0): cache.read("a", 0, 0)}, {(0, 0): before})


def test_an_interrupted_close_is_ended_by_the_next(tmp_path: Path, no_leaks: None) -> None:
    """Wherever closing is interrupted, closing again ends it, and the cache can be opened again."""
    whole = together(tmp_path)
    for at in range(MOST):
        cache = viewcache.open(whole)
        cache.read("a", 0, 0)
        done = interrupted(cache.close, at)
        cache.close()
        if done:
            return
    raise AssertionError("the main thread closes the cache itself")
