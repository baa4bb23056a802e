"""Items that are as good as one another are kept without regard to the order of need, and evenly over batches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from viewcache.materializer.retention.spread import NOWHERE, shuffled, spread


def epochs_of(items: int, batch: int, epochs: int, seed: int) -> NDArray[np.int32]:
    """(epochs, items) the batch of each item, in orders drawn at random."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.permutation(items) // batch for _ in range(epochs)]).astype(np.int32)


def counts(batches: NDArray[np.int32], chosen: NDArray[np.bool_], batch: int) -> NDArray[np.int64]:
    """How many of each whole batch of all epochs were chosen."""
    whole = batches.shape[1] // batch
    return np.concatenate([np.bincount(each[chosen], minlength=whole)[:whole] for each in batches])


@given(st.integers(0, 400), st.integers(1, 64), st.integers(1, 4), st.floats(0, 1), st.integers(0, 99))
def test_it_is_just_the_number(items: int, batch: int, epochs: int, share: float, seed: int) -> None:
    """Whatever the batches are, and wherever some items are missing."""
    batches = epochs_of(items, batch, epochs, seed)
    batches[np.random.default_rng(seed).random(batches.shape) < 0.2] = NOWHERE
    count = round(items * share)
    chosen = spread(batches, count, np.random.default_rng(seed + 1).permutation(items))
    assert chosen.shape == (items,)
    assert chosen.sum() == count


@given(st.integers(2, 15), st.integers(2, 64), st.floats(0, 1), st.integers(0, 99))
def test_of_one_epoch_every_batch_has_its_share(most: int, batch: int, share: float, seed: int) -> None:
    """To one item, and one more for the exact number."""
    batches = epochs_of(most * batch, batch, 1, seed)
    count = round(most * batch * share)
    found = counts(batches, spread(batches, count, np.random.default_rng(seed).permutation(most * batch)), batch)
    assert np.abs(found - count / most).max() <= 2


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_several_epochs_are_much_more_even_than_dice(share: float) -> None:
    """Four epochs of 9,984 items in batches of 64: a deviation of less than one item; at random it is 2.4 to 3.9."""
    items, batch = 9_984, 64
    batches, order = epochs_of(items, batch, 4, 1), np.random.default_rng(2).permutation(items)
    count = round(items * share)
    dice = np.zeros(items, np.bool_)
    dice[order[:count]] = True
    assert counts(batches, dice, batch).std() > 2.2
    assert counts(batches, spread(batches, count, order), batch).std() < 1


def test_many_items_are_quick() -> None:
    """A hundred thousand in three epochs, well under the timeout of a test."""
    batches = epochs_of(100_000, 256, 3, 1)
    chosen = spread(batches, 30_000, np.random.default_rng(2).permutation(100_000))
    assert counts(batches, chosen, 256).std() < 1.5


def test_the_shuffle_is_by_content_keys() -> None:
    """It is the same in every run and for whatever others there are, and has nothing of the order of the keys."""
    keys = tuple(f"{k:032x}" for k in range(1000))
    words = shuffled(keys)
    assert shuffled(keys[10:20]).tolist() == words[10:20].tolist()
    assert len(set(words.tolist())) == 1000
    first = np.argsort(words)[:500]
    assert 200 < (first < 500).sum() < 300
    assert len(shuffled(())) == 0
