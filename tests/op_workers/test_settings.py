"""What a configuration says of op workers, and what people are told when it is not so."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.config.samples import refused, single, task
from tests.op_workers.served import SOLARIZE, entry, module
from viewcache.api.config.load import load
from viewcache.api.preview.lint import lint
from viewcache.errors import ConfigCode
from viewcache.materializer.op_workers.process import python_command
from viewcache.materializer.ops import get

TASK = """\
dataset:
  tag: t
  video_dataset_path: /videos
  sampling: {videos_per_batch: 1, frames_per_video: 1}
  augmentation:
  - {branch_type: single, inputs: [frame], outputs: [a], config: [{solarize: {threshold: [9, 1]}}]}
"""


def _document(cache: dict[str, Any], *steps: object) -> dict[str, Any]:
    return {"cache": cache, "dataset": task(augmentation=[single("frame", "a", *steps)])}


def test_paths_start_at_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python and folders beside the YAML file are found, wherever the process stands; links stay as they are."""
    module(tmp_path / "ops", "beside", SOLARIZE)
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    (tmp_path / "t.yaml").write_text(
        "cache: {op_workers: {mine: {python: ./python, path: [ops], modules: [beside], timeout: 3, memory: 2GB}}}\n"
        + TASK.replace("[9, 1]", "[1, 9]")
    )
    monkeypatch.chdir("/")
    python.unlink()  # a link to a virtual environment's Python finds that environment only where it lies
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (of,) = load(tmp_path / "t.yaml").cache.op_workers
    assert of.command == python_command(str(python), (str(tmp_path / "ops"),))
    assert (of.name, of.modules, of.timeout_s, of.memory_bytes) == ("mine", ("beside",), 3.0, 2 * 10**9)


def test_mistakes_in_parameters_have_their_place(tmp_path: Path) -> None:
    """Parameters are read by the operation, there; the error stands where they were written."""
    folder = module(tmp_path / "ops", "placed", SOLARIZE)
    head = f"cache: {{op_workers: {{mine: {{python: {sys.executable}, path: [{folder}], modules: [placed]}}}}}}\n"
    error = refused(head + TASK)
    assert (error.code, error.line, error.column) == (ConfigCode.OP_PARAMETERS, 7, 68)
    assert "solarize: threshold is [9, 1]; allowed: [low, high], integers from 0 to 255" in str(error)
    error = refused(head + TASK.replace("threshold", "treshold"))
    assert "unknown parameter 'treshold'" in str(error)
    assert "did you mean threshold?" in str(error)


def _no_such(folder: Path) -> dict[str, Any]:
    return entry(folder, "x", "/no/such/python")


def _folder(folder: Path) -> dict[str, Any]:
    return entry(folder, "x", folder)


def _not_in_path(folder: Path) -> dict[str, Any]:
    return entry(folder, "x", "no-such-python-in-path")


def _no_module(folder: Path) -> dict[str, Any]:
    return entry(folder, "no_such_module")


def _no_ops(folder: Path) -> dict[str, Any]:
    (folder / "without.py").write_text("")
    return entry(folder, "without")


def _breaks(folder: Path) -> dict[str, Any]:
    (folder / "breaks.py").write_text("raise RuntimeError('at import')")
    return entry(folder, "breaks")


def _no_package(folder: Path) -> dict[str, Any]:
    return entry(folder, "well", packages=["no-such-package"])


def _builtin(folder: Path) -> dict[str, Any]:
    module(folder, "taken", SOLARIZE.replace('"solarize"', '"flip"'))
    return entry(folder, "taken")


def _two(folder: Path) -> dict[str, Any]:
    one = entry(folder, "well")["op_workers"]["mine"]
    return {"op_workers": {"one": one, "two": one}}


def _old(folder: Path) -> dict[str, Any]:
    return entry(folder, "well", _python(folder, "sys.version_info = (3, 8, 1)"))


def _bare(folder: Path) -> dict[str, Any]:
    return entry(folder, "well", _python(folder, "sys.modules['msgspec'] = None"))


def _python(folder: Path, before: str) -> Path:
    """A Python that is told something before it begins."""
    code = f"import runpy, sys; {before}; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} -I -c "{code}" "$@"\n')
    python.chmod(0o755)
    return python


