"""Validate public command job files through the real client and server, and count.

    python tests/public_examples/validate.py <folder> [--markdown]

`<folder>` is a checkout's folder of job files, azureml-examples' `cli/jobs` for one; nothing of it
is copied here. A server of its own is started over a temporary home and stopped at the end.
First what those examples' own setup makes is made: the computes that the files name, data assets
of the names they use, and `example-data/` in the default datastore.
"""

from __future__ import annotations

import argparse
import collections
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from torchyard import Client
from torchyard.base.errors import TorchyardError
from torchyard.base.settings import Settings
from torchyard.cli.parsing import documents
from torchyard.client import embedded

_COMPUTE = re.compile(r"^(?:azureml:)?([A-Za-z][A-Za-z0-9-]{1,22}[A-Za-z0-9])$")
_ASSET = re.compile(r"^azureml:([\w.-]+)(?:[:@][\w.-]+)?$")
_EXAMPLE_DATA = "azureml://datastores/workspaceblobstore/paths/example-data/iris.csv"


@dataclass(frozen=True)
class Outcome:
    """What became of one file; `refusal` is empty when it validates."""

    file: str
    refusal: str
    notices: tuple[str, ...]


def command_jobs(folder: Path) -> Iterator[Path]:
    """The files of command jobs below `folder`, by their schema or, without one, by their keys."""
    for file in sorted([*folder.rglob("*.yml"), *folder.rglob("*.yaml")]):
        try:
            body = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError):
            continue
        if not isinstance(body, dict):
            continue
        schema = str(body.get("$schema", ""))
        is_command = "commandJob" in schema or (not schema and body.get("type") == "command")
        bare = not schema and "type" not in body and {"command", "environment"} <= set(body)
        if is_command or bare:
            yield file


def validate(client: Client, folder: Path, home: Path) -> list[Outcome]:
    files = list(command_jobs(folder))
    with tempfile.TemporaryDirectory() as sample:
        (Path(sample) / "sample.csv").write_text("a,b\n1,2\n")
        set_up(client, files, Path(sample), home)
    return [_outcome(client, file, str(file.relative_to(folder))) for file in files]


def set_up(client: Client, files: list[Path], sample: Path, home: Path) -> None:
    bodies = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in files]
    for compute in sorted({str(body.get("compute") or "local") for body in bodies}):
        match = _COMPUTE.match(compute)
        if match and match[1] != "local":
            client.computes.create({"name": match[1], "max_instances": 4})
    inputs = [
        value
        for body in bodies
        for value in (body.get("inputs") or {}).values()
        if isinstance(value, dict)
    ]
    for value in inputs:
        asset = _ASSET.match(str(value.get("path", "")))
        if asset:
            kind = value.get("type", "uri_folder")
            path = sample / "sample.csv" if kind == "uri_file" else sample
            client.data.create({"name": asset[1], "type": kind, "path": str(path)})
    if any(str(value.get("path", "")).startswith(_EXAMPLE_DATA[:-8]) for value in inputs):
        store = home / "datastores" / client.workspace / "workspaceblobstore"
        (store / "example-data").mkdir(parents=True)
        (store / "example-data" / "iris.csv").write_bytes((sample / "sample.csv").read_bytes())


def _outcome(client: Client, file: Path, shown: str) -> Outcome:
    try:
        document = documents.read(file)
        notices = client.jobs.validate(document.value, document.folder)
    except TorchyardError as error:
        return Outcome(shown, f"{error.message} — {error.hint}", ())
    return Outcome(shown, "", tuple(notices))


def report(outcomes: list[Outcome], markdown: bool) -> str:
    refused = [outcome for outcome in outcomes if outcome.refusal]
    counts = (
        f"{len(outcomes)} files: {len(outcomes) - len(refused)} validate, {len(refused)} refused"
    )
    lines = [counts, ""]
    if markdown:
        lines += ["| file | |", "|---|---|"]
    for outcome in outcomes:
        result = outcome.refusal or "validates"
        lines.append(
            f"| {outcome.file} | {result} |" if markdown else f"{outcome.file}\n    {result}"
        )
        if not markdown:
            lines += [f"    notice: {notice}" for notice in outcome.notices]
    kinds: dict[str, int] = collections.Counter(
        re.sub(r"`[^`]*`", "`…`", outcome.refusal.partition(" — ")[0]) for outcome in refused
    )
    lines += ["", *(f"{count:3} {kind}" for kind, count in sorted(kinds.items()))]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> Any:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--markdown", action="store_true", help="print a table for the docs")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as home:
        settings = Settings(Path(home))
        try:
            client = Client(workspace="default", settings=settings)
            print(report(validate(client, options.folder.resolve(), Path(home)), options.markdown))
        finally:
            embedded.stop(settings)


if __name__ == "__main__":
    sys.exit(main())
