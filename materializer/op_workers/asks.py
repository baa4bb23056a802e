"""What an op worker is asked: one struct for each verb, every field typed.

Pixels are in shared memory, whose descriptor comes with `Memory`; a message says only where. The other side may be a
program in any language, so all numbers have their width, and nothing is said that only Python understands.
"""

from typing import Any, Final

from msgspec import Struct

__all__ = [
    "ALL",
    "ASK_BYTES",
    "PROTOCOL",
    "Apply",
    "ApplyClip",
    "Ask",
    "Hello",
    "KeyParams",
    "Memory",
    "OutSize",
    "Params",
    "Parse",
    "Resolve",
    "SizeHint",
]

PROTOCOL: Final = 1
"""Its version: another one is another protocol."""

ASK_BYTES: Final = 4 << 20
"""Most bytes of a frame to an op worker."""

Params = tuple[tuple[str, Any], ...]


class Ask(Struct, forbid_unknown_fields=True, kw_only=True):
    """What an op worker is asked. Each question has a ``number``, which its answer repeats."""

    number: int = 0


class Hello(Ask, tag="hello"):
    """The first frame. Answer: `Welcome`."""

    protocol: int
    modules: tuple[str, ...]
    """To import; each has a list `OPS` of operations."""
    packages: tuple[str, ...]
    """Installed packages whose versions shall be told."""


class Parse(Ask, tag="parse"):
    """Read what a configuration says behind an operation's name. Answer: `Parsed`, or `Failed` as `bad_input`."""

    op: str
    value: Any
    """Plain values as in YAML: a mapping of parameters, one value, or nothing."""


class KeyParams(Ask, tag="key_params"):
    """Which parameters enter content keys; asked if the operation says so by code (`own`). Answer: `Parsed`."""

    op: str
    params: Params


class OutSize(Ask, tag="out_size"):
    """The size that goes out for one that comes in; asked if `own` has it. Answer: `Sized`."""

    op: str
    params: Params
    size: tuple[int, int] | None
    """Height and width in pixels; none if it depends on the clip."""


class SizeHint(Ask, tag="size_hint"):
    """Why the size that goes out depends on the clip; asked if `own` has it. Answer: `Text`."""

    op: str
    params: Params


class Resolve(Ask, tag="resolve"):
    """Make all random choices for n clips; asked if `own` has it. Answer: `Resolved`, or `Failed` as `bad_input`.

    The numbers belong to the clips and to nobody's generator: they are hashes of seed, scope and the addresses here, so
    that every process draws the same (docs/design/0005-randomness.md).
    """

    op: str
    params: Params
    seed: int
    scope: str
    ordinal: int
    """How many operations of the same scope stand before this one in the task's configuration."""
    independent: int
    """0, or the task's address word: an unsigned integer of 64 bits."""
    video: bytes
    """uint64, little-endian, n: address words of the videos."""
    epoch: bytes
    """int64, n."""
    sample: bytes
    """int64, n."""
    height: bytes
    """int64, n: of the frames that come in, in pixels."""
    width: bytes
    """int64, n."""


class Memory(Ask, tag="memory"):
    """Use the shared memory whose descriptor comes with this frame, instead of the last one. Answer: `Ok`."""

    size: int
    """In bytes."""


class Apply(Ask, tag="apply"):
    """Apply an operation to frames, which lie one after the other from the memory's beginning. Answer: `Applied`.

    What comes out is written one after the other from `out` on. If there is no room for it, the answer is `TooSmall`.
    """

    op: str
    params: Params
    row: tuple[int, ...]
    """What was drawn for the clip."""
    frames: int
    height: int
    width: int
    """Each frame is (3, height, width) uint8, in C order."""
    out: int
    """Offset in the memory, in bytes."""


class ApplyClip(Ask, tag="apply_clip"):
    """Apply an operation of the stage `clip` to all frames of one clip. Answer: `Applied`, with one size for all.

    They lie, and what comes out is written, as with `apply`; there are as many. Asked of operations of that stage only.
    """

    op: str
    params: Params
    row: tuple[int, ...]
    """What was drawn for the clip."""
    frames: int
    height: int
    width: int
    """Each frame is (3, height, width) uint8, in C order."""
    out: int
    """Offset in the memory, in bytes."""


ALL = Hello | Parse | KeyParams | OutSize | SizeHint | Resolve | Memory | Apply | ApplyClip
"""Every question."""
