"""Jobs on nodes that see nothing of the server's disk."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventually import eventually
from executors import remote_site
from executors.remote_site import RemoteSite
from torchyard.jobs import actions
from torchyard.jobs.files import artifacts
from torchyard.jobs.records.job_events import notices_of
from torchyard.jobs.records.types import Status

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteSite]:
    with remote_site.serving(tmp_path_factory.mktemp("site")) as made:
        yield made


def test_a_job_runs_to_its_end_and_leaves_nothing_but_its_cache(site: RemoteSite) -> None:
    job = site.run(command="echo from $NODE_RANK; echo kept > outputs/kept.txt")
    services = site.parts.services
    assert job.status is Status.COMPLETED, (job.error, site.engine_logs())
    names = [file.path for file in artifacts.list_of(services, job)]
    assert "outputs/kept.txt" in names
    assert site.scratch_left() == []


def test_two_nodes_of_one_machine_fetch_the_environment_once_and_reach_each_other(
    site: RemoteSite,
) -> None:
    # Each node is reached at an address of its own; the packages are those of the fetched folder.
    command = (
        "python -c \"import os, sys, pip; print(os.environ['MASTER_ADDR'], sys.prefix, "
        "pip.__file__, os.environ['AZ_BATCHAI_PYTORCH_INIT_METHOD'])\""
    )
    job = site.run(
        command=command,
        resources={"instance_count": 2},
        distribution={"type": "pytorch", "process_count_per_instance": 1},
    )
    services = site.parts.services
    assert job.status is Status.COMPLETED, (job.error, site.engine_logs())
    logs = [
        artifacts.file(services, job, file.path).read_text()
        for file in artifacts.list_of(services, job)
        if "std_log" in file.path
    ]
    assert len(logs) == 2
    for log in logs:
        master, prefix, package, init_method = log.split()
        assert master == "127.0.0.2"
        assert prefix.startswith(f"{site.node_folder}/scratch/")
        assert package.startswith(f"{site.node_folder}/environments/")
        assert init_method.startswith("tcp://127.0.0.2:")
    (_,) = site.node_folder.glob("environments/[0-9a-f]*")
    assert not list(site.node_folder.glob("environments/.draft-*"))
    fetches = [
        message
        for message in notices_of(actions.events(services.db, job))
        if "fetching the environment" in message
    ]
    assert len(fetches) <= 1
    assert site.scratch_left() == []


def _ask(site: RemoteSite, attempt: str, path: str, token: str) -> tuple[int, bytes]:
    host, _, port = site.parts.services.for_nodes.urls[0].removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    try:
        headers = {"Authorization": f"Bearer {token}"}
        connection.request("GET", f"/v1/attempts/{attempt}{path}", headers=headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_only_the_attempts_own_token_gets_its_plan_and_its_files(site: RemoteSite) -> None:
    services = site.parts.services
    jobs = [site.submit(command="sleep 60") for _ in range(2)]
    plan, other = [site.plan(job) for job in jobs]
    paths = ("/plan", "/worker", "/environment", "/environment/files?of=x", "/blobs/" + "0" * 64)
    owner = (services.home / "token").read_text().strip()
    for path in paths:
        for token in (other["report_token"], plan["run_token"], owner, "yard_nonsense", ""):
            status, body = _ask(site, plan["attempt_id"], path, token)
            assert status in (401, 403), (path, status, body)
            assert plan["report_token"].encode() not in body
    status, body = _ask(site, plan["attempt_id"], "/plan", plan["report_token"])
    assert status == 200 and json.loads(body)["environment_mark"]
    status, body = _ask(site, plan["attempt_id"], "/environment", plan["report_token"])
    files = f"/environment/files?of={hashlib.sha256(body).hexdigest()}&only=nonsense"
    assert _ask(site, plan["attempt_id"], files, plan["report_token"])[0] == 400
    assert _ask(site, plan["attempt_id"], "/environment?part=../..", plan["report_token"])[0] == 400
    status, _ = _ask(site, plan["attempt_id"], "/environment/files?of=x", plan["report_token"])
    assert status == 409
    status, _ = _ask(site, plan["attempt_id"], "/worker?sha256=../../token", plan["report_token"])
    assert status == 404
    for job in jobs:
        actions.cancel(services, "default", job.name)
    for job in jobs:
        assert site.ended(job).status is Status.CANCELED
    # An attempt that is over gives nothing more.
    assert _ask(site, plan["attempt_id"], "/plan", plan["report_token"])[0] in (401, 410)
    assert site.scratch_left() == []


def test_a_node_that_cannot_hold_the_worker_says_which_disk(
    site: RemoteSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setattr(site.engine, "_folder", lambda _: blocked / "node")
    job = site.run(command="true")
    assert job.status is Status.FAILED
    assert job.error is not None and job.error.code == "node_unusable"
    assert str(blocked / "node") in job.error.message
    assert "node_folder" in job.error.hint


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_a_full_disk_of_the_node_is_the_cause_and_leaves_the_node_clean(
    site: RemoteSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=7m", "none", str(small)])
    if mounted.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        monkeypatch.setattr(site.engine, "_folder", lambda _: small)
        job = site.run(command="true")
        assert job.status is Status.FAILED
        assert job.error is not None
        assert "space" in job.error.message, job.error
        eventually(lambda: not list(small.glob("scratch/*")), "the scratch folder to be removed")
        assert not list(small.glob("scratch/*"))
        assert not list(small.glob("environments/.draft-*/tree"))
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
