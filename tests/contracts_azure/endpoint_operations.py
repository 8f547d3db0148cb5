"""Online endpoints and their deployments."""

from __future__ import annotations

import json
from typing import Any

from job_operations import ENVIRONMENT
from operations import ERROR, REFUSED, World, operation

SCORE = """
import json, os

def init():
    global top
    top = os.environ["AZUREML_MODEL_DIR"]
    print("ready with", sorted(os.listdir(top)))

def run(raw_data):
    there = [os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names]
    files = sorted(os.path.relpath(file, top) for file in there)
    numbers = json.loads(raw_data)["data"]
    return {"files": files, "sum": sum(numbers) + int(os.environ.get("BIAS", "0"))}
"""
BROKEN = "def init():\n    raise KeyError('no weights here')\n\ndef run(raw_data):\n    return 1\n"
ENDPOINT = """
$schema: https://azuremlschemas.azureedge.net/latest/managedOnlineEndpoint.schema.json
name: {name}
auth_mode: key
tags: {{team: birds}}
"""
DEPLOYMENT = """
$schema: https://azuremlschemas.azureedge.net/latest/managedOnlineDeployment.schema.json
name: blue
endpoint_name: {endpoint}
model:
  path: ./served
code_configuration:
  code: ./scoring
  scoring_script: score.py
environment: {environment}
environment_variables: {{API_TOKEN: very-secret-indeed}}
properties: {{torchyard.cluster: {cluster}}}
instance_type: Standard_DS3_v2
instance_count: 1
request_settings: {{request_timeout_ms: 20000, max_concurrent_requests_per_instance: 2}}
readiness_probe: {{initial_delay: 1, period: 1, failure_threshold: 60}}
"""


def _name(world: World) -> str:
    return world.name("numbers")


def _request(world: World, *numbers: float) -> str:
    return str(world.write("request.json", json.dumps({"data": numbers})))


def _invoked(world: World, endpoint: str, *numbers: float, **options: Any) -> Any:
    file = _request(world, *numbers)
    return json.loads(world.ml.online_endpoints.invoke(endpoint, request_file=file, **options))


def _cluster(world: World) -> None:
    """Of their own: instances stay, and other operations need nodes at the same time."""
    from azure.ai.ml.entities import AmlCompute

    made = AmlCompute(name=world.name("serving"), size="STANDARD_DS3_v2", max_instances=8)
    world.ml.compute.begin_create_or_update(made).result()


def _deployment(world: World, name: str, endpoint: str, **options: Any) -> Any:
    from azure.ai.ml.entities import CodeConfiguration, ManagedOnlineDeployment

    arguments = {
        "model": f"azureml:{world.seen['served']}:1",
        "code_configuration": CodeConfiguration(
            code=str(world.folder / "scoring"), scoring_script="score.py"
        ),
        "environment": ENVIRONMENT,
        "instance_type": "Standard_DS3_v2",
        "instance_count": 1,
        "properties": {"torchyard.cluster": world.name("serving")},
        **options,
    }
    return ManagedOnlineDeployment(name=name, endpoint_name=endpoint, **arguments)


@operation("Endpoints", "`online_endpoints.begin_create_or_update`: `load_online_endpoint`")
def create(world: World) -> Any:
    from azure.ai.ml import load_online_endpoint

    file = world.write("endpoint.yml", ENDPOINT.format(name=_name(world)))
    made = world.ml.online_endpoints.begin_create_or_update(load_online_endpoint(file)).result()
    assert (made.name, made.auth_mode, made.tags) == (_name(world), "key", {"team": "birds"})
    assert made.provisioning_state == "Succeeded", made.provisioning_state
    assert made.scoring_uri.endswith(f"/{_name(world)}/score"), made.scoring_uri
    return made.scoring_uri


@operation(
    "Endpoints",
    "`online_deployments.begin_create_or_update`: `load_online_deployment`, inline model",
    how="the cluster is the property `torchyard.cluster`; `instance_type` chooses nothing",
)
def deploy(world: World) -> Any:
    from azure.ai.ml import load_online_deployment

    world.write("served/w.bin", "1")
    world.write("scoring/score.py", SCORE)
    _cluster(world)
    names = {"endpoint": _name(world), "cluster": world.name("serving")}
    text = DEPLOYMENT.format(**names, environment=ENVIRONMENT)
    deployment = load_online_deployment(world.write("blue.yml", text))
    made = world.ml.online_deployments.begin_create_or_update(deployment).result()
    assert (made.name, made.provisioning_state) == ("blue", "Succeeded"), made
    assert made.instance_count == 1 and made.request_settings.request_timeout_ms == 20000
    assert made.readiness_probe.failure_threshold == 60
    return [made.model, made.environment, made.code_configuration.code]


