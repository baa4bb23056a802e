"""How much one call to an op worker carries."""

from typing import Final

__all__ = ["CALL_BYTES", "FRAMES"]

FRAMES: Final = 16
"""Most frames of one call: it costs a tenth of a millisecond, whatever it has to do."""

CALL_BYTES: Final = 64 << 20
"""Most bytes of the frames of one call, unless one frame is larger."""
