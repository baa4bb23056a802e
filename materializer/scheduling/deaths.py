"""On which job workers die, how often it is tried again, and which image of a block is to blame.

The first death on a job of images says nothing of the image that the worker was on. When the job is made again it names
each image that it begins, so that the next deaths do; this is not asked of every job, since each word costs a message.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from viewcache.materializer.workers.job import Job
from viewcache.materializer.workers.pool import Event

__all__ = ["TRIES", "Blame", "Deaths"]

TRIES = 3
"""How often a video is given to a worker when workers die on it."""
MOST_TIMES = 2
"""So many times as often a block is, on which they die while on one image now and on another then: somebody else may
be ending them."""


@dataclass(frozen=True, slots=True)
class Blame:
    """What workers died on too often."""

    why: str
    """In words, with the file's name."""
    whole: tuple[str, ...]
    """Keys of objects that cannot be made."""
    parts: Mapping[str, Mapping[int, str]]
    """Key of a block → places in it of the image that is to blame → why."""

    @classmethod
    def of(cls, job: Job, image: str, deaths: int, reason: str) -> "Blame":
        """Blame one image of a job by its content key, or, with none, all that the job makes."""
        places = {
            clip.key: [place for place, part in enumerate(clip.parts) if part.source.key == image] for clip in job.clips
        }
        file = next((clip.parts[place].source.file for clip in job.clips for place in places[clip.key]), job.file)
        why = f"{file}: {deaths} workers died on it, the last was {reason}"
        block = job.block
        if not image:
            return cls(why, job.keys, {})
        parts = {} if block is None or not places[block.key] else {block.key: dict.fromkeys(places[block.key], why)}
        return cls(why, tuple(key for key, found in places.items() if found and key not in parts), parts)


class Deaths:
    """The deaths of workers on jobs that are not over. The dispatcher's own; used on its thread."""

    def __init__(self) -> None:
        """None yet."""
        self._begun: dict[str, list[str]] = {}
        """What a job is of → at each death the content key of the image that it had begun; "" where it named none."""

    def __bool__(self) -> bool:
        """Whether it is not clear yet on what workers die."""
        return bool(self._begun)

    def watched(self, job: Job) -> Job:
        """A job as it is given to a worker: it names its images if one has died on it."""
        return replace(job, names_images=True) if job.is_of_images and job.video_key in self._begun else job

    def over(self, job: Job) -> None:
        """A job came to its end."""
        self._begun.pop(job.video_key, None)

    def add(self, event: Event) -> Blame | None:
        """A worker died on a job; returns what is to blame, None if it is to be tried again."""
        job, image = event.job, event.begun
        begun = self._begun.setdefault(job.video_key, [])
        begun.append(image)
        is_clear = not job.is_of_images or begun[1:].count(image) >= TRIES - 1
        if len(begun) < TRIES * (1 if is_clear else MOST_TIMES):
            return None
        self.over(job)
        return Blame.of(job, image, len(begun), event.reason)
