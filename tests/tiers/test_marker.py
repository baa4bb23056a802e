"""A bucket whose marker was deleted, alone or with all the rest, is looked through at the next start, and marked."""

from pathlib import Path

import pytest

import viewcache
from tests.faults.caches import read_all
from tests.scheduling.harness import until
from tests.servers.seaweed import Seaweed, connected
from tests.tiers.task import EPOCHS
from tests.tiers.test_caring import findings, made, objects_in
from tests.tiers.test_moving import Truth, tiered
from viewcache import store
from viewcache.api.audit.verify import verify
from viewcache.api.config.find import Located
from viewcache.api.upkeep.doctor_cache import Recorded
from viewcache.api.upkeep.doctor_cache import bucket as look_at_bucket
from viewcache.api.upkeep.gc import collected
from viewcache.errors import BadInput

MARKER = f"cache/{store.MARKER}"


def lying_there(seaweed: Seaweed, bucket: str) -> set[str]:
    """All files of the bucket."""
    with connected(seaweed) as client:
        return {each["Key"] for each in client.list_objects_v2(Bucket=bucket).get("Contents", [])}


def delete(seaweed: Seaweed, bucket: str, *files: str) -> None:
    """As a lifecycle rule does, or somebody by hand."""
    with connected(seaweed) as client:
        for file in files:
            client.delete_object(Bucket=bucket, Key=file)


def opens_again(folder: Path, videos: Path, bucket: str, seaweed: Seaweed, truth: Truth) -> None:
    """It is marked, and the catalog says what lies there, no more and no less; then every batch is right."""
    assert MARKER not in lying_there(seaweed, bucket)
    viewcache.open(tiered(folder, videos, bucket)).close()
    assert MARKER in lying_there(seaweed, bucket)
    assert findings(Located(str(folder), str(folder))) == {"bucket": "ok", "bucket objects": "ok"}
    with viewcache.open(tiered(folder, videos, bucket)) as cache:
        assert dict(read_all(cache, EPOCHS)) == truth


@pytest.mark.parametrize("gone", [0, 3], ids=["alone", "with-objects"])
def test_a_marker_that_a_rule_of_the_bucket_took(
    tmp_path: Path, videos: Path, bucket: str, seaweed: Seaweed, truth: Truth, gone: int
) -> None:
    """It is the oldest file: `gc` and `verify` work without it and write nothing, and the next start puts it back."""
    located, _, remote = made(tmp_path / "cache", videos, bucket)
    oldest = sorted(objects_in(seaweed, bucket))[:gone]
    lost = {file for file in lying_there(seaweed, bucket) if file == MARKER or file.split("/")[-2] in oldest}
    delete(seaweed, bucket, *lost)
    assert collected(located, dry_run=True).missing == gone
    assert len(verify(located, repair=False).damaged) == gone
    assert len(objects_in(seaweed, bucket)) == remote - gone
    opens_again(tmp_path / "cache", videos, bucket, seaweed, truth)


def test_a_bucket_that_is_emptied_under_a_training(
    tmp_path: Path, videos: Path, bucket: str, seaweed: Seaweed, truth: Truth
) -> None:
    """No batch is another one, objects move there anew, and the next start takes what lies there then."""
    folder = tmp_path / "cache"
    with viewcache.open(tiered(folder, videos, bucket)) as cache:
        making = iter(cache.materialize())
        for _ in making:
            if objects_in(seaweed, bucket):
                break
        delete(seaweed, bucket, *lying_there(seaweed, bucket))
        list(making)
        until(lambda: bool(objects_in(seaweed, bucket)), "an object in the bucket that was emptied")
        assert dict(read_all(cache, EPOCHS)) == truth
    opens_again(folder, videos, bucket, seaweed, truth)


def test_a_bucket_of_somebody_else_is_not_promised_to_be_done_without(
    tmp_path: Path, videos: Path, bucket: str, seaweed: Seaweed
) -> None:
    """No start goes on without it, and the doctor does not say so."""
    located, _, _ = made(tmp_path / "cache", videos, bucket)
    delete(seaweed, bucket, MARKER)
    with connected(seaweed) as client:
        client.put_object(Bucket=bucket, Key="cache/zarr.json", Body=b"{}")
    (found,) = look_at_bucket(Recorded(located))
    assert (found.level, found.cure) == ("fail", "")
    with pytest.raises(BadInput, match=r"zarr\.json"):
        viewcache.open(tiered(tmp_path / "cache", videos, bucket))
