"""Deleting assets while others submit jobs, upload the same files, or the server is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from jobs import support
from jobs.cleanup.test_deletion_of_assets import register, upload
from jobs.support import ME, WORKSPACE, submit
from torchyard.assets.deletions import DeletionRequest
from torchyard.base.clock import FakeClock, SystemClock
from torchyard.base.db import Database
from torchyard.base.errors import NotFound, TorchyardError
from torchyard.data import actions as data
from torchyard.data import assets
from torchyard.data import store as data_store
from torchyard.data.datastores import BLOB_STORE
from torchyard.environments import assets as environments
from torchyard.environments.assembly import Environments
from torchyard.environments.types import Platform
from torchyard.jobs import actions
from torchyard.jobs.cleanup import asset_deletion, disk_use, reclaiming
from torchyard.jobs.cleanup.reclaiming import DAY_S, GcItem, GcOptions
from torchyard.jobs.records.types import parse_job
from torchyard.jobs.services import Services
from torchyard.models import actions as models

GET: dict[str, Callable[..., object]] = {
    "data": assets.get,
    "model": models.get,
    "environment": environments.get,
}
_ROUNDS = 6
_TESTS = Path(__file__).parents[2]
# Ends itself when the rows of a version are deleted and its files are not: nothing asks for the
# datastore's folder before.
_KILLED = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
from jobs import support
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.data.datastores import Datastores
from torchyard.assets.deletions import DeletionRequest
from torchyard.jobs.cleanup import asset_deletion

class Killing(Datastores):
    def root(self, workspace, store):
        os.kill(os.getpid(), signal.SIGKILL)

home, url, noun, name = sys.argv[1:]
services = support.make_services(Path(home), Database(url), FakeClock())
services = replace(services, datastores=Killing(Path(home, "datastores")))
request = DeletionRequest(noun, support.WORKSPACE, name)
asset_deletion.delete(services, request, support.ME)
"""


@pytest.fixture
def services(tmp_path: Path, db: Database, clock: FakeClock) -> Services:
    made = support.make_services(tmp_path, db, clock)
    real = Environments(tmp_path, db, clock, {}, platform=Platform("linux", "x86_64", "cpu"))
    made.environments.folders, made.environments.resolver = real.folders, real.resolver
    return made


def at_once(*acts: Callable[[], object]) -> None:
    """Call all at the same moment; what they refuse is not an error."""
    barrier = threading.Barrier(len(acts))
    errors: list[BaseException] = []

    def call(act: Callable[[], object]) -> None:
        barrier.wait()
        try:
            with suppress(TorchyardError):
                act()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def delete(services: Services, noun: str, name: str) -> None:
    asset_deletion.delete(services, DeletionRequest(noun, WORKSPACE, name), ME)


def exists(get: Callable[[], object]) -> bool:
    try:
        get()
    except NotFound:
        return False
    return True


def make(services: Services, noun: str, name: str) -> dict[str, Any]:
    """Make an asset; what a job that uses it says."""
    if noun == "environment":
        request = environments.EnvironmentRequest(name, {"image": "python"})
        environments.register(
            services.db, services.clock, WORKSPACE, request, ME.user, lambda _: None
        )
        return {"environment": f"azureml:{name}@latest"}
    kind = "uri_folder"
    if noun == "data":
        upload(services, name, name.encode())
    else:
        kind = "custom_model"
        register(services, f"snapshot:{snapshot(services, name)}", name)
    inputs = {"a": {"type": kind, "path": f"azureml:{name}@latest"}}
    return {"command": "x ${{inputs.a}}", "inputs": inputs}


def snapshot(services: Services, text: str) -> str:
    sha256 = services.blobs.of("default").put_bytes(text.encode())
    return (
        services.blobs.of("default")
        .put_snapshot({"files": [{"path": "w", "sha256": sha256, "size": 1}]})
        .id
    )


