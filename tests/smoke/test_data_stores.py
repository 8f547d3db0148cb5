"""A datastore of each protocol: what one job writes to it is an input of the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml

from data import object_stores
from end_to_end.yard_under_test import Yard

pytestmark = [pytest.mark.smoke, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]
_KINDS: dict[str, Callable[[Path], AbstractContextManager[dict[str, Any]]]] = {
    "s3": lambda folder: object_stores.s3(),
    "azure-blob": object_stores.azure_blob,
    "sftp": object_stores.sftp,
}


@pytest.fixture(params=_KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path, yard: Yard) -> Iterator[str]:
    """The name of a datastore whose server the test starts."""
    kind: str = request.param
    folder = tmp_path / "server"
    folder.mkdir()
    with _KINDS[kind](folder) as document:
        file = _write(tmp_path / "store.yml", {**document, "name": f"smoke-{kind}"})
        yard("datastore", "create", "-f", file)
        yield f"smoke-{kind}"
        yard("datastore", "delete", "-n", f"smoke-{kind}", "--yes")


def test_data_goes_through_a_datastore(yard: Yard, store: str, tmp_path: Path) -> None:
    at_store = f"azureml://datastores/{store}/paths"
    writing = {
        "command": "mkdir ${{outputs.rows}}/deep && seq 1000 > ${{outputs.rows}}/deep/rows.csv",
        "outputs": {"rows": {"path": f"{at_store}/rows"}},
    }
    _complete(yard, tmp_path, writing)
    yard("data", "create", "-n", f"{store}-rows", "--type", "uri_folder", "-p", f"{at_store}/rows/")
    summing = {
        "command": "awk '{n += $1} END {print n}' ${{inputs.rows}}/deep/rows.csv"
        " > ${{outputs.sum}}/sum.txt",
        "inputs": {"rows": {"path": f"azureml:{store}-rows:1"}},
        "outputs": {"sum": {"path": f"{at_store}/sums/${{{{name}}}}"}},
    }
    name = _complete(yard, tmp_path, summing)
    yard("job", "download", "-n", name, "--output-name", "sum", "-p", str(tmp_path / "results"))
    results = tmp_path / "results" / "named-outputs" / "sum" / "sum.txt"
    assert results.read_text() == "500500\n"


def _complete(yard: Yard, folder: Path, job: dict[str, Any]) -> str:
    """Run the job; its name."""
    file = _write(folder / "job.yml", {"environment": "python", **job})
    name = yard("job", "create", "-f", file, "--query", "name", "-o", "tsv").split()[-1]
    yard.completed(name)
    return name


def _write(file: Path, document: dict[str, Any]) -> str:
    file.write_text(yaml.safe_dump(document))
    return str(file)
