"""Data in, data out: real workers, on a folder, on S3 and on Azure Blob."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from contracts.files_contract import put
from data import object_stores
from jobs import support
from torchyard import server
from torchyard.app import application
from torchyard.data import assets, datastores
from torchyard.jobs import actions
from torchyard.jobs.files import artifacts
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.requests import submission
from torchyard.jobs.services import Services
from torchyard.workspaces.types import Identity, TokenKind

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore"),
]
_ME = Identity("me", TokenKind.PERSON)
_FILES = {"a.bin": os.urandom(3 << 20), "deep/b.txt": b"b\n"}
_SHOW = """
sum=$(cd ${{inputs.data}} && cat a.bin deep/b.txt | sha256sum | cut -d' ' -f1)
echo node $NODE_RANK sum $sum
for try in "touch ${{inputs.data}}/new" "rm ${{inputs.data}}/a.bin" "chmod u+w ${{inputs.data}}" \\
  "mount -o remount,rw ${{inputs.data}}" "umount ${{inputs.data}}"; do
  $try 2>/dev/null && { echo "could $try"; exit 3; }
done
echo changed >> ${{inputs.copy}}
cp ${{inputs.data}}/deep/b.txt ${{outputs.made}}/from-$NODE_RANK.txt
"""


@pytest.fixture(
    params=[
        "local",
        pytest.param("s3", marks=pytest.mark.object_store),
        pytest.param("azure_blob", marks=pytest.mark.object_store),
        pytest.param("sftp", marks=pytest.mark.object_store),
    ]
)
def document(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A datastore `lake`."""
    with contextlib.ExitStack() as stack:
        if request.param == "local":
            (tmp_path / "lake").mkdir()
            yield {"name": "lake", "type": "local", "path": str(tmp_path / "lake")}
        elif request.param == "s3":
            yield stack.enter_context(object_stores.s3())
        elif request.param == "sftp":
            yield stack.enter_context(object_stores.sftp(tmp_path))
        else:
            yield stack.enter_context(object_stores.azure_blob(tmp_path / "azurite"))


@pytest.fixture
def services(tmp_path: Path, new_url: Callable[[], str]) -> Iterator[Services]:
    """A whole server with local nodes."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    listener = server.listen(home, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    parts = application.build(home, url, os.environ, database=new_url())
    support.add_owners(parts.services.db, parts.services.clock, _ME.user)
    config = uvicorn.Config(application.create_app(parts), log_level="warning")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
    thread.start()
    yield parts.services
    parts.services.signals.close()  # lets the open requests go
    running.should_exit = True
    thread.join(60)


def _run(services: Services, **document: Any) -> Job:
    job, _ = submission.create(services, "default", {"environment": "python", **document}, _ME)
    deadline = time.monotonic() + 120
    while not job.status.ended:
        assert time.monotonic() < deadline, job
        time.sleep(0.05)
        job = actions.get(services, "default", job.name)
    log = _logs_of(services, job)
    assert job.status is Status.COMPLETED, (job.error, log)
    return job


def _logs_of(services: Services, job: Job) -> str:
    names = [file.path for file in artifacts.list_of(services, job) if "std_log" in file.path]
    return "".join(artifacts.file(services, job, name).read_text() for name in names)


def test_data_goes_in_and_out(services: Services, document: dict[str, Any]) -> None:
    made = datastores.put(
        services.db, services.clock, services.datastores, "default", document, "me"
    )
    lake = datastores.open_files(services.db, services.datastores, made)
    put(lake, _FILES, "sets/")
    body = {
        "command": _SHOW,
        "resources": {"instance_count": 2},
        "distribution": {"type": "pytorch"},
        "inputs": {
            "data": {"path": "azureml://datastores/lake/paths/sets/"},
            "copy": {
                "type": "uri_file",
                "path": "azureml://datastores/lake/paths/sets/deep/b.txt",
                "mode": "download",
            },
        },
        "outputs": {
            "made": {"path": "azureml://datastores/lake/paths/out/${{name}}", "name": "made"}
        },
    }
    job = _run(services, **body)
    sum = hashlib.sha256(b"".join(_FILES.values())).hexdigest()
    assert sorted(_logs_of(services, job).split("\n"))[-2:] == [
        f"node {k} sum {sum}" for k in (0, 1)
    ]
    written = {entry.path: entry.size_bytes for entry in lake.walk(f"out/{job.name}")}
    assert written == {"from-0.txt": 2, "from-1.txt": 2}
    assert {entry.path for entry in lake.walk("sets")} == set(_FILES)
    asset = assets.get(services.db, "default", "made")
    assert (asset.version, asset.job) == ("1", job.name)

    before = _cached(services)
    again = _run(services, **body)
    assert _logs_of(services, again).count(sum) == 2
    assert _cached(services) == before, "the second job copied something"

    reader = _run(
        services,
        command="cat ${{inputs.made}}/from-*.txt",
        inputs={"made": {"path": "azureml:made:1"}},
    )
    assert _logs_of(services, reader) == "b\nb\n"


def _cached(services: Services) -> dict[str, int]:
    """Every file of the node's cache with its inode."""
    top = services.home / "cache" / "data"
    return {
        str(path.relative_to(top)): path.stat().st_ino
        for path in top.rglob("*")
        if path.is_file() and path.parts[len(top.parts)] not in ("notes", "locks")
    }
