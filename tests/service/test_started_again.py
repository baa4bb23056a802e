"""A service that starts again in the middle of a training: who goes on is told what the new run found, and no batch
has labels that mean something else than this process was told.
"""

import logging
import os
import pickle
import re
import shutil
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

import viewcache
from tests.service.conftest import attached
from tests.service.served import in_child
from tests.streaming.arriving import arrive, streaming
from tests.tiny import encode_folder
from viewcache.api.service import files
from viewcache.api.service.stopping import stop
from viewcache.errors import BadInput

SHIFTED = "class 'cats' was 0 and is 1, class 'dogs' was 1 and is 2"


@pytest.fixture
def folder(tmp_path: Path, videos: Path) -> Path:
    """The ten videos, in a folder that the test may change."""
    return Path(shutil.copytree(videos, tmp_path / "videos"))


def kill(store: Path) -> None:
    """End the service without a word."""
    facts = files.read_facts(store)
    assert facts is not None
    os.kill(facts.pid, signal.SIGKILL)
    files.wait_ended(store, facts)


def stopped(store: Path) -> None:
    """End it as `viewcache stop` does."""
    stop(store)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged of files and classes that changed."""
    return [each.getMessage() for each in caplog.records if getattr(each, "action", "") == "files_changed"]


@pytest.mark.parametrize("end", [kill, stopped])
def test_a_class_that_shifts_is_an_error(
    store: Path, folder: Path, end: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """A folder comes before the others: nothing with labels is read on, what was told stays; who opens again may."""
    with attached(store, folder) as cache:
        before = cache.read("train", 0, 0)
        seat = cache.task("train").sit()
        assert seat.read(0, 0) is not None
        end(store)
        encode_folder(folder, {"ants/a.mp4": 44})
        with pytest.raises(BadInput, match=SHIFTED):
            seat.read(0, 1)
        for _ in range(2):
            with pytest.raises(BadInput, match=SHIFTED):
                cache.read("train", 0, 0)
        with pytest.raises(BadInput, match=SHIFTED):
            cache.task("train").describe(0, 0)
        with pytest.raises(BadInput, match=SHIFTED):
            next(iter(cache.loader("train")))
        assert cache.classes("train") == ("cats", "dogs")
        assert [str(each.change) for each in cache.changes("train")] == ["added", "renumbered"]
        (warning,) = cache.warnings
        assert SHIFTED in warning
        (line,) = logged(caplog)
        assert "the service was started again" in line
        assert SHIFTED in line
        with attached(store, folder) as again:
            after = again.read("train", 0, 0)
            assert again.classes("train") == ("ants", "cats", "dogs")
        assert after.videos == before.videos
        assert np.array_equal(after.label, before.label + 1)
        shutil.rmtree(folder / "ants")
        end(store)
        cache.stats()  # a process that was killed may still hold its sockets; the run that answers is the next one
        assert np.array_equal(cache.read("train", 0, 0).label, before.label)  # the numbers are those of before again


def test_a_bad_file_is_told_by_each_run_once(store: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It comes in the middle of a training: whoever goes on is warned, as long as a run finds it."""
    with attached(store, folder, epochs=20) as cache:
        before = cache.read("train", 0, 0)
        assert not cache.warnings
        (folder / "cats" / "a-bad.mp4").write_bytes(b"not a video")
        for _ in range(2):
            kill(store)
            assert np.array_equal(cache.read("train", 0, 0).video, before.video)
            (warning,) = cache.warnings
            assert re.search(r"from epoch \d on nothing can be drawn: .*a-bad\.mp4", warning)
            assert warning.partition(": ")[2] in logged(caplog)[-1]
        with attached(store, folder, epochs=20) as late:
            assert late.warnings == (warning,)
        assert [each.getMessage() for each in caplog.records].count(warning) == 1
        (folder / "cats" / "a-bad.mp4").unlink()
        kill(store)
        cache.read("train", 0, 0)
        assert not cache.warnings


def test_a_loop_hands_out_what_it_had_read_and_ends(store: Path, folder: Path) -> None:
    """No batch with other numbers is among those that were read ahead."""
    with attached(store, folder) as cache:
        truth = [
            (each["epoch"], each["iteration"], each["label"].tolist())
            for each in cache.loader("train", framework="numpy").all_epochs()
        ]
        batches = cache.loader("train", framework="numpy").all_epochs()
        next(batches)
        kill(store)
        encode_folder(folder, {"ants/a.mp4": 44})
        handed: list[tuple[int, int, list[int]]] = []
        with pytest.raises(BadInput, match=SHIFTED):
            handed.extend((each["epoch"], each["iteration"], each["label"].tolist()) for each in batches)
        assert handed == truth[1 : 1 + len(handed)]


