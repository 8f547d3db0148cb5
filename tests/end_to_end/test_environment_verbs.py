"""`yard environment export`, `shell`, `save`, `load`, and a package that is not there, for real."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from end_to_end.yard_under_test import Yard, wait_until
from environments import wheels
from torchyard.client import environment_folders

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def small(yard: Yard, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An environment of two small packages, built."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "requirements.txt").write_text("six<1.17\npackaging\n")
    file = str(folder / "requirements.txt")
    yard("environment", "create", "-n", "small", "--pip-requirements", file)
    yard("environment", "build", "small")
    return "small"


@pytest.fixture
def shells(yard: Yard, tmp_path: Path) -> Iterator[Path]:
    """Where shells have their folders; nothing is left there."""
    folder = tmp_path / "shells"
    folder.mkdir()
    yield folder
    wait_until(lambda: not list(folder.iterdir()), 30, "the shells' folders are gone")


def start(
    yard: Yard, shells: Path, *command: str, before: Sequence[str] = (), **options: Any
) -> subprocess.Popen[str]:
    """`yard environment shell small -- COMMAND`; `before` are words before all that."""
    program = Path(sys.executable).with_name("yard")
    behind = ("--", *command) if command else ()
    return subprocess.Popen(
        [*before, str(program), "environment", "shell", "small", *behind],
        env={**yard.variables, "TMPDIR": str(shells), "SHELL": "/bin/bash", "TERM": "dumb"},
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )


def inside(
    yard: Yard, shells: Path, *command: str, before: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    with start(yard, shells, *command, before=before) as shell:
        out, err = shell.communicate(timeout=120)
    return subprocess.CompletedProcess(command, shell.returncode, out, err)


def packages(yard: Yard, name: str) -> list[str]:
    lines: list[str] = json.loads(yard("environment", "show", name, "-o", "json"))["packages"]
    return lines


@pytest.mark.parametrize("form", ["requirements", "conda"])
def test_what_is_exported_builds_the_same(
    yard: Yard, small: str, tmp_path: Path, form: str
) -> None:
    file = str(tmp_path / "exported")
    yard("environment", "export", "-n", small, "--format", form, "--file", file)
    option = "--pip-requirements" if form == "requirements" else "--conda-file"
    yard("environment", "create", "-n", f"again-{form}", option, file)
    yard("environment", "build", f"again-{form}")
    assert packages(yard, f"again-{form}") == packages(yard, small)
    assert any(line.startswith("six==1.16") for line in packages(yard, small))


def test_what_is_saved_and_loaded_builds_the_same(yard: Yard, small: str, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    yard("environment", "save", "-n", small, "-d", str(saved))
    assert sorted(file.name for file in saved.iterdir()) == [
        environment_folders.DEFINITION, environment_folders.CONDA,
    ]  # fmt: skip
    yard("environment", "load", "-d", str(saved), "-n", "loaded")
    shown = json.loads(yard("environment", "show", "loaded", "-o", "json"))
    # The very content: it needs no build.
    assert (shown["build"], shown["packages"]) == ("ready", packages(yard, small))


def test_pip_install_in_a_shell_touches_nobody(
    yard: Yard, small: str, shells: Path, tmp_path: Path
) -> None:
    wheel = wheels.put(tmp_path, "six", "99.0")
    script = (
        f"pip install --quiet --no-deps --no-index {wheel} && "
        "python -c 'import six; print(six.__version__)'; exit 7"
    )
    result = inside(yard, shells, "sh", "-c", script)
    assert (result.stdout.split(), result.returncode) == (["99.0"], 7), result.stderr
    result = inside(yard, shells, "python", "-c", "import six; print(six.__version__)")
    assert result.stdout.startswith("1.16") and result.returncode == 0


def test_a_killed_shell_leaves_nothing_to_the_next(yard: Yard, small: str, shells: Path) -> None:
    with start(yard, shells, "sh", "-c", "echo $$; exec sleep 100") as shell:
        assert shell.stdout is not None
        inner = int(shell.stdout.readline())
        shell.kill()
        shell.wait(60)
        os.kill(inner, signal.SIGKILL)
    assert list(shells.iterdir())
    assert inside(yard, shells, "true").returncode == 0


def test_ones_own_shell_at_a_terminal(yard: Yard, small: str, shells: Path) -> None:
    terminal, other = pty.openpty()
    shell = start(yard, shells, start_new_session=True, stdin=other, stdout=other, stderr=other)
    os.close(other)
    output = b""

    def read_until(pattern: bytes) -> None:
        nonlocal output
        while not re.search(pattern, output):
            ready, _, _ = select.select([terminal], [], [], 120)
            assert ready, output
            output += os.read(terminal, 4096)

    try:
        read_until(rb"\(small:1\)")
        os.write(terminal, b"python -c 'import sys; print(sys.prefix)'; exit 5\n")
        read_until(rb"\n/\S+/environment\s")
        assert shell.wait(60) == 5
    finally:
        shell.kill()
        shell.wait(60)
        os.close(terminal)


def test_an_environment_of_another_machine_is_not_opened(
    yard: Yard, small: str, shells: Path
) -> None:
    """What the server names is not where the command runs: hidden in a namespace of its own."""
    shown = json.loads(yard("environment", "show", small, "-o", "json"))
    folder = yard.home / "environments" / shown["hash"]
    hide = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none {folder} && exec "$@"', "sh"]
    if os.geteuid() != 0 or subprocess.run([*hide, "true"], capture_output=True).returncode:
        pytest.skip("this machine forbids the mount that hides the folder")
    result = inside(yard, shells, "true", before=hide)
    assert result.returncode == 2 and "is on the server's machine" in result.stderr
    assert "yard environment export -n small:1" in result.stderr


def test_a_package_that_does_not_exist_fails_in_preparing_with_its_name(
    yard: Yard, write_job: Callable[..., str]
) -> None:
    package = "no-such-package-of-torchyards"
    conda = {"dependencies": ["python=3.11", {"pip": [f"{package}==1.0"]}]}
    job = {"name": "not-there", "command": "true", "environment": {"conda_file": conda}}
    yard("job", "create", "-f", write_job(job))
    done = yard.wait("not-there")
    assert done["status"] == "Failed"
    assert done["error"]["message"].startswith(f"package `{package}` can't be installed")
    stages = {stage["name"]: stage for stage in done["stages"]}
    assert set(stages) == {"Preparing"}, stages
    with yard.start(
        "job", "stream", "-n", "not-there", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as stream:
        _, output = stream.communicate(timeout=60)
    err = output.decode()
    # The build's log is part of the job's, and its end names the package, too.
    assert stream.returncode != 0 and f"Because {package} was not found" in err
    assert err.rstrip().splitlines()[-2].startswith(f"error: package `{package}`")
