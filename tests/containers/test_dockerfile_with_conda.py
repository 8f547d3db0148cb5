"""A conda file beside a Dockerfile, as SDK v1's `Environment.from_dockerfile` asks for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from containers.conftest import BASE, Machine
from environments import wheels
from torchyard.environments.types import platform_python

pytestmark = [pytest.mark.containers, pytest.mark.timeout(300)]


def test_its_packages_are_in_what_the_dockerfile_makes(
    machine: Machine, write_job: Callable[..., str]
) -> None:
    wheels.put(machine.wheels, "beside", "1.0", text="WORD = 'from conda'\n")
    command = "cat /built; python -c 'import beside, sys; print(beside.WORD, sys.prefix)'"
    file = Path(write_job(command, {"Dockerfile": f"FROM {BASE}\nRUN echo made > /built\n"}))
    job = yaml.safe_load(file.read_text())
    packages = [f"python={platform_python()}", {"pip": ["beside"]}]
    job["environment"]["conda_file"] = {"dependencies": packages}
    file.write_text(yaml.safe_dump(job))
    out = machine.yard("job", "create", "-f", str(file), "--query", "name", "-o", "tsv")
    name = out.strip().splitlines()[-1]
    machine.yard.completed(name)
    (log,) = machine.yard.logs(name).values()
    assert log.decode().split() == ["made", "from", "conda", "/opt/torchyard/env"]
