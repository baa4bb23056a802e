"""The seed of the tests that try something else with each commit, and the same again for the same commit."""

import os
import subprocess
from functools import cache

from tests.house.tree import ROOT

__all__ = ["SEED", "commit_seed"]

SEED = "VIEWCACHE_TEST_SEED"
"""Environment variable that names a seed, to repeat what another commit's run found."""


@cache
def commit_seed() -> int:
    """The number that the environment names, else one from the hash of the commit; 0 outside of a checkout."""
    if named := os.environ.get(SEED):
        return int(named)
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=8", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(done.stdout.strip()[:8], 16)
