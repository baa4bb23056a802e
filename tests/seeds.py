"""What differs between commits, for tests that try something else with each, and the same again for the same one."""

import os
import subprocess
from functools import cache

from tests.house.tree import ROOT

__all__ = ["SEED", "commit_number", "commit_seed"]

SEED = "VIEWCACHE_TEST_SEED"
"""Environment variable that names a seed, to repeat what another commit's run found."""


@cache
def commit_seed() -> int:
    """The number that the environment names, else one from the hash of the commit; 0 outside of a checkout."""
    if named := os.environ.get(SEED):
        return int(named)
    return int(_git("rev-parse", "--short=8", "HEAD")[:8] or "0", 16)


@cache
def commit_number() -> int:
    """How many commits there are up to this one, if all are known here, else `commit_seed`."""
    if _git("rev-parse", "--is-shallow-repository") == "false":
        return int(_git("rev-list", "--count", "HEAD") or "0")
    return commit_seed()


def _git(*arguments: str) -> str:
    """What git says of the checkout; nothing where there is none."""
    try:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
