"""What every version of azureml-mlflow logs inside a job, and reads back."""

import pathlib
import sys

import mlflow.pyfunc
from mlflow.tracking import MlflowClient

import mlflow


class Echo(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    def predict(self, context: object, model_input: object, params: object = None) -> object:
        return model_input


name = sys.argv[1]
pathlib.Path("files").mkdir()
pathlib.Path("files/weights.txt").write_text("1 2 3")
mlflow.log_metric("loss", 0.5, step=1)
mlflow.log_param("rate", 0.1)
mlflow.set_tag("team", "vision")
mlflow.log_artifact("files/weights.txt")
mlflow.log_artifacts("files", "weights")

client = MlflowClient()
run = mlflow.active_run().info.run_id
print("logs to", mlflow.get_tracking_uri())
print("read", pathlib.Path(client.download_artifacts(run, "weights/weights.txt")).read_text())
print("stored", client.get_run(run).data.metrics, client.get_run(run).data.params)

path = "name" if mlflow.__version__.startswith("3.") else "artifact_path"
no_packages = {"name": "none", "dependencies": []}
mlflow.pyfunc.log_model(
    python_model=Echo(), conda_env=no_packages, registered_model_name=name, **{path: "model"}
)
print("of the run", mlflow.pyfunc.load_model(f"runs:/{run}/model").predict([3]))
print("registered", mlflow.pyfunc.load_model(f"models:/{name}/1").predict([4]))
