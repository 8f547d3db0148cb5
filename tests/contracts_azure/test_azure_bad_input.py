"""What goes wrong between a client and the server: once only, and nothing half done."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import client_venvs
import pytest
from losing_proxy import LosingProxy
from yard_under_test import Yard, wait_until

pytestmark = [pytest.mark.azure, pytest.mark.timeout(300)]

HERE = Path(__file__).resolve().parent
_WORKSPACE = (
    "/subscriptions/local/resourceGroups/torchyard/providers"
    "/Microsoft.MachineLearningServices/workspaces/default"
)


@pytest.fixture
def proxy(variables: dict[str, str]) -> Iterator[LosingProxy]:
    made = LosingProxy(urlsplit(variables["ARM_CLOUD_METADATA_URL"]).port or 0)
    yield made
    made.close()


@pytest.mark.parametrize("client", [client_venvs.CLIENTS[0], client_venvs.CLIENTS[-1]])
def test_a_create_whose_answer_was_lost_makes_one_job(
    yard: Yard, variables: dict[str, str], proxy: LosingProxy, tmp_path: Path, client: str
) -> None:
    yard("workspace", "config", "--path", str(tmp_path))
    name = f"lost-{client[-2:]}"
    metadata = urlsplit(variables["ARM_CLOUD_METADATA_URL"])
    through = metadata._replace(netloc=f"127.0.0.1:{proxy.port}").geturl()
    config = str(tmp_path / ".azureml" / "config.json")
    with subprocess.Popen(
        [str(client_venvs.python(client)), "-W", "ignore", str(HERE / "one_job.py"), config, name],
        env={**variables, "ARM_CLOUD_METADATA_URL": through},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        for line in process.stdout:
            if line.strip() == "now":
                break
        proxy.lose_next()
        out, _ = process.communicate("\n", timeout=120)
    assert proxy.lost == 1
    assert process.returncode == 0
    assert json.loads(out.splitlines()[-1])["name"] == name
    assert [job["name"] for job in yard.get("jobs")["value"]].count(name) == 1
    log = yard.completed(name) and yard.logs(name)["user_logs/std_log.txt"]
    assert log == b"once\n"


def _answer_of(yard: Yard, variables: dict[str, str], path: str, body: Any) -> Any:
    base = variables["ARM_CLOUD_METADATA_URL"].partition("/metadata")[0]
    token = (yard.home / "token").read_text().strip()
    request = urllib.request.Request(
        f"{base}{_WORKSPACE}{path}?api-version=2024-01-01-preview",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60, context=_trusting(variables)) as answer:
        return json.loads(answer.read())


def _trusting(variables: dict[str, str]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=variables["SSL_CERT_FILE"])


def test_an_upload_that_is_cut_off_leaves_nothing(yard: Yard, variables: dict[str, str]) -> None:
    path = "/codes/cut/versions/1/startPendingUpload"
    upload = _answer_of(yard, variables, path, {"pendingUploadType": "TemporaryBlobReference"})
    address = urlsplit(upload["blobReferenceForConsumption"]["credential"]["sasUri"])
    target = f"{address.path}/src/half.py?{address.query}"
    with (
        socket.create_connection((str(address.hostname), address.port or 443)) as plain,
        _trusting(variables).wrap_socket(plain, server_hostname=address.hostname) as wire,
    ):
        head = f"PUT {target} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: 1000000\r\n"
        wire.sendall(f"{head}x-ms-blob-type: BlockBlob\r\n\r\n".encode() + b"x" * 400_000)
    with pytest.raises(urllib.error.HTTPError) as refused:
        url = f"https://{address.netloc}{target}"
        urllib.request.urlopen(url, timeout=60, context=_trusting(variables))
    with refused.value as answer:
        assert (answer.code, answer.headers["x-ms-error-code"]) == (404, "BlobNotFound")

    def stored() -> list[str]:
        tree = os.walk(yard.home / "datastores")
        return [name for _, _, names in tree for name in names if name.startswith("half.py")]

    # The server hears of the end a moment after the client has gone.
    wait_until(lambda: not stored(), 60, "nothing of it is kept")
