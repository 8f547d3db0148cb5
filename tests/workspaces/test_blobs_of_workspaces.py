"""A workspace has the files that were sent to it: nobody reads or names another's by their hash."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from azureml.azure_server import WORKSPACE as DEFAULT
from torchyard.app import application
from torchyard.azureml.sdk_v1.snapshots import Snapshots
from torchyard.base.blobs import Blobs
from torchyard.base.errors import NotFound
from torchyard.data.datastores import BLOB_STORE
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.cleanup import reclaiming
from torchyard.jobs.cleanup.reclaiming import DAY_S, GcOptions
from workspaces.served import Served, served

FILES = {"Dockerfile": b"FROM debian\n", "score.py": b"def init(): pass\ndef run(data): pass\n"}
ARM = DEFAULT.replace("/default", "/speech")
VERSION = {"api-version": "2025-12-01"}
ID = "00000000-0000-4000-8000-000000000001"


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


MANIFEST = {
    "files": [
        {"path": path, "sha256": sha256_of(content), "size": len(content), "mode": "0644"}
        for path, content in FILES.items()
    ]
}


@dataclass
class Site:
    """`vic` has sent files to `vision`, of which `snapshot` is; `sam` is in `speech` alone."""

    served: Served
    snapshot: str

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """As sam, below the workspace or with a whole path."""
        where = path if path.startswith("/") else f"/v1/workspaces/speech/{path}"
        return self.served.ask("sam", method, where, body, **more)

    def send(self, who: str, workspace: str) -> str:
        base = f"/v1/workspaces/{workspace}"
        for content in FILES.values():
            where = f"{base}/blobs/{sha256_of(content)}"
            self.served.ok(who, "PUT", where, content=content)
        made: str = self.served.ok(who, "PUT", f"{base}/snapshots", MANIFEST)["id"]
        return made

    def blobs(self, workspace: str) -> Blobs:
        return self.served.parts.services.blobs.of(workspace)


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Site]:
    with served(tmp_path / "home", database_url) as made:
        for workspace, person in (("vision", "vic"), ("speech", "sam")):
            made.ok("home", "POST", "/v1/workspaces", {"name": workspace})
            made.add(person, "contributor", workspace)
        prepared = Site(made, "")
        prepared.snapshot = prepared.send("vic", "vision")
        for kind in ("online", "batch"):
            made.ok("sam", "PUT", f"/v1/workspaces/speech/{kind}-endpoints/digits", {})
        yield prepared


Request = Callable[[str], tuple[str, str, Any]]
JOB = {"command": "true", "environment": "python"}


def _deployment(kind: str) -> Request:
    path = f"{kind}-endpoints/digits/deployments/blue"

    def request(snapshot: str) -> tuple[str, str, Any]:
        code = {"code": f"snapshot:{snapshot}", "scoring_script": "score.py"}
        return "PUT", path, {"code_configuration": code, "environment": "python"}

    return request


def _model_of_deployment(snapshot: str) -> tuple[str, str, Any]:
    code = {"code": f"snapshot:{snapshot}", "scoring_script": "score.py"}
    document = {"model": {"path": f"snapshot:{snapshot}"}, "code_configuration": code}
    path = "online-endpoints/digits/deployments/green"
    return "PUT", path, {**document, "environment": "python"}


def _arm(kind: str, **properties: str) -> Request:
    def request(snapshot: str) -> tuple[str, str, Any]:
        code = f"{ARM}/codes/{snapshot}/versions/1"
        body = {key: value.format(code=code) for key, value in properties.items()}
        return "PUT", f"{ARM}/{kind}", {"properties": body}

    return request


REQUESTS: dict[str, Request] = {
    "code of a job": lambda id: ("POST", "jobs", {**JOB, "code": f"snapshot:{id}"}),
    "input of a job": lambda id: (
        "POST",
        "jobs",
        {**JOB, "inputs": {"a": {"type": "uri_folder", "path": f"snapshot:{id}"}}},
    ),
    "component": lambda id: (
        "POST",
        "components",
        {"name": "c", "type": "command", **JOB, "code": f"snapshot:{id}"},
    ),
    "model": lambda id: ("POST", "models", {"name": "m", "path": f"snapshot:{id}"}),
    "data": lambda id: ("POST", "data", {"name": "d", "path": f"snapshot:{id}"}),
    "build context": lambda id: (
        "POST",
        "environments",
        {"name": "e", "build": {"path": f"snapshot:{id}"}},
    ),
    "online deployment": _deployment("online"),
    "its model": _model_of_deployment,
    "batch deployment": _deployment("batch"),
    "code by its ARM name": _arm(
        "jobs/by-arm",
        jobType="Command",
        command="true",
        environmentId="azureml:python@latest",
        codeId="{code}",
    ),
    "build context by its ARM name": _arm(
        "environments/of-arm/versions/1", osType="Linux", build="{code}"
    ),
}


def _sent(request: tuple[str, str, Any]) -> tuple[str, str, Any]:
    """ARM's build context is a part of its own."""
    method, path, body = request
    build = body.get("properties", {}).get("build")
    if build:
        body = {"properties": {**body["properties"], "build": {"contextUri": build}}}
    return method, path, body


def _answer(site: Site, request: Request, snapshot: str) -> Any:
    method, path, body = _sent(request(snapshot))
    query = VERSION if path.startswith("/subscriptions") else None
    return site.ask(method, path, body, params=query)


