"""What `invoke` is asked for: from a mapping to an `Invocation`.

Owns: `Invocation`; its one input, its output, what it changes of the deployment.
Leaves: whether the data exist to jobs/requests/, which deployment scores to actions.
Always: an `Invocation` names one input; every error says where by `at`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchyard.base.documents import expressions, faults
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import described, mapping, text, texts
from torchyard.batch_endpoints.spec import keys, settings
from torchyard.endpoints.spec.keys import check
from torchyard.endpoints.spec.settings import bounded_integer, word

TYPES = ("uri_folder", "uri_file", "mltable")
OUTPUT = "score"


@dataclass(frozen=True)
class Invocation:
    """`input` and `output` are what a job's file has for them. `changes` replace keys of the
    deployment's `settings`, `instance_count` that of its resources where it is not 0.
    """

    input: Mapping[str, Any]
    input_at: tuple[str, ...]
    output: Mapping[str, Any] = field(default_factory=dict)
    deployment_name: str = ""
    job_name: str = ""
    experiment_name: str = ""
    display_name: str = ""
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    instance_count: int = 0


@faults.all_at_once
def read(document: Any) -> Invocation:
    """
    Raises:
        InvalidSpec: the first thing that is wrong, with its place.
    """
    body = check(mapping(document, "the invocation"), keys.INVOCATION, (), "the invocation")
    expressions.refuse(body, ("outputs.*.path",))
    settings.batch_settings(body)
    written, input_at = _input(body.get("inputs"))
    inner = body.get("settings") or {}
    changes = {key.name: body[key.name] for key in keys.SETTINGS if body.get(key.name) is not None}
    return Invocation(
        input=written,
        input_at=input_at,
        output=_output(body.get("outputs")),
        deployment_name=text(body, "deployment_name"),
        job_name=text(body, "job_name"),
        experiment_name=text(body, "experiment_name"),
        display_name=text(body, "display_name"),
        description=text(body, "description"),
        tags=texts(body, "tags"),
        properties=texts(body, "properties"),
        changes={**inner, **changes},
        instance_count=_instance_count(body),
    )


def _instance_count(body: Mapping[str, Any]) -> int:
    inner = body.get("resources")
    count = settings.resources(body).instance_count if inner is not None else 0
    return (
        bounded_integer(body, "instance_count", (), count, 1, 1000)
        if "instance_count" in body
        else count
    )


def _input(value: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    if not isinstance(value, Mapping) or len(value) != 1:
        count = len(value) if isinstance(value, Mapping) else 0
        raise InvalidSpec(
            f"a model is invoked with one input, not {count}",
            "name files or a folder with `--input`, or in the file: "
            "`inputs: {data: {type: uri_folder, path: …}}`",
            at=("inputs",),
        )
    ((name, written),) = value.items()
    at = ("inputs", str(name))
    if isinstance(written, str):
        written = {"path": written}
    if not isinstance(written, Mapping):
        raise InvalidSpec(
            f"`{str(name)[:80]}` must be files or a folder, not {described(written)}",
            "write `{type: uri_folder, path: …}`",
            at=at,
        )
    body = check(written, keys.INPUT, at, "the input")
    kind = word(body, "type", at, TYPES, "uri_folder")
    path = text(body, "path", at)
    if not path:
        raise InvalidSpec("the input has no `path`", "for example `path: ./images`", at=at)
    mode = text(body, "mode", at) or ("eval_mount" if kind == "mltable" else "ro_mount")
    if mode == "direct":
        raise InvalidSpec(
            "`mode: direct` is not served: the scoring script gets files",
            "leave it out",
            code="not_served",
            at=(*at, "mode"),
        )
    return {"type": kind, "path": path, "mode": mode}, at


def _output(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    at = ("outputs",)
    names = list(value) if isinstance(value, Mapping) else []
    if names != [OUTPUT]:
        raise InvalidSpec(
            f"the only output of a model is `{OUTPUT}`",
            "for example `outputs: {score: {path: azureml://datastores/…}}`",
            at=at,
        )
    written = value[OUTPUT] or {}
    body = check(written, keys.OUTPUT, (*at, OUTPUT), f"`{OUTPUT}`")
    word(body, "type", (*at, OUTPUT), ("uri_folder",), "uri_folder")
    word(body, "mode", (*at, OUTPUT), ("rw_mount", "upload"), "rw_mount")
    return {key: body[key] for key in ("path", "name", "version", "mode") if body.get(key)}
