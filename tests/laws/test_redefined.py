"""Law 3 beside a configuration that changes: what changes no view needs no new tag, all else is refused as before."""

from pathlib import Path

import numpy as np
import pytest
import yaml

import viewcache
from tests.tiny import AUGMENTATION, config, drawn, open_cache, pixels, same, single, sql
from viewcache.api.preview.lint import Level, lint
from viewcache.api.session.cache import Cache
from viewcache.errors import BadInput

NORMALIZED = [*AUGMENTATION, single({"normalize": {"mean": 0.4, "std": 0.2}}, of="a", into="b")]
IN_ITS_STEP = [{**AUGMENTATION[0], "config": [*AUGMENTATION[0]["config"], {"to_dtype": "float32"}]}]  # type: ignore[misc]

GREY = single("grayscale", {"normalize": {"mean": 0.4, "std": 0.2}}, of="a", into="b")
COUNTED = {
    "branch_type": "conditional",
    "inputs": ["a"],
    "outputs": ["b"],
    "branches": [{"condition": "iteration < 4", "config": ["grayscale"]}, {"condition": "else", "config": None}],
}
TABLE = "labels.csv"


def _with_table(keys: dict[str, object], folder: Path, videos: Path) -> dict[str, object]:
    """The keys with a label table of these videos in place of its name."""
    if keys.get("labels") != TABLE:
        return keys
    names = sorted(path.name for path in videos.iterdir())
    rows = [f"{name},{'cat' if number % 2 else 'dog'}" for number, name in enumerate(names)]
    (folder / TABLE).write_text("\n".join(["video,label", *rows]))
    return keys | {"labels": str(folder / TABLE)}


HARMLESS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "normalize comes": ({}, {"augmentation": NORMALIZED}),
    "normalize goes": ({"augmentation": NORMALIZED}, {}),
    "a dtype in the last step": ({}, {"augmentation": IN_ITS_STEP}),
    "other numbers": (
        {"augmentation": NORMALIZED},
        {"augmentation": [*AUGMENTATION, single({"normalize": {"mean": 0.5, "std": 0.1}}, of="a", into="c")]},
    ),
    "bad videos are replaced": ({}, {"on_bad_video": "replace"}),
    "bad videos are errors": ({"on_bad_video": "replace"}, {}),
    "labels come": ({}, {"labels": TABLE}),
    "names of classes come": ({"labels": TABLE}, {"labels": TABLE, "classes": ["cat", "dog"]}),
    "larger frames are allowed": ({"max_pixels": 5000}, {"max_pixels": 10_000}),
    "all at once": ({}, {"augmentation": NORMALIZED, "labels": TABLE, "on_bad_video": "replace"}),
}


@pytest.mark.parametrize("what", HARMLESS)
def test_what_changes_no_view(what: str, tmp_path: Path, videos: Path) -> None:
    """A batch is read before, and all afterwards, also after the cache was closed again: as if nothing had changed."""
    before, after = (_with_table(each, tmp_path, videos) for each in HARMLESS[what])
    with open_cache(tmp_path / "whole", videos, **before) as cache:  # type: ignore[arg-type] # one of the keywords
        truth = pixels(cache)
    with open_cache(tmp_path / "own", videos, **before) as cache:  # type: ignore[arg-type] # the same
        first = cache.read("train", 0, 0)
    for _ in range(2):
        with open_cache(tmp_path / "own", videos, **after) as cache:  # type: ignore[arg-type] # the same
            assert np.array_equal(cache.read("train", 0, 0).video, first.video)
            assert same(pixels(cache), truth)
            if "labels" in after:
                assert cache.classes("train") == ("cat", "dog")
                assert cache.read("train", 0, 0).label.min() >= 0


REFUSED: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "other labels": ({"labels": TABLE}, {}),
    "other names of classes": (
        {"labels": TABLE, "classes": ["cat", "dog"]},
        {"labels": TABLE, "classes": ["dog", "cat"]},
    ),
    "bad videos are left out": ({}, {"on_bad_video": "skip"}),
    "smaller frames": ({"max_pixels": 5000}, {"max_pixels": 4000}),
    "drop_last where iterations are counted": (
        {"augmentation": [*AUGMENTATION, COUNTED]},
        {"augmentation": [*AUGMENTATION, COUNTED], "drop_last": True},
    ),
    "a condition on labels": ({"where": "label is null"}, {"where": "label is null", "labels": TABLE}),
    "an operation that is stored": ({}, {"augmentation": [*AUGMENTATION, single("grayscale", of="a", into="b")]}),
    "one behind it": ({"augmentation": NORMALIZED}, {"augmentation": [*AUGMENTATION, GREY]}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_changes_views_is_refused(what: str, tmp_path: Path, videos: Path) -> None:
    """It would give a path another meaning, or another order from here on; nothing is lost by trying."""
    before, after = (_with_table(each, tmp_path, videos) for each in REFUSED[what])
    with open_cache(tmp_path / "own", videos, **before) as cache:  # type: ignore[arg-type] # one of the keywords
        first = cache.read("train", 0, 0)
    with pytest.raises(BadInput, match=r"another definition now.*What differs: "):
        open_cache(tmp_path / "own", videos, **after)  # type: ignore[arg-type] # the same
    with open_cache(tmp_path / "own", videos, **before) as cache:  # type: ignore[arg-type] # the same
        assert np.array_equal(cache.read("train", 0, 0).video, first.video)


def test_names_of_classes_that_renumber_are_told(tmp_path: Path, videos: Path) -> None:
    """Names that are given in another order than the sorted one: a warning, a change and an event say so, once.

    `lint --scan` says it before anything is opened, and another order of given names is refused as before.
    """
    keys = _with_table({"labels": TABLE}, tmp_path, videos)
    with open_cache(tmp_path / "own", videos, **keys) as cache:  # type: ignore[arg-type] # one of the keywords
        before = cache.read("train", 0, 0)
        assert cache.classes("train") == ("cat", "dog")
    keys |= {"classes": ["dog", "cat"]}
    described = config(tmp_path / "own", videos, **keys)  # type: ignore[arg-type] # the same
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(described))
    (problem,) = lint([str(tmp_path / "train.yaml")], scan=True)
    assert (problem.level, problem.kind) == (Level.WARNING, "renumbered_classes")
    with open_cache(tmp_path / "own", videos, **keys) as cache:  # type: ignore[arg-type] # the same
        after = cache.read("train", 0, 0)
        (moved,) = cache.changes("train")
        rows = sql(cache, "select task, count, detail from events where kind = 'videos_renumbered'")
        assert cache.warnings == (f"task 'train': {moved}",)
    assert np.array_equal(after.label, 1 - before.label)
    told = "class 'cat' was 0 and is 1, class 'dog' was 1 and is 0"
    assert rows == [("train", 2, told)]
    assert f"2 classes have other numbers than before ({told})" in str(moved)
    assert "as classes" in str(moved)
    with open_cache(tmp_path / "own", videos, **keys) as cache:  # type: ignore[arg-type] # the same
        assert (cache.warnings, cache.changes("train")) == ((), ())


