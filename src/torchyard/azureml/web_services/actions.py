"""Deploying, changing and finding web services.

Owns: the order in which an endpoint, its deployment and its traffic change; which services a list
shows.
Leaves: endpoints and deployments to endpoints/actions/, instances to the keeper.
Always: a request that is refused leaves a service as it was, and no new one; an endpoint that SDK
v1 did not make is neither shown nor changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from torchyard.azureml.common.calls import Call, object_at
from torchyard.azureml.common.errors import NotServed
from torchyard.azureml.sdk_v1 import assets
from torchyard.azureml.web_services import documents, images, settings
from torchyard.azureml.web_services.documents import WebService
from torchyard.base import fields
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput, NotFound, TorchyardError
from torchyard.endpoints.actions import credentials, deployments, endpoints
from torchyard.endpoints.records.types import Deployment, Endpoint, EndpointKeys
from torchyard.jobs.services import RecordServices, Services


@dataclass(frozen=True)
class Deployed:
    """A web service as it stands; `deployment` is None where it was never completed."""

    service: WebService
    endpoint: Endpoint
    deployment: Deployment | None


def deploy(services: Services, call: Call) -> Deployment:
    """Create the web service that the request describes, or replace it if that says `overwrite`.

    Raises:
        InvalidInput, InvalidSpec: what is wrong.
        NotServed: what only a cloud has.
        Conflict: the name is taken.
    """
    body, workspace = call.document, call.workspace.name
    service = read(body)
    _check_name(services.db, workspace, service.name, is_overwrite=body.get("overwrite") is True)
    image = images.read(services, call, _image_request(body))
    service = replace(service, models=image.models)
    return _put(services, call, service, documents.image_keys(image))


def change(services: Services, call: Call, name: str) -> Deployed:
    """Apply a JSON patch to a web service; a new revision only where its deployment changes.

    Raises:
        InvalidInput: a change that a web service can't have.
        NotServed: what only a cloud has.
        NotFound: no such service.
    """
    deployed = find(services, call.workspace.name, name)
    if deployed.deployment is None:
        raise _incomplete(deployed.service.name)
    service, request = deployed.service, None
    for change in _operations(call.body):
        if change["path"].strip("/") == settings.IMAGE:
            request = _image_request({settings.IMAGE: change["value"]})
        else:
            service = _patched(service, change)
    image = documents.kept_image_keys(deployed.deployment)
    before = documents.deployment_file(deployed.service, image)
    if request is not None:
        read_image = images.read(services, call, request)
        image = documents.image_keys(read_image)
        service = replace(service, models=read_image.models)
    if documents.deployment_file(service, image) != before:
        _put(services, call, service, image)
    else:
        file = documents.endpoint_file(service)
        changes = {key: value for key, value in file.items() if key != settings.NAME}
        endpoints.update(services, call.workspace.name, service.name, changes, call.identity)
    return find(services, call.workspace.name, name)


def check_change(deployed: Deployed, patch: Any) -> None:
    """
    Raises:
        InvalidInput, NotServed: as `change`, as far as it needs no file.
    """
    service = deployed.service
    for change in _operations(patch):
        if change["path"].strip("/") != settings.IMAGE:
            service = _patched(service, change)


def find(services: RecordServices, workspace: str, name: str) -> Deployed:
    """
    Raises:
        NotFound: no web service has this name.
    """
    endpoint = endpoints.get(services.db, workspace, name)
    if not documents.is_web_service(endpoint):
        raise NotFound(
            f"endpoint `{endpoint.name}` was not deployed with SDK v1",
            f"see `yard online-endpoint show -n {endpoint.name}`",
        )
    return _deployed(services, endpoint)


def list_in(services: RecordServices, workspace: str, query: Mapping[str, str]) -> list[Deployed]:
    """
    Args:
        query: the parameters of `Webservice.list`, keys in lower case.
    """
    there = []
    for endpoint in endpoints.list_in(services.db, workspace):
        # One that is deleted meanwhile is not listed.
        with suppress(NotFound):
            if documents.is_web_service(endpoint):
                there.append(_deployed(services, endpoint))
    return [each for each in there if _fits(each.service, query)]


def read(body: Mapping[str, Any]) -> WebService:
    """What a request to create a service says, without its model and code.

    Raises:
        InvalidInput: a value that can't be read.
        NotServed: what only a cloud has.
    """
    raw = settings.select_settings(body)
    _refuse_chosen_keys(body)
    properties = fields.texts(body, "properties")
    if documents.MARK in properties:
        raise InvalidInput(f"the property `{documents.MARK}` is torchyard's", at=["properties"])
    return WebService(
        name=fields.text(body, settings.NAME),
        raw=raw,
        settings=settings.read(raw),
        description=fields.text(body, "description"),
        tags=fields.texts(body, "kvTags"),
        properties=properties,
    )


def refuse_taken(db: Database, workspace: str, name: str) -> None:
    """
    Raises:
        Conflict: there is an endpoint of this name.
    """
    _check_name(db, workspace, name, is_overwrite=False)


def regenerate(services: RecordServices, call: Call, name: str) -> EndpointKeys:
    """Replace one key.

    Raises:
        NotServed: by a key that the client chose.
        InvalidInput: no such type of key.
        Conflict: the service has tokens.
    """
    kind, value = fields.text(call.document, "keyType"), call.document.get("keyValue")
    if value is not None:
        raise _chosen_key("keyValue", "leave `set_key` out")
    return credentials.regenerate(services, call.workspace.name, name, kind, call.identity)


def _put(
    services: Services, call: Call, service: WebService, image: Mapping[str, Any]
) -> Deployment:
    workspace, identity = call.workspace.name, call.identity
    endpoint_file = documents.endpoint_file(service)
    file = documents.deployment_file(service, image)
    existing = endpoints.named(services.db, workspace, service.name)
    if existing is None:
        endpoints.create(services, workspace, endpoint_file, identity)
        try:
            accepted = deployments.create(services, workspace, service.name, file, identity)
        except BaseException:
            endpoints.delete(services, workspace, service.name, identity)
            raise
        endpoint_file = {}
    else:
        accepted = deployments.create(services, workspace, service.name, file, identity)
    name = accepted.deployment.name
    endpoint_file.pop(settings.NAME, None)
    changes = {**endpoint_file, "traffic": {name: 100}}
    endpoints.update(services, workspace, service.name, changes, identity)
    return accepted.deployment


def _refuse_chosen_keys(body: Mapping[str, Any]) -> None:
    if any(object_at(body, "keys").values()):
        raise _chosen_key("keys", "leave `primary_key` and `secondary_key` out")


def _chosen_key(key: str, hint: str) -> NotServed:
    return NotServed(
        "a web service with a key that its client chose is not served",
        f"{hint}: `service.get_keys()` returns those that were drawn",
        at=[key],
    )


def _image_request(body: Mapping[str, Any]) -> Mapping[str, Any]:
    request = object_at(body, settings.IMAGE)
    if not request:
        raise InvalidInput("the request has no `environmentImageRequest`", at=[settings.IMAGE])
    return request


def _operations(patch: Any) -> list[Mapping[str, Any]]:
    operations = patch if isinstance(patch, list) else [patch]
    for change in operations:
        if not isinstance(change, Mapping) or not isinstance(change.get("path"), str):
            raise InvalidInput("the request's body is not a JSON patch")
        if change.get("op") not in ("add", "replace", "remove"):
            raise InvalidInput("a JSON patch of a web service has `add`, `replace` and `remove`")
    return [{"value": None, **change} for change in operations]


def _patched(service: WebService, change: Mapping[str, Any]) -> WebService:
    key, _, rest = change["path"].strip("/").partition("/")
    value = None if change["op"] == "remove" else change["value"]
    if key == "description" and not rest:
        return replace(service, description=fields.text({key: value}, key))
    if key == "kvTags":
        return replace(service, tags=_patched_texts(service.tags, key, rest, value))
    if key == "properties":
        return replace(service, properties=_patched_texts(service.properties, key, rest, value))
    return service.with_settings(settings.patched(service.raw, change["path"], value))


def _patched_texts(before: Mapping[str, str], key: str, rest: str, value: Any) -> Mapping[str, str]:
    """A mapping with one of its texts replaced, or as a whole where `rest` is empty."""
    if not rest:
        return fields.texts({key: value}, key)
    name = rest.replace("~1", "/").replace("~0", "~")
    if name == documents.MARK:
        raise InvalidInput(f"the property `{name}` is torchyard's", at=[key])
    added = {} if value is None else fields.texts({key: {name: value}}, key)
    return {**{other: text for other, text in before.items() if other != name}, **added}


def _deployed(services: RecordServices, endpoint: Endpoint) -> Deployed:
    there = deployments.list_in(services.db, endpoint.workspace, endpoint.name)
    matching = [row for row in there if row.name == endpoint.name]
    return Deployed(documents.of_endpoint(endpoint), endpoint, matching[0] if matching else None)


def _fits(service: WebService, query: Mapping[str, str]) -> bool:
    """Whether a list shows a service; none is made of an image."""
    if any(query.get(key) for key in ("imageid", "imagename", "imagedigest")):
        return False
    if query.get("computetype", service.settings.compute_type).upper() != (
        service.settings.compute_type
    ):
        return False
    names = [id.rpartition(":")[0] for id in service.models]
    if query.get("modelid") and query["modelid"] not in service.models:
        return False
    if query.get("modelname") and query["modelname"] not in names:
        return False
    kinds = {"tags": service.tags, "properties": service.properties}
    return all(assets.has_all(texts, query.get(kind) or "") for kind, texts in kinds.items())


def _check_name(db: Database, workspace: str, name: str, is_overwrite: bool) -> None:
    existing = endpoints.named(db, workspace, name)
    if existing is None:
        return
    if not documents.is_web_service(existing):
        raise Conflict(
            f"endpoint `{existing.name}` exists, and was not deployed with SDK v1",
            "use another name, or `yard online-endpoint delete`",
        )
    if not is_overwrite:
        raise Conflict(
            f"web service `{existing.name}` exists already",
            "delete it with `service.delete()`, or deploy with `overwrite=True`",
        )


def _incomplete(name: str) -> TorchyardError:
    return Conflict(
        f"web service `{name}` was never deployed completely",
        "deploy it again with `overwrite=True`",
    )
