"""What a benchmark runs in a process of its own is forked, as in other tests: a third of its time would be imports."""

from collections.abc import Iterator
from contextlib import ExitStack
from unittest.mock import patch

import pytest

from benchmarks import epoch, harness, planning, questions
from tests import forked


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    with ExitStack() as stack:
        for module in (epoch, harness, planning, questions):
            stack.enter_context(patch.object(module, "subprocess", forked))
        yield
