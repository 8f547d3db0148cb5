"""DeepSpeed with its block for Nebula, in an environment of its own."""

from __future__ import annotations

import json
import socket
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchyard.environments.packages import layers
from train.integrations import deepspeed_environment
from train.integrations.deepspeed_environment import NEWEST, WITH_NEBULA

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]

Start = Callable[..., "subprocess.Popen[str]"]

DEEPSPEED = """
import deepspeed
deepspeed.init_distributed(dist_backend="gloo", init_method="file://" + os.environ["RENDEZVOUS"],
                           rank=int(os.environ["RANK"]), world_size=2, auto_mpi_discovery=False)
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
nebula = {"enabled": True, "persistent_storage_path": STORE, "persistent_time_interval": 100,
          "num_of_version_in_retention": 2, "enable_nebula_load": True}
engine, *_ = deepspeed.initialize(
    model=model, optimizer=torch.optim.Adam(model.parameters(), 0.01),
    config={"train_micro_batch_size_per_gpu": 4, "nebula": nebula},
)
for _ in range(2):
    engine.backward(engine(torch.randn(4, 8)).pow(2).mean())
    engine.step()
engine.save_checkpoint("saved", client_state={"epoch": 7})
weights = model.weight.detach().clone()
model.weight.data.zero_()
_, client_state = engine.load_checkpoint("saved")
assert client_state["epoch"] == 7 and torch.equal(model.weight, weights)
"""


# In the shape of DeepSpeed's example for CIFAR-10, as Azure's documents use it with Nebula.
CIFAR10 = """
import argparse
import deepspeed
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser(description="CIFAR")
parser.add_argument("-e", "--epochs", default=2, type=int)
parser.add_argument("--local_rank", type=int, default=-1)
parser.add_argument("--log-interval", type=int, default=2)
parser.add_argument("--save_dir", default="./outputs/saved")
parser = deepspeed.add_config_arguments(parser)
args = parser.parse_args()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        return self.fc2(F.relu(self.fc1(x.view(-1, 16 * 5 * 5))))

# The example downloads CIFAR-10; here are as many numbers of its shape.
torch.manual_seed(1)
trainset = torch.utils.data.TensorDataset(torch.randn(64, 3, 32, 32), torch.arange(64) % 10)
deepspeed.init_distributed(dist_backend="gloo")
torch.manual_seed(0)
net = Net()
parameters = filter(lambda p: p.requires_grad, net.parameters())
model_engine, optimizer, trainloader, __ = deepspeed.initialize(
    args=args, model=net, model_parameters=parameters, training_data=trainset)
criterion = nn.CrossEntropyLoss()
_, client_state = model_engine.load_checkpoint(args.save_dir)
first = client_state["epoch"] + 1 if client_state else 0
print("first epoch", first, flush=True)
for epoch in range(first, args.epochs):
    for i, data in enumerate(trainloader):
        inputs, labels = data[0].to(model_engine.device), data[1].to(model_engine.device)
        outputs = model_engine(inputs)
        loss = criterion(outputs, labels)
        model_engine.backward(loss)
        model_engine.step()
        if i % args.log_interval == args.log_interval - 1:
            print(f"[{epoch + 1}, {i + 1:5d}] loss: {loss.item():.3f}")
    model_engine.save_checkpoint(args.save_dir, client_state={"epoch": epoch})
print("Finished Training", model_engine.global_steps, flush=True)
"""


@pytest.fixture(scope="module", params=[WITH_NEBULA, NEWEST])
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("deepspeed") / "venv"
    made = deepspeed_environment.python(folder, request.param)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    layers.put(["nebulaml", "torchyard-train"], site_packages)
    return made


def _variables(rank: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "DS_ACCELERATOR": "cpu",
        "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def test_deepspeeds_nebula_block_saves_and_loads_on_two_ranks(
    start: Start, python: str, tmp_path: Path, nm: Any
) -> None:
    shared = {"python": python, "RENDEZVOUS": str(tmp_path / "rendezvous")}
    port = _free_port()
    started = [start(DEEPSPEED, **shared, **_variables(rank, port)) for rank in (0, 1)]
    for process in started:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
    latest = nm.get_latest_checkpoint(persist_path=str(tmp_path / "store"))
    assert latest.tag == "global_step2"
    assert latest.load("mp_rank_00_model_states.pt", map_location="cpu")["epoch"] == 7


def test_a_key_that_the_block_never_had_is_named(start: Start, python: str) -> None:
    """By torchyard's engine: DeepSpeed 0.18 takes whatever it finds."""
    script = """
    import deepspeed
    from torch_nebula import deepspeed_engine
    try:
        deepspeed_engine.parse({"enabled": True, "persistent_path": STORE})
    except Exception as error:
        print(error)
    """
    output, _ = start(textwrap.dedent(script), python=python, DS_ACCELERATOR="cpu").communicate(
        timeout=300
    )
    assert '`"nebula"` in DeepSpeed\'s configuration has no key `persistent_path`' in output, output


def test_the_cifar10_example_goes_on_from_nebulas_checkpoints(
    start: Start, python: str, tmp_path: Path
) -> None:
    config = {
        "train_batch_size": 16, "steps_per_print": 2000,
        "optimizer": {"type": "Adam", "params": {"lr": 0.001, "torch_adam": True}},
        "nebula": {
            "enabled": True, "persistent_storage_path": str(tmp_path / "store"),
            "persistent_time_interval": 100, "num_of_version_in_retention": 2,
            "enable_nebula_load": True,
        },
    }  # fmt: skip
    (tmp_path / "ds_config.json").write_text(json.dumps(config))
    for epochs, first in ((1, 0), (3, 1)):
        # The last one is Azure's sample's, and DeepSpeed 0.12 was the last that knew it.
        arguments = ["--deepspeed", "--deepspeed_config=ds_config.json", f"--epochs={epochs}",
                     "--deepspeed_mpi"]  # fmt: skip
        script = f"import sys\nsys.argv[1:] = {arguments!r}\n{textwrap.dedent(CIFAR10)}"
        port = _free_port()
        started = [start(script, python=python, **_variables(rank, port)) for rank in (0, 1)]
        for process in started:
            output, _ = process.communicate(timeout=300)
            assert process.returncode == 0, output
            assert f"first epoch {first}\n" in output, output
            assert f"Finished Training {4 * epochs}\n" in output, output
