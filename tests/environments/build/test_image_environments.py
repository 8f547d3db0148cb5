"""Environments that are images, with a fake engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from environments.conftest import Machine, MakeEnvironments
from torchyard.base.blob_folders import BlobFolders
from torchyard.base.errors import BuildFailed, InvalidSpec, NotFound
from torchyard.environments import to_json
from torchyard.environments.assembly import Environments
from torchyard.environments.build.image_environments import Images
from torchyard.environments.images import containers, image_folder, interpreter
from torchyard.environments.images.containers import ContainerSettings, EngineSearch
from torchyard.environments.images.engine import ImageFacts, MachineFiles
from torchyard.environments.packages.uv import Uv
from torchyard.environments.types import EnvironmentSpec, ImageSpec

WORKSPACE = "default"


@dataclass
class FakeEngine:
    """Images are names; it records each build with its Dockerfile and machine files."""

    images: dict[str, ImageFacts] = field(default_factory=dict)
    built: list[tuple[str, str, list[str]]] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    refuses: str = ""
    etc_link: Path | None = None

    name = "fake"

    def facts(self, image: str) -> ImageFacts | None:
        return self.images.get(image)

    def pull(self, image: str, log: Uv) -> None:
        log.say(f"fake pull {image}")
        if "absent" in image:
            raise BuildFailed(f"image `{image}` could not be pulled", code="image_not_pulled")
        self.images[image] = ImageFacts("id-" + image, variables={"PATH": "/usr/bin"})

    def build(
        self, file: Path, context: Path, tag: str, machine: MachineFiles, log: Uv, shown: str
    ) -> None:
        log.say(f"fake build {shown}")
        text = file.read_text()
        if self.refuses and self.refuses in text:
            raise BuildFailed(f"the Dockerfile's step `{self.refuses}` failed: no")
        for name, image in self.names.items():
            text = text.replace(name, image)
        seen = sorted(path.name for path in context.iterdir())
        self.built.append((tag, text, seen))
        self.images[tag] = ImageFacts("id-" + tag, variables={"PATH": "/usr/bin", "A": "b"})

    def tag(self, image: str, name: str) -> None:
        self.images[name] = self.images[image]
        self.names[name] = image

    def sweep(self, mark: str) -> None:
        self.remove([name for name in self.images if f"from:{mark}-" in name])

    def unpack(self, image: str, folder: Path, mark: str, log: Uv) -> None:
        if self.etc_link is not None:
            (folder / "etc").symlink_to(self.etc_link)
            return
        (folder / "etc").mkdir()
        (folder / "etc" / "from").write_text(image)
        (folder / "etc" / "pip.conf").touch()
        (folder / "etc").chmod(0o555)

    def remove(self, images: Sequence[str]) -> None:
        for image in images:
            self.images.pop(image, None)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def environments(
    make_environments: MakeEnvironments, machine: Machine, engine: FakeEngine
) -> Environments:
    (machine.home / containers.FILE).write_text("os_image: site.org/os:1\n")
    return make_environments(find_engine=lambda *_: EngineSearch(engine, ("fake",)))


def _nothing(settings: ContainerSettings, variables: Mapping[str, str]) -> EngineSearch:
    return EngineSearch(None, ("podman is not installed",))


def resolve(environments: Environments, document: Any) -> EnvironmentSpec:
    return environments.resolver.resolve(document, WORKSPACE)


def put_context(machine: Machine, **files: str) -> dict[str, Any]:
    """The document of an environment that is built from these files."""
    blobs = BlobFolders(machine.home / "blobs").of(WORKSPACE)
    entries = [
        {"path": name.replace("__", "/"), "sha256": blobs.put_bytes(text.encode()),
         "size": len(text)}
        for name, text in files.items()
    ]  # fmt: skip
    return {"build": {"path": f"snapshot:{blobs.put_snapshot({'files': entries}).id}"}}


def test_images_are_built_beside_a_runner_only_where_the_owner_says_so(
    machine: Machine, engine: FakeEngine
) -> None:
    """Their steps run as the server's own user."""

    def find(settings: ContainerSettings, variables: Mapping[str, str]) -> EngineSearch:
        return EngineSearch(engine, ("fake",))

    image = EnvironmentSpec("", (), "linux", image=ImageSpec(name="site.org/os:1"))
    beside_runner = Images(machine.home, {}, find, has_build_user=True)
    with pytest.raises(BuildFailed) as refused:
        beside_runner.refuse(image)
    assert refused.value.code == "image_refused"
    Images(machine.home, {}, find).refuse(image)
    (machine.home / containers.FILE).write_text("builds_as_server_user: true\n")
    beside_runner.refuse(image)


