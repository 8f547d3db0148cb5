"""What SDK v2 sets of a workspace, and what it reads back: printed as JSON.

python workspace_keys.py NAME
"""

from __future__ import annotations

import json
import sys

from azure.ai.ml import MLClient, load_workspace
from azure.ai.ml.entities import Workspace
from azure.identity import DefaultAzureCredential

FILE = "workspace.yml"


def main(name: str) -> None:
    ml = MLClient.from_config(DefaultAzureCredential(), path=".azureml/config.json")
    workspace = Workspace(
        name=name,
        display_name="Pictures of the sea",
        description="for a paper",
        location="eastus",
        tags={"purpose": "demonstration"},
        hbi_workspace=True,
    )
    states = [ml.workspaces.begin_create(workspace).result(), ml.workspaces.get(name)]
    changed = ml.workspaces.get(name)
    changed.tags["team"] = "vision"
    changed.display_name = "Photos"
    states += [ml.workspaces.begin_update(changed).result(), ml.workspaces.get(name)]
    ml.workspaces.begin_create(load_workspace(FILE)).result()
    states.append(ml.workspaces.get(f"{name}-file"))
    refused = []
    vault = "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/v"
    for keys in ({"key_vault": vault}, {"public_network_access": "Disabled"}):
        try:
            ml.workspaces.begin_create(Workspace(name=f"{name}-x", location="x", **keys)).result()
        except Exception as error:
            refused.append(str(error))
    ml.workspaces.begin_delete(f"{name}-file", delete_dependent_resources=True).result()
    print(json.dumps({"states": [_state(state) for state in states], "refused": refused}))


def _state(workspace: Workspace) -> dict[str, object]:
    tags = {key: value for key, value in workspace.tags.items() if key != "createdByToolkit"}
    return {
        "display_name": workspace.display_name,
        "description": workspace.description,
        "hbi_workspace": workspace.hbi_workspace,
        "tags": tags,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