def test_blobs_and_snapshots_of_another_workspace_do_not_exist(site: Site) -> None:
    hashes = [*(sha256_of(content) for content in FILES.values()), site.snapshot]
    absent = "0" * 64
    answer = site.ask("POST", "blobs/missing", {"sha256": [*hashes, absent]})
    assert answer.json() == {"missing": [*hashes, absent]}
    for path in ("blobs", "snapshots"):
        nowhere = site.ask("GET", f"{path}/{absent}")
        for sha256 in hashes:
            there = site.ask("GET", f"{path}/{sha256}")
            assert there.status_code == nowhere.status_code == 404
            assert there.text == nowhere.text.replace(absent[:12], sha256[:12])
    refused = site.ask("PUT", "snapshots", MANIFEST)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "blobs_missing"
    assert not list(site.blobs("speech").all())


@pytest.mark.parametrize("name", REQUESTS)
def test_no_document_names_what_another_workspace_has(site: Site, name: str) -> None:
    request = REQUESTS[name]
    before = site.served.rows()
    refused, nowhere = (_answer(site, request, id) for id in (site.snapshot, "0" * 64))
    assert refused.status_code in (400, 404), refused.text
    assert refused.status_code == nowhere.status_code
    shown = nowhere.text.replace("0" * 64, site.snapshot)
    assert refused.text == shown.replace("0" * 12, site.snapshot[:12])
    assert site.served.rows() == before
    assert not list(site.blobs("speech").all())
    assert site.send("sam", "speech") == site.snapshot
    accepted = _answer(site, request, site.snapshot)
    assert accepted.status_code in (200, 201), accepted.text


def test_a_record_in_a_datastore_leads_to_no_other_workspace(site: Site) -> None:
    """SDK v1's own ids of snapshots are files that everybody of a workspace can write."""
    services = site.served.parts.services
    path = f"azureml-snapshots/{ID}.json"
    with services.datastores.writing("speech", BLOB_STORE, path) as writing:
        writing.write(json.dumps({"snapshot": site.snapshot}).encode())
    snapshots = Snapshots(services.blobs, services.datastores)
    with pytest.raises(NotFound):
        snapshots.find("speech", ID)
    site.send("sam", "speech")
    assert snapshots.find("speech", ID).id == site.snapshot


def test_what_one_workspace_names_no_more_goes_from_it_alone(site: Site) -> None:
    site.send("sam", "speech")
    site.served.ok(
        "vic", "POST", "/v1/workspaces/vision/jobs", {**JOB, "code": f"snapshot:{site.snapshot}"}
    )
    then = time.time() - 40 * DAY_S
    for workspace in ("vision", "speech"):
        for sha256, _ in site.blobs(workspace).all():
            os.utime(site.blobs(workspace).path(sha256), (then, then))
    reclaiming.reclaim(site.served.parts.services, GcOptions())
    assert site.blobs("vision").snapshot(site.snapshot)
    assert not list(site.blobs("speech").all())


def test_a_new_workspace_of_an_old_name_has_nothing(site: Site) -> None:
    site.send("sam", "speech")
    for kind in ("online", "batch"):
        path = f"/v1/workspaces/speech/{kind}-endpoints/digits"
        site.served.ask("home", "DELETE", path)
    folder = site.blobs("vision").folder
    answer = site.served.ask("home", "DELETE", "/v1/workspaces/vision")
    assert answer.status_code < 300, answer.text
    assert not folder.exists()
    # An upload that ends only now.
    site.blobs("vision").put_bytes(FILES["score.py"])
    site.served.ok("home", "POST", "/v1/workspaces", {"name": "vision"})
    assert not list(site.blobs("vision").all())
    assert site.blobs("speech").snapshot(site.snapshot)


def test_a_home_from_before_gives_each_workspace_what_it_names(
    tmp_path: Path, database_url: str
) -> None:
    home = tmp_path / "home"
    with served(home, database_url) as made:
        for workspace in ("vision", "speech"):
            made.ok("home", "POST", "/v1/workspaces", {"name": workspace})
        site = Site(made, "")
        snapshot = site.send("home", "vision")
        job = {**JOB, "code": f"snapshot:{snapshot}"}
        made.ok("home", "POST", "/v1/workspaces/vision/jobs", job)
        unnamed = site.blobs("vision").put_bytes(b"of nobody")
    # As it was: one folder for all.
    for file in [path for path in (home / "blobs").rglob("*") if path.is_file()]:
        target = home / "blobs" / file.name[:2] / file.name
        target.parent.mkdir(exist_ok=True)
        file.rename(target)
    shutil.rmtree(home / "blobs" / "workspaces")
    parts = application.build(
        home, "http://127.0.0.1:1", os.environ, executor=FakeExecutor(), database=database_url
    )
    try:
        blobs = parts.services.blobs
        assert blobs.workspaces() == ["vision"]
        assert blobs.of("vision").snapshot(snapshot)
        assert not blobs.of("vision").has(unnamed)
    finally:
        parts.services.db.close()


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "/etc", "a\0", "aa\n"])
def test_no_name_leads_out_of_the_folder(site: Site, name: str) -> None:
    blobs = site.served.parts.services.blobs
    with pytest.raises(NotFound):
        blobs.of(name)
    with pytest.raises(NotFound):
        blobs.forget(name)
