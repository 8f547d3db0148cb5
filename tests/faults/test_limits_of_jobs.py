"""A job that takes all it can get, under a real server: it ends alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.fault_site import Site
from torchyard.worker.system import cgroups

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

_BOMB = "python3 -c 'import os, time\nwhile True:\n try: os.fork()\n except OSError: time.sleep(1)'"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    mark = f"probe-{os.getpid()}:0"
    limit = cgroups.limit(mark, cgroups.Ceiling(processes=200)).processes
    cgroups.remove(mark)
    if not limit:
        pytest.skip("no cgroup can count processes here")
    site = Site(tmp_path / "home")
    site.home.mkdir(mode=0o700)
    try:
        site.start()
        yield site
    finally:
        site.end()


def test_a_fork_bomb_ends_alone(site: Site) -> None:
    properties = {"torchyard.max_processes": "200"}
    neighbour = site.submit({"command": "sleep 8; echo fine"})
    bomb = site.wait(site.submit({"command": _BOMB, "properties": properties}))
    assert (bomb["status"], bomb["error"]["code"]) == ("Failed", "process_limit"), bomb["error"]
    assert site.ask("GET", "/health")["status"] == "ok"
    assert site.wait(neighbour)["status"] == "Completed"
