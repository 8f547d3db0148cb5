"""Settings of a cluster that name files of the server's machine, or whom the server trusts.

Owns: who may name one.
Leaves: which they are, and reading them, to executors/.
Always: naming another file takes the role of who administers the server: Slurm's programs load
what a configuration names, as the server's user, and what a token's file holds is sent to the
address that the same document chooses. With a runner so does naming a cluster's address: who holds
the cluster answers the server's bridge.
"""

from __future__ import annotations

from torchyard.base.errors import Forbidden
from torchyard.compute.types import Compute
from torchyard.executors.engines import settings_of


def check(compute: Compute, before: Compute | None, may_name_files: bool, has_runner: bool) -> None:
    """
    Args:
        may_name_files: whether who asks administers the server.
        has_runner: jobs run as other users than the server.

    Raises:
        Forbidden: a file is named that the cluster does not use already, or one that it uses would
            serve another address.
    """
    if may_name_files:
        return
    current = before.settings if before is not None and before.engine == compute.engine else {}
    model, settings = settings_of(compute.engine), compute.settings
    written = compute.engine_settings or {}
    other_keys = [key for key in model.cluster_keys if settings.get(key) != current.get(key)]
    for key in other_keys:
        if has_runner and key in written and key not in model.server_files:
            raise Forbidden(
                f"`{key}` names a cluster whose answers this server is to believe; the role "
                "`owner` of the server is required to choose it",
                "ask who administers the server to attach the cluster; you can change its other "
                "keys then",
            )
    for key, content in model.server_files.items():
        if key in written and (other_keys or written[key] != current.get(key)):
            raise Forbidden(
                f"`{key}` names a file of the server's machine; the role `owner` of the server is "
                "required to choose it",
                f"ask who administers the server to create the cluster with {content}; you can "
                "change its other keys then",
            )