@operation("Endpoints", "`online_endpoints.begin_create_or_update`: `traffic`")
def traffic(world: World) -> Any:
    operations = world.ml.online_endpoints
    endpoint = operations.get(_name(world))
    assert endpoint.traffic == {"blue": 0}, endpoint.traffic
    endpoint.traffic = {"blue": 100}
    changed = operations.begin_create_or_update(endpoint).result()
    assert changed.traffic == {"blue": 100}, changed.traffic
    assert changed.tags == {"team": "birds"}
    return changed.traffic


# Without a deployment's name first: the client keeps the name for its next requests.
@operation("Endpoints", "`online_endpoints.invoke`; `scoring_uri` and `openapi_uri` with a key")
def invoke(world: World) -> Any:
    import requests

    name = _name(world)
    expected = {"files": ["served/w.bin"], "sum": 6.5}
    assert _invoked(world, name, 1, 2, 3.5) == expected
    assert _invoked(world, name, 1, 2, 3.5, deployment_name="blue") == expected
    endpoint = world.ml.online_endpoints.get(name)
    key = world.ml.online_endpoints.get_keys(name).secondary_key
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    answer = requests.post(endpoint.scoring_uri, json={"data": [1]}, headers=headers)
    assert answer.json()["sum"] == 1, answer.text
    swagger = requests.get(endpoint.openapi_uri, headers=headers)
    assert swagger.status_code == 200 and "paths" in swagger.json(), swagger.text
    wrong = requests.post(endpoint.scoring_uri, headers={**headers, "Authorization": "Bearer no"})
    assert wrong.status_code == 401, wrong.text
    return expected


@operation("Endpoints", "`online_endpoints.get_keys`, `begin_regenerate_keys`")
def keys(world: World) -> Any:
    operations, name = world.ml.online_endpoints, _name(world)
    before = operations.get_keys(name)
    operations.begin_regenerate_keys(name, key_type="secondary").result()
    after = operations.get_keys(name)
    assert after.primary_key == before.primary_key
    assert after.secondary_key != before.secondary_key
    return True


@operation("Endpoints", "`online_deployments.get_logs`")
def logs(world: World) -> Any:
    text = world.ml.online_deployments.get_logs("blue", _name(world), lines=200)
    assert "ready with ['served']" in text, text
    last = world.ml.online_deployments.get_logs("blue", _name(world), lines=1)
    assert len(last.splitlines()) == 1, last
    return last


@operation(
    "Endpoints",
    "`online_deployments.begin_create_or_update` of what was read: settings, `instance_count`",
)
def update(world: World) -> Any:
    operations = world.ml.online_deployments
    blue = operations.get("blue", _name(world))
    assert "very-secret-indeed" not in str(blue.environment_variables)
    blue.environment_variables["BIAS"] = "10"
    blue.request_settings.max_concurrent_requests_per_instance = 3
    blue.instance_count = 2
    blue.tags = {"round": "2"}
    changed = operations.begin_create_or_update(blue).result()
    assert (changed.instance_count, changed.tags) == (2, {"round": "2"})
    assert changed.request_settings.max_concurrent_requests_per_instance == 3
    assert _invoked(world, _name(world), 1)["sum"] == 11
    return changed.model


