"""Public pipeline and component files, and what the workspace has before they come.

Owns: copying the files out of a repository, which of them are pipelines and components, stand-ins
for what the repository's scripts download or register, sorting the files by what becomes of them.
Leaves: running pipelines and the page to pipelines.py, what is set in each file to pipelines.yml.
Always: a file is read as the repository has it; what a user sets is set in the document.
"""

from __future__ import annotations

import csv
import random
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from torchyard import Client
from torchyard.base.errors import TorchyardError
from torchyard.cli.parsing import documents

FOLDERS = ("cli", "sdk/python/foundation-models/system")
JOB, COMMAND, PIPELINE, OTHER = "pipeline job", "command component", "pipeline component", "other"
_SCHEMAS = {"pipelinejob": JOB, "commandcomponent": COMMAND, "pipelinecomponent": PIPELINE}
ACCEPTED, REFUSED, WRONG = "accepted", "refused", "wrong"
CLUSTERS = ("cpu-cluster", "gpu-cluster", "batch-cluster", "gpu-cluster-big")
# Of the repository's README files and scripts.
_BASICS = "jobs/pipelines-with-components/basics"
_BATCH = "endpoints/batch/deploy-pipelines"
_SCORING = f"{_BATCH}/batch-scoring-with-preprocessing"
_DATA = (
    ("local-folder-example", f"{_BASICS}/4d_data_input/data"),
    ("heart-classifier-train", f"{_BATCH}/training-with-components/data/train"),
)
_MODELS = (
    ("heart-classifier", "mlflow_model", f"{_SCORING}/model"),
    ("heart-classifier-transforms", "custom_model", f"{_SCORING}/transformations"),
)
_ENVIRONMENT = f"{_SCORING}/environment/xgboost-sklearn-py38.yml"
_URLS = (
    "https://azuremlexamples.blob.core.windows.net/datasets",
    "wasbs://datasets@azuremlexamples.blob.core.windows.net",
    "https://dprepdata.blob.core.windows.net/demo",
)
# Of inputs of components that are tried alone.
_VALUES = {"string": "cpu-cluster", "integer": 1, "number": 1, "boolean": True}
_PATHS = {
    "uri_file": "azureml://datastores/examples/paths/iris.csv",
    "uri_folder": "azureml:local-folder-example@latest",
    "mltable": "azureml:fridge-objects@latest",
    "custom_model": "azureml:heart-classifier-transforms@latest",
}
_CREDIT = ("LIMIT_BAL", "AGE", "SEX", "EDUCATION", "MARRIAGE",
           *(f"PAY_{number}" for number in (0, 2, 3, 4, 5, 6)),
           *(f"BILL_AMT{number}" for number in range(1, 7)),
           *(f"PAY_AMT{number}" for number in range(1, 7)), "DEFAULT_NEXT_MONTH")  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What became of one file; `faults` are (code, message) and empty when it is accepted."""

    file: str
    kind: str
    faults: tuple[tuple[str, str], ...] = ()

    @property
    def result(self) -> str:
        if not self.faults:
            return ACCEPTED
        return REFUSED if self._named or self.kind == OTHER else WRONG

    @property
    def reasons(self) -> tuple[str, ...]:
        """Each message once; of a refused file those that name what isn't served."""
        return tuple(dict.fromkeys(self._named or [message for _, message in self.faults]))

    @property
    def _named(self) -> list[str]:
        return [
            message
            for code, message in self.faults
            if code == "not_served" or " is not available: " in message
        ]


def copy(repository: Path, target: Path) -> str:
    """Copy the folders' files to `target`, and return the commit; a clone may lack large ones."""
    git = ["git", "--git-dir", str(repository)]
    listed = subprocess.check_output([*git, "ls-tree", "-r", "-z", "HEAD", *FOLDERS], text=True)
    for line in filter(None, listed.split("\0")):
        meta, _, name = line.partition("\t")
        blob = subprocess.run([*git, "cat-file", "blob", meta.split()[2]], capture_output=True)
        if blob.returncode == 0:
            file = target / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(blob.stdout)
    return subprocess.check_output([*git, "rev-parse", "--short", "HEAD"], text=True).strip()


def find(folder: Path) -> Iterator[tuple[str, Path]]:
    """The kind and the path of each file, by its schema or, without one, by its keys."""
    for file in sorted([*folder.rglob("*.yml"), *folder.rglob("*.yaml")]):
        try:
            body = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError):
            continue
        if isinstance(body, dict):
            schema = str(body.get("$schema", "")).lower().rpartition("/")[2].partition(".")[0]
            bare = not schema and body.get("type") == "pipeline"
            kind = _SCHEMAS.get(schema, OTHER if schema.endswith("component") else "")
            if kind or bare:
                yield kind or JOB, file


