"""The job file: from a mapping to a `JobSpec`.

Owns: the keys of a command job, their types and defaults, and the words of a refusal.
Leaves: what references stand for to actions.py; places in the file (line, column) to the CLI.
Always: a `JobSpec` is whole and valid; every error says where by `at`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchyard.base.errors import InvalidSpec, nearest

NAME = re.compile(r"^[a-zA-Z0-9][\w-]{0,254}$")
_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_IO_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_PLACEHOLDER = re.compile(r"\$\{\{\s*(inputs|outputs)\.([A-Za-z0-9_]+)\s*\}\}")

JOB_KEYS = (
    "type", "command", "code", "environment", "environment_variables", "inputs", "outputs",
    "distribution", "resources", "compute", "limits", "name", "display_name", "experiment_name",
    "description", "tags", "properties", "$schema",
)  # fmt: skip
INPUT_KEYS = ("type", "path", "mode", "value")
OUTPUT_KEYS = ("type", "mode", "path")
DISTRIBUTION_KEYS = ("type", "process_count_per_instance")
RESOURCE_KEYS = ("instance_count", "instance_type", "shm_size", "properties")
LIMIT_KEYS = ("timeout",)
INPUT_TYPES = ("uri_file", "uri_folder")
INPUT_MODES = ("ro_mount", "download", "direct")
OUTPUT_TYPES = ("uri_file", "uri_folder")
OUTPUT_MODES = ("rw_mount", "upload")

At = tuple[str | int, ...]


@dataclass(frozen=True)
class Input:
    """A literal (`type` literal, `value` its text) or data at `path`."""

    type: str
    value: str = ""
    path: str = ""
    mode: str = "ro_mount"


@dataclass(frozen=True)
class Output:
    type: str = "uri_folder"
    mode: str = "rw_mount"


@dataclass(frozen=True)
class JobSpec:
    """What was asked. `distribution` is `pytorch` or empty; `environment` as it was written."""

    command: str
    environment: str | dict[str, Any]
    code: str = ""
    environment_variables: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, Input] = field(default_factory=dict)
    outputs: dict[str, Output] = field(default_factory=dict)
    distribution: str = ""
    process_count_per_instance: int = 1
    instance_count: int = 1
    compute: str = "local"
    timeout_s: float = 0.0
    name: str = ""
    display_name: str = ""
    experiment_name: str = "Default"
    description: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)


def read(document: Any) -> JobSpec:
    """Check a job file's mapping and give every key its default.

    Raises:
        InvalidSpec: the first thing that is wrong, with its place.
    """
    job = _mapping(document, (), "the job")
    _known_keys(job, JOB_KEYS, ())
    kind = _text(job, "type", (), "command").lower()
    if kind != "command":
        raise InvalidSpec(
            f"job type `{job['type']}` is not served", "use `type: command`", at=("type",)
        )
    inputs = {
        name: _input(value, ("inputs", name)) for name, value in _named(job, "inputs").items()
    }
    outputs = {
        name: _output(value, ("outputs", name)) for name, value in _named(job, "outputs").items()
    }
    command = _text(job, "command", ())
    if not command.strip():
        raise InvalidSpec(
            "the job has no `command`",
            "say what to run, for example `command: python train.py`",
            at=("command",) if "command" in job else (),
        )
    _placeholders_exist(command, inputs, outputs)
    distribution, processes = _distribution(job)
    resources = _mapping(job.get("resources") or {}, ("resources",), "`resources`")
    _known_keys(resources, RESOURCE_KEYS, ("resources",))
    limits = _mapping(job.get("limits") or {}, ("limits",), "`limits`")
    _known_keys(limits, LIMIT_KEYS, ("limits",))
    return JobSpec(
        command=command,
        environment=_environment(job),
        code=_text(job, "code", ()),
        environment_variables=_variables(job),
        inputs=inputs,
        outputs=outputs,
        distribution=distribution,
        process_count_per_instance=processes,
        instance_count=_count(resources, "instance_count", ("resources",), 1),
        compute=_text(job, "compute", (), "local").removeprefix("azureml:"),
        timeout_s=float(_count(limits, "timeout", ("limits",), 0, least=0)),
        name=_name(job, "name"),
        display_name=_text(job, "display_name", ()),
        experiment_name=_name(job, "experiment_name") or "Default",
        description=_text(job, "description", ()),
        tags=_texts(job, "tags"),
        properties=_texts(job, "properties"),
    )


def _input(value: Any, at: At) -> Input:
    if isinstance(value, (str, int, float, bool)):
        return Input("literal", value=_literal(value))
    body = _mapping(value, at, f"input `{at[-1]}`")
    _known_keys(body, INPUT_KEYS, at)
    if "value" in body:
        if "path" in body:
            raise InvalidSpec(f"input `{at[-1]}` has both `value` and `path`", "keep one", at=at)
        return Input("literal", value=_literal(body["value"]))
    path = _text(body, "path", at)
    if not path:
        raise InvalidSpec(
            f"input `{at[-1]}` has no `path`", "name a file or a folder, or give a `value`", at=at
        )
    return Input(
        _choice(body, "type", at, INPUT_TYPES, "uri_folder"),
        path=path,
        mode=_choice(body, "mode", at, INPUT_MODES, "ro_mount"),
    )


def _output(value: Any, at: At) -> Output:
    body = _mapping(value or {}, at, f"output `{at[-1]}`")
    _known_keys(body, OUTPUT_KEYS, at)
    return Output(
        _choice(body, "type", at, OUTPUT_TYPES, "uri_folder"),
        _choice(body, "mode", at, OUTPUT_MODES, "rw_mount"),
    )


def _distribution(job: Mapping[str, Any]) -> tuple[str, int]:
    if not job.get("distribution"):
        return "", 1
    at: At = ("distribution",)
    body = _mapping(job["distribution"], at, "`distribution`")
    _known_keys(body, DISTRIBUTION_KEYS, at)
    kind = _choice(body, "type", at, ("pytorch",), "")
    if not kind:
        raise InvalidSpec("`distribution` has no `type`", "write `type: pytorch`", at=at)
    return kind, _count(body, "process_count_per_instance", at, 1)


def _environment(job: Mapping[str, Any]) -> str | dict[str, Any]:
    value = job.get("environment")
    if isinstance(value, str) and value.strip():
        return value.strip()
    if isinstance(value, Mapping):
        return {str(key): content for key, content in value.items()}
    if value is None or value == "":
        raise InvalidSpec(
            "the job has no `environment`",
            "write `environment: python` for plain Python, or list packages under "
            "`environment: {pip_requirements: requirements.txt}`",
            at=("environment",) if "environment" in job else (),
        )
    raise InvalidSpec(
        "`environment` must be a name or a mapping",
        "for example `environment: python` or `environment: {conda_file: environment.yml}`",
        at=("environment",),
    )


def _variables(job: Mapping[str, Any]) -> dict[str, str]:
    values = _texts(job, "environment_variables")
    for name in values:
        if not _VARIABLE.match(name):
            raise InvalidSpec(
                f"`{name}` is no name for an environment variable",
                "letters, digits and underscores, no digit first",
                at=("environment_variables", name),
            )
    return values


def _named(job: Mapping[str, Any], key: str) -> dict[str, Any]:
    body = _mapping(job.get(key) or {}, (key,), f"`{key}`")
    for name in body:
        if not isinstance(name, str) or not _IO_NAME.match(name):
            raise InvalidSpec(
                f"`{name}` is no name for one of the {key}",
                "letters, digits and underscores, no digit first",
                at=(key, name),
            )
    return dict(body)


def _placeholders_exist(
    command: str, inputs: Mapping[str, Input], outputs: Mapping[str, Output]
) -> None:
    known = {"inputs": list(inputs), "outputs": list(outputs)}
    optional = "".join(re.findall(r"\$\[\[.*?\]\]", command, flags=re.DOTALL))
    for kind, name in _PLACEHOLDER.findall(command):
        if name not in known[kind] and not re.search(rf"{kind}\.{name}\b", optional):
            near = nearest(name, known[kind])
            raise InvalidSpec(
                f"the command uses `${{{{{kind}.{name}}}}}`, and the job has no such {kind[:-1]}",
                f"did you mean `{near}`?" if near else f"add `{name}` under `{kind}`",
                at=("command",),
            )


def _mapping(value: Any, at: At, what: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise InvalidSpec(f"{what} must be a mapping of keys to values", at=at)
    return value


def _known_keys(body: Mapping[Any, Any], known: Sequence[str], at: At) -> None:
    for key in body:
        if key not in known:
            near = nearest(str(key), known)
            shown = ", ".join(sorted(name for name in known if name != "$schema"))
            raise InvalidSpec(
                f"unknown key `{key}`" + (f" under `{'.'.join(map(str, at))}`" if at else ""),
                f"did you mean `{near}`?" if near else f"known keys: {shown}",
                at=(*at, str(key)),
            )


def _text(body: Mapping[Any, Any], key: str, at: At, default: str = "") -> str:
    value = body.get(key)
    if value is None:
        return default
    if not isinstance(value, str):
        raise InvalidSpec(
            f"`{key}` must be text, not `{value}`", f"put it in quotes: `{key}: '{value}'`",
            at=(*at, key),
        )  # fmt: skip
    return value


def _name(body: Mapping[Any, Any], key: str) -> str:
    value = _text(body, key, ())
    if value and not NAME.match(value):
        raise InvalidSpec(
            f"`{value[:80]}` is no valid `{key}`",
            "up to 255 letters, digits, `_` and `-`, beginning with a letter or digit",
            at=(key,),
        )
    return value


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _texts(body: Mapping[Any, Any], key: str) -> dict[str, str]:
    values = _mapping(body.get(key) or {}, (key,), f"`{key}`")
    texts = {}
    for name, value in values.items():
        if not isinstance(value, (str, int, float)):
            raise InvalidSpec(
                f"the value of `{key}.{name}` must be text or a number",
                at=(key, name),
            )
        texts[str(name)] = _literal(value)
    return texts


def _count(body: Mapping[Any, Any], key: str, at: At, default: int, least: int = 1) -> int:
    value = body.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidSpec(
            f"`{key}` must be a whole number of {least} or more, not `{value}`", at=(*at, key)
        )
    return value


def _choice(body: Mapping[Any, Any], key: str, at: At, known: Sequence[str], default: str) -> str:
    """Enum values match in any case and in camelCase, as Azure ML's clients allow."""
    written = _text(body, key, at, default)
    if not written:
        return default
    for name in known:
        if written.replace("_", "").replace("-", "").lower() == name.replace("_", ""):
            return name
    near = nearest(written, known)
    raise InvalidSpec(
        f"`{written}` is no value of `{key}` that is served",
        f"did you mean `{near}`?" if near else f"use one of: {', '.join(known)}",
        at=(*at, key),
    )
