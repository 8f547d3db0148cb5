"""The commands of guides that need a server of their own, or torch, run as they stand.

Owns: as test_guides.py, for pages about servers, machines, releases and rehearsals.
Leaves: what needs another machine or an engine to the tests that `elsewhere` names.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from end_to_end.test_guides import lines, named_files, run, text_of, walk
from end_to_end.yard_under_test import REPOSITORY, Yard, remove, running_yard
from postgres_server import PostgresServer

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(1800)]
_JUPYTER = "tests/widgets"


@contextlib.contextmanager
def _a_home(folder: Path) -> Iterator[Yard]:
    """One whose server the page itself starts."""
    yard = Yard(folder / "home")
    try:
        yield yard
    finally:
        yard("server", "stop")
        remove(yard.home)


@pytest.mark.usefixtures("torch_environment")
def test_the_first_page(yard: Yard, tmp_path: Path) -> None:
    assert walk(yard, tmp_path, "docs/index.md", {}, {})


@pytest.mark.usefixtures("resumable_environment")
def test_the_example_to_start_from(yard: Yard, tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "examples/start", tmp_path / "start")
    assert len(walk(yard, tmp_path / "start", "examples/start/README.md", {}, {})) == 4
    assert list((tmp_path / "start").rglob("model.pt"))


def test_a_server_that_nodes_reach(tmp_path: Path) -> None:
    (start,) = lines("docs/guides/nodes.md")
    with _a_home(tmp_path) as yard:
        with pytest.raises(AssertionError, match="--jobs-as-server-user"):
            run(yard, start, tmp_path)
        run(yard, f"{start} --jobs-as-server-user", tmp_path)
        assert "https://" in yard("server", "status")


def test_another_machine_is_invited(tmp_path: Path) -> None:
    """What the other machine takes part in is in tests/ray/test_joining_by_uvx.py."""
    start, invite = re.findall(r"^   (yard .*)$", text_of("docs/guides/machines.md"), re.M)
    with _a_home(tmp_path) as yard:
        run(yard, start, tmp_path)
        assert "TORCHYARD_INVITATION=yard_i_" in run(yard, invite, tmp_path)


def test_a_key_is_rotated_where_the_server_keeps_it_and_where_it_was_given(tmp_path: Path) -> None:
    in_home, given = lines("docs/guides/security.md")
    with running_yard("guides-key") as yard:
        assert "encrypted" in run(yard, in_home, tmp_path)
    key = f"TORCHYARD_SECRETS_KEY={secrets.token_hex(32)}"
    with _a_home(tmp_path) as yard:
        run(yard, f"{key} yard server start", tmp_path)
        run(yard, f"{key} {given}", tmp_path)
    assert (tmp_path / "FILE").stat().st_mode & 0o077 == 0


def test_a_home_moves_to_postgresql(tmp_path: Path) -> None:
    server = PostgresServer()
    page = text_of("docs/guides/postgresql.md")
    (stop_to_start,) = re.findall(r"^```\n(yard server stop\n.*?)```", page, re.M | re.S)
    names = {
        "/mnt/backups": str(tmp_path),
        "/srv/yard": str(tmp_path / "home"),
        "postgresql://yard@db.example.com/yard": server.new_database(),
    }
    for name, meant in names.items():
        stop_to_start = stop_to_start.replace(name, meant)
    moved = Yard(tmp_path / "home")
    try:
        with running_yard("guides-moved") as old:
            run(old, "yard job create -f job.yml --stream", _job(tmp_path, "echo moved"))
            run(old, stop_to_start, tmp_path)
            old("server", "start")  # what `running_yard` stops
        (line,) = [line for line in lines("docs/guides/postgresql.md") if "status" in line]
        assert "running" in run(moved, line, tmp_path)
        run(moved, "yard job create -f job.yml --stream", tmp_path)
        _, job = json.loads(moved("job", "list", "-o", "json"))
        assert job["status"] == "Completed"
    finally:
        moved("server", "stop")
        remove(moved.home)
        server.close()


def test_azure_code_with_the_variables_it_needs(yard: Yard, tmp_path: Path) -> None:
    """As for docs/coming-from-azure-ml.md, the script is the reader's own."""
    (tmp_path / "submit.py").write_text(
        "import os\nassert os.environ['IDENTITY_ENDPOINT'].startswith('https://')\n"
    )
    page = "docs/guides/azure-ml-code.md"
    elsewhere = {
        "python submit.py": "below, in its block",
        "yard jupyterlab": _JUPYTER,
        "yard client-env --run -- jupyter": _JUPYTER,
    }
    assert len(walk(yard, tmp_path, page, {}, elsewhere)) == 1
    (block,) = re.findall(r"^```\n(eval .*?)```", text_of(page), re.M | re.S)
    run(yard, block, tmp_path)


def test_a_rehearsal(yard: Yard, tmp_path: Path, torch_environment: dict[str, str]) -> None:
    script = "import torch\nprint(torch.ones(2).cuda().sum(), torch.cuda.is_available())\n"
    (tmp_path / "train.py").write_text(script)
    _job(tmp_path, "python train.py", code=".", environment=torch_environment)
    assert walk(yard, tmp_path, "docs/guides/rehearsal.md", {}, {})


def test_an_environment_is_validated_audited_and_released(tmp_path: Path) -> None:
    page = "docs/guides/environment-releases.md"
    named_files(page, tmp_path)
    # The page's needs torch, without which it is skipped.
    (tmp_path / "workloads/segments.py").write_text("def run():\n    return {'accuracy': 1.0}\n")
    advisory = {
        "id": "GHSA-xxxx-xxxx-xxxx",
        "modified": "2026-11-01T00:00:00Z",
        "published": "2026-11-01T00:00:00Z",
        "affected": [{"package": {"ecosystem": "PyPI", "name": "other"}, "versions": ["1"]}],
    }
    (tmp_path / "all.json").write_text(json.dumps(advisory))
    shutil.make_archive(str(tmp_path / "all"), "zip", tmp_path, "all.json")
    with running_yard("guides-release") as yard:
        for name in ("vision", "plain"):
            requirements = "pip_requirements=iniconfig>=2.0,<2.1"
            yard("environment", "create", "-n", name, "--set", requirements)
            yard("environment", "build", f"azureml:{name}:1")
        elsewhere = {
            "yard environment validations --job": "tests/releases",
            "yard environment archive -n vision -v 2": "nothing moved, so there is no second",
        }
        names = {
            "acpt-pytorch-2.13-cpu": "plain",
            "gpu-cluster": "local",
            "ddp-digits,fsdp2": "interpreter",
        }
        assert len(walk(yard, tmp_path, page, names, elsewhere)) == 17
        assert "vision" in (tmp_path / "vision.md").read_text()
        assert json.loads((tmp_path / "vision.json").read_text())["bomFormat"] == "CycloneDX"


def _job(folder: Path, command: str, **more: object) -> Path:
    document = {"environment": "python", "command": command, **more}
    (folder / "job.yml").write_text(json.dumps(document))
    return folder
