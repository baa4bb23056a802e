"""What to do where a server does not let this process see a dataset, its list or its labels.

Packages of file systems have errors of their own, which are told by what they say of themselves: none is imported here.
"""

from collections.abc import Iterator

__all__ = ["cure"]

_STATUS = frozenset({401, 403, 407})
"""Of HTTP: who are you, you may not, and a proxy's."""

_CLASSES = ("credential", "authentication", "signatureerror", "refresherror", "tokenretrieval")
"""Parts of the names of errors about credentials, as botocore's, Google's and Azure's."""


def cure(failed: BaseException) -> str:
    """What to check, to be put behind an error's text about a URL; empty if the failure is no refusal."""
    if not any(_is_refusal(each) for each in _causes(failed)):
        return ""
    return "; check its name, and the credentials and permissions of this process (environment or profile)"


def _causes(failed: BaseException) -> Iterator[BaseException]:
    each: BaseException | None = failed
    while each is not None:
        yield each
        each = each.__cause__


def _is_refusal(failed: BaseException) -> bool:
    if isinstance(failed, PermissionError):
        return True
    if any(getattr(failed, name, None) in _STATUS for name in ("status", "status_code", "code")):
        return True
    names = [each.__name__.lower() for each in type(failed).__mro__]
    return any(part in name for name in names for part in _CLASSES)
