"""A job's code as a page shows it: its files, their text, how another job's differ."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from web.browser_like import signed_in
from workspaces.served import HERE, JOB, Served, served

ONE_DATABASE = True
SCRIPT = "import math\n\n\ndef main():\n    print(1)\n"


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Served]:
    with served(tmp_path, database_url) as made:
        for name, files in (
            ("old", {"train.py": SCRIPT, "gone.txt": "x\n", "same.txt": "y\n", "raw": "a\0b"}),
            ("new", {"train.py": SCRIPT.replace("1", "2"), "same.txt": "y\n", "raw": "a\0c"}),
        ):
            made.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "name": name, "code": code(made, files)})
        made.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "name": "bare"})
        yield made


def code(site: Served, files: dict[str, str]) -> str:
    manifest = []
    for path, text in files.items():
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        headers = {"Authorization": f"Bearer {site.tokens['dan']}"}
        site.client.put(f"{HERE}/blobs/{sha256}", content=text.encode(), headers=headers)
        manifest.append({"path": path, "sha256": sha256, "size": len(text), "mode": "0644"})
    return "snapshot:" + str(site.ok("dan", "PUT", f"{HERE}/snapshots", {"files": manifest})["id"])


def read(site: Served, path: str) -> Any:
    return site.ok("rita", "GET", f"{HERE}/jobs/{path}")


def test_the_files_of_a_snapshot_are_listed_and_shown(site: Served) -> None:
    files = read(site, "new/code")["value"]
    assert [file["path"] for file in files] == ["raw", "same.txt", "train.py"]
    shown = read(site, "old/code/file?path=train.py")
    assert (shown["kind"], shown["text"], shown["truncated"]) == ("text", SCRIPT, False)
    assert read(site, "old/code/file?path=raw")["kind"] == "binary"
    assert read(site, "bare/code")["value"] == []


def test_a_file_is_downloaded_under_the_name_of_its_link(site: Served) -> None:
    sha256 = read(site, "old/code")["value"][0]["sha256"]
    answer = signed_in(site, "rita").client.get(f"{HERE}/blobs/{sha256}")
    assert answer.headers["content-disposition"] == "attachment"
    assert "sandbox" in answer.headers["content-security-policy"]


def test_files_that_differ_are_named(site: Served) -> None:
    assert read(site, "new/code/diff?other=old")["value"] == [
        {"path": "gone.txt", "change": "removed"},
        {"path": "raw", "change": "changed"},
        {"path": "train.py", "change": "changed"},
    ]
    against_nothing = read(site, "new/code/diff?other=bare")["value"]
    assert {each["change"] for each in against_nothing} == {"added"}
    assert read(site, "new/code/diff?other=new")["value"] == []


def test_the_lines_of_one_file_are_compared(site: Served) -> None:
    assert read(site, "new/code/diff/file?other=old&path=train.py") == {
        "hunks": [
            {
                "old_start": 2,
                "new_start": 2,
                "lines": [
                    [" ", ""],
                    [" ", ""],
                    [" ", "def main():"],
                    ["-", "    print(1)"],
                    ["+", "    print(2)"],
                ],
            }
        ],
        "whole": True,
    }
    removed = read(site, "new/code/diff/file?other=old&path=gone.txt")
    assert removed["hunks"][0]["lines"] == [["-", "x"]]
    assert read(site, "new/code/diff/file?other=old&path=raw")["hunks"] == []


def test_a_file_that_is_not_there_is_named_with_the_nearest(site: Served) -> None:
    answer = site.ask("rita", "GET", f"{HERE}/jobs/old/code/file?path=trian.py")
    assert answer.status_code == 404
    assert "did you mean `train.py`" in answer.text
    assert site.ask("rita", "GET", f"{HERE}/jobs/new/code/diff/file?other=old&path=no").is_error
    assert site.ask("rita", "GET", f"{HERE}/jobs/new/code/diff?other=absent").status_code == 404
