"""`yard client-env`: what shells make of it, which certificates it names, commands it runs."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from cli.conftest import Yard
from cli.real_server import RealServer
from torchyard.app import listeners
from torchyard.base import certificates, trust
from torchyard.base.errors import InvalidInput
from torchyard.cli.commands import client_env

AWKWARD = 'it\'s "a" $HOME `id` \\ %PATH% * ä'
NAMES = (
    "ARM_CLOUD_METADATA_URL", "AZUREML_CURRENT_CLOUD", "AZURE_CONFIG_DIR", "IDENTITY_ENDPOINT",
    "IDENTITY_HEADER", "MSI_ENDPOINT", "MSI_SECRET", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE",
)  # fmt: skip
OURS = "-----BEGIN CERTIFICATE-----\nours\n-----END CERTIFICATE-----\n"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    server = RealServer(tmp_path_factory.mktemp("server"), with_tls=True)
    yield server
    server.stop()


@pytest.fixture
def yard_there(running: RealServer, yard: Yard, monkeypatch: pytest.MonkeyPatch) -> Yard:
    """`yard` that goes to the running server, in an environment without Azure's variables."""
    monkeypatch.setenv("TORCHYARD_URL", running.url)
    monkeypatch.setenv("TORCHYARD_TOKEN", running.token)
    for name in (*NAMES, "CURL_CA_BUNDLE", "AZURE_CLIENT_SECRET", *client_env._PROXIES):
        monkeypatch.delenv(name, raising=False)
    return yard


def test_it_leads_to_the_server(yard_there: Yard, running: RealServer) -> None:
    output = yard_there("client-env", "--shell", "json")
    assert output.code == 0 and output.err == ""
    variables = json.loads(output.text)
    assert set(NAMES) <= set(variables)
    assert variables["IDENTITY_HEADER"] == variables["MSI_SECRET"] == running.token
    trusting = ssl.create_default_context(cafile=variables["SSL_CERT_FILE"])
    with urllib.request.urlopen(variables["ARM_CLOUD_METADATA_URL"], context=trusting) as answer:
        clouds = {cloud["name"]: cloud for cloud in json.load(answer)}
    base = clouds[variables["AZUREML_CURRENT_CLOUD"]]["resourceManager"]
    assert variables["ARM_CLOUD_METADATA_URL"].startswith(base)
    request = urllib.request.Request(
        f"{variables['IDENTITY_ENDPOINT']}?resource={base}&api-version=2019-08-01",
        headers={"X-IDENTITY-HEADER": variables["IDENTITY_HEADER"]},
    )
    with urllib.request.urlopen(request, context=trusting) as answer:
        jwt = json.load(answer)["access_token"]
    request = urllib.request.Request(
        f"{base}subscriptions", headers={"Authorization": f"Bearer {jwt}"}
    )
    with urllib.request.urlopen(request, context=trusting) as answer:
        assert json.load(answer)["value"][0]["subscriptionId"] == "local"
    again = yard_there("client-env", "-o", "json")
    assert json.loads(again.text) == variables


def test_bash_reads_it(yard_there: Yard) -> None:
    variables = json.loads(yard_there("client-env", "--shell", "json").text)
    lines = yard_there("client-env", "--shell", "bash").text
    assert 'eval "$(yard client-env)"' in lines
    for shell in ("bash", "sh"):
        script = f"{lines}\nexec {sys.executable} -c {PRINT_ENVIRONMENT!r}"
        completed = subprocess.run([shell, "-c", script], capture_output=True, check=True)
        environment = json.loads(completed.stdout)
        assert {name: environment[name] for name in variables} == variables


PRINT_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"


def test_awkward_values_in_bash() -> None:
    lines = client_env._WRITTEN["bash"]({"A": AWKWARD, "B": ""})
    script = f"{lines}\nexec {sys.executable} -c {PRINT_ENVIRONMENT!r}"
    completed = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    environment = json.loads(completed.stdout)
    assert (environment["A"], environment["B"]) == (AWKWARD, "")


