"""What ``cache.show`` gives: a picture that a notebook shows and that can be saved, still or moving."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from viewcache.api.pictures.canvas import Pixels
from viewcache.api.pictures.encode import MOVING, check_file, moving, png, write

__all__ = ["Film", "Picture"]


@dataclass(frozen=True, slots=True)
class Film:
    """A moving picture that is drawn when it is asked for."""

    fps: float
    """Pictures a second."""
    count: int
    """Pictures in all."""
    pictures: Callable[[], Iterator[Pixels]]
    """Draws them, all of one size, from the first on."""


@dataclass(frozen=True, slots=True, repr=False)
class Picture:
    """A batch or a video, drawn.

    A notebook shows it. The sheet is drawn already; the frames of a video's film are read from the cache when it is
    saved as one.
    """

    sheet: Pixels
    """The contact sheet, uint8 (height, width, 3) in RGB."""
    film: Film
    """The same as a moving picture."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """What is shown, as plain values: task, epoch, seed, and of each clip its video, label, frames and recipe."""

    def save(self, file: str | os.PathLike[str]) -> Path:
        """Write it to a file: ``.png`` is the sheet, ``.gif``, ``.webp`` and ``.mp4`` are moving pictures.

        Returns:
            The file.

        Raises:
            BadInput: the file's ending is another one, or it has no folder.
            Broken: it cannot be written.
            ViewcacheError: a frame of the film cannot be read.
        """
        path = check_file(file)
        ending = path.suffix.lower()
        write(path, moving(self.film.pictures(), self.film.fps, ending) if ending in MOVING else self.png())
        return path

    def png(self) -> bytes:
        """The sheet as a PNG."""
        return png(self.sheet)

    def _repr_png_(self) -> bytes:
        """What a notebook shows."""
        return self.png()

    def __repr__(self) -> str:
        """What it shows, and how it goes on."""
        shown = ", ".join(
            f"{name}={self.facts[name]!r}" for name in ("task", "video", "epoch", "iteration") if name in self.facts
        )
        height, width = self.sheet.shape[:2]
        return f"<Picture of {shown}: {width}x{height}; .save('x.png'), or x.gif, x.webp, x.mp4 with motion>"
