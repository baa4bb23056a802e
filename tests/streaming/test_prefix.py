"""A prefix of a bucket grows like a folder: what one LIST shows is whole, and joins at once."""

from pathlib import Path

import pytest

import viewcache
from tests.servers.seaweed import Seaweed, connected
from tests.streaming.arriving import epoch_of, streaming


@pytest.mark.usefixtures("bucket")
def test_objects_that_are_put_join_at_the_next_generation(
    tmp_path: Path, clips: list[Path], seaweed: Seaweed, bucket: str
) -> None:
    """The listing that the file system remembers is not taken for what is there; young objects need not settle."""
    with connected(seaweed) as client:

        def put(*files: Path) -> None:
            for each in files:
                client.put_object(Bucket=bucket, Key=f"clips/{each.name}", Body=each.read_bytes())

        put(*clips[:3])
        given = streaming(tmp_path / "s", Path("unused"), video_dataset_path=f"s3://{bucket}/clips", join="epoch")
        with viewcache.open(given) as cache:
            assert sorted(epoch_of(cache, 0)) == ["v0", "v1", "v2"]
            cache.owner.look_ahead.wait_idle(60)
            put(*clips[3:5])
            assert len(epoch_of(cache, 1)) == 3
            assert sorted(epoch_of(cache, 2)) == ["v0", "v1", "v2", "v3", "v4"]
            client.delete_object(Bucket=bucket, Key="clips/v0.mp4")
            assert cache.task("train").iterations(7) == 2
