"""For tests of what you add to viewcache: the promises of a tier as a class of pytest tests, and what they are made of.

``TierContract`` is what viewcache's own tiers run; docs/store.md shows how to subclass it. This package needs pytest,
which viewcache itself does not install.
"""

import pytest

# The asserts of a module that is no test module say what they compared only if pytest is told so before its import.
pytest.register_assert_rewrite("viewcache.testing.tier_contract", "viewcache.testing.leaks")

from viewcache.testing.leaks import nothing_left  # noqa: E402 - after the line above, which it needs
from viewcache.testing.objects import pixels, put, stored_of  # noqa: E402 - the same
from viewcache.testing.tier_contract import TierContract  # noqa: E402 - the same

__all__ = ["TierContract", "nothing_left", "pixels", "put", "stored_of"]