@pytest.mark.parametrize(
    ("shell", "value", "line"),
    [
        ("fish", "it's a \\", "set -gx A 'it\\'s a \\\\'"),
        ("powershell", "it's $a", "$env:A = 'it''s $a'"),
        ("dotenv", "a b $c", "A='a b $c'"),
        ("dotenv", 'it\'s "$c"', 'A="it\'s \\"\\$c\\""'),
    ],
)
def test_other_shells(shell: str, value: str, line: str) -> None:
    assert line in client_env._WRITTEN[shell]({"A": value}).splitlines()


@pytest.mark.parametrize(
    ("shell", "kind"),
    [("/usr/bin/fish", "fish"), ("/bin/zsh", "bash"), ("", "bash"), ("/opt/pwsh", "powershell")],
)
def test_the_shell_is_guessed(shell: str, kind: str) -> None:
    assert client_env._shell_of({"SHELL": shell}) == kind


def test_a_command_is_run_with_them(yard_there: Yard, running: RealServer, tmp_path: Path) -> None:
    environ = {**os.environ, "TORCHYARD_HOME": str(tmp_path / "other")}
    script = "import os, sys; print(os.environ['MSI_SECRET'], sys.argv[1:]); sys.exit(7)"
    command = [sys.executable, "-m", "torchyard.cli.main", "client-env", "--run", "--"]
    completed = subprocess.run(
        [*command, sys.executable, "-c", script, "--shell", "-o", "a b"],
        capture_output=True,
        env=environ,
    )
    assert completed.returncode == 7, completed.stderr
    assert completed.stdout.decode() == f"{running.token} ['--shell', '-o', 'a b']\n"
    completed = subprocess.run(
        [*command, "sh", "-c", "kill -TERM $$"], capture_output=True, env=environ
    )
    assert completed.returncode == -15
    completed = subprocess.run([*command, "no-such-command"], capture_output=True, env=environ)
    assert (
        completed.returncode == 127
        and b"the command `no-such-command` was not found" in completed.stderr
    )
    completed = subprocess.run([*command, str(tmp_path)], capture_output=True, env=environ)
    assert completed.returncode == 126 and b"can't be run" in completed.stderr


def test_wrong_usage_is_refused(yard_there: Yard) -> None:
    for arguments, message in (
        (["python", "a.py"], "needs `--run`"),
        (["--run"], "the command is missing"),
        (["--run", "--shell", "fish", "--", "true"], "omit `--shell`"),
        (["--shell", "csh"], "one of"),
    ):
        answer = yard_there("client-env", *arguments)
        assert answer.code == 2 and message in answer.err and not answer.out, answer.err


def test_plain_mlflow_when_it_is_asked_for(yard_there: Yard, running: RealServer) -> None:
    plain = json.loads(yard_there("client-env", "--shell", "json").text)
    assert not any(name.startswith("MLFLOW") for name in plain)
    variables = json.loads(yard_there("client-env", "--shell", "json", "--mlflow").text)
    assert variables["MLFLOW_TRACKING_URI"].endswith("/mlflow/default")
    assert variables["MLFLOW_TRACKING_TOKEN"] == running.token
    answer = yard_there("client-env", "--mlflow", "-w", "nothing")
    assert answer.code == 2 and "workspace `nothing` does not exist" in answer.err


def test_what_stands_in_the_way_is_told(yard_there: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "x")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", "internal")
    answer = yard_there("client-env", "--shell", "json")
    assert "AZURE_CLIENT_SECRET is set" in answer.err
    variables = json.loads(answer.text)
    assert variables["NO_PROXY"] == variables["no_proxy"] == "internal,127.0.0.1"
    monkeypatch.setenv("NO_PROXY", "internal, 127.0.0.1")
    assert "NO_PROXY" not in json.loads(yard_there("client-env", "--shell", "json").text)


