"""What `invoke` is asked for: from a mapping to an `Invocation`.

Owns: `Invocation`; its one input, its output, what it changes of the deployment.
Leaves: whether the data exist to jobs/requests/, which deployment scores to actions.
Always: an `Invocation` names one input; every error says where by `at`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torchyard.base.documents.checks import TEXT, At, By, Key, Text, Texts, Whole, Word
from torchyard.base.documents.models import Document, File, declared, keys, rule
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import described
from torchyard.batch_endpoints.spec.settings import (
    InnerSettings,
    ResourcesFile,
    Settings,
    refuse_twice,
)
from torchyard.endpoints.spec.deployment_spec import AS_A_JOB

TYPES = ("uri_folder", "uri_file", "mltable")
OUTPUT = "score"
_OVER = Key("over those of the deployment")


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


class InputFile(Document):
    type: str = declared(
        "uri_folder", "`uri_folder` (the default), `uri_file` or `mltable`", Word(*TYPES)
    )
    path: str = declared("", "here, a datastore, an asset, another job's output, a URL", Text())
    mode: str = declared("", AS_A_JOB, Text())

    @rule("path")
    def _path(self) -> None:
        if not self.path:
            raise InvalidSpec("the input has no `path`", "for example `path: ./images`")

    @rule("mode")
    def _mode(self) -> None:
        if self.mode == "direct":
            raise InvalidSpec(
                "`mode: direct` is not served: the scoring script gets files",
                "leave it out",
                code="not_served",
                at=("mode",),
            )


class OutputFile(Document):
    type: str = declared("uri_folder", "`uri_folder`", Word("uri_folder"))
    path: Any = declared(None, "`azureml://datastores/…`")
    mode: str = declared(
        "rw_mount",
        "`rw_mount` or `upload`; either starts with an empty folder",
        Word("rw_mount", "upload"),
    )
    name: Any = declared(None, "registers the predictions as data")
    version: Any = declared(None, "of what `name` registers")


def _inputs(value: Any, at: At) -> tuple[str, dict[str, Any]]:
    """The one input: its name, and what a job's file has for it."""
    if not isinstance(value, Mapping) or len(value) != 1:
        count = len(value) if isinstance(value, Mapping) else 0
        raise InvalidSpec(
            f"a model is invoked with one input, not {count}",
            "name files or a folder with `--input`, or in the file: "
            "`inputs: {data: {type: uri_folder, path: …}}`",
            at=at,
        )
    ((key, written),) = value.items()
    name = str(key)
    if isinstance(written, str):
        written = {"path": written}
    if not isinstance(written, Mapping):
        raise InvalidSpec(
            f"`{name[:80]}` must be files or a folder, not {described(written)}",
            "write `{type: uri_folder, path: …}`",
            at=(*at, name),
        )
    file = InputFile.read(written, (*at, name))
    mode = file.mode or ("eval_mount" if file.type == "mltable" else "ro_mount")
    return name, {"type": file.type, "path": file.path, "mode": mode}


def _outputs(value: Any, at: At) -> dict[str, Any]:
    if not isinstance(value, Mapping) or list(value) != [OUTPUT]:
        raise InvalidSpec(
            f"the only output of a model is `{OUTPUT}`",
            "for example `outputs: {score: {path: azureml://datastores/…}}`",
            at=at,
        )
    written = value[OUTPUT] or {}
    OutputFile.read(written, (*at, OUTPUT))
    return {key: written[key] for key in ("path", "name", "version", "mode") if written.get(key)}


class InvocationFile(Settings, File):
    subject: ClassVar[str] = "the invocation"
    resolved: ClassVar[tuple[str, ...]] = ("outputs.*.path",)

    deployment_name: str = declared(
        "", "default: `defaults.deployment_name` of the endpoint", Text()
    )
    inputs: tuple[str, dict[str, Any]] | None = declared(
        None,
        "one input: `{type, path, mode}` by a name, as of a job",
        By(_inputs, of=InputFile, is_named=True, else_=TEXT),
    )
    outputs: dict[str, Any] = declared(
        {},
        "`score: {path}`: where the predictions go, as of a job",
        By(_outputs, of=OutputFile, is_named=True),
    )
    job_name: str = declared("", "default: a generated one", Text())
    experiment_name: str = declared("", "default: the endpoint's name", Text())
    display_name: str = declared("", check=Text())
    description: str = declared("", check=Text())
    tags: dict[str, str] = declared({}, "of the job", Texts())
    properties: dict[str, str] = declared({}, "of the job", Texts())
    settings: InnerSettings = declared(InnerSettings(), _OVER)
    resources: ResourcesFile | None = declared(None, _OVER)
    instance_count: int = declared(0, "as in `resources`", Whole(1, 1000))

    @rule("settings", *keys(Settings))
    def _once(self) -> None:
        refuse_twice(self, self.settings)

    @rule("inputs")
    def _one_input(self) -> None:
        if self.inputs is None:
            _inputs(None, ("inputs",))


def read(document: Any) -> Invocation:
    """
    Raises:
        InvalidSpec: the first thing that is wrong, with its place and the others.
    """
    file = InvocationFile.read(document)
    assert file.inputs is not None
    name, written = file.inputs
    inner = document.get("settings") or {}
    changes = {key: document[key] for key in keys(InnerSettings) if document.get(key) is not None}
    in_resources = 0 if file.resources is None else file.resources.instance_count
    return Invocation(
        input=written,
        input_at=("inputs", name),
        output=file.outputs,
        deployment_name=file.deployment_name,
        job_name=file.job_name,
        experiment_name=file.experiment_name,
        display_name=file.display_name,
        description=file.description,
        tags=file.tags,
        properties=file.properties,
        changes={**inner, **changes},
        instance_count=file.instance_count or in_resources,
    )
