"""The variables of a job for Azure's clients, when there is a TLS endpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from torchyard.azureml import job_variables
from torchyard.jobs import actions
from torchyard.jobs.records.client_endpoints import NodeEndpoints
from torchyard.shared.plan import GATE_HOST, GatePlan
from workspaces.served import HERE, JOB, Served, served


@dataclass(frozen=True)
class Way:
    port: int
    host: str = ""
    authority: str = ""


PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


def given(site: Served, way: Way | None, environ: dict[str, str]) -> dict[str, str]:
    services = site.parts.services
    job_variables.publish(services, environ, site.parts.signer, lambda: way)
    created: Any = site.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "name": "asks"})
    job = actions.get(services, "default", created["name"])
    token = site.job_token(job.name, "dan")
    return services.client_endpoints.variables(job, token)


def test_there_are_no_variables_without_a_tls_endpoint(tmp_path: Path, database_url: str) -> None:
    with served(tmp_path, database_url) as site:
        assert given(site, None, {}) == {}


def test_the_run_token_is_the_secret(tmp_path: Path, database_url: str) -> None:
    trusted = tmp_path / "site.pem"
    trusted.write_text(PEM.replace("AAAA", "BBBB"))
    with served(tmp_path / "home", database_url) as site:
        result = given(site, Way(18443, authority=PEM), {"SSL_CERT_FILE": str(trusted)})
        token = site.tokens["job of dan"]
        assert result["IDENTITY_HEADER"] == result["MSI_SECRET"] == token
        assert result["ARM_CLOUD_METADATA_URL"].startswith("https://127.0.0.1:18443/")
        assert result["AZUREML_SERVICE_ENDPOINT"] == "https://127.0.0.1:18443"
        bundle = Path(result["REQUESTS_CA_BUNDLE"]).read_text()
        assert "AAAA" in bundle and "BBBB" in bundle, "what was trusted before is trusted still"
        site.tokens["jwt"] = result["AZUREML_RUN_TOKEN"]
        assert site.ok("jwt", "GET", "/v1/whoami")["user"] == "dan"


@pytest.mark.parametrize("environ", [{}, {"SSL_CERT_FILE": "/no/such/file"}])
def test_a_trusted_certificate_needs_no_bundle(
    tmp_path: Path, database_url: str, environ: dict[str, str]
) -> None:
    with served(tmp_path, database_url) as site:
        result = given(site, Way(443, "yard.example.org"), environ)
        assert "SSL_CERT_FILE" not in result
        assert result["IDENTITY_ENDPOINT"] == "https://yard.example.org:443/msi/token"


@pytest.mark.parametrize(
    ("package", "opened"),
    [("azureml_core-1.61.0.dist-info", ["localhost"]), ("torch-2.13.0.dist-info", [])],
)
def test_a_job_with_a_client_opens_the_tls_endpoint(
    tmp_path: Path, database_url: str, package: str, opened: list[str]
) -> None:
    folder = tmp_path / "environment"
    (folder / "lib" / "python3.11" / "site-packages" / package).mkdir(parents=True)
    request: list[str] = []

    def open_tls(name: str) -> Way:
        request.append(name)
        raise OSError("no port is free")

    with served(tmp_path / "home", database_url) as site:
        services = site.parts.services
        job_variables.publish(services, {}, site.parts.signer, lambda: None, open_tls)
        services.client_endpoints.expect(folder)
        job_variables.publish(services, {}, site.parts.signer, lambda: Way(1), open_tls)
        services.client_endpoints.expect(folder)
    assert request == opened


@pytest.mark.parametrize("package", ["azureml_mlflow-1.62.0.dist-info", "mlflow-3.15.0.dist-info"])
def test_only_the_plugin_gets_azures_address_for_mlflow(
    tmp_path: Path, database_url: str, package: str
) -> None:
    folder = tmp_path / "environment"
    (folder / "lib" / "python3.11" / "site-packages" / package).mkdir(parents=True)
    with served(tmp_path / "home", database_url) as site:
        services = site.parts.services
        job_variables.publish(services, {}, site.parts.signer, lambda: Way(18443))
        created: Any = site.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "name": "asks"})
        job = actions.get(services, "default", created["name"])
        token = site.job_token(job.name, "dan")
        result = services.client_endpoints.variables(job, token, folder)
    address = result.get("MLFLOW_TRACKING_URI", "")
    if package.startswith("azureml"):
        assert address.startswith("azureml://127.0.0.1:18443/mlflow/v1.0/subscriptions/")
        assert address.endswith("/workspaces/default")
    else:
        assert address == ""


def for_nodes(site: Served, way: Way, urls: list[str]) -> NodeEndpoints:
    services = site.parts.services
    job_variables.publish(services, {}, site.parts.signer, lambda: way)
    created: Any = site.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "name": "asks"})
    job = actions.get(services, "default", created["name"])
    return services.client_endpoints.for_nodes(job, site.job_token(job.name, "dan"), None, urls)


def test_nodes_of_other_machines_reach_the_server_by_their_gate(
    tmp_path: Path, database_url: str
) -> None:
    with served(tmp_path, database_url) as site:
        urls = ["https://10.0.0.5:8766", "http://10.0.0.5:8765", "http://[fd00::5]:8765"]
        endpoints = for_nodes(site, Way(18443, authority=PEM), urls)
        with_tls = [urls[0], "https://10.0.0.5:18443", "https://[fd00::5]:18443"]
        assert endpoints.gate == GatePlan(with_tls, PEM)
        variables = endpoints.variables
        assert variables["AZUREML_SERVICE_ENDPOINT"] == f"https://{GATE_HOST}"
        assert variables["IDENTITY_ENDPOINT"] == f"https://{GATE_HOST}/msi/token"
        assert "SSL_CERT_FILE" not in variables, "no file of the server's machine is there"
        site.tokens["jwt"] = variables["AZUREML_RUN_TOKEN"]
        assert site.ok("jwt", "GET", "/v1/whoami")["user"] == "dan"


def test_nodes_reach_a_server_with_a_configured_certificate_by_its_name(
    tmp_path: Path, database_url: str
) -> None:
    with served(tmp_path, database_url) as site:
        urls = ["https://yard.example.org:8766", "https://10.0.0.5:8766"]
        endpoints = for_nodes(site, Way(8766, "yard.example.org"), urls)
    assert endpoints.gate is None
    address = "https://yard.example.org:8766/msi/token"
    assert endpoints.variables["IDENTITY_ENDPOINT"] == address
