"""Jobs that share an environment: one build for all, and none reaches what the others get.

Packages are wheels that the test made, by names that no index has.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from end_to_end.yard_under_test import Yard, wait_until
from environments import conda_channel, wheels

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(600)]

WriteJob = Callable[..., str]
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def environment(folder: Path, *packages: str) -> dict[str, list[str]]:
    """One that no other test has: its hash covers where its wheels are."""
    return {"pip_requirements": [f"--find-links {folder.as_uri()}", *packages]}


@pytest.fixture
def wheel_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    wheels.put(folder, "yard-alpha", "1.0")
    return folder


def submit(yard: Yard, write_job: WriteJob, name: str, of: Any, command: str, **more: Any) -> None:
    file = write_job({"name": name, "environment": of, "command": command, "code": None, **more})
    yard("job", "create", "-f", file)


def printed(yard: Yard, name: str) -> str:
    return yard.read(f"jobs/{name}/files/user_logs/std_log.txt").decode()


def folder_of(yard: Yard, of: Any) -> str:
    return str(yard.post("environments/resolve", {"environment": of})["hash"])


def build_log(yard: Yard, of: Any) -> str:
    log = yard.home / "environments" / f"{folder_of(yard, of)}.log"
    return log.read_text() if log.exists() else ""


def put_slow(folder: Path, begun: Path, name: str = "yard-slowly") -> None:
    code = f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(300)\n"
    wheels.put_source(folder, name, "1.0", code)


def test_sixteen_jobs_with_one_new_environment_make_one_build(
    yard: Yard, write_job: WriteJob, wheel_folder: Path
) -> None:
    of = environment(wheel_folder, "yard-alpha")
    names = [f"sixteen-{number}" for number in range(16)]
    for name in names:
        body = {
            "name": name,
            "command": "python -c 'import yard_alpha; print(yard_alpha.__version__)'",
        }
        yard.post("jobs", {**body, "environment": of})
    for name in names:
        yard.completed(name)
        assert printed(yard, name).strip() == "1.0"
    log = yard.read(f"jobs/{names[0]}/files/azureml-logs/20_image_build_log.txt").decode()
    assert log.count("Building environment") == 1
    assert build_log(yard, of).count("Building environment") == 1
    assert build_log(yard, of).count("is ready after") == 1


def test_an_edit_by_one_job_reaches_no_other(
    yard: Yard, write_job: WriteJob, wheel_folder: Path
) -> None:
    """As root, whom write bits don't hold back, and as anybody else."""
    of = environment(wheel_folder, "yard-alpha")
    find = "import yard_alpha; print(yard_alpha.__file__)"
    command = (
        f'module=$(python -c "{find}"); '
        'if echo "EDITED = 1" >> "$module"; then echo appended; else echo refused; fi; '
        'if rm -f "$module"; then echo removed; else echo refused; fi; '
        'touch "$(dirname "$module")/more.py" || echo refused'
    )
    submit(yard, write_job, "edits", of, command)
    yard.completed("edits")
    output = printed(yard, "edits")
    assert output.count("\nrefused") + output.startswith("refused") == 3, output
    reads = 'import yard_alpha as a; print(hasattr(a, "EDITED"), a.__version__)'
    submit(yard, write_job, "reads", of, f"python -c '{reads}'")
    yard.completed("reads")
    assert printed(yard, "reads").strip() == "False 1.0"


def test_what_a_command_installs_changes_only_its_attempt(
    yard: Yard, write_job: WriteJob, wheel_folder: Path
) -> None:
    of = environment(wheel_folder, "yard-alpha==1.0")
    wheels.put(wheel_folder, "yard-alpha", "2.0")
    wheels.put(wheel_folder, "yard-beta", "1.0", script="yard-beta-says")
    install = f"pip install --no-index --find-links {wheel_folder} yard-alpha==2.0 yard-beta"
    reads = "import yard_alpha, yard_beta; print(yard_alpha.__version__)"
    submit(yard, write_job, "installs", of, f"{install} && yard-beta-says && python -c '{reads}'")
    yard.completed("installs")
    assert printed(yard, "installs").strip().endswith("2.0")
    submit(
        yard, write_job, "after", of,
        "python -c 'import yard_alpha; print(yard_alpha.__version__); import yard_beta' || true",
    )  # fmt: skip
    yard.completed("after")
    assert printed(yard, "after").startswith("1.0\n") and "No module named" in printed(
        yard, "after"
    )


