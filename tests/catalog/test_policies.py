"""Eviction policies: the shipped ones against a sort in Python, on both databases; and users' own."""

import math
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.catalog.samples import copy, draws, plan, registered, select, video
from tests.catalog.test_demand import Walk
from viewcache.api.config.find import Located
from viewcache.api.upkeep.evict import policy_of
from viewcache.catalog import Catalog, QueryLimits, policies
from viewcache.catalog.eviction import CANDIDATES, VICTIMS
from viewcache.catalog.policies import UNTRIED, Policy, all_policies, ask, check_policy, find_policy, sample
from viewcache.catalog.records import IoSampleRow
from viewcache.catalog.statements import policy_names
from viewcache.errors import BadInput, NotFound, QueryRefused
from viewcache.materializer.spec import EvictionSpec
from viewcache.materializer.storage.eviction import PAUSE_S, Eviction

ALL = 1 << 62
"""More bytes than there are."""

Row = dict[str, Any]

ORDERS: dict[str, Callable[[Row], tuple[float, ...]]] = {
    "demand": lambda c: (
        (0, 0) if not c["refs"] else (1, c["refs"]) if not c["drawn_refs"] else (2, -float(c["next_need_s"]))
    ),
    "sand": lambda c: (0, 0) if not c["refs"] else (1, -float(c["next_need_s"])),
    "refcount": lambda c: (c["refs"],),
    "lru": lambda c: (c["access_tick"],),
    "fifo": lambda c: (c["created_tick"],),
    "cost_benefit": lambda c: (c["refs"] * (c["cost_s"] - (c["load_s"] or 0.0)) / c["bytes"],),
}
"""What each policy goes by, said again in Python; then by object."""


def walked(catalog: Catalog, seed: int) -> list[int]:
    """A catalog with a random history, whose copies were made and read at random times; their objects."""
    walk, chance = Walk(catalog, seed), random.Random(seed)
    for _ in range(20):
        walk.step()
    walk.make()
    rows = [
        copy(each, bytes=size, created_tick=chance.randrange(9), access_tick=chance.randrange(9))
        for each, size in walk.model.copies.items()
    ]
    catalog.mark_ready(rows)
    catalog.add_io_samples([IoSampleRow("load", 9, "raw", "local", 3, 0.5, 3000)])
    catalog.flush()
    return sorted(walk.model.copies)


def ids(victims: pa.Table) -> list[int]:
    """Objects in the order in which they leave."""
    found: list[int] = victims["object_id"].to_pylist()
    return found


def test_every_shipped_policy_is_tested() -> None:
    """A new file in sql/policies has its order said here too."""
    assert tuple(sorted(ORDERS)) == policy_names()