def test_nothing_outside_an_image_is_removed(
    environments: Environments, engine: FakeEngine, tmp_path: Path
) -> None:
    engine.etc_link = tmp_path / "etc"
    engine.etc_link.mkdir()
    (engine.etc_link / "pip.conf").touch()
    environments.builds.run(resolve(environments, {"image": "ubuntu:22.04"}))
    assert (engine.etc_link / "pip.conf").exists()


def test_an_image_is_pulled_once_and_unpacked(
    environments: Environments, machine: Machine, engine: FakeEngine
) -> None:
    spec = resolve(environments, {"image": "ubuntu:22.04"})
    folder = environments.builds.run(spec)
    assert (folder / "rootfs/etc/from").read_text() == "docker.io/library/ubuntu:22.04"
    assert not (folder / "rootfs/etc/pip.conf").exists()  # where the machine's was shown
    assert environments.folders.find(spec) == folder
    plan = environments.images.plan(folder)
    assert plan is not None and plan.rootfs == str(folder / "rootfs")
    assert plan.variables == {"PATH": "/usr/bin"} and plan.visible == [str(machine.wheels)]
    body = to_json.resolved_json(environments, "", {"image": "ubuntu:22.04"})
    assert body["image"] == "ubuntu:22.04" and body["built_by"] == "fake"
    assert "id-docker.io/library/ubuntu:22.04" in environments.records.last(spec.hash).lock  # type: ignore[union-attr]
    assert environments.folders.remove(spec.hash, lambda _: False)
    assert engine.images == {} and not folder.exists()


def test_the_hash_covers_the_context_but_not_the_name(
    environments: Environments, machine: Machine
) -> None:
    first = put_context(machine, Dockerfile="FROM debian\n", a="1")
    two = put_context(machine, Dockerfile="FROM debian\n", a="2")
    assert resolve(environments, first).hash != resolve(environments, two).hash
    again = put_context(machine, Dockerfile="FROM debian\n", a="1")
    assert (
        resolve(environments, {**first, "description": "x"}).hash
        == resolve(environments, again).hash
    )
    assert resolve(environments, {"image": "a"}).hash != resolve(environments, {"image": "b"}).hash


@pytest.mark.slow
def test_a_dockerfile_over_an_environment(
    environments: Environments, machine: Machine, engine: FakeEngine
) -> None:
    text = "FROM azureml:python AS x\nRUN pip install six\nFROM debian:12\nCOPY --from=x /a /a\n"
    spec = resolve(environments, put_context(machine, Dockerfile=text, data="d"))
    assert "python:1 over site.org/os:1" in spec.notices[-1]
    folder = environments.builds.run(spec)
    python, over, last = engine.built
    assert python[1] == "FROM site.org/os:1\nCOPY . /\n" and "opt" in python[2]
    assert over[1].startswith(f"FROM {python[0]}\nCOPY . /opt/torchyard/env\n")
    assert "ENV PATH=/opt/torchyard/env/bin:/usr/bin\n" in over[1] and "pyvenv.cfg" in over[2]
    assert last[1] == (
        f"FROM {over[0]} AS x\nRUN pip install six\nFROM docker.io/library/debian:12\n"
        "COPY --from=x /a /a\n"
    )
    assert last[2] == ["Dockerfile", "data"]
    assert python[0] not in engine.images  # it was a step only
    log = environments.folders.log_path(spec.hash).read_text()
    assert "Environment" in log and "uv venv" in log and "fake build (Dockerfile)" in log
    # Another Dockerfile with the same environment, which is not built again.
    other = resolve(
        environments, put_context(machine, Dockerfile="FROM azureml:python\nRUN true\n")
    )
    environments.builds.run(other)
    assert len(engine.built) == 4
    assert json.loads((folder / "image.json").read_text())["images"][-1] == last[0]


@pytest.mark.slow
def test_packages_are_put_into_an_image(environments: Environments, engine: FakeEngine) -> None:
    conda = {"dependencies": ["python", {"pip": []}]}
    spec = resolve(environments, {"image": "ubuntu:22.04", "conda_file": conda})
    plain = resolve(environments, {"conda_file": conda})
    assert spec.python == plain.python and spec.hash != plain.hash
    environments.builds.run(spec)
    assert (
        environments.folders.find(plain) is not None
    )  # what is put in is an environment like any other
    assert engine.built[0][1].startswith("FROM docker.io/library/ubuntu:22.04\n")


