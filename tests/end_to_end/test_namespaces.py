"""Nodes that share no network stack: a training over a wire, and what preflight finds on it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from end_to_end import namespaces
from end_to_end.namespaces import INTERFACE, Site
from end_to_end.shared_torch import SharedTorch
from torchyard.app.application import Parts
from torchyard.jobs import actions
from torchyard.jobs.files import artifacts
from torchyard.jobs.records.job_events import notices_of
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.requests import preflights, submission
from torchyard.jobs.services import Services
from torchyard.workspaces.types import Identity, TokenKind

_WHY_NOT = namespaces.why_not()
pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT or "they can be made"),
    pytest.mark.filterwarnings("ignore"),
]
_ME = Identity("root", TokenKind.PERSON)
_TRAIN = """
import os
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
inputs = torch.randn(256, 8)
targets = inputs @ torch.arange(8.0).unsqueeze(1)
losses = []
for _ in range(60):
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
total = sum(p.double().sum() for p in model.parameters()).reshape(1)
dist.all_reduce(total)
print(f"rank {rank} of {dist.get_world_size()} at {os.environ['MASTER_ADDR']}",
      f"loss {losses[0]:.3f} to {losses[-1]:.6f} weights {total.item():.6f}", flush=True)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("site")) as made:
        yield made


@pytest.fixture(scope="module")
def parts(
    site: Site, tmp_path_factory: pytest.TempPathFactory, new_url: Callable[[], str]
) -> Iterator[Parts]:
    with namespaces.serving(site, tmp_path_factory.mktemp("home"), new_url) as made:
        yield made


@pytest.fixture
def torch_environment(parts: Parts, shared_torch: SharedTorch) -> dict[str, str]:
    return shared_torch.lend(parts.services.home)


@pytest.fixture
def services(parts: Parts, site: Site) -> Iterator[Services]:
    yield parts.services
    site.mend()


def run(services: Services, **document: Any) -> Job:
    body = {
        "command": "echo started",
        "environment": "python",
        "resources": {"instance_count": 2},
        "distribution": {"type": "pytorch"},
        **document,
    }
    job, _ = submission.create(services, "default", body, _ME)
    deadline = time.monotonic() + 800
    while not job.status.ended:
        assert time.monotonic() < deadline, job
        time.sleep(0.05)
        job = actions.get(services, "default", job.name)
    return job


def logs_of(services: Services, job: Job) -> dict[str, str]:
    names = [file.path for file in artifacts.list_of(services, job) if "std_log" in file.path]
    return {name: artifacts.file(services, job, name).read_text() for name in names}


def notices(services: Services, job: Job) -> list[str]:
    messages = notices_of(actions.events(services.db, job))
    return [message for message in messages if message.startswith("preflight:")]


def refused(services: Services, code: str, **document: Any) -> str:
    """The message of a job that must not have started any rank."""
    job = run(services, **document)
    assert job.status is Status.FAILED and job.error is not None, logs_of(services, job)
    assert job.error.code == code, job.error
    assert job.error.hint and job.started_at is None and logs_of(services, job) == {}
    return job.error.message


def test_two_by_two_ranks_train_over_the_wire(
    services: Services, site: Site, torch_environment: dict[str, str]
) -> None:
    job = run(
        services,
        command=f"python - <<'END'\n{_TRAIN}\nEND",
        environment=_inline(torch_environment),
        environment_variables={"OMP_NUM_THREADS": "1"},
        distribution={"type": "pytorch", "process_count_per_instance": 2},
    )
    assert job.status is Status.COMPLETED, (job.error, logs_of(services, job))
    lines = [text.strip().splitlines()[-1] for text in logs_of(services, job).values()]
    assert len(lines) == 4 and all(f"at {site.addresses[0]}" in line for line in lines)
    matches = [re.search(r"loss ([\d.]+) to ([\d.]+) weights ([\d.]+)", line) for line in lines]
    assert all(match and float(match[2]) < float(match[1]) / 20 for match in matches)
    # All four have the same weights, so the gradients went over the wire.
    assert len({match[3] for match in matches if match}) == 1
    nodes = preflights.of(services.db, job)
    assert [node["address"] for node in nodes] == site.addresses
    assert nodes[0]["facts"]["network"] != nodes[1]["facts"]["network"]
    assert {node["facts"]["torch"] for node in nodes} != {""}