@pytest.mark.parametrize("seed", range(3))
def test_policies_are_the_orders_that_they_say(catalog: Catalog, seed: int) -> None:
    """Each candidate comes exactly once, by the rule and then by object; spared ones never; less need, a beginning."""
    copies = walked(catalog, seed)
    spare = random.Random(seed).sample(copies, len(copies) // 4)
    candidates = catalog.candidates("local", spare)
    assert candidates.schema == CANDIDATES
    rows = {row["object_id"]: row for row in candidates.to_pylist()}
    assert set(rows) == set(copies) - set(spare)
    for name, rule in ORDERS.items():
        whole = catalog.victims("local", ALL, spare, name)
        expected = sorted(rows, key=lambda each, rule=rule: (*rule(rows[each]), each))  # type: ignore[misc]
        assert ids(whole) == expected, name
        assert whole["bytes"].to_pylist() == [rows[each]["bytes"] for each in expected]
        assert all(whole["reason"].to_pylist())
        need = sum(whole["bytes"].to_pylist()) // 3
        part = catalog.victims("local", need, spare, name)
        assert ids(part) == expected[: len(part)]
        sizes = part["bytes"].to_pylist()
        assert sum(sizes) >= need > sum(sizes[:-1])


def test_where_rows_lie_does_not_matter(folder: Path, tmp_path: Path, duckdb_template: Path) -> None:
    """The same copies, written in another order, leave in the same order: ties are no accident."""
    import shutil

    other = Path(shutil.copytree(duckdb_template, tmp_path / "other"))
    rows = [copy(each, bytes=each % 3 + 1, created_tick=each % 4, access_tick=each % 5) for each in range(1, 60)]
    found = []
    for where, given in ((folder, rows), (other, rows[::-1])):
        with Catalog.open(where) as catalog:
            catalog.mark_ready(given)
            catalog.flush()
            found.append({name: ids(catalog.victims("local", ALL, policy=name)) for name in policy_names()})
    assert found[0] == found[1]


def test_no_policy_is_offered_what_is_protected(catalog: Catalog) -> None:
    """Leased, spared, and wanted without a source: whichever policy is active (law 6)."""
    row, videos = registered(catalog)
    given = plan(catalog, row, videos)
    catalog.record_plan(given)
    clips = {o["object_id"]: o["video_id"] for o in given.objects.to_pylist() if o["kind"] == "clip"}
    catalog.mark_ready([copy(each) for each in clips])
    catalog.upsert_videos(row.dataset_id, [video(0, status="gone")])
    lost = {each for each, of in clips.items() if of == videos[0]}
    leased, spared, expired = sorted(set(clips) - lost)[:3]
    catalog.hold([leased], holder="somebody", expires_at=1e12)
    catalog.hold([expired], holder="somebody", expires_at=1.0)
    catalog.flush()
    for name in policy_names():
        assert set(ids(catalog.victims("local", ALL, [spared], name))) == set(clips) - lost - {leased, spared}, name


def test_demand_has_the_cases_of_sand(catalog: Catalog) -> None:
    """What nothing wants goes first in both; where every use is drawn they are one order; else counts decide."""
    row, videos = registered(catalog, 6)
    given = plan(catalog, row, videos, epochs=1)
    catalog.record_plan(given)
    clips = [o["object_id"] for o in given.objects.to_pylist() if o["kind"] == "clip"]
    unwanted = catalog.next_object_id(2)
    catalog.mark_ready([copy(each) for each in (*clips, unwanted, unwanted + 1)])
    catalog.flush()
    drawn_none = {name: ids(catalog.victims("local", ALL, policy=name)) for name in ("demand", "sand", "refcount")}
    assert drawn_none["demand"] == drawn_none["refcount"] != drawn_none["sand"]
    catalog.record_draws(draws(row, 0, videos))
    demand, sand = (ids(catalog.victims("local", ALL, policy=name)) for name in ("demand", "sand"))
    assert demand == sand == drawn_none["sand"]
    assert demand[:2] == [unwanted, unwanted + 1]


def test_making_again_costs_its_decoding_unless_that_is_kept(catalog: Catalog) -> None:
    """`cost_s` is a clip's own seconds, and its share of its frames' where no copy of those lies in the store."""
    row, videos = registered(catalog, 1)
    given = plan(catalog, row, videos)
    catalog.record_plan(given)
    objects = {o["object_id"]: o for o in given.objects.to_pylist()}
    frames = next(each for each, o in objects.items() if o["kind"] == "frames")
    clips = [each for each in objects if each != frames]
    catalog.mark_ready([copy(each) for each in clips])
    catalog.flush()
    assert set(catalog.candidates("local")["cost_s"].to_pylist()) == {0.5 + 0.5 / len(clips)}
    catalog.mark_ready([copy(frames)])
    catalog.flush()
    costs = {row["object_id"]: row["cost_s"] for row in catalog.candidates("local").to_pylist()}
    assert costs == dict.fromkeys([*clips, frames], 0.5)


def test_an_unknown_policy_lists_the_known(catalog: Catalog) -> None:
    """A typo is answered with what there is."""
    with pytest.raises(NotFound, match="no eviction policy named 'lur'; there are: cost_benefit, demand"):
        catalog.victims("local", 1, policy="lur")


# --- policies of the user's own ---

BIGGEST = "-- Biggest first.\nselect object_id, bytes, 'big' as reason from candidates order by bytes desc, object_id;"


def test_a_policy_of_ones_own_is_a_select() -> None:
    """Plain SQL over the documented columns, whose order is the order of leaving, until there are bytes enough."""
    assert ask(BIGGEST, sample(), 20_000)["object_id"].to_pylist() == [12, 11]
    every = f"select object_id, bytes, concat_ws(' ', {', '.join(CANDIDATES.names)}) as reason from candidates"
    assert ask(every, sample(), ALL).num_rows == sample().num_rows
    assert ask(BIGGEST, CANDIDATES.empty_table(), ALL).schema == VICTIMS


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "0 statements"),
        ("select 1; select 2", "2 statements"),
        ("delete from candidates", "this is DELETE; a policy is one SELECT"),
        ("explain select 1", "this is EXPLAIN"),
        ("copy candidates to 'out.csv'", "this is COPY"),
        ("set threads = 4", "this is SET"),
        ("select object_id, bytes from candidates", r"gives \['object_id', 'bytes'\]; a policy gives"),
        ("select object_id, bytes, 'x' as reason, 1 as more from candidates", "'more'"),
        ("select object_id, 'many' as bytes, 'x' as reason from candidates", "failed"),
        ("select object_id, bytes, nobody as reason from candidates", "nobody"),
        ("select object_id, bytes, null as reason from candidates", "a null"),
        ("select object_id, -bytes as bytes, 'x' as reason from candidates", "other bytes"),
        ("select object_id + 100 as object_id, bytes, 'x' as reason from candidates", "none of the candidates"),
        ("select a.object_id, a.bytes, 'x' as reason from candidates a, candidates b", "twice"),
        ("select object_id, bytes, repeat('x', 201) as reason from candidates", "more than 200 characters"),
        ("select * from read_csv('/etc/passwd')", "disabled by configuration"),
        ("select object_id, bytes, error('no') as reason from candidates", "failed"),
        ("select object_id, len(list_sort(range(2000000000))) as bytes, 'x' as reason from candidates", "emory"),
    ],
)
def test_what_is_no_policy_is_refused(text: str, why: str) -> None:
    """Other statements, files, wrong columns, rows that are none of the candidates: each with its reason."""
    with pytest.raises(QueryRefused, match=why):
        ask(text, sample(), ALL)


