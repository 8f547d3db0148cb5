"""The folders of a node: code, inputs, outputs.

Owns: where each folder is, the placeholders of the command.
Leaves: inputs to inputs.py, file contents to blobs.py, uploading to uploads.py.
Always: the code is a writable copy; nothing is placed outside the node's folder.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torchyard.shared import brackets
from torchyard.shared.failures import Failure
from torchyard.shared.plan import LaunchPlan, OutputPlan
from torchyard.worker.files import inputs as inputs_of
from torchyard.worker.files.blobs import Blobs, Placement
from torchyard.worker.system.mounts import Mount

_PLACEHOLDER = re.compile(r"\$\{\{\s*(inputs|outputs)\.([\w.-]+?)\s*\}\}")
# What a node keeps after its attempt has ended.
_KEPT = ("worker.json", "worker.log", "exit.json", "lock")


@dataclass(frozen=True)
class NodeFolders:
    """`work` is the ranks' working directory; `user_logs` holds their output."""

    node: Path

    @property
    def work(self) -> Path:
        return self.node / "work"

    @property
    def inputs(self) -> Path:
        return self.node / "inputs"

    @property
    def fetched(self) -> Path:
        """Inputs fetched over HTTP, from where they are placed for the ranks."""
        return self.node / "inputs-fetched"

    @property
    def outputs(self) -> Path:
        return self.node / "outputs-named"

    @property
    def fetched_outputs(self) -> Path:
        """The file marks of outputs that were there before the ranks started, by path."""
        return self.node / "fetched-outputs.json"

    @property
    def environment(self) -> Path:
        return self.node / "env"

    @property
    def hooks(self) -> Path:
        """Modules that the Pythons of an image get in addition to their packages."""
        return self.node / "hooks"

    @property
    def temporary(self) -> Path:
        return self.node / "tmp"

    @property
    def peer_copies(self) -> Path:
        """Copies of another node's checkpoints."""
        return self.node / "peer-copies"

    @property
    def user_logs(self) -> Path:
        return self.node / "user_logs"

    @property
    def errors(self) -> Path:
        """Records of failures that the ranks' Pythons leave."""
        return self.node / "errors"

    @property
    def spool(self) -> Path:
        return self.node / "spool"


@dataclass(frozen=True)
class Layout:
    """The values of placeholders, and what uses them with them filled in.

    Inputs in `mounts` exist for the ranks only; `notices` are for the user.
    """

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    command: str
    mounts: tuple[Mount, ...] = ()
    notices: tuple[str, ...] = ()
    environment_variables: Mapping[str, str] = field(default_factory=dict)


def file_mark(file: Path) -> list[int]:
    """What changes when somebody writes to a file: nanoseconds and bytes."""
    status = file.stat()
    return [status.st_mtime_ns, status.st_size]


def make_folders(folders: NodeFolders) -> None:
    """Make the folders that every node has."""
    for folder in (
        folders.work / "outputs",
        folders.work / "logs",
        folders.inputs,
        folders.outputs,
        folders.temporary,
        # AZURE_CONFIG_DIR, see launch/variables.py; azureml-core before 1.50 does not create it.
        folders.temporary / "azure",
        folders.user_logs,
        folders.spool,
    ):
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)


def lay_out(
    plan: LaunchPlan,
    folders: NodeFolders,
    blobs: Blobs,
    fetch_input: Callable[[str, Path], Path] | None = None,
) -> Layout:
    """Place code and inputs, make the outputs' folders and fill in the command.

    Args:
        fetch_input: downloads an input into a folder, if this node can't access the server's disk.
    """
    if plan.code:
        files = blobs.manifest(plan.code)
        blobs.create_files(
            [Placement(file.sha256, folders.work / file.path, file.mode | 0o600) for file in files]
        )
    fetch = None if fetch_input is None else lambda name: fetch_input(name, folders.fetched / name)
    inputs = inputs_of.place_inputs(plan.inputs, folders.inputs, blobs, fetch, plan.single_host)
    outputs = {
        name: _make_output(name, output, folders.outputs) for name, output in plan.outputs.items()
    }
    command = fill_in(plan.command, inputs.values, outputs)
    variables = {
        name: _fill_in(value, f"`{name}`", inputs.values, outputs)
        for name, value in plan.environment_variables.items()
    }
    return Layout(inputs.values, outputs, command, inputs.mounts, inputs.notices, variables)


