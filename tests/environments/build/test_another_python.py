"""Environments whose packages have no wheel for the server's own Python; no network."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from environments import wheels
from environments.conftest import Machine
from torchyard.base.errors import BuildFailed
from torchyard.environments import to_json
from torchyard.environments.assembly import Environments
from torchyard.environments.images import image_folder
from torchyard.environments.packages import pythons
from torchyard.environments.types import platform_python

OTHERS = sorted(
    (version for version in pythons.installed() if version != platform_python()),
    key=lambda version: int(version.partition(".")[2]),
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not OTHERS, reason="there is no other Python beside this one"),
]
NAMES_NONE = {"pip_requirements": ["alpha==1.0"]}


def put(machine: Machine, name: str, *python_versions: str) -> None:
    """A package with a wheel for each of these Pythons, and for no other."""
    for version in python_versions:
        tag = f"cp{version.replace('.', '')}-none-any"
        wheels.put(machine.wheels, name, "1.0", tag=tag)


def named(python: str) -> dict[str, object]:
    dependencies = [f"python{python}", "pip", {"pip": ["alpha==1.0"]}]
    return {"conda_file": {"dependencies": dependencies}}


def python_in(folder: Path) -> str:
    code = "import alpha, sys; print('%d.%d' % sys.version_info[:2])"
    command = [str(folder / "bin" / "python"), "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_newest_python_with_a_wheel_is_taken_and_told(
    environments: Environments, machine: Machine
) -> None:
    put(machine, "alpha", *OTHERS)
    spec = environments.resolver.resolve(NAMES_NONE)
    assert spec.python == platform_python() and not spec.notices
    folder = environments.builds.run(spec)
    assert python_in(folder) == OTHERS[-1]
    reason = f"`alpha==1.0` has no wheel for Python {platform_python()}"
    again = environments.resolver.resolve(NAMES_NONE)
    assert again.hash == spec.hash
    assert again.notices == (f"the environment has Python {OTHERS[-1]}: {reason}",)
    assert to_json.resolved_json(environments, "", NAMES_NONE)["python"] == OTHERS[-1]
    log = environments.folders.log_path(spec.hash).read_text()
    assert f"{reason}: trying Python {OTHERS[-1]}" in log
    # What was chosen once stays, also where more could be chosen from.
    image_folder.remove(folder)
    put(machine, "alpha", platform_python())
    assert python_in(environments.builds.run(spec)) == OTHERS[-1]


def test_a_python_that_a_requirement_of_another_package_needs(
    environments: Environments, machine: Machine
) -> None:
    wheels.put(machine.wheels, "beta", "1.0", requires=("alpha==1.0",))
    put(machine, "alpha", OTHERS[0])
    spec = environments.resolver.resolve({"pip_requirements": ["beta"]})
    assert python_in(environments.builds.run(spec)) == OTHERS[0]


def test_the_error_says_why_the_other_python_does_not_help(
    environments: Environments, machine: Machine
) -> None:
    for version in OTHERS:
        tag = f"cp{version.replace('.', '')}-none-any"
        wheels.put(machine.wheels, "alpha", "1.0", requires=("beta==2.0",), tag=tag)
    spec = environments.resolver.resolve(NAMES_NONE)
    with pytest.raises(BuildFailed) as failed:
        environments.builds.run(spec)
    message = failed.value.message
    assert (
        f"`alpha==1.0` has no wheel for Python {platform_python()}, and with Python 3." in message
    )
    assert "`beta`" in message


def test_a_python_that_the_file_names_stays_and_the_error_says_which_would_do(
    environments: Environments, machine: Machine
) -> None:
    put(machine, "alpha", *OTHERS)
    spec = environments.resolver.resolve(named(f"={platform_python()}"))
    assert spec.hash != environments.resolver.resolve(NAMES_NONE).hash
    with pytest.raises(BuildFailed) as refused:
        environments.builds.run(spec)
    assert (
        f"`alpha==1.0` has no wheel for Python {platform_python()}, which the environment names"
        in refused.value.message
    )
    assert f"`python={OTHERS[-1]}`" in refused.value.hint


def test_a_range_limits_the_choice(environments: Environments, machine: Machine) -> None:
    put(machine, "alpha", OTHERS[0])
    within = environments.resolver.resolve(named(f">={OTHERS[0]}"))
    assert python_in(environments.builds.run(within)) == OTHERS[0]
    outside = environments.resolver.resolve(named(f">={platform_python()},!={OTHERS[0]}.*"))
    with pytest.raises(BuildFailed, match="which the environment names") as refused:
        environments.builds.run(outside)
    assert f"`python={OTHERS[0]}`" in refused.value.hint


@pytest.mark.skipif(len(OTHERS) < 2, reason="there are no two other Pythons")
def test_pins_for_different_pythons_are_named_together(
    environments: Environments, machine: Machine
) -> None:
    put(machine, "alpha", OTHERS[0])
    put(machine, "beta", OTHERS[1])
    request = {"pip_requirements": ["alpha==1.0", "beta==1.0"]}
    with pytest.raises(BuildFailed, match="no Python that can be had") as refused:
        environments.builds.run(environments.resolver.resolve(request))
    assert "`alpha==1.0` and `beta==1.0`" in refused.value.message


@pytest.mark.parametrize("fault", ["mistyped==1.0", "beta==2.0"])
def test_no_other_python_is_tried_for_another_fault(
    environments: Environments, machine: Machine, fault: str
) -> None:
    put(machine, "alpha", *OTHERS, platform_python())
    wheels.put(machine.wheels, "beta", "1.0")
    spec = environments.resolver.resolve({"pip_requirements": ["alpha==1.0", fault]})
    with pytest.raises(BuildFailed, match=f"package `{fault.partition('=')[0]}`"):
        environments.builds.run(spec)
    log = environments.folders.log_path(spec.hash).read_text()
    assert log.count("$ uv venv") == 1


def test_an_environment_that_is_built_for_the_servers_python_is_used(
    environments: Environments, machine: Machine
) -> None:
    """Such as one that was built before environments could take another Python."""
    put(machine, "alpha", platform_python())
    request = {"pip_requirements": ["alpha==1.0"]}
    exact = environments.resolver.resolve(named(f"={platform_python()}"))
    folder = environments.builds.run(exact)
    spec = environments.resolver.resolve(request)
    assert spec.hash == exact.hash and environments.folders.find(spec) == folder
