"""packaging/compose/compose.yml, run by podman-compose, with PostgreSQL of Debian's packages.

Commands are typed outside of the containers, at the published port.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployment.conftest import IMAGE, POSTGRES, Podman
from end_to_end.yard_under_test import ENDED, REPOSITORY
from eventually import eventually

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1800)]
_FILE = REPOSITORY / "packaging" / "compose" / "compose.yml"
_YARD = Path(sys.executable).with_name("yard")
_PROJECT = "test-torchyard"
_URL = "https://localhost:8766"
_LIMIT_S = 600.0
TWO_NODES: dict[str, Any] = {
    "environment": "azureml:python@latest",
    "compute": "azureml:machines",
    "resources": {"instance_count": 2},
    "distribution": {"type": "pytorch", "process_count_per_instance": 1},
}


@dataclass(frozen=True)
class Stack:
    """The services, and a person who reaches them from outside."""

    podman: Podman
    compose_program: str
    folder: Path

    def compose(self, *words: str) -> str:
        more = self.folder / "more.yml"
        done = self.podman.run(
            self.compose_program, "--project-name", _PROJECT, "--file", _FILE, "--file", more,
            *words, TORCHYARD_IMAGE=IMAGE, POSTGRES_IMAGE=POSTGRES,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def container(self, service: str) -> str:
        return f"{_PROJECT}_{service}_1"

    def yard(self, *words: str | Path) -> str:
        done = self.podman.run(_YARD, *words, TORCHYARD_HOME=str(self.folder / "home"))
        logs = "" if done.returncode == 0 else self.podman("logs", self.container("server"))
        assert done.returncode == 0, done.stdout + done.stderr + logs
        return done.stdout

    def json(self, *words: str | Path) -> Any:
        return json.loads(self.yard(*words, "-o", "json"))

    def log_in(self) -> None:
        """As docs/guides/containers.md says."""
        authority, token = self.folder / "ca.pem", self.folder / "token"
        words = ("yard", "user", "token", "create", "admin", "--query", "token", "-o", "tsv")
        for file, command in ((authority, ("cat", "/access/ca.pem")), (token, words)):
            file.write_text(self.compose("exec", "-T", "server", *command))
        self.yard("login", _URL, "--ca-cert", authority, "--token-file", token)

    def await_nodes(self) -> None:
        def joined() -> list[str]:
            machines = self.json("node", "list")
            return sorted(each["name"] for each in machines if each["state"] == "joined")

        eventually(
            lambda: joined() == ["node-1", "node-2"], "both nodes joined", _LIMIT_S, every_s=1
        )

    def submit(self, name: str, command: str, **more: Any) -> None:
        file = self.folder / f"{name}.yml"
        file.write_text(yaml.safe_dump({**TWO_NODES, "name": name, "command": command, **more}))
        self.yard("job", "create", "-f", file)

    def await_status(self, name: str, *statuses: str) -> dict[str, Any]:
        def job() -> dict[str, Any] | None:
            shown: dict[str, Any] = self.json("job", "show", "-n", name)
            return shown if shown["status"] in statuses else None

        return eventually(job, f"{name} is {' or '.join(statuses)}", _LIMIT_S, every_s=0.5) or {}

    def await_completed(self, name: str) -> None:
        job = self.await_status(name, *ENDED)
        assert job["status"] == "Completed", job

    def outputs(self, name: str) -> dict[str, str]:
        """The text files of a job's `outputs`, by name."""
        folder = self.folder / f"{name}-outputs"
        self.yard("job", "download", "-n", name, "--all", "-p", folder)
        return {file.name: file.read_text() for file in folder.rglob("outputs/*.txt")}


