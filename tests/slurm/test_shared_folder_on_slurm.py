"""Jobs on Slurm nodes that no network leads from to the server: all goes by a shared folder."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from end_to_end import namespaces
from end_to_end.yard_under_test import ENDED, Yard, running_yard, wait_until
from slurm.conftest import create_compute
from slurm.slurm_cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]
ONE_DATABASE = True
WriteJob = Callable[..., str]
_RANKS = """\
import json, os, socket, sys, time, urllib.request

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
server = sys.argv[1].split(":")
try:
    socket.create_connection((server[0], int(server[1])), 3)
    sys.exit("the server is reached over the network")
except OSError:
    print("no network to the server", flush=True)

# The ranks reach each other.
if rank == 0:
    listener = socket.create_server(("127.0.0.1", 39417))
    peers = [listener.accept()[0] for _ in range(world - 1)]
    print("met", sum(int(peer.recv(10)) for peer in peers), flush=True)
else:
    for _ in range(600):
        try:
            peer = socket.create_connection((os.environ["MASTER_ADDR"], 39417))
            break
        except OSError:
            time.sleep(0.1)
    peer.send(b"%d" % rank)

def log(key, value, step):
    body = {"run_id": os.environ["MLFLOW_RUN_ID"], "key": key, "value": value, "step": step,
            "timestamp": int(time.time() * 1000)}
    url = os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/log-metric"
    token = os.environ["MLFLOW_TRACKING_TOKEN"]
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + token}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    urllib.request.urlopen(request, timeout=120).read()

print("input", os.path.getsize(sys.argv[2]), flush=True)
os.makedirs("outputs", exist_ok=True)
for step in range(60):
    log(f"loss-{rank}", 1 / (step + 1), step)
    print("step", step, flush=True)
    time.sleep(0.25)
with open(f"outputs/rank-{rank}.bin", "wb") as file:
    file.write(bytes([rank]) * (9 << 20))
