"""What Azure ML's schema calls a string reaches the server as it is written in the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from torchyard.base.documents import models, pages
from torchyard.base.documents.pages import Declared
from torchyard.batch_endpoints.spec.deployment_spec import BatchDeploymentFile
from torchyard.batch_endpoints.spec.endpoint_spec import BatchEndpointFile
from torchyard.batch_endpoints.spec.invocation import InvocationFile
from torchyard.cli.parsing import documents
from torchyard.client.snapshots import job_files
from torchyard.components.documents import CommandComponentFile
from torchyard.endpoints.spec.deployment_spec import CodeFile, ModelFile, OnlineDeploymentFile
from torchyard.endpoints.spec.endpoint_spec import OnlineEndpointFile
from torchyard.jobs.spec.job_spec import JobFile
from torchyard.sweeps.spec.sweep_spec import SweepFile
from torchyard.sweeps.spec.trials import TrialFile

WRITTEN = ["1.10", "1e3", "0x10", "007", "yes", "off", "2024-01-02", "1_000", "22:30", "+1", "1.0"]
WRITTEN += ["3", "true"]
# Numbers, flags and values of any type; what is left out of a table's walk.
NOT_STRINGS = {
    "job": {
        *("distribution.process_count_per_instance", "distribution.worker_count"),
        *("distribution.parameter_server_count", "resources.instance_count", "limits.timeout"),
        *("inputs.x", "inputs.x.value", "outputs.x", "services.x.port", "torchyard"),
        *("environment.inference_config", "environment.build", "services.x"),
    },
    "sweep": {"search_space", "objective", "early_termination", "limits", "inputs", "outputs"}
    | {"identity", "resources", "queue_settings", "torchyard"},
    "trial": {"distribution", "resources", "services", "queue_settings", "limits"},
    "endpoint": {"traffic", "mirror_traffic", "identity"},
    "deployment": {"code_configuration", "instance_count", "request_settings", "liveness_probe"}
    | {"readiness_probe", "scale_settings", "data_collector", "app_insights_enabled", "torchyard"},
    "model": {"is_file", "processes"},
    "code_configuration": set(),
    "batch endpoint": {"defaults", "identity"},
    "batch deployment": {"code_configuration", "resources", "settings", "torchyard"}
    | {"mini_batch_size", "max_concurrency_per_instance", "retry_settings", "error_threshold"},
    "invocation": {"inputs", "outputs", "settings", "resources", "instance_count"}
    | {"mini_batch_size", "max_concurrency_per_instance", "retry_settings", "error_threshold"},
}


def _table(model: type[models.Document]) -> list[Declared]:
    return [Declared(name, key.support, key.note) for name, key in models.keys(model).items()]


TABLES: dict[str, tuple[str, Sequence[Declared]]] = {
    "job": ("", list(pages.walk(JobFile))),
    "sweep": ("", _table(SweepFile)),
    "trial": ("trial.", _table(TrialFile)),
    "endpoint": ("", _table(OnlineEndpointFile)),
    "deployment": ("", _table(OnlineDeploymentFile)),
    "model": ("model.", _table(ModelFile)),
    "code_configuration": ("code_configuration.", _table(CodeFile)),
    "batch endpoint": ("", _table(BatchEndpointFile)),
    "batch deployment": ("", _table(BatchDeploymentFile)),
    "invocation": ("", _table(InvocationFile)),
}
TEXT_MAPPINGS = ("tags", "properties", "environment_variables")


def string_fields() -> Iterator[str]:
    for kind, (start, table) in TABLES.items():
        for key in table:
            path = key.path.replace("*", "x")
            if key.support != "refused" and path not in NOT_STRINGS[kind]:
                is_mapping = path.rpartition(".")[2] in TEXT_MAPPINGS
                if path == "services.x.properties":
                    path = "services.x.properties.command"
                yield (
                    f"{start}{path}.x"
                    if is_mapping and "properties.command" not in path
                    else (f"{start}{path}")
                )
    # Assets, computes, datastores, components, environments and their conda files.
    yield from ("path", "stage", "datastore", "size", "tier", "location", "account_name")
    yield from ("bucket", "url", "region", "host", "username", "private_key_file")
    yield from ("credentials.account_key", "container_name", "filesystem", "endpoint", "target")
    yield from ("image", "conda_file", "environment.conda_file.name", "trial.environment.tags.x")
    yield from ("trial.environment_variables.x", "settings.environment_variables.x")
    yield from ("inputs.version.path", "outputs.name.name", "resources.docker_args.0")
    yield from (f"inputs.x.{key}" for key in ("description", "mode"))
    yield from (
        key
        for key in models.keys(CommandComponentFile)
        if key in ("display_name", "command", "code")
    )


def read(folder: Path, text: str) -> dict[str, Any]:
    file = folder / "job.yml"
    file.write_text(text)
    return documents.read(file).value


@pytest.mark.parametrize("path", dict.fromkeys(string_fields()))
def test_every_string_of_every_schema_stays_as_written(tmp_path: Path, path: str) -> None:
    steps = path.split(".")
    for written in WRITTEN:
        text, expected = written, written
        value: Any = expected
        for step in reversed(steps):
            text = f"[{text}]" if step == "0" else f"{{{step}: {text}}}"
            value = [value] if step == "0" else {step: value}
        assert read(tmp_path, text) == value


@pytest.mark.parametrize("path", sorted(NOT_STRINGS["job"] - {"outputs.x", "services.x"}))
def test_what_is_no_string_keeps_its_type(tmp_path: Path, path: str) -> None:
    value: Any = 60
    text = "60"
    for step in reversed(path.split(".")):
        text, value = f"{{{step}: {text}}}", {step: value}
    assert read(tmp_path, text) == value


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("key", ["value", "default"])
def test_inputs_of_type_string_stay_as_written(tmp_path: Path, key: str, written: str) -> None:
    text = f"inputs: {{a: {{{key}: {written}, type: string}}}}"
    assert read(tmp_path, text)["inputs"]["a"][key] == written
    text = f"inputs: {{a: {{type: string, enum: [{written}, x]}}}}"
    assert read(tmp_path, text)["inputs"]["a"]["enum"] == [written, "x"]


def test_numbers_stay_numbers_elsewhere(tmp_path: Path) -> None:
    text = (
        "inputs: {version: 1.10, name: 3, b: {type: number, value: 1e-5}}\n"
        "search_space: {name: {type: choice, values: [1.10, yes]}}\n"
        "properties: {torchyard.hang_after_s: 60, other: null}\n"
        "tags: {gone: null}\n"
        "traffic: {name: 90, path: 10}\n"
        "limits: {timeout: 60}\n"
    )
    assert read(tmp_path, text) == {
        "inputs": {"version": 1.1, "name": 3, "b": {"type": "number", "value": "1e-5"}},
        "search_space": {"name": {"type": "choice", "values": [1.1, True]}},
        "properties": {"torchyard.hang_after_s": 60, "other": None},
        "tags": {"gone": None},
        "traffic": {"name": 90, "path": 10},
        "limits": {"timeout": 60},
    }


def test_values_beside_a_merge_and_merged_ones_stay_as_written(tmp_path: Path) -> None:
    text = (
        "environment_variables: {<<: &base {A: 1.10, B: yes}, B: 007}\n"
        "tags: {<<: [*base, {C: 1e3}]}\n"
        "inputs:\n"
        "  a: {<<: &kind {type: string}, value: 1.10}\n"
        "  b: {type: string, <<: {value: 1.10}}\n"
        "  c: {<<: {type: string, value: 1.10}, type: number}\n"
    )
    assert read(tmp_path, text) == {
        "environment_variables": {"A": "1.10", "B": "007"},
        "tags": {"A": "1.10", "B": "yes", "C": "1e3"},
        "inputs": {
            "a": {"type": "string", "value": "1.10"},
            "b": {"type": "string", "value": "1.10"},
            "c": {"type": "number", "value": 1.1},
        },
    }


def test_the_place_of_a_value_beside_a_merge_is_its_own(tmp_path: Path) -> None:
    file = tmp_path / "job.yml"
    file.write_text("x: &b {limits: {timeout: 1}}\ny:\n  <<: *b\n  limits: {timeout: 2}\n")
    document = documents.read(file)
    assert document.value["y"] == {"limits": {"timeout": 2}}
    assert document.position_of(("y", "limits")) == f"{file}:4:3"
    assert document.position_of(("y", "limits", "timeout")) == f"{file}:4:12"


def test_values_given_with_set_stay_as_written() -> None:
    document = documents.empty(Path())
    document.value["inputs"] = {"a": {"type": "string"}, "b": {"type": "number"}}
    for path in ("environment.version", "inputs.a.value", "inputs.b.value", "tags.release"):
        document.set(f"{path}=1.10")
    assert document.value == {
        "environment": {"version": "1.10"},
        "inputs": {"a": {"type": "string", "value": "1.10"}, "b": {"type": "number", "value": 1.1}},
        "tags": {"release": "1.10"},
    }


def test_files_that_a_document_names_are_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "trial.yml").write_text(
        "command: train\nenvironment: file:env.yml\nenvironment_variables: {A: 1.10, on: no}\n"
    )
    (tmp_path / "env.yml").write_text(
        "name: 1.0\nversion: 2024-01-02\ntags: {a: 007}\nconda_file: conda.yml\n"
    )
    (tmp_path / "conda.yml").write_text("name: 1.10\ndependencies: [python=3.10]\n")
    files = job_files.find({"type": "sweep", "trial": "trial.yml"}, tmp_path)
    assert files.document["trial"] == {
        "command": "train",
        "environment": {
            "name": "1.0",
            "version": "2024-01-02",
            "tags": {"a": "007"},
            "conda_file": {"name": "1.10", "dependencies": ["python=3.10"]},
        },
        "environment_variables": {"A": "1.10", "on": "no"},
    }
