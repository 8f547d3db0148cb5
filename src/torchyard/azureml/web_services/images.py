"""What a web service runs: its model, code and environment, from an `environmentImageRequest`.

Owns: `Image`; which file of an upload is the scoring script; several models in one folder; the
scoring script of scikit-learn models without code.
Leaves: reading archives to archives.py, environments to sdk_v1/environments.py, models without
code of other kinds to the engine.
Always: code becomes a snapshot, so that what is served never changes with the upload.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torchyard.azureml.blob import artifact_places
from torchyard.azureml.common.calls import Call, object_at, objects_at
from torchyard.azureml.common.errors import NotServed
from torchyard.azureml.sdk_v1 import environments, models
from torchyard.azureml.web_services import archives
from torchyard.base import fields, files
from torchyard.base.blobs import SNAPSHOT_PREFIX, Blobs, SnapshotFile
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.jobs.services import FileServices
from torchyard.models import actions
from torchyard.models.types import Model

ENTRY_SCRIPT, SOURCE_DIRECTORY = "AZUREML_ENTRY_SCRIPT", "AZUREML_SOURCE_DIRECTORY"
_ARTIFACT = re.compile(r"aml://artifact/([^/]+)/([^/]+)/(.+)", re.DOTALL)
# The client's own program imports the scoring script by this line.
_IMPORTED = re.compile(r"^script_location = os\.path\.join\(.*, '([^'\n]+)'\)$", re.MULTILINE)
_MOST_PROGRAM_BYTES = 1 << 20
_SKLEARN, _ONNX = "ScikitLearn", "Onnx"
_SKLEARN_SCRIPT = Path(__file__).with_name("sklearn_score.py.txt")


@dataclass(frozen=True)
class Image:
    """Keys of a deployment's file; `models` are their ids in SDK v1, `name:version`."""

    models: tuple[str, ...] = ()
    model: str | Mapping[str, Any] | None = None
    code: str = ""
    scoring_script: str = ""
    environment: str | Mapping[str, Any] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


def read(services: FileServices, call: Call, request: Mapping[str, Any]) -> Image:
    """
    Raises:
        InvalidInput: the request contradicts itself, or its archive is not one.
        NotFound: a model or an uploaded file is not there.
        NotServed: an upload elsewhere, or a framework that needs a scoring script here.
    """
    chosen_models = [_model(services.db, call, id) for id in _ids(request)]
    environment = object_at(request, "environment")
    assets = objects_at(request, "assets")
    if not assets:
        return _without_code(services, call, chosen_models)
    variables = fields.texts(environment, "environmentVariables", ("environment",))
    script = variables.pop(ENTRY_SCRIPT, "") or _imported(services, call, request, assets)
    code = [asset for asset in assets if asset.get("id") != request.get("driverProgram")]
    snapshot = _snapshot(_blobs(services, call), _code(services, call, code))
    script = files.safe_relative(script)
    return Image(
        models=tuple(f"{model.name}:{model.version}" for model in chosen_models),
        model=_reference(services, call, chosen_models),
        code=snapshot,
        scoring_script=script,
        environment=_environment(services, call, environment, variables),
        variables=variables,
    )


def _ids(request: Mapping[str, Any]) -> list[str]:
    ids = request.get("modelIds") or []
    if not isinstance(ids, list) or not all(isinstance(id, str) for id in ids) or len(ids) > 100:
        raise InvalidInput("`modelIds` must be a list of at most 100 ids", at=["modelIds"])
    return list(dict.fromkeys(ids))


def _model(db: Database, call: Call, id: str) -> Model:
    model = models.find(db, call, id)
    if not model.folder:
        raise NotFound(
            f"the files of model `{id[:200]}` are not on this server", f"see `{model.source}`"
        )
    return model


def _reference(
    services: FileServices, call: Call, chosen_models: Sequence[Model]
) -> str | Mapping[str, Any] | None:
    """What AZUREML_MODEL_DIR leads to: one model, or `NAME/VERSION/…` of each."""
    if not chosen_models:
        return None
    if len(chosen_models) == 1:
        return f"azureml:{chosen_models[0].name}:{chosen_models[0].version}"
    together, blobs = [], _blobs(services, call)
    for model in chosen_models:
        folder = "" if model.single else f"{models.folder_name(model)}/"
        for file in model.files:
            source = actions.file(services.datastores, model, file.path)
            if blobs.missing([file.sha256]):
                blobs.put(file.sha256, files.chunks(open(source, "rb")))
            path = f"{model.name}/{model.version}/{folder}{file.path}"
            together.append(SnapshotFile(path, file.sha256, file.size_bytes))
    return {"path": _snapshot(blobs, together), "type": "custom_model"}


