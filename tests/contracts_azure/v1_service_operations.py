"""SDK v1: models deployed as web services."""

from __future__ import annotations

import json
from typing import Any

from operations import ERROR, REFUSED, World
from v1_world import operation, plain_environment, source, workspace

SCORE = """
import json, os
from names import NAME

def init():
    global top
    top = os.environ["AZUREML_MODEL_DIR"]
    print("ready with", sorted(os.listdir(top)))

def run(raw_data):
    files = sorted(f for _, _, names in os.walk(top) for f in names)
    return {"name": NAME, "files": files, "sum": sum(json.loads(raw_data)["data"])}
"""
BROKEN = "def init():\n    raise KeyError('no weights here')\n\ndef run(raw_data):\n    return 1\n"
SERVICE, AKS, FAULTY = "v1-service", "v1-aks-service", "v1-broken"


def inference(world: World, name: str, script: str, **files: str) -> Any:
    from azureml.core.model import InferenceConfig

    folder = source(world, name, "")
    (folder / "score.py").write_text(script)
    for file, text in files.items():
        (folder / f"{file}.py").write_text(text)
    return InferenceConfig(
        entry_script="score.py",
        source_directory=str(folder),
        environment=plain_environment(world),
    )


def model(world: World) -> Any:
    from azureml.core import Model

    if "v1-served" not in world.seen:
        file = world.write("served/w.bin", "1")
        world.seen["v1-served"] = Model.register(workspace(world), str(file), "v1-served")
    return world.seen["v1-served"]


def deployed(world: World, name: str, config: Any, where: Any = None, **options: Any) -> Any:
    from azureml.core import Model

    models = [model(world)]
    return Model.deploy(workspace(world), name, models, config, where, **options)


@operation(
    "Endpoints",
    "`Model.deploy`: `InferenceConfig`, `AciWebservice`, `wait_for_deployment`",
    how="always with keys; cores and memory limit nothing",
)
def deploy(world: World) -> Any:
    from azureml.core.webservice import AciWebservice

    config = inference(world, "scoring", SCORE, names="NAME = 'first'\n")
    where = AciWebservice.deploy_configuration(
        cpu_cores=2, memory_gb=2, tags={"data": "birds"}, description="classifies"
    )
    service = deployed(world, SERVICE, config, where)
    service.wait_for_deployment(show_output=True)
    assert service.state == "Healthy", (service.state, service.error)
    assert service.scoring_uri.endswith(f"/{SERVICE}/score"), service.scoring_uri
    assert service.swagger_uri.endswith(f"/{SERVICE}/swagger.json"), service.swagger_uri
    assert (service.tags, service.description) == ({"data": "birds"}, "classifies")
    assert [item.id for item in service.models] == [model(world).id]
    world.seen[SERVICE] = service
    return service.scoring_uri


@operation("Endpoints", "`service.run`; `scoring_uri` with a key, and with a wrong one")
def run(world: World) -> Any:
    import requests

    service, body = world.seen[SERVICE], json.dumps({"data": [1, 2, 3.5]})
    expected = {"name": "first", "files": ["w.bin"], "sum": 6.5}
    assert service.run(body) == expected, service.run(body)
    key = service.get_keys()[1]
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    answer = requests.post(service.scoring_uri, body, headers=headers)
    assert (answer.status_code, answer.json()) == (200, expected), answer.text
    wrong = {**headers, "Authorization": "Bearer wrong"}
    for sent in (wrong, {"Content-Type": "application/json"}):
        assert requests.post(service.scoring_uri, body, headers=sent).status_code == 401
    return answer.json()


@operation("Endpoints", "`get_keys`, `regen_key`")
def keys(world: World) -> Any:
    service = world.seen[SERVICE]
    primary, secondary = service.get_keys()
    service.regen_key("Primary")
    again = service.get_keys()
    assert again[0] != primary and again[1] == secondary
    return service.run(json.dumps({"data": [1]}))


@operation("Endpoints", "`get_logs`")
def logs(world: World) -> Any:
    text = world.seen[SERVICE].get_logs()
    assert "ready with ['w.bin']" in text, text[-2000:]
    return len(text)


