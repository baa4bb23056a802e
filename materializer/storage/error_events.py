"""What could not be made, or not as it should be, as the catalog's ``errors`` has it; what is alike is told once."""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from viewcache.catalog.records import EventRow
from viewcache.errors import BadVideo, Broken, ViewcacheError

if TYPE_CHECKING:
    from viewcache.catalog import Catalog

__all__ = ["ErrorEvents"]

_log = logging.getLogger("viewcache.ledger")


class ErrorEvents:
    """Records it. One thread uses it."""

    def __init__(self, catalog: "Catalog") -> None:
        """Nothing was said yet."""
        self._catalog = catalog
        self._untracked: set[str] = set()
        """Audio tracks that a video lacks, as far as it was said."""
        self._unpacked: set[str] = set()
        """Why pictures could not be packed, as far as it was said."""

    def shortfalls(
        self, silenced: Mapping[str, str], unpacked: Mapping[str, str], untracked: Mapping[str, str]
    ) -> None:
        """Record what was made, but not as it should be; each is key → what is wrong, unless said otherwise.

        Args:
            silenced: audio of which something is silent because its video is damaged.
            unpacked: pictures that are stored as pixels because they could not be packed; each reason is told once.
            untracked: audio track → what a video has instead, whose clips are silent; told of its first video alone,
                since videos without it may be meant, and all of them mostly are not.
        """
        for why, count in Counter(silenced.values()).items():
            _log.warning("%s: %d clips are silent there", why, count, extra={"action": "audio_silenced"})
            self._catalog.add_events([EventRow("error", None, count=count, detail=f"{BadVideo.kind}: {why}")])
        for track, why in untracked.items():
            if track not in self._untracked:
                self._untracked.add(track)
                detail = f"{why}; its clips are silent (audio.on_no_audio), and those of others like it"
                _log.warning("%s", detail, extra={"action": "no_such_track"})
                self._catalog.add_events([EventRow("error", None, count=1, detail=f"{BadVideo.kind}: {detail}")])
        for why in sorted({*unpacked.values()} - self._unpacked):
            self._unpacked.add(why)
            detail = f"kept pictures take more room than they need to: {why}"
            _log.warning("%s", detail, extra={"action": "pictures_unpacked"})
            self._catalog.add_events([EventRow("error", None, count=1, detail=f"{Broken.kind}: {detail}")])

    def rebuilt(self, key: str, file: str, task_id: int | None) -> None:
        """Record that kept pictures of a file were damaged, and are made again."""
        _log.warning("kept pictures of %s are damaged and are made again: %s", file, key, extra={"action": "rebuild"})
        self._catalog.add_events([EventRow("rebuild", task_id)])

    def error(self, task_id: int, rows: int, error: ViewcacheError) -> None:
        """Record why clips of a task were not made."""
        lines = str(error).splitlines()  # of a traceback, whose it is and what it ends with
        reason = lines[0] if len(lines) < 2 else f"{lines[0]} {lines[-1]}"
        whose = task_id if task_id >= 0 else None
        self._catalog.add_events([EventRow("error", whose, count=rows, detail=f"{error.kind}: {reason}")])
