"""Wheels that were kept: a build needs no index any more."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from environments import wheels
from environments.conftest import Machine, MakeEnvironments
from torchyard.base.blobs import Blobs
from torchyard.base.errors import BuildFailed, InvalidInput
from torchyard.environments.assembly import Environments
from torchyard.environments.build import kept_wheels, wheel_folder
from torchyard.environments.build.builder import site_packages
from torchyard.environments.build.kept_wheels import KeptWheels
from torchyard.environments.images import image_folder
from torchyard.environments.types import EnvironmentSpec

LOCK = """--find-links /somewhere
alpha==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
beta @ https://example.com/beta-1.0-py3-none-any.whl \\
    --hash=sha256:cc
gamma==2.0
"""


HASH = f"--hash=sha256:{'0' * 64}"


def build(environments: Environments, *lines: str) -> EnvironmentSpec:
    spec = environments.resolver.resolve({"pip_requirements": list(lines)})
    environments.builds.run(spec)
    return spec


def keep(environments: Environments, spec: EnvironmentSpec) -> KeptWheels:
    last = environments.records.last(spec.hash)
    assert last is not None
    return environments.builds.keep_wheels(spec, last.lock)


def take_away(environments: Environments, machine: Machine, spec: EnvironmentSpec) -> None:
    """The index, the environment and uv's cache."""
    shutil.rmtree(machine.wheels)
    image_folder.remove(environments.folders.paths(spec.hash).folder)
    shutil.rmtree(machine.home.parent / "cache")


def installed(environments: Environments, spec: EnvironmentSpec) -> list[str]:
    packages = site_packages(environments.folders.paths(spec.hash).folder)
    names = (info.name.removesuffix(".dist-info") for info in packages.glob("*.dist-info"))
    return sorted(name for name in names if not name.startswith("pip-"))


def test_a_lock_is_taken_apart_by_packages() -> None:
    options, lines = kept_wheels.parts(LOCK)
    assert options == "--find-links /somewhere\n"
    assert list(lines) == ["alpha", "beta", "gamma"]
    assert options + "".join(lines.values()) == LOCK


@pytest.mark.parametrize(
    "lines",
    [
        f"--no-binary :all:\nalpha==1.0 \\\n    {HASH}\n",
        f"--index-url https://example.com --no-binary=alpha\nalpha==1.0 \\\n    {HASH}\n",
        f"-r /etc/passwd\nalpha==1.0 \\\n    {HASH}\n",
    ],
)
def test_a_fetch_is_told_of_no_option_but_indexes(lines: str) -> None:
    assert kept_wheels.lacking(lines, None) == f"alpha==1.0 \\\n    {HASH}\n"


@pytest.mark.parametrize(
    "line",
    [
        "alpha @ https://example.com/alpha-1.0.tar.gz",
        "alpha @ https://example.com/alpha.zip#/alpha-1.0-py3-none-any.whl",
        "alpha @ git+https://example.com/alpha.whl",
        "alpha @ file:///etc/passwd.whl",
        "alpha==1.0 --config-settings=a=b",
        "alpha==1.0 --global-option=x",
    ],
)
def test_nothing_but_a_wheel_is_fetched(line: str) -> None:
    assert kept_wheels.lacking(f"{line} \\\n    {HASH}\n", None) == ""


def test_indexes_of_an_environment_are_asked() -> None:
    options = "--extra-index-url https://example.com/simple\n--trusted-host example.com\n"
    lock = f"{options}alpha==1.0 \\\n    {HASH}\n"
    assert kept_wheels.lacking(lock, None) == lock


