"""What pages write for readers to copy: files, commands, code.

Owns: which pages there are, their blocks, what kind of file a YAML block is.
Leaves: judging them to the tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Without decisions, which tell what was, and transcripts, which record what was typed and printed.
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/guides").glob("*.md")),
    *sorted((ROOT / "docs/reference").glob("*.md")),
    *sorted((ROOT / "docs/contributing").glob("*.md")),
    *sorted((ROOT / "examples").rglob("README.md")),
]
_FENCE = re.compile(
    r"^(?:<!-- (?P<name>\S+) -->\n)?(?P<indent> *)```(?P<language>\w*)[^\n]*\n"
    r"(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
# Other programs' files, by a key that only they have.
_OTHERS = {
    "scrape_configs": "prometheus",
    "metrics_path": "prometheus",
    "alert": "prometheus",
    "exceptions": "exceptions",
}


@dataclass(frozen=True)
class Snippet:
    """A fenced block; `name` is the file that the page calls it, or empty."""

    page: Path
    line: int
    language: str
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def snippets(*languages: str) -> Iterator[Snippet]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for fence in _FENCE.finditer(text):
            if fence["language"] in languages:
                line = text.count("\n", 0, fence.start()) + 1
                name = fence["name"] or ""
                yield Snippet(page, line, fence["language"], name, fence["text"])


def kind_of(body: Any) -> str:
    """What a file with this content is, by the names of `yard schema`; a part of one counts.

    Kinds beside those: `trial`, `datastore`, `machine`, `sizes`, `exceptions`, `recipients`, and
    `prometheus`, which is another program's.
    """
    if isinstance(body, list):
        return kind_of(body[0])
    assert isinstance(body, Mapping), body
    for key, kind in _OTHERS.items():
        if key in body:
            return kind
    if "endpoint_name" in body:
        return "batch-deployment" if "settings" in body else "online-deployment"
    if set(body) == {"nodes", "cores", "memory_gib"}:
        return "machine"
    if all(isinstance(value, Mapping) and "memory_gb" in value for value in body.values()):
        return "sizes"
    return _by_keys(body)


def _by_keys(body: Mapping[str, Any]) -> str:
    settings = body.get("torchyard", {})
    kind = body.get("type")
    if kind == "computeinstance":
        return "instance"
    if kind == "amlcompute" or "engine" in settings:
        return "compute"
    if kind == "local":
        return "datastore"
    if kind == "sweep":
        return "sweep"
    # A component says of what type its inputs and outputs are, under a name of its own.
    if "name" in body and {"inputs", "outputs"} & set(body) and kind in ("command", "pipeline"):
        return "component"
    if kind == "pipeline" or "default_compute" in body.get("settings", {}):
        return "pipeline"
    if "batching" in settings:
        return "online-deployment"
    if "notify_secrets" in settings:
        return "recipients"
    if "${{search_space." in body.get("command", ""):
        return "trial"
    return "job"
