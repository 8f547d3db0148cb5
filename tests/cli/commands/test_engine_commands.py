"""Clusters of other engines by the real `yard` against the real server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Yard
from cli.real_server import RealServer
from eventually import eventually
from torchyard.executors.executor import EngineUnreachable
from torchyard.executors.fake import FakeEngine

ENDINGS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@pytest.fixture(scope="module")
def engine() -> FakeEngine:
    return FakeEngine("slurm", machines=2, most_nodes=6)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, engine: FakeEngine) -> Iterator[RealServer]:
    server = RealServer(
        tmp_path_factory.mktemp("server"),
        openers={"slurm": lambda: engine},
        node_urls=["https://10.0.0.9:8766"],
    )
    yield server
    server.stop()


@pytest.fixture
def lab(running: RealServer, yard: Yard, monkeypatch: pytest.MonkeyPatch) -> Yard:
    """`yard` with a cluster `lab`."""
    monkeypatch.setenv("TORCHYARD_URL", running.url)
    monkeypatch.setenv("TORCHYARD_TOKEN", running.token)
    words = ("compute", "attach", "lab", "--partition", "gpu", "--set", "torchyard.exclusive=true")
    attached = yard(*words, "-o", "json")
    assert attached.code == 0, attached.err
    return yard


def test_attach_takes_settings_and_as_many_nodes_as_there_can_be(lab: Yard) -> None:
    compute = json.loads(lab("compute", "show", "lab", "-o", "json").text)
    assert compute["torchyard"] == {"engine": "slurm", "partition": "gpu", "exclusive": True}
    assert (compute["engine"], compute["max_instances"]) == ("slurm", 6)
    page = lab("compute", "show", "lab").text
    assert "Partition" in page and "machine-1" in page
    changed = lab("compute", "update", "lab", "--max-instances", "3", "-o", "json")
    assert json.loads(changed.text)["torchyard"] == compute["torchyard"]


def test_list_nodes_and_check_say_what_the_engine_says(lab: Yard) -> None:
    nodes = lab("compute", "list-nodes", "lab").text
    assert "MACHINE" in nodes and "machine-0" in nodes and "10.0.0.1" in nodes
    checked = lab("compute", "check", "lab", "--engine-only")
    assert checked.code == 0
    expected = (
        "`lab`: slurm 1.0; machines: 2 idle; nodes reach the server at https://10.0.0.9:8766."
    )
    assert checked.text.strip() == expected


def test_check_of_an_engine_that_does_not_answer(lab: Yard, engine: FakeEngine) -> None:
    engine.unreachable = EngineUnreachable("slurmctld does not answer", "start it")
    try:
        checked = lab("compute", "check", "lab", "--engine-only")
    finally:
        engine.unreachable = None
    assert checked.code == 2
    assert "compute `lab`: slurmctld does not answer" in checked.err
    assert "start it" in checked.err


def test_a_check_takes_the_free_nodes_and_comes_after_every_other_job(
    lab: Yard, running: RealServer, engine: FakeEngine
) -> None:
    cluster = engine.cluster
    nodes = tuple(
        replace(node, state=state)
        for node, state in zip(cluster.nodes, ("running", "idle"), strict=True)
    )
    engine.cluster = replace(cluster, nodes=nodes)
    check = start_check(running, "lab")
    try:
        [job] = checks_of(lab)
        assert (job["node_count"], job["job_tier"], job["priority"]) == (1, "spot", "low")
        engine.cluster = replace(cluster, nodes=(nodes[0],))
        none_free = lab("compute", "check", "lab")
        assert none_free.code == 2 and "`lab` has no free node" in none_free.err
    finally:
        engine.cluster = cluster
        check.kill()
        check.wait()
    eventually(lambda: checks_of(lab)[0]["status"] == "Canceled", "the job ends with the command")


@pytest.mark.parametrize("signum", [signal.SIGKILL, *ENDINGS])
def test_the_job_of_a_check_ends_with_it(lab: Yard, running: RealServer, signum: int) -> None:
    check = start_check(running, "lab", "--nodes", "2")
    name = checks_of(lab)[0]["name"]
    check.send_signal(signum)
    check.wait()

    def state() -> str:
        return str(json.loads(lab("job", "show", "-n", name, "-o", "json").text)["status"])

    eventually(lambda: state() == "Canceled", "its job is canceled")


def checks_of(lab: Yard) -> list[dict[str, Any]]:
    """The jobs of checks that have not ended, else the last ones; the newest first."""
    answer = lab("job", "list", "--experiment-name", "compute-checks", "-o", "json")
    jobs: list[dict[str, Any]] = json.loads(answer.text)
    return jobs


def start_check(running: RealServer, *words: str) -> subprocess.Popen[bytes]:
    """A command of its own process, once its job is there."""
    environ = {name: value for name, value in os.environ.items() if "TORCHYARD" not in name}
    variables = {"TORCHYARD_URL": running.url, "TORCHYARD_TOKEN": running.token}
    with running.client() as client:
        before = {job.name for job in client.jobs.list(max_results=None)}
        check = subprocess.Popen(
            [Path(sys.executable).with_name("yard"), "compute", "check", *words],
            env={**environ, **variables, "TORCHYARD_HOME": str(running.home / "of-the-command")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Who starts the tests in the background lets them ignore some.
            preexec_fn=lambda: [signal.signal(each, signal.SIG_DFL) for each in ENDINGS],
        )
        eventually(
            lambda: {job.name for job in client.jobs.list(max_results=None)} - before,
            "the job is created",
        )
    return check


def test_a_wrong_setting_is_told_with_its_line(lab: Yard, tmp_path: Path) -> None:
    file = tmp_path / "lab.yml"
    file.write_text("name: lab2\ntorchyard:\n  engine: slurm\n  partitoin: gpu\n")
    refused = lab("compute", "create", "-f", file)
    assert refused.code == 2
    assert "lab.yml:4:3: unknown key `partitoin`" in refused.err
    assert "did you mean `partition`?" in refused.err


def test_the_number_of_nodes_over_time_is_listed(lab: Yard) -> None:
    sized = ("--min-instances", "4", "--max-instances", "4")
    assert lab("compute", "create", "-n", "grows", *sized).code == 0
    idle = ("--min-instances", "0", "--idle-time-before-scale-down", "0")
    assert lab("compute", "update", "-n", "grows", *idle).code == 0
    words = ("compute", "list-nodes", "grows", "--history")
    counts = json.loads(lab(*words, "-o", "json").text)
    assert [(count["current"], count["running"]) for count in counts] == [(4, 0), (0, 0)]
    lines = lab(*words).text.splitlines()
    assert lines[0].split() == ["AT", "NODES", "BUSY", "TARGET", "MACHINES", "REASON"]
    assert "4 for the minimum" in lines[2] and "4 idle for 0 s" in lines[3]


@pytest.mark.parametrize("content", ["", "Token `lab`, valid until never:\n\nyard_p_x\n"])
def test_a_file_without_a_token_is_told_before_a_machine_joins(
    yard: Yard, tmp_path: Path, content: str
) -> None:
    file = tmp_path / "token.txt"
    file.write_text(content)
    joined = yard("node", "join", "https://10.0.0.9:8766", "--token-file", str(file))
    assert joined.code == 2 and "error: that is not a token" in joined.err
    assert "--query token -o tsv" in joined.err
