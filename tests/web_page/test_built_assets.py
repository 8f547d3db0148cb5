"""What is committed as built was built of the sources that are committed."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UI = ROOT / "ui"
ASSETS = ROOT / "src/torchyard/web/assets"
WIDGET = ROOT / "src/torchyard/notebook/assets"
# As in ui/packaged.ts.
SOURCES = (
    "index.html",
    "package-lock.json",
    "packaged.ts",
    "public",
    "src",
    "tsconfig.json",
    "vite.config.ts",
    "vite.widget.config.ts",
)
MOST_SCRIPT_BYTES = 150_000


def hash_of_sources() -> str:
    files = [
        file
        for name in SOURCES
        for file in ([UI / name] if (UI / name).is_file() else (UI / name).rglob("*"))
        if file.is_file()
    ]
    by_path = {file.relative_to(UI).as_posix(): file for file in files}
    lines = [
        f"{path}\0{hashlib.sha256(by_path[path].read_bytes()).hexdigest()}\n"
        for path in sorted(by_path)
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def test_the_page_was_built_of_these_sources() -> None:
    manifest = json.loads((ASSETS / "manifest.json").read_text())
    assert manifest["sources_sha256"] == hash_of_sources(), "run `make ui` and commit what it wrote"


def test_the_manifest_lists_every_file() -> None:
    manifest = json.loads((ASSETS / "manifest.json").read_text())
    files = {
        file.relative_to(ASSETS).as_posix(): file.stat().st_size
        for file in ASSETS.rglob("*")
        if file.is_file() and file.name != "manifest.json"
    }
    assert {name: entry["bytes"] for name, entry in manifest["files"].items()} == files


def test_scripts_are_small() -> None:
    files = json.loads((ASSETS / "manifest.json").read_text())["files"]
    sizes = [entry["gzip_bytes"] for name, entry in files.items() if name.endswith(".js")]
    assert 0 < sum(sizes) <= MOST_SCRIPT_BYTES


def test_no_source_writes_markup() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
    )
    paths = [
        f"{file.relative_to(UI)}: {line.strip()}"
        for file in sorted((UI / "src").rglob("*.ts*"))
        for line in file.read_text().splitlines()
        if forbidden.search(line)
    ]
    assert paths == []


def test_the_page_itself_has_no_inline_script_or_style() -> None:
    page = (ASSETS / "index.html").read_text()
    assert re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\son\w+=", page) is None


@pytest.mark.web_page
@pytest.mark.timeout(600)
def test_building_again_gives_the_same_files(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    (copy / "src/torchyard/web").mkdir(parents=True)
    shutil.copytree(UI, copy / "ui", ignore=shutil.ignore_patterns("node_modules"))
    (copy / "ui/node_modules").symlink_to(UI / "node_modules")
    for config in ("vite.config.ts", "vite.widget.config.ts"):
        vite: list[str | Path] = [sys.executable, ROOT / "tools/run_npm.py", "exec", "--prefix"]
        vite += [copy / "ui", "--", "vite", "build", copy / "ui", "--config", copy / "ui" / config]
        subprocess.run(vite, check=True, capture_output=True)
    for assets in (ASSETS, WIDGET):
        built = copy / assets.relative_to(ROOT)
        assert contents(built) == contents(assets)


def contents(folder: Path) -> dict[str, str]:
    """The hash of each file by its path."""
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
