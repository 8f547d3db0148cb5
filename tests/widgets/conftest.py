"""JupyterLab with azureml-widgets beside one torchyard, and what Chromium saw there: once.

Owns: the life of the server.
Leaves: JupyterLab's and the browser's to jupyter_lab.py, what the browser does to
watch_notebook.py, what is made of it to the tests.
Always: at the end no process that knows the home folder is alive.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "contracts_azure"))
sys.path.append(str(Path(__file__).parents[1] / "end_to_end"))

import client_venvs
import jupyter_lab
from yard_under_test import Yard, remove, running_yard

from end_to_end.shared_torch import WIDGETS, kept_or_temporary

HERE = Path(__file__).resolve().parent
# What watch_notebook.py gives itself, and some time to write down how far it came.
_LIMIT_S = 660
# Cells with code up to the first widget.
_CELLS_OF_FIRST_RUN = 3


@pytest.fixture(scope="session", autouse=True)
def client() -> str:
    """The environments and the browser of `make widgets`; without them there is nothing to test."""
    name = client_venvs.WIDGETS
    absent = [each for each in (name, client_venvs.ANYWIDGET) if not client_venvs.is_whole(each)]
    absent += [] if shutil.which("chromium") else ["chromium"]
    if absent and os.environ.get("TORCHYARD_TEST_SERVICES") != "required":
        pytest.skip(f"`make widgets` installs {' and '.join(absent)}")
    assert not absent, absent
    return name


@pytest.fixture(scope="session")
def yard() -> Iterator[Yard]:
    with running_yard("widgets") as yard:
        yield yard


@pytest.fixture(scope="session")
def folder(yard: Yard, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Where the notebook and its script lie; the smoke test needs its first run alone."""
    notebook_folder = Path(tempfile.mkdtemp(prefix="torchyard-notebook-"))
    shutil.copytree(HERE / "notebook", notebook_folder, dirs_exist_ok=True)
    tests = [item for item in request.session.items if HERE in item.path.parents]
    if all(item.get_closest_marker("smoke") for item in tests):
        _keep_first_run(notebook_folder / "learning.ipynb")
    yard("workspace", "config", "--path", str(notebook_folder))
    yield notebook_folder
    remove(notebook_folder)


def _keep_first_run(notebook: Path) -> None:
    content = json.loads(notebook.read_text())
    codes = [index for index, cell in enumerate(content["cells"]) if cell["cell_type"] == "code"]
    del content["cells"][codes[_CELLS_OF_FIRST_RUN] :]
    notebook.write_text(json.dumps(content))


@pytest.fixture(scope="session")
def environment(yard: Yard) -> None:
    """What the notebook's environment comes to, built: no test watches that."""
    with kept_or_temporary() as shared:
        shared.lend(yard.home, WIDGETS)
    yard("environment", "create", "-n", "learning-built", "--pip-requirements", str(WIDGETS))
    yard("environment", "build", "learning-built", timeout_s=600)


@pytest.fixture(scope="session")
def address(yard: Yard, client: str, folder: Path) -> Iterator[str]:
    """The notebook, in a JupyterLab that was started as the guide says."""
    yard("jupyterlab", "--python", str(client_venvs.python(client)))
    command: list[str | Path] = [Path(sys.executable).with_name("yard"), "client-env", "--run"]
    command += ["--", client_venvs.python(client), "-m", "jupyterlab"]
    with jupyter_lab.running_lab(command, folder, jupyter_lab.plain_variables(yard)) as top:
        yield f"{top}lab/tree/learning.ipynb?token={jupyter_lab.TOKEN}"


@pytest.fixture(scope="session")
def seen(environment: None, address: str, client: str, folder: Path) -> dict[str, Any]:
    """What was on the screen; see watch_notebook.py."""
    command: list[str | Path] = [client_venvs.python(client), HERE / "watch_notebook.py"]
    command += [address, folder]
    return jupyter_lab.watch(command, folder, _LIMIT_S)
