"""The packet index: small, safe to read from a damaged catalog, and right about where decoding must start."""

import itertools
import zlib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clips import FAMILIES
from viewcache.errors import CatalogDamaged
from viewcache.materializer.media.index import HIDDEN, KEY, REFERENCE, VideoIndex
from viewcache.materializer.media.probe import probe


def made(
    order: list[int], keys: list[int], hidden: tuple[int, ...] = (), mode: str = "packets", packets: int | None = None
) -> VideoIndex:
    """An index of invented packets: ``order[i]`` is the packet that holds frame i."""
    count = packets or len(order) + len(hidden)
    flags = np.full(count, REFERENCE, np.uint8)
    flags[keys] |= KEY
    flags[list(hidden)] |= HIDDEN
    return VideoIndex(
        codec="h264",
        decoder="h264",
        extradata=b"\x01extra",
        width=64,
        height=48,
        pix_fmt="yuv420p",
        color_space=1,
        color_range=2,
        rotation=90,
        time_base=(1, 12800),
        fps=25.0,
        mode=mode,
        stream=0,
        file_size=1234,
        mtime_ns=5,
        etag="",
        damage="",
        pos=np.arange(count, dtype=np.int64) * 100,
        size=np.full(count, 90, np.int32),
        crc=np.arange(count, dtype=np.uint32) * 2654435761,
        pts=np.arange(count, dtype=np.int64) * 512,
        dts=np.arange(count, dtype=np.int64) * 512 - 1024,
        flags=flags,
        order=np.array(order, np.int32),
        frame_pts=np.arange(len(order), dtype=np.int64) * 512,
    )


def same(one: VideoIndex, other: VideoIndex) -> bool:
    """Whether all fields are equal."""
    return all(np.array_equal(getattr(one, each.name), getattr(other, each.name)) for each in fields(one))


@pytest.mark.parametrize("name", FAMILIES)
def test_round_trip(name: str, family: Callable[[str], Path]) -> None:
    """What is read back is what was written, in at most 40 bytes a packet."""
    index = probe(str(family(name)))
    blob = index.to_bytes()
    assert same(VideoIndex.from_bytes(blob), index)
    assert len(blob) < 1024 + len(index.extradata) + 40 * len(index.flags)


