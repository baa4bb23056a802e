"""``viewcache.open``: attach to the service of a store, start it, or own the store in this process."""

import logging
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from viewcache.api.config.documents import texts_of
from viewcache.api.config.load import Config, ConfigSource, load, sources_of
from viewcache.api.service.jobs import ENVIRONMENT as JOB
from viewcache.api.service.jobs import current_job
from viewcache.errors import BadInput, CatalogBusy
from viewcache.materializer.choices import ServiceMode
from viewcache.suggest import did_you_mean

if TYPE_CHECKING:
    from viewcache.api.session.cache import Cache
    from viewcache.materializer.dataset.listing import Progress

__all__ = ["ENVIRONMENT", "open"]

_log = logging.getLogger("viewcache.service")

ENVIRONMENT = "VIEWCACHE_SERVICE"
"""Who owns stores, whatever configurations say: ``auto``, ``off`` or ``attach``."""


def open(
    source: ConfigSource | Iterable[ConfigSource],
    *,
    service: str | None = None,
    job: str | None = None,
    progress: "Progress | None" = None,
) -> "Cache":
    """Open the cache that a configuration describes.

    Args:
        source: path of a YAML file, YAML text, a mapping, or several of these.
        service: who owns the store: ``off``, this process; ``auto``, a service that is started if none runs;
            ``attach``, a service that runs. None = as ``VIEWCACHE_SERVICE`` says, else ``cache.service``.
        job: which of several equal trainings this process belongs to, as a trial of a search; each has draws of its
            own. None = as ``VIEWCACHE_JOB`` says, else the trial that Ray Tune runs here, else none.
        progress: called while files are scanned, with (done, in all, name); by a service about twice a second.

    Returns:
        The cache. One that a service owns has the same tasks, batches, frames and loaders; see docs/service.md for
        what it has not.

    Raises:
        ConfigError: the configuration is wrong; with file, line and column. Or it contradicts the running service's.
        DatasetNotFound: a dataset's folder or label table is not there, or holds no videos.
        BadVideo: a video cannot be decoded and its task's policy is ``raise``.
        BudgetTooSmall: the budget cannot hold one batch; ``minimum`` says what would do.
        CatalogBusy: another process has the cache open; the message says who and how to proceed.
        BadInput: ``source`` is no configuration, there is no such way to own the store, or a job is named, and this
            process is to own it.
        ServiceDown: no service runs, and none may be, or can be, started.
        ServiceVersion: one of another version runs.
    """
    sources = sources_of(source)
    config = load(sources)
    mode = _mode(service, config.cache.service)
    if mode == ServiceMode.OFF:
        _refuse_job(job)
        return _owned(config, progress)
    from viewcache.api.service.attached import AttachedCache

    may_start = mode == ServiceMode.AUTO
    attached = AttachedCache(config, texts_of(sources), current_job(job), may_start=may_start, progress=progress)
    for warning in attached.differing:
        _log.warning("%s", warning, extra={"action": "settings_differ"})
    # What both have in common is `OpenCache` and more; users are spared the choice between two types.
    return cast("Cache", attached)


def _refuse_job(job: str | None) -> None:
    """A process that owns a store for itself draws as the task, whatever it is called: it must not seem otherwise."""
    named, cure = f"job={job!r}", ""
    if job is None and (job := os.environ.get(JOB)):
        named, cure = f"{JOB}={job!r}", ", or unset it"
    if job:
        raise BadInput(f"{named}: jobs share a cache through its service; set service: auto or attach{cure}")


def _owned(config: Config, progress: "Progress | None") -> "Cache":
    from viewcache.api.session.cache import Cache  # it loads the database

    try:
        return Cache(config, progress=progress)
    except CatalogBusy as busy:
        from viewcache.api.service.watching import explained

        told = explained(busy)
        if told is busy:
            raise
        raise CatalogBusy(f"{told}. Or read through it: service: auto", told.pid, told.folder) from None


def _mode(given: str | None, configured: ServiceMode) -> ServiceMode:
    for name, value in (("service", given), (ENVIRONMENT, os.environ.get(ENVIRONMENT))):
        if value not in (None, ""):
            try:
                return ServiceMode(value)
            except ValueError:
                question = did_you_mean(value, ServiceMode)
                cure = f"; {question}" if question else ""
                allowed = ", ".join(ServiceMode)
                raise BadInput(f"{name}={value!r}: who owns the store is one of {allowed}{cure}") from None
    return configured
