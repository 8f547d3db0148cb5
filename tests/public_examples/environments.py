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
from torchyard.client.snapshots.environment_files import read
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
    """`what` as it is written, in words; `body` what the package gets; `file` where."""

    what: str
    body: Any
    file: str
    folder: Path


def uses(folder: Path) -> Iterator[Use]:
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        where = str(file.relative_to(folder))
        if file.suffix in (".yml", ".yaml"):
            for body in _in_yaml(file):
                yield Use(_words(body), body, where, file.parent)
        elif file.suffix in (".ipynb", ".py"):
            for body in _in_code(file):
                yield Use(_words(body), body, where, file.parent)


def _in_yaml(file: Path) -> Iterator[Any]:
    """What stands below a key `environment`; an environment's own file is one as a whole."""
    try:
        body = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return
    if isinstance(body, dict) and "environment.schema.json" in str(body.get("$schema")):
        yield body
        return
    waiting = [body]
    while waiting:
        node = waiting.pop()
        for key, value in node.items() if isinstance(node, dict) else ():
            if key == "environment" and value and isinstance(value, str | dict):
                yield value
            else:
                waiting.append(value)
        waiting += node if isinstance(node, list) else []


def _in_code(file: Path) -> Iterator[Any]:
    text = _code(file)
    names = [name for pattern in _NAMES for name in pattern.findall(text)]
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


def _words(environment: Any) -> str:
    """As a table shows it: a reference, an image, an image with a conda file, a Dockerfile."""
    if isinstance(environment, str):
        return f"`{environment.strip()}`"
    parts = [f"image `{environment['image']}`"] if environment.get("image") else []
    parts += ["a conda file"] if environment.get("conda_file") else []
    parts += ["a Dockerfile"] if environment.get("build") else []
    return " with ".join(parts) or "an environment without content"


def outcome(use: Use, registered: set[str]) -> str:
    """What it becomes, or why it is refused."""
    environment = use.body
    if isinstance(environment, str):
        name = re.split(r"[:@]", environment.strip().removeprefix("azureml:"))[0]
        if name in registered:
            return "the workspace's own: the examples register it"
        if environment.startswith("file:"):
            return "a file beside the job, which is read"
    try:
        if isinstance(environment, dict):
            environment = read(environment, use.folder)
        if isinstance(environment, dict) and "build" in environment:
            return "built by podman or docker, where the server's machine has one"
        spec = definition.resolve(environment, PLATFORM)
        if spec.image is not None:
            more = " with the packages in it" if environment.get("conda_file") else ""
            return f"the image itself{more}, where the server's machine has podman or docker"
    except TorchyardError as error:
        return f"refused: {error.message}"
    if spec.ref:
        return f"`{spec.ref}`"
    packages = len(spec.packages) + len(spec.conda)
    return f"Python {spec.python}" + (f" and {packages} packages" if packages else "")


def own_names(folder: Path) -> set[str]:
    """Names that the examples give to environments of their own."""
    names = set()
    for file in [*folder.rglob("*.yml"), *folder.rglob("*.yaml")]:
        for environment in _in_yaml(file):
            if isinstance(environment, dict) and environment.get("name"):
                names.add(str(environment["name"]))
    for file in [*folder.rglob("*.ipynb"), *folder.rglob("*.py")]:
        text = _code(file)
        names.update(name for pattern in _OWN for name in pattern.findall(text))
    return names


def report(folder: Path, markdown: bool) -> str:
    registered = own_names(folder)
    outcomes_of: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for use in uses(folder):
        outcomes_of[use.what][outcome(use, registered)] += 1
    rows = sorted(outcomes_of.items(), key=lambda row: (-sum(row[1].values()), row[0]))
    total = sum(sum(outcomes.values()) for outcomes in outcomes_of.values())
    refused = sum(
        count
        for outcomes in outcomes_of.values()
        for text, count in outcomes.items()
        if text.startswith("refused")
    )
    lines = [f"{total} environments under {len(rows)} names: {refused} refused", ""]
    if markdown:
        lines += ["| uses | environment | becomes |", "|---|---|---|"]
    for title, outcomes in rows:
        if len(outcomes) > 3:
            outcomes = collections.Counter(
                {re.sub(r"and \d+ packages", "and packages", text): 0 for text in outcomes}
            )
        text = "; ".join(sorted(outcomes))
        count = sum(outcomes_of[title].values())
        lines.append(
            f"| {count} | {title} | {text} |" if markdown else f"{count:4} {title}: {text}"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--markdown", action="store_true", help="print a table for the docs")
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        sys.exit(f"error: `{options.folder}` is not a folder\nhint: fetch azureml-examples first")
    print(report(options.folder.resolve(), options.markdown))


if __name__ == "__main__":
    main()