def test_classes_that_come_behind_disturb_nobody(store: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No number means another class: the loop goes on, and is told of the files, and of the class."""
    caplog.set_level(logging.INFO, "viewcache.service")
    with attached(store, folder) as cache:
        before = cache.read("train", 0, 0)
        kill(store)
        encode_folder(folder, {"zebras/z.mp4": 44})
        after = cache.read("train", 0, 0)
        assert np.array_equal(before.video, after.video)
        assert np.array_equal(before.label, after.label)
        assert cache.classes("train") == ("cats", "dogs", "zebras")
        assert [str(each.change) for each in cache.changes("train")] == ["added"]
        assert cache.warnings == ()
        assert [record.levelname for record in caplog.records if "z" in record.getMessage()] == ["INFO"]
        shutil.rmtree(folder / "zebras")
        encode_folder(folder, {"yaks/y.mp4": 44})
        kill(store)
        with pytest.raises(BadInput, match="2 was class 'zebras' and is 'yaks'"):
            cache.read("train", 0, 0)


def test_labels_of_a_dataset_that_grows_keep_their_numbers(tmp_path: Path, store: Path, videos: Path) -> None:
    """A class that joins comes behind those that were drawn, also where another run of the service finds it."""
    arrive(tmp_path / "videos" / "dogs", *sorted((videos / "dogs").iterdir()))
    given = streaming(store, tmp_path / "videos", labels="folders")
    with viewcache.open(given, service="auto") as cache:
        before = cache.read("train", 0, 0)
        assert cache.classes("train") == ("dogs",)
        arrive(tmp_path / "videos" / "cats", *sorted((videos / "cats").iterdir()))
        kill(store)
        assert np.array_equal(cache.read("train", 0, 0).label, before.label)
        epochs = (cache.read("train", epoch, each) for epoch in (0, 7) for each in range(2))
        labels = {pair for each in epochs for pair in zip(each.videos, each.label.tolist(), strict=True)}
        assert {(name.partition(".")[0], label) for name, label in labels} == {("dogs", 0), ("cats", 1)}
        assert cache.classes("train") == ("dogs", "cats")


def test_replaced_files_are_told_once(store: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where the views show the new content, the reader has the warning that opening gives; also after further runs."""
    with attached(store, folder, on_changed_video="warn") as cache:
        name = cache.read("train", 0, 0).videos[0]
        kill(store)
        path = Path(cache.video("train", name)[0])
        kill(store)
        encode_folder(path.parent, {path.name: 60})
        os.utime(path, ns=(1, 1))
        assert cache.read("train", 0, 0).videos[0] == name
        (change,) = cache.changes("train")
        assert (str(change.change), change.names) == ("replaced", (name,))
        (line,) = logged(caplog)
        assert f"1 file was replaced ({name})" in line
        kill(store)
        cache.read("train", 0, 1)
        assert cache.changes("train") == (change,)
        assert logged(caplog) == [line]


def test_a_fork_and_a_copy_go_by_what_their_parent_was_told(store: Path, folder: Path) -> None:
    """A process that comes later than the new run of the service refuses what its parent would."""
    with attached(store, folder) as cache:
        cache.read("train", 0, 0)
        sent = pickle.dumps(cache)
        kill(store)
        encode_folder(folder, {"ants/a.mp4": 44})
        assert SHIFTED in in_child(lambda: str(cache.read("train", 0, 0)))
        with pickle.loads(sent) as copy:
            with pytest.raises(BadInput, match=SHIFTED):
                copy.read("train", 0, 0)
            assert copy.classes("train") == ("cats", "dogs")
            with pickle.loads(pickle.dumps(copy)) as further, pytest.raises(BadInput, match=SHIFTED):
                further.read("train", 0, 0)


@pytest.mark.parametrize(
    ("context", "workers", "persistent"), [("fork", 2, False), ("fork", 2, True), ("spawn", 1, False)]
)
def test_workers_of_a_dataloader_refuse_it_too(
    store: Path, folder: Path, context: str, workers: int, persistent: bool
) -> None:
    """Those that torch keeps, and those of a later pass: the error is raised in the training loop.

    One that is spawned beside another would still be starting when that raises, and the test ends.
    """
    with attached(store, folder) as cache, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork in a process that has threads
        dataset: Any = cache.loader("train")
        batches: DataLoader[dict[str, Any]] = DataLoader(
            dataset,
            batch_size=None,
            num_workers=workers,
            multiprocessing_context=context,
            timeout=120,
            persistent_workers=persistent,
        )
        assert len([batch["label"].tolist() for batch in batches]) == 5
        kill(store)
        encode_folder(folder, {"ants/a.mp4": 44})
        with pytest.raises(BadInput, match=SHIFTED):
            list(batches)
        del batches


def test_workers_tell_what_changed_once(store: Path, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of several workers that meet another run of the service, the first one logs it."""
    with attached(store, folder, on_changed_video="warn") as cache:
        dataset: Any = cache.loader("train")
        batches: DataLoader[dict[str, Any]] = DataLoader(
            dataset, batch_size=None, num_workers=2, multiprocessing_context="spawn", timeout=120
        )
        assert len([batch["label"].tolist() for batch in batches]) == 5
        kill(store)
        encode_folder(folder, {"dogs/v2.mp4": 60})
        os.utime(folder / "dogs" / "v2.mp4", ns=(1, 1))
        assert len([batch["label"].tolist() for batch in batches]) == 5
        assert capfd.readouterr().err.count("1 file was replaced (dogs.-v2)") == 1
