"""The templates by which Azure ML's clients create workspaces, and where those may be.

Owns: reading a workspace's document out of SDK v2's template and of SDK v1's; names of locations.
Leaves: the routes and creating to workspace_routes.py.
Always: of a template only the workspace is read; its storage, vault and insights are not created.
"""

from __future__ import annotations

from typing import Any

from torchyard.azureml.common.paths import PROVIDER
from torchyard.base.errors import InvalidInput

_TYPE = f"{PROVIDER}/workspaces"

LOCATIONS = (
    *("Australia Central", "Australia East", "Australia Southeast", "Austria East"),
    *("Belgium Central", "Brazil South", "Canada Central", "Canada East", "Central India"),
    *("Central US", "Chile Central", "East Asia", "East US", "East US 2", "France Central"),
    *("France South", "Germany North", "Germany West Central", "Indonesia Central"),
    *("Israel Central", "Italy North", "Japan East", "Japan West", "Jio India West"),
    *("Korea Central", "Korea South", "Malaysia West", "Mexico Central", "New Zealand North"),
    *("North Central US", "North Europe", "Norway East", "Norway West", "Poland Central"),
    *("Qatar Central", "South Africa North", "South Africa West", "South Central US"),
    *("South India", "Southeast Asia", "Spain Central", "Sweden Central", "Sweden South"),
    *("Switzerland North", "Switzerland West", "UAE Central", "UAE North", "UK South"),
    *("UK West", "West Central US", "West Europe", "West India", "West US", "West US 2"),
    "West US 3",
)
"""Azure's public regions. SDK v1 refuses to create a workspace in a location that is not listed."""


def provider(locations: list[str]) -> dict[str, Any]:
    """The resource provider, of which SDK v1 reads where workspaces can be."""
    return {
        "namespace": PROVIDER,
        "registrationState": "Registered",
        "resourceTypes": [
            {
                "resourceType": "workspaces",
                "locations": sorted({*LOCATIONS, *filter(None, locations)}),
                "apiVersions": [],
            }
        ],
    }


def requested_workspace(document: Any) -> dict[str, Any]:
    """The workspace that a template creates; its name is the key `workspaceName`.

    Raises:
        InvalidInput: the template does not create a workspace.
    """
    try:
        properties = document["properties"]
        resources = _workspaces_of(properties.get("template"))
        parameters = {
            name: parameter.get("value")
            for name, parameter in (properties.get("parameters") or {}).items()
        }
    except (TypeError, KeyError, AttributeError):
        resources, parameters = [], {}
    # SDK v1 writes values into its template, SDK v2 passes them as parameters.
    if len(resources) == 1 and not parameters:
        return {**resources[0], "workspaceName": resources[0]["name"]}
    if not isinstance(parameters.get("workspaceName"), str):
        raise InvalidInput(
            "torchyard accepts only the SDK's own template, which creates a workspace",
            "use `ml_client.workspaces.begin_create`, or `yard workspace create`",
        )
    return parameters


def _workspaces_of(template: Any) -> list[dict[str, Any]]:
    resources = template.get("resources") if isinstance(template, dict) else None
    return [
        resource
        for resource in (resources if isinstance(resources, list) else [])
        if isinstance(resource, dict)
        and str(resource.get("type")).lower() == _TYPE.lower()
        and isinstance(resource.get("name"), str)
    ]
