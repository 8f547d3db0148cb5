"""SDK v1's environments: Dockerfiles, names that look published, keys without a place in ours."""

from __future__ import annotations

import copy
import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest

from azureml.azure_server import WORKSPACE
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


def environment(name: str, docker: dict[str, Any], conda: Any = None, **overrides: Any) -> Any:
    python = {"userManagedDependencies": conda is None, "condaDependencies": conda}
    return {"name": name, "version": None, "docker": docker, "python": python, **overrides}


def put(v1: Services, body: Any) -> Any:
    return v1.of("environment", "PUT", f"environments/{body['name']}", body)


def run_of(body: Any) -> dict[str, Any]:
    return {"Configuration": {"command": "true", "target": "local-cluster", "environment": body}}


def build(v1: Services, path: str) -> Any:
    where = f"/environment/v2.0{WORKSPACE}/environments/{path}"
    return v1.site.ask("olga", "POST", where, {})


def submit(v1: Services, name: str, body: Any) -> Any:
    """The definition of the resulting run."""
    v1.of("execution", "POST", "experiments/e/snapshotrun", run_of(body), runId=name)
    return v1.of("history", "GET", f"runs/{name}/details")["runDefinition"]


@pytest.mark.parametrize("conda", [None, CONDA])
def test_a_dockerfiles_text_is_returned_unchanged(v1: Services, conda: Any) -> None:
    name = "docker-conda" if conda else "docker"
    request = environment(name, {"baseImage": None, "baseDockerfile": DOCKERFILE}, conda)
    created = put(v1, request)
    result = v1.of("environment", "GET", f"environments/{name}")
    assert result == created and result["version"] == "1"
    assert result["docker"]["baseDockerfile"] == DOCKERFILE and not result["docker"]["baseImage"]
    assert result["python"]["userManagedDependencies"] == (conda is None)
    assert put(v1, result)["version"] == "1", "it comes back as the same"


def test_a_run_names_the_environment_that_it_asked_for_and_the_one_in_its_place(
    v1: Services,
) -> None:
    name, place = "AzureML-acpt-pytorch-2.8-cuda12.6", "acpt-pytorch-2.13-cpu"
    used = submit(v1, "stand-in", v1.of("environment", "GET", f"environments/{name}"))[
        "environment"
    ]
    assert (used["name"], used["python"]["condaDependencies"]["name"]) == (name, place)
    # What run.get_environment() asks for.
    path = f"environments/{name}/versions/{used['version']}"
    assert v1.of("environment", "GET", path) == used
    warnings = v1.of("history", "GET", "runs/stand-in/details")["warnings"]
    assert any(name in each["message"] and place in each["message"] for each in warnings)


def test_a_run_of_an_image_without_an_engine_is_refused_at_submit(v1: Services) -> None:
    request = environment("engineless", {"baseDockerfile": DOCKERFILE})
    path = "experiments/e/snapshotrun"
    status, message = v1.refusal("execution", "POST", path, run_of(request), runId="no-engine")
    assert status == 400 and "needs podman or docker" in message, message


@pytest.mark.parametrize(
    ("docker", "text"),
    [
        ({"baseImage": "ubuntu:22.04", "baseDockerfile": DOCKERFILE}, "more than one"),
        ({"buildContext": {"locationType": "git", "location": "https://x/y.git"}}, "in Git"),
        ({"baseDockerfile": "RUN true\n"}, "FROM"),
        ({"baseImage": "a:1", "baseImageRegistry": {"address": "x", "password": "p"}}, "podman"),
    ],
)
def test_contradictory_images_are_refused(v1: Services, docker: dict[str, Any], text: str) -> None:
    request = environment("wrong", docker)
    _, message = v1.refusal("environment", "PUT", "environments/wrong", request)
    assert text in message, message


def test_a_registrys_host_is_part_of_the_images_name(v1: Services) -> None:
    docker = {"baseImage": "team/torch:1", "baseImageRegistry": {"address": "registry.example"}}
    request = environment("private", docker)
    assert put(v1, request)["docker"]["baseImage"] == "registry.example/team/torch:1"


def test_an_own_environment_may_have_a_name_that_looks_published(v1: Services) -> None:
    image = {"baseImage": "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04"}
    own_item = environment("pytorch-1.6-gpu", image, CONDA)
    assert "six==1.16.0" in str(submit(v1, "own-name", own_item)["environment"])
    curated = v1.of("environment", "GET", "environments/sklearn-1.5")
    assert submit(v1, "as-it-is", curated)["environment"]["name"] == "sklearn-1.5"
    changed = copy.deepcopy(curated)
    changed["python"]["condaDependencies"] = CONDA
    assert "six==1.16.0" in str(submit(v1, "changed", changed)["environment"])


def test_a_curated_environment_is_registered_as_itself(v1: Services) -> None:
    curated = v1.of("environment", "GET", "environments/AzureML-sklearn-1.5")
    again = v1.of("environment", "PUT", "environments/AzureML-sklearn-1.5/versions/1", curated)
    assert again == curated


