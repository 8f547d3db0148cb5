"""Finding an engine that works, and the files it mounts; scripts stand in for the engines."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from torchyard.base.errors import InvalidInput
from torchyard.environments.images import containers, engine
from torchyard.environments.images.containers import ContainerSettings
from torchyard.environments.packages import machine_config

_DEAD = 'echo "Cannot connect to the Docker daemon at unix:///var/run/docker.sock." >&2; exit 1'
_CLIENT = f'if [ "$1" = --version ]; then echo 28; else {_DEAD}; fi'


def put(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    return folder


def search(programs: Path, engine: str = "") -> containers.EngineSearch:
    return containers.find(ContainerSettings(engine), {"PATH": str(programs)})


def test_no_engine_is_installed(programs: Path) -> None:
    result = search(programs)
    assert result.engine is None
    error = containers.missing("image `x:1`", result)
    assert error.code == "no_container_engine"
    assert "image `x:1`" in error.message and "podman is not installed" in error.message
    assert "apt-get install podman" in error.hint and "pip_requirements" in error.hint


def test_a_client_without_an_engine_does_not_count(programs: Path) -> None:
    put(programs, "docker", _CLIENT)
    result = search(programs)
    assert result.engine is None
    assert "Cannot connect to the Docker daemon" in result.messages[1]


def test_podman_comes_first_where_it_works(programs: Path) -> None:
    put(programs, "docker", "echo 28.2.2")
    assert (result := search(programs)).engine is not None and result.engine.name == "docker"
    put(programs, "podman", 'echo "default OCI runtime crun not found" >&2; exit 125')
    result = search(programs)
    assert result.engine is not None and result.engine.name == "docker"
    assert "crun not found" in result.messages[0]
    put(programs, "podman", "echo 4.3.1")
    assert (result := search(programs)).engine is not None and result.engine.name == "podman"
    assert (result := search(programs, "docker")).engine is not None
    assert result.engine is not None and result.engine.name == "docker"


def test_the_owners_settings(tmp_path: Path) -> None:
    assert containers.read(tmp_path) == ContainerSettings("", containers.DEFAULT_OS_IMAGE)
    file = tmp_path / containers.FILE
    file.write_text("os_image: registry.site/debian:12\nengine: docker\n")
    assert containers.read(tmp_path) == ContainerSettings("docker", "registry.site/debian:12")
    for text, word in (("engin: x", "did you mean `engine`"), ("- x", "engine: podman"),
                       ("engine: 3", "engine: podman"), ("a: [", "engine: podman")):  # fmt: skip
        file.write_text(text)
        with pytest.raises(InvalidInput) as refused:
            containers.read(tmp_path)
        assert word in refused.value.hint


def test_a_build_sees_the_machines_package_sources(tmp_path: Path) -> None:
    wheels, index = tmp_path / "wheels", tmp_path / "pypi" / "simple"
    wheels.mkdir()
    index.mkdir(parents=True)
    certificates = tmp_path / "ca.crt"
    certificates.touch()
    config = machine_config.read(
        {
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_INDEX_URL": "https://me:secret@site/simple",
            "PIP_EXTRA_INDEX_URL": index.as_uri(),
            "PIP_FIND_LINKS": str(wheels),
            "PIP_CERT": str(certificates),
        },
        tmp_path,
    )
    lent = containers.machine_files(config, tmp_path)
    pip = lent.by_target["/etc/pip.conf"]
    assert pip.read_text() == (
        f"[global]\nindex-url = https://me:secret@site/simple\n"
        f"extra-index-url = {index.as_uri()}\nfind-links = {wheels}\n"
        "cert = /etc/torchyard-ca.crt\n"
    )
    assert stat.S_IMODE(pip.stat().st_mode) == 0o600
    assert lent.by_target["/etc/torchyard-ca.crt"] == certificates
    # The pages of an index link to files beside them.
    assert lent.by_target[str(index.parent)] == index.parent
    assert lent.by_target[str(wheels)] == wheels


@pytest.mark.parametrize(
    ("image", "registry"),
    [("debian", "docker.io"), ("me/debian:12", "docker.io"), ("localhost/x", "localhost"),
     ("mcr.microsoft.com/a/b", "mcr.microsoft.com"), ("site:5000/a", "site:5000")],
)  # fmt: skip
def test_where_an_image_comes_from(image: str, registry: str) -> None:
    assert engine.registry_of(image) == registry
    error = engine.not_pulled("podman", image, 'Error: x: lookup y: no such host"')
    assert error.code == "image_not_pulled"
    assert f"`{image}`" in error.message and registry in error.message
    assert "no such host" in error.message and "podman import" in error.hint


@pytest.mark.parametrize("name", ["--help", "-x", "two words", "", "a;b", "a\n", "a:b:c:d"])
def test_invalid_image_names(name: str) -> None:
    assert not engine.is_name(name)


@pytest.mark.parametrize(
    "name", ["debian", "localhost/base:1", "Site.org:5000/a/b_c@sha256:" + "a" * 64]
)
def test_valid_image_names(name: str) -> None:
    assert engine.is_name(name)
