"""What work takes of energy: the watts of a core, and meters: RAPL of x86 processors, as Linux shows them.

Meters count all that a machine does, so their figures stand beside those of a cache and are never split among its
work. Many systems let nobody but root read them: then there is no meter, which is no error.
"""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CORE_W", "POWERCAP", "Rapl"]

CORE_W = 5.0
"""Watts of a core at work, where nothing else is said: DDLP §VI.B takes 200 W for 40 threads."""

POWERCAP = Path("/sys/class/powercap")
"""Where Linux shows meters."""

PARTS = ("package", "dram")
"""Parts of a machine that add up: cores and their like are inside a package, `psys` is around it."""


@dataclass(slots=True)
class _Zone:
    """One meter."""

    part: str
    folder: Path
    range_uj: int
    """Microjoules after which it begins at zero again; 0 = it does not say."""
    last_uj: int

    def grown_uj(self) -> int:
        """Microjoules since this was asked last; 0 if it cannot be read now, then the next answer has them."""
        now = _number(self.folder / "energy_uj")
        if now is None:
            return 0
        grown, self.last_uj = now - self.last_uj, now
        return grown if grown >= 0 else max(0, grown + self.range_uj)


class Rapl:
    """The meters of this machine that can be read. It must be asked more often than one begins anew: minutes."""

    def __init__(self, folder: Path = POWERCAP) -> None:
        """Begin to count now."""
        self._zones = _zones(folder)

    def __bool__(self) -> bool:
        """Whether there is a meter."""
        return bool(self._zones)

    def joules(self) -> dict[str, float]:
        """Joules by part (`PARTS`) since this was asked last, all sockets together; empty without a meter."""
        found: defaultdict[str, float] = defaultdict(float)
        for zone in self._zones:
            found[zone.part] += zone.grown_uj() * 1e-6
        return dict(found)


def _zones(folder: Path) -> list[_Zone]:
    found = []
    for path in sorted(folder.glob("intel-rapl:*")):  # AMD's have the same name; those by MMIO are the same again
        name = _text(path / "name")
        part = next((part for part in PARTS if name.startswith(part)), None)
        last = _number(path / "energy_uj")
        if part is not None and last is not None:
            found.append(_Zone(part, path, _number(path / "max_energy_range_uj") or 0, last))
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdecimal() else None