def test_a_silent_firewall_before_the_rendezvous_port(services: Services, site: Site) -> None:
    _need("nft")
    site.drop(0, 6105, 6999)
    message = refused(services, "ports_blocked")
    first, second = site.addresses
    assert message.startswith(f"node 1 ({second}) can't reach node 0 ({first}) at port 6")
    assert message.endswith("(of the ranks' rendezvous): no answer within 5 s")


def test_a_silent_firewall_before_the_other_node(services: Services, site: Site) -> None:
    _need("nft")
    site.drop(1, 32768, 60999)
    message = refused(services, "ports_blocked")
    first, second = site.addresses
    assert message.startswith(f"node 0 ({first}) can't reach node 1 ({second}) at port ")
    assert "which gloo and NCCL use): no answer within 5 s" in message


def test_a_route_that_prohibits_connections(services: Services, site: Site) -> None:
    site.prohibit(1, 32768, 60999)
    message = refused(services, "ports_blocked")
    assert "node 1" in message and "node 0" in message
    assert "(of the range 32768 to 60999, which gloo and NCCL use): Permission denied" in message
    assert "of the ranks' rendezvous" not in message


def test_a_blocked_port_is_only_a_warning_if_the_job_says_so(
    services: Services, site: Site
) -> None:
    site.prohibit(1, 6105, 6999)
    job = run(services, properties={"torchyard.preflight": "warn"}, limits={"timeout": 120})
    assert job.status is Status.COMPLETED, job.error
    assert any("can't reach node 0" in notice for notice in notices(services, job))