@pytest.mark.parametrize(
    ("cache", "told"),
    [
        (
            _no_such,
            ".python: there is no program /no/such/python; make the environment, for instance by `python -m venv",
        ),
        (_folder, ".python: there is no program /"),
        (_not_in_path, ".python: there is no program no-such-python-in-path"),
        (
            _no_module,
            "mine: modules: no_such_module cannot be imported: No module named 'no_such_module'; is it installed for "
            f"{sys.executable}, or its folder in the op worker's `path`?",
        ),
        (_no_ops, "without has no list OPS of operations"),
        (_breaks, "RuntimeError: at import"),
        (_no_package, "packages: 'no-such-package' is not installed in "),
        (_builtin, "op 'flip' from taken: the name is taken; give it another name"),
        (_two, "two: op 'solarize' is served by an op worker and defined elsewhere too"),
        (_old, "this is Python 3.8 at "),
        (_bare, "-m pip install numpy msgspec`"),
    ],
    ids=lambda value: getattr(value, "__name__", "told"),
)
def test_what_cannot_serve_is_refused_with_the_cure(
    cache: Callable[[Path], dict[str, Any]], told: str, tmp_path: Path
) -> None:
    """A missing or old Python, missing packages, modules that fail, names that are taken: one error, at its place."""
    folder = module(tmp_path / "ops", "well", SOLARIZE)
    error = refused(_document(cache(folder), "grayscale"))
    assert error.code == ConfigCode.OP_WORKER
    assert told in str(error)
    assert "cache.op_workers." in str(error)
    assert "op_modules" not in str(error)


def test_a_module_of_this_process_with_the_same_operation_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name means one thing, whichever of the two was to have it."""
    folder = module(tmp_path / "ops", "both", SOLARIZE)
    monkeypatch.syspath_prepend(folder)
    error = refused(_document(entry(folder, "both") | {"op_modules": ["both"]}, "solarize"))
    assert "op 'solarize' is served by an op worker and defined elsewhere too" in str(error)


def test_versions_of_packages_are_part_of_the_code(tmp_path: Path) -> None:
    """With ``packages`` another version of a library makes other objects."""
    folder = module(tmp_path / "ops", "versions", SOLARIZE)
    load(_document(entry(folder, "versions", packages=["numpy"]), "solarize"))
    import numpy as np

    assert get("solarize").fingerprint.endswith(f"+numpy-{np.__version__}")


def test_lint_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a scan no program runs: what only it could tell is a warning; a program that is not there is an error."""
    monkeypatch.chdir(tmp_path)
    folder = module(tmp_path / "ops", "linted", "open('ran', 'w').close()\n" + SOLARIZE)
    head = f"cache: {{op_workers: {{mine: {{python: {sys.executable}, path: [{folder}], modules: [linted]}}}}}}\n"
    Path("t.yaml").write_text(head + TASK)
    (warning,) = lint(["t.yaml"])
    assert (warning.kind, warning.place.line) == ("op_not_checked", 7)
    assert "; a module of cache.op_workers may have it" in warning.message
    assert not Path("ran").exists()
    Path("t.yaml").write_text(head.replace(sys.executable, "/no/such/python") + TASK)
    assert [each.code for each in lint(["t.yaml"]) if each.code] == [ConfigCode.OP_WORKER]
    Path("t.yaml").write_text(head + TASK)
    assert [each.code for each in lint(["t.yaml"], scan=True)] == [ConfigCode.OP_PARAMETERS]
    assert Path("ran").exists()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "needs either python, with modules, or a command"),
        ({"python": "python", "modules": ["a"], "command": ["x"]}, "needs either python, with modules, or a command"),
        ({"python": sys.executable}, "needs the key modules"),
        ({"command": ["true"], "path": ["/"]}, "path is for python; a command finds its modules itself"),
        ({"python": sys.executable, "modules": ["a"], "path": ["no/such/folder"]}, "there is no folder"),
        ({"python": "$HOME/python", "modules": ["a"]}, "variables are not expanded"),
        ({"python": sys.executable, "modules": ["../x"]}, "holds names of modules"),
    ],
    ids=str,
)
def test_half_an_op_worker_is_refused(given: dict[str, Any], told: str) -> None:
    """What is missing, or does not belong together, is named before anything runs."""
    error = refused(_document({"op_workers": {"mine": given}}, "grayscale"))
    assert told in str(error)
    assert "cache.op_workers.mine" in str(error)


def test_a_task_names_no_program(tmp_path: Path) -> None:
    """Below a task the key is unknown: only the cache's own settings name code."""
    document = _document({}, "grayscale")
    document["dataset"]["op_workers"] = entry(tmp_path, "x")["op_workers"]
    error = refused(document)
    assert error.code == ConfigCode.UNKNOWN_KEY
    assert "it belongs under cache" in str(error)
