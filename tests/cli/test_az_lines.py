"""`yard az ml …` is `yard …`, and the rest of `az` is refused by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from torchyard.cli.az_lines import AZ_FUNCTION, NotServed, without_az


def test_az_ml_is_yard() -> None:
    words = ["ml", "job", "create", "--file", "job.yml", "--web"]
    assert without_az(words) == ["job", "create", "--file", "job.yml", "--web"]
    assert without_az(["ml"]) == ["--help"]


def test_az_configure_is_yard_configure() -> None:
    words = ["configure", "--defaults", "group=g", "workspace=w"]
    assert without_az(words) == words


@pytest.mark.parametrize(
    ("words", "group", "hint"),
    [
        (["login"], "az login", "yard login"),
        (["account", "set", "-s", "x"], "az account", "yard login"),
        (["--debug", "group", "create", "-n", "x"], "az group", "Azure's own"),
        (["storage", "blob", "list"], "az storage", "Azure's own"),
    ],
)
def test_other_groups_are_refused_by_name(words: list[str], group: str, hint: str) -> None:
    with pytest.raises(NotServed, match=f"`{group}` is not served") as refused:
        without_az(words)
    assert hint in str(refused.value)


def test_the_shells_function_runs_yard() -> None:
    yard = f'yard() {{ {sys.executable} -m torchyard.cli.main "$@"; }}\n'
    script = f"{yard}{AZ_FUNCTION}az ml --version; az group list"
    outcome = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
    assert outcome.stdout.startswith("yard ") and outcome.returncode == 2
    assert "`az group` is not served" in outcome.stderr
