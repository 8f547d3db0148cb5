"""Decide which Unix users a server's jobs run as.

Owns: finding the runner, refusing a shared server without one, the folder that jobs reach then.
Leaves: starting workers to spawner.py.
Always: a server that other people reach runs no job as its own user unless its owner said so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torchyard
from torchyard.base.errors import Conflict, InvalidInput
from torchyard.base.files import write_atomically
from torchyard.base.home.node_folder import NodeFolder
from torchyard.executors.runner_client import RunnerClient
from torchyard.shared import runner_messages

FLAG = "--jobs-as-server-user"
VARIABLE = "TORCHYARD_JOBS_AS_SERVER_USER"
# What the owner accepted once holds for the home's later servers, until the file is removed.
_CONSENT = "jobs-as-server-user"
_CONSENT_TEXT = b"""The owner of this home accepts that jobs run as the server's own user, without a
runner. Remove this file to take that back.
"""


@dataclass(frozen=True)
class JobUsers:
    """`runner` is None where jobs run as the server's user; `node` is what they reach."""

    runner: RunnerClient | None
    node: NodeFolder


def choose(
    home: Path,
    is_shared: bool,
    socket: Path | None,
    node_folder: Path | None,
    as_server_user: bool,
    default_socket: Path = Path(runner_messages.SOCKET),
    start_command: str = "yard-server",
) -> JobUsers:
    """
    Args:
        is_shared: other people reach the server.
        socket: the runner's, as the owner named it; None for the one of this machine, if any.
        node_folder: as the owner named it; the runner's own is used.
        as_server_user: the owner accepts that jobs run as the server's user; remembered in the
            home.
        start_command: what the owner typed to start the server.

    Raises:
        InvalidInput: the server is shared, and has neither a runner nor the owner's consent.
        RunnerUnreachable: the runner does not answer.
        Conflict: the runner is of another version, or has another node folder.
    """
    consent = home / _CONSENT
    if socket is None and is_shared and not as_server_user and default_socket.exists():
        socket = default_socket
    if socket is None:
        if is_shared and not as_server_user and not consent.exists():
            raise _no_runner(default_socket, start_command)
        if is_shared and not consent.exists():
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            with write_atomically(consent, mode=0o600) as file:
                file.write(_CONSENT_TEXT)
        node = NodeFolder(home)
        if node_folder is not None:
            node = NodeFolder(node_folder, is_separate=True)
        return JobUsers(None, node)
    runner = RunnerClient(socket)
    answer = runner.call("hello")
    if answer["version"] != torchyard.__version__:
        raise Conflict(
            f"the runner is of version {answer['version']}, and this is {torchyard.__version__}",
            "restart it with `systemctl restart torchyard-runner`",
            code="runner_version",
        )
    folder = Path(answer["node_folder"])
    if node_folder is not None and node_folder != folder:
        raise Conflict(
            f"the runner's node folder is `{folder}`, and not `{node_folder}`",
            "omit `--node-folder`, or change `node_folder` in /etc/torchyard/runner.json",
            code="runner_node_folder",
        )
    return JobUsers(runner, NodeFolder(folder, is_separate=True))


def _no_runner(socket: Path, start_command: str) -> InvalidInput:
    return InvalidInput(
        "other people reach this server, and it has no runner: their jobs would run as the "
        "server's own user and could read its keys, tokens and database, and everybody's files",
        f"install the runner (docs/guides/runner.md), which listens at `{socket}`, then type "
        f"`{start_command}` again. If you trust everyone with a token that far, start it with "
        f"`{start_command} {FLAG}`",
        code="no_runner",
    )
