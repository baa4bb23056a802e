"""Numbers as words for people, and what a long command needs of whoever shows its progress.

These are the only functions that turn a size, a time or a count into text. Values hold numbers; a command or a page
calls these when it shows them.
"""

from contextlib import AbstractContextManager
from typing import Protocol

__all__ = ["Bar", "Console", "counted", "duration", "energy", "printable", "size"]


class Bar(Protocol):
    """What shows how far some work is."""

    def at(self, done: int, total: int, note: str = "") -> None:
        """``done`` of ``total`` parts are done; ``note`` is a few words about the last of them."""


class Console(Protocol):
    """What a command tells a person while it works."""

    def say(self, text: str) -> None:
        """Show a line of words, which is never part of the command's data."""

    def progress(self, what: str) -> AbstractContextManager[Bar]:
        """Show a bar while the block runs."""


def size(count: float) -> str:
    """Bytes for people: 3.2 MB."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(count) < 999.5 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}" if count < 100 else f"{count:.0f} {unit}"


def duration(seconds: float) -> str:
    """Seconds for people: 0.42 s, 75 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"


def energy(joules: float) -> str:
    """Joules for people: 0.42 J, 4.1 kJ, 12 MJ."""
    for unit in ("J", "kJ", "MJ", "GJ"):
        if joules < 999.5 or unit == "GJ":
            break
        joules /= 1000
    return f"{joules:.2g} {unit}" if joules < 99.5 else f"{joules:.0f} {unit}"


def counted(count: int, word: str, words: str = "") -> str:
    """A number with its word: 1 clip, 2 clips."""
    return f"{count} {word if count == 1 else words or word + 's'}"


def printable(text: str) -> str:
    """The text without characters that could steer a terminal; a file's name or an error may hold any."""
    return "".join(each if each.isprintable() or each in "\n\t" else f"\\x{ord(each):02x}" for each in text)
