"""Run azureml-examples' `cifar10_deepspeed`, which saves with Nebula, on two nodes without a GPU.

    python tests/public_examples/nebula.py <folder> [--home HOME]

`<folder>` is a checkout's `cli/jobs/nebulaml/cifar10_deepspeed`; nothing of it is copied here. Its
script and its DeepSpeed configuration run as they are. What its README leaves to the user is set:
environment, compute, and two nodes with a rank each in place of four. torchvision downloads a
stand-in for CIFAR-10, smaller and with another checksum, from a proxy in place of its site.

A server of its own is started over a temporary home and builds the environment, which takes
minutes; `--home` names a home that is kept. The sample writes to /tmp/cifar1 and /tmp/data_storage,
which must not be there before and are deleted.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import shutil
import ssl
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
TOOLS = TESTS.parent / "tools"
sys.path += [str(path) for path in (TESTS / "end_to_end", TESTS, TOOLS)]

from yard_under_test import Yard, remove  # noqa: E402

import stand_in_proxy  # noqa: E402

ENVIRONMENT = "azureml:acpt-pytorch-2.13-cpu@latest"
RANKS = 2
# The sample saves after every 2000 steps of an epoch, and a step takes 16 pictures of all ranks.
SAVED_AFTER, PICTURES_OF_A_STEP, EPOCHS = 2000, 16, 2
TRAINING_FILES, PICTURES = 5, 6480
STEPS_OF_AN_EPOCH = TRAINING_FILES * PICTURES // PICTURES_OF_A_STEP
TAGS = [f"global_step{epoch * STEPS_OF_AN_EPOCH + SAVED_AFTER}" for epoch in range(EPOCHS)]
DATA = "www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
STORAGE = Path("/tmp/data_storage")
WRITTEN = (Path("/tmp/cifar1"), STORAGE)
MODEL = "mp_rank_00_model_states.pt"
LOAD = f"""
import json, torch_nebula
torch_nebula.init("{STORAGE}")
found = torch_nebula.list_checkpoints()
newest = torch_nebula.get_latest_checkpoint().load("{MODEL}", map_location="cpu")
print("=> " + json.dumps({{
    "tags": [checkpoint.tag for checkpoint in found], "steps": newest["global_steps"],
    "parameters": sum(tensor.numel() for tensor in newest["module"].values()),
}}))
"""
# Of the sample's network.
PARAMETERS = 62_006


def run(yard: Yard, job: Mapping[str, Any], folder: Path, limit_s: float) -> str:
    """What the one rank of a job printed, once it has completed."""
    file = folder / f"{job['name']}.json"
    file.write_text(json.dumps({"environment": ENVIRONMENT, **job}))
    yard("job", "create", "-f", str(file))
    yard.completed(job["name"], limit_s)
    return b"".join(yard.logs(job["name"]).values()).decode()


def make_data(yard: Yard, folder: Path, name: str) -> Path:
    """A folder for the proxy, made by a job: the environment has what stand_in_data.py needs."""
    sites = folder / "sites"
    file = sites / DATA
    file.parent.mkdir(parents=True)
    script = (
        f"import pathlib, sys; sys.path.append({str(TOOLS)!r}); import stand_in_data; "
        f"stand_in_data.cifar(pathlib.Path({str(file)!r}), {PICTURES})"
    )
    run(yard, {"name": name, "command": f'python -c "{script}"'}, folder, 1800)
    return sites


def variables(proxy: stand_in_proxy.StandInProxy, folder: Path) -> dict[str, str]:
    """What leads the sample's download to the proxy, and lets torchvision take its file."""
    bundle = folder / "trusted.pem"
    trusted = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile or ""
    bundle.write_text((Path(trusted).read_text() if trusted else "") + proxy.authority)
    (folder / "python").mkdir()
    shutil.copy(TOOLS / "stand_in_unchecked.py", folder / "python" / "sitecustomize.py")
    return {
        "https_proxy": proxy.url, "no_proxy": "127.0.0.1,localhost",
        "SSL_CERT_FILE": str(bundle), "PYTHONPATH": str(folder / "python"),
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip


def run_sample(yard: Yard, sample: Path, name: str, environment: Mapping[str, str]) -> list[str]:
    """What each rank printed."""
    changes = {
        "name": name, "environment": ENVIRONMENT, "compute": "local",
        "resources.instance_count": RANKS, "distribution.process_count_per_instance": 1,
        **{f"environment_variables.{key}": value for key, value in environment.items()},
    }  # fmt: skip
    words = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    yard("job", "create", "-f", str(sample / "job.yml"), "--rehearse-on-cpu", *words)
    yard.completed(name, 3000)
    return [log.decode() for log in yard.logs(name).values()]


def check_logs(logs: list[str]) -> None:
    assert len(logs) == RANKS, logs
    for log in logs:
        assert log.count("save checkpoints with NebulaML ends") == EPOCHS, log
        assert "Finished Training" in log and "Accuracy of the network" in log, log


def check_histories(yard: Yard, name: str) -> None:
    content = yard.read(f"jobs/{name}/files/outputs/Nebula/checkpointHistories.csv").decode()
    rows = list(csv.DictReader(io.StringIO(content)))
    print(content)
    assert len(rows) == EPOCHS, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--home", type=Path, help="a home that is kept, with its environments")
    options = parser.parse_args()
    present = [str(path) for path in WRITTEN if path.exists()]
    if present:
        parser.error(f"the sample would write into {' and '.join(present)}: delete it first")
    home = options.home or Path(tempfile.mkdtemp(prefix="torchyard-examples-"))
    home.mkdir(mode=0o700, exist_ok=True)
    yard = Yard(home)
    name = f"cifar10-{time.time_ns() // 1_000_000:x}"
    try:
        with tempfile.TemporaryDirectory() as top:
            folder = Path(top)
            sites = make_data(yard, folder, f"{name}-data")
            with stand_in_proxy.running(sites, folder / "tls") as proxy:
                logs = run_sample(yard, options.folder.resolve(), name, variables(proxy, folder))
                assert proxy.served == {DATA}, (proxy.served, proxy.unreachable)
            check_logs(logs)
            check_histories(yard, name)
            (folder / "load.py").write_text(LOAD)
            command = "python load.py"
            printed = run(
                yard, {"name": f"{name}-load", "command": command, "code": "."}, folder, 600
            )
            loaded = json.loads(printed.partition("=> ")[2].splitlines()[0])
            assert loaded == {
                "tags": TAGS, "steps": int(TAGS[-1].removeprefix("global_step")),
                "parameters": PARAMETERS,
            }, loaded  # fmt: skip
            print(f"{name}: {RANKS} ranks, checkpoints {', '.join(TAGS)} are whole and load")
    finally:
        yard("server", "stop")
        for path in WRITTEN:
            shutil.rmtree(path, ignore_errors=True)
        if options.home is None:
            remove(home)


if __name__ == "__main__":
    main()
