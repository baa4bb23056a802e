"""Op workers end with who started them, and forks of that process have nothing of them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.op_workers.served import module, spec, the_op
from viewcache.materializer.op_workers.crew import Crew
from viewcache.testing.leaks import settle

FRAME = np.zeros((3, 4, 4), np.uint8)

PARENT = """
import json, sys, threading
import numpy as np
from viewcache.materializer.op_workers.crew import Crew
from viewcache.materializer.op_workers.remote import remote_op
from viewcache.materializer.spec import OpWorkerSpec

name, command, modules, of_thread, hangs = json.loads(sys.argv[1])
crew = Crew(OpWorkerSpec(name, tuple(command), tuple(modules), timeout_s=100.0))


def begin():
    op = remote_op(crew, crew.ops()[0])
    print(json.dumps(crew.pids()), flush=True)
    if hangs:
        op.run((), np.zeros(1, np.int32), np.zeros((3, 4, 4), np.uint8))


if of_thread:
    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
else:
    begin()
sys.stdin.read()
"""


def _gone(pid: int) -> Callable[[], list[int]]:
    def there() -> list[int]:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return []
        return [] if stat[stat.rindex(")") + 2] == "Z" else [pid]

    return there


@pytest.mark.parametrize("of_thread", [False, True], ids=["main", "thread"])
@pytest.mark.parametrize("hangs", [False, True], ids=["idle", "hangs"])
def test_it_ends_with_the_process_that_started_it(of_thread: bool, hangs: bool, tmp_path: Path) -> None:
    """However that ends, also in the middle of a call; and it does not end with a thread that has only started it."""
    folder = module(tmp_path / "ops", "lives", "time.sleep(1000)")
    of = spec(folder, "lives")
    given = json.dumps([of.name, of.command, of.modules, of_thread, hangs])
    parent = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PARENT, given], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        (pid,) = json.loads(parent.stdout.readline())
        assert _gone(pid)()
        parent.kill()
    assert not settle(_gone(pid), 10.0)


def test_a_fork_starts_its_own(tmp_path: Path) -> None:
    """A forked child does not speak on its parent's lines, and its end is not that of the parent's processes."""
    crew = Crew(spec(module(tmp_path / "ops", "forks", "return 255 - frame"), "forks"))
    op = the_op(crew)
    (before,) = crew.pids()
    child = os.fork()
    if not child:
        try:
            forgotten = not crew.pids()
            made = op.run((), np.zeros(1, np.int32), FRAME)
            status = 0 if forgotten and made[0, 0, 0] == 255 and crew.pids() != [before] else 1
            crew.close()
        except BaseException:
            status = 2
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert crew.pids() == [before]
    assert op.run((), np.zeros(1, np.int32), FRAME)[0, 0, 0] == 255
    assert crew.pids() == [before]
    crew.close()


LIMITED = """
import json, sys
import numpy as np
from viewcache.materializer.limits import limit_worker
from viewcache.materializer.op_workers.crew import Crew
from viewcache.materializer.op_workers.remote import remote_op
from viewcache.materializer.spec import OpWorkerSpec

name, command, modules = json.loads(sys.argv[1])
limit_worker(1 << 30, children_differ=True)
for gigabytes in (4, 1):
    crew = Crew(OpWorkerSpec(name, tuple(command), tuple(modules), memory_bytes=gigabytes << 30))
    try:
        print(remote_op(crew, crew.ops()[0]).run((), np.zeros(1, np.int32), np.zeros((3, 4, 4), np.uint8)).sum())
    except Exception as error:
        print(type(error).__name__, "MemoryError" in str(error))
    crew.close()
"""


def test_its_memory_is_its_own_limit(tmp_path: Path) -> None:
    """Not that of the worker process that starts it, also where nobody may raise a limit again."""
    folder = module(tmp_path / "ops", "large", "return frame + np.uint8(np.empty(2 << 30, np.uint8).ndim)")
    of = spec(folder, "large")
    unable = ["setpriv", "--bounding-set=-sys_resource"] if os.geteuid() == 0 else []
    command = [*unable, sys.executable, "-W", "error", "-c", LIMITED, json.dumps([of.name, of.command, of.modules])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["48", "OpWorkerFailed True"]


def test_ignored_signals_of_children_change_nothing(tmp_path: Path) -> None:
    """A process that lets the kernel reap its children can use op workers, too."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        crew = Crew(spec(module(tmp_path / "ops", "reaped", "return 255 - frame"), "reaped"))
        assert the_op(crew).run((), np.zeros(1, np.int32), FRAME)[0, 0, 0] == 255
        crew.close()
    finally:
        signal.signal(signal.SIGCHLD, before)
