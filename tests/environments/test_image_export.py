"""A built environment as the layers and the configuration of an OCI image."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import struct
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from environments import wheels
from environments.conftest import Machine
from torchyard.base.clock import SystemClock
from torchyard.base.db import Database
from torchyard.base.errors import BuildFailed, Conflict, InvalidInput, NotFound
from torchyard.environments import image_export
from torchyard.environments.assembly import Environments
from torchyard.environments.images import elf
from torchyard.environments.types import Platform
from torchyard.shared import locks

# Newer tarfiles refuse what leads out of a folder unless they are told not to.
_AS_IT_IS: dict[str, Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}
DEFINITION = {"name": "vision", "pip_requirements": ["greeting==1.0"]}


@pytest.fixture
def built(machine: Machine, environments: Environments) -> Environments:
    wheels.put(machine.wheels, "greeting", "1.0", text="WORD = 'good day'\n", script="greet")
    environments.builds.run(environments.resolver.resolve(DEFINITION))
    return environments


def plan_of(environments: Environments) -> dict[str, Any]:
    return image_export.plan(environments, "", DEFINITION, "")


def layer_of(environments: Environments, name: str) -> bytes:
    hash = plan_of(environments)["hash"]
    stream = image_export.layer(environments, "", DEFINITION, "", hash, name)
    content = b"".join(stream.blocks)
    assert 0 < stream.size_bytes < len(content)
    return content


def test_the_plan_says_what_the_image_will_be(built: Environments) -> None:
    plan = plan_of(built)
    assert plan["is_built"] and plan["name"] == "vision" and plan["architecture"]
    assert plan["layers"] == ["system", "python", "packages"]
    variables = dict(line.split("=", 1) for line in plan["config"]["Env"])
    assert variables["PATH"].split(":")[0] == "/opt/torchyard/env/bin"
    labels = plan["config"]["Labels"]
    assert labels["torchyard.environment"] == f"vision:{plan['version']}"
    assert labels["org.opencontainers.image.title"] == "vision"
    pins = hashlib.sha256(b"greeting==1.0\n").hexdigest()
    assert labels["torchyard.packages"] == f"sha256:{pins}"


@pytest.mark.slow
def test_the_layers_are_a_root_in_which_the_python_runs(
    built: Environments, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for name in ("system", "python", "packages"):
        with tarfile.open(fileobj=io.BytesIO(layer_of(built, name))) as archive:
            names = archive.getnames()
            assert len(names) == len(set(names))
            for member in archive:
                archive.extract(member, root, **_AS_IT_IS)
    for name in ("bin/sh", "usr/bin/env", "etc/passwd", "tmp", "opt/torchyard/env/bin/python"):
        assert os.path.lexists(root / name), name
    assert "root:x:0:0" in (root / "etc/passwd").read_text()
    if os.geteuid() != 0:
        return
    chroot = shutil.which("chroot", path="/usr/sbin:/sbin:/usr/bin:/bin")
    assert chroot is not None
    words = [chroot, str(root), "/opt/torchyard/env/bin/python", "-c"]
    code = "import ssl, ctypes, sqlite3, greeting, sys; print(greeting.WORD, sys.prefix)"
    out = subprocess.run([*words, code], capture_output=True, text=True, env={"PATH": "/bin"})
    assert out.stdout == "good day /opt/torchyard/env\n", out.stderr
    shell = [chroot, str(root), "/bin/sh", "-c", "PATH=/opt/torchyard/env/bin:/bin greet | cat"]
    out = subprocess.run(shell, capture_output=True, text=True)
    assert out.stdout.strip() == "/opt/torchyard/env/bin/python", out.stderr


@pytest.mark.slow
def test_the_same_environment_elsewhere_has_the_same_layers(
    built: Environments, machine: Machine, tmp_path: Path
) -> None:
    here = {name: hashlib.sha256(layer_of(built, name)).digest() for name in ("python", "packages")}
    other = tmp_path / "another-home"
    other.mkdir()
    database = Database(f"sqlite:///{other / 'torchyard.db'}")
    database.upgrade()
    platform = Platform("linux", "x86_64", "cpu")
    environments = Environments(other, database, SystemClock(), machine.variables, platform)
    environments.builds.run(environments.resolver.resolve(DEFINITION))
    again = {name: hashlib.sha256(layer_of(environments, name)).digest() for name in here}
    database.close()
    assert again == here


def test_no_path_or_secret_of_the_machine_is_in_the_image(
    built: Environments, machine: Machine
) -> None:
    system = layer_of(built, "system")
    content = system + layer_of(built, "packages")
    assert str(machine.home).encode() not in content
    assert str(machine.wheels).encode() not in content
    with tarfile.open(fileobj=io.BytesIO(system)) as archive:
        names = [member.name for member in archive if not member.isdir()]
    settings = {name for name in names if name.startswith("etc/") and "alternatives" not in name}
    assert settings <= {
        "etc/passwd", "etc/group", "etc/nsswitch.conf", "etc/os-release",
        "etc/ssl/certs/ca-certificates.crt",
    }  # fmt: skip
    assert not [name for name in names if name.startswith(("root/", "home/", "var/", "tmp/"))]


def replace_python(environments: Environments, *, by: Path | str = "") -> Path:
    """Leave a script, or a link, in place of the environment's Python; the file that it writes."""
    folder = environments.folders.find(environments.resolver.resolve(DEFINITION))
    assert folder is not None
    program = folder / "bin" / "python"
    (folder / "bin").chmod(0o755)
    program.unlink()
    ran = environments.folders.root / "ran"
    if by:
        program.symlink_to(by)
    else:
        program.write_text(f"#!/bin/sh\ntouch {ran}\n")
        program.chmod(0o755)
    return ran


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["system", "python", "packages"])
def test_a_python_that_a_build_replaced_is_not_run(built: Environments, layer: str) -> None:
    ran = replace_python(built)
    hash = plan_of(built)["hash"]
    # Of a Python that is the environment's own, the machine has no files.
    assert b"".join(image_export.layer(built, "", DEFINITION, "", hash, layer).blocks)
    assert not ran.exists()