def test_a_policy_that_hangs_is_stopped() -> None:
    """It has a time limit, and the process is gone after it."""
    endless = (
        "with recursive t(i) as (select 1 union all select i + 1 from t) "
        "select i as object_id, sum(i) as bytes, 'x' as reason from t group by i"
    )
    with pytest.raises(QueryRefused, match="took more than 1 s and was stopped"):
        ask(endless, sample(), ALL, QueryLimits(seconds=1.0))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder of policies, good and bad."""
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "big.sql").write_text(BIGGEST)
    (folder / "bad.sql").write_text("drop table candidates")
    (folder / "lru.sql").write_text(BIGGEST)
    (folder / "latin.sql").write_bytes(b"-- \xe4\nselect 1")
    (folder / "long.sql").write_text("-- long\n" * 10_000)
    os.mkfifo(folder / "pipe.sql")
    (folder / "endless.sql").symlink_to("/dev/zero")
    (folder / "a b.sql").write_text(BIGGEST)
    (folder / "notes.txt").write_text("no policy")
    return folder


def test_a_folder_is_read_and_tried(own: Path) -> None:
    """Each file is a policy by its name, with its first comment as its purpose, or has a problem."""
    found = {policy.source: policy for policy in all_policies(str(own)) if policy.source != policies.SHIPPED}
    problems = {Path(source).name: policy.problem for source, policy in found.items()}
    assert problems.pop("big.sql") is None
    assert found[str(own / "big.sql")].purpose == "Biggest first."
    for name, why in (
        ("bad.sql", "this is DROP"),
        ("lru.sql", "is the name of a shipped policy"),
        ("latin.sql", "not valid UTF-8 at byte 3"),
        ("long.sql", "at most 65536"),
        ("pipe.sql", "is not a regular file"),
        ("endless.sql", "is not a regular file"),
        ("a b.sql", "its name must be"),
    ):
        assert why in str(problems.pop(name)), name
    assert not problems
    with pytest.raises(BadInput, match=r"bad .*bad\.sql.* cannot be used: this is DROP"):
        find_policy("bad", list(found.values()))


def test_policies_are_rows(catalog: Catalog, own: Path) -> None:
    """`policies` shows the shipped and the user's own, which is active and what is wrong with one."""
    Eviction.of(catalog, EvictionSpec("big", str(own)))
    rows = select(catalog, "select name, active, source = 'shipped', problem is null from policies order by name")
    assert [row for row in rows if row[0] in ("bad", "big", "demand", "lru")] == [
        ("bad", False, False, False),
        ("big", True, False, True),
        ("demand", False, True, True),
        ("lru", False, True, True),
    ]
    Eviction.of(catalog, EvictionSpec())
    assert select(catalog, "select name from policies where active") == [("demand",)]
    assert select(catalog, "select count(*) from policies") == [(len(policy_names()),)]


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of policies that were tried, each of which takes a process."""
    texts: list[str] = []

    def trial(text: str, candidates: pa.Table, need_bytes: int) -> pa.Table:
        texts.append(text)
        return ask(text, candidates, need_bytes)

    monkeypatch.setattr(policies, "ask", trial)
    return texts


def test_an_opening_tries_the_active_policy_alone(catalog: Catalog, own: Path, tried: list[str]) -> None:
    """The others of the folder cost no process; in `policies` they are not called good."""
    Eviction.of(catalog, EvictionSpec("lru", str(own)))
    assert tried == []
    assert select(catalog, "select problem from policies where name = 'big'") == [(UNTRIED,)]
    assert "not valid UTF-8" in str(select(catalog, "select problem from policies where name = 'latin'"))
    Eviction.of(catalog, EvictionSpec("big", str(own)))
    assert tried == [BIGGEST]
    assert select(catalog, "select name, problem from policies where name in ('big', 'bad') order by name") == [
        ("bad", UNTRIED),
        ("big", None),
    ]
    with pytest.raises(BadInput, match=r"bad .*bad\.sql.* cannot be used: this is DROP"):
        Eviction.of(catalog, EvictionSpec("bad", str(own)))
    with pytest.raises(NotFound, match=r"no eviction policy named 'gone'; there are .*, bad, big"):
        Eviction.of(catalog, EvictionSpec("gone", str(own)))
    assert tried == [BIGGEST, "drop table candidates"]


def test_the_choice_of_a_policy_is_checked_alone(own: Path, tried: list[str]) -> None:
    """`plan` and `evict` try the policy that they are asked for, also a bad one, and no other of its folder."""
    cache = Located("catalog", "store")
    check_policy("big", str(own))
    assert policy_of(cache, "big", str(own)).name == "big"
    assert tried == [BIGGEST, BIGGEST]
    with pytest.raises(BadInput, match="cannot be used: this is DROP"):
        check_policy("bad", str(own))
    with pytest.raises(BadInput, match="cannot be used: this is DROP"):
        policy_of(cache, "bad", str(own))
    with pytest.raises(NotFound, match="no eviction policy named 'gone'"):
        check_policy("gone", str(own))
    assert len(tried) == 4


def filled(catalog: Catalog) -> None:
    """Twenty copies that nothing wants; the last ones are the biggest."""
    catalog.mark_ready([copy(each, bytes=each) for each in range(1, 21)])
    catalog.flush()


def test_a_policy_of_ones_own_chooses(catalog: Catalog) -> None:
    """On both databases it runs in DuckDB's dialect, beside them."""
    filled(catalog)
    victims = Eviction(catalog, Policy("big", "big.sql", "", BIGGEST)).choose("local", 30, [19])
    assert [(victim.object_id, victim.reason, victim.policy) for victim in victims] == [
        (20, "big", "big"),
        (18, "big", "big"),
    ]