def test_a_clock_an_hour_ahead_is_reported(services: Services, site: Site, tmp_path: Path) -> None:
    ahead = tmp_path / "ahead"
    program = (
        "import runpy, sys, time; s, ns = time.time, time.time_ns; "
        "time.time = lambda: s() + 3600; time.time_ns = lambda: ns() + 3600 * 10**9; "
        "sys.argv = sys.argv[3:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    ahead.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S -c "{program}" "$@"\n')
    ahead.chmod(0o755)
    site.before(1, f"PYTHON={ahead}\n")
    message = refused(services, "clocks_apart")
    assert re.fullmatch(
        rf"node 1 \({site.addresses[1]}\) has a clock that is 3[56]\d\d\.\d s ahead of node 0's",
        message,
    )


def test_different_versions_of_torch_are_refused(
    services: Services, site: Site, tmp_path: Path, torch_environment: dict[str, str]
) -> None:
    other = tmp_path / "version.py"
    other.write_text("__version__ = '2.2.0+cpu'\ncuda = None\n")
    there = f"{services.home}/environments/*/lib/python3*/site-packages/torch/version.py"
    site.before(1, f"for file in {there}; do mount --bind {other} $file; done\n")
    message = refused(services, "torch_versions_differ", environment=_inline(torch_environment))
    assert re.search(r"node 0 has 2\.\d+\.\d\S*, node 1 has 2\.2\.0\+cpu", message)


def test_a_node_with_a_full_disk_is_refused(services: Services, site: Site) -> None:
    site.before(1, 'mount -t tmpfs -o size=40m tmpfs "$FOLDER"\n')
    message = refused(services, "disk_short")
    assert message.startswith(f"node 1 ({site.addresses[1]}) has only 39 MiB free")


def test_a_small_shm_is_a_notice(services: Services, site: Site) -> None:
    site.before(1, "mount -t tmpfs -o size=64m tmpfs /dev/shm\n")
    job = run(services)
    assert job.status is Status.COMPLETED, job.error
    (notice,) = notices(services, job)
    assert f"node 1 ({site.addresses[1]}) has 64 MiB of 64 MiB free in `/dev/shm`" in notice


def test_different_mtus_are_a_notice(services: Services, site: Site) -> None:
    site.set_mtu(1, 1400)
    job = run(services)
    assert job.status is Status.COMPLETED, job.error
    (notice,) = notices(services, job)
    assert "node 0 has 1500, node 1 has 1400" in notice


def test_nccl_without_a_gpu_is_refused(services: Services) -> None:
    _need_no_gpu()
    variables = {"PL_TORCH_DISTRIBUTED_BACKEND": "nccl"}
    message = refused(services, "nccl_without_gpu", environment_variables=variables)
    assert message.startswith("nodes 0, 1 have no GPU")


def test_a_missing_network_interface_is_refused(services: Services) -> None:
    variables = {"GLOO_SOCKET_IFNAME": "eth7"}
    message = refused(services, "interface_missing", environment_variables=variables)
    assert "no interface that matches `GLOO_SOCKET_IFNAME=eth7`" in message and INTERFACE in message


def test_an_interface_of_nccl_under_gloo_is_a_notice(services: Services) -> None:
    job = run(
        services,
        environment_variables={"NCCL_SOCKET_IFNAME": "ib0"},
        distribution={"type": "pytorch", "communication_backend": "gloo"},
    )
    assert job.status is Status.COMPLETED, job.error
    (notice,) = notices(services, job)
    assert "`NCCL_SOCKET_IFNAME=ib0`" in notice and "does not seem to use it" in notice


def test_the_command_checks_the_cluster(services: Services, site: Site) -> None:
    done = _yard(services, "compute", "check", "local", "--nodes", "2")
    assert done.returncode == 0, (done.stdout, done.stderr)
    for address in site.addresses:
        assert re.search(rf"^\d +{address} .*{INTERFACE} \(mtu 1500\).* open$", done.stdout, re.M)
    assert "can train together" in done.stdout

    site.prohibit(1, 6105, 6999)
    done = _yard(services, "compute", "check", "local", "--nodes", "2", "-o", "json")
    assert done.returncode == 1, (done.stdout, done.stderr)
    report = json.loads(done.stdout)
    assert (report["ok"], report["error"]) == (False, None)
    (finding,) = report["findings"]
    assert (finding["code"], finding["nodes"]) == ("ports_blocked", [1, 0])
    shut = [way for way in report["nodes"][1]["ways"] if way.get("error")]
    assert [(way["meets"], 6105 <= way["port"] <= 6999) for way in shut] == [(True, True)]
    # A job like any other, and in the list as what it is.
    listed = _yard(services, "job", "list", "--experiment-name", "compute-checks", "-o", "json")
    names = {job["display_name"] for job in json.loads(listed.stdout)}
    assert names == {"check of compute local"}


def _yard(services: Services, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if "TORCHYARD" not in name}
    server_variables = {
        "TORCHYARD_URL": (services.home / "url").read_text(),
        "TORCHYARD_TOKEN": (services.home / "token").read_text().strip(),
        "TORCHYARD_HOME": str(services.home / "of-the-command"),
    }
    return subprocess.run(
        [Path(sys.executable).with_name("yard"), *words],
        env={**environ, **server_variables},
        capture_output=True,
        text=True,
        timeout=200,
    )


def _inline(environment: dict[str, str]) -> dict[str, str]:
    """As the command sends it: the lines instead of the file."""
    return {"pip_requirements": Path(environment["pip_requirements"]).read_text()}


def _need(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"`{program}` is not here: apt-get install nftables")


def _need_no_gpu() -> None:
    if any(re.match(r"nvidia\d|kfd", name) for name in os.listdir("/dev")):
        pytest.skip("this machine has a GPU")
