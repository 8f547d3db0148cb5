"""The folders of a node: code, inputs, outputs.

Owns: which folder is where, the placeholders of the command.
Leaves: inputs to inputs.py, file contents to blobs.py, uploading to uploads.py.
Always: the code is a writable copy; nothing is placed outside the node's folder.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torchyard.shared.failures import Failure
from torchyard.shared.plan import LaunchPlan, OutputPlan
from torchyard.worker.files import inputs as inputs_of
from torchyard.worker.files.blobs import Blobs, Placement
from torchyard.worker.system.mounts import Mount

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
    def fetched(self) -> Path:
        """Inputs that came over HTTP, before the ranks get to see them."""
        return self.node / "inputs-fetched"

    @property
    def outputs(self) -> Path:
        return self.node / "outputs-named"

    @property
    def environment(self) -> Path:
        return self.node / "env"

    @property
    def hooks(self) -> Path:
        """What Pythons of an image get beside their own packages."""
        return self.node / "hooks"

    @property
    def temporary(self) -> Path:
        return self.node / "tmp"

    @property
    def user_logs(self) -> Path:
        return self.node / "user_logs"

    @property
    def errors(self) -> Path:
        """Records that the ranks' Pythons leave of a bad end."""
        return self.node / "errors"

    @property
    def spool(self) -> Path:
        return self.node / "spool"


@dataclass(frozen=True)
class Layout:
    """What the command's placeholders stand for, and the command without them.

    Inputs in `mounts` are there for the ranks alone; `notices` are for the user.
    """

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    command: str
    mounts: tuple[Mount, ...] = ()
    notices: tuple[str, ...] = ()


def make_folders(folders: Folders) -> None:
    """The folders that every node has, whatever its job."""
    for folder in (
        folders.work / "outputs",
        folders.work / "logs",
        folders.inputs,
        folders.outputs,
        folders.temporary,
        # AZURE_CONFIG_DIR, see launch/variables.py; azureml-core before 1.50 does not make it.
        folders.temporary / "azure",
        folders.user_logs,
        folders.spool,
    ):
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)


def lay_out(
    plan: LaunchPlan,
    folders: Folders,
    blobs: Blobs,
    bring: Callable[[str, Path], Path] | None = None,
) -> Layout:
    """Place code and inputs, make the outputs' folders, fill in the command.

    Args:
        bring: fetches an input into a folder, where this node does not see the server's disk.
    """
    if plan.code:
        files = blobs.manifest(plan.code)
        blobs.place(
            [Placement(file.sha256, folders.work / file.path, file.mode | 0o600) for file in files]
        )
    fetch = None if bring is None else lambda name: bring(name, folders.fetched / name)
    placed = inputs_of.place(plan.inputs, folders.inputs, blobs, fetch)
    outputs = {
        name: _make_output(name, wanted, folders.outputs) for name, wanted in plan.outputs.items()
    }
    command = fill_in(plan.command, placed.values, outputs)
    return Layout(placed.values, outputs, command, placed.mounts, placed.notices)


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


def clean(folders: Folders, keep_spool: bool = False) -> None:
    """Remove all that a node no longer needs; its worker's log and exit stay."""
    os.chdir("/")
    for entry in list(folders.node.iterdir()):
        if entry.name in _KEPT or (keep_spool and entry == folders.spool):
            continue
        try:
            _remove(entry)
        except RecursionError:
            # Deeper than what Python removes.
            os.spawnlp(os.P_WAIT, "rm", "rm", "-rf", "--", str(entry))
        except OSError as error:
            # What a script left there must not keep the node from its end.
            print(f"`{entry.name}` not removed: {error}", file=sys.stderr, flush=True)


def _make_output(name: str, wanted: OutputPlan, folder: Path) -> str:
    if wanted.mode == "direct":
        return wanted.value
    here = folder / inputs_of.plain_name(name)
    here.mkdir(exist_ok=True)
    if wanted.kind != "uri_file":
        return str(here)
    return str(here / (inputs_of.plain_name(wanted.file) if wanted.file else name))


def _remove(entry: Path) -> None:
    import shutil  # Here because it costs more to import than a node has to start its ranks.

    if entry.is_dir() and not entry.is_symlink():
        _make_removable(entry)
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink()


def _make_removable(folder: Path) -> None:
    _open_up(str(folder))
    for current, inner, _ in os.walk(folder):
        # Before they are looked into: a walk leaves out what it can't read.
        for name in inner:
            _open_up(os.path.join(current, name))


def _open_up(folder: str) -> None:
    try:
        mode = os.lstat(folder).st_mode
        if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(folder, 0o700)
    except OSError:
        pass  # Not ours: rmtree will say so by leaving it.
