"""Jobs: trainings of equal tasks side by side, as the trials of a search (JOADER, section 4).

A job reads tasks of its own, of the same definition: with draws of their own, which are drawn together with those of
the others, so that one decode serves all of them. Without a name a training reads the tasks themselves.
"""

import os
import re
import sys
from dataclasses import replace

from viewcache.api.arguments import optional, text
from viewcache.api.config.load import Config
from viewcache.errors import BadInput

__all__ = ["ENVIRONMENT", "current_job", "of_job"]

ENVIRONMENT = "VIEWCACHE_JOB"
"""Names the job of a process."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)


def current_job(given: str | None = None) -> str:
    """The job that this process belongs to: as given, as ``VIEWCACHE_JOB`` says, or the trial of Ray Tune; else none.

    Raises:
        BadInput: the name has other characters than a task's may have, or is no text.
    """
    given = optional(text, "job", given)
    job = given if given is not None else os.environ.get(ENVIRONMENT) or _trial()
    if job and not _NAME.fullmatch(job):
        raise BadInput(
            f"job {job!r}: at most 64 letters, digits, '.', '_' and '-', of which the first is a letter or digit"
        )
    return job


def _trial() -> str:
    """The trial that Ray Tune runs in this process; nothing of Ray is imported for it."""
    tune = sys.modules.get("ray.tune")
    if tune is None:
        return ""
    try:
        return str(tune.get_context().get_trial_id() or "")
    except (AttributeError, RuntimeError):  # no trial runs here
        return ""


def of_job(config: Config, job: str) -> Config:
    """The same with the tasks of a job."""
    if not job:
        return config
    return replace(config, tasks=tuple(replace(task, name=f"{task.name}.{job}") for task in config.tasks))