def test_a_step_that_fails_keeps_its_log(
    environments: Environments, machine: Machine, engine: FakeEngine
) -> None:
    engine.refuses = "RUN false"
    spec = resolve(environments, put_context(machine, Dockerfile="FROM debian\nRUN false\n"))
    with pytest.raises(BuildFailed) as failed:
        environments.builds.run(spec)
    assert "`RUN false`" in failed.value.message
    assert "`RUN false`" in environments.folders.log_path(spec.hash).read_text()
    assert environments.folders.find(spec) is None
    assert list((machine.home / "environments").glob(".building-*")) == []


def test_an_image_that_cannot_be_pulled(environments: Environments) -> None:
    with pytest.raises(BuildFailed) as failed:
        environments.builds.run(resolve(environments, {"image": "site.org/absent:1"}))
    assert failed.value.code == "image_not_pulled"


@pytest.mark.slow
def test_an_older_c_library_is_an_error(
    environments: Environments, machine: Machine, engine: FakeEngine
) -> None:
    engine.refuses = "RUN ldconfig"
    with pytest.raises(BuildFailed, match=r"does not run on `site\.org/os:1`") as failed:
        environments.builds.run(
            resolve(environments, put_context(machine, Dockerfile="FROM azureml:python\n"))
        )
    assert "os_image" in failed.value.hint


def test_without_an_engine_only_built_images_run(
    environments: Environments, make_environments: MakeEnvironments
) -> None:
    there = resolve(environments, {"image": "ubuntu:22.04"})
    environments.builds.run(there)
    environments = make_environments(find_engine=_nothing)
    environments.builds.refuse_impossible(there)
    assert environments.builds.run(there) == environments.folders.find(there)
    other = resolve(environments, {"image": "ubuntu:24.04"})
    for act in (environments.builds.refuse_impossible, environments.builds.run):
        with pytest.raises(BuildFailed) as refused:
            act(other)
        assert refused.value.code == "no_container_engine"
        assert "`ubuntu:24.04`" in refused.value.message
    body = to_json.resolved_json(environments, "", {"image": "ubuntu:24.04"})
    assert "neither works" in body["refused"] and "podman" in body["hint"]


def test_what_a_dockerfile_must_have(environments: Environments, machine: Machine) -> None:
    with pytest.raises(NotFound, match="has no file `Dockerfile`") as absent:
        resolve(environments, put_context(machine, Other="FROM debian\n"))
    assert absent.value.at == ("build", "dockerfile_path")
    with pytest.raises(InvalidSpec, match="no FROM line"):
        resolve(environments, put_context(machine, Dockerfile="RUN true\n"))
    with pytest.raises(NotFound):
        resolve(environments, {"build": {"path": "snapshot:" + "0" * 64}})
    with pytest.raises(NotFound, match="azureml:none"):
        resolve(environments, put_context(machine, Dockerfile="FROM azureml:none\n"))
    inner = put_context(machine, a__D="FROM debian\n")
    document = {"build": {**inner["build"], "dockerfile_path": "./a/D"}}
    assert resolve(environments, document).image == replace(
        resolve(environments, {"build": {**inner["build"], "dockerfile_path": "a/D"}}).image,  # type: ignore[type-var]
        dockerfile="./a/D",
    )


@pytest.mark.slow
def test_the_files_of_a_python_keep_their_paths(environments: Environments, tmp_path: Path) -> None:
    folder = environments.builds.run(resolve(environments, "python"))
    interpreter.copy(folder, tmp_path / "copy")
    real = (folder / "bin" / "python").resolve()
    assert (tmp_path / "copy" / real.relative_to("/")).is_file()
    assert list((tmp_path / "copy").rglob("encodings"))
    libraries = [file.name for file in (tmp_path / "copy" / interpreter.LIBRARIES).iterdir()]
    assert not [name for name in libraries if name.startswith(("libc.so", "ld-linux", "libm.so"))]


def test_a_folder_without_write_bits_is_removed(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "file").touch(mode=0o444)
    (deep / "link").symlink_to("/etc/passwd")
    for folder in (deep, deep.parent):
        folder.chmod(0o555)
    image_folder.remove(tmp_path / "a")
    assert not (tmp_path / "a").exists() and Path("/etc/passwd").exists()
