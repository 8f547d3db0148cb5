"""Environments exported as OCI images, run by podman and pushed to Docker's own registry."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from containers.conftest import BASE, Machine
from containers.docker_registry import registry

__all__ = ["registry"]
from end_to_end.shared_torch import kept_or_temporary
from end_to_end.yard_under_test import REPOSITORY
from environments import wheels

# By hand: it was written on a machine too busy to run it.
pytestmark = [pytest.mark.containers, pytest.mark.long, pytest.mark.timeout(1200)]
# Without a network of its own, which a sandbox may not let it make.
RUN = ("run", "--rm", "--network", "host")
DIGITS = REPOSITORY / "examples/digits/src"
PRINT = "import greeting, sys, os; print(greeting.WORD, sys.prefix, os.getcwd())"

Create = Callable[..., str]


@pytest.fixture
def create(machine: Machine, tmp_path: Path) -> Create:
    """Register an environment of a name of its own; the answer is the name."""
    wheels.put(machine.wheels, "greeting", "1.0", text="WORD = 'good day'\n", script="greet")

    def create(name: str, **definition: Any) -> str:
        file = tmp_path / f"{name}.yml"
        file.write_text(yaml.safe_dump({"name": name, **definition}))
        machine.yard("environment", "create", "-f", str(file))
        return name

    return create


@pytest.fixture
def context(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """A build context with this Dockerfile, as a definition names it."""

    def write(text: str) -> dict[str, str]:
        folder = Path(tmp_path / f"docker-{len(list(tmp_path.iterdir()))}")
        folder.mkdir()
        (folder / "Dockerfile").write_text(text)
        return {"path": str(folder)}

    return write


def export(machine: Machine, name: str, *words: str) -> dict[str, Any]:
    out = machine.yard("environment", "export", "-n", name, *words, "-o", "json")
    exported: dict[str, Any] = json.loads(out)
    return exported


def test_an_exported_image_runs_without_torchyard(
    machine: Machine, create: Create, tmp_path: Path
) -> None:
    name = create("exported", pip_requirements=["greeting==1.0"])
    file = tmp_path / "exported.tar"
    exported = export(machine, name, "--image", str(file))
    machine.podman("load", "--input", str(file))
    image = exported["name"]
    assert image == "localhost/exported:1"
    run = (*RUN, image)
    assert machine.podman(*run, "python", "-c", PRINT) == "good day /opt/torchyard/env /\n"
    assert machine.podman(*run, "greet").strip() == "/opt/torchyard/env/bin/python"
    code = "import ssl, sqlite3, ctypes, socket, pwd; print(pwd.getpwuid(0).pw_name)"
    assert machine.podman(*run, "/bin/sh", "-c", f"python -c '{code}' | cat").strip() == "root"
    labels = json.loads(machine.podman("image", "inspect", image))[0]["Labels"]
    assert labels["torchyard.environment"] == "exported:1" and labels == exported["labels"]
    again = export(machine, name, "--image", str(tmp_path / "folder"))
    assert again["digest"] == exported["digest"]
    copied = machine.podman("pull", f"oci:{tmp_path / 'folder'}").split()[-1]
    assert machine.podman(*RUN, copied, "python", "-c", PRINT).startswith("good day")
    machine.podman("image", "rm", "--force", image)


def test_an_exported_image_trains_the_digits_example(
    machine: Machine, create: Create, tmp_path: Path
) -> None:
    with kept_or_temporary() as shared_torch:
        name = create("digits", **shared_torch.lend(machine.yard.home))
    file = tmp_path / "digits.tar"
    image = export(machine, name, "--image", str(file))["name"]
    machine.podman("load", "--input", str(file))
    file.unlink()
    code = tmp_path / "src"
    shutil.copytree(DIGITS, code)
    # Outside a job there is no server to log to, and mlflow-skinny has no database.
    variables = (
        "--env",
        "MLFLOW_TRACKING_URI=/src/mlruns",
        "--env",
        "MLFLOW_ALLOW_FILE_STORE=true",
    )
    run = (*RUN, *variables, "--volume", f"{code}:/src", "--workdir", "/src", image)
    torchrun = ("torchrun", "--standalone", "--nproc-per-node", "2", "train.py", "--epochs", "6")
    out = machine.podman(*run, *torchrun)
    assert "rank 1 of 2: started" in out
    assert "1437 training images, 360 test images, gloo on cpu" in out
    accuracy = re.search(r"^test accuracy (\d\.\d+)$", out, re.MULTILINE)
    assert accuracy is not None and float(accuracy[1]) >= 0.95, out
    assert (code / "outputs" / "model.pt").stat().st_size > 0
    machine.podman("image", "rm", "--force", image)


def test_a_child_can_be_built_from_it(machine: Machine, create: Create, tmp_path: Path) -> None:
    name = create("parent", pip_requirements=["greeting==1.0"])
    file = tmp_path / "parent.tar"
    image = export(machine, name, "--image", str(file))["name"]
    machine.podman("load", "--input", str(file))
    (tmp_path / "Dockerfile").write_text(
        f"FROM {image}\nRUN python -c 'import greeting; print(greeting.WORD)' > /said\n"
    )
    machine.podman("build", "--isolation", "chroot", "--tag", "localhost/child", str(tmp_path))
    assert machine.podman(*RUN, "localhost/child", "cat", "/said") == "good day\n"
    machine.podman("image", "rm", "--force", "localhost/child", image)


def test_it_is_pushed_and_pulled(
    machine: Machine, create: Create, registry: str, tmp_path: Path
) -> None:
    name = create("pushed", pip_requirements=["greeting==1.0"])
    image = f"{registry}/team/pushed:one"
    exported = export(machine, name, "--push", image)
    assert exported["pushed"] == image and exported["path"] is None
    pull = ("pull", "--quiet", "--tls-verify=false")
    machine.podman(*pull, image)
    assert machine.podman(*RUN, image, "python", "-c", PRINT).startswith("good day")
    # The same layers are sent once, whatever the name.
    again = export(machine, name, "--push", f"{registry}/team/pushed")
    assert again["digest"] == exported["digest"] and again["pushed"].endswith("/team/pushed:1")
    machine.podman(*pull, f"{registry}/team/pushed@{exported['digest']}")
    machine.podman("image", "rm", "--force", image)


def test_a_base_of_ones_own(machine: Machine, create: Create, tmp_path: Path) -> None:
    name = create("based", pip_requirements=["greeting==1.0"])
    file = tmp_path / "based.tar"
    exported = export(machine, name, "--image", str(file), "--base", BASE)
    assert exported["labels"]["org.opencontainers.image.base.name"] == BASE
    machine.podman("load", "--input", str(file))
    command = f'python -c "{PRINT}"; dpkg --version'
    out = machine.podman(*RUN, exported["name"], "/bin/sh", "-c", command)
    assert out.startswith("good day /opt/torchyard/env") and "Debian 'dpkg'" in out
    machine.podman("image", "rm", "--force", exported["name"])


def test_a_child_names_its_base_and_the_base_of_that(
    machine: Machine,
    create: Create,
    context: Callable[[str], dict[str, str]],
    write_job: Callable[..., str],
    tmp_path: Path,
) -> None:
    parent = create("grandparent", pip_requirements=["greeting==1.0"])
    child = create("middle", build=context(f"FROM azureml:{parent}\nRUN echo middle > /middle\n"))
    stages = ("scratch AS unused", f"azureml:{child}:1 AS first", "first")
    text = "".join(f"FROM {stage}\n" for stage in stages)
    create("youngest", build=context(f"{text}RUN cp /middle /two\n"))
    job = write_job("cat /two; greet", environment="azureml:youngest:1")
    out = machine.yard("job", "create", "-f", job, "--query", "name", "-o", "tsv")
    run = out.strip().splitlines()[-1]
    machine.yard.completed(run)
    (log,) = machine.yard.logs(run).values()
    assert log.decode().split() == ["middle", "/opt/torchyard/env/bin/python"]
    shown = machine.yard("environment", "show", "-n", "youngest")
    line = next(line for line in shown.splitlines() if line.startswith("Base "))
    assert line.split()[1:] == ["middle:1", ">", "grandparent:1"]
    exported = export(machine, "youngest", "--image", str(tmp_path / "youngest.tar"))
    assert exported["labels"]["torchyard.base"] == "middle:1 > grandparent:1"
    machine.podman("load", "--input", str(tmp_path / "youngest.tar"))
    assert machine.podman(*RUN, exported["name"], "cat", "/two") == "middle\n"
    machine.podman("image", "rm", "--force", exported["name"])