print("done", flush=True)
"""


@dataclass
class _Airgap:
    """A cluster whose nodes have a loopback of their own, and nothing else."""

    yard: Yard
    shared: Path
    python: Path

    @property
    def left(self) -> list[str]:
        """The folders of attempts."""
        return [
            folder.name
            for folder in self.shared.glob("torchyard-*/*")
            if folder.is_dir() and folder.name != "workers"
        ]


@pytest.fixture(scope="module")
def airgap(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Airgap]:
    if reason := namespaces.why_not():
        pytest.skip(reason)
    name = f"torchyard-{os.getpid()}-9"
    folder = tmp_path_factory.mktemp("airgap")
    shared, python = folder / "shared", folder / "python"
    shared.mkdir()
    python.write_text(f'#!/bin/sh\nexec ip netns exec {name} {sys.executable} "$@"\n')
    python.chmod(0o755)
    subprocess.run(["ip", "netns", "add", name], check=True)
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(slurm.config)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        with running_yard("airgap", "") as yard:
            keys = {"partition": "low", "python": str(python), "shared_folder": str(shared)}
            create_compute(yard, slurm, "low", 0, 4, **keys)
            yield _Airgap(yard, shared, python)
    finally:
        if before is None:
            del os.environ["SLURM_CONF"]
        else:
            os.environ["SLURM_CONF"] = before
        with contextlib.suppress(subprocess.CalledProcessError):
            subprocess.run(["ip", "netns", "del", name], check=True)


def _create(yard: Yard, file: str) -> str:
    return str(json.loads(yard("job", "create", "-f", file, "-o", "json"))["name"])


def _wait_for_text(yard: Yard, name: str, text: str) -> None:
    """Until a rank of the running job has printed it."""

    def is_there() -> bool:
        job = yard.job(name)
        assert job["status"] not in ENDED, job["error"]
        return text in b"".join(yard.logs(name).values()).decode()

    wait_until(is_there, 120, f"a rank prints {text!r}")


class TestNodesWithoutANetwork:
    def test_complete_a_job_while_the_server_is_killed_and_started_again(
        self, airgap: _Airgap, write_job: WriteJob, tmp_path: Path
    ) -> None:
        yard = airgap.yard
        (tmp_path / "data.bin").write_bytes(bytes(11 << 20))
        address = json.loads((yard.home / "server.json").read_text())["url"].rpartition("/")[2]
        file = write_job(
            _RANKS,
            command="python main.py " + address + " ${{inputs.data}}",
            inputs={"data": {"type": "uri_file", "path": "data.bin"}},
            distribution={"type": "pytorch", "process_count_per_instance": 1},
            resources={"instance_count": 2},
        )
        name = _create(yard, file)
        _wait_for_text(yard, name, "step 5\n")
        yard.kill_server()
        time.sleep(3)
        yard("server", "start")
        yard.completed(name)
        logs = yard.logs(name)
        assert len(logs) == 2
        for rank, log in enumerate(logs[path].decode() for path in sorted(logs)):
            lines = log.splitlines()
            assert lines.count("no network to the server") == 1
            assert lines.count(f"input {11 << 20}") == 1
            steps = [line for line in lines if line.startswith("step ")]
            assert steps == [f"step {step}" for step in range(60)]
            assert lines[-1] == "done"
            assert ("met 1" in lines) == (rank == 0)
        for rank in range(2):
            points = yard.get(f"jobs/{name}/metrics/history?key=loss-{rank}")["points"]
            assert sorted(step for step, _, _ in points) == list(range(60))
        for rank in range(2):
            content = yard.read(f"jobs/{name}/files/outputs/rank-{rank}.bin")
            assert content == bytes([rank]) * (9 << 20)
        wait_until(lambda: not airgap.left, 150, "nothing is left in the shared folder")

    def test_take_shells_and_stop_when_their_job_is_canceled(
        self, airgap: _Airgap, write_job: WriteJob
    ) -> None:
        yard = airgap.yard
        name = _create(yard, write_job("import time\nprint('begun', flush=True)\ntime.sleep(600)"))
        _wait_for_text(yard, name, "begun")
        assert yard("job", "shell", "-n", name, "--", "echo", "inside") == "inside\n"
        yard("job", "cancel", "-n", name)
        assert yard.wait(name, 90)["status"] == "Canceled"

    def test_let_the_cluster_be_checked(self, airgap: _Airgap) -> None:
        report = airgap.yard("compute", "check", "-n", "low", "--engine-only")
        assert f"the shared folder {airgap.shared}" in report
        airgap.yard("compute", "check", "-n", "low", "--nodes", "2")


class TestWrongFolders:
    def test_that_the_server_has_not_are_refused_when_the_cluster_is_made(
        self, airgap: _Airgap, slurm: SlurmCluster, tmp_path: Path
    ) -> None:
        yard, missing = airgap.yard, str(tmp_path / "missing")
        file = tmp_path / "wrong.yml"
        settings = {"engine": "slurm", "partition": "low", "shared_folder": missing}
        file.write_text(json.dumps({"name": "wrong", "max_instances": 1, "torchyard": settings}))
        with yard.start("compute", "create", "-f", str(file), stderr=subprocess.PIPE) as process:
            _, errors = process.communicate(timeout=60)
        assert process.returncode == 2, errors
        assert f"the shared folder `{missing}` is not a folder on the server" in errors.decode()

    def test_that_nodes_see_otherwise_are_named(
        self, airgap: _Airgap, slurm: SlurmCluster, write_job: WriteJob, tmp_path: Path
    ) -> None:
        yard = airgap.yard
        (tmp_path / "here").mkdir()
        (tmp_path / "there").mkdir()
        python = tmp_path / "python"
        # Another folder is mounted at its path on the nodes.
        mount = f"mount --bind {tmp_path}/there {tmp_path}/here"
        script = f'{mount} && exec {airgap.python} "$@"'
        python.write_text(f"#!/bin/sh\nexec unshare --mount sh -c '{script}' x \"$@\"\n")
        python.chmod(0o755)
        keys = {"python": str(python), "shared_folder": str(tmp_path / "here")}
        create_compute(yard, slurm, "other", 0, 4, partition="low", **keys)
        job = yard.wait(_create(yard, write_job("print(1)", compute="other")), 90)
        assert job["status"] == "Failed"
        message = job["error"]["message"]
        assert f"`{tmp_path}/here` is not the one that the server sees" in message, message