def test_the_list_has_azures_published_names(v1: Services) -> None:
    listed = v1.of("environment", "GET", "environments/")["value"]
    names = [environment["name"] for environment in listed]
    assert {"AzureML-Minimal", "sklearn-1.5", "python"} <= set(names)
    assert len(names) == len(set(names))
    minimal = listed[names.index("AzureML-Minimal")]
    assert minimal == v1.of("environment", "GET", "environments/AzureML-Minimal")


def test_variables_are_returned(v1: Services) -> None:
    image = {"baseImage": "python:3.11"}
    fields = {"environmentVariables": {"A": "1"}, "inferencingStackVersion": "latest"}
    put(v1, environment("with-variables", image, **fields))
    result = v1.of("environment", "GET", "environments/with-variables")
    assert {key: result[key] for key in fields} == fields
    other = environment("with-variables", image, environmentVariables={"A": "2"})
    assert put(v1, other)["version"] == "2"


@pytest.mark.parametrize("path", ["python", "python/versions/1"])
def test_image_details_are_those_of_the_built_folder(v1: Services, path: str) -> None:
    before = v1.of("environment", "GET", f"environments/{path}/image")
    assert before["imageExistsInRegistry"] is False
    assert before["pythonEnvironment"] == {"interpreterPath": None, "condaEnvironmentPath": None}
    assert before["ingredients"]["dockerfile"].startswith("# ")
    services = v1.site.parts.services
    spec = services.environments.resolver.resolve("azureml:python", "default")
    folder = services.environments.folders.paths(spec.hash).folder
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").touch()
    try:
        details = v1.of("environment", "GET", f"environments/{path}/image")
    finally:
        shutil.rmtree(folder)
    assert details["imageExistsInRegistry"] is True
    assert details["dockerImage"] == {"name": "python:1", "registry": {"address": None}}
    assert details["pythonEnvironment"] == {
        "interpreterPath": f"{folder}/bin/python",
        "condaEnvironmentPath": str(folder),
    }
    status, _ = v1.refusal("environment", "GET", "environments/none/image")
    assert status == 404


def test_a_local_build_says_what_it_needs(v1: Services) -> None:
    path = "environments/python/versions/1/recipe"
    status, message = v1.refusal("environment", "POST", path, {"platform": "Linux"})
    assert status == 501 and "`build_local` needs conda or Docker" in message
    assert "yard environment export -n python" in message
    status, _ = v1.refusal("environment", "POST", "environments/none/recipe", {})
    assert status == 404


def test_an_environment_is_built_and_its_log_says_why_it_failed(v1: Services) -> None:
    put(v1, environment("to-build", {"baseImage": None, "baseDockerfile": DOCKERFILE}))
    began = build(v1, "to-build/versions/1/image")
    assert began.status_code == 202, began.text
    location = began.json()["location"]
    deadline = time.monotonic() + 60
    while (shown := v1.site.ask("olga", "GET", location).json())["status"] == "Running":
        assert time.monotonic() < deadline, shown
        time.sleep(0.05)
    assert shown["status"] == "Failed" and shown["location"] == location
    # As the client opens it, without a token.
    log: Any = v1.site.client.get(shown["logUrl"])
    assert log.status_code == 200, log.text
    assert "/no/such/podman" in log.text and "Hint: " in log.text, log.text
    path, _, query = shown["logUrl"].partition("?")
    assert v1.site.client.get(path).status_code == 401
    assert v1.site.client.get(f"{path}?{query[:-3]}abc").status_code == 403
    other = path.replace(location.rpartition("/")[2], "0" * 64)
    assert v1.site.client.get(f"{other}?{query}").status_code == 403
    again = build(v1, "to-build/imageoncompute/cpu")
    assert again.status_code == 202 and again.json()["location"] == location
    status, message = v1.refusal("environment", "POST", "environments/none/versions/1/image", {})
    assert status == 404 and "`azureml:none:1`" in message


def test_a_built_environment_is_succeeded(v1: Services) -> None:
    services = v1.site.parts.services
    spec = services.environments.resolver.resolve("azureml:python", "default")
    services.environments.records.end_ready(spec, "")
    shown = v1.of("environment", "GET", f"builds/{spec.hash}")
    assert shown["status"] == "Succeeded"
    status, _ = v1.refusal("environment", "GET", "builds/nothing")
    assert status == 404


def test_sdk_v1_calls_this_machine_local_cluster(v1: Services) -> None:
    names = [item["name"] for item in v1.of("rp", "GET", "computes")["value"]]
    assert "local-cluster" in names and "local" not in names
    item = v1.of("rp", "GET", "computes/local-cluster")
    assert item["name"] == "local-cluster" and item["id"].endswith("/local-cluster")
    python = v1.of("environment", "GET", "environments/python")
    assert submit(v1, "on-local", python)["target"] == "local-cluster"


@pytest.mark.parametrize(
    ("overrides", "name"),
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
def test_a_value_that_is_not_a_number_is_named(overrides: dict[str, Any], name: str) -> None:
    request = {"command": "true", "target": "c", **overrides}
    with pytest.raises(InvalidInput, match=f"`{name}` is"):
        job_document(request, "python", lambda _: ("", ""), lambda _: ("", ""))
