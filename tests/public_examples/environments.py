"""Every environment that public examples name, and what each becomes here.

    python tests/public_examples/environments.py <folder> [--markdown]

`<folder>` is a checkout of azureml-examples, or a part of one; nothing of it is copied here. Job,
pipeline and component files (YAML) are read key by key; of notebooks and Python files, what stands
as `environment="…"`, `Environment(image="…")` or `Environment.get(…, name="…")`. What is asked is
the package itself: no server runs.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from torchyard.base.errors import TorchyardError
from torchyard.client.snapshots.job_files import environment_files
from torchyard.environments import definition
from torchyard.environments.types import Platform

PLATFORM = Platform("linux", "x86_64", "cpu")
_IMAGE = re.compile(r"""\bimage\s*=\s*["']([^"'\n]+)["']""")
_NAMES = (
    re.compile(r"""\benvironment\s*=\s*f?["']([^"'\n]+)["']"""),
    re.compile(r"""\bEnvironment\.get\([^)]*?name\s*=\s*["']([^"'\n]+)["']"""),
    re.compile(r"""\benvironments\.get\(\s*(?:name\s*=\s*)?["']([^"'\n]+)["']"""),
)
# What a reader of the example is to fill in, or what is put together as it runs.
_MADE_BEFORE = re.compile(r"[{}<>$]")
_OWN = (
    re.compile(r"""\bEnvironment\((?:[^()]|\([^()]*\))*?name\s*=\s*["']([^"'\n]+)["']"""),
    re.compile(r"""\benv\w*_name\s*=\s*["']([^"'\n]+)["']"""),
)


@dataclass(frozen=True)
class Use:
    """`what` as it is written, in words; `asked` what the package is asked; `file` where."""

    what: str
    asked: Any
    file: str
    folder: Path


def uses(folder: Path) -> Iterator[Use]:
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        where = str(file.relative_to(folder))
        if file.suffix in (".yml", ".yaml"):
            for found in _in_yaml(file):
                yield Use(_words(found), found, where, file.parent)
        elif file.suffix in (".ipynb", ".py"):
            for asked in _in_code(file):
                yield Use(_words(asked), asked, where, file.parent)


def _in_yaml(file: Path) -> Iterator[Any]:
    """Whatever stands below a key `environment`; an environment's own file is one as a whole."""
    try:
        body = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return
    if isinstance(body, dict) and "environment.schema.json" in str(body.get("$schema")):
        yield body
        return
    waiting = [body]
    while waiting:
        one = waiting.pop()
        for key, value in one.items() if isinstance(one, dict) else ():
            if key == "environment" and value and isinstance(value, str | dict):
                yield value
            else:
                waiting.append(value)
        waiting += one if isinstance(one, list) else []


def _in_code(file: Path) -> Iterator[Any]:
    text = _code(file)
    names = [found for pattern in _NAMES for found in pattern.findall(text)]
    for name in dict.fromkeys(names):
        if not _MADE_BEFORE.search(name):
            yield name.strip()
    for image in dict.fromkeys(_IMAGE.findall(text)):
        if not _MADE_BEFORE.search(image):
            yield {"image": image.strip()}


def _code(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8")
        if file.suffix != ".ipynb":
            return text
        cells = json.loads(text)["cells"]
        return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    except (OSError, ValueError, KeyError):
        return ""


def _words(asked: Any) -> str:
    """As a table shows it: a reference, an image, an image with a conda file, a Dockerfile."""
    if isinstance(asked, str):
        return f"`{asked.strip()}`"
    parts = [f"image `{asked['image']}`"] if asked.get("image") else []
    parts += ["a conda file"] if asked.get("conda_file") else []
    parts += ["a Dockerfile"] if asked.get("build") else []
    return " with ".join(parts) or "an environment without content"


def outcome(use: Use, own: set[str]) -> str:
    """What it becomes, or why it is refused."""
    asked = use.asked
    if isinstance(asked, str):
        name = re.split(r"[:@]", asked.strip().removeprefix("azureml:"))[0]
        if name in own:
            return "the workspace's own: the examples register it"
        if asked.startswith("file:"):
            return "a file beside the job, which is read"
    try:
        if isinstance(asked, dict):
            asked = environment_files(asked, use.folder)
        if isinstance(asked, dict) and "build" in asked:
            return "built by podman or docker, where the server's machine has one"
        spec = definition.resolve(asked, PLATFORM)
        if spec.image is not None:
            more = " with the packages in it" if asked.get("conda_file") else ""
            return f"the image itself{more}, where the server's machine has podman or docker"
    except TorchyardError as error:
        return f"refused: {error.message}"
    if spec.ref:
        return f"`{spec.ref}`"
    packages = len(spec.packages) + len(spec.conda)
    return f"Python {spec.python}" + (f" and {packages} packages" if packages else "")


def own_names(folder: Path) -> set[str]:
    """Names that the examples give to environments of their own."""
    found = set()
    for file in [*folder.rglob("*.yml"), *folder.rglob("*.yaml")]:
        for one in _in_yaml(file):
            if isinstance(one, dict) and one.get("name"):
                found.add(str(one["name"]))
    for file in [*folder.rglob("*.ipynb"), *folder.rglob("*.py")]:
        text = _code(file)
        found.update(name for pattern in _OWN for name in pattern.findall(text))
    return found


def report(folder: Path, markdown: bool) -> str:
    own = own_names(folder)
    found: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for use in uses(folder):
        found[use.what][outcome(use, own)] += 1
    rows = sorted(found.items(), key=lambda row: (-sum(row[1].values()), row[0]))
    total = sum(sum(outcomes.values()) for outcomes in found.values())
    refused = sum(
        count
        for outcomes in found.values()
        for said, count in outcomes.items()
        if said.startswith("refused")
    )
    lines = [f"{total} environments under {len(rows)} names: {refused} refused", ""]
    if markdown:
        lines += ["| uses | environment | becomes |", "|---|---|---|"]
    for what, outcomes in rows:
        if len(outcomes) > 3:
            outcomes = collections.Counter(
                {re.sub(r"and \d+ packages", "and packages", said): 0 for said in outcomes}
            )
        said = "; ".join(sorted(outcomes))
        count = sum(found[what].values())
        lines.append(f"| {count} | {what} | {said} |" if markdown else f"{count:4} {what}: {said}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--markdown", action="store_true", help="print a table for the docs")
    asked = parser.parse_args(arguments)
    if not asked.folder.is_dir():
        sys.exit(f"error: `{asked.folder}` is no folder\nhint: fetch azureml-examples first")
    print(report(asked.folder.resolve(), asked.markdown))


if __name__ == "__main__":
    main()
