"""Two servers of one home, and one runner: either looks after the jobs of the other."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

from postgres_server import PostgresServer, need
from runner.shared_site import shared_site
from runner.waiting_jobs import start_waiting

pytestmark = [
    pytest.mark.runner,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be a runner"),
]


def test_a_server_takes_over_the_jobs_of_a_killed_one() -> None:
    need()
    with contextlib.closing(PostgresServer()) as postgres, shared_site(".[postgres]") as site:
        # The server's user has to reach the socket in it.
        postgres.folder.chmod(0o755)
        options = ("--shared", "--database", postgres.new_database())
        site.start_server(*options)
        site.start_server(*options)
        site.add_person("anna")
        site.add_person("berta")
        jobs = [start_waiting(site, person) for person in ("anna", "berta", "anna", "berta")]
        dead = site.servers.pop(0)
        site.urls.pop(0)
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        for name, flag, _ in jobs:
            assert site.job(name)["status"] == "Running"
            flag.touch()
        for name, _, _ in jobs:
            assert site.wait(name)["status"] == "Completed"
            assert site.output(name, "outputs/model.txt") == "weights\n"
        canceled, _, _ = start_waiting(site, "anna")
        site.ask("POST", f"/v1/workspaces/default/jobs/{canceled}/cancel", {}, "anna")
        assert site.wait(canceled)["status"] == "Canceled"
