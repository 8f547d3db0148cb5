"""Stores that tests start: S3 by moto, Azure Blob by Azurite, SFTP by paramiko.

Always: a missing one skips, but fails where TORCHYARD_TEST_SERVICES says that it must be there.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

_ROOT = Path(__file__).parent.parent.parent
# Azurite's own account, the same in every installation, and valid nowhere else.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@contextmanager
def s3() -> Iterator[dict[str, Any]]:
    """The document of a datastore `lake` with a fresh bucket."""
    try:
        import s3fs
        from moto.server import ThreadedMotoServer
    except ImportError as error:
        _missing(f"moto or s3fs is not installed: {error}")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        document = {
            "name": "lake",
            "type": "s3",
            "bucket": f"b{uuid.uuid4().hex[:8]}",
            "endpoint": f"http://{host}:{port}",
            "region": "us-east-1",
            "credentials": {"access_key_id": "k", "secret_access_key": "s"},
        }
        system = s3fs.S3FileSystem(key="k", secret="s", endpoint_url=document["endpoint"])
        system.mkdir(document["bucket"])
        yield document
    finally:
        server.stop()


@contextmanager
def azure_blob(folder: Path) -> Iterator[dict[str, Any]]:
    """The document of a datastore `lake` with a fresh container."""
    program = _azurite()
    try:
        from adlfs import AzureBlobFileSystem
    except ImportError as error:
        _missing(f"adlfs is not installed: {error}")
    port = _free_port()
    server = subprocess.Popen(
        [program, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder),
         "--silent", "--skipApiVersionCheck", "--disableTelemetry"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    endpoint = f"http://127.0.0.1:{port}/{_ACCOUNT}"
    try:
        _wait_for(endpoint, server)
        text = (
            f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY};"
            f"BlobEndpoint={endpoint};"
        )
        container = f"c{uuid.uuid4().hex[:8]}"
        AzureBlobFileSystem(connection_string=text).mkdir(container)
        yield {
            "name": "lake",
            "type": "azure_blob",
            "account_name": _ACCOUNT,
            "container_name": container,
            "endpoint": endpoint,
            "credentials": {"account_key": _KEY},
        }
    finally:
        server.terminate()
        server.wait(60)


@contextmanager
def sftp(folder: Path) -> Iterator[dict[str, Any]]:
    """The document of a datastore `lake` over an empty folder."""
    try:
        from data import sftp_server
    except ImportError as error:
        _missing(f"paramiko is not installed: {error}")
    (folder / "lake").mkdir()
    with sftp_server.running(folder) as port:
        yield {
            "name": "lake",
            "type": "sftp",
            "host": "127.0.0.1",
            "port": port,
            "username": sftp_server.USER,
            "path": "/lake",
            "credentials": {"password": sftp_server.PASSWORD},
        }


def _azurite() -> str:
    installed = _ROOT / ".azurite" / "node_modules" / ".bin" / "azurite-blob"
    program = str(installed) if installed.exists() else shutil.which("azurite-blob")
    return program or _missing("Azurite is not installed: `make azurite`")


def _missing(why: str) -> NoReturn:
    if os.environ.get("TORCHYARD_TEST_SERVICES") == "required":
        pytest.fail(why)
    pytest.skip(why)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        assert server.poll() is None, "Azurite ended"
        try:
            urllib.request.urlopen(url, timeout=60).close()
            return
        except urllib.error.HTTPError as error:
            error.close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("Azurite does not answer")
