"""What bytes are worth now, in core seconds: having them in the budget, and reading them from a disk.

A value that who decides what is kept gives to who decides how it is packed.
"""

from dataclasses import dataclass

__all__ = ["Prices"]


@dataclass(frozen=True, slots=True)
class Prices:
    """Of the local tier. Without pressure on bytes, and without a measured disk that is waited for, all is 0."""

    byte_s: float = 0.0
    """What a byte more of the budget would save, for a generation."""
    read_s: float = 0.0
    """What it costs to read a byte from the disk, beside the core's own work for it."""
    generations: float = 1.0
    """So many read what lasts, this one among them."""
