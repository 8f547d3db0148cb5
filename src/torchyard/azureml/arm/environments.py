"""Environments as ARM tells them: a workspace's own, curated ones, and those that Azure published.

Owns: an environment's properties, and the document that they stand for.
Leaves: what a definition means to environments/, versions and lists to assets.py.
Always: what takes the place of a published environment has the name that was asked for, and says
in its description what it is.
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
from torchyard.azureml.arm.assets import OfBlob, Version
from torchyard.azureml.common.calls import Call
from torchyard.base.clock import Clock
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.data import codes
from torchyard.data.codes import Places
from torchyard.environments import assets
from torchyard.environments.names import catalogue, curated_environments
from torchyard.environments.names.curated_environments import Curated
from torchyard.environments.services import Environments
from torchyard.environments.types import EnvironmentAsset

WORD = "environment"
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


class Noun:
    type, word = "environments", WORD

    def __init__(
        self, environments: Environments, clock: Clock, places: Places, of_blob: OfBlob
    ) -> None:
        self._environments = environments
        self._clock = clock
        self._places = places
        self._of_blob = of_blob

    def every(self, call: Call) -> Sequence[Version]:
        own = [
            _own(call, one)
            for one in assets.list_versions(self._environments.db, call.workspace.name)
        ]
        return own + [_curated(one, one.name, one.version) for one in curated_environments.every()]

    def of(self, call: Call, name: str) -> Sequence[Version]:
        found = assets.list_in(self._environments.db, call.workspace.name, name, archived=None)
        return [_own(call, one) for one in found] or [self._published(call, name, versions.LATEST)]

    def one(self, call: Call, name: str, version: str) -> Version:
        own = assets.list_in(self._environments.db, call.workspace.name, name, archived=None)
        if own:
            return _own(call, versions.pick(WORD, name, version, own))
        return self._published(call, name, version)

    def next(self, call: Call, name: str, known: Sequence[Version]) -> str:
        return arm.next_of(known)

    def put(self, call: Call, name: str, version: str) -> tuple[Version, bool]:
        document = {
            **arm.words(call),
            **self._definition(call),
            "name": name,
            "version": version,
        }
        asked = assets.read_document(document)
        known = assets.list_in(self._environments.db, call.workspace.name, name, archived=None)
        there = next((one for one in known if one.version == version), None)
        # What yard's documents can say in several ways, ARM has one for.
        if there is not None and said(call, there.definition) == said(call, asked.definition):
            asked = replace(asked, definition=there.definition)
        made = assets.register(
            self._environments.db,
            self._clock,
            call.workspace.name,
            asked,
            call.identity.user,
            lambda definition: self._environments.resolver.resolve(definition, call.workspace.name),
        )
        return _own(call, made), there is None

    def _definition(self, call: Call) -> dict[str, Any]:
        """With the files of a build context as a snapshot; what lies elsewhere is left as it is."""
        found = document_of(call)
        build = found.get("build")
        if build is None:
            return found
        own = _OF_SNAPSHOT.match(build["path"])
        if own is not None:
            snapshot = own["snapshot"]
        else:
            place = arm.short_uri(call, build["path"], self._of_blob)
            if not place.startswith("azureml://datastores/"):
                return found
            snapshot = codes.snapshot_at(self._places, call.workspace.name, place)
        return {**found, "build": {**build, "path": f"{_SNAPSHOT}{snapshot}"}}

    def archive(self, call: Call, name: str, version: str, archived: bool) -> None:
        assets.archive(self._environments.db, call.workspace.name, name, version, archived)

    def delete(self, call: Call, name: str, version: str) -> None:
        self.one(call, name, version)
        raise arm.kept("an environment")

    def _published(self, call: Call, name: str, version: str) -> Version:
        latest = version == versions.LATEST
        reference = f"{name}@{version}" if latest else f"{name}:{version}"
        try:
            found = catalogue.find(
                reference,
                self._environments.resolver.platform,
                assets.owned(self._environments.db, call.workspace.name),
                (),
            )
        except InvalidInput as error:
            raise NotFound(f"environment `{name}` does not exist: {error}") from error
        assert found.curated is not None
        return _curated(
            found.curated, name, found.curated.version if latest else version, found.notice
        )


def document_of(call: Call) -> dict[str, Any]:
    """What of a PUT decides the content, in the keys of our documents; a build context is as it
    was sent.

    Raises:
        InvalidInput: a property of the wrong form.
    """
    found: dict[str, Any] = {}
    image, conda = arm.text_of(call, "image"), arm.text_of(call, "condaFile")
    if image:
        found["image"] = image
    if conda:
        found["conda_file"] = _parsed(conda)
    build = call.properties.get("build")
    if build is not None:
        found["build"] = _build(build)
    if arm.text_of(call, "osType").lower() not in ("", "linux"):
        found["os_type"] = arm.text_of(call, "osType").lower()
    routes = call.properties.get("inferenceConfig") or {}
    if not isinstance(routes, Mapping):
        raise InvalidInput(
            "`inferenceConfig` is no mapping of routes", at=["properties", "inferenceConfig"]
        )
    inference = {ours: routes[theirs] for ours, theirs in _ROUTES.items() if routes.get(theirs)}
    return {**found, "inference_config": inference} if inference else found


def said(call: Call, definition: Mapping[str, Any]) -> dict[str, Any]:
    """The properties that a definition stands for."""
    found: dict[str, Any] = {"osType": "Linux", "image": definition.get("image")}
    conda = definition.get("conda_file")
    if conda is None and "pip_requirements" in definition:
        # Azure has no such key: a conda file says the same.
        asked = definition["pip_requirements"]
        lines = asked.splitlines() if isinstance(asked, str) else list(asked)
        conda = {"dependencies": ["pip", {"pip": lines}]}
    if conda is not None:
        found["condaFile"] = yaml.safe_dump(conda, sort_keys=False, allow_unicode=True)
    build = definition.get("build")
    if build:
        found["build"] = {
            "contextUri": _context(call, str(build.get("path"))),
            "dockerfilePath": build.get("dockerfile_path", "Dockerfile"),
        }
    inference = definition.get("inference_config")
    if inference:
        found["inferenceConfig"] = {
            theirs: inference[ours] for ours, theirs in _ROUTES.items() if ours in inference
        }
    return found


def _own(call: Call, asset: EnvironmentAsset) -> Version:
    return arm.version_of(
        asset,
        said={**said(call, asset.definition), "environmentType": "UserCreated"},
        anonymous=asset.name == assets.ANONYMOUS,
    )


def _curated(known: Curated, name: str, version: str, notice: str = "") -> Version:
    # A job or an environment that names this image gets the same again.
    image = f"{_CURATED_IMAGE}/{known.name}:{known.version}"
    return Version(
        name=name,
        version=version,
        created_at=_ALWAYS,
        owner=_NOBODY,
        description=notice or known.description,
        tags={},
        properties={"torchyard.environment": f"{known.name}:{known.version}"},
        archived=False,
        said={"osType": "Linux", "image": image, "environmentType": "Curated"},
    )


def _parsed(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        told = " ".join(str(error).split())
        raise InvalidInput(
            f"`condaFile` is no YAML: {told:.300}", at=["properties", "condaFile"]
        ) from error


def _context(call: Call, path: str) -> str:
    """A snapshot is code whose name is its own."""
    if not path.startswith(_SNAPSHOT):
        return path
    return call.id("codes", path.removeprefix(_SNAPSHOT), "versions", "1")


def _build(build: Any) -> dict[str, Any]:
    if not isinstance(build, Mapping) or not isinstance(build.get("contextUri"), str):
        raise InvalidInput(
            "`build` names no `contextUri`", at=["properties", "build", "contextUri"]
        )
    found = {"path": build["contextUri"]}
    dockerfile = build.get("dockerfilePath")
    return {**found, "dockerfile_path": str(dockerfile)} if dockerfile else found
