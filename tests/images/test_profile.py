"""`viewcache profile`: what it measures, records and leaves behind, also when it is ended or has no room."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

import viewcache
from tests import forked
from tests.catalog.conftest import empty_database, server
from tests.clips import encode
from tests.disk import mounted
from tests.house.tree import ROOT
from tests.images.pages import limited, need_device
from tests.images.small import config, picture, save_folder
from tests.scheduling.harness import until
from tests.tiny import single
from viewcache.api.cli.main import main
from viewcache.catalog import Catalog
from viewcache.catalog.records import IoSampleRow
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.devices import host_of, known_devices, record_devices
from viewcache.materializer.storage.codecs import rates as codec_rates

__all__ = ["empty_database", "server"]

COUNT = 40
BAD = ("07.jpg", "23.jpg")
"""Of the images, those that cannot be decoded."""
DISK = 50 << 20
"""Of a small file system: a catalog fits, and kept pictures of large images do not."""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small images, some of which have no pixels behind their headers."""
    folder = save_folder(tmp_path_factory.mktemp("images"), {f"{k:02}.jpg": (60 + k, 48) for k in range(COUNT)})
    for name in BAD:
        (folder / name).write_bytes((folder / name).read_bytes()[:600])
    return folder


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images as cameras make them, in miniature: files of some 30 kB, pictures of 260 kB."""
    folder = tmp_path_factory.mktemp("photographs")
    rng = np.random.default_rng(0)
    for number in range(256):
        pixels = picture(500, 375, number).astype(np.int16) + rng.integers(-6, 7, (375, 500, 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{number:03}.jpg", quality=85)
    return folder


def written(folder: Path, given: dict[str, Any]) -> Path:
    """A configuration as a file."""
    path = folder / "images.yaml"
    path.write_text(yaml.safe_dump(given))
    return path


def of_photographs(store: Path, photographs: Path) -> dict[str, Any]:
    """Resized to 256 and cropped to 224, by two workers."""
    steps = [
        single({"resize": {"short_side": 256}}, {"random_crop": {"shape": [224, 224]}}, {"flip": {"flip_prob": 0.5}})
    ]
    given = config(store, photographs, cache={"workers": 2, "budget": "1GB"}, sampling={"images_per_batch": 16})
    given["dataset"]["augmentation"] = steps
    return given


def scratch_of(store: Path) -> list[Path]:
    """What lies among the unfinished things of a store."""
    return list((store / "tmp").glob("*"))


def run(*arguments: str | Path, code: int, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """Run the command in this process: what it printed and what it said."""
    capsys.readouterr()
    assert main(["profile", *map(str, arguments)]) == code
    out, words = capsys.readouterr()
    return out, words


def measured(*arguments: str | Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The answer as data."""
    found: dict[str, Any] = json.loads(run(*arguments, "--json", code=0, capsys=capsys)[0])
    return found


