"""A network of the ranks' own, for real: what they reach in it, and what they don't."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ordinary_user import as_nobody, python_of_nobody
from torchyard.executors.bundle import worker_zip
from torchyard.shared.failures import Failure
from torchyard.shared.plan import LimitsPlan
from torchyard.worker.system import network_space
from worker.bench import Bench

# Says what it reached: addresses of the machine, and those that it was given.
_TRY = """
import json, os, socket, sys, urllib.request
def reached(host, port):
    try:
        socket.create_connection((host, port), 3).close()
        return True
    except OSError:
        return False
relay = os.environ["MLFLOW_TRACKING_URI"]
body = {"run_id": os.environ["AZUREML_RUN_ID"], "key": "loss", "value": 1, "step": 1,
        "timestamp": 1}
request = urllib.request.Request(relay + "/api/2.0/mlflow/runs/log-metric",
    json.dumps(body).encode(), {"Content-Type": "application/json",
    "Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]})
urllib.request.urlopen(request, timeout=60).read()
print(json.dumps({name: reached(host, int(port)) for name, host, port in
                  (word.split("=") for word in sys.argv[1:])}), flush=True)
"""
_PAIR = """
import os, socket
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    with socket.create_server(address) as server:
        connection, _ = server.accept()
        print(connection.recv(100).decode(), flush=True)
else:
    import time
    while True:
        try:
            with socket.create_connection(address) as connection:
                connection.sendall(b"from rank 1")
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
"""


@pytest.fixture(autouse=True)
def _allowed() -> None:
    try:
        network_space.make().close()
    except Failure as error:
        pytest.skip(f"this machine allows no networks of their own: {error.message}")


@pytest.fixture
def machines_port() -> Iterator[int]:
    """A port of this machine that something listens on, as a database would."""
    with socket.create_server(("", 0)) as listener:
        yield listener.getsockname()[1]


def _outcome(bench: Bench, network: str, port: int) -> dict[str, bool]:
    snapshot = bench.server.put_snapshot({"try.py": _TRY})
    server_port = bench.server.url.rpartition(":")[2]
    command = f"python try.py machine=127.0.0.1={port} server=127.0.0.1={server_port}"
    bench.run(bench.plan(command, code=snapshot, limits=LimitsPlan(network=network)))
    log = bench.server.logs["user_logs/std_log.txt"].decode()
    assert bench.exit()["error"] is None, log
    (metric,) = (record for record in bench.server.history[0] if record["kind"] == "metric")
    assert metric["value"] == 1
    outcome: dict[str, bool] = json.loads(log)
    return outcome


@pytest.mark.faults
def test_an_open_job_reaches_the_machine_and_the_server(bench: Bench, machines_port: int) -> None:
    assert _outcome(bench, "open", machines_port) == {"machine": True, "server": True}


@pytest.mark.faults
def test_a_job_without_a_network_reaches_the_relay_alone(bench: Bench, machines_port: int) -> None:
    assert _outcome(bench, "none", machines_port) == {"machine": False, "server": False}
    notices = [event["body"] for event in bench.server.events[0] if event["kind"] == "notice"]
    assert {"message": "ranks on node 0 can connect to MLflow's address only"} in notices


@pytest.mark.faults
def test_a_job_in_its_workspace_reaches_the_server(bench: Bench, machines_port: int) -> None:
    assert _outcome(bench, "workspace", machines_port) == {"machine": False, "server": True}


@pytest.mark.faults
def test_the_nodes_of_a_job_reach_each_other(bench: Bench) -> None:
    snapshot = bench.server.put_snapshot({"pair.py": _PAIR})
    plan = bench.plan(
        "python pair.py",
        code=snapshot,
        node_count=2,
        distribution="pytorch",
        preflight="on",
        limits=LimitsPlan(network="workspace"),
    )
    bench.run(plan)
    assert bench.exit(0)["error"] is None and bench.exit(1)["error"] is None
    assert bench.server.logs["user_logs/std_log_process_0.txt"] == b"from rank 1\n"


@pytest.mark.faults
def test_a_cancel_reaches_a_job_without_a_network(bench: Bench) -> None:
    plan = bench.plan("sleep 60", limits=LimitsPlan(network="none"))
    handle = bench.launch(plan)
    bench.server.wait_for("ranks_started")
    bench.server.say_stop("cancel")
    bench.wait(handle)
    assert bench.exit()["error"]["code"] == "canceled"


def test_an_address_of_another_machine_can_be_listened_on() -> None:
    space = network_space.make()
    try:
        (listener,) = space.listen([("10.99.98.97", 8766)])
        assert listener.getsockname() == ("10.99.98.97", 8766)
        with pytest.raises(Failure, match="Address already in use"):
            space.listen([("10.99.98.97", 8766)])
        listener.close()
    finally:
        space.close()


_AS_USER = """
import sys
sys.path.insert(0, sys.argv[1])
import subprocess
from torchyard.worker.system import network_space
space = network_space.make()
(listener,) = space.listen([("127.0.0.1", 0)])
port = str(listener.getsockname()[1])
words = space.command([sys.executable, "-c", sys.argv[2], port, sys.argv[3]])
sys.exit(subprocess.run(words).returncode)
"""
_INSIDE = """
import os, socket, sys
print("relay", socket.create_connection(("127.0.0.1", int(sys.argv[1])), 3).getpeername()[0])
for host, port in (("127.0.0.1", int(sys.argv[2])), ("192.0.2.1", 80)):
    try:
        socket.create_connection((host, port), 3)
    except OSError as error:
        print(error.strerror)
print(os.getuid())
try:
    open(f"/proc/{os.getppid()}/environ").read()
    print("reads its parent")
except PermissionError:
    print("kept from its parent")
"""


def test_an_ordinary_users_rank_is_kept_in_it() -> None:
    """It makes the network without root, and can't leave it through its parent."""
    if os.geteuid() != 0:
        pytest.skip("the other tests ran as an ordinary user")
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as there:
        os.chmod(folder, 0o755)
        program = str(shutil.copy(worker_zip(Path(folder)), Path(folder, "worker.pyz")))
        port = str(there.getsockname()[1])
        done = as_nobody([python_of_nobody(), "-I", "-S", "-c", _AS_USER, program, _INSIDE, port])
    lines = done.stdout.splitlines()
    refused = ["Connection refused", "Network is unreachable"]
    user = str(pwd.getpwnam("nobody").pw_uid)
    assert lines == ["relay 127.0.0.1", *refused, user, "kept from its parent"], done