@pytest.fixture(scope="module")
def stack(
    podman: Podman, podman_compose: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    made = Stack(podman, podman_compose, tmp_path_factory.mktemp("compose"))
    services = {name: {"volumes": podman.mounts} for name in ("server", "node-1", "node-2")}
    (made.folder / "more.yml").write_text(yaml.safe_dump({"services": services}))
    try:
        made.compose("up", "--detach")
        for service in ("database", "server"):
            podman.await_health(made.container(service))
        eventually(
            lambda: podman.run(
                "podman", "exec", made.container("server"), "test", "-s", "/access/node-token"
            ).returncode == 0,
            "the first owner is there",
        )  # fmt: skip
        made.log_in()
        made.await_nodes()
        yield made
    finally:
        podman.run(podman_compose, "--project-name", _PROJECT, "--file", _FILE, "down", "--volumes")


def test_a_person_outside_trains_on_both_nodes(stack: Stack) -> None:
    command = "hostname > outputs/rank-$RANK.txt; echo of $WORLD_SIZE >> outputs/rank-$RANK.txt"
    stack.submit("two", command)
    stack.await_completed("two")
    outputs = stack.outputs("two")
    assert sorted(outputs) == ["rank-0.txt", "rank-1.txt"]
    assert sorted(outputs.values()) == ["node-1\nof 2\n", "node-2\nof 2\n"]


def test_records_are_in_postgresql(stack: Stack) -> None:
    query = "SELECT count(*) FROM people WHERE name = 'admin'"
    words = ("psql", "--username=yard", "--dbname=yard", "-Atc", query)
    assert stack.podman("exec", stack.container("database"), *words) == "1"


def test_a_backup_is_made_in_the_server_s_container(stack: Stack) -> None:
    file = "/var/lib/torchyard/before.tar"
    stack.compose("exec", "-T", "server", "yard", "server", "backup", file)
    names = stack.podman("exec", stack.container("server"), "python3", "-m", "tarfile", "-l", file)
    assert len(names.splitlines()) > 3


def test_no_password_or_token_is_in_a_container_s_environment_or_arguments(stack: Stack) -> None:
    secrets = [
        stack.podman("exec", stack.container("database"), "cat", "/secrets/password"),
        stack.podman("exec", stack.container("server"), "cat", "/access/node-token"),
    ]
    assert all(len(secret) > 30 for secret in secrets)
    for service in ("database", "server", "access", "node-1"):
        described = stack.podman("inspect", stack.container(service))
        assert not any(secret in described for secret in secrets)


def test_a_node_can_read_neither_the_home_nor_the_database_s_password(stack: Stack) -> None:
    script = "ls -A /secrets /var/lib/torchyard/home/tls 2> /dev/null; true"
    assert stack.podman("exec", stack.container("node-1"), "sh", "-c", script) == "/secrets:"


def test_a_killed_server_comes_back_and_the_job_is_tried_again(stack: Stack) -> None:
    command = (
        '[ "$TORCHYARD_ATTEMPT_NUMBER" != 1 ] || sleep 1000; '
        "echo attempt $TORCHYARD_ATTEMPT_NUMBER > outputs/rank-$RANK.txt"
    )
    retry = {"retry": {"max_attempts": 5, "backoff_s": 0}}
    stack.submit("killed", command, torchyard=retry)
    stack.submit("waiting", "true", torchyard=retry)
    stack.await_status("killed", "Running")
    server = stack.container("server")
    # As a crash; `podman kill` and `podman stop` may count as the wish that it stays stopped.
    os.kill(int(stack.podman("inspect", server, "--format={{.State.Pid}}")), signal.SIGKILL)
    stack.podman.await_health(server)
    stack.await_completed("killed")
    stack.await_completed("waiting")
    outputs = stack.outputs("killed")
    assert sorted(outputs) == ["rank-0.txt", "rank-1.txt"]
    (attempt,) = set(outputs.values())  # on a slow machine nodes may be lost once more
    assert attempt != "attempt 1\n"


def test_records_and_nodes_survive_down_and_up(stack: Stack) -> None:
    stack.submit("before", "echo kept > outputs/kept-$RANK.txt")
    stack.await_completed("before")
    stack.compose("down")
    assert stack.podman("ps", "--all", "--quiet") == ""
    stack.compose("up", "--detach")
    stack.podman.await_health(stack.container("server"))
    assert stack.json("job", "show", "-n", "before")["status"] == "Completed"
    assert set(stack.outputs("before").values()) == {"kept\n"}
    stack.await_nodes()
    stack.submit("after", "true")
    stack.await_completed("after")


def test_a_project_of_yard_init_trains_with_torch_on_both_nodes(stack: Stack) -> None:
    stack.podman.wheels.add_start()
    project = stack.folder / "project"
    stack.yard("init", project)
    changes = ("name=start", "compute=azureml:machines", "inputs.epochs=2")
    stack.yard("job", "create", "-f", project / "job.yml", "--set", *changes)
    stack.await_completed("start")
    stack.yard("job", "download", "-n", "start", "--all", "-p", stack.folder / "trained")
    assert [file.name for file in (stack.folder / "trained").rglob("*.pt")] == ["model.pt"]
