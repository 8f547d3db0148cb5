"""Create one job, and print what the client says of it as JSON."""

import json
import sys

from azure.ai.ml import MLClient, command
from azure.identity import DefaultAzureCredential

config, name = sys.argv[1:]
ml = MLClient.from_config(DefaultAzureCredential(), path=config)
ml.workspaces.get(ml.workspace_name)
# With a version and no code the first thing that is asked is the creation.
job = command(name=name, command="echo once", environment="azureml:python:1", compute="local")
print("now", flush=True)
sys.stdin.readline()
made = ml.jobs.create_or_update(job)
print(json.dumps({"name": made.name, "status": made.status}))
