"""SDK v1: submitting; v1_ended_run_operations.py looks at how the runs ended."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from operations import ERROR, World
from v1_world import EXPERIMENT, ended, operation, source, submit, workspace

HERE = Path(__file__).resolve().parent
TRAIN = """
import json, os, sys
print("arguments", json.dumps(sys.argv[1:]))
os.makedirs("outputs/parts", exist_ok=True)
for name in ("model.pt", "parts/a.txt"):
    with open(f"outputs/{name}", "w") as file:
        file.write("weights")
print("last line")
"""
SLOW = "import time\nfor n in range(6):\n    print('line', n, flush=True)\n    time.sleep(0.5)\n"
RANKS = """
import os
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "OMPI_COMM_WORLD_RANK")
print(" ".join(f"{name}={os.environ.get(name)}" for name in names))
"""


def logging_environment() -> Any:
    """A conda environment with azureml-core."""
    from azureml.core import Environment
    from azureml.core.conda_dependencies import CondaDependencies

    environment = Environment("v1-own")
    environment.python.conda_dependencies = CondaDependencies.create(
        python_version=f"{sys.version_info[0]}.{sys.version_info[1]}",
        pip_packages=["azureml-core==1.61.0.post4", "setuptools<81"],
    )
    return environment


@operation("Jobs", "`Environment` with azureml-core; `submit` of a script that logs")
def in_job(world: World) -> Any:
    environment = logging_environment()
    script = (HERE / "in_job_v1" / "train.py").read_text()
    run = submit(world, "in-job", source(world, "in-job", script), environment=environment)
    assert run.get_status() not in ("Completed", "Failed"), "submit waits for nothing"
    return run.id


@operation("Jobs", "`submit`: a script, integers and `$NAME` in its arguments")
def script(world: World) -> Any:
    arguments = ["--num_epochs", 30, "--dir", "./outputs", "$AZUREML_RUN_ID", "a b'c", "$NOPE"]
    run = submit(world, "script", source(world, "script", TRAIN), arguments=arguments)
    assert run.experiment.name == EXPERIMENT, run
    return run.id


@operation("Jobs", "`submit`: `command`, `environment_variables`")
def command(world: World) -> Any:
    from azureml.core import Experiment, ScriptRunConfig
    from v1_world import CLUSTER, plain_environment

    config = ScriptRunConfig(
        source_directory=str(source(world, "command", RANKS)),
        command=["python", "train.py", "&&", "echo", "$MINE"],
        compute_target=CLUSTER,
        environment=plain_environment(world),
    )
    config.run_config.environment_variables["MINE"] = "of my own"
    world.seen["command"] = Experiment(workspace(world), EXPERIMENT).submit(config)
    return world.seen["command"].id


@operation("Jobs", "`submit`: `PyTorchConfiguration`, 4 processes on 2 nodes")
def pytorch(world: World) -> Any:
    from azureml.core.runconfig import PyTorchConfiguration

    distribution = PyTorchConfiguration(communication_backend="Gloo", process_count=4, node_count=2)
    folder = source(world, "ranks", RANKS)
    return submit(world, "pytorch", folder, distributed_job_config=distribution).id


@operation("Jobs", "`submit`: `PyTorchConfiguration`, a command on each of 2 nodes")
def per_node(world: World) -> Any:
    from azureml.core.runconfig import PyTorchConfiguration

    folder = source(world, "ranks", RANKS)
    command = "echo node $NODE_RANK at ${MASTER_PORT:+a port}"
    options = {"command": command, "distributed_job_config": PyTorchConfiguration(node_count=2)}
    return submit(world, "per-node", folder, **options).id


@operation("Jobs", "`submit`: `MpiConfiguration`")
def mpi(world: World) -> Any:
    from azureml.core.runconfig import MpiConfiguration

    distribution = MpiConfiguration(process_count_per_node=2, node_count=1)
    folder = source(world, "ranks", RANKS)
    return submit(world, "mpi", folder, distributed_job_config=distribution).id


@operation("Jobs", "`submit`: a run that fails")
def failing(world: World) -> Any:
    folder = source(world, "bad", "print('before')\nraise ValueError('no such column: age')\n")
    return submit(world, "failing", folder).id


@operation("Jobs", "`submit`: `max_run_duration_seconds`")
def limited(world: World) -> Any:
    folder = source(world, "ranks", RANKS)
    return submit(world, "limited", folder, command="sleep 300", max_run_duration_seconds=2).id


@operation("Jobs", "`cancel`")
def cancel(world: World) -> Any:
    run = submit(world, "canceled", source(world, "ranks", RANKS), command="sleep 300")
    run.cancel()
    return run.id


@operation("Jobs", "`submit`: a compute that is not there", ERROR, "no-such-cluster")
def unknown_compute(world: World) -> Any:
    folder = source(world, "ranks", RANKS)
    return submit(world, "nowhere", folder, compute_target="no-such-cluster").id


@operation("Jobs", "`submit`: 3 processes on 2 nodes", ERROR, "process_count=3")
def uneven(world: World) -> Any:
    from azureml.core.runconfig import PyTorchConfiguration

    distribution = PyTorchConfiguration(process_count=3, node_count=2)
    folder = source(world, "ranks", RANKS)
    return submit(world, "uneven", folder, distributed_job_config=distribution).id


@operation("Jobs", "a communication backend that does not exist", ERROR, "carrier")
def unknown_backend(world: World) -> Any:
    from azureml.core.runconfig import PyTorchConfiguration

    distribution = PyTorchConfiguration(communication_backend="carrier", node_count=2)
    folder = source(world, "ranks", RANKS)
    return submit(world, "backend", folder, distributed_job_config=distribution).id


@operation("Jobs", "`ScriptRunConfig`: a script and a command", ERROR, "command")
def both(world: World) -> Any:
    folder = source(world, "ranks", RANKS)
    return submit(world, "both", folder, script="train.py", command="true").id


@operation("Jobs", "`azureml.telemetry.set_diagnostics_collection`", how="nothing is sent")
def telemetry(world: World) -> Any:
    from azureml.telemetry import set_diagnostics_collection

    set_diagnostics_collection(send_diagnostics=True)
    return True


@operation("Jobs", "`wait_for_completion(show_output=True)`")
def follow(world: World) -> Any:
    import io
    from contextlib import redirect_stdout

    run = submit(world, "slow", source(world, "slow", SLOW))
    output = io.StringIO()
    with redirect_stdout(output):
        details = run.wait_for_completion(show_output=True)
    text = output.getvalue()
    lines = [line for line in text.splitlines() if line.startswith("line ")]
    assert lines == [f"line {number}" for number in range(6)], text
    assert details["status"] == "Completed", details
    assert f"RunId: {run.id}" in text and "Execution Summary" in text, text
    return text


@operation("Jobs", "`Experiment.start_logging`: a run of the client's own")
def interactive(world: World) -> Any:
    from azureml.core import Experiment

    run = Experiment(workspace(world), "v1-interactive").start_logging(snapshot_directory=None)
    run.log("loss", 1.5)
    # In one millisecond, perhaps, and equal
    run.log("loss", 0.5)
    run.log("loss", 0.5)
    run.upload_file("notes/seen.txt", str(world.write("seen.txt", "seen")))
    child = run.child_run("part")
    child.log("inner", 1)
    child.complete()
    run.complete()
    assert run.get_metrics() == {"loss": [1.5, 0.5, 0.5]}, run.get_metrics()
    assert run.get_status() == "Completed", run.get_status()
    assert [child_run.id for child_run in run.get_children()] == [child.id]
    assert "notes/seen.txt" in run.get_file_names()
    return run.get_metrics()


@operation("Jobs", "`Experiment.start_logging` as a context that fails")
def interactive_failed(world: World) -> Any:
    from azureml.core import Experiment

    try:
        with Experiment(workspace(world), "v1-interactive").start_logging(
            snapshot_directory=None
        ) as run:
            raise ValueError("no such column: age")
    except ValueError:
        pass
    assert run.get_status() == "Failed", run.get_status()
    return run.get_details().get("error")


@operation("Jobs", "`submit` of what was submitted before: its snapshot is not sent again")
def same_snapshot(world: World) -> Any:
    first = ended(world, "slow")
    again = submit(world, "slow-again", Path(world.folder / "slow"))
    assert again.get_snapshot_id() == first.get_snapshot_id()
    again.cancel()
    return again.get_snapshot_id()