@pytest.mark.slow
def test_no_source_is_run_to_keep_wheels(
    make_environments: MakeEnvironments, machine: Machine
) -> None:
    """Its setup.py ran as the server's user: pip builds what `--no-binary` names."""
    ran = machine.home.parent / "ran"
    backend = Path(wheels.__file__).read_text()
    backend += (
        "\n\ndef build_wheel(folder, settings=None, metadata=None):\n"
        f"    with open({str(ran)!r}, 'a') as file:\n"
        "        file.write('built')\n"
        "    return put(Path(folder), 'delta', '1.0').name\n"
    )
    wheels.put_source(machine.wheels, "delta", "1.0", backend)
    environments = make_environments()
    spec = build(environments, "--no-binary :all:", "delta==1.0")
    ran.unlink()
    stored = keep(environments, spec)
    assert (stored.count, stored.without, ran.exists()) == (0, ("delta",), False)


@pytest.mark.slow
def test_a_build_takes_kept_wheels_when_the_index_is_gone(
    make_environments: MakeEnvironments, machine: Machine
) -> None:
    wheels.put(machine.wheels, "alpha", "1.0", requires=("beta",))
    wheel = wheels.put(machine.wheels, "beta", "1.0")
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    environments = make_environments()
    spec = build(environments, "alpha==1.0")
    stored = keep(environments, spec)
    assert (stored.count, stored.without) == (2, ())
    assert Blobs(machine.home / "blobs").has(sha256)
    take_away(environments, machine, spec)
    environments.builds.run(spec)
    assert installed(environments, spec) == ["alpha-1.0", "beta-1.0"]
    log = environments.folders.log_path(spec.hash).read_text()
    assert "(kept wheels: 2)" in log


@pytest.mark.slow
def test_without_kept_wheels_the_same_build_fails(
    make_environments: MakeEnvironments, machine: Machine
) -> None:
    wheels.put(machine.wheels, "alpha", "1.0")
    environments = make_environments()
    spec = build(environments, "alpha==1.0")
    take_away(environments, machine, spec)
    with pytest.raises(BuildFailed):
        environments.builds.run(spec)


@pytest.mark.slow
def test_a_kept_wheel_of_another_content_is_refused(
    make_environments: MakeEnvironments, machine: Machine
) -> None:
    wheel = wheels.put(machine.wheels, "alpha", "1.0")
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    environments = make_environments()
    spec = build(environments, "alpha==1.0")
    keep(environments, spec)
    blob = Blobs(machine.home / "blobs").path(sha256)
    other = wheels.put(machine.home.parent / "other", "alpha", "1.0", text="# another\n")
    blob.unlink()
    shutil.copy(other, blob)
    take_away(environments, machine, spec)
    with pytest.raises(BuildFailed, match="alpha"):
        environments.builds.run(spec)


@pytest.mark.slow
def test_what_was_given_up_comes_from_the_index(
    make_environments: MakeEnvironments, machine: Machine
) -> None:
    wheel = wheels.put(machine.wheels, "alpha", "1.0", requires=("beta",))
    wheels.put(machine.wheels, "beta", "1.0")
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    environments = make_environments()
    spec = build(environments, "alpha==1.0")
    keep(environments, spec)
    Blobs(machine.home / "blobs").path(sha256).unlink()
    image_folder.remove(environments.folders.paths(spec.hash).folder)
    environments.builds.run(spec)
    assert installed(environments, spec) == ["alpha-1.0", "beta-1.0"]


@pytest.mark.slow
def test_of_a_package_without_a_wheel_none_is_kept(
    make_environments: MakeEnvironments, machine: Machine
) -> None:
    backend = Path(wheels.__file__).read_text()  # a wheel is made as tests make them
    backend += (
        "\n\ndef build_wheel(folder, settings=None, metadata=None):\n"
        "    return put(Path(folder), 'delta', '1.0').name\n"
    )
    wheels.put(machine.wheels, "alpha", "1.0")
    wheels.put_source(machine.wheels, "delta", "1.0", backend)
    environments = make_environments()
    spec = build(environments, "alpha==1.0", "delta==1.0")
    stored = keep(environments, spec)
    assert (stored.count, stored.without) == (1, ("delta",))


