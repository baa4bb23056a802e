"""The benchmark harness is fair, counts all CPU, and says so in JSON."""

import json
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.harness import Aim, Comparison, Figure, Result, Stopwatch, Timing, compare, machine, main

ARGS = Namespace(repeats=6, seed=1)
BURN = "import time\nwhile time.process_time() < {seconds}: pass"


def test_rivals_take_turns() -> None:
    """Each round runs every rival once, and the order changes between rounds, so that drift hits all alike."""
    calls: list[str] = []

    def rival(name: str) -> Callable[[], object]:
        return lambda: calls.append(name)

    compare("turns", {name: rival(name) for name in "abc"}, baseline="a", args=ARGS, warmup=0)
    rounds = [tuple(calls[i : i + 3]) for i in range(0, len(calls), 3)]
    assert [sorted(turn) for turn in rounds] == [list("abc")] * 6
    assert len(set(rounds)) > 1


def test_preparation_is_not_timed() -> None:
    """What `before` does (empty a cache, make a folder) is on nobody's account."""
    done = compare("before", {"a": lambda: None}, baseline="a", args=ARGS, warmup=0, before=lambda _: time.sleep(0.01))
    assert min(done.timing("a").wall_s) < 0.01


def test_ratios_are_of_the_same_round() -> None:
    """A machine that slows down for a while changes both sides of a ratio, not the ratio."""
    slow = Comparison("drift", "a", (Timing("a", (1, 1, 10), (1, 1, 10)), Timing("b", (2, 2, 20), (2, 2, 20))))
    assert slow.ratios("b") == [2, 2, 2]
    assert "| b | 2.00 (2.00-2.00) |" in "\n".join(slow.lines())


def test_cpu_of_living_and_dead_children_counts() -> None:
    """Work that a rival gives to processes is its own work, whether they have ended or wait for more."""
    with Stopwatch() as ended:
        subprocess.run([sys.executable, "-c", BURN.format(seconds=0.3)], check=True)
    lives = BURN.format(seconds=0.3) + "\nprint(flush=True)\nimport sys\nsys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", lives], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin
    assert child.stdout
    with child:
        with Stopwatch() as living:
            child.stdout.readline()  # it has burnt, and waits
        child.stdin.close()
    assert 0.25 < ended.cpu_s < 1
    assert 0.2 < living.cpu_s < 1


@pytest.mark.parametrize(("value", "verdict"), [(1.0, "met (aim ≤ 1)"), (1.1, "MISSED (aim ≤ 1)")])
def test_aims_speak(value: float, verdict: str) -> None:
    """A report says by itself whether a figure is what was promised."""
    assert Aim(at_most=1).verdict(value) == verdict


def _bench(args: Namespace) -> Iterator[Result]:
    yield compare("two", {"a": lambda: 1, "b": lambda: 2}, baseline="a", args=args, measure="wall_s")
    yield Figure("rows", 5, "rows", Aim(at_least=3))


def test_json_has_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A report can be compared later: machine, versions, all rounds, ratios."""
    main("Two rivals.", _bench, argv=["--json", str(tmp_path / "new" / "out.json"), "--repeats", "3"])
    report = json.loads((tmp_path / "new" / "out.json").read_text())
    comparison, figure = report["results"]
    assert comparison["ratios"].keys() == {"a", "b"}
    assert [len(timing["wall_s"]) for timing in comparison["timings"]] == [3, 3]
    assert figure["value"] == 5
    assert {"cpu", "cores", "python", "packages", "commit"} <= report["machine"].keys()
    assert "met (aim ≥ 3)" in capsys.readouterr().out


def test_json_alone_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    """`--json -` prints nothing else, so that it can be piped."""
    main("Two rivals.", _bench, argv=["--json", "-", "--repeats", "1"])
    assert json.loads(capsys.readouterr().out)["results"]


def test_machine_says_where() -> None:
    """Figures without their machine mean nothing."""
    info = machine()
    assert info["cpu"]
    assert isinstance(info["cores"], int)
    assert info["cores"] >= 1
