"""`viewcache page` and `viewcache top` as commands: what they print, how they end, and how they leave the terminal."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.page.conftest import HOSTILE, Used
from viewcache.api.cli.main import main

COMMAND = [sys.executable, "-m", "viewcache.api.cli.main"]
ALTERNATE, USUAL = b"\x1b[?1049h", b"\x1b[?1049l"
"""What a terminal is told to show another screen, and its own again."""


def test_top_prints_once_where_there_is_no_terminal(used: Used, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables as text, without escapes; a name that is markup or steers a terminal is words."""
    assert main(["top", str(used.store)]) == 0
    out = capsys.readouterr().out
    for words in ("Tasks", "epoch 3 of 6", "Due next", "train/3/0", "Tiers", "1.2 MB", "Errors by video", "Evictions"):
        assert words in out
    assert "onerror=" in "".join(out.split())
    assert HOSTILE.split()[0] in out
    assert "\x1b" not in out


def test_top_as_json(used: Used, capsys: pytest.CaptureFixture[str]) -> None:
    """All that is shown, as one value."""
    assert main(["top", str(used.store), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tasks"][0]["task"] == "train"
    assert {each["verdict"] for each in found["due"]} <= {"ready", "unknown"}


@pytest.mark.parametrize("interval", ["0", "nan", "1e9"])
def test_nonsense_is_refused(used: Used, capsys: pytest.CaptureFixture[str], interval: str) -> None:
    """An interval that would cost too much, or is none, with what is allowed."""
    assert main(["top", str(used.store), "--interval", interval]) == 2
    assert "from 2 to 3600" in capsys.readouterr().err


class Screen:
    """`viewcache top` in a terminal of its own."""

    def __init__(self, store: Path) -> None:
        """Start it."""
        self.ours, theirs = pty.openpty()
        self.size(40, 120)
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.process = subprocess.Popen(
            [*COMMAND, "top", str(store)], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        self.seen = b""

    def size(self, rows: int, columns: int) -> None:
        """Change the terminal's size."""
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, pattern: bytes, limit_s: float = 60.0) -> None:
        """Read what it draws until a pattern comes, which is not looked for in what was read before."""
        until, self.seen = time.monotonic() + limit_s, b""
        while not re.search(pattern, self.seen):
            assert time.monotonic() < until, self.seen[-2000:]
            if select.select([self.ours], [], [], 0.1)[0]:
                self.seen += os.read(self.ours, 65536)

    def end(self) -> int:
        """Wait for its end; the terminal is as it was."""
        code = self.process.wait(60)
        assert termios.tcgetattr(self.theirs) == self.before
        return code

    def close(self) -> None:
        """Let go of the terminal."""
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def screen(used: Used) -> "Iterator[Screen]":
    """It, with its first picture drawn."""
    shown = Screen(used.store)
    try:
        shown.until(b"Tiers")
        yield shown
    finally:
        shown.close()


@pytest.mark.parametrize("how", ["q", "Ctrl-C", "SIGTERM"])
def test_top_leaves_the_terminal_as_it_was(screen: Screen, how: str) -> None:
    """However it ends: the usual screen is back, and keys are seen again."""
    assert termios.tcgetattr(screen.theirs) != screen.before
    if how == "SIGTERM":
        screen.process.send_signal(signal.SIGTERM)
    else:
        os.write(screen.ours, b"q" if how == "q" else b"\x03")
    screen.until(re.escape(USUAL))
    assert screen.end() == 0


def test_top_fits_another_size(screen: Screen) -> None:
    """It is drawn anew when the terminal changes, without a key."""
    screen.size(12, 60)
    screen.until(b"Tasks")
    screen.size(50, 140)
    screen.until(b"Evictions")


def test_what_does_not_fit_is_told_and_shown(screen: Screen) -> None:
    """In a small terminal the last line says how many lines there are more; the space bar turns the page."""
    screen.size(24, 80)
    screen.until(rb"(?s)Tasks.*[1-9]\d* more lines \xc2\xb7 space shows them \xc2\xb7 q ends")
    assert b"Evictions" not in screen.seen.rpartition(b"Tasks")[2]
    turned = b""
    for _ in range(10):
        os.write(screen.ours, b" ")
        screen.until(rb"q ends")
        turned += screen.seen
        if b"space goes back to the top" in screen.seen:
            break
    assert b"Evictions" in turned
    assert b"Tasks" not in turned
    os.write(screen.ours, b" ")
    screen.until(b"Tasks")
    screen.size(150, 80)
    screen.until(rb"(?s)Tasks.*Evictions")
    assert b"q ends" not in screen.seen.rpartition(b"Tasks")[2], "what came before was drawn for the small one"


def test_page_is_served_until_ctrl_c(used: Used) -> None:
    """The address comes on stdout, works at once, and nothing else comes with it; Ctrl-C is its good end."""
    process = subprocess.Popen(
        [*COMMAND, "page", str(used.store), "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert b"<title>viewcache</title>" in answer.read()
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert "until Ctrl-C" in errors
    assert "token" not in errors
