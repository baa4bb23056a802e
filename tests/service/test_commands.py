"""Commands beside a service: what it does is shown, and what it must be ended for says so."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

import viewcache
from tests.scheduling.harness import until
from tests.service.served import Opener, described, ended, start, told
from viewcache.api import metrics
from viewcache.api.cli.main import main
from viewcache.api.config.documents import texts_of
from viewcache.api.service import answers, asks, files, wire
from viewcache.api.service.attached import AttachedCache
from viewcache.api.service.client import Client
from viewcache.api.service.stopping import stop
from viewcache.api.service.watching import stats_of
from viewcache.errors import BadInput, ConfigError, QueryRefused
from viewcache.testing.leaks import settle

Run = Callable[..., tuple[int, str, str]]

FRAMES = """
import warnings
warnings.simplefilter("error")
import polars
import pyarrow
with viewcache.open(given) as cache:
    names = [name for i in range(5) for name in cache.read("train", 0, i).videos[::2]]
    order = "select * from draws where epoch = 0 order by position"
    tables = {query: cache.sql(query) for query in (order, "select * from videos", "select sum(bytes) from objects")}
for query, table in tables.items():
    assert polars.from_arrow(table).rows(named=True) == table.to_pylist(), query
    frame = table.to_pandas()
    assert list(frame.columns) == table.column_names, query
    assert pyarrow.Table.from_pandas(frame, table.schema, preserve_index=False).equals(table), query
assert polars.from_arrow(tables[order])["video"].to_list() == names
assert tables[order].to_pandas()["video"].tolist() == names
print(json.dumps([table.num_rows for table in tables.values()]))
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command; its exit code, stdout and stderr."""

    def one(*arguments: object) -> tuple[int, str, str]:
        code = main([str(each) for each in arguments])
        return (code, *capsys.readouterr())

    return one


def test_looking_keeps_no_service_alive(attach: Opener, store: Path) -> None:
    """However often its state is asked, by a page for example: it ends as if nobody had looked."""
    attach(cache={"service_idle": 1}).close()
    assert stats_of(store) is not None
    assert not settle(lambda: [stats for stats in [stats_of(store)] if stats is not None], limit_s=20)


def test_status_lists_the_clients(attach: Opener, store: Path, videos: Path, run: Run) -> None:
    """Who uses the service, where each reads, and what it holds; the command itself is none of them."""
    cache = attach()
    seat = cache.task("train").sit(1, 2)
    seat.read(0, 0)
    code, out, _ = run("status", store)
    assert code == 0
    assert f"clients of the service, process {cache.stats().pid}" in out
    # Where a seat is its client tells without waiting for an answer.
    assert not settle(lambda: [out for out in [run("status", store)[1]] if "train 0/1 as rank 1 of 2" not in out])
    holder = Client(store, texts_of(described(store, videos)), "trial-7", may_start=False)
    fetched = holder.ask(answers.Fetched, asks.Look("train", 0, 0, 0, 1))
    code, out, _ = run("status", store, "--json")
    first, second = json.loads(out)["service"]["clients"]
    assert (first["held"], first["job"]) == (0, "")
    assert [(each["task"], each["epoch"], each["iteration"]) for each in first["seats"]] == [("train", 0, 1)]
    assert (second["held"], second["job"], second["seats"]) == (4, "trial-7", [])
    assert first["pid"] == second["pid"] == os.getpid()
    assert "trial-7" in run("status", store)[1]
    holder.tell(holder.connected(), asks.Done(fetched.lease, (), (), 0.0))
    assert not settle(lambda: [each for each in cache.stats().clients if each.held])
    holder.close()
    cache.close()
    stop(store)
    _, out, _ = run("status", store)
    assert "clients of the service" not in out
    assert stats_of(store) is None


def test_status_tells_ended_jobs_from_live_ones(attach: Opener, store: Path, videos: Path, run: Run) -> None:
    """A trial that has ended is said to have ended where it was, below those that go on."""
    cache = attach()
    cache.read("train", 0, 0)
    trial = start(USES, described(store, videos))
    told(trial)

    def tasks() -> dict[str, bool]:
        return {each["task"]: each["ended"] for each in json.loads(run("status", store, "--json")[1])["tasks"]}

    assert tasks() == {"train": False, "train.trial-7": False}
    trial.communicate("")
    assert not settle(lambda: [] if tasks() == {"train": False, "train.trial-7": True} else [tasks()], limit_s=20)
    out = run("status", store)[1]
    live, over = (next(line for line in out.splitlines() if line.split()[:1] == [name]) for name in tasks())
    assert "ended at epoch 0, iteration 1" in over
    assert "epoch 0, iteration 1" in live
    assert "ended" not in live
    assert out.index(live) < out.index(over)


def test_status_of_a_service_without_clients(attach: Opener, store: Path, run: Run) -> None:
    """That nobody uses it now does not read as if it had done nothing yet."""
    attach(cache={"service_idle": 60}).close()
    nobody = r"clients of the service, process \d+, .* of CPU: none now"
    # The service may not have heard yet that the one client has gone.
    until(lambda: re.search(nobody, run("status", store)[1]) is not None, "it says so")


def edited(store: Path, videos: Path, tmp_path: Path, **cache: object) -> Path:
    """The file of the configuration, with settings that somebody has changed since."""
    config = tmp_path / "train.yaml"
    config.write_text(yaml.safe_dump(described(store, videos, cache=cache)))
    return config


def test_status_says_which_settings_are_not_those_of_the_file(
    attach: Opener, store: Path, videos: Path, tmp_path: Path, run: Run
) -> None:
    """A service goes on with those that it began with: the key, both values, and how the file's come to count."""
    attach(cache={"budget": "50MB"})
    config = edited(store, videos, tmp_path, budget="80MB", epochs_per_generation=7)
    code, _, said = run("status", config)
    assert code == 0
    assert (
        "warning: cache.budget is 80 MB in the configuration, but the running service has 50 MB, which stays until "
        f"`viewcache stop {store}`" in said
    )
    assert "warning: cache.epochs_per_generation is 7 in the configuration, but the running service has" in said
    assert said.count("warning:") == 2
    _, out, _ = run("status", config, "--json")
    assert {"key": "budget", "running": "50000000", "given": "80000000"} in json.loads(out)["differs"]
    _, out, said = run("status", store, "--json")
    assert json.loads(out)["differs"] == [], "a folder says nothing"
    run("stop", store)
    assert "warning" not in run("status", config)[2]


