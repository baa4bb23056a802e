"""A question that the service dies of each time: it is not asked for ever, and what it is about is named."""

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from tests.service.deadly import ARMED
from tests.service.served import Opener
from tests.tiny import single
from viewcache.api.service import asking, files
from viewcache.api.service.stopping import stop
from viewcache.errors import Broken
from viewcache.materializer.gate import Cancelled

DEADLY = [single({"resize": {"shape": [32, 32]}}, {"deadly": {}})]


@pytest.fixture
def armed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that makes the operation end the service; it is not there yet."""
    path = tmp_path / "armed"
    monkeypatch.setenv(ARMED, str(path))
    return path


def test_three_services_die_of_a_question_and_no_fourth(
    attach: Opener, store: Path, armed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the error names the view and says what to do; once its cause is gone the same view can be read."""
    monkeypatch.setattr("viewcache.api.service.client.CALM_S", 0.1)
    settings = {"worker_kind": "threads", "op_modules": ["tests.service.deadly"]}
    cache = attach(cache=settings, augmentation=DEADLY)
    armed.touch()
    with pytest.raises(
        Broken, match=r"died 3 times in a row when it was asked for view train/2/3; its log, "
    ) as deadly:
        cache.read("train", 2, 3)
    assert str(store / files.LOG) in str(deadly.value)
    assert "Leave out the video or the operation" in str(deadly.value)
    assert len(set(armed.read_text().split())) == 3
    armed.unlink()
    assert cache.read("train", 2, 3).video.shape == (4, 4, 3, 32, 32)


def test_a_service_that_others_kill_does_not_count(
    attach: Opener, store: Path, armed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is let live for a while before it is asked for the last time: one that dies unasked dies of something else."""
    calm = Event()

    def begun(line: socket.socket, _seconds: float, cancelled: Cancelled | None) -> None:
        calm.set()
        asking.wait_calmly(line, 600.0, cancelled)

    monkeypatch.setattr("viewcache.api.service.client.wait_calmly", begun)
    settings = {"worker_kind": "threads", "op_modules": ["tests.service.deadly"]}
    cache = attach(cache=settings, augmentation=DEADLY)
    armed.touch()
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(cache.read, "train", 2, 3)
        assert calm.wait(120)
        assert len(set(armed.read_text().split())) == 2
        armed.unlink()
        stop(store, now=True)
        assert read.result(120).video.shape == (4, 4, 3, 32, 32)