def test_names_that_look_up_whole_numbers_are_told(tmp_path: Path, videos: Path) -> None:
    """Labels that stood for themselves get numbers by names that are given: which have another one now is told."""
    names = sorted(path.name for path in videos.iterdir())
    rows = [f"{name},{(0, 3, 7)[number % 3]}" for number, name in enumerate(names)]
    (tmp_path / TABLE).write_text("\n".join(["video,label", *rows]))
    table = str(tmp_path / TABLE)
    with open_cache(tmp_path / "own", videos, labels=table) as cache:
        before = cache.read("train", 0, 0).label
    with open_cache(tmp_path / "own", videos, labels=table, classes=["0", "3", "7"]) as cache:
        after = cache.read("train", 0, 0).label
        (moved,) = cache.changes("train")
        assert cache.warnings == (f"task 'train': {moved}",)
    assert np.array_equal(np.array([0, 3, 7])[after], before)
    assert moved.names == ("class '3' was 3 and is 1", "class '7' was 7 and is 2")
    with open_cache(tmp_path / "own", videos, labels=table, classes=["0", "3", "7"]) as cache:
        assert (cache.warnings, cache.changes("train")) == ((), ())


@pytest.mark.parametrize("classes", [["cat", "dog"], ["cat", "dog", "eel"]])
def test_names_of_classes_that_keep_their_numbers(classes: list[str], tmp_path: Path, videos: Path) -> None:
    """Nothing is told of names that are given in their order, new ones behind them, nor with the first labels."""
    keys = _with_table({"labels": TABLE}, tmp_path, videos)
    with open_cache(tmp_path / "own", videos, **keys) as cache:  # type: ignore[arg-type] # one of the keywords
        before = cache.read("train", 0, 0)
    with open_cache(tmp_path / "own", videos, classes=classes, **keys) as cache:  # type: ignore[arg-type] # the same
        assert np.array_equal(cache.read("train", 0, 0).label, before.label)
        assert (cache.warnings, cache.changes("train")) == ((), ())
    with open_cache(tmp_path / "first", videos) as cache:
        cache.read("train", 0, 0)
    with open_cache(tmp_path / "first", videos, classes=["dog", "cat"], **keys) as cache:  # type: ignore[arg-type]
        assert (cache.warnings, cache.changes("train")) == ((), ())


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_drop_last_may_come_and_go(first: bool, together: bool, tmp_path: Path, videos: Path) -> None:
    """The batches that both have are the same, wherever the change falls; the last one of an epoch goes, or comes.

    So it is for a task alone, and for one that draws its order with another.
    """

    def described(store: str, *, drop_last: bool) -> dict[str, object]:
        keys = config(tmp_path / store, videos, drop_last=drop_last)
        one = keys["dataset"]
        assert isinstance(one, dict)
        other = one | {"tag": "other", "sampling": one["sampling"] | {"frame_stride": 3}, "drop_last": False}
        return keys | ({"dataset": [one, other]} if together else {})

    with viewcache.open(described("own", drop_last=first)) as cache:
        assert isinstance(cache, Cache)
        before = pixels(cache)
    with viewcache.open(described("own", drop_last=not first)) as cache:
        assert isinstance(cache, Cache)
        after = pixels(cache)
        assert sql(cache, "select count(*) from uses where task = 'train'") == [(2 * 3 * (5 if first else 4),)]
        seqs = sql(cache, "select max(seq) from uses where task = 'train'")
        assert seqs == [(3 * (3 if first else 2) - 1,)]
    both = {place: batch for place, batch in before.items() if place in after}
    assert same(both, {place: after[place] for place in both})
    assert {epoch: len(names) for epoch, names in drawn(after).items()} == dict.fromkeys(range(3), 10 if first else 8)
    with viewcache.open(described("own", drop_last=first)) as cache:
        assert isinstance(cache, Cache)
        assert same(pixels(cache), before)
