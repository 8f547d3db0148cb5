"""Jobs of a server on this machine's GPUs: found, locked, measured, and given back.

With `TORCHYARD_GPU_TESTS_DEVICE=cpu` a program that answers as `nvidia-smi` takes the place of one,
and what only a GPU can do is left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from end_to_end.conftest import write_job
from end_to_end.yard_under_test import Yard, running_yard, wait_until

__all__ = ["write_job"]

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

_STAND_IN = """#!/bin/sh
case "$1" in
  *mig.mode*) echo "0, GPU-5f1c0d3e-7a5b-9a0e-4d0e-3a7f5d8c1b22, A stand-in, 81920, Disabled" ;;
  *) echo "0, GPU-5f1c0d3e-7a5b-9a0e-4d0e-3a7f5d8c1b22, 40, 2048, 81920, 90.5, 700.0" ;;
esac
"""
_WAIT = """
import os, time, pathlib
while not pathlib.Path(os.environ["GO_ON"]).exists():
    time.sleep(0.1)
"""
# Each says when it had its GPUs, by one clock.
_SEEN = """
import json, os, time
import torch
begun = time.monotonic()
names = [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())]
if names:
    assert (torch.ones(1000, device="cuda") * 2).sum().item() == 2000
exec(os.environ.get("WAIT", ""))
print("seen " + json.dumps({
    "visible": os.environ.get("CUDA_VISIBLE_DEVICES"), "names": names,
    "begun": begun, "ended": time.monotonic(),
}), flush=True)
"""
_HOLD = """
import os, torch
held = torch.ones(4 * 2**30, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print(f"holds as {os.getpid()}", flush=True)
exec(os.environ.get("WAIT", ""))
"""
_TRAIN = """
import os, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(64, 10).to(device), [device.index])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(512, 64, device=device)
labels = inputs[:, :10].argmax(1)
for step in range(100):
    loss = torch.nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {dist.get_rank()} of {dist.get_world_size()} loss {loss.item():.3f}", flush=True)
assert loss.item() < 1
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    from gpu.conftest import reason_without, wanted_device

    if reason := reason_without():
        pytest.skip(reason)
    with pytest.MonkeyPatch.context() as patched:
        if wanted_device() == "cpu":
            folder = tmp_path_factory.mktemp("programs")
            (folder / "nvidia-smi").write_text(_STAND_IN)
            (folder / "nvidia-smi").chmod(0o755)
            patched.setenv("PATH", str(folder), prepend=os.pathsep)
        with running_yard("gpu") as yard:
            yield yard


@pytest.fixture
def submit(yard: Yard, write_job: Callable[..., str]) -> Callable[..., str]:
    """Submit a script that the tests' own interpreter runs; returns the job's name."""

    def submit_script(script: str, **keys: Any) -> str:
        name = f"script{len(yard.get('jobs')['value'])}"
        file = write_job({"command": f"{sys.executable} {name}.py", **keys}, **{name: script})
        return str(json.loads(yard("job", "create", "-f", file, "-o", "json"))["name"])

    return submit_script


def read_seen(yard: Yard, name: str) -> dict[str, Any]:
    yard.completed(name)
    (log,) = yard.logs(name).values()
    (line,) = (line for line in log.decode().splitlines() if line.startswith("seen "))
    answer: dict[str, Any] = json.loads(line.removeprefix("seen "))
    return answer


def hold(go_on: Path) -> dict[str, str]:
    return {"WAIT": _WAIT, "GO_ON": str(go_on)}


