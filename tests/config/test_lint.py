"""What lint tells of a configuration alone: each mistake once, and nothing that follows from another."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from viewcache.api.config.load import load
from viewcache.api.preview.lint import Level, lint
from viewcache.errors import ConfigCode, ConfigError
from viewcache.materializer.spec import Place

HEAD = """\
dataset:
  tag: train
  video_dataset_path: /videos
  sampling: {videos_per_batch: 2, frames_per_video: 8}
  augmentation:
"""

WHOLE = """\
cache: {store: ./cache, budget: 10GB, workers: 1}
dataset:
- tag: train
  video_dataset_path: /videos
  epochs: 3
  sampling: {videos_per_batch: 2, frames_per_video: 8}
  augmentation:
  - {name: resize, branch_type: single, inputs: [frame], outputs: [a0], config: [resize: {short_side: 40}, grayscale]}
  - name: late
    branch_type: conditional
    inputs: [a0]
    outputs: [a1]
    branches:
    - {condition: iteration > 10, config: [flip: {flip_prob: 0.5}]}
    - {condition: else, config: None}
  - name: chance
    branch_type: random
    inputs: [a1]
    outputs: [a2]
    branches:
    - {prob: 0.6, config: None}
    - {prob: 0.4, config: [flip: {flip_prob: 0.5}]}
  - {name: copy, branch_type: multi, inputs: [a2], outputs: [b0, b1]}
  - {name: left, branch_type: single, inputs: [b0], outputs: [c0], config: [flip: {flip_prob: 0.5}]}
  - {name: join, branch_type: merge, inputs: [c0, b1], outputs: [d], merge: stack}
- tag: second
  video_dataset_path: /videos
  sampling: {videos_per_batch: 2, frames_per_video: 8}
  augmentation:
  - {name: resize, branch_type: single, inputs: frame, outputs: a0, config: [resize: {short_side: 40}]}
"""
"""A valid configuration with every type of step."""

WRONG: tuple[Any, ...] = (None, "zzz", -5, [])


def told(text: str) -> list[str]:
    """What lint says of a text, in a file of the working directory."""
    Path("t.yaml").write_text(text)
    return [problem.text.replace(" error: ", " ", 1) for problem in lint(["t.yaml"])]


def first(text: str) -> str:
    """What loading says of it; empty if it is accepted."""
    Path("t.yaml").write_text(text)
    try:
        load("t.yaml")
    except ConfigError as error:
        return str(error)
    return ""


def trails(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to every part of a value."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield (*at, key)
        yield from trails(part, (*at, key))


def mistakes(whole: Any) -> Iterator[Any]:
    """The value with one part lost, replaced, or under a misspelt key; one mistake each."""
    for *way, last in trails(whole):
        for wrong in (*WRONG, "lost", "misspelt"):
            value = copy.deepcopy(whole)
            above = value
            for key in way:
                above = above[key]
            if wrong == "misspelt" and isinstance(last, str):
                items = [(f"{key}x" if key == last else key, part) for key, part in above.items()]
                above.clear()
                above.update(items)
            elif wrong == "lost":
                del above[last]
            elif wrong != "misspelt":
                above[last] = wrong
            yield value


@pytest.mark.parametrize("flow", [pytest.param(None, marks=pytest.mark.long), False], ids=["flow", "block"])
def test_one_mistake_is_one_problem(flow: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever single part of a configuration is wrong, lint says what the loader says, and nothing else."""
    monkeypatch.chdir(tmp_path)
    refused = 0
    for value in mistakes(yaml.safe_load(WHOLE)):
        text = yaml.safe_dump(value, default_flow_style=flow, sort_keys=False)
        if wanted := first(text):
            refused += 1
            assert told(text) == [wanted], text
    assert refused > 400


def test_the_whole_one_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistakes are the only ones."""
    monkeypatch.chdir(tmp_path)
    assert not first(WHOLE)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (
            """\
  - name: r
    branch_type: random
    inputs: [frame]
    outputs: [a]
    branches: [{prob: 0.5, config: None}, {prob: 0.4, config: None}]
""",
            ["t.yaml:10:16: the probabilities of step 'r' must sum to 1, got 0.5 + 0.4 = 0.9"],
        ),
        (
            """\
  - name: r
    branch_type: conditional
    inputs: [frame]
    outputs: [a]
    branches: [{condition: epoch > 1, config: None}]
""",
            ["t.yaml:10:16: the last branch of step 'r' must have condition: else"],
        ),
        (
            """\
  - {name: p, branch_type: single, inputs: [x], outputs: [y], config: None}
  - {name: q, branch_type: single, inputs: [y], outputs: [x], config: None}
""",
            ["t.yaml:6:45: steps wait for one another in a circle: p → q → p"],
        ),
        (
            """\
  - {name: m, branch_type: multi, inputs: [frame], outputs: [m1, m2]}
  - {name: q, branch_type: single, inputs: [m2], outputs: [x], config: None}
