"""A loop that logs by hand: a metric a step, parameters, tags, files, a model and a run within."""

import torch
from sklearn.datasets import load_digits

import mlflow

torch.manual_seed(7)
dataset = load_digits()
images_NF = torch.tensor(dataset.data / 16, dtype=torch.float32)
digits_N = torch.tensor(dataset.target)
model = torch.nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

with mlflow.start_run():
    mlflow.log_params({"lr": 0.5, "layers": 1, "note": "ünïcode, 100 %"})
    mlflow.set_tag("purpose", "a test")
    for step in range(120):
        loss = torch.nn.functional.cross_entropy(model(images_NF), digits_N)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mlflow.log_metric("loss", loss.item(), step=step)
    mlflow.log_metric("a name/with parts", 1)
    mlflow.log_dict({"classes": 10}, "notes/classes.json")
    mlflow.log_text("done", "done.txt")
    mlflow.pytorch.log_model(
        model,
        name="model",
        input_example=images_NF[:2].numpy(),
        pip_requirements=["torch"],
    )
    with mlflow.start_run(nested=True):
        accuracy = (model(images_NF).argmax(1) == digits_N).float().mean()
        mlflow.log_metrics({"accuracy": accuracy.item(), "nothing": float("nan")})
