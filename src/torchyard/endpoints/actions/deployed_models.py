"""What a deployment's file names, found and fixed when it is accepted.

Owns: its model, code and environment as they will be for every instance; registering a model that
the file names inline.
Leaves: checking a job's document to jobs/requests/submission.py; the file's grammar to spec/.
Always: the pinned file names the same model, code and environment tomorrow; nothing is stored but
an inline model with a name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from torchyard.base import refs
from torchyard.base.blobs import SNAPSHOT_PREFIX, Blobs
from torchyard.base.errors import InvalidSpec, NotFound, TorchyardError
from torchyard.data.datastores import Datastores
from torchyard.endpoints.actions import safe_models
from torchyard.endpoints.running import instance_jobs
from torchyard.endpoints.spec.deployment_spec import (
    MLFLOW,
    AnyDeploymentSpec,
    DeploymentSpec,
    ModelReference,
)
from torchyard.jobs.files import model_sources
from torchyard.jobs.requests import submission
from torchyard.jobs.services import FileServices, Services
from torchyard.models import actions as models
from torchyard.models.types import Model
from torchyard.workspaces.types import Identity

WITHOUT_CODE = (".onnx", ".pt2", ".ts", ".torchscript")
"""Ends of the names of model files that need no scoring script, beside those of MLflow."""
NEEDS_SCRIPT = "scoring_script_needed"
_CONDA_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Pinned:
    """The file as it is kept, and what is to be said of it."""

    document: dict[str, Any]
    notices: tuple[str, ...]


def pin(
    services: Services,
    workspace: str,
    document: Mapping[str, Any],
    spec: AnyDeploymentSpec,
    identity: Identity,
    cluster: str,
) -> Pinned:
    """
    Args:
        cluster: the server's own machine when empty.

    Raises:
        InvalidSpec: model, code, environment or cluster is not there, or don't go together.
    """
    model, model_files = _model(services, workspace, spec.model, identity)
    _check_code(services.blobs.of(workspace), spec, model, model_files)
    environment = spec.environment
    if environment is None:
        environment = _environment_of(model, model_files)
    job: dict[str, Any] = {
        "command": instance_jobs.command_of(model is not None),
        "experiment_name": "online-endpoints",
        "environment": environment,
        "environment_variables": dict(spec.environment_variables),
    }
    if cluster:
        job["compute"] = cluster
    if spec.code is not None:
        job["code"] = spec.code.code
    if model is not None:
        job["inputs"] = {"model": {"type": model.type, "path": model.path, "mode": "download"}}
    try:
        checked = submission.check(services, workspace, job)
    except TorchyardError as error:
        error.at = _key_in_deployment(tuple(error.at))
        raise
    pinned = {key: value for key, value in document.items() if key != "$schema"}
    ref = checked.environment.ref
    pinned["environment"] = f"azureml:{ref}" if ref else environment
    if checked.environment.job_variables:
        variables = {**dict(checked.environment.job_variables), **spec.environment_variables}
        pinned["environment_variables"] = variables
    if model is not None:
        has_script = spec.code is not None or not isinstance(spec, DeploymentSpec)
        processes = (
            0 if has_script
            else safe_models.processes(model.type, model_files, checked.environment)
        )  # fmt: skip
        model = replace(model, path=checked.paths["model"], processes=processes)
        pinned["model"] = {key: value for key, value in vars(model).items() if value}
    return Pinned(pinned, checked.notices)


def reference_of(model: Model) -> ModelReference:
    """A registered model, as an instance gets it."""
    top = models.top_folder(model)
    folder = model.folder.rpartition("/")[2] if model.folder != top else ""
    return ModelReference(
        f"azureml:{model.name}:{model.version}",
        model.type if model.type == MLFLOW else "custom_model",
        model.name,
        str(model.version),
        folder=folder,
        is_file=model.single,
    )


def _model(
    services: FileServices, workspace: str, written: ModelReference | None, identity: Identity
) -> tuple[ModelReference | None, Mapping[str, Path]]:
    """The model and its files by their paths in it."""
    if written is None:
        return None, {}
    try:
        if written.name and not _is_reference(written.path):
            return _registered(services.datastores, _inline(services, workspace, written, identity))
        if _is_reference(written.path):
            ref = refs.parse(written.path)
            version = ref.version or ref.label or models.LATEST
            model = models.get(services.db, workspace, ref.name, version)
            return _registered(services.datastores, model)
        with model_sources.find(services, workspace, written.path) as source:
            paths = dict(source.files) if written.path.startswith(SNAPSHOT_PREFIX) else {}
            return replace(written, is_file=source.single), paths
    except TorchyardError as error:
        error.at = ("model", *error.at) if error.at and error.at[0] != "model" else ("model",)
        raise


def _registered(
    datastores: Datastores, model: Model
) -> tuple[ModelReference | None, Mapping[str, Path]]:
    if model.type == "triton_model":
        raise InvalidSpec(
            f"model `{model.name}:{model.version}` is a triton_model, which is not served",
            "deploy the ONNX file or the TorchScript program itself, as `custom_model`",
            code="not_served",
        )
    if not model.files:
        raise NotFound(
            f"model `{model.name}:{model.version}` has no files here: it lies at `{model.source}`",
            "register it from there with `yard model create`",
        )
    find = partial(models.file, datastores, model)
    return reference_of(model), {file.path: find(file.path) for file in model.files}


def _inline(
    services: FileServices, workspace: str, written: ModelReference, identity: Identity
) -> Model:
    """The version that the file names, registered if it is not there yet."""
    if written.version:
        try:
            return models.get(services.db, workspace, written.name, written.version)
        except NotFound:
            pass
    document: dict[str, Any] = {
        "name": written.name,
        "path": written.path,
        "type": written.type,
        "description": written.description,
        "folder": written.folder,
    }
    if written.version:
        document["version"] = written.version
    find = partial(model_sources.find, services)
    return models.register(
        services.db, services.clock, services.datastores, find, workspace, document, identity.user
    )


def _check_code(
    blobs: Blobs,
    spec: AnyDeploymentSpec,
    model: ModelReference | None,
    model_files: Mapping[str, Path],
) -> None:
    if spec.code is None:
        served = model is not None and model.type == MLFLOW
        if served or any(path.endswith(WITHOUT_CODE) for path in model_files):
            return
        raise InvalidSpec(
            "the deployment has no `code_configuration`",
            "name a scoring script: `code_configuration: {code: ./src, scoring_script: score.py}`; "
            "models of type mlflow_model, ONNX files and exported programs need none",
            code=NEEDS_SCRIPT,
        )
    if not spec.code.code.startswith(SNAPSHOT_PREFIX):
        return  # submission.check says what it must be
    snapshot = blobs.snapshot(spec.code.code.removeprefix(SNAPSHOT_PREFIX))
    paths = [file.path for file in snapshot.files]
    if spec.code.scoring_script not in paths:
        raise InvalidSpec(
            f"the code has no file `{spec.code.scoring_script}`",
            f"its Python files: {_listed(paths)}",
            code="scoring_script_missing",
            at=("code_configuration", "scoring_script"),
        )


def _listed(paths: Sequence[str]) -> str:
    scripts = sorted(path for path in paths if path.endswith(".py"))
    return ", ".join(f"`{path}`" for path in scripts[:10]) or "none"


def _environment_of(
    model: ModelReference | None, model_files: Mapping[str, Path]
) -> Mapping[str, Any]:
    """What an MLflow model says that it needs."""
    for name, key in (("conda.yaml", "conda_file"), ("requirements.txt", "pip_requirements")):
        file = model_files.get(name)
        if model is None or model.type != MLFLOW or file is None:
            continue
        try:
            if file.stat().st_size > _CONDA_MOST_BYTES:
                continue
            text = file.read_text(encoding="utf-8")
            return {key: yaml.safe_load(text) if key == "conda_file" else text}
        except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
            raise InvalidSpec(
                f"`{name}` of the model can't be read ({str(error)[:200]})",
                "name an `environment`",
                at=("model",),
            ) from error
    raise InvalidSpec(
        "the deployment has no `environment`",
        "name one with `--environment` or write it: `environment: {conda_file: conda.yml}`; models "
        "of type mlflow_model bring their own",
    )


def _is_reference(path: str) -> bool:
    return path.startswith("azureml:") and not path.startswith(("azureml://", "azureml:/"))


def _key_in_deployment(at: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Where in the deployment's file the job's key was written."""
    if at[:2] == ("inputs", "model"):
        return ("model",)
    if at[:1] == ("code",):
        return ("code_configuration", "code")
    if at[:1] == ("compute",):
        return ("torchyard", "cluster")
    return at
