"""Compute instances as ARM resources.

Owns: an instance's properties in Azure's JSON, and the document that they stand for.
Leaves: instances to instances/, clusters to computes.py.
Always: every documented key exists, for older clients read keys without checking.

Source: https://learn.microsoft.com/rest/api/azureml/compute/get; the requests of azure-ai-ml 1.35
and azureml-core 1.61.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.azureml.arm.job_documents import snake
from torchyard.azureml.arm.resources import Resource, timestamp
from torchyard.azureml.common.calls import Call, object_at, objects_at
from torchyard.base.db import Database
from torchyard.instances import actions, documents
from torchyard.instances.types import TYPE, Instance, InstanceSpec, Schedule

_THIS_MACHINE = "local"
_OPERATIONS = {"Running": "Start", "Starting": "Start", "CreateFailed": "Create"}


def is_instance(call: Call) -> bool:
    return str(call.properties.get("computeType") or "").lower() == TYPE


def document_of(call: Call) -> dict[str, Any]:
    """The YAML document that a PUT stands for.

    Raises:
        InvalidSpec: a value of the wrong form.
    """
    inner = object_at(call.properties, "properties")
    document: dict[str, Any] = {"type": TYPE}
    size = str(inner.get("vmSize") or "")
    if size and size.lower() != _THIS_MACHINE:
        document["size"] = size
    if call.properties.get("description"):
        document["description"] = call.properties["description"]
    tags = object_at(call.document, "tags")
    settings = {key: text for key, text in tags.items() if key.startswith("torchyard.")}
    document["tags"] = {key: text for key, text in tags.items() if key not in settings}
    if settings:
        document["torchyard"] = {key.removeprefix("torchyard."): settings[key] for key in settings}
    if inner.get("idleTimeBeforeShutdown"):
        document["idle_time_before_shutdown"] = str(inner["idleTimeBeforeShutdown"])
    schedules = object_at(inner, "schedules")
    if schedules.get("computeStartStop"):
        rows = objects_at(schedules, "computeStartStop")
        document["schedules"] = {"compute_start_stop": [_schedule(row) for row in rows]}
    return {**document, **_refused(inner)}


def to_resource(db: Database, call: Call, instance: Instance) -> Resource:
    """An instance as an ARM resource."""
    spec = documents.read_stored(instance.document)
    state, message = actions.state_of(db, instance)
    created = timestamp(instance.created_at)
    errors = []
    if state == "CreateFailed":
        errors = [{"error": {"code": "CreateFailed", "message": message}}]
    properties: dict[str, Any] = {
        "computeType": "ComputeInstance",
        "computeLocation": call.workspace.location,
        "description": spec.description,
        "resourceId": None,
        "createdOn": created,
        "modifiedOn": created,
        "provisioningState": "Failed" if errors else "Succeeded",
        "provisioningErrors": errors,
        "isAttachedCompute": False,
        "disableLocalAuth": True,
        "properties": _inner(instance, spec, state, errors),
    }
    extra = {
        "location": call.workspace.location,
        "tags": dict(spec.tags or {}),
        "identity": None,
        "sku": None,
    }
    return Resource(
        ("computes", instance.name), properties, instance.created_at, instance.owner, extra=extra
    )


def _inner(
    instance: Instance, spec: InstanceSpec, state: str, errors: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "vmSize": spec.size or _THIS_MACHINE,
        "subnet": None,
        "applicationSharingPolicy": "Personal",
        "sshSettings": {
            "sshPublicAccess": "Disabled",
            "adminPublicKey": None,
            "adminUserName": "azureuser",
            "sshPort": None,
        },
        "customServices": None,
        "osImageMetadata": None,
        "connectivityEndpoints": {"publicIpAddress": None, "privateIpAddress": None},
        "applications": [],
        "createdBy": {"userName": instance.owner, "userId": instance.owner, "userOrgId": None},
        "errors": errors,
        "state": state,
        "computeInstanceAuthorizationType": "personal",
        "personalComputeInstanceSettings": None,
        "setupScripts": None,
        "lastOperation": {
            "operationName": _OPERATIONS.get(state, "Stop"),
            "operationTime": timestamp(instance.scheduled_at),
            "operationStatus": "InProgress" if state in ("Starting", "Stopping") else "Succeeded",
            "operationTrigger": "User",
        },
        "schedules": {
            "computeStartStop": [_azure_schedule(schedule) for schedule in spec.schedules]
        },
        "idleTimeBeforeShutdown": f"PT{spec.idle_minutes}M" if spec.idle_minutes else None,
        "enableNodePublicIp": True,
        "containers": [],
        "dataDisks": [],
        "dataMounts": [],
        "versions": {"runtime": None},
    }


def _schedule(row: Mapping[str, Any]) -> dict[str, Any]:
    nested = object_at(row, "schedule")
    row = {**row, **{key: value for key, value in nested.items() if key != "id"}}
    kind = str(row.get("triggerType") or "")
    trigger = object_at(row, "cron" if kind.lower() == "cron" else "recurrence")
    # Clients say the type in both places.
    written = {snake(key): value for key, value in trigger.items() if key != "triggerType"}
    pattern = {snake(key): value for key, value in object_at(written, "schedule").items() if value}
    return {
        "action": str(row.get("action") or ""),
        "state": str(row.get("status") or "enabled"),
        "trigger": {
            **{key: value for key, value in written.items() if value is not None},
            "type": kind.lower(),
            **({"schedule": pattern} if pattern else {}),
        },
    }


def _azure_schedule(schedule: Schedule) -> dict[str, Any]:
    trigger = schedule.trigger
    times = {
        "startTime": trigger.start.isoformat() if trigger.start else None,
        "timeZone": trigger.zone,
    }
    row: dict[str, Any] = {
        "id": None,
        "provisioningStatus": "Completed",
        "status": "Enabled" if schedule.enabled else "Disabled",
        "action": schedule.action.capitalize(),
        "triggerType": "Cron" if trigger.cron else "Recurrence",
        "recurrence": None,
        "cron": None,
        "schedule": None,
    }
    if trigger.cron:
        row["cron"] = {**times, "expression": trigger.cron}
        return row
    days = [documents.DAYS[day].capitalize() for day in trigger.week_days]
    row["recurrence"] = {
        **times,
        "frequency": trigger.frequency.capitalize(),
        "interval": trigger.interval,
        "schedule": {
            "hours": list(trigger.hours),
            "minutes": list(trigger.minutes),
            "weekDays": days or None,
            "monthDays": list(trigger.month_days) or None,
        },
    }
    return row


def _refused(inner: Mapping[str, Any]) -> dict[str, Any]:
    """What the instance's document refuses, in its terms, except what clients always send."""
    refused: dict[str, Any] = {}
    for key, name in (
        ("personalComputeInstanceSettings", "create_on_behalf_of"),
        ("setupScripts", "setup_scripts"),
        ("customServices", "custom_applications"),
        ("subnet", "network_settings"),
    ):
        if inner.get(key):
            refused[name] = inner[key]
    ssh = object_at(inner, "sshSettings")
    if str(ssh.get("sshPublicAccess") or "").lower() == "enabled":
        refused["ssh_public_access_enabled"] = True
    return refused
