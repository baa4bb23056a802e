"""What an op worker answers: one struct for each kind, every field typed.

Nothing of it is believed before it was checked: an op worker runs code with libraries of its own, which may be wrong.
"""

from typing import Final

from msgspec import Struct

from viewcache.materializer.op_workers.asks import Params

__all__ = [
    "ALL",
    "ANSWER_BYTES",
    "Answer",
    "Applied",
    "Described",
    "Failed",
    "Ok",
    "Parsed",
    "Resolved",
    "Sized",
    "Text",
    "TooSmall",
    "Welcome",
]

ANSWER_BYTES: Final = 4 << 20
"""Most bytes of a frame from an op worker."""


class Answer(Struct, forbid_unknown_fields=True, kw_only=True):
    """What an op worker answers."""

    number: int = 0
    """Of the question."""


class Described(Struct, forbid_unknown_fields=True):
    """One operation, as its class says it (docs/custom-ops.md)."""

    name: str
    fingerprint: str
    """Of its code; enters content keys."""
    stage: str
    """`frame`: others are not served out of process."""
    native: bool = False
    """Whether it is a resize that is fused with decoding; such a one is not served either."""
    effect: str = ""
    """Empty = the name."""
    scope: str = ""
    """Empty = the name."""
    columns: tuple[str, ...] = ()
    """Names of the int32 values that are drawn for each clip."""
    keyed: tuple[str, ...] | None = None
    """Parameters that enter content keys; none = all."""
    sizes: bool = False
    """Whether the size that goes out may differ from the one that comes in."""
    own: tuple[str, ...] = ()
    """Which of `resolve`, `out_size`, `size_hint` and `key_params` are to be asked for."""


class Welcome(Answer, tag="welcome"):
    """What runs there, and what it can do."""

    protocol: int
    runtime: str
    """For people, such as `Python 3.11.7, NumPy 1.26.4`."""
    ops: tuple[Described, ...]
    versions: tuple[tuple[str, str], ...] = ()
    """Package → version, of those that were asked for."""


class Parsed(Answer, tag="parsed"):
    """Parameters in their canonical form, sorted by name: text, numbers, booleans, nothing, or lists of them."""

    params: Params


class Sized(Answer, tag="sized"):
    """A size."""

    size: tuple[int, int] | None
    """Height and width in pixels; none if it depends on the clip."""


class Text(Answer, tag="text"):
    """A few words."""

    text: str


class Resolved(Answer, tag="resolved"):
    """What was drawn."""

    rows: bytes
    """int32, little-endian, (n, columns)."""
    height: bytes
    """int64, n: of the frames that go out, in pixels."""
    width: bytes
    """int64, n."""


class Applied(Answer, tag="applied"):
    """The frames lie in the memory."""

    sizes: tuple[tuple[int, int], ...]
    """Height and width of each."""


class TooSmall(Answer, tag="too_small"):
    """Come again with a memory of this size; nothing was done."""

    size: int
    """In bytes, of the whole memory."""


class Ok(Answer, tag="ok"):
    """It is done."""


class Failed(Answer, tag="failed"):
    """It could not be done; the op worker goes on."""

    kind: str
    """`bad_input`: what was given is wrong, and the message says what is allowed; else `failed`."""
    message: str


ALL = Welcome | Parsed | Sized | Text | Resolved | Applied | TooSmall | Ok | Failed
"""Every answer."""
