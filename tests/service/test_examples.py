"""The examples of many processes, as their first lines say how to run them."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import yaml

from tests.service.served import described

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_two_ranks_by_torchrun(tmp_path: Path, store: Path, videos: Path) -> None:
    """Each video comes once over both ranks, in as many batches; gradients are shared at every step."""
    config = tmp_path / "train.yaml"
    config.write_text(yaml.safe_dump(described(store, videos)))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(EXAMPLES / "train_ddp.py"), str(config)],
        cwd=tmp_path, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = re.findall(r"rank (\d) of 2, batch (\d): videos \[([\d, ]+)\]", done.stdout)
    assert sorted((rank, batch) for rank, batch, _ in lines) == [(str(r), str(b)) for r in range(2) for b in range(5)]
    seen = Counter(number for _, _, numbers in lines for number in numbers.split(", "))
    assert sorted(seen.values()) == [2] * 10, "two samples of each video"
