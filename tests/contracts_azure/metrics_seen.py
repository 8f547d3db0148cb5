"""What a client sees of a run's metrics, as JSON; `azureml://` or http by its tracking address."""

import json
import sys

import mlflow

address, run = sys.argv[1:]
mlflow.set_tracking_uri(address)
client = mlflow.MlflowClient()
keys = sorted(client.get_run(run).data.metrics)
print(
    json.dumps(
        {
            key: [[metric.step, metric.value] for metric in client.get_metric_history(run, key)]
            for key in keys
        }
    )
)
