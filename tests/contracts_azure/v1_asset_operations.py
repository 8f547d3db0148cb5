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

WRITE = """
import os, sys
os.makedirs(sys.argv[1], exist_ok=True)
open(os.path.join(sys.argv[1], "made.txt"), "w").write("made")
"""
LIST = "import os, sys\nprint(sorted(os.listdir(sys.argv[1])))\n"


@operation("Environments", "`Environment.get` by a published name, `save_to_directory`, `load`")
def published(world: World) -> Any:
    from azureml.core import Environment

    environment = Environment.get(workspace=workspace(world), name=PUBLISHED)
    assert (environment.name, bool(environment.version)) == (PUBLISHED, True), environment
    assert "torch" in environment.python.conda_dependencies.serialize_to_string()
    folder = world.folder / "environment"
    environment.save_to_directory(path=str(folder))
    again = Environment.load_from_directory(str(folder))
    assert again.name == PUBLISHED and (folder / "conda_dependencies.yml").exists()
    return sorted(file.name for file in folder.iterdir())


@operation("Environments", "`clone`, `register`, `Environment.get` of a version")
def clone(world: World) -> Any:
    from azureml.core import Environment

    ws = workspace(world)
    made = Environment.get(ws, PUBLISHED).clone("pytorch-1.6-gpu").register(ws)
    assert made.version == "1", made.version
    assert Environment.get(ws, "pytorch-1.6-gpu").register(ws).version == "1", "the same again"
    environment = Environment.get(ws, "pytorch-1.6-gpu", version="1")
    environment.python.conda_dependencies.add_pip_package("six")
    environment.version = None
    assert environment.register(ws).version == "2"
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
    environment = Environment.get(ws, "v1-conda")
    assert environment.docker.base_image == made.docker.base_image, environment.docker.base_image
    assert "six" in environment.python.conda_dependencies.serialize_to_string()
    return environment.version


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
    names = set(Environment.list(ws))
    assert {"v1-conda", "v1-pip", "v1-image", "pytorch-1.6-gpu"} <= names, names
    assert names == set(ws.environments)
    return len(names)


@operation("Environments", "`Environment.get` of one that is not there", ERROR, "no-such-one")
def absent_environment(world: World) -> Any:
    from azureml.core import Environment

    return Environment.get(workspace(world), "no-such-one").name


@operation("Data", "`Dataset.File.upload_directory`, `to_path`")
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


@operation("Data", "`register`, `get_by_name`, `ws.datasets`")
def register(world: World) -> Any:
    from azureml.core import Dataset

    ws = workspace(world)
    made = world.seen["dataset"].register(ws, "v1-data", description="d", tags={"a": "b"})
    assert (made.name, made.version) == ("v1-data", 1), made
    world.seen["dataset"] = made
    asset = Dataset.get_by_name(ws, "v1-data")
    assert (asset.version, asset.description, asset.tags) == (1, "d", {"a": "b"}), asset
    assert Dataset.get_by_id(ws, asset.id).to_path() == asset.to_path()
    assert "v1-data" in ws.datasets
    return asset.id


@operation("Data", "`download`")
def download(world: World) -> Any:
    target = world.folder / "downloaded"
    world.seen["dataset"].download(str(target), overwrite=True)
    files = {str(file.relative_to(target)) for file in target.rglob("*") if file.is_file()}
    assert files == {"a.txt", "deep/b.txt"}, files
    return sorted(files)


@operation("Data", "`as_mount`, `as_download`, `as_named_input` as arguments of a run")
def data_of_a_run(world: World) -> Any:
    from azureml.core import Dataset

    ws, asset = workspace(world), world.seen["dataset"]
    one_file = Dataset.File.from_files((ws.get_default_datastore(), "datasets/v1/a.txt"))
    arguments = [asset.as_mount(), one_file.as_download(), asset.as_named_input("named").as_mount()]
    return submit(world, "data", source(world, "data-read", READ), arguments=arguments).id


@operation("Data", "a dataset of several places, and of a pattern, as a run's input")
def several_places(world: World) -> Any:
    from azureml.core import Dataset

    store = workspace(world).get_default_datastore()
    several = Dataset.File.from_files([(store, "datasets/v1/a.txt"), (store, "datasets/v1/deep")])
    some = Dataset.File.from_files((store, "datasets/v1/**/b.*"))
    arguments = [several.as_mount(), some.as_named_input("named").as_download()]
    return submit(world, "places", source(world, "data-read", READ), arguments=arguments).id


@operation("Data", "`OutputFileDatasetConfig` as an argument, `register_on_complete`")
def output(world: World) -> Any:
    from azureml.data import OutputFileDatasetConfig

    store = workspace(world).get_default_datastore()
    made = OutputFileDatasetConfig(destination=(store, "made/{run-id}"))
    arguments = [made.register_on_complete("v1-made")]
    return submit(world, "output", source(world, "output", WRITE), arguments=arguments).id


