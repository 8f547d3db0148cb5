"""What `invoke` is asked for: from a mapping to an `Invocation`.

Owns: `Invocation`; its one input, its output, what it changes of the deployment.
Leaves: whether the data exist to jobs/requests/, which deployment scores to actions.
Always: an `Invocation` names one input; every error says where by `at`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from pydantic import Field

from torchyard.base.documents.models import (
    TEXT,
    At,
    By,
    Document,
    File,
    Key,
    Text,
    Texts,
    Whole,
    Word,
    keys,
    rule,
)
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
    type: Annotated[
        str, Word(*TYPES), Key("`uri_folder` (the default), `uri_file` or `mltable`")
    ] = "uri_folder"
    path: Annotated[
        str, Text(), Key("here, a datastore, an asset, another job's output, a URL")
    ] = ""
    mode: Annotated[str, Text(), Key(AS_A_JOB)] = ""

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
    type: Annotated[str, Word("uri_folder"), Key("`uri_folder`")] = "uri_folder"
    path: Annotated[Any, Key("`azureml://datastores/…`")] = None
    mode: Annotated[
        str,
        Word("rw_mount", "upload"),
        Key("`rw_mount` or `upload`; either starts with an empty folder"),
    ] = "rw_mount"
    name: Annotated[Any, Key("registers the predictions as data")] = None
    version: Annotated[Any, Key("of what `name` registers")] = None


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

    deployment_name: Annotated[
        str, Text(), Key("default: `defaults.deployment_name` of the endpoint")
    ] = ""
    inputs: Annotated[
        tuple[str, dict[str, Any]] | None,
        By(_inputs, of=InputFile, is_named=True, else_=TEXT),
        Key("one input: `{type, path, mode}` by a name, as of a job"),
    ] = None
    outputs: Annotated[
        dict[str, Any],
        By(_outputs, of=OutputFile, is_named=True),
        Key("`score: {path}`: where the predictions go, as of a job"),
    ] = Field(default_factory=dict)
    job_name: Annotated[str, Text(), Key("default: a generated one")] = ""
    experiment_name: Annotated[str, Text(), Key("default: the endpoint's name")] = ""
    display_name: Annotated[str, Text(), Key()] = ""
    description: Annotated[str, Text(), Key()] = ""
    tags: Annotated[dict[str, str], Texts(), Key("of the job")] = Field(default_factory=dict)
    properties: Annotated[dict[str, str], Texts(), Key("of the job")] = Field(default_factory=dict)
    settings: Annotated[InnerSettings, _OVER] = InnerSettings()
    resources: Annotated[ResourcesFile | None, _OVER] = None
    instance_count: Annotated[int, Whole(1, 1000), Key("as in `resources`")] = 0

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