@given(st.data())
def test_damaged_blobs_are_refused(data: st.DataObject) -> None:
    """Whatever became of a blob, reading it gives an index that holds together, or CatalogDamaged; nothing else."""
    blob = bytearray(made([0, 2, 1, 3, 5, 4], [0, 3]).to_bytes())
    kind = data.draw(st.sampled_from(["flip", "cut", "noise"]))
    if kind == "cut":
        blob = blob[: data.draw(st.integers(0, len(blob) - 1))]
    elif kind == "noise":
        blob[: len(b"VCIX")] = b"VCIX"
        at = data.draw(st.integers(5, len(blob) - 1))
        blob[at:] = data.draw(st.binary(max_size=80))
    else:
        for at in data.draw(st.lists(st.integers(0, len(blob) - 1), min_size=1, max_size=4)):
            blob[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        index = VideoIndex.from_bytes(bytes(blob))
    except CatalogDamaged:
        return
    assert index.order.max(initial=-1) < len(index.flags)
    assert len(index.starts) == index.frames == len(index.frame_pts)


def test_a_blob_cannot_ask_for_memory() -> None:
    """Counts in a damaged header, and a compression bomb, are refused before anything is allocated for them."""
    blob = made([0, 1], [0]).to_bytes()
    with pytest.raises(CatalogDamaged):
        VideoIndex.from_bytes(blob.replace(b'"packets":2', b'"packets":9'))
    with pytest.raises(CatalogDamaged):
        VideoIndex.from_bytes(blob.replace(b'"packets":2', b'"packets":99999999999'))
    head = blob[: blob.index(b"}") + 1]
    with pytest.raises(CatalogDamaged):
        VideoIndex.from_bytes(head + zlib.compress(bytes(1 << 26)))
    with pytest.raises(CatalogDamaged, match="starts with b'PK"):
        VideoIndex.from_bytes(b"PK\x03\x04" + blob)


def test_closed_groups() -> None:
    """Each frame starts at the key of its own group, and a run ends at the last packet that is needed."""
    index = made([0, 2, 1, 3, 5, 4, 6, 8, 7], [0, 3, 6])
    assert index.starts.tolist() == [0, 0, 0, 3, 3, 3, 6, 6, 6]
    gops = index.gops_for(np.array([1, 7]))
    assert [(gop.start, gop.stop, gop.frames.tolist()) for gop in gops] == [(0, 3, [1]), (6, 9, [7])]
    assert index.floor_packets(np.array([0, 3, 6])) == 3
    assert index.floor_packets(np.array([], np.int64)) == 0


def test_leading_pictures_of_an_open_group() -> None:
    """A frame shown before the key that precedes it in the file starts one group earlier; the runs become one."""
    # In the file: I0 P3 b1 b2 | I6 b4 b5 P9 b7 b8; b4 and b5 are shown before I6.
    index = made([0, 2, 3, 1, 5, 6, 4, 8, 9, 7], [0, 4])
    assert index.starts.tolist() == [0, 0, 0, 0, 0, 0, 4, 4, 4, 4]
    assert [(gop.start, gop.stop) for gop in index.gops_for(np.array([4]))] == [(0, 6)]
    assert [(gop.start, gop.stop) for gop in index.gops_for(np.array([5, 9]))] == [(0, 8)]
    assert [(gop.start, gop.stop) for gop in index.gops_for(np.array([6, 9]))] == [(4, 8)]


def test_hidden_packets_are_fed_and_not_numbered() -> None:
    """Packets that an edit list cuts off come before frame 0; a hidden key in mid-stream is no start."""
    index = made([2, 3, 5, 6], [0, 4], hidden=(0, 1, 4))
    assert index.starts.tolist() == [0, 0, 0, 0]
    assert index.gops_for(np.array([0]))[0].stop == 3


def test_a_stream_without_a_key_starts_at_its_start() -> None:
    """Nothing is skipped where nothing is known."""
    assert made([0, 1, 2], []).starts.tolist() == [0, 0, 0]


def test_counted_mode_starts_at_the_start() -> None:
    """Frames that can only be counted cost all packets before them."""
    index = made([-1, -1, -1], [0, 2], mode="counted", packets=5)
    assert index.floor_packets(np.array([1])) == 2
    assert index.starts.tolist() == [0, 0, 0]


@given(st.lists(st.integers(1, 7), min_size=1, max_size=6), st.data())
def test_runs_are_disjoint_and_fewest(lengths: list[int], data: st.DataObject) -> None:
    """Runs over closed groups are disjoint and cost what each group's last wanted packet costs."""
    order, keys, at = list[int](), list[int](), 0
    for length in lengths:
        keys.append(at)
        order += [at, *data.draw(st.permutations(range(at + 1, at + length)))]
        at += length
    index = made(order, keys)
    wanted = np.array(sorted(data.draw(st.sets(st.integers(0, at - 1), min_size=1))))
    cost = 0
    for start, length in zip(keys, lengths, strict=True):
        packets = [order[frame] for frame in wanted if start <= order[frame] < start + length]
        cost += max(packets) - start + 1 if packets else 0
    gops = index.gops_for(wanted)
    assert index.floor_packets(wanted) == cost
    assert all(one.stop <= two.start for one, two in itertools.pairwise(gops))
    assert sorted(np.concatenate([gop.frames for gop in gops]).tolist()) == wanted.tolist()


def test_facts_for_people() -> None:
    """Size as shown, times in seconds, and names of colours."""
    index = made([0, 1, 2, 3], [0, 2])
    assert index.shown_size == (64, 48)
    assert (index.color_space_name, index.color_range_name) == ("bt709", "full")
    assert (index.frames, index.keyframes, index.gop_max) == (4, 2, 2)
    assert index.times_s(np.array([[0, 1], [2, 3]])).tolist() == [[0.0, 0.04], [0.08, 0.12]]
    assert index.duration_s == pytest.approx(0.16)


def test_irregular_times_are_kept(family: Callable[[str], Path]) -> None:
    """Frames of a variable rate have their own times, in order of presentation."""
    index = probe(str(family("h264_vfr.mkv")))
    gaps = np.diff(index.times_s(np.arange(index.frames)))
    assert len(np.unique(np.round(gaps, 3))) == 5
    assert (gaps > 0).all()
