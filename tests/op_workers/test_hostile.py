"""A program that speaks the protocol wrongly, or not at all, costs a clear error and nothing else."""

import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.op_workers.served import the_op
from viewcache.errors import OpWorkerFailed
from viewcache.materializer.op_workers.crew import Crew
from viewcache.materializer.op_workers.remote import RemoteClipOp, remote_op
from viewcache.materializer.spec import OpWorkerSpec

PROGRAM = """
import mmap, os, socket, struct, sys, time
import msgspec

line = socket.socket(fileno=int(os.environ["VIEWCACHE_OP_WORKER_FD"]))
OWN = {"name": "own", "fingerprint": "1", "stage": "frame"}
WELCOME = {"type": "welcome", "protocol": 1, "runtime": "a program", "ops": [OWN]}


number = 0


def hear():
    global number
    head, fds, _, _ = socket.recv_fds(line, 4, 1)
    if not head:
        sys.exit()
    (length,) = struct.unpack("<I", head)
    body = b""
    while len(body) < length:
        body += line.recv(length - len(body))
    ask = msgspec.msgpack.decode(body)
    number = ask["number"]
    return ask, fds


def framed(answer):
    body = answer if isinstance(answer, bytes) else msgspec.msgpack.encode({"number": number} | answer)
    return struct.pack("<I", len(body)) + body


def say(answer):
    line.sendall(framed(answer))


def serve(**said):
    memory = None
    while True:
        ask, fds = hear()
        if ask["type"] == "hello":
            say(said.get("hello", WELCOME))
        elif ask["type"] == "memory":
            memory = mmap.mmap(fds[0], ask["size"])
            say(said.get("memory", {"type": "ok"}))
        elif ask["type"] == "apply":
            if "apply" not in said:
                size = ask["frames"] * 3 * ask["height"] * ask["width"]
                memory[ask["out"]:ask["out"] + size] = bytes(255 - each for each in memory[:size])
            say(said.get("apply", {"type": "applied", "sizes": [[ask["height"], ask["width"]]] * ask["frames"]}))
        elif ask["type"] == "apply_clip":
            say(said["clip"])
"""
"""A server of its own, without viewcache: in whatever language one is written, it comes to this."""

AT_HELLO = {
    "silent": ("time.sleep(1000)", "gave no answer within 1 s"),
    "absent": ("sys.exit(4)", "ended with exit status 4"),
    "text": ("line.sendall(b'HTTP/1.1 200 OK\\r\\n\\r\\n'); hear(); hear()", "a frame of 1347703880 bytes; at most"),
    "garbage": ("hear(); say(b'\\xff\\xfe\\x00'); hear()", "is not of protocol 1 of op workers"),
    "utf8": ("hear(); say(b'\\x81\\xa4type\\xa3\\xff\\xff\\xff'); hear()", "is not of protocol 1"),
    "deep": ("hear(); say(b'\\x91' * 100_000); hear()", "is not of protocol 1"),
    "half": ("hear(); line.sendall(b'\\xff\\x00\\x00\\x00half'); sys.exit(0)", "ended with exit status 0"),
    "twice": (
        "hear(); both = b''.join(map(framed, 2 * [WELCOME])); line.sendall(both); hear()",
        "said more than it was",
    ),
    "number": ("hear(); say(WELCOME | {'number': 7}); hear()", "answered question 7 when it was asked question 1"),
    "version": ("serve(hello=WELCOME | {'protocol': 2})", "does not speak protocol 1"),
    "kind": ("serve(hello={'type': 'ok'})", "does not speak protocol 1"),
    "field": ("serve(hello=WELCOME | {'more': 1})", "unknown field `more`"),
}
"""What the program does → what is told."""

AT_APPLY = {
    "nan": ("{'type': 'applied', 'sizes': [[float('nan'), 4]]}", "Expected `int`, got `float`"),
    "negative": ("{'type': 'applied', 'sizes': [[-4, -4]]}", "a frame of -4x-4"),
    "huge": ("{'type': 'applied', 'sizes': [[2**63, 2**63]]}", "a frame of"),
    "large": ("{'type': 'applied', 'sizes': [[4000, 4000]]}", "says that it keeps sizes"),
    "few": ("{'type': 'applied', 'sizes': []}", "gave 0 frames for 1"),
    "many": ("{'type': 'applied', 'sizes': [[4, 4]] * 1000}", "gave 1000 frames for 1"),
    "greedy": ("{'type': 'too_small', 'size': 2**40}", "asks for 1099511627776 bytes"),
    "never": ("{'type': 'too_small', 'size': 1}", "asks for 1 bytes"),
    "other": ("{'type': 'sized', 'size': None}", "answered Apply by Sized"),
    "failed": ("{'type': 'failed', 'kind': 'failed', 'message': 'not today'}", "not today"),
    "long": ("bytes(5 << 20)", "a frame of 5242880 bytes; at most"),
}
"""What it answers to a frame → what is told."""


