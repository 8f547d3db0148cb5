"""What brings the widget, and what it is built of."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import torchyard.notebook
from web_page.test_built_assets import hash_of_sources

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "src/torchyard/notebook/assets"
MOST_SCRIPT_BYTES = 45_000


def test_without_the_extra_the_error_says_what_to_install() -> None:
    script = "import sys; sys.modules['anywidget'] = None; import torchyard.notebook\n"
    script += "from torchyard.notebook import RunDetails"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.returncode == 1
    assert "`torchyard.notebook` needs anywidget" in ran.stderr
    assert ran.stderr.endswith(
        "hint: `pip install 'torchyard[notebook]'`, then restart the kernel\n"
    )


def test_there_is_nothing_else_in_it() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'RunDetail'"):
        torchyard.notebook.RunDetail  # type: ignore[attr-defined]  # noqa: B018


def test_the_widget_was_built_of_these_sources() -> None:
    manifest = json.loads((ASSETS / "manifest.json").read_text())
    assert manifest["sources_sha256"] == hash_of_sources(), "run `make ui` and commit what it wrote"
    files = {
        file.name: file.stat().st_size for file in ASSETS.iterdir() if file.name != "manifest.json"
    }
    assert {name: entry["bytes"] for name, entry in manifest["files"].items()} == files
    assert set(files) == {"widget.js", "licenses.txt"}


def test_the_widget_is_small() -> None:
    files = json.loads((ASSETS / "manifest.json").read_text())["files"]
    assert 0 < files["widget.js"]["gzip_bytes"] <= MOST_SCRIPT_BYTES


def test_the_widget_asks_no_server() -> None:
    script = (ASSETS / "widget.js").read_text()
    for word in ("fetch(", "XMLHttpRequest", "WebSocket", "EventSource", "sendBeacon", "import("):
        assert word not in script, word
