"""SDK v1: environments, datasets, models that no run made."""

from __future__ import annotations

from typing import Any

from operations import ERROR, World
from v1_world import ended, operation, source, submit, text_of, workspace

CONDA = "channels:\n- conda-forge\ndependencies:\n- python=3.11\n- pip:\n  - six\n"
PUBLISHED = "AzureML-PyTorch-1.6-GPU"
READ = """
import os, sys
for place in sys.argv[1:]:
    inside = [os.path.join(d, f) for d, _, names in os.walk(place) for f in names] or [place]
    print({os.path.basename(path): open(path).read() for path in sorted(inside)})
print("named", os.path.isdir(os.environ["named"]))
"""


@operation("Environments", "`Environment.get` by a published name, `save_to_directory`, `load`")
def published(world: World) -> Any:
    from azureml.core import Environment

    found = Environment.get(workspace=workspace(world), name=PUBLISHED)
    assert (found.name, bool(found.version)) == (PUBLISHED, True), found
    assert "torch" in found.python.conda_dependencies.serialize_to_string()
    folder = world.folder / "environment"
    found.save_to_directory(path=str(folder))
    again = Environment.load_from_directory(str(folder))
    assert again.name == PUBLISHED and (folder / "conda_dependencies.yml").exists()
    return sorted(one.name for one in folder.iterdir())


@operation("Environments", "`clone`, `register`, `Environment.get` of a version")
def clone(world: World) -> Any:
    from azureml.core import Environment

    ws = workspace(world)
    made = Environment.get(ws, PUBLISHED).clone("pytorch-1.6-gpu").register(ws)
    assert made.version == "1", made.version
    assert Environment.get(ws, "pytorch-1.6-gpu").register(ws).version == "1", "the same again"
    found = Environment.get(ws, "pytorch-1.6-gpu", version="1")
    found.python.conda_dependencies.add_pip_package("six")
    found.version = None
    assert found.register(ws).version == "2"
    return True


@operation("Environments", "`register` with a reserved prefix", ERROR, "AzureML")
def reserved(world: World) -> Any:
    from azureml.core import Environment

    ws = workspace(world)
    return Environment.get(ws, PUBLISHED).clone("AzureML-mine").register(ws).version


@operation("Environments", "`from_conda_specification`, `docker.base_image`")
def from_conda(world: World) -> Any:
    from azureml.core import Environment

    ws, file = workspace(world), world.write("conda_dependencies.yml", CONDA)
    made = Environment.from_conda_specification(name="v1-conda", file_path=str(file))
    made.docker.enabled = True
    made.docker.base_image = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04"
    made.register(ws)
    found = Environment.get(ws, "v1-conda")
    assert found.docker.base_image == made.docker.base_image, found.docker.base_image
    assert "six" in found.python.conda_dependencies.serialize_to_string()
    return found.version


@operation("Environments", "`from_pip_requirements`, `from_docker_image`")
def from_others(world: World) -> Any:
    from azureml.core import Environment

    ws, file = workspace(world), world.write("requirements.txt", "six\n")
    made = Environment.from_pip_requirements("v1-pip", str(file)).register(ws)
    assert "six" in made.python.conda_dependencies.serialize_to_string()
    image = Environment.from_docker_image("v1-image", "python:3.11").register(ws)
    assert image.docker.base_image == "python:3.11", image.docker.base_image
    return [made.version, image.version]


@operation("Environments", "`Environment.list`, `ws.environments`")
def list_environments(world: World) -> Any:
    from azureml.core import Environment

    ws = workspace(world)
    found = set(Environment.list(ws))
    assert {"v1-conda", "v1-pip", "v1-image", "pytorch-1.6-gpu"} <= found, found
    assert found == set(ws.environments)
    return len(found)


@operation("Environments", "`Environment.get` of one that is not there", ERROR, "no-such-one")
def absent_environment(world: World) -> Any:
    from azureml.core import Environment

    return Environment.get(workspace(world), "no-such-one").name


@operation("Datasets", "`Dataset.File.upload_directory`, `to_path`")
def upload(world: World) -> Any:
    from azureml.core import Dataset
    from azureml.data.datapath import DataPath

    world.write("data/a.txt", "one")
    world.write("data/deep/b.txt", "two")
    target = DataPath(workspace(world).get_default_datastore(), "datasets/v1")
    made = Dataset.File.upload_directory(str(world.folder / "data"), target=target, overwrite=True)
    assert sorted(made.to_path()) == ["/a.txt", "/deep/b.txt"], made.to_path()
    world.seen["dataset"] = made
    return made.to_path()


