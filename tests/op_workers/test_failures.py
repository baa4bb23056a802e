"""Whatever an operation does to its op worker, the clip has an error, the next one is made, and nothing is left."""

import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.op_workers.served import entry, module, spec, the_op
from tests.tiny import open_cache, pixels, single, sql
from viewcache.errors import OpWorkerFailed
from viewcache.materializer.op_workers import crew as crews
from viewcache.materializer.op_workers.crew import DEATHS, Crew
from viewcache.materializer.op_workers.remote import RemoteOp

WRONG: dict[str, tuple[str, str]] = {
    "raise": ("raise ValueError('not today')", "ValueError: not today"),
    "float": ("return frame.astype(np.float32)", "gave float32 .3, 8, 8. for a frame"),
    "list": ("return frame.tolist()", "gave list for a frame"),
    "flat": ("return frame[0]", "it must give .3, h, w. uint8"),
    "empty": ("return frame[:, :0]", "a frame of 0x8"),
    "size": ("return frame[:, ::2]", "a frame of 4x8 for one of 8x8, but says that it keeps sizes"),
    "write": ("frame[:] = 0; return frame", "read-only"),
    "memory": ("return np.ones(2 << 30, np.uint8)", "MemoryError"),
    "much": ("return np.broadcast_to(np.uint8(0), (3, 1 << 14, 1 << 15))", "shared memory|a frame of"),
    "segfault": ("ctypes.string_at(0)", "killed by SIGSEGV"),
    "exit": ("print('so long'); os._exit(7)", "ended with exit status 7; it printed last: so long"),
    "leave": ("sys.exit('enough')", "ended with exit status 1; it printed last: .*enough"),
    "hang": ("time.sleep(1000)", "gave no answer within 2 s"),
    "close": ("os.closerange(3, 100); time.sleep(1000)", "closed its line"),
    "fork": (
        "if not os.fork(): time.sleep(1000)\nos._exit(7)",
        "ended with exit status 7",
    ),
    "babble": ("[s.sendall(bytes(99)) for s in lines()]", "talked nonsense|said more"),
    "abort": ("threading.Thread(target=os.abort).start(); time.sleep(1000)", "killed by SIGABRT"),
}
"""What `apply` does → what is told."""

LINES = """
def lines():
    import gc
    return [each for each in gc.get_objects() if isinstance(each, socket.socket)]
"""

FRAME = np.arange(3 * 8 * 8, dtype=np.uint8).reshape(3, 8, 8)


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.usefixtures("no_leaks")
def test_a_call_that_fails_says_why(what: str, tmp_path: Path) -> None:
    """Exceptions, nonsense, crashes, hangs: an error of the clip within the time of a call; the next frame is well."""
    body, told = WRONG[what]
    folder = module(
        tmp_path / "ops", f"wrong_{what}", f"if frame[0, 0, 0] == 9:\n{_indented(body)}\nreturn 255 - frame"
    )
    with (folder / f"wrong_{what}.py").open("a") as file:
        file.write(LINES)
    crew = Crew(spec(folder, f"wrong_{what}", timeout_s=2.0 if what == "hang" else 10.0, memory_bytes=1 << 30))
    op = the_op(crew)
    begun = time.monotonic()
    said = _failure(op)
    assert re.search(f"(?s)^op worker 'mine': operation 'own': .*{told}", said)
    assert time.monotonic() - begun < 20
    assert np.array_equal(op.run_all((), np.zeros(1, np.int32), [FRAME])[0], 255 - FRAME)
    crew.close()


def _failure(op: RemoteOp) -> str:
    """Of two frames, one of which is bad; the error itself would keep the memory of the call."""
    bad = FRAME.copy()
    bad[0, 0, 0] = 9
    with pytest.raises(OpWorkerFailed) as failed:
        op.run_all((), np.zeros(1, np.int32), [FRAME, bad])
    assert failed.value.of_clip
    return str(failed.value)


def _indented(body: str) -> str:
    return "\n".join(f"    {line}" for line in body.split("\n"))


