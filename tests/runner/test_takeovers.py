"""Two people, the runner installed: no job becomes the server, root or somebody else."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.shared_site import SharedSite, shared_site
from runner.waiting_jobs import start_waiting
from torchyard.shared import processes
from torchyard.worker.system.processes import below

pytestmark = [
    pytest.mark.runner,
    pytest.mark.timeout(600),  # the site is installed first
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be a runner"),
]

TAKEOVERS = Path(__file__).with_name("takeovers.py")


@pytest.fixture(scope="module")
def site() -> Iterator[SharedSite]:
    with shared_site() as site:
        setuid = site.folder / "id"
        shutil.copy("/usr/bin/id", setuid)
        setuid.chmod(0o4755)
        site.environ = {"PGPASSWORD": "the-databases-password"}
        site.start_server()
        site.add_person("anna")
        site.add_person("berta")
        yield site


def worker_of(site: SharedSite, scratch: Path) -> dict[str, Any]:
    [worker] = site.client.call("records", attempt=scratch.name, count=1)["workers"]
    return dict(worker)


def ranks_of(site: SharedSite, scratch: Path) -> list[int]:
    worker = worker_of(site, scratch)["pid"]
    return [process.pid for process in below(worker) if process.pid != worker]


@pytest.mark.smoke
def test_every_takeover_is_refused(site: SharedSite) -> None:
    key = "sk-the-key-of-berta-0123456789"
    variables = {"THEIR_API_KEY": key}
    name, flag, other = start_waiting(site, "berta", environment_variables=variables)
    rank = ranks_of(site, other)[0]
    # Root sees what the job is after: it is there, and the job does not get it.
    assert key.encode() in Path(f"/proc/{rank}/environ").read_bytes()
    assert b"weights" in (other / "node-0" / "work" / "outputs" / "model.txt").read_bytes()
    targets = {
        "home": str(site.home),
        "node_folder": str(site.node_folder),
        "other": str(other),
        "other_home": str(site.node_folder / "homes" / site.user("job1")),
        "tls_key": str(site.tls_key),
        "server": site.servers[0].pid,
        "rank": rank,
        "worker": worker_of(site, other)["pid"],
        "worker_program": str(next((site.node_folder / "workers").glob("*.pyz"))),
        "runner": site.process.pid if site.process else 0,
        "socket": str(site.socket),
        "config": str(site.config_file),
        "state": str(site.state),
        "code": str(next((site.folder / "opt").glob("lib/*/site-packages/torchyard/server.py"))),
        "url": site.urls[0],
        "setuid": str(site.folder / "id"),
    }
    command = f"cat > takeovers.py <<'EOF'\n{TAKEOVERS.read_text()}\nEOF\npython takeovers.py"
    attack = site.submit("anna", command, environment_variables={"SITE": json.dumps(targets)})
    assert site.wait(attack)["status"] == "Completed"
    lines = site.output(attack).splitlines()
    record = os.environ.get("TORCHYARD_WRITE_TRANSCRIPT")
    if record:
        Path(record).write_text("\n".join(lines) + "\n")
    assert len(lines) == TAKEOVERS.read_text().count(": lambda: ")
    assert [line for line in lines if ": refused: " not in line] == []
    # What is not there was not refused.
    assert [line for line in lines if "No such" in line] == []
    # Nothing of it had an effect on the other person's job.
    flag.touch()
    assert site.wait(name)["status"] == "Completed"
    assert site.output(name, "outputs/model.txt") == "weights\n"
    owners = [
        person["name"] for person in site.ask("GET", "/v1/users")["value"] if "owner" in str(person)
    ]
    assert "anna" not in owners


def test_a_job_that_kills_all_it_can_ends_itself_alone(site: SharedSite) -> None:
    name, flag, _ = start_waiting(site, "berta")
    killer = site.submit("anna", "sleep 1; kill -9 -1; sleep 60")
    ended = site.wait(killer)
    assert ended["status"] == "Failed" and ended["error"]["code"] == "worker_lost"
    assert site.job(name)["status"] == "Running"
    flag.touch()
    assert site.wait(name)["status"] == "Completed"


@pytest.mark.smoke
def test_people_have_accounts_of_their_own(site: SharedSite) -> None:
    assert site.ask("GET", "/v1/whoami", person="anna")["jobs_as_server_user"] is False
    command = "id -un; touch outputs/model; stat -c %U outputs/model"
    jobs = {person: site.submit(person, command) for person in ("anna", "berta")}
    names = {}
    for person, job in jobs.items():
        assert site.wait(job)["status"] == "Completed"
        names[person], owner = site.output(job).split()
        assert owner == names[person]
    # One is mapped in the configuration, the other has an account of the pool.
    assert names["anna"] == site.user("anna")
    assert names["berta"] == site.user("job1")


def test_a_pool_that_is_used_up_fails_the_job_and_says_why(site: SharedSite) -> None:
    for person in ("carla", "dora"):
        site.add_person(person)
    assert site.wait(site.submit("carla", "true"))["status"] == "Completed"
    error = site.wait(site.submit("dora", "true"))["error"]
    assert error["code"] == "launch_failed"
    assert "no Unix account is left for `dora`" in error["message"]


def test_ranks_of_two_nodes_meet_as_one_account(site: SharedSite) -> None:
    script = (
        "import os, socket\n"
        "rank, world = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"
        "place = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))\n"
        "if rank == 0:\n"
        "    with socket.create_server(place) as server:\n"
        "        for _ in range(world - 1):\n"
        "            server.accept()[0].sendall(b'%d' % os.getuid())\n"
        "else:\n"
        "    import time\n"
        "    for _ in range(200):\n"
        "        try:\n"
        "            peer = socket.create_connection(place)\n"
        "            break\n"
        "        except OSError:\n"
        "            time.sleep(0.05)\n"
        "    assert int(peer.recv(9)) == os.getuid()\n"
        "print('rank', rank, 'of', world, 'as', os.getuid())\n"
    )
    name = site.submit(
        "anna",
        f"cat > train.py <<'EOF'\n{script}EOF\npython train.py",
        compute="local",
        resources={"instance_count": 2},
        distribution={"type": "pytorch", "process_count_per_instance": 2},
    )
    job = site.wait(name)
    assert job["status"] == "Completed", job
    output = site.output(name, "user_logs/std_log_process_0.txt")
    assert output == f"rank 0 of 4 as {site.uid('anna')}\n"


def test_a_cancel_ends_the_ranks(site: SharedSite) -> None:
    name, _, scratch = start_waiting(site, "berta")
    ranks = ranks_of(site, scratch)
    site.ask("POST", f"/v1/workspaces/default/jobs/{name}/cancel", {}, "berta")
    assert site.wait(name)["status"] == "Canceled"
    assert not [rank for rank in ranks if processes.read(rank)]


def test_a_job_outlives_a_killed_server_and_a_killed_runner(site: SharedSite) -> None:
    name, flag, _ = start_waiting(site, "berta")
    site.stop_servers(signal.SIGKILL)
    site.stop(signal.SIGKILL)
    site.start()
    site.start_server()
    assert site.job(name)["status"] == "Running"
    flag.touch()
    assert site.wait(name)["status"] == "Completed"
    assert site.output(name, "outputs/model.txt") == "weights\n"


def test_what_ended_jobs_left_is_removed(site: SharedSite) -> None:
    name = site.submit(
        "berta", "mkdir -p closed/deep; touch closed/deep/x; chmod 0 closed/deep closed"
    )
    assert site.wait(name)["status"] == "Completed"

    def is_empty() -> bool:
        return not site.attempts()

    wait_until(is_empty)
    assert site.client.call("attempts") == {"attempts": []}


def wait_until(condition: Any, limit_s: float = 30.0) -> None:
    import time

    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