def test_run_says_which_settings_are_not_those_of_the_file(
    attach: Opener, store: Path, videos: Path, tmp_path: Path
) -> None:
    """On stderr, although nobody has set up a log."""
    attach(cache={"budget": "50MB"})
    config = edited(store, videos, tmp_path, budget="80MB")
    command = [sys.executable, "-m", "viewcache.api.cli.main", "run", str(config), "--epochs", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "cache.budget is 80 MB in the configuration, but the running service has 50 MB" in done.stderr
    assert json.loads(done.stdout)["budget_bytes"] == 50_000_000


def test_sql_beside_a_service(attach: Opener, store: Path, run: Run) -> None:
    """The catalog is read as beside any owner: a snapshot."""
    cache = attach()
    seat = cache.task("train").sit()
    for iteration in range(5):
        seat.read(0, iteration)
    code, out, said = run("sql", store, "select epoch, iteration from progress", "--csv")
    assert (code, out.splitlines()) == (0, ["epoch,iteration", "1,0"])
    assert f"owner pid {cache.stats().pid}" in said


USES = """
import os
with viewcache.open(given, job="trial-7") as cache:
    cache.read("train", 0, 0)
    print(os.getpid(), flush=True)
    sys.stdin.readline()
"""


OWNING = (
    ["gc", "STORE"],
    ["forget", "STORE", "train"],
    ["verify", "STORE"],
    ["db", "upgrade", "STORE"],
    ["evict", "STORE", "--need", "1MB"],
    ["scan", "CONFIG"],
    ["run", "CONFIG", "--trace", "trace.json"],
)
"""Commands that need the store for themselves."""


def test_what_needs_the_store_says_how_to_get_it(
    attach: Opener, store: Path, videos: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Busy, by whom, what ends it, and who uses it, also in the JSON; after that the same commands work."""
    monkeypatch.chdir(tmp_path)
    places = {"STORE": store, "CONFIG": tmp_path / "train.yaml"}
    places["CONFIG"].write_text(yaml.safe_dump(described(store, videos)))
    commands = [[places.get(word, word) for word in command] for command in OWNING]
    cache = attach()
    cache.read("train", 0, 0)
    other = start(USES, described(store, videos))
    pid = told(other)
    for command in commands:
        code, _, said = run(*command)
        assert code == 4
        assert f"by process {cache.stats().pid}, which is the service of this cache: `viewcache stop {store}`" in said
        assert f"it is used by process {pid} (-c, job trial-7)" in said
    code, out, _ = run("gc", store, "--json")
    assert f"it is used by process {pid} (-c, job trial-7)" in json.loads(out)["error"]["message"]
    assert cache.read("train", 0, 0).video.shape[0] == 4
    other.communicate("")
    cache.close()
    for command in commands:
        code, _, said = run(*command)
        assert code == 0, said


def test_what_looks_works_beside_a_service(attach: Opener, store: Path, videos: Path, tmp_path: Path, run: Run) -> None:
    """`doctor`, `plan` and listing policies while somebody reads: they find nothing wrong, and end nothing."""
    config = tmp_path / "train.yaml"
    config.write_text(yaml.safe_dump(described(store, videos)))
    cache = attach()
    pid = cache.stats().pid
    cache.read("train", 0, 0)
    code, out, said = run("doctor", config)
    assert code == 0, out + said
    assert f"process {pid}" in out
    for command in (["evict", config, "--list"], ["plan", config]):
        code, _, said = run(*command)
        assert code == 0, said
    assert cache.read("train", 0, 1).video.shape[0] == 4
    assert cache.stats().pid == pid


def test_stop_ends_it(attach: Opener, store: Path, run: Run) -> None:
    """With its process; where none runs it says so, and an idle end is refused while somebody reads."""
    cache = attach()
    pid = cache.stats().pid
    code, _, said = run("stop", store, "--if-idle")
    assert code == 4
    assert "the service is used by the processes" in said
    _, out, _ = run("stop", store, "--if-idle", "--json")
    assert json.loads(out)["error"]["kind"] == "busy"
    code, out, _ = run("stop", store, "--json")
    assert (code, json.loads(out)) == (0, {"stopped": pid})
    assert run("stop", store)[0] == 3


class FurtherStop(asks.Ask, tag="stop"):
    """The question of another release, with a field that this one does not know."""

    if_idle: bool = False
    begun_by_hand: bool = True
    further: bool = True


@pytest.mark.parametrize("differs", ["protocol", "question"])
def test_stop_ends_a_service_of_another_release(
    attach: Opener, store: Path, run: Run, monkeypatch: pytest.MonkeyPatch, differs: str
) -> None:
    """`viewcache stop` is the cure that is told; such a service cannot be asked to end only if idle."""
    with attach() as cache:
        pid = cache.stats().pid
    if differs == "protocol":
        monkeypatch.setattr(wire, "PROTOCOL", wire.PROTOCOL + 1)
    else:
        monkeypatch.setattr(asks, "Stop", FurtherStop)
    code, _, words = run("stop", store, "--if-idle")
    assert code == (5 if differs == "protocol" else 2)
    assert (f"speaks {wire.PROTOCOL}" if differs == "protocol" else "`further`") in words
    assert files.started_ticks(pid) is not None
    code, out, _ = run("stop", store, "--json")
    assert (code, json.loads(out)) == (0, {"stopped": pid})
    assert files.started_ticks(pid) is None
    assert "ended" in (store / files.LOG).read_text(), "with what it has to do in the end"


def test_serve_in_the_foreground(store: Path, videos: Path, tmp_path: Path, attach: Opener) -> None:
    """It serves until it is told to stop; a second one finds the store taken."""
    config = tmp_path / "train.yaml"
    config.write_text(yaml.safe_dump(described(store, videos)))
    command = [sys.executable, "-m", "viewcache.api.cli.main", "serve", str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stderr is not None
        assert f"serving {store} as process {serving.pid}" in serving.stderr.readline()
        cache = attach()
        assert cache.stats().pid == serving.pid
        assert cache.read("train", 0, 0).video.shape == (4, 4, 3, 32, 32)
        second = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
        assert second.returncode == 4
        assert f"owned by process {serving.pid}, which is the service of this cache: `viewcache stop" in second.stderr
        assert f"process {os.getpid()} (" in second.stderr
        cache.close()
        later = attach(cache={"budget": "60MB"})  # one that was begun by hand makes no way, though nobody uses it
        assert later.stats().pid == serving.pid
        assert len(later.warnings) == 1
        later.close()
        with pytest.raises(
            ConfigError, match=f"is open with 3 epochs, here it has 9: end the service by `viewcache stop {store}`"
        ):
            attach(epochs=9)
        serving.terminate()
        assert serving.wait(30) == 0
    assert not settle(lambda: [each for each in (store / files.SOCKET,) if each.exists()])


def test_serve_beside_an_owner_says_so_once(store: Path, videos: Path, tmp_path: Path) -> None:
    """Another process has the cache open: one line says which one, and nothing else is on stderr."""
    config = tmp_path / "train.yaml"
    config.write_text(yaml.safe_dump(described(store, videos)))
    command = [sys.executable, "-m", "viewcache.api.cli.main", "serve", str(config)]
    with viewcache.open(described(store, videos, cache={"service": "off"})):
        busy = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert busy.returncode == 4
    assert busy.stderr.startswith(f"viewcache: catalog {store} is owned by process {os.getpid()}; only one process may")
    assert busy.stderr.count("\n") == 1


def test_sql_from_python(attach: Opener, store: Path, videos: Path) -> None:
    """An Arrow table of what has been done until then, from a client as from an owner; nothing can be changed."""
    cache = attach()
    cache.read("train", 0, 2)
    query = "select task, epoch, iteration from progress"
    assert cache.sql(query).to_pylist() == [{"task": "train", "epoch": 0, "iteration": 3}]
    assert cache.sql("select count(*) as n from videos")["n"].to_pylist() == [10]
    with pytest.raises(QueryRefused):
        cache.sql("delete from task")
    cache.close()
    stop(store)
    with viewcache.open(described(store, videos), service="off") as owner:
        assert owner.sql(query).to_pylist() == [{"task": "train", "epoch": 0, "iteration": 3}]


def test_data_frames(store: Path, videos: Path) -> None:
    """What `cache.sql` gives is the same as a frame of pandas and of polars: texts, numbers, nulls and large sums.

    In a process of its own, as a notebook is: polars starts threads, and other tests of this one fork.
    """
    assert ended(start(FRAMES, described(store, videos))) == [10, 10, 1]


def test_making_ahead_through_a_service(attach: Opener) -> None:
    """As an owner makes: counts until all is there; what was made is not made again."""
    cache = attach()
    counts = list(cache.materialize(2))
    assert counts[-1] == {"planned": 0, "making": 0, "ready": 40, "failed": 0}
    made = cache.snapshot().work["objects"]
    assert cache.read("train", 1, 4).waited_s == 0.0
    assert list(cache.materialize(1))[-1]["ready"] == 40, "rounded up to a generation"
    assert cache.snapshot().work["objects"] == made
    with pytest.raises(BadInput, match=r"^epochs=0: at least 1"):
        next(cache.materialize(0))


def test_who_asks_no_more_gives_up_the_rest(attach: Opener) -> None:
    """A loop over `materialize` that is left, and a client that ends in one: nothing more is made for them."""
    left, gone, watched = attach(), attach(), attach()
    steps = left.materialize()
    next(steps)
    del steps
    next(gone.materialize())
    gone.close()
    assert not settle(lambda: [jobs for jobs in [watched.snapshot().jobs_running] if jobs])


def test_counters_of_the_service(attach: Opener) -> None:
    """An attached cache counts what all clients do, as an owner does; Prometheus and OpenTelemetry read it there."""
    cache, other = attach(), attach()
    cache.read("train", 0, 0)
    other.read("train", 0, 0)
    assert not settle(lambda: [n for n in [cache.snapshot().tasks["train"].batches] if n < 2])  # it is said afterwards
    now = cache.snapshot()
    assert now.tasks["train"].batches == 2
    assert now.tasks["train"].hits + now.tasks["train"].misses == 8
    assert now.tiers["local"].used > 0
    assert now.work["objects"] >= 4
    assert cache.busy_seconds()["decode"] > 0
    text = generate_latest(_registry(cache)).decode()
    assert 'viewcache_batches_total{task="train"} 2.0' in text
    assert "viewcache_evictions_total{" not in text


def test_evictions_travel_too(attach: Opener, videos: Path) -> None:
    """What has left a tier, by tier and reason."""
    cache = attach(cache={"budget": "200kB"})
    for epoch in range(2):
        for iteration in range(5):
            cache.read("train", epoch, iteration)
    found = settle(lambda: [] if cache.snapshot().evictions else ["none has left yet"])
    assert not found
    assert {tier for tier, _ in cache.snapshot().evictions} == {"local"}


def _registry(cache: AttachedCache) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(metrics.collector(cache))
    return registry


def test_run_makes_ahead_through_the_service(
    attach: Opener, store: Path, videos: Path, tmp_path: Path, run: Run
) -> None:
    """`viewcache run` beside a training: it says what it said alone, and the training goes on."""
    config = tmp_path / "train.yaml"
    config.write_text(yaml.safe_dump(described(store, videos)))
    cache = attach()
    seat = cache.task("train").sit()
    assert seat.read(0, 0) is not None
    code, out, _ = run("run", config, "--json")
    found = json.loads(out)
    assert (code, found["clips"]["ready"], found["clips"]["planned"]) == (0, 60, 0)
    assert 0 < found["stored_bytes"] <= found["budget_bytes"]
    assert found["measured"]["objects"] <= 60
    assert found["predicted"]["objects"] <= 60
    read = seat.read(1, 4)
    assert read is not None
    assert read.waited_s == 0.0


@pytest.mark.parametrize(
    "command", [["gc"], ["gc", "--dry-run"], ["forget", "train"], ["verify"], ["run", "--trace", "trace.json"]]
)
def test_an_idle_service_is_ended_by_who_needs_the_store(
    attach: Opener,
    store: Path,
    videos: Path,
    tmp_path: Path,
    run: Run,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its clients have gone, and it waits for others: what needs the store for itself takes it at once."""
    config = tmp_path / "train.yaml"
    config.write_text(yaml.safe_dump(described(store, videos)))
    monkeypatch.chdir(tmp_path)
    cache = attach()
    cache.read("train", 0, 0)
    pid = cache.stats().pid
    cache.close()
    assert stats_of(store) is not None
    first, *rest = command
    code, _, said = run(first, config, *rest)
    assert code == 0, said
    assert files.started_ticks(pid) is None


def test_a_service_that_was_begun_by_hand_is_ended_by_hand(
    store: Path, videos: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody uses it, and yet what needs the store for itself is refused, with what ends it; dry runs are no exception.

    Another `viewcache serve` is refused, too.
    """
    monkeypatch.chdir(tmp_path)
    places = {"STORE": store, "CONFIG": tmp_path / "train.yaml"}
    places["CONFIG"].write_text(yaml.safe_dump(described(store, videos)))
    dry = ([*command, "--dry-run"] for command in OWNING if command[0] in ("gc", "forget", "verify", "evict"))
    commands = [*OWNING, *dry, ["serve", "CONFIG"]]
    serve = [sys.executable, "-m", "viewcache.api.cli.main", "serve", str(places["CONFIG"])]
    with subprocess.Popen(serve, stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stderr is not None
        assert f"serving {store} as process {serving.pid}" in serving.stderr.readline()
        for command in commands:
            code, _, said = run(*[places.get(word, word) for word in command])
            assert code == 4, command
            assert f"`viewcache stop {store}` ends it, and no work is lost; nobody uses it now, and it stays" in said
        assert stats_of(store) is not None
        assert serving.poll() is None
        assert run("stop", store)[0] == 0
        assert serving.wait(30) == 0
    code, _, said = run("gc", store, "--dry-run")
    assert code == 0, said


def test_files_that_are_looked_at_are_told(store: Path, videos: Path, tmp_path: Path) -> None:
    """`viewcache.open(…, progress=…)` hears how far the service is with the files of a large folder."""
    many, clip = tmp_path / "many", next(videos.rglob("*.mp4"))
    many.mkdir()
    for k in range(1900):
        os.link(clip, many / f"v{k:04}.mp4")
    heard: list[tuple[int, int]] = []
    given = described(store, many, labels=None)
    with viewcache.open(given, service="auto", progress=lambda done, total, _: heard.append((done, total))):
        pass
    assert heard, "so many files take longer than half a second"
    assert {total for _, total in heard} == {1900}
    assert heard == sorted(heard)