def test_noise_is_no_answer(tmp_path: Path) -> None:
    """An operation that prints megabytes is slow at worst; it is not held up by nobody reading."""
    folder = module(tmp_path / "ops", "noisy", "print('x' * (1 << 22)); os.write(1, bytes(1 << 20)); return frame")
    crew = Crew(spec(folder, "noisy"))
    op = the_op(crew)
    for _ in range(3):
        assert np.array_equal(op.run((), np.zeros(1, np.int32), FRAME), FRAME)
    crew.close()


def test_a_process_that_was_killed_meanwhile_costs_nothing(tmp_path: Path) -> None:
    """What is asked of a process that is gone is asked of the next one."""
    crew = Crew(spec(module(tmp_path / "ops", "killed", "return frame"), "killed"))
    op = the_op(crew)
    for _ in range(2):
        (pid,) = crew.pids()
        os.kill(pid, signal.SIGKILL)
        assert op.parse(None) == ()
    crew.close()


def test_processes_that_are_killed_together_are_no_clips_fault(tmp_path: Path) -> None:
    """Where the system kills all that are idle, what ended a process is tried once more by one that is new."""
    meeting = tmp_path / "meeting"
    body = f"""
        import os, time
        open(os.path.join({str(meeting)!r}, str(os.getpid())), "w").close()
        while len(os.listdir({str(meeting)!r})) < 4:
            time.sleep(0.001)
        return frame
    """
    crew = Crew(spec(module(tmp_path / "ops", "together", body), "together"))
    op = the_op(crew)
    row = np.zeros(1, np.int32)
    calls: list[Callable[[], object]] = [lambda: op.run((), row, FRAME), lambda: op.parse(None)]
    for call in calls:
        shutil.rmtree(meeting, ignore_errors=True)
        meeting.mkdir()
        with ThreadPoolExecutor(4) as threads:  # each waits until all have a process of their own
            list(threads.map(lambda _: op.run((), row, FRAME), range(4)))
        pids = crew.pids()
        assert len(pids) >= 4
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        call()
        crew.close()


def test_a_first_process_that_is_killed_while_it_starts(tmp_path: Path) -> None:
    """What an op worker serves is asked of the next process, too."""
    flag = tmp_path / "flag"
    folder = module(tmp_path / "ops", "opening", "return frame")
    dies = f"import os\nif os.path.exists({str(flag)!r}): os.unlink({str(flag)!r}); os.kill(os.getpid(), 9)\n"
    (folder / "opening.py").write_text(dies + (folder / "opening.py").read_text())
    flag.touch()
    crew = Crew(spec(folder, "opening"))
    assert [op.name for op in crew.ops()] == ["own"]
    assert not flag.exists(), "nothing was killed"
    crew.close()


def test_a_start_that_is_tried_twice_counts_as_one_death(tmp_path: Path) -> None:
    """As a call does: one that never starts is out of order after as many questions."""
    folder = module(tmp_path / "ops", "never", "return frame")
    (folder / "never.py").write_text("import os; os._exit(3)")
    crew = Crew(spec(folder, "never"))
    for _ in range(DEATHS):
        with pytest.raises(OpWorkerFailed, match="exit status 3"):
            crew.ops()
    with pytest.raises(OpWorkerFailed, match=f"it ended {DEATHS} times in a row"):
        crew.ops()


def test_a_process_that_is_killed_while_it_starts(tmp_path: Path) -> None:
    """What was to be asked is asked of the next one; where that is killed, too, it is told, and is no clip's fault."""
    flags = [tmp_path / "first", tmp_path / "second"]
    folder = module(tmp_path / "ops", "starting", "return frame")
    dies = "if os.path.exists({0!r}): os.unlink({0!r}); os.kill(os.getpid(), 9)\n"
    killed = "".join(dies.format(str(flag)) for flag in flags)
    (folder / "starting.py").write_text(f"import os\n{killed}{(folder / 'starting.py').read_text()}")
    crew = Crew(spec(folder, "starting"))
    op = the_op(crew)
    crew.close()
    flags[0].touch()
    assert op.parse(None) == ()
    assert not flags[0].exists()
    crew.close()
    for flag in flags:
        flag.touch()
    with pytest.raises(OpWorkerFailed, match=r"its program .* was killed by SIGKILL") as told:
        op.parse(None)
    flags[0].touch()
    assert np.array_equal(op.run_all((), np.zeros(1, np.int32), [FRAME, FRAME])[0], FRAME)
    assert not flags[0].exists()
    crew.close()
    for flag in flags:
        flag.touch()
    with pytest.raises(OpWorkerFailed, match=r"its program .* was killed by SIGKILL") as of_frame:
        op.run((), np.zeros(1, np.int32), FRAME)
    assert not told.value.of_clip
    assert not of_frame.value.of_clip
    crew.close()


