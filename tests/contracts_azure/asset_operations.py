"""Environments and data."""

from __future__ import annotations

from typing import Any

from operations import ERROR, REFUSED, World, operation

IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04"
CONDA = "name: of-a-contract\ndependencies:\n  - python=3.11\n  - pip:\n      - tqdm=={version}\n"


def _environment(world: World, tqdm: str, **options: Any) -> Any:
    from azure.ai.ml.entities import Environment

    file = world.write("conda.yml", CONDA.format(version=tqdm))
    return Environment(name=world.name("training"), image=IMAGE, conda_file=str(file), **options)


@operation("Environments", "`environments.create_or_update`: image and conda file")
def environment(world: World) -> Any:
    made = world.ml.environments.create_or_update(
        _environment(world, "4.67.1", description="a contract", tags={"team": "vision"})
    )
    assert (made.name, made.version, made.image) == (world.name("training"), "1", IMAGE)
    assert made.tags == {"team": "vision"} and "tqdm==4.67.1" in str(made.conda_file)
    return made.id


@operation("Environments", "`environments.create_or_update` again: the same is the same version")
def environment_again(world: World) -> Any:
    same = world.ml.environments.create_or_update(_environment(world, "4.67.1"))
    other = world.ml.environments.create_or_update(_environment(world, "4.66.1"))
    # 1.12 asks for the next version whatever it holds; newer ones try the latest first.
    versions = (same.version, other.version)
    assert versions in (("1", "2"), ("2", "3")), versions
    world.seen["versions"] = [other.version, same.version] + ["1"] * (same.version != "1")
    return versions


@operation("Environments", "`environments.get` by version and by label")
def environment_get(world: World) -> Any:
    name = world.name("training")
    first = world.ml.environments.get(name, version="1")
    newest = world.ml.environments.get(name, label="latest")
    assert "tqdm==4.67.1" in str(first.conda_file) and "tqdm==4.66.1" in str(newest.conda_file)
    return [first.version, newest.version]


@operation("Environments", "`environments.list`, `archive`, `restore`")
def environment_list(world: World) -> Any:
    ops, name, versions = world.ml.environments, world.name("training"), world.seen["versions"]
    assert name in [entity.name for entity in ops.list()]
    ops.archive(name, version="1")
    assert [entity.version for entity in ops.list(name=name)] == versions[:-1]
    assert [entity.version for entity in ops.list(name=name, list_view_type="All")] == versions
    ops.archive(name)
    assert name not in [entity.name for entity in ops.list()]
    ops.restore(name)
    assert [entity.version for entity in ops.list(name=name)] == versions


@operation(
    "Environments",
    "`environments.get`: curated",
    how="torchyard's own of that name, or what takes its place, which the description tells",
)
def environment_curated(world: World) -> Any:
    name = "AzureML-sklearn-1.0-ubuntu20.04-py38-cpu"
    curated = world.ml.environments.get(name, version="33")
    assert (curated.name, curated.version) == (name, "33")
    assert "takes its place" in curated.description
    assert "sklearn-1.5" in [entity.name for entity in world.ml.environments.list()]
    return curated.description


@operation("Environments", "`environments.create_or_update`: a reserved name", ERROR, "reserved")
def environment_reserved(world: World) -> Any:
    from azure.ai.ml.entities import Environment

    return world.ml.environments.create_or_update(Environment(name="AzureML-own", image=IMAGE)).id


@operation("Environments", "`environments.get` of one that is not there", ERROR, "does not exist")
def environment_absent(world: World) -> Any:
    return world.ml.environments.get(world.name("trainin"), version="1").id


def _data(world: World, word: str, **options: Any) -> Any:
    from azure.ai.ml.entities import Data

    return world.ml.data.create_or_update(Data(name=world.name(word), **options))


@operation("Data", "`data.create_or_update`: local folder, file and MLTable")
def data(world: World) -> Any:
    world.write("table/a.csv", f"a,b\n1,{world.suffix}\n")
    world.write("table/MLTable", "paths:\n  - file: ./a.csv\n")
    folder = str(world.folder / "table")
    made = _data(world, "folder", path=folder, type="uri_folder", description="rows")
    assert (made.version, made.type, made.description) == ("1", "uri_folder", "rows")
    assert made.path.startswith("azureml://subscriptions/"), made.path
    world.seen["data"] = made.path
    file = _data(world, "file", path=f"{folder}/a.csv", type="uri_file", version="7")
    assert file.version == "7" and file.path.endswith("/a.csv")
    table = _data(world, "table", path=folder, type="mltable")
    assert table.type == "mltable"
    return [made.path, file.path, table.path]


@operation("Data", "`data.create_or_update`: datastore URIs and URLs")
def data_elsewhere(world: World) -> Any:
    long = world.seen["data"]
    short = "azureml://datastores/" + long.partition("/datastores/")[2]
    first = _data(world, "elsewhere", path=long, type="uri_folder")
    second = _data(world, "elsewhere", path=short, type="uri_folder")
    assert (first.version, second.version, second.path) == ("1", "2", first.path)
    url = "https://azuremlexamples.blob.core.windows.net/datasets/iris.csv"
    assert _data(world, "web", path=url, type="uri_file").path == url
    return second.path


@operation("Data", "`data.create_or_update` again: words change, places don't")
def data_again(world: World) -> Any:
    from azure.core.exceptions import ResourceExistsError

    file = str(world.folder / "table" / "a.csv")
    same = _data(world, "file", path=file, type="uri_file", version="7", tags={"a": "b"})
    assert same.tags == {"a": "b"}
    other = str(world.folder / "table" / "MLTable")
    try:
        _data(world, "file", path=other, type="uri_file", version="7")
    except ResourceExistsError as error:
        assert "already" in str(error), error
        return str(error)
    raise AssertionError("a version has two places")


@operation("Data", "`data.get`, `list`, `archive`, `restore`")
def data_list(world: World) -> Any:
    ops, name = world.ml.data, world.name("elsewhere")
    assert ops.get(name, label="latest").version == "2"
    assert name in [asset.name for asset in ops.list()]
    ops.archive(name, version="1")
    assert [asset.version for asset in ops.list(name=name)] == ["2"]
    ops.restore(name, version="1")
    ops.archive(name)
    assert name not in [asset.name for asset in ops.list()]
    ops.restore(name)
    assert [asset.version for asset in ops.list(name=name)] == ["2", "1"]


@operation("Data", "`data.create_or_update`: nothing at the path yet")
def data_absent(world: World) -> Any:
    path = "azureml://datastores/workspaceblobstore/paths/not/there"
    return _data(world, "absent", path=path, type="uri_folder").id


@operation("Data", "`data.import_data`", REFUSED, "imports of data")
def data_import(world: World) -> Any:
    from azure.ai.ml.data_transfer import Database
    from azure.ai.ml.entities import DataImport

    source = Database(connection="azureml:sql", query="select 1")
    path = "azureml://datastores/workspaceblobstore/paths/imported"
    request = DataImport(name=world.name("imported"), source=source, path=path)
    return world.ml.data.import_data(request).name
