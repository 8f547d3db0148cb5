"""Images and Dockerfiles with a real podman: built once, run by our own worker.

The base image is this machine's own Debian; packages are wheels of the test, which the machine's
pip is told of. Nothing is fetched.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from containers.conftest import BASE, Machine
from end_to_end.yard_under_test import wait_until
from environments import wheels

pytestmark = [pytest.mark.containers, pytest.mark.timeout(600)]
WriteJob = Callable[..., str]

DOCKERFILE = """\
FROM azureml:python@latest
ARG WORD=hello
RUN pip install greeting && echo "built $WORD" > /built
ENV GREETING=$WORD
WORKDIR /opt
"""


@pytest.fixture(autouse=True)
def packages(machine: Machine) -> None:
    wheels.put(machine.wheels, "greeting", "1.0", text="WORD = 'good day'\n")
    wheels.put(machine.wheels, "later", "2.0")


def submit(machine: Machine, file: str, *more: str) -> str:
    out = machine.yard("job", "create", "-f", file, "--query", "name", "-o", "tsv", *more)
    return out.strip().splitlines()[-1]


def build_log(machine: Machine, name: str) -> str:
    """As `yard job stream` shows it."""
    with machine.yard.start(
        "job", "stream", "-n", name, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        return process.communicate(timeout=120)[0].decode()


def no_container_is_left(machine: Machine) -> None:
    """Neither podman's nor buildah's."""
    words = ("ps", "--all", "--external", "--quiet")
    wait_until(lambda: machine.podman(*words) == "", 60, "the build's containers are gone")


def rootfs_of(machine: Machine, name: str) -> Path:
    hash: str = machine.yard.job(name)["environment_hash"]
    return machine.yard.home / "environments" / hash / "rootfs"


def test_a_dockerfile_over_a_named_environment_trains_two_ranks(
    machine: Machine, write_job: WriteJob
) -> None:
    command = (
        "cat /built /etc/debian_version; echo $GREETING; "
        'python -c "import greeting, sys; print(greeting.WORD, sys.prefix)"; '
        "pip install -q later && python -c 'import later; print(\"later\", later.__file__)'; "
        "echo changed > /built; echo $RANK > outputs/rank-$RANK; id -u"
    )
    two = {"type": "pytorch", "process_count_per_instance": 2}
    file = write_job(command, {"Dockerfile": DOCKERFILE}, distribution=two)
    name = submit(machine, file)
    machine.yard.completed(name)
    logs = machine.yard.logs(name)
    assert len(logs) == 2
    for log in logs.values():
        text = log.decode()
        assert "good day /opt/torchyard/env" in text and "hello" in text
        assert "later /opt/torchyard/env/lib" in text
    root = rootfs_of(machine, name)
    assert (root / "built").read_text() == "built hello\n"
    assert not list(root.glob("opt/torchyard/env/lib/python3*/site-packages/later"))
    assert not (root / "etc/pip.conf").exists()
    assert (root / "opt/torchyard/env").is_dir()
    history = machine.podman("history", "--no-trunc", "--format", "{{.CreatedBy}}",
                             f"localhost/torchyard:{root.parent.name[:24]}")  # fmt: skip
    assert str(machine.wheels) not in history
    build = build_log(machine, name)
    assert "STEP" in build and "RUN pip install greeting" in build
    shown = machine.yard("environment", "list", "-o", "json")
    assert not any(environment["name"].startswith("inline-") for environment in json.loads(shown))


@pytest.mark.smoke
def test_what_an_attempt_changed_no_other_sees(machine: Machine, write_job: WriteJob) -> None:
    context = {"Dockerfile": f"FROM {BASE}\nRUN echo whole > /state\n"}
    change = "echo broken > /state; rm -rf /usr/share; cat /state"
    machine.yard.completed(submit(machine, write_job(change, context)))
    name = submit(machine, write_job("cat /state; ls -d /usr/share", context))
    machine.yard.completed(name)
    assert machine.yard.logs(name)["user_logs/std_log.txt"] == b"whole\n/usr/share\n"


def test_four_jobs_with_one_new_image_build_it_once(machine: Machine, write_job: WriteJob) -> None:
    context = {"Dockerfile": f"FROM {BASE}\nRUN date +%N > /when\n"}
    names = [submit(machine, write_job("cat /when", context)) for _ in range(4)]
    logs = set()
    for name in names:
        machine.yard.completed(name)
        logs.add(machine.yard.logs(name)["user_logs/std_log.txt"])
    assert len(logs) == 1
    hash = machine.yard.job(names[0])["environment_hash"]
    log = (machine.yard.home / "environments" / f"{hash}.log").read_text()
    assert log.count("Building environment") == 1


def test_a_step_that_fails_is_named_with_its_package(machine: Machine, write_job: WriteJob) -> None:
    text = "FROM azureml:python\nRUN pip install there-is-none-such\n"
    name = submit(machine, write_job("true", {"Dockerfile": text}))
    job = machine.yard.wait(name)
    assert job["status"] == "Failed"
    error = job["error"]["message"]
    assert "`RUN pip install there-is-none-such`" in error and "package `there-is-none" in error
    assert "No matching distribution" in build_log(machine, name)


def test_an_image_with_a_conda_file(machine: Machine, write_job: WriteJob) -> None:
    conda = {"dependencies": ["python", {"pip": ["greeting==1.0"]}]}
    environment = {"image": BASE, "conda_file": conda}
    command = "cat /etc/debian_version && python -c 'import greeting; print(greeting.WORD)'"
    name = submit(machine, write_job(command, environment=environment))
    machine.yard.completed(name)
    assert b"good day" in machine.yard.logs(name)["user_logs/std_log.txt"]


def test_a_canceled_build_leaves_nothing(machine: Machine, write_job: WriteJob) -> None:
    mark = f"{os.getpid()}{time.monotonic_ns()}"
    text = f"FROM {BASE}\nRUN echo {mark} && sleep 3{mark[-3:]}\n"
    name = submit(machine, write_job("true", {"Dockerfile": text}))
    sleeping = f"sleep 3{mark[-3:]}"
    wait_until(lambda: _runs(sleeping), 120, "the build has begun to sleep")
    machine.yard("job", "cancel", "-n", name)
    assert machine.yard.wait(name)["status"] == "Canceled"
    wait_until(lambda: not _runs(sleeping), 60, "nothing of the build runs")
    hash: str = machine.yard.job(name)["environment_hash"]
    folder = machine.yard.home / "environments"
    wait_until(lambda: not list(folder.glob(f".building-{hash}*")), 60, "nothing is left of it")
    assert not (folder / hash).exists()
    no_container_is_left(machine)
    assert "torchyard-from" not in machine.podman("images")


def test_a_server_killed_in_a_build_begins_it_again(machine: Machine, write_job: WriteJob) -> None:
    gate = machine.wheels / "gate"  # a folder that builds are lent
    sleeping = f"sleep 4{time.monotonic_ns() % 1000}"
    text = f"FROM {BASE}\nRUN [ -e {gate} ] || {sleeping}; echo done > /state\n"
    name = submit(machine, write_job("cat /state", {"Dockerfile": text}))
    wait_until(lambda: _runs(sleeping), 120, "the build has begun")
    machine.yard.kill_server()
    wait_until(lambda: not _runs(sleeping), 60, "the build ended with the server")
    gate.touch()
    machine.yard("server", "start")
    machine.yard.completed(name)
    assert machine.yard.logs(name)["user_logs/std_log.txt"] == b"done\n"
    no_container_is_left(machine)


def test_an_image_that_cannot_be_pulled_fails_the_job(
    machine: Machine, write_job: WriteJob
) -> None:
    image = "registry.invalid/none:1"
    name = submit(machine, write_job("true", environment={"image": image}))
    error = machine.yard.wait(name)["error"]
    assert f"`{image}`" in error["message"] and "registry.invalid" in error["message"]
    assert "podman import" in error["hint"]


def test_without_an_engine_a_job_is_refused_with_what_to_do(
    machine: Machine, write_job: WriteJob
) -> None:
    settings = machine.yard.home / "containers.yml"
    before = settings.read_text()
    settings.write_text(f"engine: /nowhere/podman\nos_image: {BASE}\n")
    try:
        context = {"Dockerfile": f"FROM {BASE}\nRUN echo {time.time_ns()}\n"}
        with machine.yard.start(
            "job", "create", "-f", write_job("true", context),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            message = process.communicate(timeout=60)[1].decode()
        assert process.returncode != 0
        assert "needs podman or docker" in message and "apt-get install podman" in message
        assert "a Dockerfile" in message and "pip_requirements" in message
    finally:
        settings.write_text(before)


def test_an_asset_is_shown_built_and_reclaimed(machine: Machine, tmp_path: Path) -> None:
    context = tmp_path / "docker"
    context.mkdir()
    (context / "Dockerfile").write_text(f"FROM {BASE}\nRUN echo {time.time_ns()} > /new\n")
    file = tmp_path / "environment.yml"
    file.write_text(yaml.safe_dump({"name": "made", "build": {"path": "docker"}}))
    yard = machine.yard
    yard("environment", "create", "-f", str(file))
    yard("environment", "build", "-n", "made")
    shown = json.loads(yard("environment", "show", "-n", "made", "-o", "json"))
    assert shown["build"] == "ready" and shown["image_size_bytes"] > 1 << 20
    assert len(shown["image_id"]) == 64 and shown["built_by"] == "podman"
    tag = f"localhost/torchyard:{shown['hash'][:24]}"
    assert tag in machine.podman("images", "--format", "{{.Repository}}:{{.Tag}}")
    folder = yard.home / "environments" / shown["hash"]
    assert folder.is_dir()
    long_ago = time.time() - 400 * 86400
    os.utime(folder, (long_ago, long_ago))
    yard("gc", "--older-than", "300d")
    assert not folder.exists()
    assert tag not in machine.podman("images", "--format", "{{.Repository}}:{{.Tag}}")


def test_the_doctor_names_the_engine(machine: Machine) -> None:
    with machine.yard.start("doctor", stdout=subprocess.PIPE) as process:
        report = process.communicate(timeout=120)[0].decode()
    assert "podman" in next(line for line in report.splitlines() if " containers " in line)


def _runs(command: str) -> bool:
    """Whether a process of exactly these words is alive."""
    command_line = command.encode().replace(b" ", b"\0")
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "cmdline").read_bytes().strip(b"\0") == command_line:
                return True
    return False
