"""Pictures of a cache that a service owns are those of one that this process owns, and cost no reader its place."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import yaml

import viewcache
from tests.service.served import Opener, described
from tests.tiny import single


def test_pictures_are_the_same_whoever_owns_the_cache(attach: Opener, tmp_path: Path, videos: Path) -> None:
    """Of batches and of videos, to the last pixel and word; the recipes are the same values."""
    attached = attach()
    with viewcache.open(described(tmp_path / "own", videos), service="off") as owned:
        for given in ({"epoch": 1, "iteration": 2}, {"epoch": 1, "video": "dogs.-v2"}):
            mine, theirs = owned.show("train", **given), attached.show("train", **given)
            assert np.array_equal(mine.sheet, theirs.sheet)
            assert _plain(mine.facts) == _plain(theirs.facts)
            assert all(map(np.array_equal, mine.film.pictures(), theirs.film.pictures()))


def _plain(value: object) -> object:
    """Without the difference of tuples and lists."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return {key: _plain(each) for key, each in value.items()} if isinstance(value, dict) else value


def test_a_picture_moves_no_reader(attach: Opener) -> None:
    """A loader that reads on beside it gets its own batches, and its place is not that of the picture."""
    attached = attach()
    loader = iter(attached.loader("train", epochs=1))
    first = next(loader)
    attached.show("train", 2, 3).png()
    attached.show("train", 2, video="cats.-v1")
    rest = list(loader)
    assert 1 + len(rest) == attached.task("train").iterations(0)
    names = [*first["index"].tolist(), *(name for batch in rest for name in batch["index"].tolist())]
    assert len(set(names)) == 10, "each video once"


def test_the_command_goes_through_the_service(attach: Opener, store: Path, videos: Path, tmp_path: Path) -> None:
    """`viewcache show` draws while a service owns the store, and the process loads no database for it."""
    attach()
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(described(store, videos)))
    program = (
        "import sys\nfrom viewcache.api.cli.main import main\ncode = main(['show', 'train.yaml', '-o', 'a.png'])\n"
        "heavy = {'duckdb', 'pyarrow', 'sqlalchemy', 'av', 'torch'} & {name.split('.')[0] for name in sys.modules}\n"
        "sys.exit(f'loaded {heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_stacked_views_have_their_frames_apart(attach: Opener, tmp_path: Path, videos: Path) -> None:
    """A batch of two views has frames and times of (b, V, T), as in process, and a row of its picture for each view."""
    steps = [
        {"branch_type": "multi", "inputs": ["frame"], "outputs": ["a", "b"]},
        single({"center_crop": {"shape": [32, 32]}}, of="a", into="c"),
        single({"random_crop": {"shape": [32, 32]}}, of="b", into="d"),
        {"branch_type": "merge", "merge": "stack", "inputs": ["c", "d"], "outputs": ["e"]},
    ]
    attached = attach(augmentation=steps)
    with viewcache.open(described(tmp_path / "own", videos, augmentation=steps), service="off") as owned:
        mine, theirs = owned.read("train", 0, 1), attached.read("train", 0, 1)
        assert theirs.frame.shape == mine.frame.shape == (4, 2, 4)
        assert np.array_equal(theirs.frame, mine.frame)
        assert np.array_equal(theirs.time_s, mine.time_s)
        assert np.array_equal(attached.show("train", 0, 1).sheet, owned.show("train", 0, 1).sheet)
