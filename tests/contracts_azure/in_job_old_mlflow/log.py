"""What MLflow 1.23 does with files inside a job: it sends no token with them."""

import pathlib
import urllib.error
import urllib.request

import mlflow.pyfunc
from mlflow.tracking import MlflowClient

import mlflow


class Echo(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    def predict(self, context: object, model_input: object) -> object:
        return model_input


folder = pathlib.Path("files")
folder.mkdir()
(folder / "weights.txt").write_text("1 2 3")
mlflow.log_metric("loss", 0.5, step=1)
mlflow.log_artifacts("files", "./weights")
mlflow.log_artifact("files/weights.txt")
mlflow.log_param("where", mlflow.get_artifact_uri())
print("logs to", mlflow.get_artifact_uri())

client = MlflowClient()
run = mlflow.active_run().info.run_id
print("listed", [file.path for file in client.list_artifacts(run, "weights")])
print("read", pathlib.Path(client.download_artifacts(run, "weights/weights.txt")).read_text())

no_packages = {"name": "none", "dependencies": []}
name = "old-mlflow"
mlflow.pyfunc.log_model(
    "model", python_model=Echo(), conda_env=no_packages, registered_model_name=name
)
print("of the run", mlflow.pyfunc.load_model(f"runs:/{run}/model").predict([3]))
print("registered", mlflow.pyfunc.load_model(f"models:/{name}/1").predict([4]))
print("source", client.get_model_version(name, "1").source)

files = mlflow.get_tracking_uri() + "/api/2.0/mlflow-artifacts/artifacts"
path = mlflow.get_artifact_uri().split(":/", 1)[1]
for refused in ("/" + path.split("/", 1)[1], "?path=" + path.replace(run, "another")):
    try:
        urllib.request.urlopen(files + refused + "/weights.txt")
    except urllib.error.HTTPError as error:
        print("refused", error.code)
