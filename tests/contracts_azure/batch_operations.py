"""Batch endpoints, their deployments and the jobs that score.

Not among all_operations yet: after the whole list of others, the endpoint's default named a
deployment that did not exist.
"""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from typing import Any

from job_operations import ENVIRONMENT
from operations import ERROR, REFUSED, World, operation

SCORE = """
import os

def init():
    global weight
    (name,) = [os.path.join(top, name) for top, _, names in os.walk(os.environ["AZUREML_MODEL_DIR"])
               for name in names]
    with open(name) as file:
        weight = int(file.read())

def run(mini_batch):
    print("mini-batch of", len(mini_batch))
    rows = []
    for path in mini_batch:
        with open(path) as file:
            rows.append(f"{os.path.basename(path)} {weight * int(file.read())}")
    return rows
"""
ENDPOINT = """
$schema: https://azuremlschemas.azureedge.net/latest/batchEndpoint.schema.json
name: {name}
description: triples numbers
tags: {{team: birds}}
"""
DEPLOYMENT = """
$schema: https://azuremlschemas.azureedge.net/latest/modelBatchDeployment.schema.json
name: blue
endpoint_name: {endpoint}
type: model
model:
  path: ./weights
code_configuration:
  code: ./batch
  scoring_script: score.py
environment: {environment}
compute: azureml:{cluster}
resources:
  instance_count: 1
settings:
  mini_batch_size: 2
  max_concurrency_per_instance: 2
  output_action: append_row
  output_file_name: rows.txt
  retry_settings: {{max_retries: 1, timeout: 60}}
  error_threshold: 0
  logging_level: info
"""
FILES = 5


def _name(world: World) -> str:
    return world.name("triple")


def _input(world: World) -> Any:
    from azure.ai.ml import Input

    for number in range(FILES):
        world.write(f"numbers/{number}.txt", str(number))
    return Input(type="uri_folder", path=str(world.folder / "numbers"))


@operation("Endpoints", "`batch_endpoints.begin_create_or_update`: `load_batch_endpoint`")
def create(world: World) -> Any:
    from azure.ai.ml import load_batch_endpoint

    file = world.write("batch-endpoint.yml", ENDPOINT.format(name=_name(world)))
    made = world.ml.batch_endpoints.begin_create_or_update(load_batch_endpoint(file)).result()
    assert (made.name, made.tags) == (_name(world), {"team": "birds"}), made
    assert made.provisioning_state == "Succeeded", made.provisioning_state
    assert made.scoring_uri.endswith(f"/{_name(world)}/jobs"), made.scoring_uri
    return made.auth_mode


@operation(
    "Endpoints",
    "`batch_deployments.begin_create_or_update`: `load_model_batch_deployment`, inline model",
)
def deploy(world: World) -> Any:
    from azure.ai.ml.entities._load_functions import load_model_batch_deployment

    world.write("weights/weight.txt", "3")
    world.write("batch/score.py", SCORE)
    names = {"endpoint": _name(world), "cluster": world.name("nodes")}
    text = DEPLOYMENT.format(**names, environment=ENVIRONMENT)
    deployment = load_model_batch_deployment(world.write("batch-blue.yml", text))
    made = world.ml.batch_deployments.begin_create_or_update(deployment).result()
    assert (made.name, made.mini_batch_size, made.output_file_name) == ("blue", 2, "rows.txt"), made
    assert (made.retry_settings.max_retries, made.retry_settings.timeout) == (1, 60)
    assert made.compute.endswith(f"/computes/{world.name('nodes')}"), made.compute
    return [made.model, made.environment]


@operation("Endpoints", "`batch_endpoints.invoke` of a local folder; `jobs.stream` of its job")
def invoke(world: World) -> Any:
    job = world.ml.batch_endpoints.invoke(endpoint_name=_name(world), input=_input(world))
    world.seen["batch-job"] = job.name
    output = io.StringIO()
    with redirect_stdout(output):
        world.ml.jobs.stream(job.name)
    assert world.ml.jobs.get(job.name).status == "Completed", output.getvalue()
    return job.name.startswith("batchjob-")


@operation(
    "Endpoints",
    "`jobs.list(parent_job_name=…)` of a batch endpoint's job; `jobs.download` of `score`",
    how="the job is its own only step",
)
def download(world: World) -> Any:
    (step,) = list(world.ml.jobs.list(parent_job_name=world.seen["batch-job"]))
    to = world.folder / "scores"
    world.ml.jobs.download(name=step.name, download_path=to, output_name="score")
    rows = sorted((to / "named-outputs" / "score" / "rows.txt").read_text().splitlines())
    assert rows == [f"{number}.txt {3 * number}" for number in range(FILES)], rows
    return rows


