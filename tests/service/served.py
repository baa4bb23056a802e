"""What the tests of the service have in common: videos, processes that read, and digests of what they read."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from tests.tiny import AUGMENTATION, config, single
from viewcache.api.service.attached import AttachedCache
from viewcache.materializer.reading.batch import Batch

__all__ = [
    "VIDEOS",
    "Opener",
    "batch_digest",
    "clip_digests",
    "described",
    "digest",
    "ended",
    "go_on",
    "in_child",
    "start",
    "told",
]

VIDEOS = {f"{'cats' if k % 2 else 'dogs'}/v{k}.mp4": 40 + k for k in range(10)}
"""Relative path → frames; the folder is the label."""

AUGMENTED = [*AUGMENTATION, single({"normalize": {"mean": [0.5, 0.5, 0.5], "std": [0.2, 0.2, 0.2]}}, of="a", into="b")]
"""With an operation that runs at reading."""


def described(store: Path, videos: Path, **settings: Any) -> dict[str, object]:
    """The configuration of these tests; keyword arguments as of `tests.tiny.config`."""
    return config(store, videos, **{"labels": "folders", "augmentation": AUGMENTED, **settings})


class Opener(Protocol):
    """Opens an attached cache; keyword arguments as of `tests.tiny.config`."""

    def __call__(self, **settings: object) -> AttachedCache:
        """Open one."""


def digest(batch: Batch) -> str:
    """All of a batch in a few letters."""
    parts = (batch.video, batch.label, batch.index, batch.frame, batch.time_s)
    return hashlib.blake2b(b"".join(each.tobytes() for each in parts), digest_size=8).hexdigest()


def clip_digests(batch: Batch) -> list[str]:
    """All of each of its clips in a few letters, wherever they stand in it."""
    parts = zip(batch.video, batch.label, batch.index, batch.frame, batch.time_s, strict=True)
    return [hashlib.blake2b(b"".join(one.tobytes() for one in clip), digest_size=8).hexdigest() for clip in parts]


def batch_digest(batch: Mapping[str, Any]) -> str:
    """The same of a loader's batch: all its tensors."""
    parts = (batch[name].numpy() for name in sorted(batch) if hasattr(batch[name], "numpy"))
    return hashlib.blake2b(b"".join(each.tobytes() for each in parts), digest_size=8).hexdigest()


_PROGRAM = """
import json, sys
sys.path.insert(0, {root!r})
import viewcache
from tests.service.served import digest
given = json.loads(sys.argv[1])
{body}
"""


def start(body: str, given: Mapping[str, object], *arguments: str) -> "subprocess.Popen[str]":
    """A process of its own that runs a few lines with ``given``, a configuration; it prints JSON."""
    program = _PROGRAM.format(root=str(Path(__file__).resolve().parents[2]), body=body)
    return subprocess.Popen(
        [sys.executable, "-c", program, json.dumps(given), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def in_child(say: Callable[[], str]) -> str:
    """What a forked child says; of an error, its kind and its words."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = say()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        return pipe.read()


def told(process: "subprocess.Popen[str]") -> object:
    """The next line that it prints."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        _, errors = process.communicate(timeout=60)
        raise AssertionError(errors)
    return json.loads(line)


def go_on(process: "subprocess.Popen[str]") -> None:
    """Give it the line that it waits for."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def ended(process: "subprocess.Popen[str]", timeout_s: float = 120) -> object:
    """All that it printed last, when it has ended well."""
    out, errors = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, errors
    return json.loads(out.splitlines()[-1])
