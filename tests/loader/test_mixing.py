"""Batches whose clips are mixed: what a loader hands out is a function of the batch's place, whoever reads it."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import viewcache
from tests.config.samples import refused
from tests.loader.small import equal, joined, whole
from tests.tiny import AUGMENTATION, config, single
from viewcache.api.session.cache import Cache
from viewcache.errors import BadInput, ConfigCode

SAMPLES = 2
NORMALIZE = {"normalize": {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.4]}}
TASKS: dict[str, tuple[object, ...]] = {
    "mixup": ({"mixup": 0.8},),
    "cutmix": ({"cutmix": {"alpha": 1.0, "num_classes": 5}},),
    "before": ({"mix_video": {}}, NORMALIZE),
    "behind": (NORMALIZE, {"mix_video": {}}),
    "apart": (NORMALIZE,),
}


def described(store: Path, videos: Path, **settings: Any) -> list[dict[str, object]]:
    """Tasks over ten videos, six and four to a batch, that differ in what runs at reading."""
    batch = {"videos_per_batch": 6, "coordination": "independent"}
    first, *others = (
        config(
            store,
            videos,
            **{"labels": "folders", "epochs": 4, "sampling": batch, "tag": name, **settings},
            augmentation=[*AUGMENTATION, single(*ops, of="a", into="b")],
        )
        for name, ops in TASKS.items()
    )
    return [first, *({"dataset": each["dataset"]} for each in others)]


@pytest.fixture(scope="module")
def mixing(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cache]:
    """An open cache of those tasks."""
    with viewcache.open(described(tmp_path_factory.mktemp("mixing"), videos)) as opened:
        for name in opened.tasks:
            whole(opened, name)  # threads start before a test counts them
        yield opened


def test_mixup_blends_clips_and_labels(mixing: Cache) -> None:
    """Pixels are λ x + (1 - λ) roll(x) of the clips of `view://`, labels alike; all else is as without."""
    shares = []
    for batch in mixing.loader("mixup").all_epochs():
        plain = mixing.read("mixup", batch["epoch"], batch["iteration"])
        lam = float(batch["lam"][0])
        assert (batch["lam"] == lam).all()
        other = np.roll(plain.video, SAMPLES, axis=0).astype(float)
        assert np.array_equal(batch["video"].numpy(), np.rint(lam * plain.video + (1 - lam) * other))
        assert np.array_equal(batch["label_other"].numpy(), np.roll(plain.label, SAMPLES))
        wanted = lam * np.eye(2)[plain.label] + (1 - lam) * np.eye(2)[np.roll(plain.label, SAMPLES)]
        assert np.allclose(batch["label_mixed"].numpy(), wanted)
        assert batch["label_mixed"].dtype == torch.float32
        for name in ("label", "index", "frame", "time_s", "sample"):
            assert np.array_equal(batch[name].numpy(), getattr(plain, name))
        shares.append(lam)
    assert len(set(shares)) > 4, "a share for each batch"


def test_cutmix_replaces_one_box(mixing: Cache) -> None:
    """Each pixel is the clip's or its partner's; where they differ, the partner's fill one box of the stated area."""
    for batch in islice(mixing.loader("cutmix").all_epochs(), 6):
        plain = mixing.read("cutmix", batch["epoch"], batch["iteration"]).video
        other, found = np.roll(plain, SAMPLES, axis=0), batch["video"].numpy()
        assert ((found == plain) | (found == other)).all()
        cut = (found != plain).any(axis=(0, 1, 2))  # (H,W)
        rows, columns = (np.flatnonzero(cut.any(axis=axis)) for axis in (1, 0))
        area = (np.ptp(rows) + 1) * (np.ptp(columns) + 1) if cut.any() else 0
        assert float(batch["lam"][0]) == pytest.approx(1 - area / cut.size)
        if area:
            inside = np.s_[..., rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
            assert np.array_equal(found[inside], other[inside])
        assert batch["label_mixed"].shape[1] == 5, "as num_classes says"
        assert torch.allclose(batch["label_mixed"].sum(dim=1), torch.ones(len(found)))


def test_before_and_behind_normalize(mixing: Cache) -> None:
    """The two orders differ by the rounding of bytes only; a task that does not mix hands out the clips themselves."""
    drawn = [islice(mixing.loader(name).all_epochs(), 4) for name in ("before", "behind", "apart")]
    for before, behind, apart in zip(*drawn, strict=True):
        assert before.keys() == behind.keys() == apart.keys() | {"label_mixed", "label_other", "lam"}
    for name in ("before", "behind"):
        mixer = mixing.task(name).mixer
        assert mixer is not None
        for batch in islice(mixing.loader(name).all_epochs(), 4):
            place = batch["epoch"], batch["iteration"]
            plain = mixing.task("apart").finish(mixing.read(name, *place).video)
            mix = mixer.mix(*place)
            mix.apply(plain, plain[-SAMPLES:].copy())
            assert np.abs(batch["video"].numpy() - plain).max() <= (
                0.5 / 255 / 0.2 + 1e-5 if name == "before" else 1e-5
            )


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("world", [2, 3, 4])
def test_ranks_have_what_one_alone_has(mixing: Cache, task: str, world: int) -> None:
    """The shares of all ranks make up the batches of one rank, at any world size, pairs across shares included."""
    alone = list(islice(mixing.loader(task).all_epochs(), 4))
    loops = [mixing.loader(task, rank=rank, world=world).all_epochs() for rank in range(world)]
    together = [joined(shares) for shares in islice(zip(*loops, strict=True), 4)]
    assert equal(together, alone)


@pytest.mark.parametrize("world", [1, 4, 6])
def test_even_ranks(mixing: Cache, world: int) -> None:
    """What is valid is what one rank has; filling is black and has no label, also of a rank that has nothing."""
    alone = list(islice(mixing.loader("mixup").all_epochs(), 2))
    loops = [mixing.loader("mixup", rank=rank, world=world, even=True).all_epochs() for rank in range(world)]
    for expected, *shares in zip(alone, *(islice(loop, 2) for loop in loops), strict=True):
        for name in ("video", "label", "label_other", "label_mixed", "lam"):
            assert torch.equal(torch.cat([share[name][share["valid"]] for share in shares]), expected[name])
        for share in shares:
            filling = ~share["valid"]
            assert not share["video"][filling].any()
            assert not share["label_mixed"][filling].any()
            assert (share["label_other"][filling] == -1).all()


def test_frameworks_layouts_and_states(mixing: Cache) -> None:
    """NumPy's batches are torch's in any layout, and a state leads on to the same draws."""
    for name in ("mixup", "behind"):
        tensors = list(islice(mixing.loader(name).all_epochs(), 4))
        arrays = list(islice(mixing.loader(name, framework="numpy", layout="THWC").all_epochs(), 4))
        for one, other in zip(tensors, arrays, strict=True):
            assert np.allclose(one["video"].numpy().transpose(0, 1, 3, 4, 2), other["video"], atol=1e-6)
            assert np.array_equal(one["label_mixed"].numpy(), other["label_mixed"])
        loader = mixing.loader(name)
        loader.load_state_dict({**loader.state_dict(), "epoch": 1, "iteration": 1})
        assert equal([next(iter(loader))], tensors[3:])


def test_a_batch_of_one_video_stays(videos: Path, tmp_path: Path) -> None:
    """The last batch of ten videos by nine has nobody to be mixed with: its clips stay, λ is 1."""
    given = config(
        tmp_path / "store",
        videos,
        labels="folders",
        epochs=1,
        sampling={"videos_per_batch": 9, "coordination": "independent"},
        augmentation=[*AUGMENTATION, single({"mixup": {"alpha": 1000.0}}, of="a", into="b")],
    )
    with viewcache.open(given) as cache:
        first, last = cache.loader("train")
        assert 0.3 < float(first["lam"][0]) < 0.7
        assert np.array_equal(last["video"].numpy(), cache.read("train", 0, 1).video)
        assert last["lam"].tolist() == [1.0, 1.0]
        assert torch.equal(last["label_mixed"].argmax(dim=1), last["label"])
        shares = [list(cache.loader("train", rank=rank, world=2, even=True))[1] for rank in range(2)]
        assert sorted(int(share["valid"].sum()) for share in shares) == [0, 2]
        assert torch.equal(torch.cat([share["video"][share["valid"]] for share in shares]), last["video"])


def table(path: Path, rows: dict[str, object]) -> str:
    """A table of labels."""
    path.write_text("video,label\n" + "".join(f"{video},{label}\n" for video, label in rows.items()))
    return str(path)


def opened(videos: Path, store: Path, labels: str, **mixup: object) -> Cache:
    """A cache whose task mixes, with a table of labels."""
    steps = [*AUGMENTATION, single({"mixup": mixup}, of="a", into="b")]
    return viewcache.open(config(store, videos / "cats", labels=labels, epochs=1, augmentation=steps))


def test_labels_that_are_numbers(videos: Path, tmp_path: Path) -> None:
    """`num_classes` is needed, and a label beyond it is told with its video."""
    names = sorted(path.name for path in (videos / "cats").iterdir())
    labels = table(tmp_path / "labels.csv", {name: number for number, name in enumerate(names)})
    with opened(videos, tmp_path / "one", labels) as cache:
        with pytest.raises(BadInput, match=r"so say how many classes there are: mixup: {num"):
            cache.loader("train")
        assert len(cache.read("train", 0, 0).label) == 4, "views are there all the same"
    with opened(videos, tmp_path / "two", labels, num_classes=5) as cache:
        assert {batch["label_mixed"].shape[1] for batch in cache.loader("train")} == {5}
    beyond = pytest.raises(BadInput, match=r"video '.*' of task 'train' has label [34], and num_classes is 3")
    with opened(videos, tmp_path / "three", labels, num_classes=3) as cache, beyond:
        list(cache.loader("train"))


def test_a_video_without_a_label(videos: Path, tmp_path: Path) -> None:
    """Among labelled videos one without a label cannot be mixed; the message says which, and what to do."""
    names = sorted(path.name for path in (videos / "cats").iterdir())
    labels = table(tmp_path / "labels.csv", {name: "a" if number else "b" for number, name in enumerate(names[1:])})
    told = pytest.raises(BadInput, match="video 'v1' of task 'train' has no label, so it cannot be mixed: label it")
    with opened(videos, tmp_path / "store", labels) as cache, told:
        list(cache.loader("train"))


MISTAKES = [
    ("", "{mixup: {alpha: 0}}", ConfigCode.OP_PARAMETERS, "alpha is 0; allowed: a number from 0.001 to 1000"),
    ("", "mixup", ConfigCode.MISSING_KEY, "mixup: it mixes labels, and the dataset has none: give labels"),
    ("labels: folders", "{cutmix: {alpah: 1}}", ConfigCode.OP_PARAMETERS, "unknown parameter 'alpah'"),
    ("labels: folders", "mixup, cutmix", ConfigCode.GIVEN_TWICE, "cutmix: clips are mixed once, by mixup already"),
    ("labels: folders", "mixup, flip", ConfigCode.READ_OP_ORDER, "'mixup' runs when a clip is read, so it must come"),
    ("labels: folders, input_source: streaming", "mixup", ConfigCode.MISSING_KEY, "classes may join a dataset that gr"),
    ("labels: folders, sampling: {videos_per_batch: 1, frames_per_video: 4}", "mixup", ConfigCode.OUT_OF_RANGE,
     "it mixes the clips of two videos, and videos_per_batch is 1: at least 2"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "operations", "code", "says"), MISTAKES)
def test_what_cannot_be_mixed_is_refused(keys: str, operations: str, code: ConfigCode, says: str) -> None:
    """Without labels or partners, twice, not at the end, or of unknown classes: refused with the operation's place."""
    usual = "" if "sampling" in keys else "sampling: {videos_per_batch: 2, frames_per_video: 4}"
    written = ", ".join(filter(None, ("tag: train, video_dataset_path: /videos", usual, keys)))
    step = f"{{branch_type: single, inputs: [frame], outputs: [a], config: [{operations}]}}"
    error = refused(f"dataset:\n  {{{written},\n  augmentation: [{step}]}}\n")
    assert error.code == code
    assert says in str(error)
    assert (error.line, error.column) > (3, 60), "the operation's place"
