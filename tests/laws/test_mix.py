"""Several datasets in stated shares: each has its share of every epoch, to a video, and within it all come alike."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from math import ceil, floor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import viewcache
from tests.tiny import config, encode_folder, pixels, same
from viewcache.api.audit.verify import verify
from viewcache.api.config.find import locate
from viewcache.api.service.stopping import stop
from viewcache.errors import BadInput, ConfigError, NotFound
from viewcache.materializer.dataset.weights import ValueWeights
from viewcache.materializer.planning.weighted_order import draw_weighted, shares_of

SIZES = {"large": 6, "small": 2}
EPOCHS = 4
SHARES = {"large": 1, "small": 3}
"""Of eight places two are of ``large`` and six of ``small``."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders of videos, long enough for many different clips."""
    names = {f"{place}/v{k}.mp4": 60 for place, size in SIZES.items() for k in range(size)}
    return encode_folder(tmp_path_factory.mktemp("places"), names)


@pytest.fixture(params=["off", "auto"])
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """Who owns the cache: this process, or a service of the store ``s``."""
    monkeypatch.delenv("VIEWCACHE_SERVICE", raising=False)
    yield request.param
    with suppress(NotFound):
        stop(tmp_path / "s", now=True)


def mixed(store: Path, places: Path, **keys: Any) -> dict[str, Any]:
    """A task over both folders of four epochs, two of them a generation, with two clips of each video."""
    both = [str(places / name) for name in SIZES]
    described: dict[str, Any] = {"video_dataset_path": both, "epochs": EPOCHS, "mix": SHARES}
    return config(store, places, **(described | keys))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=24), st.integers(0, 50), st.data())
def test_values_have_their_shares(values: list[int], epoch: int, data: st.DataObject) -> None:
    """Of n positions a value of share s has ⌊s n⌋ or ⌈s n⌉, and its items come equally often, give or take one."""
    given_shares = {str(each): data.draw(st.sampled_from([0.1, 0.25, 1.0, 3.0])) for each in sorted(set(values))}
    weights = ValueWeights("mix", "v", pa.array(list(map(str, values))), given_shares)
    rows = np.arange(len(values))
    drawn = draw_weighted(5, "t", epoch, shares_of(weights.of(rows), len(values)), weights.strata(rows))
    counts = np.bincount(drawn, minlength=len(values))
    assert counts.sum() == len(values)
    total = sum(given_shares.values())
    for value, share in given_shares.items():
        mine = counts[np.array(values) == int(value)]
        expected = share / total * len(values)
        assert floor(expected - 1e-6) <= mine.sum() <= ceil(expected + 1e-6)
        assert mine.max() - mine.min() <= 1


