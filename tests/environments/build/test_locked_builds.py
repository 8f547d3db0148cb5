"""Every later build installs the first build's lock, whatever the index offers by then."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from environments import wheels
from environments.conftest import Machine, MakeEnvironments
from torchyard.base.errors import BuildFailed
from torchyard.environments.assembly import Environments
from torchyard.environments.images import image_folder


class Index:
    """A package index in a folder, as pip and uv read it from `file://`."""

    def __init__(self, folder: Path) -> None:
        self._files, self._pages = folder / "files", folder / "simple"

    @property
    def url(self) -> str:
        return self._pages.as_uri()

    def put(self, name: str, version: str, text: str = "", requires: tuple[str, ...] = ()) -> None:
        wheels.put(self._files, name, version, requires, text)
        page = self._pages / name / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        links = ""
        for file in sorted(self._files.glob(f"{name}-*.whl")):
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            links += f'<a href="{file.as_uri()}#sha256={digest}">{file.name}</a>\n'
        page.write_text(f"<!DOCTYPE html><html><body>\n{links}</body></html>\n")


@pytest.fixture
def index(machine: Machine) -> Index:
    index_folder = Index(machine.home.parent / "index")
    for name in ("PIP_FIND_LINKS", "PIP_NO_INDEX"):
        machine.variables.pop(name)
    machine.variables["PIP_INDEX_URL"] = index_folder.url
    return index_folder


@pytest.fixture
def environments(index: Index, make_environments: MakeEnvironments) -> Environments:
    """Environments that read the variables after the index is set."""
    return make_environments()


def versions(folder: Path) -> list[str]:
    infos = folder.glob("lib/python3*/site-packages/*.dist-info")
    return sorted(info.name.removesuffix(".dist-info") for info in infos if "pip-" not in info.name)


@pytest.mark.slow
def test_the_lock_wins_over_a_newer_index(
    environments: Environments, machine: Machine, index: Index
) -> None:
    index.put("alpha", "1.0", requires=("beta",))
    index.put("beta", "1.0")
    spec = environments.resolver.resolve({"pip_requirements": ["alpha>=1"]})
    folder = environments.builds.run(spec)
    index.put("alpha", "1.1", requires=("beta>=2",))
    index.put("beta", "2.0")
    image_folder.remove(folder)
    assert versions(environments.builds.run(spec)) == ["alpha-1.0", "beta-1.0"]
    # The record keeps the lock, too, for homes without the file.
    image_folder.remove(folder)
    (machine.home / "environments" / f"{spec.hash}.lock.txt").unlink()
    assert versions(environments.builds.run(spec)) == ["alpha-1.0", "beta-1.0"]
    other = environments.resolver.resolve({"pip_requirements": ["alpha>=1.0"]})
    assert versions(environments.builds.run(other)) == ["alpha-1.1", "beta-2.0"]


@pytest.mark.slow
def test_a_replaced_file_of_the_same_version_is_refused(
    environments: Environments, machine: Machine, index: Index
) -> None:
    index.put("alpha", "1.0")
    spec = environments.resolver.resolve({"pip_requirements": ["alpha"]})
    image_folder.remove(environments.builds.run(spec))
    index.put("alpha", "1.0", text="__version__ = 'other'\n")
    image_folder.remove(Path(machine.variables["UV_CACHE_DIR"]))
    with pytest.raises(BuildFailed, match="alpha") as caught:
        environments.builds.run(spec)
    assert "hash" in caught.value.message.lower()
    assert environments.folders.find(spec) is None
