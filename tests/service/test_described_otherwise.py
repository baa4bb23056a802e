"""What decides no view may be said otherwise by each process: a layout is its own, the rest is had, or told."""

import os
import pickle
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import torch

import viewcache
from tests.service.served import VIDEOS, Opener, described, in_child
from tests.tiny import encode_folder
from viewcache.api.service.attached import AttachedCache
from viewcache.errors import BadVideo, ConfigError
from viewcache.materializer.planning.definition import NOT_DEFINING
from viewcache.materializer.spec import DatasetSpec

LINKS = "/usr"
"""Any folder."""

OTHERWISE: dict[str, tuple[dict[str, Any], str, str]] = {
    "fields": ({"fields": ["age"]}, "fields: []", "fields: [age]"),
    "follow_links": ({"follow_links": True}, "follow_links: false", "follow_links: true"),
    "link_roots": (
        {"follow_links": True, "link_roots": [LINKS]},
        "follow_links: false, link_roots: []",
        f"follow_links: true, link_roots: [{LINKS}]",
    ),
    "on_changed_video": ({"on_changed_video": "warn"}, "on_changed_video: raise", "on_changed_video: warn"),
    "on_missing_video": ({"on_missing_video": "raise"}, "on_missing_video: replace", "on_missing_video: raise"),
    "probe": ({"probe": "full"}, "probe: lazy", "probe: full"),
    "remote": ({"remote": True}, "remote: auto", "remote: true"),
    "settle": ({"settle": 0.5}, "settle: 2", "settle: 0.5"),
}
"""Key of a dataset that is no part of the definition → what says it otherwise, and how it is told before and after."""


@pytest.fixture
def usual(tmp_path: Path) -> dict[str, Any]:
    """A task that may have any of these keys."""
    table = tmp_path / "rows.csv"
    rows = [f"{name},a,{number}\n" for number, name in enumerate(VIDEOS)]
    table.write_text("".join(["video,label,age\n", *rows]))
    return {"labels": str(table), "input_source": "streaming"}


def test_every_key_is_tried() -> None:
    """One that comes later is compared, too."""
    assert OTHERWISE.keys() == set(NOT_DEFINING[DatasetSpec])


def test_another_value_is_told(attach: Opener, store: Path, usual: dict[str, Any]) -> None:
    """While a process uses the task, who says otherwise is refused with both values, and the first one reads on."""
    first = attach(**usual)
    for given, has, wants in OTHERWISE.values():
        with pytest.raises(ConfigError) as refused:
            attach(**usual, **given)
        end = f"End the service by `viewcache stop {store}` first, or ask for the same"
        assert f"the task 'train' is open with {has}; here it has {wants}. {end}" in str(refused.value)
    assert attach(**usual).stats().pid == first.stats().pid
    assert first.read("train", 0, 0).video.shape == (4, 4, 3, 32, 32)


def test_a_missing_video_is_an_error_for_who_says_so(attach: Opener, tmp_path: Path) -> None:
    """Who comes to a service of a process that has gone, whose videos are replaced, gets no other videos."""
    folder = encode_folder(tmp_path / "own", {f"v{k}.mp4": 40 + k for k in range(4)})
    settings: dict[str, Any] = {"video_dataset_path": str(folder), "labels": None}
    first = attach(**settings)
    pid = first.stats().pid
    first.close()
    cache = attach(**settings, on_missing_video="raise")
    assert cache.stats().pid != pid
    for k in range(4):
        (folder / f"v{k}.mp4").unlink()
    with pytest.raises(BadVideo, match="no such file; nothing of it is stored"):
        cache.read("train", 0, 0)


def test_a_layout_is_each_process_own(attach: Opener) -> None:
    """Axes are put in order by who reads, whoever opened the task; what is read by path is the same."""
    first, second = attach(), attach(layout="CTHW")
    assert second.stats().pid == first.stats().pid
    (one, *_), (other, *_) = (each.loader("train", framework="numpy") for each in (first, second))
    assert other["video"].shape == (4, 3, 4, 32, 32)
    assert np.array_equal(one["video"], other["video"].transpose(0, 2, 1, 3, 4))
    assert np.array_equal(first.read("train", 0, 0).video, second.read("train", 0, 0).video)
    assert fsspec.filesystem("view", skip_instance_cache=True).info("train")["view"]["layout"] == "CTHW"


def test_a_layout_goes_along(attach: Opener, store: Path, videos: Path) -> None:
    """With the next service, which another process may describe the task to, into a child, a pickle and workers."""
    attach(tag="val"), attach()
    cache = attach(layout="CTHW")
    cache.join(described(store, videos, tag="val", layout="THWC"))

    def layouts(of: AttachedCache) -> tuple[str, ...]:
        return tuple(of.task(name).layout for name in ("train", "val"))

    assert layouts(cache) == ("CTHW", "THWC")
    assert in_child(lambda: " ".join(layouts(cache))) == "CTHW THWC"
    with pickle.loads(pickle.dumps(cache)) as again:
        assert layouts(again) == ("CTHW", "THWC")
    loader: Any = cache.loader("val")
    for batch in torch.utils.data.DataLoader(loader, batch_size=None, num_workers=1, multiprocessing_context="spawn"):
        assert batch["video"].shape == (4, 4, 32, 32, 3)
    os.kill(cache.stats().pid, signal.SIGKILL)
    (first, *_) = cache.loader("train")
    assert first["video"].shape == (4, 3, 4, 32, 32)
    assert layouts(cache) == ("CTHW", "THWC")


def test_who_describes_no_task_has_its_layout(attach: Opener, store: Path, videos: Path) -> None:
    """A process that reads what another one described, without a word of its own, has that one's layout."""
    attach(layout="CTHW")
    assert attach(tag="val").task("train").layout == "CTHW"


def test_processes_of_a_job_have_layouts_of_their_own(store: Path, videos: Path) -> None:
    """They name the job's task as the task itself, which is another one at the service."""
    with ExitStack() as stack:
        for layout in ("TCHW", "CTHW"):
            given = described(store, videos, layout=layout)
            cache = stack.enter_context(viewcache.open(given, service="auto", job="lr1"))
            assert cache.task("train").name == "train.lr1"
            assert cache.task("train").layout == layout
