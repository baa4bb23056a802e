"""plan and run: look before anything happens, make ahead, stop and go on."""

import json
import re
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import viewcache
from tests.cli.site import Site
from tests.clips import encode
from tests.images.small import config, save_folder
from tests.sounds import encode_with_audio
from tests.tiny import make_decoding_dear
from viewcache.api.cli.terminal import Terminal
from viewcache.api.session.made import Making
from viewcache.api.session.making import AheadOfTime
from viewcache.catalog import Catalog
from viewcache.catalog.records import IoSampleRow
from viewcache.materializer.planning.devices import host_of, record_devices
from viewcache.materializer.retention.forecast import Forecast


def test_plan_says_what_would_be_made(site: Site) -> None:
    """Graph, objects per kind, bytes, decode seconds and packets with on-demand beside them, what is kept."""
    text = site.run("plan", "train.yaml")
    for word in ("resize", "random_crop", "clip", "frames", "packets decoded", "core seconds", "on demand", "budget"):
        assert word in text
    (task,) = site.json("plan", "train.yaml")["tasks"]
    assert task["summary"]["uses"] == 12
    assert task["summary"]["packets"] <= task["summary"]["packets_on_demand"]
    assert {kind["kind"] for kind in task["objects"]} >= {"clip", "frames"}
    assert task["shape"] == [8, 3, 32, 32]


def test_plan_records_nothing(site: Site) -> None:
    """Looking at a plan draws nothing: the configuration may be changed afterwards and planned again."""
    site.run("plan", "train.yaml")
    assert not site.store.exists()
    site.edit("frames_per_video: 8", "frames_per_video: 4")
    site.run("plan", "train.yaml")
    site.run("run", "train.yaml")
    assert site.json("plan")["tasks"][0]["summary"]["frames"] > 0


def test_plan_keeps_what_it_found_of_new_files(made: Site) -> None:
    """The cache that nobody has open knows them from then on; what is drawn stays as it is."""
    drawn = made.json("sql", "select count(*) from draws")["rows"]
    videos = made.folder / "videos"
    shutil.copyfile(next(videos.iterdir()), videos / "late.mp4")
    made.run("plan", "train.yaml")
    found = made.json("sql", "select status from videos where video = 'late' and frames > 0")
    assert found["rows"] == [["ok"]]
    assert made.json("sql", "select count(*) from draws")["rows"] == drawn


def test_plan_of_a_changed_task_warns(made: Site) -> None:
    """A definition that a run would refuse is planned nevertheless, with the refusal as a warning."""
    made.edit("frames_per_video: 8", "frames_per_video: 4")
    made.run("plan", "train.yaml")
    assert "would refuse" in made.words


def test_plan_works_while_another_process_trains(made: Site) -> None:
    """The owner of the cache is not disturbed, and its draws are seen."""
    with viewcache.open(made.config):
        ended = made.spawn("plan", "train.yaml", "--json")
        out, err = ended.communicate(timeout=60)
    assert ended.returncode == 0, err
    assert '"uses": 12' in out


@pytest.mark.parametrize("arguments", [("plan", "--generation", "7"), ("run", "--epochs", "0")])
def test_numbers_out_of_range_are_refused(site: Site, arguments: tuple[str, ...]) -> None:
    """The message says the valid range."""
    site.run(*arguments, code=2)
    assert re.search(r"0 to 0|at least 1", site.words)


def test_run_makes_everything(site: Site) -> None:
    """After a run every clip is ready, and a second run has nothing to do."""
    answer = site.json("run", "train.yaml")
    assert answer["clips"] == {"planned": 0, "making": 0, "ready": 12, "failed": 0}
    files = site.objects()
    assert site.json("run", "train.yaml")["clips"] == answer["clips"]
    assert site.objects() == files


def test_run_prints_progress_without_a_terminal(site: Site) -> None:
    """Lines on stderr tell how far it came; stdout has the summary alone."""
    out = site.run("run")
    assert "12 clips ready" in out
    assert "making objects: 12/12" in site.words


def test_run_writes_a_trace(site: Site) -> None:
    """The option goes before the key; every job is there; a name that is no trace's is refused before anything is."""
    site.edit("workers: 1", "workers: 1\n  trace: key.json")
    site.run("run", "train.yaml", "--trace", "video.mp4", code=2)
    assert "ends in .json or .json.gz, got 'video.mp4'" in site.words
    assert not site.store.exists()
    site.run("run", "train.yaml", "--trace", "option.json")
    events = json.loads(Path("option.json").read_text())
    jobs = [event for event in events if "job" in event.get("args", {})]
    assert sum(event["args"]["made"] for event in jobs) == 12
    assert not Path("key.json").exists()
    site.run("run", "train.yaml")
    assert json.loads(Path("key.json").read_text())