AT_CLIP = {
    "none": ("{'type': 'applied', 'sizes': []}", "gave 0 sizes for one clip"),
    "each": ("{'type': 'applied', 'sizes': [[4, 4]] * 5}", "gave 5 sizes for one clip"),
    "huge": ("{'type': 'applied', 'sizes': [[2**63, 2**63]]}", "a frame of"),
    "large": ("{'type': 'applied', 'sizes': [[4000, 4000]]}", "says that it keeps sizes"),
    "greedy": ("{'type': 'too_small', 'size': 2**40}", "asks for 1099511627776 bytes"),
    "other": ("{'type': 'sized', 'size': None}", "answered ApplyClip by Sized"),
}
"""What it answers to a clip → what is told."""


def _crew(folder: Path, body: str, timeout_s: float = 10.0) -> Crew:
    program = folder / "program.py"
    program.write_text(PROGRAM + body + "\n")
    return Crew(OpWorkerSpec("mine", (sys.executable, "-I", str(program)), timeout_s=timeout_s))


@pytest.mark.usefixtures("no_leaks")
@pytest.mark.parametrize("what", AT_HELLO)
def test_who_cannot_say_hello_is_not_used(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence, other protocols and other versions: an error with what it was, in bounded time."""
    body, told = AT_HELLO[what]
    monkeypatch.setattr("viewcache.materializer.op_workers.process.START_S", 1.0 if what == "silent" else 10.0)
    crew = _crew(tmp_path, body)
    begun = time.monotonic()
    with pytest.raises(OpWorkerFailed) as failed:
        crew.ops()
    assert told in str(failed.value)
    assert time.monotonic() - begun < 15


FRAME = np.arange(3 * 4 * 4, dtype=np.uint8).reshape(3, 4, 4)


@pytest.mark.parametrize("what", AT_APPLY)
def test_nonsense_for_a_frame_is_that_clips_error(what: str, tmp_path: Path) -> None:
    """Whatever it says of frames, none that was not checked becomes part of a clip."""
    answer, told = AT_APPLY[what]
    crew = _crew(tmp_path, f"serve(apply={answer})")
    with pytest.raises(OpWorkerFailed) as failed:
        the_op(crew).run((), np.zeros(0, np.int32), FRAME)
    assert told in str(failed.value)
    assert failed.value.of_clip
    crew.close()


@pytest.mark.parametrize("what", AT_CLIP)
def test_nonsense_for_a_clip_is_its_error(what: str, tmp_path: Path) -> None:
    """The same of operations on whole clips."""
    answer, told = AT_CLIP[what]
    crew = _crew(tmp_path, f"serve(hello=WELCOME | {{'ops': [OWN | {{'stage': 'clip'}}]}}, clip={answer})")
    op = remote_op(crew, *crew.ops())
    assert isinstance(op, RemoteClipOp)
    with pytest.raises(OpWorkerFailed) as failed:
        op.run_clip((), np.zeros(0, np.int32), np.stack([FRAME] * 5))
    assert told in str(failed.value)
    assert failed.value.of_clip
    crew.close()


@pytest.mark.usefixtures("no_leaks")
def test_a_program_of_any_kind_can_serve(tmp_path: Path) -> None:
    """The protocol is all that it needs: no viewcache, no NumPy."""
    crew = _crew(tmp_path, "serve()")
    made = the_op(crew).run_all((), np.zeros(0, np.int32), [FRAME] * 20)
    assert len(made) == 20
    assert all(np.array_equal(each, 255 - FRAME) for each in made)
    crew.close()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("'stage': 'time'", r"is of the stage 'time', .*cache\.op_modules"),
        ("'native': True", r"is a NativeOp, .*cache\.op_modules"),
        ("'fingerprint': ''", "has no fingerprint"),
    ],
)
def test_kinds_that_are_not_served_are_refused(said: str, told: str, tmp_path: Path) -> None:
    """Operations on time and on finished batches, and resizes that are fused with decoding, belong to this process."""
    ops = "[OWN | {%s}]" % said  # noqa: UP031 - braces
    crew = _crew(tmp_path, f"serve(hello=WELCOME | {{'ops': {ops}}})")
    with pytest.raises(ValueError, match=f"op 'own' {told}"):
        the_op(crew)
    crew.close()