def fill_in(command: str, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> str:
    """Replace `${{inputs.x}}` and `${{outputs.x}}`; drop `$[[ … ]]` where its input is absent.

    Raises:
        Failure: a placeholder names an input or output that the job does not have.
    """

    def optional(part: str) -> str:
        placeholders = _PLACEHOLDER.findall(part)
        absent = any(_value(kind, name, inputs, outputs) is None for kind, name in placeholders)
        return "" if absent else part

    command = brackets.replaced(command, "$[[", "]]", optional)
    return _fill_in(command, "the command", inputs, outputs)


def _fill_in(
    written: str, subject: str, inputs: Mapping[str, str], outputs: Mapping[str, str]
) -> str:
    def value(match: re.Match[str]) -> str:
        value = _value(match.group(1), match.group(2), inputs, outputs)
        if value is None:
            raise Failure(
                "unknown_placeholder",
                f"{subject} uses `{match.group(0)}`, but the job does not define it",
                f"add `{match.group(2)}` under `{match.group(1)}`",
            )
        return value

    return _PLACEHOLDER.sub(value, written)


def _value(
    kind: str, name: str, inputs: Mapping[str, str], outputs: Mapping[str, str]
) -> str | None:
    values = inputs if kind == "inputs" else outputs
    return values.get(name, values.get(name[:-5]) if name.endswith(".path") else None)


def clean(folders: NodeFolders, keep_spool: bool = False) -> None:
    """Remove everything that a node no longer needs; its worker's log and exit stay."""
    os.chdir("/")
    for entry in list(folders.node.iterdir()):
        if entry.name in _KEPT or (keep_spool and entry == folders.spool):
            continue
        try:
            _remove(entry)
        except RecursionError:
            # Too deep for Python's rmtree.
            os.spawnlp(os.P_WAIT, "rm", "rm", "-rf", "--", str(entry))
        except OSError as error:
            # Files that a script left must not keep the node from ending.
            print(f"`{entry.name}` not removed: {error}", file=sys.stderr, flush=True)


def free_space(folders: NodeFolders) -> None:
    """Remove what ranks that have ended left and nobody is given: all but outputs and logs."""
    for folder in (folders.work, folders.temporary):
        for entry in list(folder.iterdir()):
            if folder == folders.work and entry.name in ("outputs", "logs"):
                continue
            try:
                _remove(entry)
            except (OSError, RecursionError) as error:
                print(f"`{entry.name}` not removed: {error}", file=sys.stderr, flush=True)


def _make_output(name: str, output: OutputPlan, folder: Path) -> str:
    if output.mode == "direct":
        return output.value
    folder_path = folder / inputs_of.checked_name(name)
    folder_path.mkdir(exist_ok=True)
    if output.kind != "uri_file":
        return str(folder_path)
    return str(folder_path / (inputs_of.checked_name(output.file) if output.file else name))


def _remove(entry: Path) -> None:
    import shutil  # Imported here because it would delay the start of the ranks.

    if entry.is_dir() and not entry.is_symlink():
        _make_tree_removable(entry)
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink()


def _make_tree_removable(folder: Path) -> None:
    _make_writable(str(folder))
    for parent, subfolders, _ in os.walk(folder):
        # Before they are listed: a walk skips folders that it can't read.
        for name in subfolders:
            _make_writable(os.path.join(parent, name))


def _make_writable(folder: str) -> None:
    try:
        mode = os.lstat(folder).st_mode
        if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(folder, 0o700)
    except OSError:
        pass  # another user's: rmtree leaves it
