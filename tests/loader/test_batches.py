"""What a batch holds, and in which memory it lies."""

import sys
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.loader.small import VIDEOS, Tensors, as_tensors, equal
from tests.tiny import sql
from viewcache.api.session.cache import Cache
from viewcache.api.training.frameworks import LAYOUTS, tensors_in
from viewcache.errors import MissingExtra
from viewcache.materializer.field_values import Ragged
from viewcache.materializer.reading.batch import Buffers


def first(cache: Cache, task: str = "train", **options: object) -> Tensors:
    """The first batch of a new loader."""
    return next(iter(cache.loader(task, **options)))


def test_a_batch_is_a_dict_of_tensors(cache: Cache) -> None:
    """Clips are uint8 (b,T,C,H,W); labels, ids and frame numbers are int64, times float64; nothing else is in it but
    the numbers of its epoch and iteration, as plain int, and it is a plain dict, which any library walks through.
    """
    batch = first(cache)
    assert type(batch) is dict
    assert {name: batch.pop(name) for name in ("epoch", "iteration")} == {"epoch": 0, "iteration": 0}
    clips, frames = 6 * 2, 4
    assert {name: (tuple(each.shape), each.dtype) for name, each in batch.items()} == {
        "video": ((clips, frames, 3, 32, 32), torch.uint8),
        "label": ((clips,), torch.int64),
        "index": ((clips,), torch.int64),
        "frame": ((clips, frames), torch.int64),
        "time_s": ((clips, frames), torch.float64),
        "sample": ((clips,), torch.int64),
        "item": ((clips,), torch.int64),
        "start_s": ((clips,), torch.float64),
        "end_s": ((clips,), torch.float64),
    }


def test_a_loader_gives_what_reading_gives(cache: Cache, truth: list[Tensors]) -> None:
    """Over all epochs and generations, every tensor of every batch is what `Cache.read` gives."""
    assert equal(cache.loader("train").all_epochs(), truth)


def test_ids_lead_to_names_labels_and_times(cache: Cache) -> None:
    """``index`` is the catalog's video_id; the label is the number of the video's folder; times are the frames'."""
    assert cache.classes("train") == ("cats", "dogs")
    names = {number: str(name) for number, name in sql(cache, "select video_id, video from videos")}
    assert len(names) == len(VIDEOS)
    for iteration, batch in enumerate(cache.loader("train", epochs=1)):
        shown = [names[number] for number in batch["index"].tolist()]
        assert shown == list(cache.read("train", 0, iteration).videos)
        assert [cache.classes("train")[label] for label in batch["label"].tolist()] == [name[:4] for name in shown]
        assert batch["time_s"] == pytest.approx(batch["frame"].numpy() / 25)
        assert bool((batch["frame"].diff(dim=1) == 2).all()), "the stride is 2"


def test_without_labels_the_label_is_minus_one(cache: Cache) -> None:
    """A dataset without labels gives -1, so that a loss that would use it fails loudly."""
    assert set(first(cache, "val")["label"].tolist()) == {-1}
    assert cache.classes("val") == ()


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where the pixels were read to."""
    taken: list[int] = []

    class Noting(Buffers):
        def take(self, shape: Sequence[int]) -> NDArray[np.uint8]:
            array = super().take(shape)
            taken.append(array.ctypes.data)
            return array

    monkeypatch.setattr("viewcache.api.training.frameworks.Buffers", Noting)
    return taken


@pytest.mark.parametrize("layout", [each for each in LAYOUTS if "T" in each])
def test_other_layouts_are_views_of_the_same_memory(
    cache: Cache, truth: list[Tensors], addresses: list[int], layout: str
) -> None:
    """The axes' order changes strides only: the tensor lies where the clips were read to, and the values are equal."""
    video = first(cache, layout=layout)["video"]
    sizes = {"T": 4, "C": 3, "H": 32, "W": 32}
    assert tuple(video.shape) == (12, *(sizes[axis] for axis in layout))
    assert video.data_ptr() in addresses
    back = video.permute(0, *(1 + layout.index(axis) for axis in "TCHW"))
    assert back.is_contiguous()
    assert torch.equal(back, truth[0]["video"])


def test_the_task_says_the_layout_unless_the_loader_does(cache: Cache) -> None:
    """``layout`` in the configuration is the default; TCHW is the default of that."""
    assert cache.loader("train").layout == "TCHW"
    assert tuple(first(cache, "val")["video"].shape[1:]) == (4, 32, 32, 3)
    assert tuple(first(cache, "val", layout="TCHW")["video"].shape[1:]) == (4, 3, 32, 32)


def test_a_layout_orders_the_axes_of_each_view(cache: Cache) -> None:
    """After ``stack`` the views' axis stays in front: (b,V,T,H,W,C)."""
    plain, turned = first(cache, "stacked")["video"], first(cache, "stacked", layout="THWC")["video"]
    assert tuple(plain.shape) == (12, 2, 4, 3, 48, 64)
    assert torch.equal(turned, plain.permute(0, 1, 2, 4, 5, 3))


def test_operations_at_reading_change_the_numbers(cache: Cache) -> None:
    """With ``to_dtype: float32`` the tensor is float32 in [0, 1], computed from the stored bytes, in any layout."""
    expected = as_tensors(cache.read("floats", 0, 0))["video"].float() / 255
    assert torch.allclose(first(cache, "floats")["video"], expected)
    turned = first(cache, "floats", layout="CTHW")["video"]
    assert turned.dtype == torch.float32
    assert torch.allclose(turned, expected.permute(0, 2, 1, 3, 4))


def test_all_tensors_go_to_the_device(cache: Cache, addresses: list[int]) -> None:
    """``device`` moves every tensor; the CPU's own are not copied for it."""
    assert {each.device.type for each in first(cache, device="meta").values() if not isinstance(each, int)} == {"meta"}
    assert first(cache, device=torch.device("cpu"))["video"].data_ptr() in addresses


@pytest.mark.skipif(torch.accelerator.is_available(), reason="the machine has a GPU: memory is pinned for it")
def test_a_script_that_pins_runs_without_an_accelerator(cache: Cache, truth: list[Tensors]) -> None:
    """``pin_memory`` makes a copy faster; where there is nothing to copy to, it changes nothing."""
    assert equal([first(cache, pin_memory=True)], truth[:1])


def test_without_torch_the_loader_says_what_to_install(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch is an extra; the error has the pip command."""
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"pip install 'viewcache\[torch\]'"):
        cache.loader("train")


def test_all_tensors_of_a_batch_are_found() -> None:
    """Those of lists of different lengths too; texts, lists of texts and numbers are none."""
    mine = [torch.zeros(size) for size in range(3)]
    made = {"video": mine[0], "boxes": Ragged(*mine[1:]), "text": ["a", None], "tags": [["b"], []], "epoch": 3}
    assert [*map(id, tensors_in(made, torch.Tensor))] == [*map(id, mine)]
