"""An environment as a Dockerfile, a requirements.txt, a conda.yml."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from environments import wheels
from environments.conftest import Machine, MakeEnvironments
from torchyard.base.errors import InvalidInput
from torchyard.environments import definition
from torchyard.environments.assembly import Environments
from torchyard.environments.export import Exported, export
from torchyard.environments.packages import lock
from torchyard.environments.types import EnvironmentSpec, Platform

LINUX = Platform("linux", "x86_64", "cpu")
ONE, TWO = "a" * 64, "b" * 64
LOCK = f"""\
--extra-index-url https://more.example/simple
six==1.16.0 \\
    --hash=sha256:{ONE} \\
    --hash=sha256:{TWO}
torch==2.13.0+cpu \\
    --hash=sha256:{TWO}
"""
ASKED = ["--extra-index-url https://more.example/simple", "six", "torch"]


def spec_of(**keys: Any) -> EnvironmentSpec:
    return definition.resolve(keys or {"pip_requirements": ASKED}, LINUX)


def made(form: str, text: str = LOCK, python: str = "3.11.7", **keys: Any) -> Exported:
    return export(spec_of(**keys), text, python, form, "vision:3")


def body(exported: Exported) -> str:
    """Without the comments."""
    return "".join(line + "\n" for line in exported.text.splitlines() if not line.startswith("#"))


def test_requirements_have_every_pin_and_hash() -> None:
    result = made("requirements")
    assert (result.file, result.source, body(result)) == ("requirements.txt", "lock", LOCK)
    assert "# Environment vision:3" in result.text and "Python 3.11.7" in result.text
    assert "https://download.pytorch.org/whl/cpu" in result.text


def test_a_dockerfile_installs_just_the_lock() -> None:
    assert body(made("dockerfile")) == (
        "FROM python:3.11.7-slim\n"
        "RUN pip install --no-cache-dir \\\n"
        "    --no-deps \\\n"
        "    --extra-index-url https://download.pytorch.org/whl/cpu \\\n"
        "    --extra-index-url https://more.example/simple \\\n"
        "    six==1.16.0 \\\n"
        "    torch==2.13.0+cpu\n"
    )


def test_a_conda_file_is_one_that_conda_reads() -> None:
    assert yaml.safe_load(made("conda").text) == {
        "name": "vision-3",
        "channels": ["conda-forge"],
        "dependencies": [
            "python=3.11.7",
            "pip",
            {"pip": [ASKED[0], "six==1.16.0", "torch==2.13.0+cpu"]},
        ],
    }


def test_an_environment_never_built_is_exported_from_its_definition() -> None:
    result = made("requirements", "", "", pip_requirements=["torch>=2", "six"])
    assert (result.source, body(result)) == ("definition", "six\ntorch>=2\n")
    assert "yard environment build vision:3" in result.notices[0] and "Never built" in result.text
    keys = {"dependencies": ["python>=3.6,<3.8", {"pip": ["six"]}]}
    dockerfile = body(made("dockerfile", "", "", conda_file=keys))
    assert dockerfile == "FROM python:3.6-slim\nRUN pip install --no-cache-dir \\\n    six\n"


def test_requirements_of_a_shell_are_quoted() -> None:
    result = made("dockerfile", "", "", pip_requirements=["six>=1; python_version<'4'"])
    assert """'six>=1; python_version<'"'"'4'"'"''""" in result.text


def test_one_package_without_a_hash_drops_all_hashes() -> None:
    result = made("requirements", LOCK + "mine @ https://host/mine.whl\n")
    assert body(result).splitlines()[1:] == [
        "six==1.16.0", "torch==2.13.0+cpu", "mine @ https://host/mine.whl",
    ]  # fmt: skip


def test_a_layer_is_named_in_a_notice_and_read_back() -> None:
    result = made("requirements", pip_requirements=["six", "horovod==0.28.1"])
    assert "horovod is torchyard's own" in result.notices[0]
    assert body(result).splitlines()[-1] == "horovod" and "--hash" not in result.text


def test_plain_python() -> None:
    assert body(made("dockerfile", "", conda_file={"dependencies": []})) == (
        "FROM python:3.11.7-slim\n"
    )
    assert body(made("requirements", "", conda_file={"dependencies": []})) == ""


def test_condas_packages_have_a_conda_file_only() -> None:
    records = [{"name": "python", "version": "3.11.7"}, {"name": "libjpeg", "version": "9.5"}]
    text = "".join(f"# conda {json.dumps(record)}\n" for record in records) + LOCK
    listed = yaml.safe_load(made("conda", text).text)["dependencies"]
    assert listed[:3] == ["python=3.11.7", "pip", "libjpeg=9.5"]
    for form in ("requirements", "dockerfile"):
        with pytest.raises(InvalidInput, match="libjpeg") as refused:
            made(form, text)
        assert "--format conda" in refused.value.hint


def test_an_image_is_a_line_of_a_dockerfile() -> None:
    result = made("dockerfile", "six==1.0\n", "3.11", image="pypy:3")
    assert (body(result), result.notices) == ("FROM pypy:3\n", ())
    conda = {"dependencies": ["python=3.11", {"pip": ["six"]}]}
    result = made("dockerfile", "six==1.0\n", image="pypy:3", conda_file=conda)
    assert body(result) == "FROM pypy:3\nRUN pip install --no-cache-dir \\\n    six\n"
    assert "not locked" in result.notices[0]
    with pytest.raises(InvalidInput, match="pypy:3"):
        made("conda", image="pypy:3")


def test_no_such_form() -> None:
    with pytest.raises(InvalidInput) as refused:
        made("requirement")
    assert "`requirements`" in refused.value.hint


@pytest.mark.slow
@pytest.mark.parametrize("form", ["requirements", "conda"])
def test_built_again_it_is_the_same(
    environments: Environments, machine: Machine, form: str
) -> None:
    for version in ("1.0", "1.5", "2.0"):
        wheels.put(machine.wheels, "alpha", version, ("beta",))
        wheels.put(machine.wheels, "beta", version)
    first = environments.resolver.resolve({"pip_requirements": ["alpha<2"]})
    environments.builds.run(first)
    build = environments.records.last(first.hash)
    assert build is not None and lock.pins(build.lock) == {"alpha": "1.5", "beta": "2.0"}
    wheels.put(machine.wheels, "beta", "3.0")
    exported = export(first, build.lock, "3.11", form, "first")
    key, text = "pip_requirements", exported.text
    again = environments.resolver.resolve(
        {key: text} if form == key[4:] else {"conda_file": yaml.safe_load(text)}
    )
    environments.builds.run(again)
    rebuilt = environments.records.last(again.hash)
    assert rebuilt is not None and lock.pins(rebuilt.lock) == lock.pins(build.lock)


def test_the_lock_says_which_torch(make_environments: MakeEnvironments) -> None:
    spec = make_environments("cuda").resolver.resolve({"pip_requirements": ["torch"]})
    assert "linux-x86_64-cuda" in export(spec, "torch==2.13.0\n", "3.11.7", "dockerfile", "x").text