""",
            ["t.yaml:6:62: stream 'm1' is never read"],
        ),
        (
            """\
  - {name: p, branch_type: single, inputs: [framf], outputs: [a], config: None}
  - {name: q, branch_type: single, inputs: [a], outputs: [b], config: [rezise: {short_side: 4}]}
  - {name: r, branch_type: random, inputs: [b], outputs: [c], branches: [{prob: 0.5, config: None}]}
  - {name: s, branch_type: single, inputs: [cc], outputs: [d], config: None}
""",
            [
                "t.yaml:6:45: no step makes 'framf'",
                "t.yaml:7:72: dataset.augmentation[1].config[0]: unknown op 'rezise'",
                "t.yaml:8:74: the probabilities of step 'r' must sum to 1, got 0.5 = 0.5",
                "t.yaml:9:45: no step makes 'cc'",
            ],
        ),
    ],
    ids=["random", "conditional", "cycle", "multi", "several"],
)
def test_a_step_that_does_not_fit_is_told_once(
    steps: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake in the graph hides no other one, and what follows from it is not told."""
    monkeypatch.chdir(tmp_path)
    found = told(HEAD + steps)
    assert len(found) == len(words)
    for text, start in zip(found, words, strict=True):
        assert text.startswith(start)


MINE = "  - {branch_type: single, inputs: [frame], outputs: [a], config: [sharpen_mine]}\n"
"""A step with an operation of the user's own."""


def test_a_module_that_is_missing_explains_its_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations of a module that cannot be imported are not unknown; without any module they are."""
    monkeypatch.chdir(tmp_path)
    Path("t.yaml").write_text("cache: {op_modules: [no_such_module_of_mine]}\n" + HEAD + MINE)
    (only,) = lint(["t.yaml"], scan=True)
    assert (only.code, only.place) == (ConfigCode.OP_MODULE, Place("t.yaml", 1, 22))
    Path("t.yaml").write_text("cache: {}\n" + HEAD + MINE)
    (only,) = lint(["t.yaml"])
    assert (only.code, only.place) == (ConfigCode.UNKNOWN_OP, Place("t.yaml", 7, 67))
    assert "'sharpen_mine'" in only.message


def test_lint_imports_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a scan no code of the user's runs; what only the module could tell is a warning, the rest is checked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("ops_that_lint_must_not_import.py").write_text("open('imported', 'w').close()\nOPS = []\n")
    wrong = "  - {branch_type: single, inputs: [b], outputs: [c], config: None}\n"
    Path("t.yaml").write_text("cache: {op_modules: [ops_that_lint_must_not_import]}\n" + HEAD + MINE + wrong)
    error, warning = lint(["t.yaml"])
    assert (error.code, error.place.line) == (ConfigCode.UNKNOWN_STREAM, 8)
    assert (warning.level, warning.kind, warning.place.line) == (Level.WARNING, "op_not_checked", 7)
    assert not Path("imported").exists()
    Path("t.yaml").write_text("cache: {op_modules: [ops_that_lint_must_not_import]}\n" + HEAD + MINE)
    assert [each.code for each in lint(["t.yaml"], scan=True)] == [ConfigCode.UNKNOWN_OP]
    assert Path("imported").exists()


def test_all_mistakes_of_a_mapping_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several wrong keys of one mapping, of several mappings and of both sections are told together."""
    monkeypatch.chdir(tmp_path)
    text = """\
cache: {seed: -1, budget: big, trace: x.txt, eviction: {high_water: 7, policy: lrv}}
dataset:
  tag: my task
  epochs: 0
  augmentation: 3
  sampling: {videos_per_batch: 0, frames_per_vid: 8}
  video_dataset_path: /videos
"""
    Path("t.yaml").write_text(text)
    assert [(each.place.line, each.code) for each in lint(["t.yaml"])] == [
        (1, ConfigCode.OUT_OF_RANGE),
        (1, ConfigCode.WRONG_FORMAT),
        (1, ConfigCode.WRONG_FORMAT),
        (1, ConfigCode.OUT_OF_RANGE),
        (1, ConfigCode.EVICTION),
        (3, ConfigCode.WRONG_FORMAT),
        (4, ConfigCode.OUT_OF_RANGE),
        (5, ConfigCode.WRONG_TYPE),
        (6, ConfigCode.OUT_OF_RANGE),
        (6, ConfigCode.UNKNOWN_KEY),
    ]


def test_mistakes_without_end_are_told_up_to_a_hundred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of nothing but mistakes is answered with the first hundred."""
    monkeypatch.chdir(tmp_path)
    assert len(told("".join(f"k{k}: 1\n" for k in range(500)))) == 100


@pytest.mark.parametrize("text", ["cache:\n", "cache:\ndataset:\n"])
def test_a_file_without_sections_is_named(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong with a file as a whole is told with its name, without a line."""
    monkeypatch.chdir(tmp_path)
    assert told(text) == ["t.yaml: holds neither cache: nor dataset:"]
