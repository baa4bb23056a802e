"""What becomes of a bad video is found out beside the dispatcher: whoever has nothing to do with it does not wait."""

import threading
from pathlib import Path

import pytest

import viewcache
from tests.scheduling.harness import WAIT_S, until
from tests.tiny import config, encode_folder, open_cache
from viewcache.errors import BadVideo, ViewcacheError
from viewcache.materializer.media.source import Stamp
from viewcache.materializer.reading.deciding import Deciding
from viewcache.materializer.scheduling.bad_rows import BadClip, Undecided
from viewcache.materializer.tasks import missing

HELD_S = 5.0
"""How long the source does not answer, unless the test is over with it before."""


class Stalled:
    """Where files lie that cannot be asked for just now."""

    def __init__(self) -> None:
        self.asked, self.answers = threading.Event(), threading.Event()
        self.is_over = False
        """Whether somebody has waited to the end."""
        self.asked_by: list[str] = []

    def stamp(self, uri: str) -> Stamp | None:
        """Answers when it is told to."""
        self.asked_by.append(threading.current_thread().name)
        self.asked.set()
        self.is_over |= not self.answers.wait(HELD_S)
        return None


@pytest.mark.parametrize("policy", ["raise", "replace"])
def test_a_source_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    """A reader waits to hear whether its file has gone; another task reads on meanwhile."""
    one, other = (
        encode_folder(tmp_path / name, {f"{name}{k}.mp4": 40 + k for k in range(count)})
        for name, count in (("one", 3), ("other", 4))
    )
    first = config(tmp_path / "s", one, tag="one", on_bad_video=policy, cache={"worker_kind": "threads", "workers": 2})
    second = config(tmp_path / "s", other, tag="other")
    del second["cache"]
    stalled = Stalled()
    monkeypatch.setattr(missing, "stamp_now", stalled.stamp)
    got: list[object] = []

    def read_one() -> None:
        try:
            got.append(cache.read("one", 0, 0).videos)
        except BadVideo as error:
            got.append(error)

    with viewcache.open([first, second]) as cache:
        for iteration in range(cache.task("other").iterations(0)):  # planned, so that nothing else is waited for
            cache.task("other").describe(0, iteration)
        drawn = cache.task("one").describe(0, 0).videos
        for name in set(drawn):
            (one / name).with_suffix(".mp4").write_bytes(b"torn")
        reader = threading.Thread(target=read_one, daemon=True)
        reader.start()
        assert stalled.asked.wait(WAIT_S)
        for iteration in range(cache.task("other").iterations(0)):
            cache.read("other", 0, iteration)
        assert not got
        assert not stalled.is_over, "everybody waited for the source"
        stalled.answers.set()
        until(lambda: bool(got), "the decision")
        reader.join(WAIT_S)
    assert set(stalled.asked_by) == {"viewcache-deciding"}
    assert isinstance(got[0], BadVideo) == (policy == "raise"), got


def test_a_row_that_another_video_gives_meanwhile_says_nothing_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the file is gone is asked of the video that could not be made, not of the one that stands in for it."""
    videos = encode_folder(tmp_path / "videos", {f"v{k}.mp4": 40 + k for k in range(4)})
    stalled, answers = Stalled(), list[ViewcacheError | None]()
    with open_cache(tmp_path / "s", videos, on_missing_video="replace") as cache:
        task = cache.task("train").task
        active, deciding = task.generation(0), Deciding(cache.catalog, lambda: [task])
        ids = [active.video_id(row) for row in range(len(active.plan))]
        bad, other = ids[0], next(each for each in ids if each != ids[0])
        rows = [row for row, each in enumerate(ids) if each == bad]
        (videos / f"{active.plan.videos.names[int(active.plan.video[0])]}.mp4").unlink()

        def asked(rows: list[int]) -> None:
            with pytest.raises(Undecided) as undecided:
                deciding.on_bad(active, rows, "no such file")
            assert undecided.value.then is not None
            thens.append(undecided.value.then)

        thens: list[BadClip] = []
        with monkeypatch.context() as patch:
            patch.setattr(missing, "stamp_now", stalled.stamp)
            asked([ids.index(other)])
            assert stalled.asked.wait(WAIT_S)
            asked(rows)  # waits behind that
        assert task.substitute(active, rows[:1], "no such file", gone=True) is None
        stalled.answers.set()

        def is_decided() -> bool:
            try:
                answers.append(thens[1](active, rows, ""))
            except Undecided:
                return False
            return True

        until(is_decided, "the decision")
        assert answers == [None]
        assert bad not in [active.video_id(row) for row in rows]
