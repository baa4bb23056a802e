"""Jobs that cannot be: each is told why, by name, or treated as the documented policy says, and the others go on."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import viewcache
from tests.tiny import config, encode_folder, places, sql
from viewcache.api.session.cache import Cache
from viewcache.errors import BadInput, BadVideo, ConfigError, ViewcacheError

NAMES = {f"v{k}" for k in range(5)}
LONG = {"frames_per_video": 60}
"""A clip of more frames than any video has."""


def several(store: Path, videos: Path, *tasks: dict[str, Any]) -> dict[str, Any]:
    """A configuration of several tasks of `config`, each of two epochs."""
    return {"cache": config(store, videos)["cache"], "dataset": [one(videos, **task) for task in tasks]}


def one(videos: Path, **task: Any) -> dict[str, Any]:
    """One ``dataset`` section."""
    section: Any = config(videos, videos, **{"epochs": 2, **task})["dataset"]
    return dict(section)


def epochs(cache: Cache, task: str) -> list[Counter[str]]:
    """How many clips of each video each epoch had, all of them read."""
    found: dict[int, Counter[str]] = {}
    for epoch, iteration in places(cache, task):
        found.setdefault(epoch, Counter()).update(cache.read(task, epoch, iteration).videos)
    return [found[epoch] for epoch in sorted(found)]


WHOLE = [Counter(dict.fromkeys(NAMES, 2))] * 2
"""Two epochs of every video, two samples of each."""

REFUSED: dict[str, tuple[dict[str, Any], type[ViewcacheError], str]] = {
    "the same name": ({"tag": "a"}, ConfigError, "the tag 'a' is already that of"),
    "the same name, another definition": (
        {"tag": "a", "epochs": 9},
        ConfigError,
        "the tag 'a' is already that of",
    ),
    "nothing selected": (
        {"where": "frames > 1000"},
        BadInput,
        "task 'new': where: 'frames > 1000' selects none of 5 videos",
    ),
    "no condition": (
        {"where": "frames >"},
        BadInput,
        "task 'new': where: 'frames >' is not a condition on the columns video, name,",
    ),
    "no such column": (
        {"where": "length = 1"},
        BadInput,
        "task 'new': where: 'length = 1' is not a condition on the columns video, name,",
    ),
    "a clip longer than every video": (
        {"sampling": LONG, "on_short_video": "skip"},
        BadInput,
        "task 'new': no video is left of 5: 0 are bad, and the longest has 52 frames where a clip spans 119",
    ),
    "a batch larger than the dataset": (
        {"sampling": {"videos_per_batch": 6}, "drop_last": True},
        BadInput,
        "task 'new': no clips to make: there are 5 videos to draw, and drop_last leaves out a batch of fewer than "
        "videos_per_batch, 6",
    ),
    "frames larger than it takes": (
        {"max_pixels": 99},
        BadVideo,
        "more pixels than max_pixels allows (99) (and 4 more); repair",
    ),
}


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five videos of 40 to 52 frames."""
    return encode_folder(tmp_path_factory.mktemp("jobs"), {f"v{k}.mp4": 40 + 3 * k for k in range(5)})


def test_who_cannot_join_is_told_why_and_the_others_go_on(tmp_path: Path, videos: Path) -> None:
    """In the middle of their epochs the others notice nothing: each video once an epoch, all of it readable."""
    with viewcache.open(several(tmp_path / "s", videos, {"tag": "a"}, {"tag": "b"})) as cache:
        begun = {name: cache.read(name, 0, 0) for name in cache.tasks}
        for case, (task, kind, message) in REFUSED.items():
            with pytest.raises(kind) as refused:
                cache.join({"dataset": one(videos, **({"tag": "new"} | task))})
            assert message in str(refused.value), case
            assert cache.tasks == ("a", "b")
        assert all(cache.read(name, 0, 0).keys == batch.keys for name, batch in begun.items())
        assert epochs(cache, "a") == epochs(cache, "b") == WHOLE
        assert cache.join({"dataset": one(videos, tag="new")}) == ("new",), "what was wrong left nothing behind"
        assert epochs(cache, "new") == WHOLE


def test_who_cannot_be_opened_is_told_the_same(tmp_path: Path, videos: Path) -> None:
    """Opened together nothing begins; without that task the same store opens, and the rest is whole."""
    for case, (task, kind, message) in REFUSED.items():
        with pytest.raises(kind) as refused:
            viewcache.open(several(tmp_path / "s", videos, {"tag": "a"}, {"tag": "new"} | task))
        assert message in str(refused.value), case
    with viewcache.open(several(tmp_path / "s", videos, {"tag": "a"})) as cache:
        assert epochs(cache, "a") == WHOLE


