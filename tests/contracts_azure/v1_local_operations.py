"""SDK v1: runs on the target `local`: the client's own Python, or a job on the cluster `local`."""

from __future__ import annotations

import sys
from typing import Any

from operations import World
from v1_run_operations import TRAIN, logging_environment
from v1_world import ended, operation, source, submit, text_of

LOGGING = """
import os
from azureml.core import Run
run = Run.get_context()
for n in range(3):
    run.log("loss", 1 / (n + 1))
run.complete()  # as tutorials do; a run that was submitted goes on until its script ends
os.makedirs("outputs", exist_ok=True)
with open("outputs/model.pkl", "w") as file:
    file.write("weights")
print("metrics are logged")
"""


def own_python() -> Any:
    """The Python that runs the client, which has azureml-core."""
    from azureml.core import Environment

    environment = Environment("own-python")
    environment.python.user_managed_dependencies = True
    environment.python.interpreter_path = sys.executable
    return environment


@operation("Jobs", "`submit`: compute target `local`", how="on the server's cluster `local`")
def local(world: World) -> Any:
    folder = source(world, "local", TRAIN)
    arguments = ["--n", 1, "a b'c"]
    return submit(world, "local", folder, compute_target="local", arguments=arguments).id


@operation("Jobs", "`submit`: target `local`, `user_managed_dependencies`; `run.log`")
def local_python(world: World) -> Any:
    folder = source(world, "local-own", LOGGING)
    options = {"compute_target": "local", "environment": own_python()}
    return submit(world, "local-own", folder, **options).id


@operation("Jobs", "`submit`: target `local`, a conda environment; `run.log`")
def local_conda(world: World) -> Any:
    folder = source(world, "local-conda", LOGGING)
    options = {"compute_target": "local", "environment": logging_environment()}
    return submit(world, "local-conda", folder, **options).id


@operation("Jobs", "`submit`: target `local`, `user_managed_dependencies`; exit code 3")
def failing(world: World) -> Any:
    folder = source(world, "local-failing", "import sys\nprint('no data')\nsys.exit(3)\n")
    options = {"compute_target": "local", "environment": own_python()}
    submit(world, "local-failing", folder, **options)
    run = ended(world, "local-failing", "Failed")
    error = run.get_details()["error"]["error"]
    assert "exit code 3" in error["message"] and "no data" in error["message"], error
    return run.id


@operation(
    "Jobs",
    "`submit`: target `local`, Docker",
    how="on the server's cluster `local`, without Docker",
)
def docker(world: World) -> Any:
    from azureml.core.runconfig import DockerConfiguration

    docker = DockerConfiguration(use_docker=True)
    folder = source(world, "local", TRAIN)
    options = {"compute_target": "local", "docker_runtime_config": docker}
    return submit(world, "local-docker", folder, **options).id


@operation("Jobs", "`cancel` of a run on the target `local`")
def cancel(world: World) -> Any:
    folder = source(world, "local-slow", "import time\ntime.sleep(600)\n")
    options = {"compute_target": "local", "environment": own_python()}
    run = submit(world, "local-slow", folder, **options)
    run.cancel()
    return ended(world, "local-slow", "Canceled").id


@operation("Jobs", "`wait_for_completion`, files of a run on the target `local`")
def files(world: World) -> Any:
    run = ended(world, "local")
    expected = {"user_logs/std_log.txt", "outputs/model.pt", "outputs/parts/a.txt"}
    assert expected <= set(run.get_file_names()), run.get_file_names()
    first = text_of(world, run, "user_logs/std_log.txt").splitlines()[0]
    assert first == """arguments ["--n", "1", "a b'c"]""", first
    assert run.get_details()["runDefinition"]["target"] == "local-cluster", run.get_details()
    ended(world, "local-docker")
    return run.get_snapshot_id()


@operation("Jobs", "`get_metrics`, `register_model` of a run on the target `local`")
def metrics(world: World) -> Any:
    for key in ("local-conda", "local-own"):
        run = ended(world, key)
        assert run.get_metrics() == {"loss": [1.0, 0.5, 1 / 3]}, run.get_metrics()
    model = run.register_model("v1-of-local", model_path="outputs/model.pkl")
    assert model.run_id == run.id, model
    return model.version
