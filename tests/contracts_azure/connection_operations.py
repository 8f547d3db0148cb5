"""Connections to other services, and their secrets."""

from __future__ import annotations

from typing import Any

from operations import ERROR, REFUSED, World, operation

SECRET = "very-secret-indeed"


def _connection(world: World, name: str, type: str, credentials: Any) -> Any:
    from azure.ai.ml.entities import WorkspaceConnection

    return WorkspaceConnection(
        name=world.name(name),
        type=type,
        target=f"https://{name}.example.org",
        credentials=credentials,
    )


@operation(
    "Connections", "`connections.create_or_update`: git, container_registry, python_feed, s3"
)
def create(world: World) -> Any:
    from azure.ai.ml.entities import (
        AccessKeyConfiguration,
        PatTokenConfiguration,
        SasTokenConfiguration,
        UsernamePasswordConfiguration,
    )

    ways = {
        ("git", "git"): PatTokenConfiguration(pat=SECRET),
        ("registry", "container_registry"): UsernamePasswordConfiguration(
            username="me", password=SECRET
        ),
        ("feed", "python_feed"): SasTokenConfiguration(sas_token=SECRET),
        ("bucket", "s3"): AccessKeyConfiguration(access_key_id="me", secret_access_key=SECRET),
    }
    for (name, type), credentials in ways.items():
        made = world.ml.connections.create_or_update(_connection(world, name, type, credentials))
        assert made.name == world.name(name) and made.type == type, made
        assert made.target == f"https://{name}.example.org", made.target
        assert SECRET not in str(vars(made.credentials)), "the answer has the secret"
    return [type for _, type in ways]


@operation("Connections", "`connections.get`: without its secret")
def get(world: World) -> Any:
    made = world.ml.connections.get(world.name("git"))
    assert type(made.credentials).__name__ == "PatTokenConfiguration", made.credentials
    assert made.credentials.pat is None, made.credentials
    return made.target


@operation("Connections", "`connections.list`")
def list_all(world: World) -> Any:
    names = {made.name for made in world.ml.connections.list()}
    assert {world.name(name) for name in ("git", "registry", "feed", "bucket")} <= names, names
    of_type = {made.name for made in world.ml.connections.list(connection_type="python_feed")}
    assert world.name("feed") in of_type and world.name("git") not in of_type, of_type
    return sorted(of_type)


@operation("Connections", "`connections.list_secrets` of the REST client")
def secrets(world: World) -> Any:
    connections = world.ml.connections
    answer = connections._operation.list_secrets(
        connection_name=world.name("git"),
        resource_group_name=world.ml.resource_group_name,
        workspace_name=world.ml.workspace_name,
    )
    assert answer.properties.credentials.pat == SECRET, answer
    return answer.name


@operation("Connections", "`connections.create_or_update` of what was read keeps its secret")
def change(world: World) -> Any:
    made = world.ml.connections.get(world.name("git"))
    made.tags["team"] = "vision"
    world.ml.connections.create_or_update(made)
    secrets(world)
    return made.name


@operation("Connections", "`connections.delete`")
def delete(world: World) -> Any:
    for name in ("git", "registry", "feed", "bucket"):
        world.ml.connections.delete(world.name(name))
    names = {made.name for made in world.ml.connections.list()}
    assert world.name("git") not in names, names
    return None


@operation("Connections", "`connections.get` of one that is not there", ERROR, "does not exist")
def absent(world: World) -> Any:
    return world.ml.connections.get(world.name("git")).name


@operation("Connections", "`data.import_data` by a connection", REFUSED, "imports of data")
def import_data(world: World) -> Any:
    from azure.ai.ml.data_transfer import Database
    from azure.ai.ml.entities import DataImport

    made = DataImport(
        name=world.name("imported"),
        source=Database(connection=f"azureml:{world.name('git')}", query="select 1"),
        path="azureml://datastores/workspaceblobstore/paths/imported/${{name}}",
    )
    return world.ml.data.import_data(data_import=made).name
