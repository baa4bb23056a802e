"""The state of a loop: small, plain, exact, and refused where it does not belong."""

import io
import json
import pickle
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import torch

from tests.loader.small import BATCHES, EPOCHS, Tensors, equal
from viewcache.api.session.cache import Cache
from viewcache.api.training.loader import Loader, RepeatedEpochs
from viewcache.errors import BadInput


def resumed(cache: Cache, state: object, **options: object) -> Loader:
    """A new loader that goes on from a state."""
    loader = cache.loader("train", **options)
    loader.load_state_dict(state)
    return loader


def test_the_state_is_as_small_after_many_batches_as_before_the_first(cache: Cache) -> None:
    """Its size does not depend on how much was read."""
    loader = cache.loader("train")
    sizes = {len(json.dumps(loader.state_dict()))} | {len(json.dumps(loader.state_dict())) for _ in loader.all_epochs()}
    assert len(sizes) == 1
    assert sizes.pop() < 100


@pytest.mark.parametrize("form", ["json", "pickle", "torch, weights only"])
def test_the_state_survives_the_usual_files(cache: Cache, truth: list[Tensors], form: str) -> None:
    """It is made of plain strings and numbers: JSON, pickle and a checkpoint of torch keep it."""
    loader = cache.loader("train")
    next(iter(loader))
    state, file = loader.state_dict(), io.BytesIO()
    match form:
        case "json":
            back = json.loads(json.dumps(state))
        case "pickle":
            back = pickle.loads(pickle.dumps(state))
        case _:
            torch.save({"loader": state}, file)
            back = torch.load(io.BytesIO(file.getvalue()), weights_only=True)["loader"]
    assert back == state
    assert equal(resumed(cache, back).all_epochs(), truth[1:])


@pytest.mark.parametrize("read", range(BATCHES * EPOCHS + 1))
def test_resuming_gives_exactly_what_was_left(cache: Cache, truth: list[Tensors], read: int) -> None:
    """After any number of batches, at ends of epochs and generations too, a state leads to the rest, bit by bit."""
    loader = cache.loader("train")
    begun = loader.all_epochs()
    assert equal(islice(begun, read), truth[:read])
    again = resumed(cache, loader.state_dict())
    of_its_epoch = BATCHES - read % BATCHES
    assert equal(again, truth[read : read + of_its_epoch]), "one pass: what is left of the epoch"
    again = resumed(cache, loader.state_dict())
    assert equal(again.all_epochs(), truth[read:])


def test_a_batch_that_was_handed_out_is_not_given_again(cache: Cache, truth: list[Tensors]) -> None:
    """A checkpoint that is written inside the loop, after a batch's step, leads to the next batch, as in PyTorch."""
    loader = cache.loader("train", prefetch=3)
    for number, _ in enumerate(loader.all_epochs()):
        state = loader.state_dict()
        assert (state["epoch"], state["iteration"]) == divmod(number + 1, BATCHES), "what is read ahead does not count"
        assert equal(islice(resumed(cache, state), 1), truth[number + 1 : number + 2])


def test_a_state_is_a_copy(cache: Cache) -> None:
    """A kept state does not move on with the loop, and changing it changes nothing."""
    loader = cache.loader("train")
    kept = loader.state_dict()
    before = dict(kept)
    next(iter(loader))
    assert kept == before
    kept["epoch"] = 4
    assert loader.state_dict()["epoch"] == 0


def test_a_finished_training_stays_finished(cache: Cache, truth: list[Tensors]) -> None:
    """A job that is started again after its end reads nothing; its next pass starts over, as every one after an end.

    With more epochs the same state leads to those that were added.
    """
    loader = cache.loader("train", epochs=2)
    assert len([*loader, *loader]) == 2 * BATCHES
    again = resumed(cache, loader.state_dict(), epochs=2)
    assert list(again) == []
    assert again.state_dict() == loader.state_dict()
    with pytest.warns(RepeatedEpochs):
        assert equal(again, truth[:BATCHES])
    assert equal(resumed(cache, loader.state_dict(), epochs=3), truth[2 * BATCHES : 3 * BATCHES])


def test_loading_during_a_loop_counts_for_the_next(cache: Cache, truth: list[Tensors]) -> None:
    """Going back, or on, is possible at any time; the new loop starts there."""
    loader = cache.loader("train")
    start = loader.state_dict()
    for _ in loader:
        loader.load_state_dict({**start, "epoch": 4})
        break
    assert equal(loader, truth[4 * BATCHES :])


FOREIGN: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "nothing": (lambda s: None, r"not a state .*: None; it has the keys task, seed, videos_per_batch, epoch, iter"),
    "a list": (lambda s: [0, 1], r": \[0, 1\]; it has the keys"),
    "empty": (lambda s: {}, r": \{\}; it has the keys"),
    "a sampler's": (lambda s: {"_num_yielded": 3, "_sampler_iter_state": None}, "it has the keys"),
    "a whole checkpoint": (lambda s: {"model": torch.zeros(9), "loader": s}, "it has the keys"),
    "cut": (lambda s: {k: v for k, v in s.items() if k != "iteration"}, "it has the keys"),
    "another task's": (lambda s: {**s, "task": "val"}, "its task is 'val', here it is 'train'"),
    "another seed's": (lambda s: {**s, "seed": 8}, "its seed is 8, here it is 7"),
    "other batches'": (lambda s: {**s, "videos_per_batch": 4}, "its videos_per_batch is 4, here it is 6"),
    "text": (lambda s: {**s, "epoch": "1"}, "epoch and iteration are whole numbers from 0"),
    "a fraction": (lambda s: {**s, "iteration": 0.5}, "epoch and iteration are whole numbers from 0"),
    "a truth": (lambda s: {**s, "epoch": True}, "epoch and iteration are whole numbers from 0"),
    "negative": (lambda s: {**s, "iteration": -1}, "epoch and iteration are whole numbers from 0"),
    "past the epoch": (lambda s: {**s, "iteration": BATCHES}, "epoch 0 has iterations 0 to 1"),
    "past the end": (lambda s: {**s, "epoch": EPOCHS, "iteration": 1}, "epochs 0 to 4: raise its option epochs"),
    "far past the end": (lambda s: {**s, "epoch": 10**9}, "epochs 0 to 4: raise its option epochs"),
}
"""What people load by mistake → how it is made of a good state, and what the message says."""


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_no_state_of_this_loop_is_refused(cache: Cache, truth: list[Tensors], name: str) -> None:
    """Foreign, cut and impossible states are a BadInput that says what is wrong; the loader stays where it was."""
    make, message = FOREIGN[name]
    loader = cache.loader("train", epochs=EPOCHS)
    next(iter(loader))
    before = loader.state_dict()
    with pytest.raises(BadInput, match=message) as caught:
        loader.load_state_dict(make(before))
    assert "state of the loader of task 'train'" in str(caught.value)
    assert loader.state_dict() == before
    loader.load_state_dict(before)
    assert equal(islice(loader, 1), truth[1:2])


def test_a_refusal_does_not_print_a_whole_checkpoint(cache: Cache) -> None:
    """A state that is a model by mistake is told in a line."""
    model = {f"layer{k}": list(range(1000)) for k in range(1000)}
    with pytest.raises(BadInput) as caught:
        cache.loader("train").load_state_dict(model)
    assert len(str(caught.value)) < 500


def test_a_state_of_another_task_is_refused_by_both(cache: Cache) -> None:
    """A checkpoint of training does not move the loop of validation."""
    with pytest.raises(BadInput, match="its task is 'train', here it is 'val'"):
        cache.loader("val").load_state_dict(cache.loader("train").state_dict())
