"""What a client of a service imports stays small: a DataLoader's worker, a rank and a notebook pay for it each."""

import json
import subprocess
import sys

HEAVY = ("duckdb", "pyarrow", "av", "cv2", "torch", "sqlalchemy", "alembic", "fsspec", "rich", "zarr")

PROGRAM = """
import json, re, sys, time
begun = time.process_time()
import viewcache.api.service.attached, viewcache.api.service.opening, viewcache.api.training.loader
taken = time.process_time() - begun
megabytes = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024
print(json.dumps([taken, megabytes, sorted(sys.modules)]))
"""


def test_a_client_loads_no_database_and_no_decoder() -> None:
    """Neither libraries that take long, nor much memory: aims 0.4 s of CPU and 40 MB, with room for a slow machine."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    taken_s, megabytes, modules = json.loads(done.stdout)
    assert not [name for name in HEAVY if name in modules]
    assert megabytes <= 48
    assert taken_s <= 2.0