@pytest.mark.parametrize("noun", GET)
def test_a_job_never_gets_an_asset_that_is_deleted_meanwhile(services: Services, noun: str) -> None:
    for number in range(_ROUNDS):
        name = f"asset-{number}"
        spec = make(services, noun, name)
        at_once(partial(submit, services, name=name, **spec), partial(delete, services, noun, name))
        is_submitted = exists(partial(actions.get, services, WORKSPACE, name))
        is_kept = exists(partial(GET[noun], services.db, WORKSPACE, name))
        if noun == "model" and is_submitted and not is_kept:
            # The job came between the model's row and its files, which it names by their path.
            path = parse_job(actions.get(services, WORKSPACE, name)).spec.inputs["a"].path
            assert (root(services) / path.partition("/paths/")[2]).exists()
        else:
            assert is_submitted == is_kept


def test_what_is_uploaded_again_while_it_is_deleted_has_its_files(services: Services) -> None:
    for number in range(_ROUNDS):
        text = f"content {number}".encode()
        upload(services, f"first-{number}", text)
        again = partial(upload, services, f"again-{number}", text)
        at_once(again, partial(delete, services, "data", f"first-{number}"))
        asset = assets.get(services.db, WORKSPACE, f"again-{number}")
        assert [file.size_bytes for file in data.files_of(services.db, services.datastores, asset)]


@pytest.mark.slow
@pytest.mark.parametrize("noun", ["data", "model"])
def test_gc_finds_the_files_of_a_deletion_that_was_killed(
    services: Services, tmp_path: Path, database_url: str, noun: str
) -> None:
    for name in ("kept", "killed"):
        make(services, noun, name)
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path), database_url, noun, "killed"],
        env={**os.environ, "PYTHONPATH": str(_TESTS)},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert not exists(partial(GET[noun], services.db, WORKSPACE, "killed"))
    shown = [item for item in disk_use.measure(services).items if "not registered" in item.name]
    assert len(shown) == 1

    assert [item.remove for item in unregistered(services)] == [False]  # it is new
    age(root(services))
    (item,) = unregistered(services)
    assert item.remove and item.reason == "no record names it"
    assert not (root(services) / item.name.partition("/")[2]).exists()
    assert unregistered(services) == []
    assert [path.read_text() for path in root(services).rglob("*") if path.is_file()] == ["kept"]
    with services.db.read() as connection:
        paths = connection.execute(select(data_store.checksums.c.path)).scalars().all()
    assert len(paths) == (noun == "data")


def test_gc_keeps_what_a_record_names_and_what_it_did_not_make(services: Services) -> None:
    names = ["LocalUpload/" + "a" * 32, "LocalUpload/" + "b" * 32, "LocalUpload/mine"]
    names += ["azureml-models/net/" + "c" * 12, "azureml-models/net/" + "d" * 12]
    for folder in names:
        (root(services) / folder).mkdir(parents=True)
        (root(services) / folder / "w").write_text("x")
    path = f"azureml://datastores/{BLOB_STORE}/paths/{names[0]}/w"
    submit(services, command="x ${{inputs.a}}", inputs={"a": {"type": "uri_file", "path": path}})
    submit(services, tags={"made_from": f"https://host/paths%2Fazureml-models%2Fnet%2F{'c' * 12}"})
    age(root(services))
    assert [item.name for item in unregistered(services)] == [
        f"{WORKSPACE}/{names[1]}",
        f"{WORKSPACE}/{names[4]}",
    ]
    assert [(root(services) / folder).exists() for folder in names] == [
        True,
        False,
        True,
        True,
        False,
    ]


def test_gc_finishes_the_removal_of_a_folder(services: Services) -> None:
    left = root(services) / ".removing-0123456789ab" / "x"
    left.mkdir(parents=True)
    (left / "file").write_text("x")
    age(root(services))
    assert unregistered(services) == []
    assert list(root(services).iterdir()) == []


def root(services: Services) -> Path:
    return services.datastores.root(WORKSPACE, BLOB_STORE)


def age(top: Path) -> None:
    then = time.time() - 40 * DAY_S
    for path in [top, *top.rglob("*")]:
        os.utime(path, (then, then))


def unregistered(services: Services) -> list[GcItem]:
    now = replace(services, clock=SystemClock())
    return [item for item in reclaiming.reclaim(now, GcOptions()) if item.kind == "unregistered"]