def named(environments: Environments, *lines: str) -> EnvironmentSpec:
    """A version as `yard environment create` registers it."""
    return replace(environments.resolver.resolve({"pip_requirements": list(lines)}), ref="vision:1")


@pytest.mark.slow
def test_a_version_is_built_from_the_wheel_folder_when_the_index_has_lost_a_wheel(
    make_environments: MakeEnvironments, machine: Machine
) -> None:
    wheels.put(machine.wheels, "alpha", "1.0", requires=("beta",))
    lost = wheels.put(machine.wheels, "beta", "1.0")
    store = machine.home.parent / "store"
    store.mkdir()
    environments = make_environments(wheel_folder=store)
    spec = named(environments, "alpha==1.0")
    environments.builds.run(spec)
    assert sorted(file.name for file in store.iterdir()) == [
        "alpha-1.0-py3-none-any.whl",
        "beta-1.0-py3-none-any.whl",
    ]
    assert not (machine.home / "blobs").exists()
    lost.unlink()
    wheels.put(machine.wheels, "beta", "1.1")
    image_folder.remove(environments.folders.paths(spec.hash).folder)
    shutil.rmtree(machine.home.parent / "cache")
    environments.builds.run(spec)
    assert installed(environments, spec) == ["alpha-1.0", "beta-1.0"]
    # The same without the store: the index has another content of the lock's package.
    image_folder.remove(environments.folders.paths(spec.hash).folder)
    shutil.rmtree(machine.home.parent / "cache")
    with pytest.raises(BuildFailed, match="beta"):
        make_environments().builds.run(spec)


@pytest.mark.slow
def test_what_a_job_lists_inline_is_not_kept(
    make_environments: MakeEnvironments, machine: Machine
) -> None:
    wheels.put(machine.wheels, "alpha", "1.0")
    store = machine.home.parent / "store"
    store.mkdir()
    build(make_environments(wheel_folder=store), "alpha==1.0")
    assert list(store.iterdir()) == []


@pytest.mark.slow
def test_a_release_keeps_its_wheels_in_the_store_once(
    make_environments: MakeEnvironments, machine: Machine
) -> None:
    wheels.put(machine.wheels, "alpha", "1.0")
    store = machine.home.parent / "store"
    store.mkdir()
    environments = make_environments(wheel_folder=store)
    spec = build(environments, "alpha==1.0")
    stored = keep(environments, spec)
    assert (stored.snapshot, stored.count, stored.without, stored.folder) == ("", 1, (), str(store))
    shutil.rmtree(machine.wheels)  # what the store has is not fetched again
    assert keep(environments, spec) == stored


def test_the_store_gives_a_wheel_by_its_hash(tmp_path: Path) -> None:
    store, other = tmp_path / "store", tmp_path / "other"
    first = wheels.put(store, "alpha", "1.0")
    second = wheels.put(other, "alpha", "1.0", text="# another index's build\n")
    wheel_folder.put(store, second)
    wheel_folder.put(store, second)
    assert len(list(store.rglob("*.whl"))) == 2
    (store / "alpha-oops.whl").write_bytes(b"")
    for wheel in (first, second):
        sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
        lines = {"alpha": f"alpha==1.0 \\\n    --hash=sha256:{sha256}\n"}
        stored = wheel_folder.find(store, lines, {"alpha": "1.0"})
        assert stored["alpha"].read_bytes() == wheel.read_bytes()
        assert wheel_folder.find(store, lines, {"alpha": "1.1"}) == {}
    nowhere = {"alpha": f"alpha==1.0 \\\n    --hash=sha256:{'0' * 64}\n"}
    assert wheel_folder.find(store, nowhere, {"alpha": "1.0"}) == {}


def test_a_store_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is not a folder") as refused:
        wheel_folder.check(tmp_path / "absent")
    assert "mkdir -p" in refused.value.hint
    (tmp_path / "absent").mkdir()
    wheel_folder.check(tmp_path / "absent")
