"""Ids of objects that several tasks name at once."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.catalog.samples import registered
from tests.plan.plans import plan_of, task_of, videos_of
from viewcache.catalog import Catalog
from viewcache.materializer.tasks.numbering import Numbering


def test_no_object_gets_two_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks number the same clips: the second looks for ids only when the first has recorded its own."""
    plan = plan_of(task_of(), videos_of(4))
    with Catalog.open(tmp_path) as catalog:
        tasks = [registered(catalog, name=name)[0].task_id for name in ("one", "two")]
        looking: list[Any] = []
        both = threading.Event()
        look = catalog.objects_by_key

        def seen(keys: Any) -> Any:
            found = look(keys)
            looking.append(keys)
            if len(looking) == 2:
                both.set()
            both.wait(0.3)  # for the other, who must not come
            looking.pop()
            return found

        monkeypatch.setattr(catalog, "objects_by_key", seen)

        def number(task_id: int) -> list[int]:
            ids = np.zeros(len(plan), np.int64)
            Numbering(catalog, task_id).some(plan, np.arange(len(plan)), ids)
            return [int(each) for each in ids]

        with ThreadPoolExecutor(2) as pool:
            one, two = pool.map(number, tasks)
        assert one == two
        assert not both.is_set()
