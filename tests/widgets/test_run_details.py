"""torchyard's `RunDetails(job)` in JupyterLab in Chromium: a live job, an ended, a hostile one."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import client_venvs
import jupyter_lab
import pytest
from yard_under_test import Yard, remove

pytestmark = [pytest.mark.widgets, pytest.mark.timeout(900)]

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
HOSTILE = '<script>window.hacked=9</script>"><img src=x onerror="window.hacked=10">'
_LIMIT_S = 660


@pytest.fixture(scope="module")
def notebooks(yard: Yard) -> Iterator[Path]:
    """Where the notebook and its scripts lie."""
    folder = Path(tempfile.mkdtemp(prefix="torchyard-details-"))
    shutil.copytree(HERE / "run_details", folder, dirs_exist_ok=True)
    shutil.copy(REPOSITORY / "tests/web_page/scripts/hostile.py", folder / "src")
    yield folder
    remove(folder)


@pytest.fixture(scope="module")
def screens(yard: Yard, notebooks: Path) -> dict[str, Any]:
    """What was on the screen; see watch_run_details.py."""
    python = client_venvs.python(client_venvs.ANYWIDGET)
    variables = {**jupyter_lab.plain_variables(yard), "PYTHONPATH": str(REPOSITORY / "src")}
    with jupyter_lab.running_lab([python, "-m", "jupyterlab"], notebooks, variables) as top:
        command: list[str | Path] = [python, HERE / "watch_run_details.py", top, jupyter_lab.TOKEN]
        command += [notebooks, Path(sys.executable).with_name("yard")]
        return jupyter_lab.watch(command, notebooks, _LIMIT_S, yard.variables)


def test_a_job_is_followed_while_it_learns(screens: dict[str, Any]) -> None:
    learning = screens["learning"]
    assert "Running" in learning["text"] and "Learn to read digits" in learning["text"]
    assert "epoch 10: loss 0.1353" in learning["log"], learning["log"]
    assert "epoch 11:" not in learning["log"], "the script goes on only when it was seen"
    assert learning["charts"] == ["Chart of accuracy: accuracy", "Chart of loss: loss"]
    assert learning["theme"] == "light"


def test_a_job_is_followed_to_its_end_over_a_restart_of_the_server(screens: dict[str, Any]) -> None:
    ended = screens["ended"]
    assert "Completed" in ended["text"] and "Not up to date" not in ended["text"], ended["text"]
    assert ended["log"].rstrip().endswith("learned"), ended["log"]
    assert ended["values"] == ["0.988815", "0.0223708"], "the last point is in the charts"
    assert ended["saved"] == [False], "the saved page is hidden behind the widget"


def test_a_job_and_jobs_as_a_cells_value_are_tables(screens: dict[str, Any]) -> None:
    assert "<table>" in screens["job"] and "Learn to read digits" in screens["job"]
    assert "Learn to read digits" in screens["list"] and "Failed" in screens["list"]


def test_links_lead_to_the_jobs_page(screens: dict[str, Any], yard: Yard) -> None:
    server = json.loads((yard.home / "server.json").read_text())["url"]
    (link,) = screens["ended"]["links"]
    assert link.startswith(f"{server}/ui/workspaces/default/jobs/")


def test_hostile_text_stays_text(screens: dict[str, Any]) -> None:
    hostile = screens["hostile"]
    assert HOSTILE in hostile["text"] and HOSTILE in screens["list"], hostile["text"]
    assert "<script>window.hacked=1</script>" in hostile["log"], hostile["log"]
    assert screens["hacked"] == screens["hacked_later"] == "undefined"
    assert HOSTILE in screens["foreign"][1], screens["foreign"][1]


def test_a_saved_notebook_shows_the_last_state_without_its_kernel(screens: dict[str, Any]) -> None:
    for text in (screens["reopened"], screens["foreign"][0]):
        assert "Completed" in text and "learned" in text and "0.0223708" in text, text
    assert "Error displaying widget" not in screens["reopened"], screens["reopened"]
    assert screens["pictures"] == 2, "the charts are there, too"


def test_nothing_is_printed_and_no_token_is_stored(
    screens: dict[str, Any], yard: Yard, notebooks: Path
) -> None:
    text = (notebooks / "details.ipynb").read_text()
    outputs = [cell["outputs"] for cell in json.loads(text)["cells"]]
    kinds = [[output["output_type"] for output in of_cell] for of_cell in outputs]
    assert kinds == [
        ["execute_result"],
        ["display_data", "display_data"],
        ["display_data", "display_data"],
        ["execute_result"],
    ]
    assert (yard.home / "token").read_text().strip() not in text and "yard_p_" not in text


def test_the_browser_asks_nobody_but_jupyter(screens: dict[str, Any], yard: Yard) -> None:
    server = urlsplit(json.loads((yard.home / "server.json").read_text())["url"]).netloc
    addresses = {urlsplit(url) for url in screens["requests"] if url.startswith("http")}
    assert {address.hostname for address in addresses} == {"127.0.0.1"}
    assert server not in {address.netloc for address in addresses}
    assert not screens["errors"], screens["errors"]


def test_pictures_show_both_themes(screens: dict[str, Any], notebooks: Path) -> None:
    for name in ("details-light.png", "details-dark.png"):
        assert (notebooks / name).read_bytes().startswith(b"\x89PNG"), name
    if os.environ.get("TORCHYARD_WRITE_PICTURES"):
        pictures = REPOSITORY / "docs/pictures"
        pictures.mkdir(exist_ok=True)
        for theme in ("light", "dark"):
            shutil.copy(notebooks / f"details-{theme}.png", pictures / f"notebook-{theme}.png")
