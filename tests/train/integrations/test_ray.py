"""A real Ray Train: its driver and a worker killed, its newest checkpoint damaged, and resumed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchyard.executors.ray.ray_environment import TESTED_VERSION
from torchyard.train.checkpoint import folders
from torchyard.train.integrations import saved_folders
from train.integrations import environment, training

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1500)]

TRAINING = """
import hashlib, os, signal, tempfile, time
from pathlib import Path
import torch

FOLDER = Path("outputs/checkpoints").absolute()

def training(state, save):
    torch.manual_seed(0)
    inputs = torch.randn(48, 4, 8)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    if state:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for step in range(state.get("step", 0), 48):
        optimizer.zero_grad()
        model(inputs[step]).pow(2).mean().backward()
        optimizer.step()
        save(step + 1, model, optimizer)

def tell(model):
    print(hashlib.sha256(b"".join(
        value.numpy().tobytes() for value in model.values())).hexdigest())
"""

PLAIN = """
training({}, lambda step, model, _: step == 48 and tell(model.state_dict()))
"""

ON_RAY = """
import ray
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torchyard.train.integrations.ray import fit, get_checkpoint, latest

def end(step, processes):
    # Ray Train seals a checkpoint while the loop goes on.
    while latest(FOLDER / "train").step < step // 10 * 10:
        time.sleep(0.1)
    for process in (*processes, os.getpid()):
        os.kill(process, signal.SIGKILL)

def train_func(config):
    from torchyard.train import run

    state = {}
    if checkpoint := get_checkpoint():
        state = torch.load(Path(checkpoint.path) / "state.pt")
    with open(FOLDER / "resumed", "a") as file:
        print(run.resumed_from, run.step, file=file)

    def save(step, model, optimizer):
        if str(step) == os.environ["END_AT"]:
            end(step, [config["driver"]])
        if step == 45 and run.resumed_from == 20:
            end(step, [])
        if step % 10 and step != 48:
            return
        with tempfile.TemporaryDirectory() as folder:
            state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, Path(folder) / "state.pt")
            ray.train.report({"step": step}, checkpoint=Checkpoint.from_directory(folder))

    training(state, save)

ray.init(num_cpus=1, include_dashboard=False)
trainer = TorchTrainer(
    train_func, train_loop_config={"driver": os.getpid()},
    scaling_config=ScalingConfig(num_workers=1),
    run_config=RunConfig(
        name="train", storage_path=str(FOLDER), checkpoint_config=CheckpointConfig(num_to_keep=1),
        failure_config=FailureConfig(max_failures=1)))
result = fit(trainer)
ray.shutdown()
tell(torch.load(Path(result.checkpoint.path) / "state.pt")["model"])
"""

REFUSED = """
from ray.train import Checkpoint, RunConfig
from ray.train.torch import TorchTrainer
from torchyard.train.checkpoint import CheckpointError
from torchyard.train.integrations.ray import CheckpointCallback, fit

def told(call):
    try:
        call()
    except CheckpointError as error:
        print(error.message)

callback = CheckpointCallback()
told(lambda: callback.after_report(None, [{"step": "4"}], Checkpoint.from_directory(".")))
told(lambda: fit(TorchTrainer(print, run_config=RunConfig(storage_path="s3://bucket"))))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("ray") / "venv"
    environment.create(folder, f"ray[train]=={TESTED_VERSION}", variables={})
    return environment.python(folder)


@pytest.fixture(autouse=True)
def ray_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ray's sockets need a short path."""
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    monkeypatch.setenv("RAY_TMPDIR", folder)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    yield
    shutil.rmtree(folder, ignore_errors=True)


def test_a_run_that_was_killed_ends_with_the_same_weights(python: str, tmp_path: Path) -> None:
    plain, on_ray = tmp_path / "plain.py", tmp_path / "on_ray.py"
    plain.write_text(TRAINING + PLAIN)
    on_ray.write_text(TRAINING + ON_RAY)
    (weights,) = training.train(plain, tmp_path / "undisturbed")

    folder = tmp_path / "stopped"
    (folder / "outputs/checkpoints").mkdir(parents=True)
    training.train(on_ray, folder, end_at=35, python=python)
    run_folder = folder / "outputs/checkpoints/train"
    sealed = {
        info.step: info
        for path in run_folder.glob("checkpoint_*")
        if (info := folders.read_manifest(path)) is not None
    }
    assert set(sealed) == {20, 30}
    # As a kill in the middle of a copy and of Ray Train's own note leaves them, and a bad disk.
    (run_folder / "checkpoint_9999-12-31_00-00-00.000000").mkdir()
    (run_folder / "checkpoint_9999-12-31_00-00-00.000000/state.pt").write_bytes(b"cut off")
    snapshot = run_folder / "checkpoint_manager_snapshot.json"
    snapshot.write_bytes(snapshot.read_bytes()[:40])
    state = sealed[30].path / "state.pt"
    state.write_bytes(state.read_bytes()[:-1])

    # A worker is killed at step 45 as well, which Ray Train starts again itself.
    assert training.train(on_ray, folder, python=python)[-1] == weights
    resumed = (folder / "outputs/checkpoints/resumed").read_text().splitlines()
    assert resumed == ["None 0", "20 20", "40 40"]
    sealed_now = map(folders.read_manifest, run_folder.glob("checkpoint_*"))
    newest = saved_folders.newest(info for info in sealed_now if info is not None)
    assert newest is not None
    assert (newest.step, newest.ranks, list(newest.files)) == (48, 1, ["state.pt"])


def test_a_report_without_a_step_and_a_storage_that_is_no_folder_are_named(
    python: str, tmp_path: Path
) -> None:
    script = tmp_path / "refused.py"
    script.write_text(REFUSED)
    assert training.train(script, tmp_path / "refused", python=python) == [
        "`step` of a report with a checkpoint must be an integer >= 0, not '4'",
        "Ray Train's checkpoints in s3://bucket can't be sealed",
    ]
