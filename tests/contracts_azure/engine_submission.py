"""Submit a job to a cluster by its name, as a user of SDK v1 or v2 does, and wait for its end.

    python engine_submission.py v1 CLUSTER PYTHON FOLDER

Runs in the client's own Python, in a folder with a config.json; prints one line of JSON. `PYTHON`
is what the job's nodes run the script `train.py` of FOLDER with.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def by_v1(cluster: str, python: str, folder: str) -> dict[str, Any]:
    from azureml.core import Dataset, Environment, Experiment, ScriptRunConfig, Workspace
    from azureml.core.runconfig import PyTorchConfiguration

    workspace = Workspace.from_config()
    Path("data").mkdir()
    Path("data", "number.txt").write_text("4.5")
    store = workspace.get_default_datastore()
    data = Dataset.File.upload_directory("data", target=(store, "engine-data"))
    data.register(workspace, "engine-data", create_new_version=True)
    config = ScriptRunConfig(
        source_directory=folder,
        command=[python, "-W", "ignore", "train.py"],
        compute_target=cluster,
        environment=Environment.get(workspace, "python"),
        distributed_job_config=PyTorchConfiguration(process_count=2, node_count=2),
    )
    run = Experiment(workspace, "engines").submit(config)
    print("submitted", run.id, flush=True)
    run.wait_for_completion(raise_on_error=False)
    return {
        "name": run.id,
        "status": run.get_status(),
        "metrics": run.get_metrics(),
        "tags": run.get_tags(),
        "files": run.get_file_names(),
        "children": [child.get_metrics() for child in run.get_children()],
    }


def by_v2(cluster: str, python: str, folder: str) -> dict[str, Any]:
    from azure.ai.ml import MLClient, command
    from azure.identity import DefaultAzureCredential

    client = MLClient.from_config(DefaultAzureCredential())
    job = client.jobs.create_or_update(
        command(
            code=folder,
            command=f"{python} -W ignore in_job.py",
            environment="azureml:python@latest",
            compute=cluster,
            experiment_name="engines",
        )
    )
    print("submitted", job.name, flush=True)
    client.jobs.stream(job.name)
    return {"name": job.name, "status": client.jobs.get(job.name).status}


if __name__ == "__main__":
    submit = by_v1 if sys.argv[1] == "v1" else by_v2
    print(json.dumps(submit(*sys.argv[2:])))
