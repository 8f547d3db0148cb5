"""A job's script as people write it for Azure ML: its own run, by every way there is."""

import os
import subprocess
import sys

from azure.ai.ml import MLClient
from azure.identity import DefaultAzureCredential

import mlflow

run_id = os.environ["AZUREML_RUN_ID"]
# MLflow takes MLFLOW_RUN_ID away when it has read it.
environ = dict(os.environ)

# Plain MLflow, by the variables that every job has
mlflow.log_metric("plain", 1.5, step=1)
mlflow.log_param("way", "plain")

# The SDK, with the job's own permissions
ml = MLClient(
    DefaultAzureCredential(),
    os.environ["AZUREML_ARM_SUBSCRIPTION"],
    os.environ["AZUREML_ARM_RESOURCEGROUP"],
    os.environ["AZUREML_ARM_WORKSPACE_NAME"],
)
assert ml.jobs.get(run_id).status == "Running"

# The plug-in, in a process of its own
PLUGIN = """
import sys, mlflow, pathlib
mlflow.set_tracking_uri(sys.argv[1])
for step in range(3):
    mlflow.log_metric("plugin", step / 2, step=step)
pathlib.Path("seen.txt").write_text("by the plug-in")
mlflow.log_artifact("seen.txt", "notes")
mlflow.end_run()
"""
uri = ml.workspaces.get(ml.workspace_name).mlflow_tracking_uri
subprocess.run([sys.executable, "-c", PLUGIN, uri], env=environ, check=True)
run = mlflow.get_run(run_id)
assert run.data.metrics == {"plain": 1.5, "plugin": 1.0}, run.data.metrics
assert run.info.status == "RUNNING", "a client does not end its job"
print("all is well")