KILLED_ONCE = """
import os
import numpy as np
from viewcache.ops import ClipOp, FrameOp


def killed_by_chance():
    if os.path.exists({flag!r}):
        os.unlink({flag!r})
        os.kill(os.getpid(), 9)


class Frames(FrameOp):
    name = "frames"
    columns = ()

    def apply(self, params, row, frame):
        killed_by_chance()
        return 255 - frame


class Clips(ClipOp):
    name = "clips"
    columns = ()

    def apply_clip(self, params, row, clip):
        killed_by_chance()
        return 255 - clip


OPS = [Frames, Clips]
"""


@pytest.mark.parametrize("frames", [1, 4])
@pytest.mark.parametrize("op", ["frames", "clips"])
def test_a_chance_death_is_no_clips_fault(videos: Path, tmp_path: Path, op: str, frames: int) -> None:
    """What ended a process once is tried once more, be it one frame or a clip: no video is replaced for ever."""
    flag = tmp_path / "flag"
    folder = module(tmp_path / "ops", f"once_{op}_{frames}", KILLED_ONCE.format(flag=str(flag)))
    steps = [single({"resize": {"shape": [32, 32]}}, op)]
    more: dict[str, Any] = {"on_bad_video": "replace", "epochs": 1, "augmentation": steps}
    more["sampling"] = {"frames_per_video": frames}
    with open_cache(tmp_path / "s", videos, cache=entry(folder, f"once_{op}_{frames}"), **more) as cache:
        flag.touch()
        batches = pixels(cache)
        assert not flag.exists(), "nothing was killed"
        assert not sql(cache, "select reason from substitutions")
    assert sum(batch.video.shape[0] for batch in batches.values()) == 8


def test_a_repeated_call_counts_as_one_death(tmp_path: Path) -> None:
    """A frame that its process always dies of takes two processes with it; ten such frames in a row are lost."""
    pids = tmp_path / "pids"
    body = f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n'); os._exit(3)"
    crew = Crew(spec(module(tmp_path / "ops", "counted", body), "counted"))
    op, row = the_op(crew), np.zeros(1, np.int32)
    for _ in range(DEATHS):
        with pytest.raises(OpWorkerFailed, match="exit status 3") as died:
            op.run((), row, FRAME)
        assert died.value.of_clip
    assert len(set(pids.read_text().split())) == 2 * DEATHS
    with pytest.raises(OpWorkerFailed, match="10 times in a row"):
        op.run((), row, FRAME)


