"""A workspace's releases of a curated environment, beside the package's version."""

from __future__ import annotations

import json

import pytest

from jobs import support
from releases.release_lab import ReleaseLab
from torchyard.base.errors import Conflict, NotFound
from torchyard.environments import assets, copying, to_json
from torchyard.environments.names import curated_environments
from torchyard.environments.types import REQUESTED
from torchyard.releases.running import candidates
from torchyard.releases.vulnerabilities import locked

NAME = "sklearn-1.5"
_CURATED = curated_environments.find_by_name(NAME)
assert _CURATED is not None
V = _CURATED.version


def register(lab: ReleaseLab, version: str, *lines: str) -> None:
    request = assets.EnvironmentRequest(
        NAME,
        {"pip_requirements": list(lines or ("beta",))},
        version,
        properties={REQUESTED: json.dumps({"pip_requirements": ["beta"]})},
    )
    assets.register(
        lab.services.db, lab.clock, support.WORKSPACE, request, "me", lambda definition: None
    )


def ref(lab: ReleaseLab, reference: str) -> str:
    return lab.services.environments.resolver.resolve(reference, support.WORKSPACE).ref


def test_the_latest_is_the_newest_release(lab: ReleaseLab) -> None:
    register(lab, f"{V}.1")
    register(lab, f"{V}.2")
    for reference in (NAME, f"azureml:{NAME}@latest", f"AzureML-{NAME}@latest", f"{NAME}:{V}.2"):
        assert ref(lab, reference) == f"{NAME}:{V}.2"
    assert ref(lab, f"{NAME}:{V}.1") == f"{NAME}:{V}.1"
    assert ref(lab, f"{NAME}:{V}") == f"{NAME}:{V}"


def test_a_newer_version_of_the_package_is_the_latest(lab: ReleaseLab) -> None:
    register(lab, "0.7")
    assert ref(lab, NAME) == f"{NAME}:{V}"
    assert ref(lab, f"{NAME}:0.7") == f"{NAME}:0.7"
    assets.archive(lab.services.db, support.WORKSPACE, NAME, "0.7", user="me")
    assets.delete(lab.services.db, support.WORKSPACE, NAME, "0.7")


def test_a_release_is_shown_archived_and_deleted(lab: ReleaseLab) -> None:
    db = lab.services.db
    register(lab, f"{V}.1")
    shown = to_json.version_to_json(lab.services.environments, support.WORKSPACE, NAME, "latest")
    assert (shown["version"], shown["status"]) == (f"{V}.1", "registered")
    assets.archive(db, support.WORKSPACE, NAME, f"{V}.1", user="me")
    assert ref(lab, NAME) == f"{NAME}:{V}"
    assert ref(lab, f"{NAME}:{V}.1") == f"{NAME}:{V}.1"
    with pytest.raises(Conflict, match="curated"):
        assets.archive(db, support.WORKSPACE, NAME, V, user="me")
    assets.delete(db, support.WORKSPACE, NAME, f"{V}.1")
    with pytest.raises(NotFound):
        ref(lab, f"{NAME}:{V}.1")


def test_releases_are_numbered_below_the_package_s_version(lab: ReleaseLab) -> None:
    environments = lab.services.environments
    base = candidates.base_of(environments, support.WORKSPACE, NAME)
    assert base.ref == f"{NAME}:{V}"
    assert candidates.next_version(base, []) == f"{V}.1"
    assert candidates.next_version(base, [f"{V}.1", f"{V}.9", f"{V}.10", "0.30"]) == f"{V}.11"
    requested = base.requested["conda_file"]["dependencies"][1]["pip"]
    assert any(line.startswith("scikit-learn") for line in requested)


def test_a_release_has_the_setuptools_and_the_layers_of_what_it_begins_from(
    lab: ReleaseLab,
) -> None:
    environments = lab.services.environments
    base = candidates.base_of(environments, support.WORKSPACE, "acpt-pytorch-2.13-cpu")
    spec = environments.resolver.resolve(base.requested, support.WORKSPACE)
    assert [line for line in spec.packages if "setuptools" in line] == ["setuptools"]
    before = candidates.versions_of_base(environments, support.WORKSPACE, base)
    layers = {package.name for package in locked.packages("", spec.layers)}
    assert {name for name, version in before.items() if version.endswith("+torchyard")} < layers
    assert {"torch-nebula", "torchyard-train"} <= layers <= set(before)


def clone(lab: ReleaseLab, source: str, name: str) -> None:
    environments = lab.services.environments
    environment = copying.resolve_reference(environments, support.WORKSPACE, source)
    copying.clone(environments, lab.clock, support.WORKSPACE, environment, name, "me")


@pytest.mark.parametrize("source", ["acpt-pytorch-2.13-cpu", "tensorflow-2.16-cuda12"])
def test_a_release_of_a_clone_resolves_what_the_curated_environment_requires(
    lab: ReleaseLab, source: str
) -> None:
    environments = lab.services.environments
    clone(lab, source, "fork")
    curated = curated_environments.find_by_name(source)
    assert curated is not None
    base = candidates.base_of(environments, support.WORKSPACE, "fork")
    requested = environments.resolver.resolve(base.requested, support.WORKSPACE)
    built = environments.resolver.resolve("fork", support.WORKSPACE)
    assert len(requested.packages) < len(curated.requirements) + 2 < len(built.packages)
    assert requested.python == built.python


def test_a_clone_of_a_clone_requires_the_same(lab: ReleaseLab) -> None:
    clone(lab, NAME, "fork")
    clone(lab, "fork", "second")
    bases = [
        candidates.base_of(lab.services.environments, support.WORKSPACE, name)
        for name in ("fork", "second")
    ]
    assert bases[0].requested == bases[1].requested
