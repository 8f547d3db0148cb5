"""SDK v1's `run.download_files`, with and without a prefix."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from azureml.sdk_v1.test_v1_services import Services
from postgres_server import NewDatabase
from workspaces.served import served


@pytest.fixture(scope="module")
def v1(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Services]:
    home = tmp_path_factory.mktemp("home")
    with served(home, new_database(home)) as site:
        yield Services(site, "olga")


def test_all_files_of_a_run_and_those_below_a_folder(v1: Services) -> None:
    v1.of("history", "PATCH", "experiments/e/runs/files", {"runId": "files", "name": "files"})
    container = "ExperimentRun/dcid.files"
    paths = ["outputs/a.txt", "other.txt"]
    sent = {"paths": [{"path": path} for path in paths]}
    response = v1.of("artifact", "POST", f"artifacts/batch/metadata/{container}", sent)
    for item in response["artifactContentInformation"].values():
        # The account is in the place of the host, before an `@`.
        blob = "/" + item["contentUri"].split("://", 1)[1].split("/", 1)[1]
        answer = v1.site.client.put(blob, content=b"x", headers={"x-ms-blob-type": "BlockBlob"})
        assert answer.status_code == 201, answer.text
    top = f"artifacts/prefix/contentinfo/{container}"
    for path, expected in (("", paths), ("/", paths), ("/outputs/", paths[:1])):
        result = [item["path"] for item in v1.of("artifact", "GET", f"{top}{path}")["value"]]
        assert sorted(result) == sorted(expected), path
