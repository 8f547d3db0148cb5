"""Components as ARM resources.

Owns: a component's spec as Azure's clients write it, and the document that it stands for.
Leaves: grammar and versions to components/, lists to assets.py, code to codes.py.
Always: a job's own component is stored below Azure's name for those, and found there again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchyard.azureml.arm import assets as arm
from torchyard.azureml.arm import pipeline_documents, pipeline_resources
from torchyard.azureml.arm.assets import AssetVersion
from torchyard.azureml.arm.codes import snapshot_of_code
from torchyard.azureml.arm.job_documents import Reader
from torchyard.azureml.arm.resources import Permissions
from torchyard.azureml.common.calls import Call
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput
from torchyard.components import actions, documents
from torchyard.components.types import Component
from torchyard.data.codes import Places

NOUN = "component"
ANONYMOUS = pipeline_resources.ANONYMOUS_COMPONENT
_DEFAULT = "azureml_default"
_SNAPSHOT = "snapshot:"
# The client writes these about itself; the spec has them twice, or they are not part of the
# content. It keeps `id` of a component that it has registered before.
_LEFT_OUT = (
    *("_source", "$schema", "schema", "id", "creation_context"),
    *("name", "version", "description", "tags", "properties"),
)
_PIPELINES = ("pipeline", "pipeline_component")


class ComponentAssets:
    type, noun = "components", NOUN
    permissions = Permissions()

    def __init__(self, db: Database, clock: Clock, storage: Places) -> None:
        self._db = db
        self._clock = clock
        self._storage = storage

    def list_all(self, call: Call) -> Sequence[AssetVersion]:
        return [
            _version(call, component)
            for component in actions.list_versions(self._db, call.workspace.name)
        ]

    def list_versions(self, call: Call, name: str) -> Sequence[AssetVersion]:
        versions = actions.versions_of(self._db, call.workspace.name, name)
        return [_version(call, component) for component in versions]

    def get(self, call: Call, name: str, version: str) -> AssetVersion:
        reference = actions.LATEST if version == _DEFAULT else version
        return _version(call, actions.get(self._db, call.workspace.name, name, reference))

    def next_version(self, call: Call, name: str, versions: Sequence[AssetVersion]) -> str:
        return arm.next_version(versions)

    def put(self, call: Call, name: str, version: str) -> tuple[AssetVersion, bool]:
        component, new = actions.register(
            self._db,
            self._clock,
            call.workspace.name,
            {**arm.described(call), **self._document(call), "name": name, "version": version},
            call.identity.user,
            anonymous=name == ANONYMOUS,
        )
        return _version(call, component), new

    def archive(self, call: Call, name: str, version: str, archived: bool) -> None:
        actions.archive(
            self._db, call.workspace.name, name, version, archived, user=call.identity.user
        )

    def delete(self, call: Call, name: str, version: str) -> None:
        self.get(call, name, version)
        raise arm.not_deletable("a component")

    def _document(self, call: Call) -> dict[str, Any]:
        spec = call.properties.get("componentSpec")
        if not isinstance(spec, Mapping):
            raise InvalidInput(
                "the component has no `componentSpec`", at=["properties", "componentSpec"]
            )
        documents.check_type(spec.get("type"))
        reader = Reader(call.workspace.name, lambda code: self._snapshot(call, code))
        return document_of(reader, spec)

    def _snapshot(self, call: Call, code_id: str) -> str:
        return snapshot_of_code(self._storage, call, code_id)


def document_of(reader: Reader, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The document that a spec stands for, without what it says of its version.

    Raises:
        InvalidSpec: a step of a pipeline has a value of the wrong form, or an unknown key.
        NotFound: it names something in another workspace.
    """
    document = {key: value for key, value in spec.items() if key not in _LEFT_OUT}
    if str(spec.get("type") or "").lower() in _PIPELINES:
        at = ("properties", "componentSpec", "jobs")
        steps = pipeline_documents.nodes(reader, spec.get("jobs") or {}, at)
        content = {key: value for key, value in document.items() if value is not None}
        return {**content, "type": pipeline_documents.KIND, "jobs": steps}
    if isinstance(document.get("environment"), str):
        document["environment"] = reader.reference(document["environment"], "environments")
    code = document.get("code")
    if isinstance(code, str) and not code.startswith(_SNAPSHOT):
        document["code"] = _SNAPSHOT + reader.snapshot_of(code)
    return document


def spec_of(call: Call, component: Component) -> dict[str, Any]:
    """The spec as Azure's clients read it, with resource paths instead of references."""
    spec = {
        **component.definition,
        "name": component.name,
        "version": component.version,
        "description": component.description,
        "tags": component.tags,
    }
    environment = spec.get("environment")
    if isinstance(environment, str):
        spec["environment"] = _environment_id(call, environment)
    code = spec.get("code")
    if isinstance(code, str) and code.startswith(_SNAPSHOT):
        path = call.id("codes", code.removeprefix(_SNAPSHOT), "versions", "1")
        spec["code"] = f"azureml:{path}"
    if spec.get("type") == pipeline_documents.KIND:
        steps = pipeline_resources.masked(spec).get("jobs") or {}
        spec["jobs"] = pipeline_resources.nodes(steps, pipeline_resources.ResourceIds(call))
    for key in ("inputs", "outputs"):
        spec[key] = {name: dict(port) for name, port in (spec.get(key) or {}).items()}
    return {key: value for key, value in spec.items() if value != ""}


def _environment_id(call: Call, reference: str) -> str:
    """The id of a version; a reference with a label stays, for clients have no resource path of
    labels.
    """
    plain = reference.removeprefix("azureml:")
    name, _, version = plain.partition(":")
    if reference.startswith("azureml://") or "@" in plain or not version:
        return reference if reference.startswith("azureml:") else f"azureml:{reference}"
    return f"azureml:{call.id('environments', name, 'versions', version)}"


def _version(call: Call, component: Component) -> AssetVersion:
    return arm.version_of(
        component,
        type_properties={"componentSpec": spec_of(call, component)},
        anonymous=component.anonymous,
    )