def test_every_epoch_has_the_shares(tmp_path: Path, places: Path, service: str) -> None:
    """Two of eight videos are of the large folder and six of the small one, in every epoch, with clips of their own."""
    with viewcache.open(mixed(tmp_path / "s", places), service=service) as cache:
        count = cache.task("train").iterations(0)
        read, again = (
            {(epoch, k): cache.read("train", epoch, k) for epoch in range(EPOCHS) for k in range(count)}
            for _ in range(2)
        )
    assert same(again, read)
    large: Counter[str] = Counter()
    for epoch in range(EPOCHS):
        batches = [batch for (number, _), batch in sorted(read.items()) if number == epoch]
        names = [name for batch in batches for name in batch.videos]
        counts = {name: count // 2 for name, count in Counter(names).items()}
        assert sum(counts.values()) == 8
        assert sum(count for name, count in counts.items() if name.startswith("large")) == 2
        assert counts["small.-v0"] == counts["small.-v1"] == 3
        large.update(name for name in counts if name.startswith("large"))
        ordinals = sorted(
            sample
            for batch in batches
            for name, sample in zip(batch.videos, batch.sample.tolist(), strict=True)
            if name == "small.-v0"
        )
        assert ordinals == list(range(6)), "each time it has other clips"
    assert len(large) > 2, "the videos of the large folder take turns"


def test_what_was_drawn_stays(tmp_path: Path, places: Path) -> None:
    """The same after a restart, and in an empty store; `verify` finds it whole."""
    with viewcache.open(mixed(tmp_path / "s", places)) as cache:
        first = pixels(cache)
    with viewcache.open(mixed(tmp_path / "s", places)) as cache:
        assert same(pixels(cache), first)
    with viewcache.open(mixed(tmp_path / "t", places)) as cache:
        assert same(pixels(cache), first)
    assert verify(locate(str(tmp_path / "s"))).draws == ()


def test_values_of_a_column_are_mixed(tmp_path: Path, places: Path) -> None:
    """``mix_column`` mixes what the label table says, or the labels themselves."""
    table = tmp_path / "t.csv"
    rows = [f"large/v{k}.mp4,{'x' if k < 2 else 'y'},{'day' if k else 'night'}" for k in range(6)]
    table.write_text("\n".join(["video,label,light", *rows]))
    one = {"video_dataset_path": str(places), "labels": str(table), "where": "label is not null"}
    for column, shares, count in (("light", {"night": 2, "day": 1}, 4), ("label", {"x": 1, "y": 1}, 3)):
        keys = one | {"tag": column, "mix": shares, "mix_column": column}
        with viewcache.open(mixed(tmp_path / column, places, **keys)) as cache:
            names = [name for batch in pixels(cache, column).values() for name in batch.videos if batch.epoch == 0]
            mine = ("large.-v0",) if column == "light" else ("large.-v0", "large.-v1")
            assert sum(name in mine for name in names) == 2 * count
            assert len(names) == 2 * 6


def test_another_mix_is_another_task(tmp_path: Path, places: Path) -> None:
    """Shares decide what is drawn: others are refused under the same tag, by name, and their order means nothing."""
    with viewcache.open(mixed(tmp_path / "s", places)) as cache:
        first = pixels(cache)
    with viewcache.open(mixed(tmp_path / "s", places, mix=dict(reversed(SHARES.items())))) as cache:
        assert same(pixels(cache), first)
    with (
        pytest.raises(BadInput, match="mix"),
        viewcache.open(mixed(tmp_path / "s", places, mix={"large": 1, "small": 2})),
    ):
        pass


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"video_dataset_path": "large"}, r"dataset\.mix: video_dataset_path is one place, so there is nothing to mix"),
        ({"balance": "label", "labels": "folders"}, r"dataset\.mix: balance says already how often videos come"),
        ({"mix": {"large": 0, "small": 1}}, r"dataset\.mix\.large must be a number above 0, got 0"),
        ({"mix": {"large": "much", "small": 1}}, r"dataset\.mix\.large must be a number above 0, got 'much'"),
        ({"mix": {}}, r"dataset\.mix names nothing; it must be a mapping from names to numbers above 0, such as"),
        ({"mix": [0.5, 0.5]}, r"dataset\.mix must be a mapping from names to numbers above 0"),
        ({"mix": None, "mix_column": "light"}, r"dataset\.mix_column: it is for the shares of mix"),
        ({"mix_column": "light"}, r"dataset\.mix: mix_column, 'light', is a column of a label table"),
        ({"shuffle": False}, r"dataset\.mix: videos that come by weight are drawn by lot"),
        ({"sampling": {"clips": "uniform"}}, r"dataset\.mix: a video that comes again has other clips"),
    ],
)
def test_keys_that_do_not_go_with_a_mix(tmp_path: Path, places: Path, keys: dict[str, Any], message: str) -> None:
    """Refused when the configuration is read."""
    with pytest.raises(ConfigError, match=message):
        viewcache.open(mixed(tmp_path / "s", places, **keys))


def test_one_place_with_a_label_table_is_no_mix(tmp_path: Path, places: Path) -> None:
    """As without a table it is said that there is one place, and which columns the table has."""
    table = tmp_path / "t.csv"
    table.write_text("\n".join(["video,label,light", *(f"v{k},x,day" for k in range(6))]))
    keys = {"video_dataset_path": str(places / "large"), "labels": str(table), "mix": {"a": 1}}
    with pytest.raises(BadInput, match=r"mix: the dataset is one place, .* mix_column .*: it has 'label', 'light'$"):
        viewcache.open(mixed(tmp_path / "s", places, **keys))


def test_a_share_of_a_place_that_a_part_lacks(tmp_path: Path, places: Path) -> None:
    """A place whose videos are all in another part is told so, and is not taken for a slip of the pen."""
    rows = ["large/v0.mp4,train", *(f"large/v{k}.mp4,val" for k in range(1, 6)), "small/v0.mp4,val", "small/v1.mp4,val"]
    (tmp_path / "t.csv").write_text("\n".join(["video,set", *rows]))
    given = mixed(tmp_path / "s", places, labels=str(tmp_path / "t.csv"), split={"column": "set"}, part="train")
    told = r"mix: no selected video has 'small' in column 'root'; it has 'large'; others have it, but where or split"
    with pytest.raises(BadInput, match=told) as caught:
        viewcache.open(given, service="off")
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"large": 1, "smal": 1}, "mix: it names no share for 'small' of column 'root', which has 'large', 'small'"),
        ({"large": 1, "small": 1, "smell": 1}, "mix: no selected video has 'smell' in column 'root'.*did you mean"),
    ],
)
def test_shares_that_do_not_fit_the_places(tmp_path: Path, places: Path, shares: object, message: str) -> None:
    """Refused when the cache is opened, with what there is."""
    with pytest.raises(BadInput, match=message):
        viewcache.open(mixed(tmp_path / "s", places, mix=shares), service="off")
