"""A cache whose folder keeps this user out: every command says which folder it is and what to do."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests import forked
from tests.cli.site import Site

KEPT_OUT = "-dac_override,-dac_read_search"
"""What lets root into every folder."""
COMMANDS = (
    ("status",),
    ("sql", "select count(*) from objects"),
    ("plan", "train.yaml"),
    ("lint", "--scan", "train.yaml"),
    ("verify",),
    ("gc",),
    ("evict", "--need", "1MB"),
    ("forget", "train.yaml", "train"),
    ("db", "upgrade"),
)
PROGRAM = """
import json, sys
from viewcache.api.cli.main import main
for words in json.loads(sys.argv[1]):
    print(main([*words]), words, file=sys.stderr, flush=True)
"""


@pytest.fixture
def closed(made: Site) -> Iterator[Site]:
    """A made cache whose folder nobody may enter."""
    made.store.chmod(0)
    yield made
    made.store.chmod(0o700)


def told(site: Site, *commands: tuple[str, ...]) -> tuple[str, str]:
    """What commands print and say, of a process that goes by the permissions of files, as those of others than root."""
    unable = ["setpriv", f"--bounding-set={KEPT_OUT}", f"--inh-caps={KEPT_OUT}"] if os.geteuid() == 0 else []
    done = forked.run(
        [*unable, sys.executable, "-c", PROGRAM, json.dumps(commands)],
        cwd=site.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    return done.stdout, done.stderr


def test_a_store_that_may_not_be_entered(closed: Site) -> None:
    """One line that names the folder and the cure, of the kind `broken`, and no traceback."""
    _, said = told(closed, *COMMANDS)
    assert "Traceback" not in said
    for words in COMMANDS:
        assert f"5 {list(words)}" in said
    lines = [line for line in said.splitlines() if line.startswith("viewcache: ")]
    assert len(lines) == len(COMMANDS)
    for line in lines:
        assert f"cannot use {closed.store}/" in line
        assert f"Permission denied at {closed.store}; its permissions keep out even the user whose it is: " in line
        assert f"`chmod u+rwX {closed.store}`" in line


def test_doctor_says_what_to_do(closed: Site) -> None:
    """What cannot be checked for want of permission is a finding with its cure; a machine reads the same as JSON."""
    said, _ = told(closed, ("doctor",))
    assert "PermissionError" not in said
    assert f"`chmod u+rwX {closed.store}`" in said


def test_the_error_as_json(closed: Site) -> None:
    """A machine reads the same."""
    said, _ = told(closed, ("status", "--json"))
    error = json.loads(said)["error"]
    assert error["kind"] == "broken"
    assert f"`chmod u+rwX {closed.store}`" in error["message"]


@pytest.mark.parametrize(
    "words", [("status",), ("doctor",), ("init", "videos", "--out"), ("show", "train.yaml", "train", "--out")]
)
def test_a_name_that_is_too_long(site: Site, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    """A path that no file system takes is named with what to do, wherever a command takes one."""
    monkeypatch.chdir(site.folder)
    name = f"{'x' * 300}.png"
    site.run(*words, name, code=2)
    assert f"viewcache: {name}: File name too long; name a shorter one" in site.words
    assert "Traceback" not in site.words
