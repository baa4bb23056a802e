"""A trace opens in Perfetto itself, which finds in it what was written."""

from collections import Counter
from pathlib import Path

import pytest

import viewcache
from tests.faults.caches import config
from tests.scheduling.trace_events import read
from tests.servers.perfetto import ask_perfetto, missing_part

SLICES = """
select t.name as track, s.name as name
from slice s join thread_track k on s.track_id = k.id join thread t using (utid)
"""
ERRORS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
COUNTERS = "select distinct t.name as name from counter c join track t on c.track_id = t.id"


@pytest.mark.long
def test_perfetto_opens_a_trace(tmp_path: Path, videos: Path) -> None:
    """Every slice and instant is on its track under its name, every counter is there, and the import had no error."""
    if missing := missing_part():
        pytest.skip(missing)
    path = tmp_path / "trace.json"
    with viewcache.open(config(tmp_path / "store", videos, trace=str(path))) as cache:
        for iteration in range(cache.task("t").iterations(0)):
            cache.read("t", 0, iteration)
    events = read(path)
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    slices, errors, counters = ask_perfetto(path, SLICES, ERRORS, COUNTERS)
    assert not errors
    written = Counter((tracks.get(event["tid"]), event["name"]) for event in events if event["ph"] in "Xi")
    assert Counter((row["track"], row["name"]) for row in slices) == written
    assert sum(written.values()) > 20
    names = {event["name"] for event in events if event["ph"] == "C"}
    assert names
    assert all(any(row["name"].startswith(name) for row in counters) for name in names)