def gpus() -> list[str]:
    """What nvidia-smi itself says."""
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_job_has_its_gpu_alone(
    device: str, yard: Yard, submit: Callable[..., str], tmp_path: Path
) -> None:
    """Two jobs that want all GPUs: the second waits, and is told for what."""
    there = 1 if device == "cpu" else len(gpus())
    keys = {"properties": {"torchyard.gpus": str(there)}}
    go_on = tmp_path / "go-on"
    first = submit(_SEEN, environment_variables=hold(go_on), **keys)
    wait_until(lambda: yard.job(first)["status"] == "Running", 240, "the first job runs")
    second = submit(_SEEN, **keys)
    wait_until(lambda: "GPU" in str(yard.job(second).get("waiting")), 60, "it is told why")
    assert yard.job(second)["status"] == "Queued"
    go_on.touch()
    earlier, later = read_seen(yard, first), read_seen(yard, second)
    assert earlier["ended"] <= later["begun"]
    expected = ",".join(str(index) for index in range(there))
    assert earlier["visible"] == later["visible"] == expected
    assert earlier["names"] == later["names"] == ([] if device == "cpu" else gpus())


def test_a_job_without_gpus_sees_none(submit: Callable[..., str], yard: Yard) -> None:
    answer = read_seen(yard, submit(_SEEN, properties={"torchyard.gpus": "0"}))
    assert answer["names"] == []


def test_use_of_the_gpu_is_recorded(yard: Yard, submit: Callable[..., str], tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    name = submit(_SEEN, environment_variables=hold(go_on))

    def recorded() -> list[str]:
        points = yard.get(f"jobs/{name}/metrics?system=only")["value"]
        return [f"{each['key']} {each['value']}" for each in points if "gpu_0" in each["key"]]

    wait_until(lambda: bool(recorded()), 240, "figures of the GPU are recorded")
    go_on.touch()
    yard.completed(name)
    print(sorted(recorded()))


def test_a_canceled_job_gives_its_memory_back(
    device: str, yard: Yard, submit: Callable[..., str], tmp_path: Path
) -> None:
    if device == "cpu":
        pytest.skip("the CPU has no memory of its own")
    go_on = tmp_path / "go-on"

    def holder(name: str) -> str:
        lines = b"".join(yard.logs(name).values()).decode().splitlines()
        return next((line.split()[-1] for line in lines if line.startswith("holds as ")), "")

    def on_gpus() -> list[str]:
        """Processes, as nvidia-smi names them; in a container it does not."""
        query = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()

    first = submit(_HOLD, environment_variables=hold(go_on))
    wait_until(lambda: bool(holder(first)), 240, "the job holds 4 GB")
    print("on the GPU:", on_gpus(), "job:", holder(first))
    yard("job", "cancel", first)
    assert yard.wait(first)["status"] == "Canceled"
    assert not Path(f"/proc/{holder(first)}").exists()
    assert holder(first) not in on_gpus()
    go_on.touch()
    yard.completed(submit(_HOLD, environment_variables=hold(go_on)))


@pytest.mark.parametrize(
    "script,code",
    [
        ("import torch\nx = torch.empty(2**44, device='cuda')", "cuda_out_of_memory"),
        (
            "import torch\nx = torch.nn.functional.one_hot(torch.tensor([1, 99]).cuda(), 3)\n"
            "torch.cuda.synchronize()\nprint(x)",
            "cuda_assert",
        ),
        ("import torch\ntorch.ones(3, device='cuda:99')", "cuda_device_missing"),
    ],
)
def test_what_goes_wrong_on_a_gpu_is_named(
    device: str, yard: Yard, submit: Callable[..., str], script: str, code: str
) -> None:
    if device == "cpu":
        pytest.skip("it goes wrong on a GPU alone")
    job = yard.wait(submit(script))
    assert job["status"] == "Failed"
    print(job["error"])
    assert job["error"]["code"] == code


def test_a_job_of_one_process_a_gpu_trains(
    device: str, yard: Yard, submit: Callable[..., str], ranks: int
) -> None:
    """`distribution: pytorch`, DistributedDataParallel, NCCL."""
    if device == "cpu":
        pytest.skip("NCCL needs GPUs")
    kind = {"type": "pytorch", "process_count_per_instance": ranks}
    name = submit(_TRAIN, distribution=kind)
    yard.completed(name)
    text = b"".join(yard.logs(name).values()).decode()
    for rank in range(ranks):
        assert f"rank {rank} of {ranks} loss" in text