@operation("Endpoints", "`Webservice(ws, name)`, `Webservice.list`, `ws.webservices`, `ws.images`")
def webservices(world: World) -> Any:
    from azureml.core.webservice import AciWebservice, Webservice

    ws = workspace(world)
    service = Webservice(ws, SERVICE)
    assert isinstance(service, AciWebservice) and service.state == "Healthy", service
    assert service.serialize()["scoringUri"] == service.scoring_uri
    assert [item.name for item in Webservice.list(ws, model_name="v1-served")] == [SERVICE]
    assert Webservice.list(ws, tags=[["data", "cats"]]) == []
    assert len(ws.images) == 0
    return sorted(ws.webservices)


@operation("Endpoints", "`Webservice` of a name that is not there", ERROR, "WebserviceNotFound")
def absent(world: World) -> Any:
    from azureml.core.webservice import Webservice

    return Webservice(workspace(world), "no-such-one").name


@operation("Endpoints", "`Model.deploy` of a name that is taken", ERROR, "exists already")
def taken(world: World) -> Any:
    return deployed(world, SERVICE, inference(world, "taken", SCORE, names="NAME = 1\n")).name


@operation("Endpoints", "`service.update`: `inference_config`, `tags`; `add_properties`")
def update(world: World) -> Any:
    service = world.seen[SERVICE]
    config = inference(world, "second", SCORE, names="NAME = 'second'\n")
    service.update(inference_config=config, tags={"data": "owls"})
    service.wait_for_deployment(show_output=False)
    answer = service.run(json.dumps({"data": []}))
    assert (answer["name"], answer["files"]) == ("second", ["w.bin"]), answer
    service.add_properties({"rate": "0.1"})
    assert (service.tags, service.properties) == ({"data": "owls"}, {"rate": "0.1"})
    return answer


@operation("Endpoints", "`AksWebservice`: `token_auth_enabled`, `get_access_token`, `overwrite`")
def kubernetes(world: World) -> Any:
    from azureml.core.webservice import AksWebservice

    config = inference(world, "tokens", SCORE, names="NAME = 'aks'\n")
    where = AksWebservice.deploy_configuration(
        auth_enabled=False, token_auth_enabled=True, num_replicas=1, scoring_timeout_ms=20000
    )
    deployed(world, AKS, config, where)
    service = deployed(world, AKS, config, where, overwrite=True)
    service.wait_for_deployment()
    assert service.token_auth_enabled and service.get_access_token().token_type == "Bearer"
    answer = service.run(json.dumps({"data": [2]}))
    assert (answer["name"], answer["sum"]) == ("aks", 2), answer
    service.delete()
    return answer


@operation("Endpoints", "`wait_for_deployment` of a script whose `init` fails", ERROR, "no weights")
def broken(world: World) -> Any:
    service = deployed(world, FAULTY, inference(world, "broken", BROKEN))
    try:
        service.wait_for_deployment(timeout_sec=120)
    finally:
        service.delete()
    return service.state


@operation("Endpoints", "`auth_enabled=False`", REFUSED, "without a key is not served")
def without_keys(world: World) -> Any:
    from azureml.core.webservice import AciWebservice

    where = AciWebservice.deploy_configuration(auth_enabled=False)
    config = inference(world, "open", SCORE, names="NAME = 1\n")
    return deployed(world, "v1-open", config, where).name


@operation("Endpoints", "`AksEndpoint`", REFUSED, "AksEndpoint")
def versions(world: World) -> Any:
    from azureml.core.webservice import AksEndpoint

    where = AksEndpoint.deploy_configuration(version_name="blue", traffic_percentile=100)
    config = inference(world, "open", SCORE, names="NAME = 1\n")
    return deployed(world, "v1-versions", config, where).name


@operation("Endpoints", "`Model.package`", REFUSED, "no images, packages")
def package(world: World) -> Any:
    from azureml.core import Model

    config = inference(world, "open", SCORE, names="NAME = 1\n")
    return Model.package(workspace(world), [model(world)], config).location


@operation("Endpoints", "`service.delete`")
def delete(world: World) -> Any:
    service = world.seen[SERVICE]
    service.delete()
    assert SERVICE not in workspace(world).webservices
    return True
