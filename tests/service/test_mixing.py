"""Mixed batches through a service: ranks that are clients, and workers of a DataLoader, have what an owner has."""

from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

import viewcache
from tests.loader.small import equal, joined
from tests.service.served import Opener
from tests.tiny import AUGMENTATION, config, single

MIXING: dict[str, Any] = {
    "labels": "folders",
    "sampling": {"videos_per_batch": 4},
    "augmentation": [
        *AUGMENTATION,
        single({"normalize": {"mean": 0.5, "std": 0.2}}, {"mix_video": {"mixup_alpha": 0.8}}, of="a", into="b"),
    ],
}


def test_clients_mix_as_the_owner_does(attach: Opener, videos: Path, tmp_path: Path) -> None:
    """The same bytes and labels from a cache of one's own, a service, its two ranks, and a DataLoader's workers."""
    with viewcache.open(config(tmp_path / "own", videos, cache={"service": "off"}, **MIXING)) as own:
        expected = list(own.loader("train").all_epochs())
    assert len({float(batch["lam"][0]) for batch in expected}) > 4
    cache = attach(**MIXING)
    assert equal(list(cache.loader("train").all_epochs()), expected)
    loops = [cache.loader("train", rank=rank, world=2).all_epochs() for rank in range(2)]
    assert equal([joined(shares) for shares in zip(*loops, strict=True)], expected)
    loader: Any = cache.loader("train")
    workers: Any = DataLoader(loader, batch_size=None, num_workers=2, multiprocessing_context="spawn")
    read = {(int(batch["epoch"]), int(batch["iteration"])): batch for batch in workers}
    assert sorted(read) == [(0, iteration) for iteration in range(3)]
    for batch in islice(expected, 3):
        mine = read[batch["epoch"], batch["iteration"]]
        assert torch.equal(mine["video"], batch["video"])
        assert torch.equal(mine["label_mixed"], batch["label_mixed"])
