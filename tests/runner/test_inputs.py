"""Inputs that lie in the server's home: read by the account of the job that names them alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.shared_site import SharedSite, shared_site
from torchyard.shared import access_lists

pytestmark = [
    pytest.mark.runner,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be a runner"),
]

URI = "azureml://datastores/workspaceblobstore/paths/sets/"


@pytest.fixture(scope="module")
def site() -> Iterator[SharedSite]:
    with shared_site() as site:
        site.start_server()
        site.add_person("anna")
        site.add_person("berta")
        folder = site.home / "datastores" / "default" / "workspaceblobstore" / "sets"
        folder.mkdir(parents=True)
        (folder / "a.csv").write_text("the numbers\n")
        for path in (folder, *folder.parents[:3], folder / "a.csv"):
            shutil.chown(path, site.user("server"), site.user("server"))
        yield site


def _copies(site: SharedSite) -> list[Path]:
    data = site.node_folder / "cache" / "data"
    return [path for path in data.iterdir() if path.name not in ("locks", "notes")]


@pytest.mark.parametrize("mode", ["ro_mount", "download"])
def test_a_job_reads_its_input(site: SharedSite, mode: str) -> None:
    inputs = {"data": {"type": "uri_folder", "path": URI, "mode": mode}}
    name = site.submit("anna", "cat ${{inputs.data}}/a.csv", inputs=inputs)
    job = site.wait(name)
    assert job["status"] == "Completed", job
    assert site.output(name) == "the numbers\n"
    [copy] = _copies(site)
    assert access_lists.readers(copy) == {site.uid("anna")}
    # A link, and no copy of the bytes.
    stored = site.home / "datastores" / "default" / "workspaceblobstore" / "sets" / "a.csv"
    assert (copy / "a.csv").samefile(stored)


def test_another_person_reads_it_not_by_its_path(site: SharedSite) -> None:
    [copy] = _copies(site)
    command = f"cat {copy}/a.csv; ls {copy}; ls {copy.parent}; cat {site.home}/token; true"
    name = site.submit("berta", command)
    assert site.wait(name)["status"] == "Completed"
    lines = site.output(name).splitlines()
    assert len(lines) == 4 and all("Permission denied" in line for line in lines), lines


def test_a_folder_of_a_person_is_read_as_their_account(site: SharedSite) -> None:
    folder = site.folder / "of-anna"
    folder.mkdir()
    (folder / "a.csv").write_text("closed to others\n")
    (folder / "link").symlink_to(site.home / "token")
    for path, mode in ((folder / "a.csv", 0o600), (folder, 0o700)):
        path.chmod(mode)
        shutil.chown(path, site.user("anna"), site.user("anna"))
    base = "/v1/workspaces/default"
    document = {"type": "local", "path": str(folder), "account": site.user("anna")}
    for person, body in (("berta", document), ("anna", {**document, "account": ""})):
        with pytest.raises(AssertionError, match=r"account_not_yours|folder_not_listed"):
            site.ask("PUT", f"{base}/datastores/annas", body, person)
    site.ask("PUT", f"{base}/datastores/annas", document, "anna")
    uri = "azureml://datastores/annas/paths/"
    data = {"name": "annas", "path": uri, "type": "uri_folder"}
    site.ask("POST", f"{base}/data", data, "anna")
    files = f"{base}/data/annas/versions/1/files"
    listed = site.ask("GET", files, person="berta")
    assert [file["path"] for file in listed["value"]] == ["a.csv"] and listed["links_left_out"] == 1
    # The server's user may not open the file: it was opened for it.
    assert site.ask("GET", f"{files}/a.csv", person="berta") == b"closed to others\n"
    with pytest.raises(AssertionError, match="link_refused"):
        site.ask("GET", f"{files}/link", person="anna")
    for person, copies in (("anna", 0), ("berta", 1)):
        before = len(_copies(site))
        job = {"inputs": {"data": {"type": "uri_folder", "path": uri, "mode": "ro_mount"}},
               "outputs": {"out": {"path": f"{uri}results/{person}/"}}}  # fmt: skip
        command = "cat ${{inputs.data}}/a.csv; echo made > ${{outputs.out}}/made.txt"
        name = site.submit(person, command, **job)
        assert site.wait(name)["status"] == "Completed", site.output(name)
        assert site.output(name) == "closed to others\n"
        # Anna's job uses the folder itself, which is closed to berta's.
        assert len(_copies(site)) - before == copies
        made = folder / "results" / person / "made.txt"
        assert (made.read_text(), made.stat().st_uid) == ("made\n", site.uid("anna"))