def test_a_build_ends_with_the_last_job_that_waits_for_it(
    yard: Yard, write_job: WriteJob, wheel_folder: Path, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    put_slow(wheel_folder, begun)
    of = environment(wheel_folder, "yard-slowly")
    for name in ("lone-1", "lone-2"):
        submit(yard, write_job, name, of, "true")
    wait_until(begun.exists, 60, "the build has begun")
    wait_until(lambda: yard.job("lone-2")["status"] == "Preparing", 60, "both jobs wait")
    # The log can be read while the build goes on.
    log = yard.get(f"environments/builds/{folder_of(yard, of)}?offset=0")
    assert (log["status"], "Building environment" in log["log"]) == ("building", True)
    yard("job", "cancel", "-n", "lone-1")
    assert yard.wait("lone-1")["status"] == "Canceled"
    time.sleep(2)
    assert "canceled" not in build_log(yard, of)
    yard("job", "cancel", "-n", "lone-2")
    assert yard.wait("lone-2")["status"] == "Canceled"
    wait_until(lambda: "canceled" in build_log(yard, of), 30, "the build was ended")
    left = yard.home / "environments"
    wait_until(lambda: not list(left.glob(f".building-{folder_of(yard, of)}-*")), 30, "it is gone")


def test_a_build_that_fails_names_the_package_and_keeps_its_log(
    yard: Yard, write_job: WriteJob, wheel_folder: Path
) -> None:
    of = environment(wheel_folder, "yard-alpha", "yard-not-there")
    submit(yard, write_job, "fails", of, "true")
    job = yard.wait("fails")
    assert job["status"] == "Failed" and "`yard-not-there`" in job["error"]["message"], job
    log = yard.read("jobs/fails/files/azureml-logs/20_image_build_log.txt").decode()
    assert log.startswith("Building environment") and "yard-not-there" in log
    # Once what was missing is there, the next job builds it.
    wheels.put(wheel_folder, "yard-not-there", "1.0")
    submit(yard, write_job, "comes", of, "python -c 'import yard_not_there'")
    yard.completed("comes")


def test_a_job_runs_a_tool_that_only_conda_has(
    yard: Yard, write_job: WriteJob, wheel_folder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("rattler", reason="needs torchyard[conda]")
    channel = tmp_path / "channel"
    script = f"#!/bin/sh\necho greeted by {conda_channel.PREFIX}\n"
    conda_channel.put(channel, "greet", "1.0", {"bin/greet": script})
    pip = [f"--find-links {wheel_folder.as_uri()}", "yard-alpha"]
    conda_file = {
        "channels": [channel.as_uri()],
        "dependencies": [f"python={_PYTHON}", "greet", {"pip": pip}],
    }
    of = {"image": "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04", "conda_file": conda_file}
    command = "greet && python -c 'import yard_alpha; print(yard_alpha.__version__)'"
    submit(yard, write_job, "greets", of, command)
    yard.completed("greets")
    lines = printed(yard, "greets").split("\n")
    assert lines[0].startswith("greeted by ") and lines[0].endswith(folder_of(yard, of))
    assert lines[1] == "1.0"


def test_a_server_killed_during_a_build_leaves_nothing_and_goes_on(
    yard: Yard, write_job: WriteJob, wheel_folder: Path, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    put_slow(wheel_folder, begun)
    of = environment(wheel_folder, "yard-slowly")
    submit(yard, write_job, "outlives", of, "python -c 'import yard_slowly; print(42)'")
    wait_until(begun.exists, 60, "the build has begun")
    folder = folder_of(yard, of)
    yard.kill_server()
    # The package's own build program would sleep for minutes.
    wait_until(lambda: not yard.processes(), 60, "whatever built has ended with the server")
    assert not (yard.home / "environments" / folder).exists()
    for source in wheel_folder.glob("*.tar.gz"):
        source.unlink()
    wheels.put(wheel_folder, "yard-slowly", "1.0")
    yard("server", "start")
    yard.completed("outlives")
    assert printed(yard, "outlives").strip() == "42"
    assert not list((yard.home / "environments").glob(f".building-{folder}-*"))
