"""A job's script as people write it for Azure ML: its own run, by every way there is."""

import os
import subprocess
import sys

from azure.ai.ml import MLClient
from azure.identity import DefaultAzureCredential

import mlflow

own = os.environ["AZUREML_RUN_ID"]
# MLflow takes MLFLOW_RUN_ID away when it has read it.
given = dict(os.environ)

# Plain MLflow, by the variables that every job has
mlflow.log_metric("plain", 1.5, step=1)
mlflow.log_param("way", "plain")

# The SDK, with the job's own right
ml = MLClient(
    DefaultAzureCredential(),
    os.environ["AZUREML_ARM_SUBSCRIPTION"],
    os.environ["AZUREML_ARM_RESOURCEGROUP"],
    os.environ["AZUREML_ARM_WORKSPACE_NAME"],
)
assert ml.jobs.get(own).status == "Running"

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
subprocess.run([sys.executable, "-c", PLUGIN, uri], env=given, check=True)
found = mlflow.get_run(own)
assert found.data.metrics == {"plain": 1.5, "plugin": 1.0}, found.data.metrics
assert found.info.status == "RUNNING", "a client does not end its job"
print("all is well")
