"""evict: what would leave and why, giving it up, and the policies that there are."""

from pathlib import Path

import pytest

import viewcache
from tests.cli.site import Site
from viewcache.errors import BadInput


@pytest.fixture
def own(made: Site) -> Site:
    """A cache with two policies of the user's own, one of them wrong."""
    folder = made.folder / "policies"
    folder.mkdir()
    text = "-- Biggest first.\nselect object_id, bytes, 'big' as reason from candidates order by bytes desc, object_id"
    (folder / "biggest.sql").write_text(text)
    (folder / "wrong.sql").write_text("delete from candidates")
    made.edit("  workers: 1\n", "  workers: 1\n  eviction: {policy: biggest, folder: ./policies}\n")
    return made


BUDGET = 64 * 10**6
"""Of the site's cache, bytes."""


def needing(site: Site, more: int) -> str:
    """What `--need` says so that so many bytes more than are free have to leave."""
    (used,) = site.json("sql", "select used_bytes from tiers where tier = 'local'")["rows"][0]
    return str(BUDGET - used + more)


def test_what_is_free_already_need_not_be_made_free(made: Site) -> None:
    """A cache of which most is free gives nothing up for less than that; for the whole budget it gives up all."""
    before = made.objects()
    said = made.json("evict", "--need", needing(made, 0))
    assert (said["leaves"], said["bytes"], said["free_bytes"]) == ([], 0, said["need_bytes"])
    assert "of its budget are free" in made.run("evict", "--need", "60MB")
    assert made.objects() == before
    done = made.json("evict", "--need", str(BUDGET))
    assert (done["free_bytes"], made.objects()) == (BUDGET, [])


def test_more_than_the_budget_can_never_be_free(made: Site) -> None:
    """It is bad input, with the budget, before anything leaves; from the folder alone the last run's budget counts."""
    before = made.objects()
    for arguments in ((), ("--dry-run",), (str(made.store),)):
        made.run("evict", "--need", str(BUDGET + 1), *arguments, code=2)
        assert f"the budget of the local tier is 64 MB ({BUDGET} bytes)" in made.words
    assert made.objects() == before


def test_a_dry_run_changes_nothing_and_the_rest_does_what_it_said(made: Site) -> None:
    """The same victims with the same reasons; they are gone then, and `evictions` says why; what is left is whole."""
    before = made.objects()
    need = needing(made, 60_000)
    said = made.json("evict", "--need", need, "--dry-run")
    assert said["bytes"] >= 60_000 > said["bytes"] - said["leaves"][-1]["bytes"]
    assert {each["reason"] for each in said["leaves"]} <= {"nothing wants it", "wanted by draws to come", "needed last"}
    assert made.objects() == before
    done = made.json("evict", "--need", need)
    assert done["leaves"] == said["leaves"]
    assert (said["dry_run"], done["dry_run"]) == (True, False)
    assert len(made.objects()) == len(before) - len(done["leaves"])
    rows = made.json("sql", "select key, policy, detail, reason from evictions")["rows"]
    assert sorted(rows) == sorted([each["key"], "demand", each["reason"], "evict"] for each in done["leaves"])
    assert made.json("verify")["orphans"] == []
    made.run("run")
    assert len(made.objects()) == len(before)


def test_the_configuration_names_the_policy(own: Site) -> None:
    """Its own policy is used by the command and by a running cache; another can be asked."""
    need = needing(own, 1)
    assert {each["policy"] for each in own.json("evict", "--need", need, "--dry-run")["leaves"]} == {"biggest"}
    lru = own.json("evict", "--need", need, "--policy", "lru", "--dry-run")
    assert [(each["policy"], each["reason"]) for each in lru["leaves"]] == [("lru", "read longest ago")]
    own.run("run")
    active = "select name, purpose from policies where active"
    assert own.json("sql", active)["rows"] == [["biggest", "Biggest first."]]


def test_policies_are_listed(own: Site) -> None:
    """Shipped and own ones, the active one, and what is wrong with one, which is exit code 1."""
    found = {row["name"]: row for row in own.json("evict", "--list", code=1)["policies"]}
    assert {"demand", "sand", "refcount", "lru", "fifo", "cost_benefit", "biggest", "wrong"} == set(found)
    assert [name for name, row in found.items() if row["active"]] == ["biggest"]
    assert found["wrong"]["problem"] == "this is DELETE; a policy is one SELECT"
    assert found["lru"]["text"].startswith("select object_id")
    (own.folder / "policies" / "wrong.sql").unlink()
    assert "Biggest first." in own.run("evict", "--list")


def test_a_policy_that_cannot_be_used_is_refused_when_a_cache_opens(own: Site) -> None:
    """It never trains with a policy that would fail each time."""
    own.edit("policy: biggest", "policy: wrong")
    with pytest.raises(BadInput, match=r"wrong .*cannot be used: this is DELETE"):
        viewcache.open(own.config)
    own.run("evict", "--need", "1", code=2)


def test_policies_are_listed_without_a_cache(tmp_path: Path, site: Site) -> None:
    """Nothing was made yet, or no configuration is near."""
    assert len(site.json("evict", "--list")["policies"]) == 6
    assert max(map(len, site.run("evict", "--list").splitlines())) <= 100
    site.config.unlink()
    assert len(site.json("evict", "--list")["policies"]) == 6


def test_an_owner_is_not_disturbed(made: Site) -> None:
    """While a run is on, the command is refused with the owner's pid."""
    with viewcache.open(made.config):
        second = made.spawn("evict", "--need", "1kB", "--dry-run")
        _, err = second.communicate(timeout=60)
    assert second.returncode == 4, err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--need", "ten"], "is no size"),
        (["--need", "0"], "is no size"),
        ([], "--need says how many bytes"),
    ],
)
def test_what_is_missing_is_said(made: Site, arguments: list[str], says: str) -> None:
    """A size that is none, or no size, is bad input."""
    made.run("evict", *arguments, code=2)
    assert says in made.words


def test_an_unknown_policy_or_folder_is_not_found(made: Site) -> None:
    """Exit code 3, and the policies that there are."""
    made.run("evict", "--need", "1", "--policy", "lur", code=3)
    assert "there are cost_benefit, demand" in made.words
    made.run("evict", "--list", "--folder", "nowhere", code=3)