def test_another_definition_of_a_task_that_is_not_open(tmp_path: Path, videos: Path) -> None:
    """A name whose draws are recorded keeps its meaning, also for who joins later; the others go on."""
    with viewcache.open(several(tmp_path / "s", videos, {"tag": "a"})) as cache:
        before = cache.read("a", 0, 0)
    with viewcache.open(several(tmp_path / "s", videos, {"tag": "b"})) as cache:
        cache.read("b", 0, 0)
        with pytest.raises(BadInput, match=r"task 'a' has another definition now, .* another tag, restore"):
            cache.join({"dataset": one(videos, tag="a", sampling={"spread": 0.5})})
        assert cache.tasks == ("b",)
        assert epochs(cache, "b") == WHOLE
        assert cache.join({"dataset": one(videos, tag="a")}) == ("a",)
        assert cache.read("a", 0, 0).keys == before.keys


@pytest.mark.parametrize("policy", ["clamp", "loop"])
def test_a_clip_longer_than_every_video_is_what_the_policy_says(tmp_path: Path, videos: Path, policy: str) -> None:
    """It is filled, and each filling is a row; the other task has its own clips of the same videos."""
    long = {"tag": "long", "sampling": LONG, "on_short_video": policy}
    with viewcache.open(several(tmp_path / "s", videos, {"tag": "a"}, long)) as cache:
        assert epochs(cache, "a") == epochs(cache, "long") == WHOLE
        batch = cache.read("long", 0, 0)
        frames = [52 if name == "v4" else 40 + 3 * int(name[1]) for name in batch.videos]
        assert all(0 <= shown.min() <= shown.max() < count for shown, count in zip(batch.frame, frames, strict=True))
        used = sql(cache, "select task, policy, count(distinct video) from substitutions group by all")
    assert used == [("long", policy, 5)]


def test_each_task_has_its_own_policies(tmp_path: Path) -> None:
    """Over one folder with a short and a broken file, tasks that leave out, replace and fill are each as they say."""
    folder = encode_folder(tmp_path / "videos", {f"v{k}.mp4": 40 for k in range(4)} | {"short.mp4": 5})
    (folder / "broken.mp4").write_bytes(b"no video")
    tasks = [
        {"tag": "skips", "on_bad_video": "skip", "on_short_video": "skip"},
        {"tag": "replaces", "on_bad_video": "replace", "on_short_video": "loop"},
    ]
    with viewcache.open(several(tmp_path / "s", folder, *tasks)) as cache:
        cache.read("skips", 0, 0)
        with pytest.raises(BadVideo, match=r"broken\.mp4: .*; repair or remove it, or set on_bad_video"):
            cache.join({"dataset": one(folder, tag="raises")})
        found = {name: epochs(cache, name) for name in cache.tasks}
        used = sql(cache, "select distinct task, video, policy from substitutions order by all")
    assert found["skips"] == [Counter(dict.fromkeys(("v0", "v1", "v2", "v3"), 2))] * 2
    for epoch in found["replaces"]:
        assert epoch.total() == 6 * 2
        assert epoch["short"] >= 2
        assert "broken" not in epoch
    assert used == [
        ("replaces", "broken", "replace"),
        ("replaces", "short", "loop"),
        ("skips", "broken", "skip"),
        ("skips", "short", "skip"),
    ]


@pytest.mark.parametrize("order", [("any", "small"), ("small", "any")])
def test_limits_of_pixels_that_contradict(tmp_path: Path, order: tuple[str, str]) -> None:
    """A frame too large for one task is not too large for another, whichever scanned first, and again later."""
    folder = encode_folder(tmp_path / "videos", {f"v{k}.mp4": 40 for k in range(3)})
    tasks: dict[str, dict[str, Any]] = {
        "any": {"tag": "any"},
        "small": {"tag": "small", "max_pixels": 99, "on_bad_video": "skip"},
    }
    with viewcache.open(several(tmp_path / "s", folder, tasks["any"])) as cache:
        whole = epochs(cache, "any")
    for store in ("s", "fresh"):
        with pytest.raises(BadInput, match="task 'small': no video is left of 3: 3 are bad"):
            viewcache.open(several(tmp_path / store, folder, *(tasks[name] for name in order)))
        with viewcache.open(several(tmp_path / store, folder, tasks["any"])) as cache:
            assert epochs(cache, "any") == whole
            assert sql(cache, "select distinct status from videos") == [("ok",)]


def test_nothing_is_left_of_who_was_refused(tmp_path: Path, videos: Path) -> None:
    """Whoever asked for a task while it was opened in vain is given the one that joins under its name later."""
    beside = encode_folder(tmp_path / "beside", {"w.mp4": 40})
    with viewcache.open(several(tmp_path / "s", videos, {"tag": "a"})) as cache:
        seen: list[int] = []

        def ask(_done: int, _total: int, name: str) -> None:
            if name == "w":
                seen.append(cache.task("new").seed)

        both = [
            {"dataset": one(videos, tag="new", seed=1)},
            {"dataset": one(beside, tag="long", sampling=LONG, on_short_video="skip")},
        ]
        with pytest.raises(BadInput, match="the longest has 40 frames"):
            cache.join(both, progress=ask)
        assert seen == [1]
        assert cache.tasks == ("a",)
        cache.join({"dataset": one(videos, tag="new", seed=2)})
        assert cache.task("new").seed == 2
