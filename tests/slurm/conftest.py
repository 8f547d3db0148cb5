"""A Slurm of the test session's own, and a torchyard whose clusters are its partitions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from end_to_end.yard_under_test import Yard, running_yard
from slurm.slurm_cluster import SlurmCluster, need


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    need()
    cluster = SlurmCluster()
    cluster.start()
    yield cluster
    left = cluster.processes_of_jobs()
    cluster.close()
    assert not left, "jobs left processes on the nodes"


@pytest.fixture(scope="session")
def yard(slurm: SlurmCluster) -> Iterator[Yard]:
    """Its clusters are `low` and `high`, each a partition of both nodes."""
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(slurm.config)
    try:
        with running_yard("slurm", "") as yard:
            for name in ("low", "high"):
                create_compute(yard, slurm, name, partition=name)
            yield yard
    finally:
        if before is None:
            del os.environ["SLURM_CONF"]
        else:
            os.environ["SLURM_CONF"] = before


@pytest.fixture(autouse=True)
def nothing_goes_on(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "yard" in request.fixturenames:
        request.getfixturevalue("yard").quiet_down()
    if "slurm" in request.fixturenames:
        cluster = request.getfixturevalue("slurm")
        cluster.wait_until(lambda: not cluster.jobs(), "no job is left in Slurm")
        cluster.restore()


@pytest.fixture
def write_job(tmp_path: Path) -> Callable[..., str]:
    """Write a job file with its code, and return the file's path."""

    def write(script: str, **keys: Any) -> str:
        code = tmp_path / "code"
        code.mkdir(exist_ok=True)
        (code / "main.py").write_text(script)
        job = {"command": "python main.py", "environment": "python", "code": "code"}
        file = tmp_path / "job.yml"
        file.write_text(yaml.safe_dump({**job, "compute": "low", **keys}))
        return str(file)

    return write


def create_compute(yard: Yard, slurm: SlurmCluster, name: str, **settings: Any) -> str:
    """What `yard compute create` prints."""
    file = slurm.folder / f"{name}.yml"
    settings_there = {"engine": "slurm", "node_folder": str(slurm.folder / "nodes"), **settings}
    document = {
        "name": name,
        "type": "amlcompute",
        "max_instances": 4,
        "torchyard": settings_there,
    }
    file.write_text(yaml.safe_dump(document))
    return yard("compute", "create", "-f", str(file))
