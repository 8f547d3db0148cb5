"""Killed builders, full disks, several builders: an environment is complete or absent."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from environments import builders, wheels
from environments.conftest import Machine, MakeEnvironments
from torchyard.environments.assembly import Environments
from torchyard.environments.build import sealed
from torchyard.environments.types import EnvironmentSpec

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(600)]

PACKAGES = [f"part{number}" for number in range(12)]
_SEED = int(os.environ.get("TORCHYARD_SEED", "7"))
_CHECK = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name).END\n"


@pytest.fixture(autouse=True)
def packages(machine: Machine) -> None:
    """Packages with enough files that a build takes a while."""
    text = "".join(f"def f{number}():\n    return {number}\n\n\n" for number in range(3000))
    for name in PACKAGES:
        wheels.put(machine.wheels, name, "1.0", text=f"{text}END = 1\n")


def spec_of(environments: Environments) -> EnvironmentSpec:
    return environments.resolver.resolve({"pip_requirements": PACKAGES})


def is_whole(environments: Environments, spec: EnvironmentSpec) -> bool:
    """Whether it is built; a built one must be complete."""
    folder = environments.folders.find(spec)
    if folder is None:
        return False
    done = subprocess.run(
        [folder / "bin" / "python", "-c", _CHECK, *PACKAGES], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    mark = folder.with_name(f"{folder.name}.mark").read_text()
    assert sealed.mark(folder) == mark
    return True


def kill(builder: subprocess.Popen[str]) -> None:
    builder.send_signal(signal.SIGKILL)
    builder.communicate()


def test_builders_killed_at_any_moment(
    machine: Machine, make_environments: MakeEnvironments
) -> None:
    environments, chance = make_environments(), random.Random(_SEED)
    spec = spec_of(environments)
    absent = 0
    for _ in range(12):
        builder = builders.start(machine.home, machine.database, machine.variables, *PACKAGES)
        time.sleep(chance.uniform(0.4, 4.0))
        kill(builder)
        if is_whole(environments, spec):
            environments.folders.remove(spec.hash, lambda _: False)
        else:
            absent += 1
    assert absent, "every build was over before its kill"
    environments.builds.run(spec)
    assert is_whole(environments, spec)
    assert not list((machine.home / "environments").glob(".building-*"))


def test_a_builder_continues_when_the_other_is_killed(
    machine: Machine, make_environments: MakeEnvironments
) -> None:
    """Like two servers on one home."""
    environments, chance = make_environments(), random.Random(_SEED)
    spec = spec_of(environments)
    for _ in range(4):
        two = [
            builders.start(machine.home, machine.database, machine.variables, *PACKAGES)
            for _ in range(2)
        ]
        time.sleep(chance.uniform(0.6, 3.0))
        kill(two[0])
        out, err = two[1].communicate(timeout=120)
        assert out.strip() == str(environments.folders.find(spec)), err
        assert is_whole(environments, spec)
        environments.folders.remove(spec.hash, lambda _: False)


def test_two_homes_share_one_cache_while_builders_are_killed(
    machine: Machine, make_environments: MakeEnvironments, tmp_path: Path
) -> None:
    environments, chance = make_environments(), random.Random(_SEED)
    spec = spec_of(environments)
    other = tmp_path / "other"
    other.mkdir()
    database = f"sqlite:///{other}/torchyard.db"
    for _ in range(4):
        process = builders.start(machine.home, machine.database, machine.variables, *PACKAGES)
        theirs = builders.start(
            other, database, machine.variables, *PACKAGES, then=_WITH_ITS_DATABASE
        )
        time.sleep(chance.uniform(0.6, 3.0))
        kill(theirs)
        _, err = process.communicate(timeout=120)
        assert is_whole(environments, spec), err
        environments.folders.remove(spec.hash, lambda _: False)


_WITH_ITS_DATABASE = "database.upgrade(); print(environments.builds.run(spec))"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.parametrize("part", [0.2, 0.9])
def test_a_full_disk_leaves_nothing_incomplete_and_the_next_build_works(
    machine: Machine, make_environments: MakeEnvironments, part: float
) -> None:
    """Disks that are full when pip is installed, and when the last packages are."""
    environments = make_environments()
    spec = spec_of(environments)
    size_kb = int(part * _size_kb(environments.builds.run(spec)))
    environments.folders.remove(spec.hash, lambda _: False)
    root = machine.home / "environments"
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_kb}k,mode=700", "tmpfs", str(root)],
        capture_output=True,
    )
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.decode()}")
    try:
        for _ in range(2):
            builder = builders.start(machine.home, machine.database, machine.variables, *PACKAGES)
            _, err = builder.communicate(timeout=120)
            assert builder.returncode != 0 and "no space left" in err, err
            assert environments.folders.find(spec) is None
            assert not list(root.glob(".building-*"))
            last = environments.records.last(spec.hash)
            assert last is not None and last.hint == "free space with `yard gc`, then submit again"
        subprocess.run(["mount", "-o", "remount,size=200m", str(root)], check=True)
        environments.builds.run(spec)
        assert is_whole(environments, spec)
    finally:
        subprocess.run(["umount", "-l", str(root)], check=True)


def _size_kb(folder: Path) -> int:
    done = subprocess.run(["du", "-sk", folder], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0])
