"""Models and components."""

from __future__ import annotations

from typing import Any

from operations import ERROR, REFUSED, World, operation

WEIGHTS = "weights\n" * 5000
COMPONENT = """
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
name: {name}
display_name: Train
description: one step
tags: {{team: vision}}
type: {type}
inputs:
  rows: {{type: uri_folder}}
  epochs: {{type: integer, optional: true}}
  rate: {{type: number, default: 0.01}}
outputs:
  model: {{type: uri_folder}}
code: ./step
environment: azureml://registries/azureml/environments/sklearn-1.5/labels/latest
command: python step.py --rows ${{{{inputs.rows}}}} $[[--epochs ${{{{inputs.epochs}}}}]]
"""


def _model(world: World, word: str, path: str, **options: Any) -> Any:
    from azure.ai.ml.entities import Model

    return world.ml.models.create_or_update(Model(name=world.name(word), path=path, **options))


@operation("Models", "`models.create_or_update`: local folder, file and MLflow model")
def model(world: World) -> Any:
    world.write("net/weights.bin", WEIGHTS)
    world.write("net/MLmodel", "flavors: {}\n")
    folder = str(world.folder / "net")
    options = {"description": "d", "tags": {"a": "1"}, "properties": {"p": "1"}, "stage": "Staging"}
    made = _model(world, "net", folder, type="custom_model", **options)
    assert (made.version, made.stage, made.properties) == ("1", "Staging", {"p": "1"})
    assert _model(world, "net", folder, type="mlflow_model").version == "2"
    single = _model(world, "one", f"{folder}/weights.bin", type="custom_model")
    assert single.path.endswith("/weights.bin"), single.path
    return [made.path, single.path]


@operation("Models", "`models.download`: folder and file")
def model_download(world: World) -> Any:
    files = []
    for word in ("net", "one"):
        target = world.folder / f"downloaded-{word}"
        world.ml.models.download(world.name(word), version="1", download_path=str(target))
        files += [file for file in target.rglob("weights.bin") if file.read_text() == WEIGHTS]
    paths = [str(file.relative_to(world.folder)) for file in files]
    # A folder lies in one of its own name, as with Azure.
    assert paths == [
        f"downloaded-net/{world.name('net')}/net/weights.bin",
        f"downloaded-one/{world.name('one')}/weights.bin",
    ], paths
    return paths


@operation("Models", "`models.create_or_update` again: tags, description, stage")
def model_again(world: World) -> Any:
    model = world.ml.models.get(world.name("net"), version="1")
    model.tags, model.description, model.stage = {"b": "2"}, "new", "Production"
    changed = world.ml.models.create_or_update(model)
    assert (changed.version, changed.tags, changed.stage) == ("1", {"b": "2"}, "Production")
    return changed.description


@operation("Models", "`models.get`, `list`, `archive`, `restore`")
def model_list(world: World) -> Any:
    ops, name = world.ml.models, world.name("net")
    assert ops.get(name, label="latest").version == "2"
    assert [model.version for model in ops.list(name=name, stage="Production")] == ["1"]
    ops.archive(name, version="1")
    assert [model.version for model in ops.list(name=name)] == ["2"]
    ops.restore(name, version="1")
    assert ops.get(name, version="1").stage == "Production"
    ops.archive(name)
    assert name not in [model.name for model in ops.list()]
    ops.restore(name)
    assert name in [model.name for model in ops.list()]


@operation(
    "Models",
    "`models.create_or_update`: a version that is not a number",
    REFUSED,
    "whole number",
)
def model_version(world: World) -> Any:
    return _model(world, "net", str(world.folder / "net"), version="v1").id


@operation("Models", "`models.get` of one that is not there", ERROR, "does not exist")
def model_absent(world: World) -> Any:
    return world.ml.models.get(world.name("no"), version="1").id


def _component(world: World, type: str = "command", **options: Any) -> Any:
    from azure.ai.ml import load_component

    name = world.name("train").replace("-", "_")
    world.write("step/step.py", "print('a step')\n")
    file = world.write("component.yml", COMPONENT.format(name=name, type=type))
    return world.ml.components.create_or_update(load_component(str(file)), **options)


@operation("Components", "`components.create_or_update`: command with code")
def component(world: World) -> Any:
    made = _component(world)
    assert made.version == "1" and made.tags == {"team": "vision"}
    assert set(made.inputs) == {"rows", "epochs", "rate"} and set(made.outputs) == {"model"}
    assert "/codes/" in made.code, made.code
    return made.id


@operation("Components", "`components.get`, `list`, `archive`, `restore`")
def component_list(world: World) -> Any:
    ops, name = world.ml.components, world.name("train").replace("-", "_")
    assert ops.get(name).version == ops.get(name, version="1").version == "1"
    assert _component(world, skip_if_no_change=True).version == "1"
    assert [entity.version for entity in ops.list(name=name)] == ["1"]
    ops.archive(name)
    assert name not in [entity.name for entity in ops.list()]
    ops.restore(name)
    assert name in [entity.name for entity in ops.list()]


@operation("Components", "`components.create_or_update(is_anonymous=True)`")
def component_anonymous(world: World) -> Any:
    first, second = (_component(world, is_anonymous=True) for _ in range(2))
    assert first.id == second.id and "/azureml_anonymous/" in first.id
    assert "azureml_anonymous" not in [entity.name for entity in world.ml.components.list()]
    return first.id