def test_a_profile_is_whole(tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Eleven mixes are predicted, at most five measured, the best of these is named; bad images are left out."""
    need_device(tmp_path)
    path = written(tmp_path, config(tmp_path / "store", images, on_bad_image="skip"))
    found = measured(path, "--seconds", "1", capsys=capsys)
    mixes = found["mixes"]
    tried = {mix["kept"]: mix["tried"]["free_per_s"] for mix in mixes if mix["tried"] is not None}
    assert [mix["kept"] for mix in mixes] == list(range(11))
    assert 1 <= len(tried) <= 5
    assert found["kept"] == max(tried, key=lambda kept: tried[kept])
    for mix in mixes:
        assert mix["predicted_per_s"] == min(mix["cores_per_s"], mix["devices_per_s"] or mix["cores_per_s"])
    assert {device["tier"]: device["image_bytes"] > 0 for device in found["devices"]} == {"source": True, "local": True}
    assert found["by_price_per_s"] >= 0.9 * max(mix["predicted_per_s"] for mix in mixes)
    assert 0 <= found["by_price_kept"] <= 1
    assert (found["images"], found["of_images"]) == (COUNT - len(BAD), COUNT)
    assert found["recorded"]
    codecs = {each["codec"]: each for each in found["codecs"]}
    assert list(codecs) == ["raw", "lz4", "zstd1"]
    promised = [each["predicted_per_s"] for each in codecs.values()]
    assert found["codec"] == next(name for name in codecs if codecs[name]["predicted_per_s"] >= 0.95 * max(promised))
    mine = codecs[found["codec"]]
    assert (
        mine["predicted_per_s"]
        == max(mix["predicted_per_s"] for mix in mixes)
        == mixes[mine["best"]]["predicted_per_s"]
    )
    assert mine["cores_per_s"] == mixes[-1]["cores_per_s"]
    assert mine["image_bytes"] == next(each["image_bytes"] for each in found["devices"] if each["tier"] == "local")


def test_a_stated_codec_is_the_only_one(tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the configuration says how objects are packed, pictures are kept and measured in that way alone."""
    given = config(tmp_path / "store", images, on_bad_image="skip")
    root, budget = given["cache"]["store"], given["cache"].pop("budget")
    given["cache"]["store"] = [{"url": root, "budget": budget, "codec": "zstd1"}]
    found = measured(written(tmp_path, given), "--seconds", "1", capsys=capsys)
    assert [each["codec"] for each in found["codecs"]] == [found["codec"]] == ["zstd1"]


def test_plans_reckon_with_what_was_measured(
    tmp_path: Path, photographs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new cache knows what work and codecs take on this machine, and `plan` says another cost of an epoch."""
    store = tmp_path / "store"
    path = written(tmp_path, of_photographs(store, photographs))

    def epoch_s() -> Any:
        capsys.readouterr()
        assert main(["plan", str(path), "--json"]) == 0
        return json.loads(capsys.readouterr().out)["horizon"]["epoch_s"]

    before = epoch_s()
    measured(path, "--seconds", "4", capsys=capsys)
    with Catalog.open(store, create=False) as catalog:
        samples = catalog.load_io_samples()
    known, guessed = CostModel.measured(samples), CostModel()
    for name in ("decode_s_per_pixel", "convert_s_per_pixel", "augment_s_per_byte", "store_s_per_byte"):
        assert getattr(known, name) != getattr(guessed, name), name
    for name in ("load_s_per_byte", "pass_s_per_byte"):
        assert getattr(known, name) != getattr(guessed, name), name
    pictures = 256 * 341 * 3
    for codec in ("lz4", "zstd1"):
        assert known.ladder.rung(codec, pictures) != guessed.ladder.rung(codec, pictures)
    assert set(codec_rates(samples, "local", pictures)) == {"raw", "lz4", "zstd1"}
    loads = {row.codec: row.bytes for row in samples if (row.op, row.tier) == ("load", "local")}
    assert loads.keys() == {"raw", "lz4", "zstd1"}
    assert epoch_s() != before
    with Catalog.open(store, create=False) as catalog:
        record_devices(catalog, [IoSampleRow("read", 20, "", "local", 100, 1.0, 200 << 20)], host_of(store), 1.0)
    assert main(["plan", str(path)]) == 0
    assert re.search(
        r" images/s over .*; not measured yet, and not counted in, are keeping.*, which `viewcache profile` leaves out",
        capsys.readouterr().out,
    )


def test_a_profile_records_rates_and_nothing_else(
    tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rates of both devices are there for this machine, a second profile takes their place, and nothing is drawn."""
    need_device(tmp_path)
    store = tmp_path / "store"
    path = written(tmp_path, config(store, images, on_bad_image="skip"))
    for _ in range(2):
        found = measured(path, "--seconds", "1", capsys=capsys)
        with Catalog.open(store, create=False) as catalog:
            known = known_devices(catalog, host_of(store))
            reads = [row for row in catalog.load_io_samples() if row.op == "read"]
            assert catalog.load_tasks() == []
        assert [(row.tier, row.codec) for row in sorted(reads, key=lambda row: row.tier)] == [
            ("local", ""),
            ("source", ""),
        ]
        rates = {device["tier"]: device["bytes_per_s"] for device in found["devices"]}
        assert {row.tier: row.bytes / row.seconds for row in reads} == pytest.approx(rates)
        assert known.at_s > 0
        assert not known.other_host
    assert scratch_of(store) == list((store / "objects").glob("*/*")) == []


def test_a_catalog_in_postgresql(
    tmp_path: Path,
    images: Path,
    empty_database: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Rates are recorded there too, the store goes on being its own, and the doctor tells of them."""
    need_device(tmp_path)
    where = empty_database.replace(":@", "@")  # a configuration has no password, not even an empty one
    given = config(tmp_path / "store", images, cache={"catalog": where}, on_bad_image="skip")
    path = written(tmp_path, given)
    for _ in range(2):
        assert measured(path, "--seconds", "1", capsys=capsys)["recorded"]
    with Catalog.open(where, create=False) as catalog:
        assert {row.tier for row in catalog.load_io_samples() if row.op == "read"} == {"source", "local"}
    main(["doctor", str(path)])
    assert "ok    devices:" in capsys.readouterr().out
    with viewcache.open(given) as cache:
        assert len(list(cache.loader("train", framework="numpy"))) > 0


def test_training_is_as_without_a_profile(tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Batches are the same, whether or not the machine was measured before."""
    sums = []
    for name in ("measured", "plain"):
        given = config(tmp_path / name, images, on_bad_image="skip")
        if name == "measured":
            run(written(tmp_path, given), "--seconds", "1", code=0, capsys=capsys)
        with viewcache.open(given) as cache:
            batches = cache.loader("train", framework="numpy").all_epochs()
            sums.append([int(batch["image"].astype("u8").sum()) for batch in batches])
    assert sums[0] == sums[1]


def test_words(tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """People get the table with the best mix marked, what binds, and how far prediction and measurement are apart."""
    path = written(tmp_path, config(tmp_path / "store", images, on_bad_image="skip"))
    out, _ = run(path, "--seconds", "1", code=0, capsys=capsys)
    for words in (
        "kept : decoded",
        "10 : 0",
        "0 : 10",
        "*",
        "best: keep",
        "by price",
        "against predicted: ",
        "kept as zstd1: ",
        "recorded",
    ):
        assert words in out
    assert any(words in out for words in ("the device binds", "the cores bind", "device and cores are about as fast"))


def test_a_dry_run_does_nothing(tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what would be measured, and makes no store."""
    path = written(tmp_path, config(tmp_path / "store", images, on_bad_image="skip"))
    assert f"{COUNT} images of {COUNT}" in run(path, "--dry-run", code=0, capsys=capsys)[0]
    said = measured(path, "--dry-run", capsys=capsys)
    assert (said["task"], said["images"], said["dry_run"]) == ("train", COUNT, True)
    assert not (tmp_path / "store").exists()


def begun(path: Path, store: Path) -> "subprocess.Popen[str]":
    """A profile in a process of its own, which has made some of the pictures that it keeps."""
    child = forked.Popen(
        [sys.executable, "-m", "viewcache.api.cli.main", "profile", str(path), "--seconds", "600"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )
    until(lambda: any((store / "tmp").glob("*/objects/*/*")) or child.poll() is not None, "pictures to be kept")
    assert child.poll() is None
    return child


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_scratch(tmp_path: Path, images: Path, number: signal.Signals) -> None:
    """Ctrl-C, and a scheduler's way of saying it: exit code 130, and the store is as empty as before."""
    store = tmp_path / "store"
    child = begun(written(tmp_path, config(store, images, on_bad_image="skip")), store)
    child.send_signal(number)
    out, words = child.communicate(timeout=60)
    assert child.returncode == 130, out + words
    assert "interrupted" in words
    assert scratch_of(store) == list((store / "objects").glob("*/*")) == []


def test_a_killed_profile_is_swept_by_the_next_opening(tmp_path: Path, images: Path) -> None:
    """What kill -9 leaves is one folder among the unfinished, which the next opening removes; nothing counts it."""
    store = tmp_path / "store"
    given = config(store, images, on_bad_image="skip")
    child = begun(written(tmp_path, given), store)
    child.kill()
    child.communicate(timeout=60)
    assert len(scratch_of(store)) == 1
    assert list((store / "objects").glob("*/*")) == []
    with viewcache.open(given) as cache:
        until(lambda: scratch_of(store) == [], "the sweep of an opening")
        assert len(list(cache.loader("train", framework="numpy"))) > 0


def test_nobody_else_may_have_the_cache(tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """While somebody trains, measuring would spoil both: exit code 4, and who it is."""
    given = config(tmp_path / "store", images, on_bad_image="skip")
    with viewcache.open(given):
        _, words = run(written(tmp_path, given), "--seconds", "1", code=4, capsys=capsys)
    assert str(os.getpid()) in words


@pytest.mark.parametrize("database", ["duckdb", "postgresql"])
def test_a_store_in_use_is_told_before_images_are_looked_at(
    tmp_path: Path, images: Path, database: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """Headers of a million images take minutes: none is read first. A dry run needs no store, and looks."""
    settings = {}
    if database == "postgresql":
        settings["catalog"] = request.getfixturevalue("empty_database").replace(":@", "@")
    given = config(tmp_path / "store", images, cache=settings, on_bad_image="skip")
    more = save_folder(tmp_path / "more", {f"{k}.jpg": (60 + k, 48) for k in range(3)})
    path = written(tmp_path, config(tmp_path / "store", more, cache=settings))
    with viewcache.open(given):
        _, words = run(path, code=4, capsys=capsys)
        assert f"owned by process {os.getpid()}" in words
        for image in more.iterdir():
            image.unlink()  # whoever looks finds none
        run(path, code=4, capsys=capsys)
        run(path, "--dry-run", code=3, capsys=capsys)
    run(path, code=3, capsys=capsys)


def test_a_budget_without_room_is_told(tmp_path: Path, photographs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error says how many bytes are wanted and what to raise; nothing is left."""
    given = of_photographs(tmp_path / "store", photographs)
    given["cache"]["budget"] = "24MB"
    _, words = run(written(tmp_path, given), "--seconds", "1", code=2, capsys=capsys)
    assert "and 0 of its 24000000 bytes are in use; raise cache.budget" in words
    assert "evict" not in words, "there is nothing that could leave"
    assert scratch_of(tmp_path / "store") == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, in memory."""
    with mounted(tmp_path / "disk", DISK) as disk:
        yield disk


def test_a_full_disk_is_told(
    tmp_path: Path, small_disk: Path, photographs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 5 and words about disk space; the pictures that were made are gone."""
    store = small_disk / "store"
    given = of_photographs(store, photographs)
    given["cache"]["budget"] = "1GB"
    with (small_disk / "ballast").open("wb") as ballast:
        os.posix_fallocate(ballast.fileno(), 0, 15 << 20)
    _, words = run(written(tmp_path, given), "--seconds", "1", code=5, capsys=capsys)
    assert "free disk space" in words
    assert scratch_of(store) == []


def test_memory_has_no_device(
    tmp_path: Path, small_disk: Path, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A store in memory is said to have no device; of that tier nothing is recorded, and all is kept."""
    need_device(tmp_path)
    store = small_disk / "store"
    path = written(tmp_path, config(store, images, on_bad_image="skip"))
    out, _ = run(path, "--seconds", "1", code=0, capsys=capsys)
    assert "the page cache has it, the device does not count" in out
    with Catalog.open(store, create=False) as catalog:
        assert {row.tier for row in catalog.load_io_samples() if row.op == "read"} == {"source"}


def test_another_machine_ignores_what_was_measured(
    tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The doctor tells what devices give, and of rates of another machine that they are ignored; silent without any."""
    need_device(tmp_path)
    store = tmp_path / "store"
    path = written(tmp_path, config(store, images, on_bad_image="skip"))

    def told() -> list[str]:
        capsys.readouterr()
        main(["doctor", str(path)])
        return [line for line in capsys.readouterr().out.splitlines() if "devices:" in line]

    assert told() == []
    run(path, "--seconds", "2", code=0, capsys=capsys)
    assert [line.startswith("ok ") for line in told()] == [True]
    with Catalog.open(store, create=False) as catalog:
        rows = [row for row in catalog.load_io_samples() if row.op == "read"]
        record_devices(catalog, rows, "another machine", 1.0)
    (line,) = told()
    assert line.startswith("warn")
    assert "ignored here" in line
    assert "viewcache profile" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--seconds", "0.5"), "--seconds 0.5"),
        (("--seconds", "nan"), "--seconds nan"),
        (("--tier", "local", "--seconds", "inf"), "--seconds inf"),
        (("--tier", "memory"), "it has local"),
    ],
)
def test_bad_arguments(
    tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    """Each is named with what is allowed, before anything is made."""
    path = written(tmp_path, config(tmp_path / "store", images, on_bad_image="skip"))
    code = 3 if words == "it has local" else 2
    assert words in run(path, *arguments, code=code, capsys=capsys)[1]
    assert not (tmp_path / "store").exists()


def test_a_tier_that_workers_do_not_read(tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tier that is there, and that kept pictures are not read from, is refused by its name."""
    given = config(tmp_path / "store", images, on_bad_image="skip")
    budget = given["cache"].pop("budget")
    store = given["cache"]["store"]
    given["cache"]["store"] = [{"url": "memory://", "budget": "8MB"}, {"url": store, "budget": budget}]
    assert "local tier alone" in run(written(tmp_path, given), "--tier", "memory", code=2, capsys=capsys)[1]


def test_bad_datasets(tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Videos, an empty folder, too few images, nothing smaller to keep, a file that is no configuration."""
    store = tmp_path / "store"
    empty, few, videos = (tmp_path / name for name in ("empty", "few", "videos"))
    empty.mkdir()
    save_folder(few, {"a.png": (64, 48)})
    videos.mkdir()
    encode(videos / "a.mp4", frames=8, size=(64, 48))
    crop = [single({"random_resized_crop": {"shape": [32, 32]}})]
    of_videos = config(store, images)
    of_videos["dataset"]["video_dataset_path"] = str(videos)
    del of_videos["dataset"]["image_dataset_path"]
    of_videos["dataset"]["sampling"] = {"videos_per_batch": 1, "frames_per_video": 4}
    broken = tmp_path / "broken.yaml"
    broken.write_text("cache: [")
    for path, code, words in (
        (written(tmp_path, of_videos), 2, "is of videos"),
        (written(tmp_path / "empty", config(store, empty)), 3, "empty"),
        (written(tmp_path / "few", config(store, few)), 2, "1 of 1 images"),
        (written(tmp_path / "videos", config(store, images, augmentation=crop)), 2, "begin with `resize`"),
        (broken, 2, "broken.yaml"),
        (tmp_path / "gone.yaml", 3, "gone.yaml"),
    ):
        assert words in run(path, "--seconds", "1", code=code, capsys=capsys)[1]
    assert scratch_of(store) == []


def limited_profile(path: Path, group: Path) -> dict[str, Any]:
    """A profile in a new process of a control group, as are its workers."""
    command = f'echo $$ > "$0" && exec "{sys.executable}" -m viewcache.api.cli.main profile "$1" --seconds 4 --json'
    done = subprocess.run(
        ["sh", "-c", command, str(group / "cgroup.procs"), str(path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_slow_disk_has_its_best_mix_inside(
    tmp_path: Path, photographs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disk that gives kept pictures at half the rate at which cores decode files: then a mix is the fastest.

    The limit is what is measured of the disk, and the mix at least 1.1 times as fast as either form.
    """
    need_device(tmp_path)
    path = written(tmp_path, of_photographs(tmp_path / "store", photographs))
    for _ in range(5):  # while others use the disk or the cores a rate is of both, and that is what is measured
        free = measured(path, "--seconds", "2", capsys=capsys)
        kept_bytes = next(device["image_bytes"] for device in free["devices"] if device["tier"] == "local")
        limit = 0.5 * free["mixes"][0]["cores_per_s"] * kept_bytes
        with limited(tmp_path, limit) as group:
            found = limited_profile(path, group)
        rates = {device["tier"]: device["bytes_per_s"] for device in found["devices"]}
        as_before = found["mixes"][0]["cores_per_s"] / free["mixes"][0]["cores_per_s"]
        if 0.75 * limit <= rates["local"] <= 1.25 * limit and 0.75 <= as_before <= 1.25:
            break
    assert 0.75 * limit <= rates["local"] <= 1.25 * limit
    predicted = [mix["predicted_per_s"] for mix in found["mixes"]]
    assert max(predicted) >= 1.1 * max(predicted[0], predicted[-1])
    assert 0 < found["kept"] < 10
