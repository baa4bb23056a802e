"""New videos of a folder that grows join at the next generation, or epoch, that is not drawn; never in one that is."""

from pathlib import Path

import fsspec
import pytest

import viewcache
from tests.streaming.arriving import arrive, epoch_of, names_of, streaming
from tests.tiny import config, drawn, pixels, same
from viewcache.api.config.load import load
from viewcache.errors import BadInput


@pytest.mark.parametrize(("join", "k", "joins_at"), [("generation", 2, 2), ("epoch", 3, 2)])
def test_what_comes_while_an_epoch_is_read_joins_at_the_next(
    tmp_path: Path, clips: list[Path], folder: Path, join: str, k: int, joins_at: int
) -> None:
    """Each epoch has exactly the videos of its generation, once; what came in epoch 0 is in the next generation."""
    given = streaming(tmp_path / "s", folder, join=join, cache={"epochs_per_generation": k})
    with viewcache.open(given) as cache:
        assert sorted(epoch_of(cache, 0)) == ["v0", "v1", "v2"]
        cache.owner.look_ahead.wait_idle(60)
        arrive(folder, *clips[3:7])
        epochs = [sorted(epoch_of(cache, epoch)) for epoch in range(1, 5)]
    few, all_ = sorted(names_of(clips[:3])), sorted(names_of(clips[:7]))
    assert epochs == [few if epoch < joins_at else all_ for epoch in range(1, 5)]


def test_drawn_epochs_read_the_same_after_a_restart(tmp_path: Path, clips: list[Path], folder: Path) -> None:
    """Law 4: a cache that is opened again, with yet more files there, gives what was read, and goes on with all."""
    given = streaming(tmp_path / "s", folder)
    with viewcache.open(given) as cache:
        epoch_of(cache, 0)
        arrive(folder, *clips[3:6])
        before = {(e, i): cache.read("train", e, i) for e in range(4) for i in range(cache.task("train").iterations(e))}
        cache.owner.look_ahead.wait_idle(60)  # a reader is in epoch 3, so epochs 4 and 5 are drawn
    arrive(folder, *clips[6:])
    with viewcache.open(given) as cache:
        after = pixels(cache)
    assert same({place: after[place] for place in before}, before)
    assert {epoch: len(names) for epoch, names in drawn(after).items()} == dict(
        zip(range(8), [3, 3, 6, 6, 6, 6, 10, 10], strict=True)
    )


def test_a_listing_of_a_coming_epoch_draws_it(tmp_path: Path, clips: list[Path], folder: Path) -> None:
    """What a path says must hold: an epoch whose batches were listed keeps their number, whatever comes."""
    with viewcache.open(streaming(tmp_path / "s", folder, epochs=6)) as cache:
        fs = fsspec.filesystem("view", cache=str(tmp_path / "s"))
        assert len(fs.ls("view://train/5", detail=False)) == 2
        arrive(folder, *clips[3:6])
        assert len(epoch_of(cache, 5)) == 3


def test_definitions_of_files_are_as_they_were(tmp_path: Path, folder: Path) -> None:
    """The new keys are no part of the definition of a dataset of files; `settle` never is; `join` may be."""
    files, grows, by_epoch = (
        load(each)
        for each in (
            config(tmp_path / "s", folder),
            streaming(tmp_path / "s", folder, settle=9),
            streaming(tmp_path / "s", folder, join="epoch"),
        )
    )
    texts = [each.canonical(each.tasks[0]) for each in (files, grows, by_epoch)]
    assert [("settle" in each, "join" in each) for each in texts] == [(False, False), (False, False), (False, True)]
    with viewcache.open(streaming(tmp_path / "s", folder)) as cache:
        epoch_of(cache, 0)
    with pytest.raises(BadInput, match="another definition"):
        viewcache.open(streaming(tmp_path / "s", folder, join="epoch"))