def _imported(
    services: FileServices,
    call: Call,
    request: Mapping[str, Any],
    assets: Sequence[Mapping[str, Any]],
) -> str:
    """The scoring script, by the client's own program; environments say it by a variable."""
    for asset in assets:
        if asset.get("id") == request.get("driverProgram"):
            with open(_upload(services, call, asset), "rb") as file:
                text = file.read(_MOST_PROGRAM_BYTES).decode("utf-8", "replace")
            match = _IMPORTED.search(text)
            if match is not None:
                return match[1]
    raise InvalidInput(
        "the request doesn't say which file is the scoring script",
        "give the InferenceConfig an `environment`",
        at=["driverProgram"],
    )


def _code(
    services: FileServices, call: Call, assets: Sequence[Mapping[str, Any]]
) -> list[SnapshotFile]:
    code: dict[str, SnapshotFile] = {}
    blobs = _blobs(services, call)
    for asset in assets:
        upload = _upload(services, call, asset)
        if asset.get("unpack"):
            unpacked = archives.unpacked(blobs, upload, _temporary(services.home))
            code.update({file.path: file for file in unpacked})
        else:
            path = files.safe_relative(str(asset.get("id") or "").rpartition("/")[2])
            code[path] = archives.stored(blobs, path, upload)
    return list(code.values())


def _upload(services: FileServices, call: Call, asset: Mapping[str, Any]) -> Path:
    """An uploaded file, for as long as the request lasts."""
    url = str(asset.get("url") or "")
    match = _ARTIFACT.fullmatch(url)
    if match is None:
        raise NotServed(
            f"code at `{url[:200]}` is not served",
            "give the InferenceConfig a local `entry_script` and `source_directory`",
            at=["assets"],
        )
    origin, container, path = match.groups()
    location = artifact_places.find(services, call.workspace.name, origin, container, path)
    return services.datastores.file(call.workspace.name, location.datastore, location.stored(path))


def _environment(
    services: FileServices,
    call: Call,
    environment: Mapping[str, Any],
    variables: Mapping[str, str],
) -> str | Mapping[str, Any] | None:
    """The deployment's environment; None where the model brings it.

    The client adds its variables to the environment. They belong to the service.
    """
    if not environment:
        return None
    service_variables = {key: text for key, text in variables.items() if key != SOURCE_DIRECTORY}
    document = {**environment, "environmentVariables": service_variables or None}
    reference: str | Mapping[str, Any] = environments.for_job(
        services.environments, services.clock, call, document
    )
    return reference


def _without_code(services: FileServices, call: Call, chosen_models: Sequence[Model]) -> Image:
    if len(chosen_models) != 1:
        raise InvalidInput(
            "a web service without a scoring script has exactly one model",
            "give an InferenceConfig",
            at=["modelIds"],
        )
    (model,) = chosen_models
    framework, version = models.framework_of(model)
    ids, reference = (f"{model.name}:{model.version}",), _reference(services, call, chosen_models)
    if framework == _ONNX:
        packages = ["onnxruntime", "numpy"]
        return Image(models=ids, model=reference, environment=_python(packages))
    if framework != _SKLEARN:
        raise NotServed(
            f"a model with `model_framework={framework}` is not served without a scoring script",
            "give an InferenceConfig with `entry_script` and `environment`",
            at=["modelIds"],
        )
    blobs = _blobs(services, call)
    text = blobs.put_bytes(_SKLEARN_SCRIPT.read_bytes())
    script = SnapshotFile("score.py", text, _SKLEARN_SCRIPT.stat().st_size)
    packages = [f"scikit-learn=={version}" if version else "scikit-learn", "joblib"]
    return Image(
        models=ids,
        model=reference,
        code=_snapshot(blobs, [script]),
        scoring_script="score.py",
        environment=_python(packages),
    )


def _python(packages: Sequence[str]) -> Mapping[str, Any]:
    return {"conda_file": {"dependencies": ["python", "pip", {"pip": list(packages)}]}}


def _blobs(services: FileServices, call: Call) -> Blobs:
    return services.blobs.of(call.workspace.name)


def _snapshot(blobs: Blobs, code: Sequence[SnapshotFile]) -> str:
    snapshot = blobs.put_snapshot({"files": [asdict(file) for file in code]})
    return f"{SNAPSHOT_PREFIX}{snapshot.id}"


def _temporary(home: Path) -> Path:
    folder = home / "tmp"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder
