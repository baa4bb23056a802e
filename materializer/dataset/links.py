"""Which symbolic links of a dataset are followed: none that leaves its folder, unless the configuration says so."""

import os
from dataclasses import dataclass

from viewcache.errors import DatasetNotFound
from viewcache.materializer.spec import DatasetSpec

__all__ = ["NO_LINKS", "Links", "is_of_link", "links_of", "to_nothing"]

_LEAVES = "is a link that leaves the dataset's folder"


@dataclass(frozen=True, slots=True)
class Links:
    """Where links may lead."""

    follow: bool = False
    """Whether they may leave the folder that they lie in a dataset of, and whether linked folders are searched."""
    roots: tuple[str, ...] = ()
    """Absolute paths of folders that they may lead into besides."""

    def allows(self, path: str, base: str) -> bool:
        """Whether a path may be opened that was found below a folder: by where it really is."""
        real = os.path.realpath(path)
        return any(_inside(real, root) for root in ((base, *self.roots) if self.follow else (base,)))

    def problem(self, path: str) -> str:
        """Why a link is not followed that `allows` refuses."""
        if nothing := to_nothing(path):
            return nothing
        cure = "name a folder above that in link_roots" if self.follow else "set follow_links: true"
        return f"{_LEAVES} (to {os.path.realpath(path)}); links are followed only inside it: {cure}"


def to_nothing(path: str) -> str:
    """That a link's target is not there, in words; empty of any other path, and where that cannot be found out."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return f"is a link to nothing ({os.path.realpath(path)})" if os.path.islink(path) else ""
    except OSError:
        return ""
    return ""


def is_of_link(problem: str) -> bool:
    """Whether a file is bad because its link is not followed, and not by what it holds."""
    return _LEAVES in problem


def links_of(spec: DatasetSpec) -> Links:
    """Where the links of a dataset may lead.

    Raises:
        DatasetNotFound: a folder of `link_roots` is not there.
    """
    for root in spec.link_roots:
        if not os.path.isdir(root):
            raise DatasetNotFound(
                f"link_roots: {root} is no folder, so links into it would be left out without a word: name one that "
                "is there, or leave it out"
            )
    return Links(spec.follow_links, spec.link_roots)


def _inside(real: str, root: str) -> bool:
    root = os.path.realpath(root)
    return os.path.commonpath((real, root)) == root


NO_LINKS = Links()