@operation("Data", "`Datastore.path(…).as_mount()`: a DataReference as an argument")
def reference(world: World) -> Any:
    from azureml.core import Experiment, ScriptRunConfig
    from v1_world import CLUSTER, EXPERIMENT, plain_environment

    ws = workspace(world)
    mount = ws.get_default_datastore().path("datasets/v1").as_mount()
    config = ScriptRunConfig(
        source_directory=str(source(world, "listing", LIST)),
        script="train.py",
        arguments=[str(mount)],
        compute_target=CLUSTER,
        environment=plain_environment(world),
    )
    config.run_config.data_references = {mount.data_reference_name: mount.to_config()}
    world.seen["reference"] = Experiment(ws, EXPERIMENT).submit(config)
    return world.seen["reference"].id


@operation("Data", "`add_tags`, `update`, `unregister_all_versions`, `register` again")
def change_dataset(world: World) -> Any:
    from azureml.core import Dataset

    ws = workspace(world)
    store = ws.get_default_datastore()
    made = Dataset.File.from_files((store, "datasets/v1/a.txt")).register(ws, "v1-short")
    made.add_tags({"a": "b"}).update(description="changed")
    asset = Dataset.get_by_name(ws, "v1-short")
    assert (asset.tags, asset.description) == ({"a": "b"}, "changed"), asset
    asset.unregister_all_versions()
    assert "v1-short" not in ws.datasets
    again = Dataset.File.from_files((store, "datasets/v1/deep")).register(ws, "v1-short")
    more = Dataset.File.from_files((store, "datasets/v1")).register(
        ws, "v1-short", create_new_version=True
    )
    assert more.version == again.version + 1, (again.version, more.version)
    assert Dataset.get_by_name(ws, "v1-short", version=again.version).to_path() == ["/b.txt"]
    return more.version


@operation("Data", "`Dataset.Tabular.from_delimited_files`, `register`, `take`, `to_csv_files`")
def tabular(world: World) -> Any:
    from azureml.core import Dataset

    ws = workspace(world)
    store = ws.get_default_datastore()
    world.write("table/data.csv", "x,y\n1,2\n3,4\n")
    Dataset.File.upload_directory(str(world.folder / "table"), target=(store, "v1-table"))
    made = Dataset.Tabular.from_delimited_files((store, "v1-table/data.csv"))
    made = made.register(ws, "v1-table")
    assert Dataset.get_by_name(ws, "v1-table").id == made.id
    rows = Dataset.get_by_name(ws, "v1-table").take(1).to_csv_files()
    rows.download(str(world.folder / "rows"), overwrite=True)
    (file,) = (path for path in (world.folder / "rows").rglob("*") if path.is_file())
    assert file.read_text().split() in (["x,y", "1,2"], ['"x","y"', "1,2"]), file.read_text()
    return made.id


@operation("Data", "`Datastore.upload`, `upload_files`, `download`, `Datastore.get`")
def old_upload(world: World) -> Any:
    from azureml.core import Datastore

    store = Datastore.get(workspace(world), "workspaceblobstore")
    store.upload(str(world.folder / "data"), target_path="v1-old", overwrite=True)
    store.upload_files([str(world.folder / "data" / "a.txt")], target_path="v1-old/more")
    assert store.download(str(world.folder / "old"), prefix="v1-old") == 3
    return (world.folder / "old" / "v1-old" / "more" / "a.txt").read_text()


@operation(
    "Data",
    "`Datastore.register_azure_blob_container`",
    how="the server needs `pip install 'torchyard[azure]'`, and says so",
)
def register_store(world: World) -> Any:
    from azureml.core import Datastore

    ws = workspace(world)
    options = {"container_name": "cats", "account_name": "pictures", "account_key": "a2V5"}
    try:
        made = Datastore.register_azure_blob_container(ws, "v1store", **options)
    except Exception as error:
        assert "torchyard[azure]" in str(error), error
        return str(error)
    assert made.name in ws.datastores
    assert Datastore.register_azure_blob_container(ws, "v1store", overwrite=True, **options)
    made.unregister()
    assert "v1store" not in ws.datastores
    return made.name


@operation("Data", "`get_by_name` of one that is not there", ERROR, "no-such-data")
def absent_dataset(world: World) -> Any:
    from azureml.core import Dataset

    return Dataset.get_by_name(workspace(world), "no-such-data").name


