"""Slurm nodes that no network leads from to the server: refused before a job, or named by it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from end_to_end import namespaces
from end_to_end.yard_under_test import Yard
from slurm.conftest import create_compute
from slurm.slurm_cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]
ONE_DATABASE = True
WriteJob = Callable[..., str]


@pytest.fixture
def no_network() -> Iterator[str]:
    """The name of a network namespace that has a loopback of its own, and nothing else."""
    if reason := namespaces.why_not():
        pytest.skip(reason)
    name = f"torchyard-{os.getpid()}-9"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


def _python(folder: Path, name: str, namespace: str, nodes: str) -> str:
    """A Python that has no network on these nodes of a job, a pattern of the shell."""
    file = folder / name
    inside = f'ip netns exec {namespace} {sys.executable} "$@"'
    file.write_text(
        f'#!/bin/sh\ncase "$SLURM_PROCID" in {nodes}) exec {inside};; esac\n'
        f'exec {sys.executable} "$@"\n'
    )
    file.chmod(0o755)
    return str(file)


def test_a_job_whose_node_does_not_reach_the_server_fails_and_says_what_to_open(
    yard: Yard, slurm: SlurmCluster, no_network: str, write_job: WriteJob, tmp_path: Path
) -> None:
    nowhere = _python(tmp_path, "nowhere", no_network, "*")
    half = _python(tmp_path, "half", no_network, "1")
    # A node with the worker asks for its plan; one without asks for the worker.
    yard.completed(_create(yard, write_job("print(1)")))
    folder = str(tmp_path / "nodes")
    create_compute(yard, slurm, "empty", partition="low", python=nowhere, node_folder=folder)
    create_compute(yard, slurm, "kept", partition="low", python=nowhere)
    create_compute(yard, slurm, "half", partition="low", python=half)
    names = {
        (compute, node): _create(
            yard,
            write_job("print(1)", compute=compute, resources={"instance_count": node + 1}),
        )
        for compute, node in (("empty", 0), ("kept", 0), ("half", 1))
    }
    url = json.loads((yard.home / "server.json").read_text())["url"]
    for (_, node), name in names.items():
        job = yard.wait(name, 300)
        error = job["error"]
        # Of a job whose other nodes go on, the server may hear of the loss before of its reason.
        codes = ("node_unusable", "node_lost") if node else ("node_unusable",)
        assert job["status"] == "Failed" and error["code"] in codes, error
        assert f"node {node} (" in error["message"] and url in error["message"], error
        assert "this TCP port of the server" in error["hint"], error


def test_a_server_that_a_node_can_not_reach_refuses_its_cluster_and_its_jobs(
    yard: Yard, slurm: SlurmCluster, write_job: WriteJob, tmp_path: Path
) -> None:
    create_compute(yard, slurm, "moved", partition="low")
    slurm.run("scontrol", "update", "NodeName=n2", "NodeAddr=192.0.2.9")
    try:
        # What it has just heard of Slurm is forgotten.
        yard.kill_server()
        yard("server", "start")
        attach = ("compute", "attach", "far", "--engine", "slurm", "--partition", "low")
        check = ("compute", "check", "moved", "--engine-only")
        submit = ("job", "create", "-f", write_job("print(1)", compute="moved"))
        for words in (attach, check, submit):
            errors = yard.run(*words, expect=2)[1]
            assert "node `n2` (192.0.2.9) can't reach this server" in errors
            assert "`yard server start --listen`, and open its TCP port" in errors
        assert "far" not in yard("compute", "list")
    finally:
        slurm.run("scontrol", "update", "NodeName=n2", "NodeAddr=127.0.0.1")


def _create(yard: Yard, file: str) -> str:
    return str(json.loads(yard("job", "create", "-f", file, "-o", "json"))["name"])
