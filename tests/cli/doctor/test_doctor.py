"""`yard doctor`: what it says of this machine, and of machines that lack something."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from cli.conftest import Yard
from cli.served_workspace import ServedWorkspace
from torchyard.base import certificates, machine
from torchyard.base.http import Transport
from torchyard.base.settings import Settings
from torchyard.cli.doctor import checks, machine_check, programs_check, server_check
from torchyard.cli.doctor.certificate_check import certificate
from torchyard.cli.doctor.findings import Finding


def test_the_whole_page(server: ServedWorkspace, yard: Yard) -> None:
    answer = yard("doctor", "-o", "json")
    finding = {row["check"]: row for row in json.loads(answer.out)}
    assert {"python", "uv", "home", "disk", "links", "memory", "ports", "gpu", "namespaces",
            "packages", "containers", "mpi", "git", "server", "limits", "clock", "job users",
            "certificate"} == set(finding)  # fmt: skip
    assert finding["server"]["status"] == finding["uv"]["status"] == "ok"
    assert answer.code == (1 if any(row["status"] == "wrong" for row in finding.values()) else 0)
    assert all(row["remedy"] for row in finding.values() if row["status"] == "wrong")
    assert not Path("../home").exists(), "looking makes nothing"


def test_a_home_whose_jobs_run_as_the_server_says_what_that_means(tmp_path: Path) -> None:
    assert server_check.job_users(Settings(tmp_path)).status == "ok"
    (tmp_path / "jobs-as-server-user").touch()
    finding = server_check.job_users(Settings(tmp_path))
    assert finding.status == "note" and "can read and change all that" in finding.result
    assert "docs/guides/runner.md" in finding.remedy


def test_a_server_that_does_not_answer(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    finding = server_check.server(Settings(tmp_path, "http://127.0.0.1:9", "x"))
    assert finding.status == "wrong" and "TORCHYARD_URL" in finding.remedy
    assert server_check.server(Settings(tmp_path)).status == "ok"


def test_the_certificate_for_azures_clients(tmp_path: Path) -> None:
    now = datetime.now(timezone.utc)
    settings = Settings(tmp_path)
    assert "not created yet" in certificate(settings, {}).result
    made = certificates.ensure(tmp_path, [], now)
    (tmp_path / "tls-port").write_text("8766")
    finding = certificate(settings, {"ARM_CLOUD_METADATA_URL": "https://127.0.0.1:8766/x"})
    assert finding.status == "ok" and f"{made.ends_at:%Y-%m-%d}" in finding.result
    finding = certificate(settings, {"ARM_CLOUD_METADATA_URL": "https://localhost:9/x"})
    assert finding.status == "note" and "point to port 9" in finding.result
    assert "eval" in finding.remedy
    made.file.write_text("nothing")
    assert "can't be read" in certificate(settings, {}).result
    certificates.ensure(tmp_path / "old", [], now - timedelta(days=500))
    assert "expired on" in certificate(Settings(tmp_path / "old"), {}).result
    assert certificate(Settings(tmp_path, "https://gpu-box"), {}).status == "ok"


def test_a_machine_that_lacks_things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    monkeypatch.setenv("PATH", str(bin_folder))
    assert programs_check.git().status == "note"
    mpi = programs_check.mpi()
    assert (mpi.status, "`mpirun` not found" in mpi.result) == ("note", True)
    assert "apt-get install openmpi-bin" in mpi.remedy
    assert "neither podman nor docker" in programs_check.containers().result
    docker = bin_folder / "docker"
    docker.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2; exit 1\n")
    docker.chmod(0o755)
    engine = programs_check.containers()
    assert engine.status == "note" and "Cannot connect" in engine.result
    assert "apt-get install podman" in engine.remedy
    smi = bin_folder / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'Driver/library version mismatch' >&2\nexit 18\n")
    smi.chmod(0o755)
    finding = machine_check.gpu()
    assert finding.status == "wrong" and "mismatch" in finding.result
    smi.write_text("#!/bin/sh\necho 'H200, 570.1, 143771 MiB'\necho 'H200, 570.1, 143771 MiB'\n")
    assert machine_check.gpu().result == "2 x H200, 570.1, 143771 MiB"
    monkeypatch.setattr(sys, "executable", str(bin_folder / "python"))
    assert programs_check.uv().status == "wrong"


def test_an_unusable_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "file_system", lambda folder: "nfs4")
    assert "network file system" in machine_check.home(tmp_path / "x").result
    assert machine_check.home(tmp_path).status == "wrong"
    assert machine_check._nearest(tmp_path / "a/b/c") == tmp_path


def test_links_where_nothing_can_be_written() -> None:
    finding = machine_check.links(Path("/proc/nowhere"))
    assert finding.status == "note" and finding.result.startswith("not checked: `/proc/")


def test_a_check_that_breaks_spoils_no_other() -> None:
    def broken() -> Finding:
        raise RuntimeError("odd machine")

    finding = checks._guarded("memory", broken)
    assert finding.status == "note" and "odd machine" in finding.result


@pytest.mark.parametrize(
    ("answer", "status", "result"),
    [
        (
            {"cpu": True, "memory": True, "pids": True, "network": True},
            "ok",
            "held for jobs: CPU, memory, processes, network, open files, disk (watched)",
        ),
        (
            {"cpu": False, "memory": True, "pids": False, "network": True},
            "note",
            "held for jobs: memory, network, open files, disk (watched); not held: CPU, processes; "
            "processes are counted for all jobs of a user together",
        ),
    ],
)
def test_which_limits_hold(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: dict[str, bool],
    status: str,
    result: str,
) -> None:
    monkeypatch.setattr(Transport, "get", lambda self, path: answer)
    finding = server_check.limits(Settings(tmp_path, "http://127.0.0.1:9", "x"))
    assert (finding.status, finding.result) == (status, result)
    assert ("Delegate=" in finding.remedy) is (status == "note")


def test_limits_are_not_guessed_without_a_server(tmp_path: Path) -> None:
    assert server_check.limits(Settings(tmp_path)).result == "not checked: no server is running"