@operation("Data", "`from_files` of a path that is gone", ERROR, "not found")
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
    folder = made.download(target_dir=str(world.folder / "first"), exist_ok=True)
    assert (world.folder / "first" / "model" / "deep" / "x.bin").read_text() == "2", folder
    file = str(world.folder / "model" / "w.bin")
    made = Model.register(ws, model_path=file, model_name="v1-local", tags={"a": "b"})
    assert (made.id, made.tags) == ("v1-local:2", {"a": "b"}), made.id
    folder = made.download(target_dir=str(world.folder / "second"), exist_ok=True)
    assert (world.folder / "second" / "w.bin").read_text() == "1" * 1000, folder
    return folder


@operation("Models", "`Model.list`, `Model(ws, name)`, `add_tags`, `ws.models`, `delete`")
def list_models(world: World) -> Any:
    from azureml.core import Model

    ws = workspace(world)
    assert [model.version for model in Model.list(ws, name="v1-local")] == [2, 1]
    latest = Model(ws, "v1-local")
    latest.add_tags({"x": "y"})
    assert Model(ws, "v1-local").tags == {"a": "b", "x": "y"}
    assert ws.models["v1-local"].version == 2
    latest.delete()
    assert [model.version for model in Model.list(ws, name="v1-local")] == [1]
    return True


@operation("Models", "`model.update`, `add_properties`, `remove_tags`, filters of `Model.list`")
def change_model(world: World) -> Any:
    from azureml.core import Model

    ws = workspace(world)
    world.write("weights/w.bin", "1")
    made = Model.register(
        ws,
        str(world.folder / "weights"),
        "v1-changed",
        tags={"kind": "cat"},
        model_framework=Model.Framework.PYTORCH,
        model_framework_version="1.6",
    )
    made.update(tags={"kind": "dog"}, description="changed")
    made.add_properties({"rate": "0.1"})
    model = Model(ws, "v1-changed")
    assert (model.tags, model.description) == ({"kind": "dog"}, "changed"), model
    assert (model.properties, model.model_framework) == ({"rate": "0.1"}, "PyTorch"), model
    for filters in ({"tags": [["kind", "dog"]]}, {"tags": ["kind"]}, {"properties": ["rate"]}):
        assert [match.id for match in Model.list(ws, **filters)] == ["v1-changed:1"], filters
    assert Model.list(ws, tags=[["kind", "cat"]]) == []
    made.remove_tags(["kind"])
    assert Model(ws, "v1-changed").tags == {}
    path = Model.get_model_path("v1-changed", _workspace=ws)
    return path


@operation("Models", "`datasets` of a model, `add_dataset_references`, `Model.list` of a dataset")
def lineage(world: World) -> Any:
    from azureml.core import Dataset, Model

    ws = workspace(world)
    data = Dataset.get_by_name(ws, "v1-data")
    file = str(world.folder / "weights" / "w.bin")
    made = Model.register(ws, file, "v1-lineage", datasets=[("training", data)])
    store = ws.get_default_datastore()
    other = Dataset.File.from_files((store, "datasets/v1/a.txt"))
    made.add_dataset_references([("validation", other)])
    datasets = Model(ws, "v1-lineage").datasets
    assert {key: [asset.to_path() for asset in there] for key, there in datasets.items()} == {
        "training": [data.to_path()],
        "validation": [other.to_path()],
    }, datasets
    id = datasets["validation"][0].id
    assert [model.name for model in Model.list(ws, dataset_id=id)] == ["v1-lineage"]
    return sorted(datasets)


@operation("Models", "`Model` of a name that is not there", ERROR, "no-such-model")
def absent_model(world: World) -> Any:
    from azureml.core import Model

    return Model(workspace(world), "no-such-model").id


@operation("Data", "what a run saw of its data")
def data_seen(world: World) -> Any:
    run = ended(world, "data")
    text = text_of(world, run, "user_logs/std_log.txt")
    assert text.splitlines()[-4:] == [
        "{'a.txt': 'one', 'b.txt': 'two'}",
        "{'a.txt': 'one'}",
        "{'a.txt': 'one', 'b.txt': 'two'}",
        "named True",
    ], text
    seen = text_of(world, ended(world, "places"), "user_logs/std_log.txt").splitlines()[-3:]
    assert seen == ["{'a.txt': 'one', 'b.txt': 'two'}", "{'b.txt': 'two'}", "named True"], seen
    return text


@operation("Data", "what a run made by `OutputFileDatasetConfig`, and saw by its DataReference")
def data_made(world: World) -> Any:
    from azureml.core import Dataset

    ended(world, "output")
    made = Dataset.get_by_name(workspace(world), "v1-made")
    assert made.to_path() == ["/made.txt"], made.to_path()
    text = text_of(world, ended(world, "reference"), "user_logs/std_log.txt")
    assert text.splitlines()[-1] == "['a.txt', 'deep']", text
    return made.to_path()
