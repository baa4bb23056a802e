"""What workers and their owner say to each other arrives whole, in order, and as what it was."""

import inspect
import pickle
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewcache.materializer.clock import Span
from viewcache.materializer.media.facts import Claims, ManyClaims
from viewcache.materializer.media.source import Stamp
from viewcache.materializer.planning.columns import BlockParts, ClipRecipes, VideoSources
from viewcache.materializer.planning.program import Instruction, InstructionKind, Program
from viewcache.materializer.planning.recipe import VideoSource
from viewcache.materializer.workers.job import Made, Report
from viewcache.materializer.workers.post import VALUES, Post
from viewcache.store import Written
from viewcache.store.format import ChunkTable

Pair = tuple[Post, socket.socket]

TABLE = ChunkTable((0, 40), (40, 44), (7, 8))
WRITTEN = Written("k" * 32, "objects/kk/k", 100, 90, "raw", (2, 3), 1, TABLE.to_bytes(), 7, 0.25, existed=False)
CLAIMS = ManyClaims(
    [10, 20], [1, 2], ["", "e"], [1, 1], [30, 40], [50, 60], ["gray"] * 2, 9, ["", "bad"], [None, None], True
)
SOURCES = VideoSources(["/a", "/b"], ["a", "b"], ["k" * 32, "l" * 32], [b"", b""], [1, 1], CLAIMS)
SECOND = VideoSource("/b", "b", "l" * 32, b"", 1, Claims(Stamp(20, 2, "e"), 1, 40, 60, "gray", 9, "bad", None, True))
MADE = Made("k" * 32, WRITTEN, {"decode": 0.5}, Span(1.0, 2.0))


@pytest.fixture
def ends() -> Iterator[Pair]:
    """One end as we use it, and the other one bare."""
    ours, theirs = socket.socketpair()
    with theirs:
        post = Post(ours)
        yield post, theirs
        post.close()


def raw(obj: object) -> bytes:
    """A message as it travels."""
    body = pickle.dumps(obj)
    return struct.pack("!I", len(body)) + body


@given(messages=st.lists(st.binary(max_size=50), max_size=20), cuts=st.lists(st.integers(1, 60)))
def test_however_it_is_cut_it_arrives(messages: list[bytes], cuts: list[int]) -> None:
    """All messages arrive once, in order, whatever pieces they come in; none before it is whole."""
    ours, theirs = socket.socketpair()
    with theirs:
        post, stream = Post(ours), b"".join(map(raw, messages))
        heard: list[bytes] = []
        at = whole = 0
        ends = [len(b"".join(map(raw, messages[: k + 1]))) for k in range(len(messages))]
        for cut in [*cuts, len(stream)]:
            theirs.sendall(stream[at : at + cut])
            at += cut
            whole = sum(end <= at for end in ends)
            assert post.poll() == (whole > len(heard))
            heard += post.receive()
            assert heard == messages[:whole]
        assert whole == len(messages)
        post.close()


def test_one_after_the_other(ends: Pair) -> None:
    """A worker that takes one message leaves the others where they are."""
    post, theirs = ends
    theirs.sendall(raw(1) + raw(2))
    assert (post.recv(), post.poll(), post.recv(), post.poll()) == (1, True, 2, False)


def test_what_was_said_before_the_end_counts(ends: Pair) -> None:
    """Messages of an end that was closed are given first, then EOFError; half a message is none."""
    post, theirs = ends
    theirs.sendall(raw(1) + raw(2)[:-1])
    theirs.close()
    assert post.recv() == 1
    assert post.poll()
    for _ in range(2):
        with pytest.raises(EOFError):
            post.recv()
        with pytest.raises(EOFError):
            list(post.receive())


def test_a_worker_that_died_was_heard_out(ends: Pair) -> None:
    """`receive` gives what came before the end, and says that it is the end when there is nothing else to say."""
    post, theirs = ends
    theirs.sendall(raw(1) + raw(2))
    theirs.close()
    assert list(post.receive()) == [1, 2]
    with pytest.raises(EOFError):
        list(post.receive())


def test_nobody_listens_any_more(ends: Pair) -> None:
    """Speaking to an end that was closed is an OSError, as callers expect it."""
    post, theirs = ends
    theirs.close()
    with pytest.raises(OSError):  # noqa: PT011 - which one depends on what was under way
        post.send(1)


def test_more_than_a_buffer_holds(ends: Pair) -> None:
    """A message larger than the socket's buffer, and than what is read at once, goes through."""
    post, theirs = ends
    other = Post(theirs.dup())
    big = bytes(3 << 20)
    sender = threading.Thread(target=post.send, args=(big,))
    sender.start()
    assert other.recv() == big
    sender.join()
    other.close()


def test_a_worker_that_does_not_listen(ends: Pair) -> None:
    """Where the socket has a limit, speaking ends with BlockingIOError rather than never."""
    ours, theirs = socket.socketpair()
    with theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 50_000))
        post = Post(ours)
        with pytest.raises(BlockingIOError):
            post.send(bytes(8 << 20))
        post.close()


@pytest.mark.parametrize("what", [(1, MADE), (2, Report({"decode": 1.0}, damaged=("k",))), TABLE, SOURCES, 7])
def test_values_are_what_they_were(ends: Pair, what: Any) -> None:
    """A value arrives equal, also where it is pickled by its fields."""
    post, theirs = ends
    other = Post(theirs.dup())
    post.send(what)
    got = other.recv()
    assert got == what
    assert type(got) is type(what)
    other.close()


def test_parts_of_a_block_are_put_together_when_asked_for(ends: Pair) -> None:
    """What arrives as columns gives each part with its own values, from either end, and several as a list."""
    post, theirs = ends
    other = Post(theirs.dup())
    first, second = Program((Instruction(InstructionKind.OP, (0,), 1, "crop", width=1),)), Program(())
    drawn, frames = np.array([[5], [0]], np.int32), np.array([[0], [3]], np.int32)
    post.send(
        BlockParts(SOURCES, ClipRecipes(["p" * 32, "q" * 32], [first, second], drawn, frames, (1, 3, 4, 4), [7, 8], 99))
    )
    parts = other.recv()
    assert len(parts) == 2
    for part in (parts[1], parts[-1], parts[1:][0], list(parts)[1]):
        recipe = part.recipe
        assert part.source == SECOND
        assert (recipe.key, recipe.program, recipe.shape) == ("q" * 32, second, (1, 3, 4, 4))
        assert (recipe.row.tolist(), recipe.frames.tolist(), recipe.due, recipe.bound) == ([], [3], 8, 99)
    assert (parts[0].recipe.row.tolist(), parts[0].source.claims.error) == ([5], "")
    with pytest.raises(IndexError):
        parts[2]
    other.close()


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
def test_values_are_all_of_their_fields(kind: type) -> None:
    """What is made again from its fields has no other state: each of them is an argument, in this order."""
    assert [*inspect.signature(kind).parameters] == [each.name for each in fields(kind)]
    assert not any(each.kw_only for each in fields(kind))