def test_restarts_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An op worker that dies of everything is out of order for a while; calls fail at once, and say what it did."""
    crew = Crew(spec(module(tmp_path / "ops", "dies", "print('ouch'); os._exit(3)"), "dies"))
    op, row = the_op(crew), np.zeros(1, np.int32)
    for _ in range(DEATHS):
        with pytest.raises(OpWorkerFailed, match=r"exit status 3; it printed last: ouch") as died:
            op.run((), row, FRAME)
        assert died.value.of_clip
    begun = time.monotonic()
    for _ in range(100):
        with pytest.raises(OpWorkerFailed, match=r"(?s)ended 10 times in a row, the last time .*ouch") as out:
            op.run((), row, FRAME)
        assert not out.value.of_clip
    assert time.monotonic() - begun < 1
    monkeypatch.setattr(crews, "REST_S", 0.0)
    with pytest.raises(OpWorkerFailed, match="exit status 3"):
        op.run((), row, FRAME)


def test_calls_that_succeed_begin_the_count_anew(tmp_path: Path) -> None:
    """An operation that dies of some frames, but never of many in a row, goes on for ever."""
    crew = Crew(spec(module(tmp_path / "ops", "some", "if frame[0, 0, 0] == 9: os._exit(3)\nreturn frame"), "some"))
    op, row = the_op(crew), np.zeros(1, np.int32)
    for _ in range(DEATHS + 3):
        assert "exit status 3" in _failure(op)
        assert np.array_equal(op.run((), row, FRAME), FRAME)
    crew.close()


def test_a_call_and_its_repetition_are_one_death(tmp_path: Path) -> None:
    """Of a clip that is made again frame by frame only one death counts, so ten clips are lost before it rests."""
    crew = Crew(spec(module(tmp_path / "ops", "again", "os._exit(3)"), "again"))
    op, row = the_op(crew), np.zeros(1, np.int32)
    clip = [FRAME, FRAME], [FRAME]
    for frames in [each for _ in range(DEATHS - 1) for each in clip] + [clip[0]]:
        with pytest.raises(OpWorkerFailed, match="exit status 3") as died:
            op.run_all((), row, frames)
        assert died.value.of_clip
    with pytest.raises(OpWorkerFailed, match="10 times in a row") as out:
        op.run((), row, FRAME)
    assert not out.value.of_clip


def test_another_operation_that_succeeds_excuses_nothing(tmp_path: Path) -> None:
    """Beside one that always dies there may be one that is well: the op worker is out of order all the same."""
    text = (module(tmp_path / "ops", "beside", "return frame") / "beside.py").read_text()
    dies = (
        "class Dies(Own):\n    name = 'dies'\n    def apply(self, params, row, frame): os._exit(3)\n\nOPS = [Own, Dies]"
    )
    crew = Crew(spec(module(tmp_path / "ops", "beside", text.replace("OPS = [Own]", dies)), "beside"))
    well, dead, row = the_op(crew), the_op(crew, "dies"), np.zeros(1, np.int32)
    for _ in range(DEATHS):
        well.run((), row, FRAME)
        with pytest.raises(OpWorkerFailed, match="exit status 3"):
            dead.run((), row, FRAME)
    with pytest.raises(OpWorkerFailed, match="10 times in a row"):
        dead.run((), row, FRAME)


def test_other_code_after_a_restart_is_refused(tmp_path: Path) -> None:
    """The file was edited: what a new process makes would be stored under keys of the old code."""
    folder = module(tmp_path / "ops", "edited", "return frame")
    crew = Crew(spec(folder, "edited"))
    op, row = the_op(crew), np.zeros(1, np.int32)
    assert np.array_equal(op.run((), row, FRAME), FRAME)
    crew.close()
    module(folder, "edited", "return 255 - frame")
    with pytest.raises(
        OpWorkerFailed, match=r"other code of 'own' than when the cache was opened: .*viewcache stop"
    ) as no:
        op.run((), row, FRAME)
    assert not no.value.of_clip
    module(folder, "edited", "return frame")
    assert np.array_equal(op.run((), row, FRAME), FRAME)
    crew.close()


# Caches ---------------------------------------------------------------------------------------------------------------

DIES_OF_SOME = "if row[0] == 1:\n    print('of this clip')\n    os._exit(3)\nreturn 255 - frame"
STEPS = [single({"resize": {"shape": [32, 32]}}, "own")]


@pytest.mark.usefixtures("no_leaks")
def test_by_the_policy_raise_readers_are_told(videos: Path, tmp_path: Path) -> None:
    """The batch of a clip that kills its op worker is an error with what it said; others are read."""
    folder = module(tmp_path / "ops", "policy_raise", DIES_OF_SOME)
    told, good = list[str](), 0
    with open_cache(tmp_path / "s", videos, cache=entry(folder, "policy_raise"), augmentation=STEPS) as cache:
        for iteration in range(cache.task("train").task.iterations(0)):
            try:
                cache.read("train", 0, iteration)
                good += 1
            except OpWorkerFailed as failed:
                told.append(str(failed))
        messages = [str(message) for (message,) in sql(cache, "select message from errors")]
    assert told
    assert all("op worker 'mine': operation 'own'" in each and "of this clip" in each for each in told)
    assert len(messages) >= len(told)


def test_by_the_policy_replace_another_video_stands_in(videos: Path, tmp_path: Path) -> None:
    """Every batch comes; each clip that its op worker died of was replaced, and is recorded as such."""
    folder = module(tmp_path / "ops", "policy_replace", DIES_OF_SOME)
    more: dict[str, Any] = {"on_bad_video": "replace", "epochs": 1, "augmentation": STEPS}
    with open_cache(tmp_path / "s", videos, cache=entry(folder, "policy_replace"), **more) as cache:
        batches = pixels(cache)
        reasons = [str(reason) for (reason,) in sql(cache, "select reason from substitutions")]
    assert sum(batch.video.shape[0] for batch in batches.values()) == 8
    assert reasons
    assert all("of this clip" in reason for reason in reasons)


def test_many_clips_that_crash_end_no_training(videos: Path, tmp_path: Path) -> None:
    """With far more crashes in a minute than an op worker may have in a row, every batch of every epoch comes."""
    folder = module(tmp_path / "ops", "many_crashes", DIES_OF_SOME)
    more: dict[str, Any] = {"on_bad_video": "replace", "epochs": 12, "augmentation": STEPS}
    with open_cache(tmp_path / "s", videos, cache=entry(folder, "many_crashes"), **more) as cache:
        batches = pixels(cache)
        replaced = len(sql(cache, "select reason from substitutions"))
    assert sum(batch.video.shape[0] for batch in batches.values()) == 12 * 8
    assert replaced > DEATHS


def test_an_op_worker_out_of_order_replaces_no_video(videos: Path, tmp_path: Path) -> None:
    """That it cannot be started is nobody's clip's fault: readers are told, and no draw is changed."""
    folder = module(tmp_path / "ops", "gone", "return frame")
    more: dict[str, Any] = {"on_bad_video": "replace", "augmentation": STEPS}
    with open_cache(tmp_path / "s", videos, cache=entry(folder, "gone"), **more) as cache:
        (folder / "gone.py").write_text("raise SystemExit('not any more')")
        with pytest.raises(OpWorkerFailed, match="not any more"):
            cache.read("train", 0, 0)
        assert not list(sql(cache, "select reason from substitutions"))
        module(folder, "gone", "return frame")
        assert cache.read("train", 0, 0).video.shape[-1] == 32


def test_planning_survives_an_operation_that_dies_of_it(videos: Path, tmp_path: Path) -> None:
    """Choices are made there, too: who plans is told, and the cache goes on."""
    flag = tmp_path / "dies"
    folder = module(tmp_path / "ops", "plans", "return frame")
    text = (folder / "plans.py").read_text()
    dying = f"        if os.path.exists({str(flag)!r}): os._exit(4)\n        return (draw"
    module(folder, "plans", text.replace("        return (draw", dying))
    with open_cache(tmp_path / "s", videos, cache=entry(folder, "plans"), augmentation=STEPS) as cache:
        flag.touch()
        with pytest.raises(OpWorkerFailed, match="op worker 'mine': ended with exit status 4"):
            cache.read("train", 0, 0)
        flag.unlink()
        assert cache.read("train", 0, 0).video.shape[-1] == 32


def test_a_hang_is_one_clips_error_and_no_death_of_a_worker(videos: Path, tmp_path: Path) -> None:
    """The worker that waits for an op worker is not taken for one that hangs."""
    folder = module(tmp_path / "ops", "hangs", "time.sleep(1000)")
    cache_settings = entry(folder, "hangs", timeout=0.3)
    with open_cache(tmp_path / "s", videos, cache=cache_settings, augmentation=STEPS) as cache:
        with pytest.raises(OpWorkerFailed, match=r"gave no answer within 0\.3 s"):
            cache.read("train", 0, 0)
        assert not cache.snapshot().jobs_died