@operation("Datasets", "`register`, `get_by_name`, `ws.datasets`")
def register(world: World) -> Any:
    from azureml.core import Dataset

    ws = workspace(world)
    made = world.seen["dataset"].register(ws, "v1-data", description="d", tags={"a": "b"})
    assert (made.name, made.version) == ("v1-data", 1), made
    world.seen["dataset"] = made
    found = Dataset.get_by_name(ws, "v1-data")
    assert (found.version, found.description, found.tags) == (1, "d", {"a": "b"}), found
    assert Dataset.get_by_id(ws, found.id).to_path() == found.to_path()
    assert "v1-data" in ws.datasets
    return found.id


@operation("Datasets", "`download`")
def download(world: World) -> Any:
    target = world.folder / "downloaded"
    world.seen["dataset"].download(str(target), overwrite=True)
    found = {str(one.relative_to(target)) for one in target.rglob("*") if one.is_file()}
    assert found == {"a.txt", "deep/b.txt"}, found
    return sorted(found)


@operation("Datasets", "`as_mount`, `as_download`, `as_named_input` as arguments of a run")
def data_of_a_run(world: World) -> Any:
    from azureml.core import Dataset

    ws, own = workspace(world), world.seen["dataset"]
    one_file = Dataset.File.from_files((ws.get_default_datastore(), "datasets/v1/a.txt"))
    arguments = [own.as_mount(), one_file.as_download(), own.as_named_input("named").as_mount()]
    return submit(world, "data", source(world, "data-read", READ), arguments=arguments).id


@operation("Datasets", "`get_by_name` of one that is not there", ERROR, "no-such-data")
def absent_dataset(world: World) -> Any:
    from azureml.core import Dataset

    return Dataset.get_by_name(workspace(world), "no-such-data").name


@operation("Datasets", "`from_files` of a path that is gone", ERROR, "not found")
def absent_path(world: World) -> Any:
    from azureml.core import Dataset

    store = workspace(world).get_default_datastore()
    return Dataset.File.from_files((store, "nothing/here")).to_path()


@operation("Models", "`Model.register` from a folder and from a file, `download`")
def local_model(world: World) -> Any:
    from azureml.core import Model

    ws = workspace(world)
    world.write("model/w.bin", "1" * 1000)
    world.write("model/deep/x.bin", "2")
    made = Model.register(
        ws, model_path=str(world.folder / "model"), model_name="v1-local", description="d"
    )
    assert made.id == "v1-local:1", made.id
    place = made.download(target_dir=str(world.folder / "first"), exist_ok=True)
    assert (world.folder / "first" / "model" / "deep" / "x.bin").read_text() == "2", place
    file = str(world.folder / "model" / "w.bin")
    made = Model.register(ws, model_path=file, model_name="v1-local", tags={"a": "b"})
    assert (made.id, made.tags) == ("v1-local:2", {"a": "b"}), made.id
    place = made.download(target_dir=str(world.folder / "second"), exist_ok=True)
    assert (world.folder / "second" / "w.bin").read_text() == "1" * 1000, place
    return place


@operation("Models", "`Model.list`, `Model(ws, name)`, `add_tags`, `ws.models`, `delete`")
def list_models(world: World) -> Any:
    from azureml.core import Model

    ws = workspace(world)
    assert [one.version for one in Model.list(ws, name="v1-local")] == [2, 1]
    latest = Model(ws, "v1-local")
    latest.add_tags({"x": "y"})
    assert Model(ws, "v1-local").tags == {"a": "b", "x": "y"}
    assert ws.models["v1-local"].version == 2
    latest.delete()
    assert [one.version for one in Model.list(ws, name="v1-local")] == [1]
    return True


@operation("Models", "`Model` of a name that is not there", ERROR, "no-such-model")
def absent_model(world: World) -> Any:
    from azureml.core import Model

    return Model(workspace(world), "no-such-model").id


@operation("Datasets", "what a run saw of its data")
def data_seen(world: World) -> Any:
    run = ended(world, "data")
    text = text_of(world, run, "user_logs/std_log.txt")
    assert text.splitlines()[-4:] == [
        "{'a.txt': 'one', 'b.txt': 'two'}",
        "{'a.txt': 'one'}",
        "{'a.txt': 'one', 'b.txt': 'two'}",
        "named True",
    ], text
    return text