@operation(
    "Endpoints",
    "a second deployment: registered model, `data_collector`; 90 and 10 percent, `mirror_traffic`",
)
def second(world: World) -> Any:
    from azure.ai.ml.entities import DataCollector, DeploymentCollection, Model

    model = Model(name=world.name("served"), path=str(world.folder / "served"))
    world.seen["served"] = world.ml.models.create_or_update(model).name
    operations, name = world.ml.online_endpoints, _name(world)
    collected = DataCollector(collections={"model_inputs": DeploymentCollection(enabled="true")})
    green = _deployment(
        world, "green", name, environment_variables={"BIAS": "100"}, data_collector=collected
    )
    made = world.ml.online_deployments.begin_create_or_update(green).result()
    assert list(made.data_collector.collections) == ["model_inputs"], made.data_collector
    endpoint = operations.get(name)
    assert endpoint.traffic == {"blue": 100, "green": 0}, endpoint.traffic
    endpoint.mirror_traffic = {"green": 10}
    mirrored = operations.begin_create_or_update(endpoint).result()
    assert mirrored.mirror_traffic == {"green": 10}, mirrored.mirror_traffic
    mirrored.mirror_traffic, mirrored.traffic = {}, {"blue": 90, "green": 10}
    divided = operations.begin_create_or_update(mirrored).result()
    assert (divided.traffic, divided.mirror_traffic) == ({"blue": 90, "green": 10}, {})
    answer = _invoked(world, name, 1, deployment_name="green")
    assert (answer["files"], answer["sum"]) == (["served/w.bin"], 101), answer
    return divided.traffic


@operation("Endpoints", "`online_endpoints.get`, `list`; `online_deployments.get`, `list`")
def list_all(world: World) -> Any:
    name = _name(world)
    assert name in [endpoint.name for endpoint in world.ml.online_endpoints.list()]
    there = list(world.ml.online_deployments.list(name))
    assert [each.name for each in there] == ["blue", "green"], there
    assert world.ml.online_deployments.get("green", name).endpoint_name == name
    return world.ml.online_endpoints.get(name).traffic


@operation("Endpoints", "`auth_mode='aml_token'`: `get_keys`, `invoke`")
def tokens(world: World) -> Any:
    from azure.ai.ml.entities import ManagedOnlineEndpoint

    operations, name = world.ml.online_endpoints, world.name("tokens")
    made = ManagedOnlineEndpoint(name=name, auth_mode="aml_token")
    assert operations.begin_create_or_update(made).result().auth_mode == "aml_token"
    world.ml.online_deployments.begin_create_or_update(_deployment(world, "green", name)).result()
    endpoint = operations.get(name)
    endpoint.traffic = {"green": 100}
    operations.begin_create_or_update(endpoint).result()
    token = operations.get_keys(name)
    assert token.access_token.count(".") == 2 and token.expiry_time_utc > 1_700_000_000, token
    answer = _invoked(world, name, 2, deployment_name="green")
    assert answer["sum"] == 2, answer
    return answer


@operation("Endpoints", "a script whose `init` fails", ERROR, "no weights here")
def broken(world: World) -> Any:
    from azure.ai.ml.entities import CodeConfiguration

    world.write("broken/score.py", BROKEN)
    code = CodeConfiguration(code=str(world.folder / "broken"), scoring_script="score.py")
    red = _deployment(world, "red", _name(world), code_configuration=code)
    try:
        world.ml.online_deployments.begin_create_or_update(red).result()
    except Exception as error:
        assert "score.py" in str(error) and "line 2" in str(error), error
        raise
    return "it was deployed"


@operation("Endpoints", "`online_endpoints.get` of one that is not there", ERROR, "does not exist")
def absent(world: World) -> Any:
    return world.ml.online_endpoints.get(world.name("nothing")).name


@operation(
    "Endpoints", "`online_deployments.begin_delete` with traffic", ERROR, "10% of the traffic"
)
def delete_with_traffic(world: World) -> Any:
    return world.ml.online_deployments.begin_delete("green", _name(world)).result()


@operation("Endpoints", "`KubernetesOnlineEndpoint`", REFUSED, "`compute` is not served")
def kubernetes(world: World) -> Any:
    from azure.ai.ml.entities import KubernetesOnlineEndpoint

    made = KubernetesOnlineEndpoint(name=world.name("aks"), compute=world.name("nodes"))
    return world.ml.online_endpoints.begin_create_or_update(made).result().name


@operation("Endpoints", "`online_deployments.begin_delete`, `online_endpoints.begin_delete`")
def delete(world: World) -> Any:
    operations, name = world.ml.online_endpoints, _name(world)
    world.ml.online_deployments.begin_delete("red", name).result()
    there = [each.name for each in world.ml.online_deployments.list(name)]
    assert there == ["blue", "green"], there
    for each in (name, world.name("tokens")):
        operations.begin_delete(each).result()
    left = [endpoint.name for endpoint in operations.list()]
    assert name not in left and world.name("tokens") not in left, left
    world.ml.compute.begin_delete(world.name("serving")).result()
    return True
