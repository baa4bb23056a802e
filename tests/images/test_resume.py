"""A training on images that is broken off goes on: with other workers and ranks, and with a tenth of the budget."""

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.images.small import config, save_folder
from tests.images.test_images import Read, read, same
from tests.tiny import make_decoding_dear

COUNT = 30
GIVEN: dict[str, Any] = {"epochs": 4, "sampling": {"images_per_batch": 8}}
"""Four batches an epoch, the last one smaller."""
PLENTY = 2_000_000
"""Bytes that hold all resized pictures."""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty images of unequal sizes."""
    return save_folder(tmp_path_factory.mktemp("images"), {f"{k:02}.jpg": (60 + k, 48) for k in range(COUNT)})


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory, images: Path) -> Read:
    """Every batch of a training that nothing disturbs."""
    with viewcache.open(config(tmp_path_factory.mktemp("truth"), images, **GIVEN)) as cache:
        return read(cache)


def test_with_other_workers_and_ranks(tmp_path: Path, images: Path, truth: Read) -> None:
    """Broken off in the middle of an epoch, three times: every image once an epoch, in the same order and pixels."""
    shares: dict[tuple[int, int], list[dict[str, Any]]] = {}
    state: dict[str, object] | None = None
    for workers, world, batches in ((1, 1, 5), (3, 4, 4), (2, 2, 2), (1, 1, 99)):
        with viewcache.open(config(tmp_path, images, cache={"workers": workers}, **GIVEN)) as cache:
            loaders = [cache.loader("train", framework="numpy", rank=rank, world=world) for rank in range(world)]
            for loader in loaders:
                if state is not None:
                    loader.load_state_dict(state)
            for parts in islice(zip(*(loader.all_epochs() for loader in loaders), strict=True), batches):
                place = parts[0]["epoch"], parts[0]["iteration"]
                assert {(each["epoch"], each["iteration"]) for each in parts} == {place}
                assert place not in shares
                shares[place] = [{name: np.array(each[name]) for name in ("image", "index")} for each in parts]
            state = loaders[0].state_dict()
    assert list(shares) == list(truth)
    for place, parts in shares.items():
        for name in ("image", "index"):
            np.testing.assert_array_equal(np.concatenate([each[name] for each in parts]), truth[place][name])
    for epoch in range(4):
        seen = np.concatenate([each["index"] for place in shares if place[0] == epoch for each in shares[place]])
        assert len(seen) == len(set(seen.tolist())) == COUNT


def test_with_a_tenth_of_the_budget(tmp_path: Path, images: Path, truth: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut in the middle of an epoch, from what holds all to what holds a little: all pixels are right, and it holds."""
    make_decoding_dear(monkeypatch)
    got: Read = {}
    state: dict[str, object] | None = None
    for budget, batches in ((PLENTY, 6), (PLENTY // 10, 99)):
        with viewcache.open(config(tmp_path, images, cache={"budget": budget}, **GIVEN)) as cache:
            tier, loader = cache.tier, cache.loader("train", framework="numpy")
            assert tier.used_bytes <= tier.budget_bytes == budget
            if state is not None:
                loader.load_state_dict(state)
            for batch in islice(loader.all_epochs(), batches):
                place = batch.pop("epoch"), batch.pop("iteration")
                got[place] = {name: np.array(values) for name, values in batch.items()}
                assert tier.used_bytes + tier.reserved_bytes <= budget
            state = loader.state_dict()
            cache.owner.look_ahead.wait_idle()
            assert cache.owner.dispatcher_now().wait_idle(60)
            assert tier.used_bytes == tier.measure() <= budget
            assert tier.used_bytes > PLENTY // 10 or budget < PLENTY, "there is something to give up"
    assert same(got, truth)