def test_a_server_without_tls(yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = RealServer(tmp_path / "plain")
    try:
        monkeypatch.setenv("TORCHYARD_URL", server.url)
        monkeypatch.setenv("TORCHYARD_TOKEN", server.token)
        answer = yard("client-env")
        assert answer.code == 2 and "listens without TLS" in answer.err and not answer.out
    finally:
        server.stop()


def bundle(home: Path, **environ: str) -> bytes:
    return trust.bundle(home, "https://127.0.0.1:8766", OURS, environ).read_bytes()


def pem(name: str) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n"


def test_what_was_trusted_before_is_trusted_still(tmp_path: Path) -> None:
    own_file, other = tmp_path / "own.pem", tmp_path / "other.pem"
    own_file.write_text(pem("corporate"))
    other.write_text(pem("other"))
    made = bundle(tmp_path, REQUESTS_CA_BUNDLE=str(own_file), SSL_CERT_FILE=str(other))
    assert b"corporate" in made and b"ours" in made and b"other" not in made
    assert b"other" in bundle(tmp_path, SSL_CERT_FILE=str(other))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "one.pem").write_text(pem("one"))
    (folder / "two.0").symlink_to(folder / "one.pem")
    (folder / "readme").write_text("no certificate")
    made = bundle(tmp_path, REQUESTS_CA_BUNDLE=str(folder))
    assert made.count(b"\none\n") == 1 and b"ours" in made


def test_the_system_is_trusted_when_nothing_is_named(tmp_path: Path) -> None:
    assert bundle(tmp_path).count(b"BEGIN CERTIFICATE") > 1


def test_a_bundle_is_made_of_its_source_not_of_itself(tmp_path: Path) -> None:
    bundle = tmp_path / "own.pem"
    bundle.write_text(pem("first"))
    url = "https://127.0.0.1:8766"
    file = trust.bundle(tmp_path, url, OURS, {"REQUESTS_CA_BUNDLE": str(bundle)})
    written = file.stat().st_mtime_ns, file.read_bytes()
    # In a shell that has read what was printed, the variable names the bundle.
    inside = {"REQUESTS_CA_BUNDLE": str(file), "SSL_CERT_FILE": str(file)}
    assert trust.bundle(tmp_path, url, OURS, inside) == file
    assert (file.stat().st_mtime_ns, file.read_bytes()) == written
    bundle.write_text(pem("second"))
    assert trust.bundle(tmp_path, url, OURS, inside).read_bytes().count(b"BEGIN") == 2
    assert b"second" in file.read_bytes() and b"first" not in file.read_bytes()
    changed = trust.bundle(tmp_path, url, pem("renewed"), inside).read_bytes()
    assert b"renewed" in changed and b"ours" not in changed
    bundle.unlink()
    assert b"ours" in trust.bundle(tmp_path, url, OURS, inside).read_bytes()


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_certificates_that_can_not_be_read_are_named(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "wrong.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InvalidInput, match="REQUESTS_CA_BUNDLE names") as caught:
        bundle(tmp_path, REQUESTS_CA_BUNDLE=str(file))
    assert "unset the variable" in caught.value.hint


def test_a_server_with_a_certificate_of_its_own(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shared server behind TLS, whose private authority the login names."""
    home = tmp_path / "given"
    issued = certificates.ensure(home, [], datetime.now(timezone.utc))
    authority = tmp_path / "team-ca.pem"
    authority.write_text(certificates.authority(home))
    certificate = listeners.ConfiguredTls(listeners.Tls(issued.file, issued.file), 1234)
    assert certificate.way("") == listeners.TlsEndpoint(1234)
    assert certificate.way("gpu-box").host in issued.names
    server = RealServer(tmp_path / "shared", with_tls=True)
    try:
        monkeypatch.setenv("TORCHYARD_URL", server.tls_url)
        monkeypatch.setenv("TORCHYARD_TOKEN", server.token)
        monkeypatch.setenv("TORCHYARD_CA_CERT", str(server.tls_authority))
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority))
        variables = json.loads(yard("client-env", "--shell", "json").text)
        assert variables["MSI_ENDPOINT"] == f"{server.tls_url}/msi/token"
        trusted = Path(variables["REQUESTS_CA_BUNDLE"]).read_text()
        assert authority.read_text().strip() in trusted
        assert server.tls_authority.read_text().strip() in trusted
    finally:
        server.stop()


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_reads_it() -> None:
    lines = client_env._WRITTEN["fish"]({"A": AWKWARD})
    script = f"{lines}\n{sys.executable} -c {PRINT_ENVIRONMENT!r}"
    completed = subprocess.run(["fish", "-c", script], capture_output=True, check=True)
    assert json.loads(completed.stdout)["A"] == AWKWARD
