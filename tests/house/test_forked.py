"""The processes that tests fork behave as those that they stand for."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import forked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")

CODES = {
    "nothing": "",
    "a status": "import sys; sys.exit(7)",
    "no status": "import sys; sys.exit()",
    "a message": "import sys; sys.exit('so long')",
    "an error": "raise ValueError('not today')",
    "words": "import sys; print(sys.argv[1:], sys.stdin.read()); print('beside', file=sys.stderr)",
    "surroundings": "import os; print(os.getcwd(), os.environ.get('VIEWCACHE_TEST'), os.listdir('/proc/self/fd'))",
    "at the end": "import atexit, threading as t; atexit.register(print, 'z'); t.Timer(0.05, print, ['late']).start()",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "interrupted": "import os, atexit; atexit.register(print, 'last'); os.kill(os.getpid(), 2); input()",
    "modules": "import __main__; x = 3; print(__name__, __main__.x)",
}


@pytest.mark.parametrize("code", CODES.values(), ids=list(CODES))
def test_code_runs_and_ends_as_in_a_new_interpreter(code: str, tmp_path: Path) -> None:
    """Exit status, what is written where, arguments, input, folder, environment, descriptors."""
    command = [sys.executable, "-c", code, "one", "two"]
    how: dict[str, Any] = {
        "input": "in\n",
        "capture_output": True,
        "text": True,
        "cwd": tmp_path,
        "env": {**os.environ, "VIEWCACHE_TEST": "yes"},
        "timeout": 60,
    }
    usual, ours = subprocess.run(command, **how), forked.run(command, **how)  # the status is compared
    assert ours.returncode == usual.returncode
    assert ours.stdout == usual.stdout
    assert ours.stderr.splitlines()[-1:] == usual.stderr.splitlines()[-1:]


def test_modules_are_found_and_run_as_usual(tmp_path: Path) -> None:
    """`-m` finds what stands in the folder, unless `-P` is given, and what is on the search path."""
    (tmp_path / "here.py").write_text("import sys\nprint(__name__, sys.argv[1:])\n")
    for command in ([sys.executable, "-m", "here", "x"], [sys.executable, "-P", "-m", "here"]):
        usual, ours = (
            run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
            for run in (subprocess.run, forked.run)
        )
        assert (ours.returncode, ours.stdout) == (usual.returncode, usual.stdout)


def test_a_process_can_be_killed_waited_for_and_spoken_to() -> None:
    """Descriptors are passed under their numbers; a kill is seen; waiting for one does not keep others waiting."""
    ours, theirs = os.pipe()
    first = forked.Popen(
        [sys.executable, "-c", f"import os, time; os.write({theirs}, b'up'); time.sleep(600)"], pass_fds=[theirs]
    )
    assert os.read(ours, 2) == b"up"
    assert first.poll() is None
    with pytest.raises(forked.TimeoutExpired):
        first.wait(timeout=0.01)
    assert forked.run([sys.executable, "-c", ""]).returncode == 0
    first.kill()
    assert first.wait() == -signal.SIGKILL
    for fd in (ours, theirs):
        os.close(fd)


def test_what_is_not_known_is_left_to_subprocess(tmp_path: Path) -> None:
    """Other programs and options start as usual; variables that are read by a loading library reach it."""
    assert forked.run(["true"]).returncode == 0
    code = "import os; print(os.getsid(0) == os.getpid())"
    assert forked.run([sys.executable, "-c", code], start_new_session=True, capture_output=True).stdout == b"True\n"
    code = "import pyarrow; print(pyarrow.default_memory_pool().backend_name)"
    for name in ("system", "mimalloc"):
        env = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": name}
        assert forked.run([sys.executable, "-c", code], env=env, capture_output=True, text=True).stdout == f"{name}\n"
    with pytest.raises(FileNotFoundError):
        forked.run([str(tmp_path / "nothing")])