def test_dry_run_makes_nothing(site: Site) -> None:
    """The plans of all generations are shown, and no cache is there afterwards."""
    site.edit("epochs: 2\n  sampling", "epochs: 4\n  sampling")
    assert len(re.findall(r"(?m)^generation \d: ", site.run("run", "--dry-run"))) == 2
    assert not site.store.exists()


def test_run_of_more_epochs_than_a_task_has(site: Site) -> None:
    """``--epochs`` of two tasks, of which one has fewer, makes all of that one; the dry run shows the same."""
    site.edit("64MB", "64MB\n  keep: leaves")  # else pictures are kept for the epochs to come, and clips made of them
    first = site.config.read_text()
    second = first[first.index("dataset:") :].replace("tag: train", "tag: longer").replace("epochs: 2\n", "epochs: 6\n")
    site.config.write_text(f"{first}---\n{second}")
    assert site.run("run", "--dry-run", "--epochs", "4").count("generation") >= 3
    clips = site.json("run", "--epochs", "4")["clips"]
    assert clips["ready"] == 12 + 24
    assert site.json("run", "--epochs", "9")["clips"]["ready"] == 12 + 36


def test_run_says_where_the_task_is_that_is_wrong(site: Site) -> None:
    """A missing label table and clips of several sizes are told with file, line and column of their task."""
    site.edit("  epochs: 2\n  sampling", "  labels: ./none.csv\n  epochs: 2\n  sampling")
    site.run("run", code=3)
    assert re.search(r"train\.yaml:\d+:\d+: labels .*none\.csv: no such table", site.words)
    site.edit("  labels: ./none.csv\n", "")
    site.edit("    - random_crop: {shape: [32, 32]}\n", "")
    encode(site.folder / "videos" / "tall.mp4", frames=40, size=(48, 64))
    site.run("run", code=2)
    assert re.search(r"train\.yaml:\d+:\d+: task 'train': all clips must have one size.* end with", site.words)


def test_run_ends_when_the_budget_is_full(site: Site) -> None:
    """What does not fit is told, and is no failure."""
    site.edit("64MB", "330kB")
    assert re.search(r"^\d+ clips not kept, .* says what is kept$", site.run("run"), re.MULTILINE)
    ready = site.json("run")["clips"]["ready"]
    assert 0 < ready < 12
    assert site.json("run")["clips"]["ready"] == ready, "what is in the store counts in the next run too"


@pytest.mark.parametrize("service", ["auto", "off"])
def test_a_clip_whose_audio_cannot_be_made_is_not_ready(site: Site, service: str) -> None:
    """Such clips have failed, also in the next run; the prediction counts audio; what could be made is ready."""
    encode_with_audio(site.folder / "videos" / "heard.mp4")
    site.edit("  epochs: 2\n  sampling", "  epochs: 2\n  audio: {rate: 16000, seconds: 0.5}\n  sampling")
    site.edit("workers: 1", f"workers: 1\n  service: {service}")
    silent = site.json("run")
    assert silent["clips"] == {"planned": 0, "making": 0, "ready": 16, "failed": 0}
    assert silent["predicted"]["objects"] == silent["measured"]["objects"] > 16
    assert site.json("run")["predicted"]["objects"] == 0, "audio that lies there is not made again"
    site.edit("store: ./cache", "store: ./other")
    site.edit("rate: 16000", "rate: 16000, on_no_audio: bad")
    for named in ((), (str(site.config),)):
        assert site.json("run", *named, code=1)["clips"] == {"planned": 0, "making": 0, "ready": 4, "failed": 12}
        command = " ".join(["viewcache", "sql", *named, '"from errors"'])
        assert f"12 clips could not be made: `{command}` says why" in site.words


def _of_images(site: Site, **cache: object) -> None:
    """Let the site be one of 24 images, which lie in 12 blocks an epoch and in as many packs."""
    folder = save_folder(site.folder / "in", {f"{k:02}.jpg": (64, 48) for k in range(24)})
    written = config(site.store, folder, cache={"epochs_per_generation": 3, **cache}, epochs=40)
    site.config.write_text(yaml.safe_dump(written))


def _of_videos(site: Site, **cache: object) -> None:
    """Let the site be one of videos of which all pictures are kept for the epochs to come."""
    site.edit("epochs: 2\n  sampling", "epochs: 40\n  sampling")
    site.edit("workers: 1", "\n  ".join(["workers: 1", *(f"{name}: {value}" for name, value in cache.items())]))