def test_what_a_policy_leaves_out_leaves_last(catalog: Catalog) -> None:
    """A policy may protect what it likes; when that is not enough, `demand` goes on where it ended."""
    filled(catalog)
    few = "select object_id, bytes, 'small' as reason from candidates where bytes < 3 order by object_id desc"
    victims = Eviction(catalog, Policy("few", "few.sql", "", few)).choose("local", 10, [])
    assert [(victim.object_id, victim.policy) for victim in victims] == [
        (2, "few"),
        (1, "few"),
        (3, "demand"),
        (4, "demand"),
    ]


GOOD_ON_THE_SAMPLE = """
select object_id + (select case when count(*) = 12 then 0 else 1000 end from candidates) as object_id, bytes,
    'x' as reason
from candidates
"""


def test_a_policy_that_fails_stops_nothing(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    """`demand` chooses instead; a warning and an error event say so; for a while it is not asked again."""
    filled(catalog)
    ask(GOOD_ON_THE_SAMPLE, sample(), ALL)
    now = [0.0]
    eviction = Eviction(catalog, Policy("odd", "odd.sql", "", GOOD_ON_THE_SAMPLE), clock=lambda: now[0])

    def failures() -> object:
        catalog.flush()
        (count,) = select(catalog, "select cast(sum(count) as bigint) from errors where message like '%odd%'")[0]
        return count

    for seconds, failed in ((0.0, 1), (PAUSE_S - 1, 1), (PAUSE_S, 2)):
        now[0] = seconds
        assert [victim.object_id for victim in eviction.choose("local", 3, [])] == [1, 2]
        assert failures() == failed
    assert "eviction policy odd failed: the policy gave object 1" in caplog.text
    with pytest.raises(QueryRefused):
        Eviction(catalog, Policy("odd", "odd.sql", "", GOOD_ON_THE_SAMPLE), falls_back=False).choose("local", 3, [])


def test_the_sample_has_every_case() -> None:
    """A policy that works on the sample has seen nulls, ties, and objects of each case of `demand`."""
    rows = sample().to_pylist()
    assert {(row["refs"] > 0, row["drawn_refs"] > 0) for row in rows} == {(False, False), (True, False), (True, True)}
    assert {row["next_need_s"] is None for row in rows} == {row["load_s"] is None for row in rows} == {True, False}
    assert all((row["refs"] > 0) == (row["next_need_s"] is not None) for row in rows)
    assert not any(math.isnan(row["cost_s"]) for row in rows)
