"""Segments through a service: what is drawn, labelled and told is the same as in one process (docs/segments.md)."""

from collections import Counter
from pathlib import Path

import fsspec
import numpy as np
import zarr

import viewcache
from tests.service.conftest import attached
from tests.service.served import described, digest
from tests.tiny import AUGMENTATION

ROWS = [("dogs/v0", 0, 1, "run"), ("dogs/v0", 0.4, 1.2, "jump"), ("cats/v1", 0.5, "", "run"), ("dogs/v2", "", 1, "sit")]
"""Eleven items: seven more videos have no row."""


def settings(folder: Path) -> dict[str, object]:
    """A task with these rows."""
    table = folder / "labels.csv"
    table.write_text("video,from,to,label\n" + "".join(",".join(map(str, row)) + "\n" for row in ROWS))
    columns = {"label_start_column": "from", "label_end_column": "to"}
    return {"labels": str(table), "augmentation": AUGMENTATION, "epochs": 2, **columns}


def test_the_same_as_in_one_process(tmp_path: Path, store: Path, videos: Path) -> None:
    """Items, labels, times and pixels of two clients are those of an embedded cache; so is what `show` is made from."""
    places = [(epoch, k) for epoch in range(2) for k in range(6)]
    given = settings(tmp_path)
    with viewcache.open(described(tmp_path / "alone", videos, **given)) as cache:
        alone = {place: cache.read("train", *place) for place in places}
        recipes = cache.task("train").recipes_of("dogs.-v0", 1)
        frames = [cache.aug("train", "dogs.-v0", 3, 1, epoch=1, item=each.item) for each in recipes]
    with attached(store, videos, **given) as one, attached(store, videos, **given) as two:
        for number, (place, wanted) in enumerate(alone.items()):
            batch = (one, two)[number % 2].read("train", *place)
            assert digest(batch) == digest(wanted)
            for name in ("item", "start_s", "end_s", "sample", "label"):
                assert np.array_equal(getattr(batch, name), getattr(wanted, name)), name
        assert two.task("train").recipes_of("dogs.-v0", 1) == recipes
        asked = [one.aug("train", "dogs.-v0", 3, 1, epoch=1, item=each.item) for each in recipes]
        assert np.array_equal(asked, frames)
        assert one.task("train").classes == ("jump", "run", "sit")
        counted = one.sql("select count(distinct item_id), count(*) from draws").to_pylist()
        assert [tuple(row.values()) for row in counted] == [(11, 22)]
    assert Counter((each.start_s, each.end_s) for each in recipes) == {(0.0, 1.0): 2, (0.4, 1.2): 2}
    assert {each.segment for each in recipes} == {"segment from 0 s to 1 s", "segment from 0.4 s to 1.2 s"}


def test_what_is_told_of_a_batch(tmp_path: Path, store: Path, videos: Path) -> None:
    """The loader's tensors, a path's metadata and the Zarr group say which item each clip is of."""
    with attached(store, videos, **settings(tmp_path)) as cache:
        wanted = cache.read("train", 0, 0)
        loaded = next(iter(cache.loader("train")))
        about = fsspec.filesystem("view").info("view://train/0/0/view")["view"]
        group = zarr.open_group("view://train/0/0/view.zarr", mode="r")
        for name in ("item", "start_s", "end_s"):
            assert np.array_equal(loaded[name].numpy(), getattr(wanted, name))
            assert np.array_equal(np.asarray(group[name][:]), getattr(wanted, name))  # type: ignore[index]
        assert about["item"] == wanted.item.tolist()
        assert about["start_s"] == wanted.start_s.tolist()
        assert about["end_s"] == [None if each == np.inf else each for each in wanted.end_s.tolist()]
        known = cache.sql("select item_id, start_s, end_s from items").to_pylist()
        times = {row["item_id"]: (row["start_s"] or 0.0, row["end_s"] or np.inf) for row in known}
        shown = zip(wanted.start_s.tolist(), wanted.end_s.tolist(), strict=True)
        assert [times[item] for item in wanted.item.tolist()] == list(shown)