@pytest.mark.parametrize("of", [_of_images, _of_videos])
def test_what_is_predicted_is_made(site: Site, of: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects and their bytes, in a fresh store, in one where part of it lies, and nothing where all of it does."""
    make_decoding_dear(monkeypatch)
    of(site, service="off")
    for epochs in ("1", "8"):
        told = site.json("run", "--epochs", epochs)
        assert told["measured"]["objects"] > 0
        for what in ("objects", "object_bytes"):
            assert told["predicted"][what] == told["measured"][what], what
        again = site.json("run", "--epochs", epochs)
        assert again["predicted"]["objects"] == again["measured"]["objects"] == 0
    assert "of pictures that clips are made from" in site.run("plan")


def test_the_bar_ends_at_its_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where less is made than was predicted, which is told."""
    step = AheadOfTime.step

    def hoping(ahead: AheadOfTime) -> tuple[bool, Making]:
        over, making = step(ahead)
        return over, replace(making, predicted=replace(making.predicted, objects=100.0))

    monkeypatch.setattr(AheadOfTime, "step", hoping)
    site.edit("workers: 1", "workers: 1\n  service: off")
    out = site.run("run")
    assert re.search(r"objects made +100 +12 +0.12x", out)
    assert "88 objects less than predicted: they have no room, or cost less when they are read, or " in out
    assert "making objects: 12/12" in site.words


@pytest.mark.parametrize("service", ["auto", "off"])
def test_what_is_made_from_kept_pictures_is_no_matter_of_the_budget(tmp_path: Path, site: Site, service: str) -> None:
    """Where pictures are kept and clips are made of them, a run says that; only what has no pictures is not kept."""
    settings = {"service": service, "epochs_per_generation": 3}
    written = config(tmp_path / "store", save_folder(tmp_path / "in"), cache=settings)
    site.config.write_text(yaml.safe_dump(written))
    said = site.run("run")
    assert re.search(r"^\d+ images will be made from kept pictures when they are read$", said, re.MULTILINE)
    assert "not kept" not in said
    written["cache"] |= {"mix": 0.5, "store": str(tmp_path / "half")}
    site.config.write_text(yaml.safe_dump(written))
    said = site.run("run")
    assert "made from kept pictures" in said
    assert re.search(r"^\d+ images not kept, to be made when they are read", said, re.MULTILINE)


def test_the_bar_counts_what_the_budget_lets_be_made(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a small budget the bar goes forward only, and its end is what is kept, not all clips of all epochs."""
    steps: dict[str, list[tuple[int, int]]] = {}

    class Noting:
        def __init__(self, what: str) -> None:
            self.mine = steps.setdefault(what, [])

        def at(self, done: int, total: int, note: str = "") -> None:
            self.mine.append((done, total))

    monkeypatch.setattr(Terminal, "progress", lambda terminal, what: nullcontext(Noting(what)))
    site.edit("64MB", "220kB")
    site.run("run")
    made = steps["making objects"]
    assert made[-1][0] > 0
    assert [done for done, _ in made] == sorted(done for done, _ in made)
    assert all(done <= total < 12 for done, total in made)


def test_clips_that_a_full_disk_left_out_are_no_matter_of_the_budget(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stopped the last job is told, and the run has failed."""
    site.edit("64MB", "330kB")

    def full(clips: dict[str, int], predicted: Forecast, measured: Forecast, *_: object) -> Making:
        return Making(clips, predicted, measured, "No space left on device")

    monkeypatch.setattr("viewcache.api.session.making.Making", full)
    assert "not kept" not in site.run("run", code=1)
    assert re.search(r"\d+ clips not made: No space left on device", site.words)


def test_a_budget_below_one_batch_is_refused(site: Site) -> None:
    """The message has the minimum."""
    site.edit("64MB", "40kB")
    assert site.json("run", code=2)["error"]["kind"] == "budget_too_small"
    assert "the minimum is" in site.words
    site.run("plan")
    assert "would refuse" in site.words


def test_a_broken_video_is_named(site: Site) -> None:
    """By the policy raise a run ends with 1 and the file's name."""
    Path("videos/broken.mp4").write_bytes(b"no video")
    site.run("run", code=1)
    assert "broken.mp4" in site.words
    site.edit("  epochs: 2\n  sampling", "  epochs: 2\n  on_bad_video: skip\n  sampling")
    site.run("run")


def test_a_second_owner_is_told_who_holds_it(made: Site) -> None:
    """Exit code 4, the holder's pid, and how to look nevertheless."""
    with viewcache.open(made.config):
        second = made.spawn("run", "train.yaml")
        _, err = second.communicate(timeout=60)
    assert second.returncode == 4
    assert "viewcache sql" in err
    assert re.search(r"process \d+", err)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_goes_on(site: Site, number: signal.Signals) -> None:
    """Ctrl-C, or the scheduler's SIGTERM, ends with 130 and no trace; the same command finishes the work."""
    site.edit("epochs_per_generation: 2", "epochs_per_generation: 60")
    site.edit("epochs: 2\n  sampling", "epochs: 600\n  sampling")  # so many that it cannot be done before the signal
    running = site.spawn("run", "train.yaml")
    while not site.objects():
        assert running.poll() is None, running.communicate()
        time.sleep(0.01)
    running.send_signal(number)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert "Traceback" not in err
    site.run("verify")
    site.edit("epochs: 600\n  sampling", "epochs: 60\n  sampling")
    assert site.json("run")["clips"]["ready"] == 360


def test_plan_compares_budgets(site: Site) -> None:
    """A row for each budget, the definitions in --help, and the least budget; nothing is recorded."""
    text = site.run("plan", "train.yaml", "--budget", "1kB,400kB,1GB", "--pace", "0.1")
    for word in ("stall", "warm-up", "the minimum is", "decoded twice", "0.1 s a batch"):
        assert word in text
    found = site.json("plan", "train.yaml", "--budget", "400kB,1GB")
    assert [each["budget_bytes"] for each in found["budgets"]] == [400_000, 10**9]
    assert found["budgets"][1]["packets"] == found["once_packets"]
    assert not site.store.exists()


def test_plan_says_what_an_epoch_costs(site: Site) -> None:
    """Also where all clips fit and no epoch comes behind; then nothing lasts, and no rules are compared."""
    text = site.run("plan", "train.yaml")
    assert ": all clips of " in text
    assert "an epoch costs about, in core seconds: epoch 1: " in text
    assert "which pays" not in text
    found = site.json("plan", "train.yaml")
    (keep,) = found["keeps"]
    assert (keep["rule"], keep["rules"], keep["horizon"]["without_s"]) == ("", [], None)
    assert found["horizon"]["epoch_s"]["1"] > found["horizon"]["beside_s"]["1"] > 0
    site.edit("  epochs: 2", "  epochs: 40")
    (long,) = site.json("plan", "train.yaml")["keeps"]
    assert [epoch for epoch, _ in long["horizon"]["epoch_s"]] == [1, 10]
    assert long["horizon"]["without_s"] > 0
    assert {name for name, _ in long["horizon"]["pay_after"]} <= {what for what, _ in long["ways"]}


def test_plan_says_what_binds(made: Site) -> None:
    """What devices and cores give together is said where the devices were profiled, on this machine and no other."""
    made.edit("  epochs: 2", "  epochs: 40")
    assert "devices" not in made.run("plan", "train.yaml")
    (keep,) = made.json("plan", "train.yaml")["keeps"]
    assert keep["pace"] is None
    reads = [IoSampleRow("read", 20, "", tier, 100, 1.0, 200 << 20) for tier in ("source", "local")]
    for host, known in ((host_of(made.store), True), ("another", False)):
        with Catalog.open(made.store, create=False) as catalog:
            record_devices(catalog, reads, host, 1e9)
        assert ("devices local 210 MB/s, source 210 MB/s (profiled 2001-09-" in made.run("plan", "train.yaml")) is known
    with Catalog.open(made.store, create=False) as catalog:
        record_devices(catalog, [replace(reads[1], seconds=1000.0)], host_of(made.store), 1e9)
    text = made.run("plan", "train.yaml")
    assert "cores 1: something is kept of" in text
    work = "keeping, planning and handing batches over"
    unknown = f"not measured yet, and not counted in, are {work}"
    assert re.search(rf" clips/s over all epochs to come, bound by [a-z ]*; {unknown}\n", text)
    (slow,) = made.json("plan", "train.yaml")["keeps"]
    assert slow["pace"]["bound_by"] in (["cores"], ["cores", "local"])
    assert slow["pace"]["per_s"] > 0
    assert slow["ways"] != keep["ways"]
    with Catalog.open(made.store, create=False) as catalog:
        catalog.add_io_samples([IoSampleRow("batch", 0, "", "", 100, 5.0, 0)])
    assert f"; counted in are {work}\n" in made.run("plan", "train.yaml")


def test_plan_with_a_pace_needs_budgets(site: Site) -> None:
    """Options that would be ignored are refused; if no budget holds a batch, that is a failure."""
    site.run("plan", "train.yaml", "--pace", "1", code=2)
    assert "--budget" in site.words
    site.run("plan", "train.yaml", "--budget", "1kB", code=1)


def test_budgets_are_not_of_one_generation(site: Site) -> None:
    """An option that would do nothing is refused."""
    site.run("plan", "--generation", "0", "--budget", "10MB", code=2)
    assert "name one of them" in site.words


@pytest.mark.parametrize("idle", ["-1", "nan", "-inf"])
def test_serving_until_before_the_beginning(site: Site, idle: str) -> None:
    """A time that is none is refused, and no service comes and goes."""
    site.run("serve", f"--idle={idle}", code=2)
    assert "at least 0 seconds" in site.words
    assert not site.store.exists()