def test_a_link_in_place_of_the_python_gives_no_file_away(
    built: Environments, machine: Machine
) -> None:
    secret = machine.home / "token"
    secret.write_text("yard_p_secret")
    replace_python(built, by=secret)
    with pytest.raises(BuildFailed) as refused:
        layer_of(built, "python")
    assert refused.value.code == "python_not_found"


@pytest.mark.slow
def test_a_file_that_a_package_names_as_its_loader_is_not_given_away(
    built: Environments, machine: Machine
) -> None:
    secret = machine.home / "token"
    secret.write_text("yard_p_secret")
    folder = built.folders.find(built.resolver.resolve(DEFINITION))
    assert folder is not None
    content = Path("/bin/sh").resolve().read_bytes()
    needs = elf.read("/bin/sh")
    assert needs is not None
    at = content.index(needs.loader.encode() + b"\0")
    name = str(secret).encode()
    # The program's text may be overwritten: nobody runs it, only its headers are read.
    library = content[:at] + name + b"\0" + content[at + len(name) + 1 :]
    packages = next((folder / "lib").glob("python3*/site-packages"))
    packages.chmod(0o755)
    (packages / "named.so").write_bytes(_with_loader(library, at, len(name) + 1))
    changed = elf.read(packages / "named.so")
    assert changed is not None and changed.loader == str(secret)
    assert b"yard_p_secret" not in layer_of(built, "system")


def _with_loader(content: bytes, at: int, size: int) -> bytes:
    """The program, which says that its loader's name is `size` bytes at an offset."""
    table, entry, count = (
        *struct.unpack_from("<Q", content, 32),
        *struct.unpack_from("<HH", content, 54),
    )
    changed = bytearray(content)
    for number in range(count):
        header = table + number * entry
        if struct.unpack_from("<I", content, header) == (3,):
            struct.pack_into("<Q", changed, header + 8, at)
            struct.pack_into("<Q", changed, header + 32, size)
    return bytes(changed)


def test_an_environment_that_is_not_built_has_no_layers(
    machine: Machine, environments: Environments
) -> None:
    wheels.put(machine.wheels, "greeting", "1.0")
    plan = plan_of(environments)
    assert plan["is_built"] is False and "layers" not in plan
    with pytest.raises(NotFound, match="was removed"):
        image_export.layer(environments, "", DEFINITION, "", plan["hash"], "system")


@pytest.mark.slow
def test_another_environment_of_the_same_name_is_not_mixed_in(built: Environments) -> None:
    with pytest.raises(Conflict, match="became another environment"):
        image_export.layer(built, "", DEFINITION, "", "0" * 64, "system")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "files", "../packages", "/etc/passwd"])
def test_a_layer_that_it_does_not_have(built: Environments, name: str) -> None:
    hash = plan_of(built)["hash"]
    with pytest.raises(NotFound, match="no layer"):
        image_export.layer(built, "", DEFINITION, "", hash, name)


@pytest.mark.slow
def test_an_environment_is_kept_while_a_layer_is_read(built: Environments) -> None:
    spec = built.resolver.resolve(DEFINITION)
    hash = plan_of(built)["hash"]
    blocks = image_export.layer(built, "", DEFINITION, "", hash, "packages").blocks
    next(blocks)
    assert not built.folders.remove(spec.hash, lambda connection: False)
    blocks.close()
    with locks.held_if_free(built.folders.shells_file(spec)) as is_free:
        assert is_free
    assert built.folders.remove(spec.hash, lambda connection: False)


@pytest.mark.slow
@pytest.mark.parametrize("base", ["--privileged", "two words", "a;b", "x:y:z"])
def test_a_base_that_is_no_image_name(built: Environments, base: str) -> None:
    with pytest.raises(InvalidInput, match="not a valid image name"):
        image_export.plan(built, "", DEFINITION, base)


@pytest.mark.slow
def test_a_base_makes_it_another_environment(built: Environments) -> None:
    spec = image_export.spec_of(built, "", DEFINITION, "debian:12")
    assert spec.image is not None and spec.image.name == "debian:12"
    assert spec.hash != built.resolver.resolve(DEFINITION).hash
    with pytest.raises(InvalidInput, match="is an image already"):
        image_export.spec_of(built, "", {"image": "registry.example/x:1"}, "debian:12")
