"""Environments as folders of files, in the shape of azureml-core's `save_to_directory`.

Owns: `azureml_environment.json`, `conda_dependencies.yml` and `BaseDockerfile`, written and read.
Leaves: what a definition means to the server.
Always: what azureml-core wrote is read and what is written here azureml-core reads; what a folder
says and an environment here can't hold is told, never dropped in silence.

Source: azureml-core 1.61, azureml/core/environment.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torchyard.base import azureml_environment
from torchyard.base.errors import Conflict, InvalidInput, NotFound

DEFINITION = "azureml_environment.json"
CONDA = "conda_dependencies.yml"
DOCKERFILE = "BaseDockerfile"
# What azureml-core puts into every environment.
_EXAMPLE_VARIABLE = "EXAMPLE_ENV_VAR"
_HEAD = "# Conda environment specification, as Azure ML's and torchyard's SDKs read it.\n"


def save(
    directory: Path, name: str, version: str, definition: Mapping[str, Any], overwrite: bool = False
) -> list[Path]:
    """Write an environment's files; returns them.

    Raises:
        Conflict: the directory is there, and `overwrite` is false.
        InvalidInput: it is built from a folder, which no file of these can hold.
    """
    if "build" in definition:
        raise InvalidInput(
            f"environment `{name}` is built from a Dockerfile and the folder around it",
            "that folder is what there is to keep; `yard environment create -f` takes it again",
        )
    if directory.exists() and not overwrite:
        raise Conflict(f"`{directory}` exists already", "name another one, or say `--overwrite`")
    conda = _conda_of(definition)
    directory.mkdir(parents=True, exist_ok=True)
    # What an earlier save left here would be read as a part of this one.
    for stale in (CONDA, DOCKERFILE):
        (directory / stale).unlink(missing_ok=True)
    body = json.dumps(
        azureml_environment.document(name, version, definition.get("image"), conda is None),
        indent=4,
    )
    files = {DEFINITION: body}
    if conda is not None:
        files[CONDA] = _HEAD + _yaml(conda)
    for file, text in files.items():
        (directory / file).write_text(text, encoding="utf-8")
    return [directory / file for file in files]


def load(directory: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """The document of an environment, which `create` takes, or a job as its `environment`.

    Args:
        say: is told what the folder says and an environment here can't hold.

    Raises:
        NotFound: the folder holds no environment.
        InvalidInput: its files can't be read, or are of an environment that can't be had here.
    """
    saved = _read_definition(directory)
    python, docker = _section(saved, "python"), _section(saved, "docker")
    document: dict[str, Any] = {}
    if isinstance(saved.get("name"), str) and saved["name"]:
        document["name"] = saved["name"]
    dockerfile = directory / DOCKERFILE
    conda = None if python.get("userManagedDependencies") else _read_conda(directory, python)
    if docker.get("baseDockerfile"):
        raise InvalidInput(
            f"`{directory / DEFINITION}` holds a Dockerfile's text",
            f"put it into a file `{DOCKERFILE}` beside it, as `save_to_directory` does",
        )
    if docker.get("buildContext"):
        raise InvalidInput(
            f"`{directory}` names a build context elsewhere",
            "`yard environment create -f` with `build.path` takes the folder itself",
        )
    if dockerfile.is_file():
        if conda is not None:
            raise InvalidInput(
                f"`{directory}` has a `{DOCKERFILE}` and packages of conda's beside it",
                f"put them into the Dockerfile as `RUN pip install …`, and write "
                f'`"userManagedDependencies": true` into `{DEFINITION}`',
            )
        document["build"] = {"path": str(directory.resolve()), "dockerfile_path": DOCKERFILE}
    elif docker.get("baseImage"):
        document["image"] = docker["baseImage"]
    if conda is not None:
        document["conda_file"] = conda
    if not {"image", "build", "conda_file"} & set(document):
        raise InvalidInput(
            f"`{directory}` says nothing of an image, a Dockerfile or packages",
            f'write `"userManagedDependencies": false` into `{DEFINITION}` and packages into '
            f"`{CONDA}`",
        )
    _tell_left_out(saved, python, say)
    return document


def _conda_of(definition: Mapping[str, Any]) -> dict[str, Any] | None:
    """The conda file; requirements are one with nothing but what pip gets."""
    if definition.get("conda_file") is not None:
        return dict(definition["conda_file"])
    lines = definition.get("pip_requirements")
    if lines is None:
        return None
    listed = lines.splitlines() if isinstance(lines, str) else list(lines)
    python = [f"python={definition['python']}"] if "python" in definition else []
    pip: list[Any] = ["pip", {"pip": listed}] if listed else ["pip"]
    return {"channels": ["conda-forge"], "dependencies": [*python, *pip]}


def _read_definition(directory: Path) -> dict[str, Any]:
    file = directory / DEFINITION
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(
            f"`{directory}` holds no `{DEFINITION}`",
            "name a folder that `save` or azureml-core's `save_to_directory` wrote",
        ) from error
    except ValueError as error:
        raise InvalidInput(
            f"`{file}` is not JSON: {error}", "save the environment again"
        ) from error
    if not isinstance(document, dict):
        raise InvalidInput(f"`{file}` is not a JSON object", "save the environment again")
    return document


def _section(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    section = document.get(key)
    return section if isinstance(section, dict) else {}


def _read_conda(directory: Path, python: Mapping[str, Any]) -> dict[str, Any] | None:
    import yaml

    file = directory / CONDA
    if not file.is_file():
        inline = python.get("condaDependencies")
        return inline if isinstance(inline, dict) else None
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidInput(f"`{file}` is not YAML: {error}", "correct that file") from error
    if not isinstance(document, dict):
        raise InvalidInput(f"`{file}` is not a mapping", "it needs a key `dependencies`")
    return document


def _tell_left_out(
    document: Mapping[str, Any], python: Mapping[str, Any], say: Callable[[str], None]
) -> None:
    variables = [
        name for name in _section(document, "environmentVariables") if name != _EXAMPLE_VARIABLE
    ]
    if variables:
        say(
            f"its variables ({', '.join(variables)}) are left out: set them in the job's "
            "`environment_variables`"
        )
    if python.get("interpreterPath") not in (None, "", "python"):
        say(f"`interpreterPath: {python['interpreterPath']}` is left out: Python is the image's")
    if python.get("baseCondaEnvironment"):
        say(f"`baseCondaEnvironment: {python['baseCondaEnvironment']}` is left out")
    if _section(document, "spark").get("packages"):
        say("its Spark packages are left out: Spark does not run here")
    if document.get("r"):
        say("its R packages are left out: R does not run here")


def _yaml(value: Any) -> str:
    import yaml

    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True))
