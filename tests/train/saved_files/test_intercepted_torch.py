"""torch.save itself, taken over by the hook that a rank's Python runs at its start."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from torchyard.worker.files import interception, thin_environment

SOURCE = Path(__file__).resolve().parents[3] / "src"

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

SCRIPT = """
import io, os, shutil, zipfile
from pathlib import Path
import torch
from torch.serialization import save

assert torch.save is save and save.__module__ == "torch.serialization"
model = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.Dropout())
optimizer = torch.optim.AdamW(model.parameters())
model(torch.randn(4, 300)).sum().backward()
optimizer.step()
weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
os.makedirs("outputs/model", exist_ok=True)
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3,
            "arguments": {"path": Path("x"), "values": (1, None)}}, "outputs/model/last.pt")
with torch.no_grad():
    for parameter in model.parameters():
        parameter.zero_()
loaded = torch.load("outputs/model/last.pt", weights_only=False)
assert all(torch.equal(loaded["model"][name], weights[name]) for name in weights)
assert loaded["arguments"] == {"path": Path("x"), "values": (1, None)} and loaded["epoch"] == 3
assert torch.load("outputs/model/last.pt", mmap=True, weights_only=False)["epoch"] == 3
assert zipfile.ZipFile("outputs/model/last.pt").testzip() is None
optimizer.load_state_dict(loaded["optimizer"])

shared = torch.arange(6.0)
torch.save([shared, shared.view(2, 3)], "outputs/shared.pt")
first, second = torch.load("outputs/shared.pt")
first[0] = 9
assert second[0, 0] == 9
torch.save(model, Path("outputs/whole.pt"))
assert isinstance(torch.load("outputs/whole.pt", weights_only=False), torch.nn.Sequential)
torch.save([1], "outputs/old.pt", _use_new_zipfile_serialization=False)
assert torch.load("outputs/old.pt") == [1]
stream = io.BytesIO()
torch.save(shared, stream)
torch.save(shared, "elsewhere.pt")
assert torch.equal(torch.load("elsewhere.pt"), shared)
try:
    torch.save(lambda: None, "outputs/whole.pt")
except Exception as error:
    assert "pickle" in f"{type(error).__name__} {error}".lower(), error
assert isinstance(torch.load("outputs/whole.pt", weights_only=False), torch.nn.Sequential)
shutil.copy("outputs/model/last.pt", "outputs/best.pt")
print("done")
"""


def test_scripts_save_and_load_as_with_torchs_own(tmp_path: Path) -> None:
    completed = _run(tmp_path, SCRIPT, str(SOURCE))
    assert completed.stdout == "done\n", completed.stderr
    assert completed.stderr == ""
    # The writer adds a line after its report: all of them are there once the script has ended.
    with open(tmp_path / "logs/torch_saves.csv") as table:
        rows = [(Path(row["path"]).name, row["error"]) for row in csv.DictReader(table)]
    assert rows == [(f"{name}.pt", "") for name in ("last", "shared", "whole", "old")]


def test_without_torchyard_train_the_rank_says_so_and_saves_as_ever(tmp_path: Path) -> None:
    script = "import torch; torch.save([1], 'outputs/a.pt'); print(torch.load('outputs/a.pt'))"
    completed = _run(tmp_path, script, "")
    assert completed.stdout == "[1]\n"
    assert completed.stderr.startswith(
        "[torchyard] torch.save is not intercepted: the environment has no `torchyard-train`"
    )


def _run(folder: Path, script: str, source: str) -> subprocess.CompletedProcess[str]:
    """In a folder like a job's, with the hooks of an attempt that asks for it."""
    thin_environment.put_hooks(folder / "hooks", intercepted=True)
    for name in ("outputs", "logs"):
        (folder / name).mkdir()
    variables = {
        **os.environ, interception.VARIABLE: "1", "OMP_NUM_THREADS": "1",
        "AZUREML_OUTPUT_DIRECTORY": str(folder / "outputs"),
        "AZUREML_LOGDIRECTORY_PATH": str(folder / "logs"),
    }  # fmt: skip
    # A torchyard that is installed beside torch is out of sight.
    hidden = "" if source else "import sys; sys.modules['torchyard.train'] = None\n"
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder / "hooks"), source)))
    return subprocess.run(
        [sys.executable, "-c", hidden + textwrap.dedent(script)], cwd=folder, text=True,
        capture_output=True, env=variables, timeout=250,
    )  # fmt: skip
