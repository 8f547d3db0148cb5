"""The curated environment holds what its label says, and each component does one real step."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from end_to_end.yard_under_test import Yard

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(900)]

NAME = "acpt-pytorch-2.13-cpu"

STEPS = """
import importlib.metadata, importlib.util, json, re, warnings
warnings.simplefilter("ignore")
import torch

def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()

found = {normal(one.metadata["Name"]): one.version for one in importlib.metadata.distributions()}
json.dump(found, open("outputs/packages.json", "w"))
importable = {
    normal(name)
    for module, names in importlib.metadata.packages_distributions().items()
    if module.isidentifier() and importlib.util.find_spec(module)
    for name in names
}
import subprocess
subprocess.run(["py-spy", "--version"], check=True)  # a program alone
assert importable == set(found) - {"py-spy"}, set(found) - importable

import torchvision
from torchvision.transforms import v2
transform = v2.Compose([v2.Resize((32, 32)), v2.ToDtype(torch.float32, scale=True)])
pictures = transform(torch.randint(0, 255, (1, 3, 40, 40), dtype=torch.uint8))
network = torchvision.models.squeezenet1_1(weights=None).eval()
expected = network(pictures)

import onnx, onnxruntime, onnxscript
torch.onnx.export(network, (pictures,), "network.onnx", dynamo=True, verbose=False)
onnx.checker.check_model("network.onnx")
session = onnxruntime.InferenceSession("network.onnx", providers=["CPUExecutionProvider"])
(answer,) = session.run(None, {session.get_inputs()[0].name: pictures.numpy()})
torch.testing.assert_close(torch.from_numpy(answer), expected, rtol=1e-3, atol=1e-4)

import pytorch_lightning, torchmetrics

class Line(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.line, self.losses = torch.nn.Linear(4, 1), []

    def training_step(self, batch, number):
        loss = (self.line(batch[0]) - batch[1]).pow(2).mean()
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

x = torch.randn(64, 4)
data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
line = Line()
pytorch_lightning.Trainer(
    max_epochs=3, logger=False, enable_checkpointing=False, enable_progress_bar=False
).fit(line, torch.utils.data.DataLoader(data, batch_size=16))
assert line.losses[-1] < line.losses[0] / 10
right = torchmetrics.functional.accuracy(
    torch.tensor([1, 0]), torch.tensor([1, 1]), task="binary")
assert right == 0.5

import horovod.torch as hvd
hvd.init()
assert (hvd.size(), hvd.allreduce(torch.ones(2)).tolist()) == (1, [1.0, 1.0])

import deepspeed
# Its transport over shared memory would be compiled first, which takes a minute and more.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
deepspeed.init_distributed(dist_backend="gloo", verbose=False)
torch.manual_seed(0)
small = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
engine, sharded, _, _ = deepspeed.initialize(
    model=small,
    optimizer=torch.optim.AdamW(small.parameters(), 1e-2),
    config={
        "train_batch_size": 64,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    },
)
assert type(sharded).__name__ == "DeepSpeedZeroOptimizer"
losses = []
for _ in range(10):
    loss = (engine(x) - x.sum(1, keepdim=True)).pow(2).mean()
    engine.backward(loss)
    engine.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]

from fairscale.nn import checkpoint_wrapper
checkpoint_wrapper(torch.nn.Linear(4, 4))(torch.randn(2, 4, requires_grad=True)).sum().backward()

from transformers import BertConfig, BertModel
tiny = BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
assert BertModel(tiny)(torch.tensor([[1, 2]])).last_hidden_state.shape == (1, 2, 32)

import timm
assert timm.create_model("resnet10t").eval()(torch.zeros(1, 3, 64, 64)).shape == (1, 1000)

from torch.utils.tensorboard import SummaryWriter
with SummaryWriter("logs/tensorboard") as writer:
    writer.add_scalar("loss", 1.0, 1)

import mlflow, azureml.mlflow, azureml.core
store = mlflow.MlflowClient("sqlite:///runs.db")
stored = store.create_run(store.create_experiment("stored")).info.run_id
store.log_metric(stored, "loss", 0.25)
assert store.get_run(stored).data.metrics == {"loss": 0.25}
mlflow.log_metric("done", 1.0)

import google.protobuf, matplotlib, pandas, pytest, sklearn.linear_model
sklearn.linear_model.LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0])
print("every component did its step")
"""


def test_it_is_what_its_label_says(yard: Yard, write_job: Callable[..., str]) -> None:
    job = {
        "name": "curated",
        "command": "python steps.py",
        "environment": f"azureml:{NAME}@latest",
        # DeepSpeed joins ranks, which a job without them tells nothing of.
        "distribution": {"type": "pytorch", "process_count_per_instance": 1},
    }
    yard("job", "create", "-f", write_job(job, steps=STEPS))
    done = yard.completed("curated", timeout_s=800)
    assert done["metrics"] == {"done": 1.0}
    shown = json.loads(yard("environment", "show", "-n", NAME, "-o", "json"))
    listed = json.loads(yard("environment", "list", "-n", NAME, "-o", "json"))
    label = dict(line.split("==") for line in listed[0]["packages"])
    installed = json.loads(yard.read("jobs/curated/files/outputs/packages.json"))
    assert shown["build"] == "ready"
    # Pip is the machine's Python's own.
    assert {**installed, "pip": ""} == {**label, "pip": ""}
    built = dict(line.split("==") for line in shown["packages"])
    assert {**built, "pip": ""} == {**label, "pip": ""}
