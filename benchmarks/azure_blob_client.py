"""What azure_blob.py runs in an environment that has azure-ai-ml: one try, figures as JSON.

python azure_blob_client.py blobs CONTAINER_URL_WITH_SAS FILE
python azure_blob_client.py models FILE
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def blobs(url: str, file: Path) -> dict[str, Any]:
    """By azure-storage-blob, as azure-ai-ml uses it: blocks, several connections at once."""
    from azure.storage.blob import ContainerClient

    client: Any = ContainerClient.from_container_url(url)
    name = f"bench/{os.urandom(4).hex()}/{file.name}"
    started = time.monotonic()
    with open(file, "rb") as opened:
        client.upload_blob(name, opened, max_concurrency=16)
    sent = time.monotonic()
    with tempfile.TemporaryDirectory(dir=file.parent) as back, open(f"{back}/down", "wb") as target:
        client.download_blob(name, max_concurrency=16).readinto(target)
        got = time.monotonic()
        same = sha256(Path(back, "down")) == sha256(file)
    client.delete_blob(name)
    return {"up_s": sent - started, "down_s": got - sent, "same": same}


def models(file: Path) -> dict[str, Any]:
    """By azure-ai-ml: a model registered and downloaded."""
    from azure.ai.ml import MLClient
    from azure.ai.ml.entities import Model
    from azure.identity import DefaultAzureCredential

    client: Any = MLClient(DefaultAzureCredential(), "local", "torchyard", "default")
    name = f"bench-{os.urandom(4).hex()}"
    started = time.monotonic()
    made = client.models.create_or_update(Model(name=name, path=str(file), type="custom_model"))
    sent = time.monotonic()
    with tempfile.TemporaryDirectory(dir=file.parent) as back:
        client.models.download(name, made.version, download_path=back)
        got = time.monotonic()
        copy = next(path for path in Path(back).rglob("*") if path.is_file())
        same = sha256(copy) == sha256(file)
    return {"up_s": sent - started, "down_s": got - sent, "same": same}


def sha256(file: Path) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    seconds = blobs(rest[0], Path(rest[1])) if verb == "blobs" else models(Path(rest[0]))
    print(json.dumps(seconds))
