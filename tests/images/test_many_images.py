"""What an open dataset of many images takes of memory."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from viewcache.catalog import Catalog
from viewcache.materializer.dataset.files import Files
from viewcache.materializer.dataset.listed import Listed

COUNT = 100_000


def test_of_an_image_little_more_is_held_than_what_is_its_own(tmp_path: Path) -> None:
    """Of 100,000 known images, a few of them bad: what all share takes a byte or two of each, on record and in use."""
    catalog = Catalog.open(tmp_path / "catalog")
    try:
        dataset, numbers = catalog.register_dataset("/images"), np.arange(COUNT)
        paths = [f"class{number % 100:03}/{number:06}.jpg" for number in range(COUNT)]
        own: dict[str, Any] = {
            "uri": [f"/images/{path}" for path in paths],
            "name": [path.removesuffix(".jpg").replace("/", ".-") for path in paths],
            "key": [f"{number:032x}" for number in range(COUNT)],
            "size_bytes": numbers + 1000,
            "mtime_ns": numbers,
            "index_at": numbers * 328,
            "width": 200 + numbers % 300,
            "height": 200 + numbers // 300 % 2,
        }
        shared = {"etag": "", "frames": 1, "rotation": 0, "codec": "mjpeg", "pix_fmt": "yuvj420p", "keyframes": 1}
        table = own | {name: [value] * COUNT for name, value in shared.items()}
        table |= {"status": ["ok"] * (COUNT - 3) + ["bad"] * 3, "error": [None] * (COUNT - 3) + ["it is cut"] * 3}
        table["frames"] = [1] * (COUNT - 3) + [None] * 3
        catalog.upsert_videos(dataset, pa.table(table))
        rows = catalog.load_videos(dataset)
        texts = sum(rows[name].nbytes for name in ("uri", "name", "key"))
        assert rows.nbytes < texts + 90 * COUNT  # 40 of them numbers of its own, see `schemas.VIDEO`
        listed = Listed.below("/images/", zip(paths, own["size_bytes"], own["mtime_ns"], strict=True))
        del table, own
        arrow = pa.total_allocated_bytes()
        tracemalloc.start()
        try:
            files = Files(catalog, "/images", dataset, rows, listed, {}, (), max_pixels=1 << 30)
            held, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        arrow = pa.total_allocated_bytes() - arrow - files.names.array.nbytes
        assert held + arrow < 100 * COUNT
        assert most < 150 * COUNT
        assert files.frames[[0, COUNT - 1]].tolist() == [1, 0]
        assert [int(files.width[COUNT - 1]), int(files.height[350])] == [200 + (COUNT - 1) % 300, 201]
        files.headers.close()
    finally:
        catalog.close()
