"""The examples of many processes, as their first lines say how to run them, and those without viewcache."""

import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import yaml

import viewcache
from tests.service.served import described
from viewcache.testing.leaks import settle

EXAMPLES = Path(__file__).parents[2] / "examples"
PYTHON = [sys.executable]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
BATCHES = 5


@pytest.fixture
def config(tmp_path: Path, store: Path, videos: Path) -> Path:
    """The configuration of these tests as a file."""
    path = tmp_path / "train.yaml"
    path.write_text(yaml.safe_dump(described(store, videos, cache={"service_idle": 60})))
    return path


def run(command: list[str], script: str, *arguments: object, cwd: Path) -> str:
    """What an example prints."""
    words = [*command, str(EXAMPLES / script), *map(str, arguments)]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_without(command: list[str], script: str, videos: Path, cwd: Path, *arguments: object) -> str:
    """What a script without viewcache prints, for clips of the size of these tests."""
    program = cwd / "program.py"
    given = ", ".join(map(repr, (str(videos), *map(str, arguments))))
    program.write_text(
        f"import sys\nsys.path.insert(0, {str(EXAMPLES / 'without')!r})\nimport {script}\n"
        f"if __name__ == '__main__':\n"
        f"    {script}.main({given}, videos_per_batch=2, frames=4, stride=2, short_side=(36, 40), crop=32)\n"
    )
    done = subprocess.run([*command, str(program)], cwd=cwd, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


def videos_of(text: str) -> Counter[str]:
    """How often each video was told; lines of two processes may have run into one."""
    return Counter(number for numbers in re.findall(r"videos \[(.+?)\]", text) for number in numbers.split(", "))


def test_a_plain_loop(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each video comes once, in as many batches."""
    runpy.run_path(str(EXAMPLES / "train_loop.py"))["main"](str(config))
    out = capfd.readouterr().out
    assert re.findall(r"^batch (\d+):", out, re.M) == [str(number) for number in range(BATCHES)]
    assert sorted(videos_of(out).values()) == [2] * 10, "two samples of each video"


def test_workers_of_a_dataloader(config: Path, tmp_path: Path) -> None:
    """The batches of one loop, in its order."""
    lines = run(PYTHON, "train_workers.py", config, cwd=tmp_path).splitlines()
    with viewcache.open(str(config), service="attach") as cache:
        told = [re.findall(r"videos (\[.*?\])", line)[0] for line in lines]
        assert told == [str(batch["index"].tolist()) for batch in cache.loader("train", epochs=1)]


def test_two_ranks_by_torchrun(config: Path, tmp_path: Path) -> None:
    """Each video comes once over both ranks, in as many batches; gradients are shared at every step."""
    out = run(TORCHRUN, "train_ddp.py", config, cwd=tmp_path)
    told = sorted(re.findall(r"rank (\d) of 2, batch (\d):", out))
    assert told == [(str(rank), str(number)) for rank in range(2) for number in range(BATCHES)]
    assert sorted(videos_of(out).values()) == [2] * 10


@pytest.mark.parametrize(("command", "world"), [(PYTHON, 1), (TORCHRUN, 2)])
def test_scores_of_videos(store: Path, videos: Path, tmp_path: Path, command: list[str], world: int) -> None:
    """Over one rank or two, each video counts once, also those of a last batch that one rank has nothing of."""
    path = tmp_path / "test.yaml"
    given: Any = described(store, videos, cache={"service_idle": 60})
    given["dataset"] |= {"shuffle": False, "epochs": 1, "tag": "test"}
    given["dataset"]["sampling"] |= {"clips": "uniform", "samples_per_video": 3, "videos_per_batch": 3}
    path.write_text(yaml.safe_dump(given))
    out = run(command, "validate.py", path, cwd=tmp_path)
    told = re.findall(r"rank (\d) of \d: videos \[(.*?)\]", out)
    assert Counter(rank for rank, _ in told) == {str(rank): 4 for rank in range(world)}
    assert sorted(videos_of(out).values()) == [1] * 10
    assert ("videos []" in out) == (world > 1), "the tenth video is alone in its batch"
    assert re.search(r"^\d+ of 10 videos are right$", out, re.M)


def test_lightning(config: Path, tmp_path: Path) -> None:
    """Each of its epochs goes on behind the one before: every video once in each, in as many batches."""
    lines = re.findall(r"^epoch .*", run(PYTHON, "train_lightning.py", config, cwd=tmp_path), re.M)
    heads = [line.partition(":")[0] for line in lines]
    assert heads == [f"epoch {epoch}, batch {number}" for epoch in range(2) for number in range(BATCHES)]
    for epoch in range(2):
        assert sorted(videos_of("".join(lines[epoch * BATCHES : (epoch + 1) * BATCHES])).values()) == [2] * 10


@pytest.fixture
def ray_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home and a folder for temporary files of Ray, whose sockets need short names."""
    folder = Path(tempfile.mkdtemp(prefix="vc-ray-", dir="/tmp"))
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("RAY_TMPDIR", str(folder))
    monkeypatch.setenv("RAY_worker_niceness", "0")  # beside other tests a trial of low priority takes a minute
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def of_ray(folder: Path) -> list[psutil.Process]:
    """The processes of the Ray that has a folder: its servers name it, its workers have it in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("RAY_TMPDIR") == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def ended(process: "subprocess.Popen[str]") -> bool:
    """Whether a process has ended; it is given some time."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(1)
    return process.returncode is not None


def test_a_search_by_ray_tune(config: Path, tmp_path: Path, videos: Path, ray_home: Path) -> None:
    """Four trials are four jobs that decode what one does; ASHA may stop some; nothing listens to other machines.

    Whether it stops any hangs on who reports first: a trial that is better than the median of those before it goes on,
    and so do all if each is. `test_asha_stops_trials_early` has an order in which it must.
    """
    addresses = set[str]()
    with subprocess.Popen(
        [*PYTHON, str(EXAMPLES / "tune_ray.py"), str(config), "results"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as script:  # fmt: skip
        while not ended(script):
            for process in of_ray(ray_home):
                with suppress(psutil.Error):
                    addresses |= {each.laddr.ip for each in process.net_connections("inet") if each.status == "LISTEN"}
        assert script.stdout is not None
        out = script.stdout.read()
    assert script.returncode == 0, out
    assert not of_ray(ray_home)
    trials = dict(re.findall(r"^(\w+): (\d) epochs, loss", out, re.M))
    assert len(trials) == 4
    assert max(trials.values()) == "3"
    assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"} != set()
    served: Any = viewcache.open(str(config), service="attach")
    with served:
        tasks = served.sql("select task from tasks").to_pydict()["task"]
        assert {f"train.{trial}" for trial in trials} < set(tasks)
        packets = served.snapshot().work["packets"]
        ends = "select max(group_epoch + last_epoch - first_epoch) + 1 as epochs from generations"
        (epochs,) = served.sql(ends).to_pydict()["epochs"]
    # A trial whose process starts when others are an epoch further goes on an epoch longer than they.
    with viewcache.open(described(tmp_path / "alone", videos, epochs=epochs), service="off") as alone:
        assert len(list(alone.loader("train").all_epochs())) == epochs * BATCHES
        assert alone.owner.dispatcher is not None
        # Without sharing it would be up to four times as many. On a busy machine trials want clips of a video at
        # different times, and a group of pictures may be decoded once more. For jobs in step see test_in_step.py.
        assert packets <= 1.5 * alone.owner.dispatcher.tally.frames["packets"]


ONE_BY_ONE = """
import runpy, sys
from ray import tune
from ray.tune.schedulers import ASHAScheduler
example = runpy.run_path(sys.argv[1])
import ray
def train(trial):
    report = tune.report
    tune.report = lambda found: report({**found, "loss": trial["number"]})
    example["train"](trial)
ray.init(num_cpus=1, include_dashboard=False, object_store_memory=80 * 2**20)
tuner = tune.Tuner(
    train,
    param_space={"number": tune.grid_search([0, 1, 2]), "lr": 0.1, "config": sys.argv[2]},
    tune_config=tune.TuneConfig(
        metric="loss", mode="min", max_concurrent_trials=1,
        scheduler=ASHAScheduler(max_t=example["EPOCHS"], grace_period=1, reduction_factor=2),
    ),
    run_config=tune.RunConfig(storage_path=sys.argv[3], verbose=0),
)
for trial in tuner.fit():
    print(f"{trial.metrics['trial_id']}: {trial.metrics['epoch'] + 1} epochs, loss {trial.metrics['loss']}")
ray.shutdown()
"""


@pytest.mark.long
def test_asha_stops_trials_early(config: Path, tmp_path: Path, ray_home: Path) -> None:
    """Trials one after another, each worse than the first: they end after an epoch, and nothing is needed for them."""
    words = [*PYTHON, "-c", ONE_BY_ONE, str(EXAMPLES / "tune_ray.py"), str(config), str(tmp_path / "results")]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert not of_ray(ray_home)
    trials = re.findall(r"^(\w+): (\d) epochs, loss (\d)", done.stdout, re.M)
    assert [(epochs, loss) for _, epochs, loss in trials] == [("3", "0"), ("1", "1"), ("1", "2")]
    served: Any = viewcache.open(str(config), service="attach")
    with served:
        assert not settle(lambda: list(served.snapshot().tasks.keys() - {"train"}))
        drawn = served.sql("select distinct task from draws").to_pydict()["task"]
        assert {f"train.{trial}" for trial, *_ in trials} <= set(drawn)
        assert not settle(lambda: served.sql("select 1 from uses where task <> 'train'").to_pylist())


@pytest.mark.long
@pytest.mark.parametrize("script", ["train_loop", "train_ddp", "train_lightning"])
def test_without_viewcache(script: str, videos: Path, tmp_path: Path) -> None:
    """The scripts that docs/examples.md counts do the same job: each video once an epoch, two samples of it."""
    command = TORCHRUN if script == "train_ddp" else PYTHON
    out = run_without(command, script, videos, tmp_path)
    epochs = 2 if script == "train_lightning" else 1
    assert sorted(videos_of(out).values()) == [2 * epochs] * 10


@pytest.mark.long
def test_a_search_without_viewcache(videos: Path, tmp_path: Path, ray_home: Path) -> None:
    """Four trials, of which each decodes for itself."""
    out = run_without(PYTHON, "tune_ray", videos, tmp_path, tmp_path / "results")
    assert len(re.findall(r"^\w+: \d epochs, loss", out, re.M)) == 4
    assert not of_ray(ray_home)


def test_the_dataset_without_viewcache_makes_the_same(config: Path, videos: Path) -> None:
    """Keys, shapes, labels and numbers of a batch are those of the configuration, and so are the pixels' limits."""
    clips = runpy.run_path(str(EXAMPLES / "without" / "clips.py"))
    own = clips["in_one"]([clips["Clips"](str(videos), 4, 2, 2, (36, 40), 32)[number] for number in (0, 9)])
    with viewcache.open(str(config), service="off") as cache:
        ours = next(iter(cache.loader("train", layout="CTHW")))
    for name, tensor in own.items():
        assert (tensor.shape, tensor.dtype) == (ours[name].shape, ours[name].dtype), name
    assert own["label"].tolist() == [0, 0, 1, 1], "cats, dogs"
    assert own["index"].tolist() == [0, 0, 9, 9]
    assert torch.allclose(own["video"].mean(), ours["video"].mean(), atol=1.0)
