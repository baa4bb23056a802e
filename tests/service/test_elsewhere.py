"""A store on a network file system: its lock works across hosts, and its socket does not."""

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import viewcache
from tests.service.served import Opener, described
from viewcache.api.cli.main import main
from viewcache.api.service import files
from viewcache.api.service.stopping import stop
from viewcache.catalog.lock import OwnerLock
from viewcache.errors import CatalogBusy, NotFound, ServiceDown

FAR = "the-other-host"


@pytest.fixture
def far(attach: Opener, store: Path) -> Path:
    """A store whose last service was this process, if it were on another host."""
    attach().close()
    stop(store)
    facts = files.read_facts(store)
    assert facts is not None
    files.write_facts(
        store, replace(facts, host=FAR, pid=os.getpid(), start_ticks=files.started_ticks(os.getpid()) or 0)
    )
    return store


def test_who_comes_to_a_service_of_another_host_is_told_where_it_is(
    far: Path, videos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether it would attach, own the store or care for it: at once, with the host and the process."""
    config = tmp_path / "train.yaml"
    config.write_text(yaml.safe_dump(described(far, videos)))
    where = f"runs on host {FAR}, as process {os.getpid()}, and cannot be reached from host {socket.gethostname()}"
    with OwnerLock(far / "catalog.lock", exclusive=True):
        for mode in ("auto", "off"):
            with pytest.raises(CatalogBusy, match=where):
                viewcache.open(described(far, videos), service=mode)
        assert main(["gc", str(config)]) == 4
        assert where in capsys.readouterr().err


def test_what_another_host_left_is_no_service(far: Path, videos: Path) -> None:
    """Nobody has the lock: a service is started, and what another host said of itself names no process of this one."""
    for how in ({}, {"now": True}):
        with pytest.raises(NotFound, match=f"on this host; the last one was process {os.getpid()} of host {FAR}"):
            stop(far, **how)
    with pytest.raises(ServiceDown, match=f"of host {FAR}: start one by `viewcache serve`"):
        viewcache.open(described(far, videos), service="attach")
    with viewcache.open(described(far, videos), service="auto") as cache:
        assert cache.read("train", 0, 0).video.shape[0] == 4


def test_another_owner_of_this_host_is_named_instead(far: Path, videos: Path) -> None:
    """A service of another host was here once; now a process of this one owns the store without a service."""
    facts = files.read_facts(far)
    assert facts is not None
    files.write_facts(far, replace(facts, pid=os.getpid() + 1))
    with viewcache.open(described(far, videos), service="off"), pytest.raises(CatalogBusy) as busy:
        viewcache.open(described(far, videos), service="auto")
    assert f"owned by process {os.getpid()}" in str(busy.value)
    assert FAR not in str(busy.value)
