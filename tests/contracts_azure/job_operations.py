"""Jobs: creating, seeing, changing; ended_job_operations.py looks at how they ended."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from typing import Any

from operations import ERROR, World, operation

ENVIRONMENT = "azureml:python@latest"
PRINT = "import os, sys\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])\n"
SLOW = "import time\nfor n in range(8):\n    print('line', n)\n    time.sleep(0.5)\n"
OUTPUTS = """
import argparse, os, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--out"); parser.add_argument("--times", type=int)
given = parser.parse_args()
print("first line")
os.makedirs("outputs", exist_ok=True)
pathlib.Path("outputs/model.txt").write_text("weights")
pathlib.Path(given.out, "table.csv").write_text("a,b\\n" * given.times)
print("last line", os.environ["MINE"])
"""


def command_job(world: World, name: str, **options: Any) -> Any:
    from azure.ai.ml import command

    document = {
        "name": world.name(name),
        "experiment_name": world.name("contract"),
        "environment": ENVIRONMENT,
        "compute": world.name("nodes"),
        **options,
    }
    return command(**document)


def create(world: World, name: str, **options: Any) -> Any:
    made = world.ml.jobs.create_or_update(command_job(world, name, **options))
    assert made.name == world.name(name), made.name
    assert made.status, "a status"
    return {"name": made.name, "status": made.status}


@operation("Compute", "`compute.begin_create_or_update`: AmlCompute")
def cluster(world: World) -> Any:
    from azure.ai.ml.entities import AmlCompute

    made = AmlCompute(
        name=world.name("nodes"), size="STANDARD_DS3_V2", min_instances=0, max_instances=3
    )
    compute = world.ml.compute.begin_create_or_update(made).result()
    assert (compute.provisioning_state, compute.max_instances) == ("Succeeded", 3), compute
    return compute.size


@operation("Jobs", "`jobs.create_or_update`: command with code, inputs and outputs")
def with_code(world: World) -> Any:
    from azure.ai.ml import Output

    world.write("code/train.py", OUTPUTS)
    return create(
        world,
        "whole",
        code=str(world.folder / "code"),
        command="python train.py --out ${{outputs.table}} --times ${{inputs.times}}",
        inputs={"times": 3},
        outputs={"table": Output(type="uri_folder")},
        environment_variables={"MINE": "of my own"},
        display_name="the whole thing",
        description="all that a command job has",
        tags={"kind": "contract"},
    )


@operation("Jobs", "`jobs.stream`")
def stream(world: World) -> Any:
    world.write(
        "slow/slow.py",
        "import time\nfor n in range(8):\n    print('line', n)\n    time.sleep(0.5)\n",
    )
    create(world, "slow", code=str(world.folder / "slow"), command="python slow.py")
    output = io.StringIO()
    with redirect_stdout(output):
        world.ml.jobs.stream(world.name("slow"))
    text = output.getvalue()
    lines = [line for line in text.splitlines() if line.startswith("line ")]
    assert lines == [f"line {number}" for number in range(8)], text
    assert world.ml.jobs.get(world.name("slow")).status == "Completed"
    return text


@operation("Jobs", "`jobs.create_or_update`: the same again is the same job")
def again(world: World) -> Any:
    made = create(world, "twice", command="echo twice")
    assert create(world, "twice", command="echo twice")["name"] == made["name"]
    return made


@operation("Jobs", "`jobs.create_or_update`: the name of another job", ERROR, "exists")
def taken(world: World) -> Any:
    return create(world, "twice", command="echo another thing")


@operation("Jobs", "`jobs.create_or_update`: distribution PyTorch")
def pytorch(world: World) -> Any:
    from azure.ai.ml import PyTorchDistribution

    world.write("ranks/ranks.py", PRINT)
    return create(
        world,
        "pytorch",
        code=str(world.folder / "ranks"),
        command="python ranks.py",
        instance_count=1,
        distribution=PyTorchDistribution(process_count_per_instance=2),
    )


@operation("Jobs", "`jobs.create_or_update`: distribution Mpi")
def mpi(world: World) -> Any:
    from azure.ai.ml import MpiDistribution

    return create(
        world,
        "mpi",
        command="echo rank $OMPI_COMM_WORLD_RANK",
        distribution=MpiDistribution(process_count_per_instance=1),
    )


@operation("Jobs", "`jobs.create_or_update`: distribution TensorFlow")
def tensorflow(world: World) -> Any:
    from azure.ai.ml import TensorFlowDistribution

    return create(
        world,
        "tensorflow",
        command='echo "config $TF_CONFIG"',
        distribution=TensorFlowDistribution(worker_count=1),
    )


@operation("Jobs", "`jobs.create_or_update`: distribution Ray", "refused", "ray")
def ray(world: World) -> Any:
    from azure.ai.ml import RayDistribution

    return create(
        world, "ray", command="echo ray", distribution=RayDistribution(include_dashboard=False)
    )


@operation("Jobs", "`jobs.create_or_update`: limits, shm_size, properties")
def limits(world: World) -> Any:
    from azure.ai.ml.entities import CommandJobLimits

    job = command_job(world, "limits", command="echo limited", shm_size="1g")
    job.limits = CommandJobLimits(timeout=600)
    made = world.ml.jobs.create_or_update(job)
    received = world.ml.jobs.get(made.name)
    assert received.limits.timeout == 600, received.limits
    return {"name": made.name, "shm_size": received.resources.shm_size}


@operation("Jobs", "`jobs.create_or_update`: a job that fails")
def failing(world: World) -> Any:
    world.write("bad/bad.py", "print('before')\nraise ValueError('no such column: age')\n")
    return create(world, "failing", code=str(world.folder / "bad"), command="python bad.py")


@operation("Jobs", "`jobs.create_or_update`: a compute that is not there", ERROR, "gpu-8")
def unknown_compute(world: World) -> Any:
    return create(world, "nowhere", command="echo", compute="gpu-8")


@operation("Jobs", "`jobs.create_or_update`: an environment that is not there", ERROR, "nope")
def unknown_environment(world: World) -> Any:
    return create(world, "bare", command="echo", environment="azureml:nope:7")


@operation(
    "Jobs",
    "`jobs.create_or_update`: compute `local`",
    how="on the server's cluster `local`, not in a container on the client's machine",
)
def local(world: World) -> Any:
    return create(world, "local", command="echo local", compute="local")


@operation("Jobs", "`load_job` of a YAML file")
def from_yaml(world: World) -> Any:
    from azure.ai.ml import load_job

    world.write("yaml/src/hello.py", "print('from a file')\n")
    file = world.write(
        "yaml/job.yml",
        "$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json\n"
        "command: python hello.py\ncode: src\n"
        f"environment: {ENVIRONMENT}\ncompute: azureml:local\n",
    )
    job = load_job(file)
    job.name = world.name("yaml")
    return world.ml.jobs.create_or_update(job).name


@operation("Jobs", "`jobs.cancel`")
def cancel(world: World) -> Any:
    made = create(world, "canceled", command="sleep 600")
    world.ml.jobs.begin_cancel(made["name"]).wait()
    return made["name"]


@operation("Jobs", "`jobs.show_services`")
def show_services(world: World) -> Any:
    import time

    from azure.ai.ml.entities import VsCodeJobService

    # The environment has no code-server: the service says so, and the job runs on.
    made = create(
        world, "services", command="sleep 600", services={"the editor": VsCodeJobService()}
    )
    try:
        services, deadline = None, time.monotonic() + 120
        while not services and time.monotonic() < deadline:
            time.sleep(0.5)
            services = world.ml.jobs.show_services(made["name"])
        assert services and services["the editor"].type == "VSCode", services
        assert world.ml.jobs.get(made["name"]).services["the editor"].type == "vs_code"
        return services["the editor"].status
    finally:
        world.ml.jobs.begin_cancel(made["name"]).wait()


@operation("Jobs", "`jobs.get`")
def get(world: World) -> Any:
    job = world.ml.jobs.get(world.name("whole"))
    assert job.display_name == "the whole thing", job.display_name
    assert job.description == "all that a command job has", job.description
    assert job.tags == {"kind": "contract"}, job.tags
    assert job.experiment_name == world.name("contract"), job.experiment_name
    assert job.environment_variables["MINE"] == "of my own", job.environment_variables
    job.dump(str(world.folder / "whole.yml"))
    assert "times: '3'" in (world.folder / "whole.yml").read_text().replace('"', "'")
    assert "${{inputs.times}}" in job.command, job.command
    return {"compute": str(job.compute), "environment": str(job.environment)}


@operation("Jobs", "`jobs.get` of one that is not there", ERROR, "no-such-job")
def get_absent(world: World) -> Any:
    return world.ml.jobs.get("no-such-job")


@operation("Jobs", "`jobs.create_or_update` of a job that is there: tags and display name")
def update(world: World) -> Any:
    job = world.ml.jobs.get(world.name("whole"))
    job.tags["added"] = "later"
    job.display_name = "renamed"
    changed = world.ml.jobs.create_or_update(job)
    assert changed.display_name == "renamed", changed.display_name
    job = world.ml.jobs.get(world.name("whole"))
    assert job.tags == {"kind": "contract", "added": "later"}, job.tags
    assert job.display_name == "renamed", job.display_name
    return job.tags


@operation("Jobs", "code that was uploaded before is not uploaded again")
def deduplicated(world: World) -> Any:
    import logging

    world.write("same/train.py", OUTPUTS + f"# {world.suffix}\n")
    sent: list[str] = []

    class Requests(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            if "Request method: 'PUT'" in text and "/LocalUpload/" in text:
                sent.append(text)

    heard = logging.getLogger("azure.core.pipeline.policies.http_logging_policy")
    handler, level = Requests(), heard.level
    heard.addHandler(handler)
    heard.setLevel(logging.INFO)
    counts = []
    try:
        for name in ("first", "second"):
            sent.clear()
            create(world, name, code=str(world.folder / "same"), command="python -c 0")
            counts.append(len(sent))
    finally:
        heard.removeHandler(handler)
        heard.setLevel(level)
    assert counts[0] > 0 and counts[1] == 0, counts
    return counts
