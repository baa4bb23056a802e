"""Files as columns: what is read of them is what lists and dictionaries of the same values say."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewcache.catalog import schemas
from viewcache.catalog.records import VideoStatus
from viewcache.materializer.choices import ProbeMode
from viewcache.materializer.dataset.known import Known
from viewcache.materializer.dataset.listed import Found, Listed
from viewcache.materializer.dataset.texts import IdPlaces, Keys, RepeatedTexts, Texts, places_of_names
from viewcache.materializer.media.index import too_large
from viewcache.materializer.media.source import Stamp
from viewcache.materializer.spec import DatasetSpec

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
KEY = st.integers(0, 5).map(lambda number: f"{number:032x}") | st.binary(min_size=16, max_size=16).map(bytes.hex)
STAMPS = st.builds(Stamp, st.integers(0, 2), st.integers(0, 2), st.sampled_from(["", "a", "b"]))


@given(st.lists(TEXT), st.data())
def test_texts_are_the_strings_that_were_given(texts: list[str], data: st.DataObject) -> None:
    """One by one, in slices, all of them, some of them, and one column behind another."""
    held = Texts.of(texts)
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1)) if texts else st.just([]))
    assert [*held] == texts
    assert len(held) == len(texts)
    assert [held[row] for row in range(-len(texts), len(texts))] == texts * 2
    assert held[1:3] == texts[1:3]
    assert [*held.taken(np.array(rows, np.int64))] == [texts[row] for row in rows]
    assert held.at(np.array(rows, np.int64)) == [texts[row] for row in rows]
    later = Texts(held.array[1:])  # which begins inside of the same buffers
    assert later.at(np.arange(len(later))) == texts[1:]
    assert [*held.joined(Texts.of(["b"]))] == [*texts, "b"]


@given(st.lists(TEXT | st.none()), TEXT | st.none(), st.data())
def test_repeated_texts_may_be_set(texts: list[str | None], other: str | None, data: st.DataObject) -> None:
    """Each is what was given or set last, and what is the same is found."""
    held = RepeatedTexts(pa.chunked_array([texts[:2], texts[2:]], pa.string()))
    if texts:
        row = data.draw(st.integers(0, len(texts) - 1))
        held[row] = texts[row] = other
    assert [*held] == texts == held.array.to_pylist()
    assert held.are("").tolist() == [text == "" for text in texts]
    others = RepeatedTexts(pa.array([text or None for text in texts], pa.string()))
    assert not held.unlike(others, np.arange(len(texts))).any()


@given(st.lists(KEY), KEY, st.data())
def test_keys_are_found(keys: list[str], other: str, data: st.DataObject) -> None:
    """Every key has its row, of equal ones the last; what is set later is found too, and what is none is not."""
    held = Keys.of(keys)
    assert [*held] == [held[row] for row in range(len(keys))] == held[:] == keys
    assert held.at(np.arange(len(keys))[::-1]) == keys[::-1]
    assert {key: held.places[key] for key in keys} == {key: row for row, key in enumerate(keys)}
    assert held.places.get(other, -1) == (
        max(row for row, key in enumerate(keys) if key == other) if other in keys else -1
    )
    for word in ("", "no key", other[:-2], other + "00"):
        assert word not in held.places
    wanted = [other, *keys, other]
    assert held.rows_of(wanted).tolist() == [held.places.get(key, -1) for key in wanted]
    assert held.rows_of([*keys, "no key", other[:-2]]).tolist()[-2:] == [-1, -1]
    assert held.rows_of(["x" * 32]).tolist() == [-1]
    if keys:
        row = data.draw(st.integers(0, len(keys) - 1))
        held[row] = other
        assert held[row] == other
        assert held.places[other] == row
        assert held.rows_of([other]).tolist() == [row]


@given(st.lists(st.integers(-9, 9), unique=True), st.lists(st.integers(-9, 9)))
def test_ids_are_found_in_any_order(ids: list[int], wanted: list[int]) -> None:
    """As a dictionary finds them, one by one and many at once."""
    places, known = IdPlaces(np.array(ids, np.int64)), {each: row for row, each in enumerate(ids)}
    assert dict(places) == known
    assert places.find(np.array(wanted, np.int64)).tolist() == [known.get(each, -1) for each in wanted]
    if set(wanted) <= known.keys():
        assert places.of(wanted).tolist() == [known[each] for each in wanted]
    else:
        with pytest.raises(KeyError):
            places.of(wanted)


@given(st.sets(st.text("abc._-", min_size=1, max_size=4)), st.text("abc._-", max_size=4))
def test_names_are_found(names: set[str], other: str) -> None:
    """A sorted column of names needs no table beside it."""
    found, known = places_of_names(Texts.of(sorted(names))), sorted(names)
    assert dict(found) == {name: row for row, name in enumerate(known)}
    assert (other in found) == (other in names)


PROBLEMS, ROOTS = st.sampled_from(["", "is bad"]), st.sampled_from(["", "one", "two"])
FILES = st.booleans().flatmap(
    lambda as_stored: st.lists(
        st.builds(Found, TEXT, TEXT, STAMPS, PROBLEMS, ROOTS, st.booleans(), st.just(as_stored), st.none())
    )
)
"""Files of one listing, all of which are taken as they are stored, or none."""


@given(FILES, st.data())
def test_listed_files_are_those_that_were_found(files: list[Found], data: st.DataObject) -> None:
    """With all that is known of each, in their order or by path."""
    listed = Listed.of(files)
    rows = data.draw(st.lists(st.integers(0, len(files) - 1)) if files else st.just([]))
    assert [*listed] == [listed[row] for row in range(len(files))] == listed[:] == files
    assert listed.some(np.array(rows, np.int64)) == [files[row] for row in rows]
    assert [*listed.joined(listed)] == files * 2
    assert [*listed.by_path()] == sorted(files, key=lambda each: each.path)


def test_a_name_that_is_no_utf8_is_a_problem_of_its_own_file() -> None:
    """The others beside it are as they were."""
    bad, good = Found("/d/\udcff.jpg", "\udcff.jpg", Stamp(1)), Found("/d/a.jpg", "a.jpg", Stamp(2, 3))
    listed = Listed.of([bad, good])
    assert listed[1] == good
    assert listed[0].uri == "/d/\\udcff.jpg"
    assert "not UTF-8" in listed[0].problem


@given(st.lists(st.tuples(TEXT | st.just("\udcff"), st.integers(0, 9), st.integers(0, 9))))
def test_plain_files_are_listed_as_if_each_were_an_object(files: list[tuple[str, int, int]]) -> None:
    """Those below a folder, under a prefix, with names that are UTF-8 or not."""
    one_by_one = Listed.of(Found("/d/" + path, path, Stamp(size, time)) for path, size, time in files)
    assert sorted(Listed.below("/d/", files)) == sorted(one_by_one)


@given(st.lists(st.sampled_from(["", "a", None]), min_size=1), st.data())
def test_some_repeated_texts_do_not_change_with_the_others(texts: list[str | None], data: st.DataObject) -> None:
    """What is set in some of them is not set in all."""
    held = RepeatedTexts(pa.array(texts, pa.string()))
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1), min_size=1))
    taken = held.taken(np.array(rows, np.int64))
    assert [*taken] == [texts[row] for row in rows]
    taken[0] = "other"
    assert [*taken][1:] == [texts[row] for row in rows[1:]]
    assert [*held] == texts


ROWS = st.fixed_dictionaries(
    {
        "stamp": STAMPS,
        "status": st.sampled_from(VideoStatus),
        "frames": st.sampled_from([None, 1]),
        "index_at": st.sampled_from([None, -1, 0]),
        "time_step": st.sampled_from([None, 1]),
        "error": st.sampled_from([None, "torn", too_large(9, 9, 64), too_large(9, 9, 16)]),
    }
)


@given(st.lists(ROWS), st.lists(STAMPS | st.none()), st.sampled_from(ProbeMode))
def test_what_is_known_well_enough(
    rows: list[dict[str, object]], stamps: Sequence[Stamp | None], probe: ProbeMode
) -> None:
    """Of many files at once the same is said as of each by itself."""
    columns = {name: [row.get(name) for row in rows] for name in schemas.VIDEO.names}
    columns |= {name: [str(row) for row in range(len(rows))] for name in ("uri", "name", "key")}
    columns |= {name: list(range(len(rows))) for name in ("video_id", "dataset_id")}
    for name, part in (("size_bytes", "size"), ("mtime_ns", "mtime_ns"), ("etag", "etag")):
        columns[name] = [getattr(row["stamp"], part) or None for row in rows]
    known = Known(pa.table(columns, schema=schemas.VIDEO))
    # Every second row is listed under its URI; some files are new.
    found = [
        Found(str(2 * k), str(k), rows[2 * k]["stamp"] if stamp is None and 2 * k < len(rows) else stamp or Stamp(7))  # type: ignore[arg-type]
        for k, stamp in enumerate(stamps)
    ]
    listed, spec = Listed.of(found), DatasetSpec("/d", max_pixels=64, probe=probe)
    at = known.rows_of(listed.uris)
    assert at.tolist() == [2 * k if 2 * k < len(rows) else -1 for k in range(len(found))]

    def holds(file: Found) -> bool:
        row = rows[int(file.uri)] if int(file.uri) < len(rows) else None
        if row is None or row["status"] in (VideoStatus.GONE, VideoStatus.LISTED):
            return False
        if not row["stamp"].same(file.stamp):  # type: ignore[attr-defined]
            return False
        is_bad = row["frames"] is None or row["status"] == VideoStatus.BAD
        if is_bad and row["error"] not in ("torn", too_large(9, 9, 64)):
            return False
        if row["frames"] is None:
            return True
        by_header = probe == ProbeMode.LAZY or (probe == ProbeMode.TIMES and row["time_step"] is not None)
        return by_header or row["index_at"] == 0

    assert known.holds(listed, at, spec).tolist() == [holds(file) for file in found]