def add_stand_ins(files: Sequence[tuple[str, Path]], sample: Path) -> None:
    """Make the local files that pipelines name and the repository's scripts download."""
    for kind, file in files:
        body = yaml.safe_load(file.read_text(encoding="utf-8")) if kind == JOB else {}
        parts = [body, *(body.get("jobs") or {}).values()]
        inputs = [each for part in parts for each in (part.get("inputs") or {}).values()]
        for path in (each.get("path") for each in inputs if isinstance(each, dict)):
            place = file.parent / str(path)
            if not path or ":" in path or "{" in path or place.exists():
                continue
            content = sample.read_text()
            if not place.suffix:
                place.mkdir(parents=True)
                (place / "MLTable").write_text("paths:\n  - file: ./sample.csv\n")
                place /= sample.name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content)


def prepare(client: Client, folder: Path, data: Path) -> None:
    """Make what the repository's scripts make first: clusters, data, models, environments."""
    for name in CLUSTERS:
        client.computes.create({"name": name, "max_instances": 4})
    client.datastores.create({"name": "examples", "type": "local", "path": str(data)})
    for prefix in _URLS:
        client.workspaces.map_url(client.workspace, prefix, "azureml://datastores/examples/paths/")
    for name, path in _DATA:
        client.data.create({"name": name, "type": "uri_folder", "path": path}, folder)
    for name, path in (("credit-default-reference", "credit"), ("fridge-objects", ".")):
        client.data.create({"name": name, "type": "mltable", "path": path}, data)
    for name, kind, path in _MODELS:
        client.models.create({"name": name, "type": kind, "path": path}, folder)
    add_environment(client, folder / _ENVIRONMENT)


def add_environment(client: Client, file: Path) -> None:
    document = documents.read(file)
    client.environments.create(document.value, document.folder)


def make_data(data: Path) -> None:
    """What lies on sites that can't be reached: files of the same columns, drawn from a seed."""
    chance = random.Random(0)
    kinds = ("setosa", "versicolor", "virginica")
    iris = [
        [*(f"{number % 3 + 1 + chance.random():.1f}" for _ in range(4)), kinds[number % 3]]
        for number in range(150)
    ]
    columns = ("sepal_length", "sepal_width", "petal_length", "petal_width", "species")
    _write(data / "iris.csv", columns, iris)
    passengers = [
        [number, number % 2, number % 3 + 1, f"Passenger {number}", chance.randint(1, 80)]
        for number in range(1, 101)
    ]
    _write(data / "Titanic.csv", ("PassengerId", "Survived", "Pclass", "Name", "Age"), passengers)
    (data / "MLTable").write_text("paths:\n  - file: ./iris.csv\n")
    credit = [[*(chance.randint(1, 4) for _ in _CREDIT[1:]), number % 2] for number in range(400)]
    _write(data / "credit" / "credit.csv", _CREDIT, credit)
    (data / "credit" / "MLTable").write_text(
        "paths:\n  - file: ./credit.csv\ntransformations:\n  - read_delimited:\n"
        "      delimiter: ','\n      header: all_files_same_headers\n"
    )


def _write(file: Path, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as lines:
        csv.writer(lines).writerows([columns, *rows])


def document_of(file: Path, values: Mapping[str, Any]) -> documents.Document:
    """The document with what a user sets in it: `{"inputs.data.path": "./data"}`."""
    document = documents.read(file)
    for key, value in values.items():
        *parents, last = key.split(".")
        body = document.value
        for parent in parents:
            body = body.setdefault(parent, {})
        body[last] = value
    return document


def check(client: Client, kind: str, file: Path, shown: str, values: Mapping[str, Any]) -> Outcome:
    """Validate a job; register a component in a version of its own, and validate a job of it."""
    try:
        document = document_of(file, values)
        if kind == JOB:
            client.jobs.validate(document.value, document.folder)
            return Outcome(shown, kind)
        document.value.pop("version", None)
        made = client.components.create(document.value, document.folder, file=file)
        client.jobs.validate(_job_of(kind, f"azureml:{made.name}:{made.version}", document.value))
    except TorchyardError as error:
        faults = tuple((each.code, _message(each)) for each in (error, *error.others))
        return Outcome(shown, kind, faults)
    return Outcome(shown, kind)


def _job_of(kind: str, component: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """A pipeline of one step, which gives the component each input that it can't do without."""
    ports: Mapping[str, Mapping[str, Any]] = document.get("inputs") or {}
    inputs = {
        name: _value(port)
        for name, port in ports.items()
        if port.get("default") is None and not port.get("optional")
    }
    step = {"type": "pipeline" if kind == PIPELINE else "command", "component": component}
    return {
        "type": "pipeline",
        "jobs": {"step": {**step, "inputs": inputs}},
        "settings": {"default_compute": CLUSTERS[0]},
    }


def _value(port: Mapping[str, Any]) -> Any:
    kind = str(port["type"]).replace("path", "uri_folder")
    if kind in _VALUES:
        return (port.get("enum") or [port.get("min", _VALUES[kind])])[0]
    return {"type": kind, "path": _PATHS.get(kind, "azureml:heart-classifier@latest")}


def _message(error: TorchyardError) -> str:
    at = ".".join(map(str, error.at))
    return f"`{at}`: {error.message}" if at else error.message
