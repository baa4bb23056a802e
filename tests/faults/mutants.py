"""Videos that were damaged on purpose, bombs, and playlists that pose as videos."""

import random
from collections.abc import Callable
from pathlib import Path

__all__ = ["CODECS", "mutate", "write_impostors"]

CODECS = ("h264_bframes.mp4", "hevc_open_gop.mp4", "vp9_hidden.webm", "av1.mp4", "mpeg4_bframes.avi", "mjpeg.avi")
"""Of `tests.clips.FAMILIES`: one of each codec."""

Change = Callable[[bytearray, random.Random], None]


def _flip(data: bytearray, dice: random.Random) -> None:
    for _ in range(dice.choice([1, 1, 4, 32])):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _flip_header(data: bytearray, dice: random.Random) -> None:
    for _ in range(dice.choice([1, 2, 8])):
        data[dice.randrange(min(len(data), 1024))] ^= 1 << dice.randrange(8)


def _truncate(data: bytearray, dice: random.Random) -> None:
    del data[dice.randrange(len(data)) :]


def _cut_out(data: bytearray, dice: random.Random) -> None:
    start = dice.randrange(len(data))
    del data[start : start + dice.choice([1, 16, 1024])]


def _insert(data: bytearray, dice: random.Random) -> None:
    start = dice.randrange(len(data))
    data[start:start] = dice.randbytes(dice.choice([1, 16, 1024]))


def _overwrite(data: bytearray, dice: random.Random) -> None:
    start, size = dice.randrange(len(data)), dice.choice([4, 64, 4096])
    data[start : start + size] = dice.choice([bytes(size), b"\xff" * size, dice.randbytes(size)])


def _exchange(data: bytearray, dice: random.Random) -> None:
    size = min(512, len(data) // 4)
    one, other = dice.randrange(len(data) // 2 - size), len(data) // 2 + dice.randrange(len(data) // 2 - size)
    data[one : one + size], data[other : other + size] = data[other : other + size], data[one : one + size]


_CHANGES: tuple[Change, ...] = (_flip, _flip_header, _truncate, _cut_out, _insert, _overwrite, _exchange)


def mutate(data: bytes, seed: int) -> bytes:
    """One damaged version of a file, by one kind of damage or two."""
    dice, changed = random.Random(seed), bytearray(data)
    for change in dice.sample(_CHANGES, dice.choice([1, 1, 2])):
        if len(changed) > 64:
            change(changed, dice)
    return bytes(changed)


def write_impostors(folder: Path, mjpeg: Path) -> list[Path]:
    """Write files that are no videos, or one frame of 4 gigapixels, or ask for other files and the network."""
    bomb = bytearray(mjpeg.read_bytes())
    at = bomb.index(b"\xff\xc0") + 5
    bomb[at : at + 4] = b"\xff\xff\xff\xff"  # height and width of the first frame
    texts = {
        "bomb.avi": bytes(bomb),
        "list.mp4": f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{mjpeg}\n#EXT-X-ENDLIST\n".encode(),
        "net.mp4": b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nhttp://127.0.0.1:9/a.ts\n#EXT-X-ENDLIST\n",
        "concat.mp4": f"ffconcat version 1.0\nfile '{mjpeg}'\n".encode(),
        "empty.mp4": b"",
        "zeros.webm": bytes(10_000),
        "text.mkv": b"not a video\n" * 100,
    }
    for name, data in texts.items():
        (folder / name).write_bytes(data)
    return [folder / name for name in texts]