@operation("Endpoints", "`BatchDeployment`: what was read, changed; `defaults.deployment_name`")
def update(world: World) -> Any:
    from azure.ai.ml.constants import BatchDeploymentOutputAction
    from azure.ai.ml.entities import BatchDeployment, BatchRetrySettings, CodeConfiguration

    blue = world.ml.batch_deployments.get("blue", _name(world))
    green = BatchDeployment(
        name="green",
        endpoint_name=_name(world),
        model=blue.model,
        environment=ENVIRONMENT,
        code_configuration=CodeConfiguration(
            code=str(world.folder / "batch"), scoring_script="score.py"
        ),
        compute=world.name("nodes"),
        instance_count=1,
        mini_batch_size=10,
        output_action=BatchDeploymentOutputAction.SUMMARY_ONLY,
        retry_settings=BatchRetrySettings(max_retries=2, timeout=90),
    )
    made = world.ml.batch_deployments.begin_create_or_update(green).result()
    assert made.output_action == BatchDeploymentOutputAction.SUMMARY_ONLY, made.output_action
    read = world.ml.batch_deployments.get("green", _name(world))
    read.mini_batch_size, read.tags = 7, {"round": "2"}
    changed = world.ml.batch_deployments.begin_create_or_update(read).result()
    assert (changed.mini_batch_size, changed.tags) == (7, {"round": "2"}), changed
    assert changed.model == made.model and changed.retry_settings.timeout == 90
    endpoint = world.ml.batch_endpoints.get(_name(world))
    assert _default(endpoint) == "blue", endpoint.defaults
    endpoint.defaults.deployment_name = "green"
    chosen = world.ml.batch_endpoints.begin_create_or_update(endpoint).result()
    assert _default(chosen) == "green", chosen.defaults
    return _default(chosen)


# The client sends a deployment's name with all later requests of the process as well.
@operation(
    "Endpoints", "`batch_endpoints.invoke`: `deployment_name`, `params_override`, `job_name`"
)
def invoke_changed(world: World) -> Any:
    job = world.ml.batch_endpoints.invoke(
        endpoint_name=_name(world),
        deployment_name="blue",
        input=_input(world),
        job_name=world.name("rescored"),
        experiment_name=world.name("contract"),
        params_override=[
            {"mini_batch_size": "5"},
            {"compute.instance_count": "1"},
            {"output_file_name": "mine.txt"},
        ],
    )
    assert job.name == world.name("rescored"), job.name
    world.ml.jobs.begin_cancel(job.name).result()
    return job.name


@operation("Endpoints", "`batch_endpoints.list_jobs`, `batch_deployments.list_jobs`")
def list_jobs(world: World) -> Any:
    made = [world.name("rescored"), world.seen["batch-job"]]
    of_endpoint = world.ml.batch_endpoints.list_jobs(_name(world))
    assert [job.name for job in of_endpoint] == made, of_endpoint
    of_blue = world.ml.batch_deployments.list_jobs(_name(world), name="blue")
    assert [job.name for job in of_blue] == made, of_blue
    return len(made)


@operation("Endpoints", "`batch_endpoints.get`, `list`; `batch_deployments.get`, `list`")
def list_all(world: World) -> Any:
    assert _name(world) in [endpoint.name for endpoint in world.ml.batch_endpoints.list()]
    there = [each.name for each in world.ml.batch_deployments.list(_name(world))]
    assert there == ["blue", "green"], there
    assert world.ml.batch_deployments.get("green", _name(world)).endpoint_name == _name(world)
    return there


@operation("Endpoints", "`batch_endpoints.get` of one that is not there", ERROR, "does not exist")
def absent(world: World) -> Any:
    return world.ml.batch_endpoints.get(world.name("nothing")).name


@operation("Endpoints", "`batch_deployments.begin_delete` of the default", ERROR, "is the default")
def delete_default(world: World) -> Any:
    return world.ml.batch_deployments.begin_delete("green", _name(world)).result()


@operation("Endpoints", "`batch_endpoints`: `auth_mode='key'`", REFUSED, "is not served")
def keys(world: World) -> Any:
    from azure.ai.ml.entities import BatchEndpoint

    made = BatchEndpoint(name=world.name("keyed"), auth_mode="key")
    return world.ml.batch_endpoints.begin_create_or_update(made).result().name


@operation("Endpoints", "`batch_deployments.begin_delete`, `batch_endpoints.begin_delete`")
def delete(world: World) -> Any:
    world.ml.batch_deployments.begin_delete("blue", _name(world)).result()
    assert [each.name for each in world.ml.batch_deployments.list(_name(world))] == ["green"]
    world.ml.batch_endpoints.begin_delete(_name(world)).result()
    assert _name(world) not in [endpoint.name for endpoint in world.ml.batch_endpoints.list()]
    return True


def _default(endpoint: Any) -> str:
    defaults = endpoint.defaults
    name = defaults["deployment_name"] if isinstance(defaults, dict) else defaults.deployment_name
    return str(name)
