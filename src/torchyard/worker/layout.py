"""The folders of a node: code, inputs, outputs.

Owns: which folder is where, the placeholders of the command.
Leaves: file contents to blobs.py, uploading to uploads.py.
Always: the code is a writable copy; nothing is placed outside the node's folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torchyard.plan import InputPlan, LaunchPlan, OutputPlan
from torchyard.worker.blobs import Blobs, Placement
from torchyard.worker.failures import Failure

_READ_ONLY_MODES = ("ro_mount", "direct", "eval_mount")
_PLACEHOLDER = re.compile(r"\$\{\{\s*(inputs|outputs)\.([\w.-]+?)\s*\}\}")
_OPTIONAL = re.compile(r"\$\[\[(.*?)\]\]", re.DOTALL)
# What a node keeps when its attempt has ended.
_KEPT = ("worker.json", "worker.log", "exit.json", "lock")


@dataclass(frozen=True)
class Folders:
    """`work` is the ranks' current folder; `user_logs` holds what they print."""

    node: Path

    @property
    def work(self) -> Path:
        return self.node / "work"

    @property
    def inputs(self) -> Path:
        return self.node / "inputs"

    @property
    def outputs(self) -> Path:
        return self.node / "outputs-named"

    @property
    def environment(self) -> Path:
        return self.node / "env"

    @property
    def temporary(self) -> Path:
        return self.node / "tmp"

    @property
    def user_logs(self) -> Path:
        return self.node / "user_logs"

    @property
    def spool(self) -> Path:
        return self.node / "spool"


@dataclass(frozen=True)
class Layout:
    """What the command's placeholders stand for, and the command without them."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    command: str


def make_folders(folders: Folders) -> None:
    """The folders that every node has, whatever its job."""
    for folder in (
        folders.work / "outputs",
        folders.work / "logs",
        folders.inputs,
        folders.outputs,
        folders.temporary,
        folders.user_logs,
        folders.spool,
    ):
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)


def lay_out(plan: LaunchPlan, folders: Folders, blobs: Blobs) -> Layout:
    """Place code and inputs, make the outputs' folders, fill in the command."""
    if plan.code:
        files = blobs.manifest(plan.code)
        blobs.place(
            [Placement(file.sha256, folders.work / file.path, file.mode | 0o600) for file in files]
        )
    inputs = {
        name: _place_input(name, given, folders.inputs, blobs)
        for name, given in plan.inputs.items()
    }
    outputs = {
        name: _make_output(name, wanted, folders.outputs) for name, wanted in plan.outputs.items()
    }
    return Layout(inputs, outputs, fill_in(plan.command, inputs, outputs))


def fill_in(command: str, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> str:
    """Replace `${{inputs.x}}` and `${{outputs.x}}`; drop `$[[ … ]]` where its input is absent.

    Raises:
        Failure: a placeholder names what the job does not have.
    """
    known = {"inputs": inputs, "outputs": outputs}

    def look_up(kind: str, name: str) -> str | None:
        values = known[kind]
        return values.get(name, values.get(name[:-5]) if name.endswith(".path") else None)

    def optional(match: re.Match[str]) -> str:
        named = _PLACEHOLDER.findall(match.group(1))
        absent = any(look_up(kind, name) is None for kind, name in named)
        return "" if absent else match.group(1)

    def value(match: re.Match[str]) -> str:
        found = look_up(match.group(1), match.group(2))
        if found is None:
            raise Failure(
                "unknown_placeholder",
                f"the command names `{match.group(0)}`, which the job does not have",
                f"declare `{match.group(2)}` below `{match.group(1)}`",
            )
        return found

    return _PLACEHOLDER.sub(value, _OPTIONAL.sub(optional, command))


def clean(folders: Folders) -> None:
    """Remove all that a node no longer needs; its worker's log and exit stay."""
    import shutil  # Here because it costs more to import than a node has to start its ranks.

    os.chdir("/")
    for entry in list(folders.node.iterdir()):
        if entry.name in _KEPT:
            continue
        if entry.is_dir() and not entry.is_symlink():
            _make_removable(entry)
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink()


def _place_input(name: str, given: InputPlan, folder: Path, blobs: Blobs) -> str:
    if given.kind == "literal":
        return given.value
    files = blobs.manifest(given.snapshot)
    here = folder / _plain(name)
    here.mkdir(exist_ok=True)
    read_only = given.mode in _READ_ONLY_MODES
    # Write bits don't hold root back, so root never gets a link to the server's own blob.
    link = read_only and os.geteuid() != 0
    placements = []
    for file in files:
        mode = file.mode & 0o555 | 0o444 if read_only else file.mode | 0o600
        can_link = link and not file.mode & 0o111
        placements.append(Placement(file.sha256, here / file.path, mode, can_link))
    blobs.place(placements)
    if read_only:
        for current, _, _ in os.walk(here):
            os.chmod(current, 0o555)
    if given.kind != "uri_file":
        return str(here)
    if len(files) != 1:
        raise Failure(
            "invalid_input",
            f"input `{name}` is a uri_file but holds {len(files)} files",
            "name one file, or make it a uri_folder",
        )
    return str(here / files[0].path)


def _make_output(name: str, wanted: OutputPlan, folder: Path) -> str:
    here = folder / _plain(name)
    here.mkdir(exist_ok=True)
    return str(here / name) if wanted.kind == "uri_file" else str(here)


def _plain(name: str) -> str:
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise Failure("invalid_input", f"`{name}` can't be the name of an input or an output")
    return name


def _make_removable(folder: Path) -> None:
    for current, _, _ in os.walk(folder):
        try:
            os.chmod(current, 0o700)
        except OSError:
            pass  # Not ours: rmtree will say so by leaving it.
