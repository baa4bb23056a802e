"""What to do where a server does not let this process see a dataset, its list or its labels."""

from viewcache.materializer.media.reaching import is_refused

__all__ = ["cure"]


def cure(failed: BaseException) -> str:
    """What to check, to be put behind an error's text about a URL; empty if the failure is no refusal."""
    if not is_refused(failed):
        return ""
    return "; check its name, and the credentials and permissions of this process (environment or profile)"
