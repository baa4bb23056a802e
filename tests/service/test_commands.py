"""Commands beside a service: what it does is shown, and what it must be ended for says so."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import viewcache
from tests.service.served import Opener, described
from viewcache.api.cli.main import main
from viewcache.api.service import files
from viewcache.api.service.stopping import stop
from viewcache.api.service.watching import stats_of
from viewcache.errors import BadInput, QueryRefused
from viewcache.testing.leaks import settle

Run = Callable[..., tuple[int, str, str]]


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


def test_status_lists_the_clients(attach: Opener, store: Path, run: Run) -> None:
    """Who uses the service, where each reads, and what it holds; the command itself is none of them."""
    cache = attach()
    seat = cache.task("train").sit(1, 2)
    seat.read(0, 0)
    code, out, _ = run("status", store)
    assert code == 0
    assert f"clients of the service, process {cache.stats().pid}" in out
    assert "train 0/1 as rank 1 of 2" in out
    code, out, _ = run("status", store, "--json")
    service = json.loads(out)["service"]
    assert [each["held"] for each in service["clients"]] == [0]
    assert len(service["clients"]) == 1
    cache.close()
    stop(store)
    _, out, _ = run("status", store)
    assert "clients of the service" not in out
    assert stats_of(store) is None


def test_sql_beside_a_service(attach: Opener, store: Path, run: Run) -> None:
    """The catalog is read as beside any owner: a snapshot."""
    cache = attach()
    seat = cache.task("train").sit()
    for iteration in range(5):
        seat.read(0, iteration)
    code, out, said = run("sql", store, "select epoch, iteration from progress", "--csv")
    assert (code, out.splitlines()) == (0, ["epoch,iteration", "1,0"])
    assert f"owner pid {cache.stats().pid}" in said


@pytest.mark.parametrize("command", [["gc"], ["forget", "train"]])
def test_what_needs_the_store_says_how_to_get_it(attach: Opener, store: Path, run: Run, command: list[str]) -> None:
    """Busy, and by whom, and what ends it; after that the same command works."""
    attach()
    first, *rest = command
    code, _, said = run(first, store, *rest)
    assert code == 4
    assert f"is the service of this cache: `viewcache stop {store}` ends it" in said
    attach().close()


def test_stop_ends_it(attach: Opener, store: Path, run: Run) -> None:
    """With its process; where none runs it says so, and an idle end is refused while somebody reads."""
    cache = attach()
    pid = cache.stats().pid
    code, _, said = run("stop", store, "--if-idle")
    assert code == 5
    assert "the service is used by the processes" in said
    code, out, _ = run("stop", store, "--json")
    assert (code, json.loads(out)) == (0, {"stopped": pid})
    assert run("stop", store)[0] == 3


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
        assert f"owned by process {serving.pid}" in second.stderr
        cache.close()
        serving.terminate()
        assert serving.wait(30) == 0
    assert not settle(lambda: [each for each in (store / files.SOCKET,) if each.exists()])


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


def test_making_ahead_through_a_service(attach: Opener) -> None:
    """As an owner makes: counts until all is there; what was made is not made again."""
    cache = attach()
    counts = list(cache.materialize(2))
    assert counts[-1] == {"planned": 0, "making": 0, "ready": 40, "failed": 0}
    made = cache.stats().work["objects"]
    assert cache.read("train", 1, 4).waited_s == 0.0
    assert list(cache.materialize(1))[-1]["ready"] == 40, "rounded up to a generation"
    assert cache.stats().work["objects"] == made
    with pytest.raises(BadInput, match=r"materialize\(epochs=0\): at least 1"):
        next(cache.materialize(0))
