"""Nodes in network namespaces of their own, which see nothing of the server's disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from end_to_end import namespaces
from end_to_end.namespaces import Site
from end_to_end.shared_torch import SharedTorch
from end_to_end.yard_under_test import REPOSITORY
from executors import remote_site
from executors.remote_site import RemoteSite
from torchyard.jobs import actions
from torchyard.jobs.files import artifacts
from torchyard.jobs.records.types import Status

_NODE_PYTHON = "/usr/bin/python3"
_WHY_NOT = namespaces.why_not()
pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT or "they can be made"),
    pytest.mark.skipif(not Path(_NODE_PYTHON).exists(), reason=f"{_NODE_PYTHON} is not here"),
    pytest.mark.filterwarnings("ignore"),
]

_AZURE = "azureml-core==1.61.0.post4\nazureml-mlflow\nmlflow-skinny<3\nsetuptools<81\n"
_LOGS = """
import os, mlflow
from azureml.core import Run

run = Run.get_context()
assert run.id == os.environ["AZUREML_RUN_ID"], run.id
run.log("by_run", 1.5)
assert mlflow.get_tracking_uri().startswith("azureml://127.0.0.1:"), mlflow.get_tracking_uri()
mlflow.log_metric("by_mlflow", 2.5)
with open("note.txt", "w") as file:
    file.write("uploaded")
run.upload_file("notes/by_run.txt", "note.txt")
mlflow.log_artifact("note.txt", "notes")
run.flush()
assert run.experiment.workspace.name == "default"
print("all is well")
"""


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as made:
        yield made


@pytest.fixture
def site(network: Site, tmp_path: Path, shared_torch: SharedTorch) -> Iterator[RemoteSite]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    shared_torch.lend(home)
    machines = [tmp_path / "nodes" / f"machine-{node}" for node in range(2)]
    for machine in machines:
        machine.mkdir(parents=True, mode=0o700)

    def before(node: int) -> list[str]:
        # Neither the server's home, nor the Python of its environments, nor what the other node has
        # is there.
        hidden = [str(home), str(machines[1 - node])]
        if not sys.base_prefix.startswith("/usr"):
            hidden.append(sys.base_prefix)
        hides = " && ".join(f"mount -t tmpfs none {folder}" for folder in hidden)
        words = ["ip", "netns", "exec", network.names[node], "unshare", "--mount"]
        return [*words, "sh", "-c", f'{hides} && exec "$0" "$@"']

    with remote_site.serving(
        tmp_path,
        network.server_address,
        before,
        lambda node: network.addresses[node],
        _NODE_PYTHON,
        tls=True,
        apart=True,
    ) as made:
        yield made


def test_digits_is_trained_on_machines_that_share_nothing_with_the_server(
    site: RemoteSite, tmp_path: Path
) -> None:
    _train(site, tmp_path, REPOSITORY / "examples/digits/job.yml")


@pytest.mark.long
def test_fashion_mnist_is_trained_on_machines_that_share_nothing_with_the_server(
    site: RemoteSite, tmp_path: Path
) -> None:
    example = shutil.copytree(REPOSITORY / "examples/fashion_mnist", tmp_path / "example")
    if not (example / "data").exists():
        done = subprocess.run([example / "get_data.sh"], capture_output=True, text=True)
        if done.returncode != 0 and os.environ.get("TORCHYARD_TEST_SERVICES") != "required":
            pytest.skip(done.stderr)
        assert done.returncode == 0, done.stderr
    _train(site, tmp_path, example / "job.yml")
    # Each of the two nodes fetched the images.
    size_bytes = (example / "data/train-images-idx3-ubyte.gz").stat().st_size
    for node in range(2):
        files = (site.node_folder / f"machine-{node}").rglob("*")
        assert size_bytes in {file.stat().st_size for file in files if file.is_file()}


def _train(site: RemoteSite, folder: Path, job_file: Path) -> None:
    """Run an example unchanged, and look at what came back."""
    services = site.parts.services
    environ = {
        **os.environ,
        "TORCHYARD_HOME": str(folder / "client"),
        "TORCHYARD_URL": services.for_nodes.urls[0],
        "TORCHYARD_TOKEN": (services.home / "token").read_text().strip(),
        "TORCHYARD_CA_CERT": str(folder / "ca.pem"),
    }
    (folder / "ca.pem").write_text(services.for_nodes.certificate)
    words = ["-m", "torchyard.cli.main", "job", "create", "-f", str(job_file)]
    done = subprocess.run(
        [sys.executable, *words, "--set", "name=example"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    job = site.ended(actions.get(services, "default", "example"), 800)
    assert job.status is Status.COMPLETED, (job.error, site.engine_logs())
    names = [file.path for file in artifacts.list_of(services, job)]
    assert "outputs/model.pt" in names
    logs = [artifacts.file(services, job, name) for name in names if "std_log" in name]
    assert len(logs) == 2  # of two ranks, a node each
    assert any("test accuracy" in log.read_text() for log in logs)
    assert site.scratch_left() == []
    # Its Python came, too.
    pythons = list(site.node_folder.glob("machine-*/pythons/[0-9a-f]*"))
    assert sys.base_prefix.startswith("/usr") or len({file.parents[1] for file in pythons}) == 2


def test_azures_clients_reach_the_server_from_a_machine_that_shares_nothing_with_it(
    site: RemoteSite,
) -> None:
    services = site.parts.services
    job = site.run(
        600,
        command=f"python -W ignore - <<'END'\n{_LOGS}\nEND",
        environment={"pip_requirements": _AZURE},
    )
    names = [file.path for file in artifacts.list_of(services, job)]
    logs = [artifacts.file(services, job, name).read_text() for name in names if "std_log" in name]
    assert job.status is Status.COMPLETED, (job.error, logs, site.engine_logs())
    assert "all is well" in "".join(logs)
    for name in ("notes/by_run.txt", "notes/note.txt"):
        assert artifacts.file(services, job, name).read_text() == "uploaded"
    values = {metric.key: metric.value for metric in services.history.latest(job.id)}
    assert values == {"by_run": 1.5, "by_mlflow": 2.5}
    assert site.scratch_left() == []
