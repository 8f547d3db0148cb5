"""Provision new workspaces, and delete empty ones.

Owns: what every workspace has from the start, and what counts as being in one.
Leaves: the workspace's own row and tokens to workspaces/.
Always: a workspace that holds anything stays as it is.
"""

from __future__ import annotations

import shutil

from torchyard.assets import deleted_versions
from torchyard.base.errors import Conflict
from torchyard.base.settings import DEFAULT_WORKSPACE
from torchyard.components import actions as components
from torchyard.compute import actions as computes
from torchyard.compute.types import LOCAL
from torchyard.connections import actions as connections
from torchyard.data import assets, codes, datastores, saved_datasets, url_maps
from torchyard.data.datastores import BUILT_IN
from torchyard.environments import assets as environments
from torchyard.jobs.records import experiment_store, store
from torchyard.jobs.services import FileServices
from torchyard.models import logged
from torchyard.models import registry as models
from torchyard.shared.plurals import plural
from torchyard.workspaces import actions as workspaces


def provision(services: FileServices, workspace: str) -> None:
    """Create the compute `local`; the default datastores need nothing."""
    # An upload may have outlived the last workspace of that name.
    services.blobs.forget(workspace)
    computes.ensure_local(services.db, services.clock, workspace)


def delete_empty(services: FileServices, workspace: str) -> None:
    """Delete a workspace, its built-in compute and its folders.

    Raises:
        Conflict: it is not empty, or it is the built-in one.
    """
    if workspace == DEFAULT_WORKSPACE:
        raise Conflict(
            f"workspace `{workspace}` is built in and can't be deleted",
            "delete its jobs with `yard job delete`",
        )
    contents = _describe_contents(services, workspace)
    with services.db.write() as connection:
        jobs = len(store.job_names(connection, workspace, limit=None))
        contents = ([f"{jobs} {plural('job', jobs)}"] if jobs else []) + contents
        if contents:
            raise Conflict(
                f"workspace `{workspace}` is not empty: it has {', '.join(contents)}",
                f"delete that first, jobs by `yard job delete -n NAME -w {workspace}`",
                code="workspace_not_empty",
            )
        computes.forget_all(connection, workspace)
        codes.delete_all(connection, workspace)
        saved_datasets.delete_all(connection, workspace)
        components.delete_all(connection, workspace)
        environments.delete_all(connection, workspace)
        deleted_versions.delete_all(connection, workspace)
        experiment_store.drop_all(connection, workspace)
        workspaces.forget(connection, workspace)
    for name in BUILT_IN:
        shutil.rmtree(services.datastores.root(workspace, name), ignore_errors=True)
    services.blobs.forget(workspace)


def _describe_contents(services: FileServices, workspace: str) -> list[str]:
    """In words, what is in it besides jobs and what every workspace has."""
    contents = {
        "model": [model.name for model in models.list_in(services.db, workspace)],
        "logged model": logged.names_in(services.db, workspace),
        "data": [asset.name for asset in assets.list_in(services.db, workspace, archived=None)],
        "datastore": [
            datastore.name
            for datastore in datastores.list_in(services.db, services.datastores, workspace)
            if datastore.name not in BUILT_IN
        ],
        "connection": connections.names_in(services.db, workspace),
        "compute": [
            compute.name
            for compute, _ in computes.list_in(services.db, workspace)
            if compute.name != LOCAL
        ],
        "environment": [
            environment.name
            for environment in environments.list_in(services.db, workspace, archived=None)
        ],
        "component": [
            component.name
            for component in components.list_in(services.db, workspace, archived=None)
        ],
        "the map of": [url_map.prefix for url_map in url_maps.list_in(services.db, workspace)],
    }
    return [f"{noun} `{name}`" for noun, names in contents.items() for name in names]
