"""The way of Azure's clients from a node of another machine to the server."""

from __future__ import annotations

import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shared.tls_listeners import free_port, proxy_to_one, serving
from torchyard.base import certificates
from torchyard.base.clock import FakeClock
from torchyard.shared.plan import GATE_HOST, GatePlan, LaunchPlan
from torchyard.worker.node import client_gate

VARIABLES = {
    "AZUREML_SERVICE_ENDPOINT": f"https://{GATE_HOST}",
    "MLFLOW_TRACKING_URI": f"azureml://{GATE_HOST}/mlflow/v1.0/subscriptions/x",
    "AZUREML_RUN_ID": "job-1",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The server's, with its authority."""
    folder = tmp_path / "ours"
    certificates.ensure(folder, (), FakeClock().now())
    return folder


@contextmanager
def opened(
    home: Path, urls: list[str], folder: Path, environ: Mapping[str, str] | None = None
) -> Iterator[dict[str, str]]:
    """The variables of a node's ranks while its gate is open."""
    gate = GatePlan(urls, certificates.authority(home))
    plan = LaunchPlan(
        attempt_id="a",
        attempt=1,
        job="job-1",
        workspace="default",
        experiment="default",
        command="",
        server_url="",
        report_token="",
        run_token="",
        scratch="",
        variables=VARIABLES,
        gate=gate,
    )
    changed, opened_gate = client_gate.open_gate(plan, gate, folder, environ or {})
    try:
        yield changed.variables
    finally:
        opened_gate.close()


def asked(variables: Mapping[str, str]) -> dict[str, Any]:
    """What the server answers to a client that trusts what the variables name, and nothing else."""
    context = ssl.create_default_context(cafile=variables["REQUESTS_CA_BUNDLE"])
    url = variables["AZUREML_SERVICE_ENDPOINT"] + "/path"
    with urllib.request.urlopen(url, timeout=60, context=context) as answer:
        body: dict[str, Any] = json.load(answer)
    return body


def test_a_client_reaches_the_server_by_loopback_and_checks_its_certificate(
    home: Path, tmp_path: Path
) -> None:
    # The address that it listens at is not in its certificate.
    with serving(home, host="127.0.0.9") as url, opened(home, [url], tmp_path) as variables:
        host = variables["AZUREML_SERVICE_ENDPOINT"].removeprefix("https://")
        assert host.startswith("127.0.0.1:") and not url.endswith(host)
        assert asked(variables) == {"path": "/path", "host": host}
        tracking = f"azureml://{host}/mlflow/v1.0/subscriptions/x"
        assert variables["MLFLOW_TRACKING_URI"] == tracking
        assert variables["AZUREML_RUN_ID"] == "job-1"
        assert variables["SSL_CERT_FILE"] == variables["REQUESTS_CA_BUNDLE"]


def test_what_the_node_trusted_is_trusted_still(home: Path, tmp_path: Path) -> None:
    certificates.ensure(tmp_path / "other", (), FakeClock().now())
    trusted = certificates.authority(tmp_path / "other")
    (tmp_path / "site.pem").write_text(trusted)
    environ = {"SSL_CERT_FILE": str(tmp_path / "site.pem")}
    with opened(home, ["https://127.0.0.1:1"], tmp_path, environ) as variables:
        bundle = Path(variables["SSL_CERT_FILE"]).read_text()
    assert trusted in bundle and certificates.authority(home) in bundle


def test_a_server_that_moved_is_found_at_another_of_its_addresses(
    home: Path, tmp_path: Path
) -> None:
    ports = free_port(), free_port()
    urls = [f"https://127.0.0.1:{port}" for port in ports]
    with opened(home, urls, tmp_path) as variables:
        for port in (*ports, ports[0]):
            with serving(home, port):
                assert asked(variables)["path"] == "/path"


def test_a_stranger_at_the_servers_address_is_passed_by(home: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "foreign") as stranger, serving(home) as url:
        with opened(home, [stranger, url], tmp_path) as variables:
            assert asked(variables)["path"] == "/path"


def test_a_stranger_at_the_only_address_is_not_trusted(home: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "foreign") as stranger:
        with opened(home, [stranger], tmp_path) as variables:
            with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
                asked(variables)


def test_a_proxy_carries_it_to_another_machine(home: Path, tmp_path: Path) -> None:
    requests: list[str] = []
    with serving(home) as url, proxy_to_one(requests, url) as proxy:
        environ = {"https_proxy": proxy}
        # 192.0.2.1 is nobody's: only the proxy can lead to a server.
        with opened(home, ["https://192.0.2.1:7000"], tmp_path, environ) as variables:
            assert asked(variables)["path"] == "/path"
    (head,) = requests
    assert head.startswith("CONNECT 192.0.2.1:7000")


def test_it_listens_for_this_machine_alone_and_no_longer_than_the_ranks_run(
    home: Path, tmp_path: Path
) -> None:
    with serving(home) as url, opened(home, [url], tmp_path) as variables:
        port = int(variables["AZUREML_SERVICE_ENDPOINT"].rpartition(":")[2])
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.9", port), 5)
        socket.create_connection(("127.0.0.1", port), 5).close()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), 5)
