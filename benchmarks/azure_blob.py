"""A large file up and down by Azure's own clients: to us, to Azurite, and beside `cp`.

    python benchmarks/azure_blob.py --client PYTHON [--azurite PROGRAM] [--mb 1024] [--rounds 3]

PYTHON is one of an environment that has azure-ai-ml (`make azure-clients` makes some). Ours is
asked by TLS, as the clients insist; Azurite without, which spares it that work. Also the memory of
either server at the most, and whether the bytes that came back are those that were sent.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from figures import YARD, Case, compare, temporary_yard

SCRIPT = Path(__file__).with_name("azure_blob_client.py")
# Azurite's own account, the same in every installation; it opens nothing else.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
CONTAINER = f"""
import datetime, sys
from azure.storage.blob import BlobServiceClient, generate_container_sas
url = sys.argv[1]
BlobServiceClient(url, credential="{KEY}").create_container("bench")
ends = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=6)
sas = generate_container_sas("{ACCOUNT}", "bench", "{KEY}", permission="racwdl", expiry=ends)
print(url + "/bench?" + sas)
"""
OURS = """
from azure.ai.ml import MLClient
from azure.identity import DefaultAzureCredential
client = MLClient(DefaultAzureCredential(), "local", "torchyard", "default")
store = client.datastores.get_default(include_secrets=True)
print(f"https://{store.account_name}.blob.{store.endpoint}/{store.container_name}?"
      + store.credentials.sas_token)
"""


def last_line_of(command: list[str | Path], variables: Mapping[str, str]) -> Any:
    process = subprocess.run(command, env=dict(variables), capture_output=True, text=True)
    assert process.returncode == 0, f"{process.stdout[-2000:]}\n{process.stderr[-4000:]}"
    return process.stdout.strip().splitlines()[-1]


def tried(command: list[str | Path], variables: Mapping[str, str]) -> dict[str, float]:
    figures = json.loads(last_line_of(command, variables))
    assert figures.pop("same"), "the bytes that came back are others"
    return dict(figures)


def copied(file: Path) -> dict[str, float]:
    target = file.with_name("copy")
    started = time.monotonic()
    shutil.copyfile(file, target)
    took = time.monotonic() - started
    target.unlink()
    return {"up_s": took, "down_s": took}


def peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


@contextmanager
def azurite(program: str, folder: Path) -> Iterator[tuple[str, int]]:
    """(address of the account, pid)"""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [program, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", folder,
         "--silent", "--skipApiVersionCheck", "--disableTelemetry"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}/{ACCOUNT}"
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(url, timeout=1)
                break
            except urllib.error.HTTPError:
                break
            except OSError:
                time.sleep(0.1)
        yield url, server.pid
    finally:
        server.terminate()
        server.wait(20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--client", required=True, help="a Python that has azure-ai-ml")
    parser.add_argument("--azurite", default="", help="the program azurite-blob")
    parser.add_argument("--mb", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, temporary_yard() as variables:
        file = Path(temporary, "large.bin")
        with open(file, "wb") as opened:
            for _ in range(arguments.mb):
                opened.write(os.urandom(1 << 20))
        prefix: list[str | Path] = [YARD, "client-env", "--run", "--", arguments.client]
        url = last_line_of([*prefix, "-c", OURS], variables)
        cases = [
            Case(
                "azure-storage-blob to us",
                partial(tried, [*prefix, SCRIPT, "blobs", url, file], variables),
            ),
            Case("azure-ai-ml to us", partial(tried, [*prefix, SCRIPT, "models", file], variables)),
            Case("cp", partial(copied, file)),
        ]
        title = f"a file of {arguments.mb} MB"
        status = json.loads(
            subprocess.check_output([YARD, "server", "status", "-o", "json"], env=variables)
        )
        print(f"server's memory before: {peak_mb(status['pid']):.0f} MB at the most")
        if not arguments.azurite:
            compare(title, cases, arguments.rounds)
        else:
            with azurite(arguments.azurite, Path(temporary, "azurite")) as (account, pid):
                theirs = last_line_of([arguments.client, "-c", CONTAINER, account], os.environ)
                command = [arguments.client, SCRIPT, "blobs", theirs, file]
                name = "azure-storage-blob to Azurite"
                cases.insert(1, Case(name, partial(tried, command, os.environ)))
                compare(title, cases, arguments.rounds)
                print(f"Azurite's memory: {peak_mb(pid):.0f} MB at the most")
        print(f"server's memory: {peak_mb(status['pid']):.0f} MB at the most")


if __name__ == "__main__":
    main()
