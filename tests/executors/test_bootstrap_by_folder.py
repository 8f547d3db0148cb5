"""A node that no network leads to the server from gets its worker from the shared folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from executors import folder_site
from executors.folder_site import ATTEMPT, REPORT, SERVER_ID, Site
from torchyard.executors import bootstrap_program, bundle, shared_folders
from torchyard.shared.folder_link import blocks
from torchyard.shared.node_start import NodeStart


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with folder_site.site(tmp_path) as made:
        home = tmp_path / "home"
        program = bundle.worker_zip(home)
        shared_folders.add_worker(made.folder, program, bundle.sha256_of(program))
        yield made


def _run(site: Site, node_folder: Path, worker: str = "") -> subprocess.CompletedProcess[str]:
    program = next(site.folder.glob("workers/*.pyz"), None)
    start = NodeStart(
        attempt_id=ATTEMPT,
        server_urls=[shared_folders.attempt_url(str(site.shared), SERVER_ID, ATTEMPT)],
        report_token=REPORT,
        worker=worker or (program.stem if program else "0" * 64),
        server_id=SERVER_ID,
        folder=str(node_folder),
    )
    return subprocess.run(
        [sys.executable, "-I", "-S", bootstrap_program.__file__, "--node", "0"],
        input=start.to_json() + "\n", text=True, capture_output=True, timeout=120,
    )  # fmt: skip


def _reported(site: Site) -> str:
    (report,) = [got for got in site.got if got.path.endswith("/report")]
    return str(json.loads(report.body)["events"][0]["body"]["error"]["message"])


def test_the_worker_is_copied_and_starts(site: Site, tmp_path: Path) -> None:
    with site.served():
        done = _run(site, tmp_path / "node")
    assert [file.suffix for file in (tmp_path / "node/workers").iterdir()] == [".pyz"]
    # This server's plans are none: the worker's starter asked for one.
    assert [got.path for got in site.got][:1] == [f"/v1/attempts/{ATTEMPT}/plan"], done.stderr


def test_a_node_that_cannot_hold_it_says_so_through_the_folder(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with site.served():
        done = _run(site, tmp_path / "file" / "node")
    assert done.returncode == bootstrap_program.EXIT_CODE
    assert "can't be made" in _reported(site)


def test_another_program_in_its_place_is_not_run(site: Site, tmp_path: Path) -> None:
    (program,) = site.folder.glob("workers/*.pyz")
    program.write_bytes(b"import os; os.abort()")
    done = _run(site, tmp_path / "node")
    assert done.returncode == bootstrap_program.EXIT_CODE
    assert "is not the one that it was told of" in done.stderr
    assert "the worker's program is not in the shared folder" in done.stderr


@pytest.mark.parametrize(
    ("removed", "message"),
    [("", "does not see the shared folder"), (ATTEMPT, "is not the one that the server sees")],
)
def test_a_folder_that_the_node_does_not_see_is_named(
    site: Site, tmp_path: Path, removed: str, message: str
) -> None:
    shutil.rmtree(site.folder / removed if removed else site.shared)
    done = _run(site, tmp_path / "node")
    assert done.returncode == bootstrap_program.EXIT_CODE
    assert f"`{site.shared}`" in done.stderr and message in done.stderr
    site.shared.mkdir(exist_ok=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder away")
def test_files_of_another_user_are_named(site: Site, tmp_path: Path) -> None:
    os.chown(site.attempt, 65534, 65534)
    done = _run(site, tmp_path / "node")
    assert "belong to another user" in done.stderr
    assert blocks.names(site.attempt / blocks.REQUESTS) == []
