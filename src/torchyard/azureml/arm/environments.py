"""Environments as ARM resources: a workspace's own, curated ones, and those that Azure published.

Owns: an environment's properties, and the document that they stand for.
Leaves: what a definition means to environments/, versions and lists to assets.py.
Always: a substitute for a published environment has the requested name, and its description says
what it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import yaml

from torchyard.assets import versions
from torchyard.azureml.arm import assets as arm
from torchyard.azureml.arm.assets import AssetVersion, DatastoreUriOf
from torchyard.azureml.arm.resources import Permissions
from torchyard.azureml.common.calls import Call
from torchyard.base.bodies import yaml_documents
from torchyard.base.clock import Clock
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.data import codes
from torchyard.data.codes import Places
from torchyard.environments import assets
from torchyard.environments.assembly import Environments
from torchyard.environments.names import catalogue, curated_environments
from torchyard.environments.names.curated_environments import Curated
from torchyard.environments.types import EnvironmentAsset
from torchyard.workspaces.permissions import Permission

NOUN = "environment"
_ALWAYS = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NOBODY = "torchyard"
_SNAPSHOT = "snapshot:"
_OF_SNAPSHOT = re.compile(r".*/codes/(?P<snapshot>[0-9a-f]{64})/versions/1\Z", re.IGNORECASE)
_CURATED_IMAGE = "mcr.microsoft.com/azureml/curated"
_ROUTES = {
    "liveness_route": "livenessRoute",
    "readiness_route": "readinessRoute",
    "scoring_route": "scoringRoute",
}


class EnvironmentAssets:
    type, noun = "environments", NOUN
    permissions = Permissions(actions={"startpendingupload": Permission.UPLOAD})

    def __init__(
        self, services: Environments, clock: Clock, storage: Places, of_blob: DatastoreUriOf
    ) -> None:
        self._environments = services
        self._clock = clock
        self._storage = storage
        self._of_blob = of_blob

    def list_all(self, call: Call) -> Sequence[AssetVersion]:
        registered = [
            _registered(call, environment)
            for environment in assets.list_versions(self._environments.db, call.workspace.name)
        ]
        return registered + [
            _curated(environment, environment.name, environment.version)
            for environment in curated_environments.every()
        ]

    def list_versions(self, call: Call, name: str) -> Sequence[AssetVersion]:
        versions_found = assets.list_in(
            self._environments.db, call.workspace.name, name, archived=None
        )
        listed = [_registered(call, asset) for asset in versions_found]
        curated = curated_environments.find_by_name(name)
        if listed and curated is not None:  # those are the workspace's releases of it
            return [*listed, _curated(curated, name, curated.version)]
        return listed or [self._published(call, name, versions.LATEST)]

    def get(self, call: Call, name: str, version: str) -> AssetVersion:
        registered = assets.list_in(self._environments.db, call.workspace.name, name, archived=None)
        if registered and curated_environments.find_by_name(name) is None:
            return _registered(call, versions.pick(NOUN, name, version, registered))
        return self._published(call, name, version)

    def next_version(self, call: Call, name: str, existing: Sequence[AssetVersion]) -> str:
        return arm.next_version(existing)

    def put(self, call: Call, name: str, version: str) -> tuple[AssetVersion, bool]:
        document = {
            **arm.described(call),
            **self._definition(call),
            "name": name,
            "version": version,
        }
        request = assets.read_document(document)
        registered = assets.list_in(self._environments.db, call.workspace.name, name, archived=None)
        existing = next((asset for asset in registered if asset.version == version), None)
        # Our documents have several forms for the same content, and ARM has one.
        if existing is not None and properties_of(call, existing.definition) == properties_of(
            call, request.definition
        ):
            request = replace(request, definition=existing.definition)
        created = assets.register(
            self._environments.db,
            self._clock,
            call.workspace.name,
            request,
            call.identity.user,
            lambda definition: self._environments.resolver.resolve(definition, call.workspace.name),
        )
        return _registered(call, created), existing is None

    def _definition(self, call: Call) -> dict[str, Any]:
        """The definition, with a snapshot of a build context that is in a datastore; other contexts
        stay.
        """
        definition = document_of(call)
        build = definition.get("build")
        if build is None:
            return definition
        match = _OF_SNAPSHOT.match(build["path"])
        if match is not None:
            snapshot = match["snapshot"]
        else:
            location = arm.short_uri(call, build["path"], self._of_blob)
            if not location.startswith("azureml://datastores/"):
                return definition
            snapshot = codes.snapshot_at(self._storage, call.workspace.name, location)
        return {**definition, "build": {**build, "path": f"{_SNAPSHOT}{snapshot}"}}

    def archive(self, call: Call, name: str, version: str, archived: bool) -> None:
        assets.archive(
            self._environments.db,
            call.workspace.name,
            name,
            version,
            archived,
            user=call.identity.user,
        )

    def delete(self, call: Call, name: str, version: str) -> None:
        self.get(call, name, version)
        raise arm.not_deletable("an environment")

    def _published(self, call: Call, name: str, version: str) -> AssetVersion:
        latest = version == versions.LATEST
        reference = f"{name}@{version}" if latest else f"{name}:{version}"
        try:
            published = catalogue.find(
                reference,
                self._environments.resolver.platform,
                assets.owned(self._environments.db, call.workspace.name),
                (),
            )
        except InvalidInput as error:
            raise NotFound(f"environment `{name}` does not exist: {error}") from error
        if published.curated is None:  # the workspace's release of a curated one
            released, _, exact = published.ref.rpartition(":")
            asset = assets.get(self._environments.db, call.workspace.name, released, exact)
            return _registered(call, asset)
        return _curated(
            published.curated,
            name,
            published.curated.version if latest else version,
            published.notice,
        )


def document_of(call: Call) -> dict[str, Any]:
    """The content of a PUT, in the keys of our documents, with the build context as it was sent.

    Raises:
        InvalidInput: a property of the wrong form.
    """
    document: dict[str, Any] = {}
    image, conda = arm.text_property(call, "image"), arm.text_property(call, "condaFile")
    if image:
        document["image"] = image
    if conda:
        document["conda_file"] = _parsed(conda)
    build = call.properties.get("build")
    if build is not None:
        document["build"] = _build(build)
    if arm.text_property(call, "osType").lower() not in ("", "linux"):
        document["os_type"] = arm.text_property(call, "osType").lower()
    routes = call.properties.get("inferenceConfig") or {}
    if not isinstance(routes, Mapping):
        raise InvalidInput(
            "`inferenceConfig` is not a mapping of routes", at=["properties", "inferenceConfig"]
        )
    inference = {
        key: routes[azure_key] for key, azure_key in _ROUTES.items() if routes.get(azure_key)
    }
    return {**document, "inference_config": inference} if inference else document


def properties_of(call: Call, definition: Mapping[str, Any]) -> dict[str, Any]:
    """The properties that a definition stands for."""
    properties: dict[str, Any] = {"osType": "Linux", "image": definition.get("image")}
    conda = definition.get("conda_file")
    if conda is None and "pip_requirements" in definition:
        # Azure has no such key; a conda file has the same effect.
        requirements = definition["pip_requirements"]
        lines = requirements.splitlines() if isinstance(requirements, str) else list(requirements)
        python = [f"python={definition['python']}"] if "python" in definition else []
        conda = {"dependencies": [*python, "pip", {"pip": lines}]}
    if conda is not None:
        properties["condaFile"] = yaml.safe_dump(conda, sort_keys=False, allow_unicode=True)
    build = definition.get("build")
    if build:
        properties["build"] = {
            "contextUri": _context(call, str(build.get("path"))),
            "dockerfilePath": build.get("dockerfile_path", "Dockerfile"),
        }
    inference = definition.get("inference_config")
    if inference:
        properties["inferenceConfig"] = {
            azure_key: inference[key] for key, azure_key in _ROUTES.items() if key in inference
        }
    return properties


def _registered(call: Call, asset: EnvironmentAsset) -> AssetVersion:
    return arm.version_of(
        asset,
        type_properties={**properties_of(call, asset.definition), "environmentType": "UserCreated"},
        anonymous=asset.name == assets.ANONYMOUS,
    )


def _curated(curated: Curated, name: str, version: str, notice: str = "") -> AssetVersion:
    # A job or an environment with this image uses the same environment again.
    image = f"{_CURATED_IMAGE}/{curated.name}:{curated.version}"
    return AssetVersion(
        name=name,
        version=version,
        created_at=_ALWAYS,
        owner=_NOBODY,
        description=notice or curated.description,
        tags={},
        properties={"torchyard.environment": f"{curated.name}:{curated.version}"},
        archived=False,
        type_properties={"osType": "Linux", "image": image, "environmentType": "Curated"},
    )


def _parsed(text: str) -> Any:
    return yaml_documents.load(text, "`condaFile`", ["properties", "condaFile"])


def _context(call: Call, path: str) -> str:
    """A snapshot's URL is that of the code with its id as the name. azure-ai-ml would look for any
    other text as a local folder.
    """
    if not path.startswith(_SNAPSHOT):
        return path
    return call.base + call.id("codes", path.removeprefix(_SNAPSHOT), "versions", "1")


def _build(build: Any) -> dict[str, Any]:
    if not isinstance(build, Mapping) or not isinstance(build.get("contextUri"), str):
        raise InvalidInput(
            "`build` names no `contextUri`", at=["properties", "build", "contextUri"]
        )
    document = {"path": build["contextUri"]}
    dockerfile = build.get("dockerfilePath")
    return {**document, "dockerfile_path": str(dockerfile)} if dockerfile else document
