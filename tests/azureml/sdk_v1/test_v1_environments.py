"""SDK v1's environments: Dockerfiles' texts, names that look published, what is kept beside."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from azureml.sdk_v1.test_v1_services import Services
from postgres_server import NewDatabase
from torchyard.azureml.sdk_v1.run_configs import job_document
from torchyard.base.errors import InvalidInput
from workspaces.served import served

DOCKERFILE = "FROM azureml:python@latest\nRUN touch /built\n"
CONDA = {"dependencies": ["python=3.11", {"pip": ["six==1.16.0"]}]}


@pytest.fixture(scope="module")
def v1(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Services]:
    home = tmp_path_factory.mktemp("home")
    # No machine has such an engine.
    (home / "containers.yml").write_text("engine: /no/such/podman\n")
    with served(home, new_database(home)) as site:
        yield Services(site, "olga")


def environment(name: str, docker: dict[str, Any], conda: Any = None, **more: Any) -> Any:
    python = {"userManagedDependencies": conda is None, "condaDependencies": conda}
    return {"name": name, "version": None, "docker": docker, "python": python, **more}


def put(v1: Services, body: Any) -> Any:
    return v1.of("environment", "PUT", f"environments/{body['name']}", body)


def run_of(body: Any) -> dict[str, Any]:
    return {"Configuration": {"command": "true", "target": "local-cluster", "environment": body}}


def submit(v1: Services, name: str, body: Any) -> Any:
    """The definition of the run that it becomes."""
    v1.of("execution", "POST", "experiments/e/snapshotrun", run_of(body), runId=name)
    return v1.of("history", "GET", f"runs/{name}/details")["runDefinition"]


@pytest.mark.parametrize("conda", [None, CONDA])
def test_a_dockerfiles_text_is_kept_as_it_was_given(v1: Services, conda: Any) -> None:
    name = "docker-conda" if conda else "docker"
    asked = environment(name, {"baseImage": None, "baseDockerfile": DOCKERFILE}, conda)
    made = put(v1, asked)
    found = v1.of("environment", "GET", f"environments/{name}")
    assert found == made and found["version"] == "1"
    assert found["docker"]["baseDockerfile"] == DOCKERFILE and not found["docker"]["baseImage"]
    assert found["python"]["userManagedDependencies"] == (conda is None)
    assert put(v1, found)["version"] == "1", "it comes back as the same"


def test_without_an_engine_the_run_is_refused_when_it_is_submitted(v1: Services) -> None:
    asked = environment("engineless", {"baseDockerfile": DOCKERFILE})
    path = "experiments/e/snapshotrun"
    status, message = v1.refusal("execution", "POST", path, run_of(asked), runId="no-engine")
    assert status == 400 and "needs podman or docker" in message, message


@pytest.mark.parametrize(
    ("docker", "word"),
    [
        ({"baseImage": "ubuntu:22.04", "baseDockerfile": DOCKERFILE}, "more than one"),
        ({"buildContext": {"locationType": "git", "location": "https://x/y.git"}}, "in Git"),
        ({"baseDockerfile": "RUN true\n"}, "FROM"),
        ({"baseImage": "a:1", "baseImageRegistry": {"address": "x", "password": "p"}}, "podman"),
    ],
)
def test_what_an_image_can_t_be(v1: Services, docker: dict[str, Any], word: str) -> None:
    asked = environment("wrong", docker)
    _, message = v1.refusal("environment", "PUT", "environments/wrong", asked)
    assert word in message, message


def test_a_registrys_address_is_part_of_the_images_name(v1: Services) -> None:
    docker = {"baseImage": "team/torch:1", "baseImageRegistry": {"address": "registry.example"}}
    asked = environment("private", docker)
    assert put(v1, asked)["docker"]["baseImage"] == "registry.example/team/torch:1"


def test_an_own_environment_may_have_a_name_that_looks_published(v1: Services) -> None:
    image = {"baseImage": "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04"}
    own = environment("pytorch-1.6-gpu", image, CONDA)
    assert "six==1.16.0" in str(submit(v1, "own-name", own)["environment"])
    curated = v1.of("environment", "GET", "environments/sklearn-1.5")
    assert submit(v1, "as-it-is", curated)["environment"]["name"] == "sklearn-1.5"
    changed = copy.deepcopy(curated)
    changed["python"]["condaDependencies"] = CONDA
    assert "six==1.16.0" in str(submit(v1, "changed", changed)["environment"])


def test_a_curated_environment_is_registered_as_itself(v1: Services) -> None:
    curated = v1.of("environment", "GET", "environments/AzureML-sklearn-1.5")
    again = v1.of("environment", "PUT", "environments/AzureML-sklearn-1.5/versions/1", curated)
    assert again == curated


def test_variables_come_back(v1: Services) -> None:
    image = {"baseImage": "python:3.11"}
    said = {"environmentVariables": {"A": "1"}, "inferencingStackVersion": "latest"}
    put(v1, environment("with-variables", image, **said))
    found = v1.of("environment", "GET", "environments/with-variables")
    assert {key: found[key] for key in said} == said
    other = environment("with-variables", image, environmentVariables={"A": "2"})
    assert put(v1, other)["version"] == "2"


def test_an_image_in_a_registry_is_none(v1: Services) -> None:
    path = "environments/python/versions/1/image"
    status, message = v1.refusal("environment", "GET", path)
    assert status == 501 and "yard environment build -n python" in message


def test_this_machine_has_a_name_of_its_own(v1: Services) -> None:
    names = [one["name"] for one in v1.of("rp", "GET", "computes")["value"]]
    assert "local-cluster" in names and "local" not in names
    one = v1.of("rp", "GET", "computes/local-cluster")
    assert one["name"] == "local-cluster" and one["id"].endswith("/local-cluster")
    python = v1.of("environment", "GET", "environments/python")
    assert submit(v1, "on-local", python)["target"] == "local-cluster"


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"nodeCount": "two"}, "node_count"),
        ({"nodeCount": 0}, "node_count"),
        ({"maxRunDurationSeconds": "1h"}, "max_run_duration_seconds"),
        ({"communicator": "Nccl", "pytorch": {"processCount": "four"}}, "process_count"),
        ({"communicator": "Nccl", "pytorch": {"processCount": 0}}, "process_count"),
        ({"communicator": "Nccl", "pytorch": {"processCount": 1.5}}, "process_count"),
        ({"communicator": "OpenMpi", "mpi": {"processCountPerNode": 0}}, "process_count_per_node"),
        ({"docker": {"shmSize": "lots"}}, "shm_size"),
    ],
)
def test_what_is_no_number_is_named(more: dict[str, Any], name: str) -> None:
    asked = {"command": "true", "target": "c", **more}
    with pytest.raises(InvalidInput, match=f"`{name}` is"):
        job_document(asked, "python", lambda _: ("", ""), lambda _: ("", ""))
