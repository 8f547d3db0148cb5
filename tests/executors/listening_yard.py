"""A torchyard that other machines reach, with a cluster of an engine's.

The server listens with its own certificate, and nodes find it at this machine's own address.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from end_to_end.yard_under_test import Yard, running_yard

CLUSTER = "machines"


@contextlib.contextmanager
def listening_yard(
    requirement: str,
    torchyard: dict[str, Any],
    most_nodes: int,
    prepare: Callable[[Path], object] = lambda _: None,
) -> Iterator[Yard]:
    """A server that other machines reach, with the engine's cluster.

    Args:
        torchyard: the mapping of that name in the cluster's document.
        prepare: puts something into the server's home before the cluster is made.
    """
    with running_yard(requirement) as yard:
        prepare(yard.home)
        yard("server", "stop")
        yard("server", "start", "--listen", "--jobs-as-server-user")
        file = yard.home / "cluster.yml"
        document = {"name": CLUSTER, "max_instances": most_nodes, "torchyard": torchyard}
        file.write_text(yaml.safe_dump(document))
        yard("compute", "create", "-f", str(file))
        yield yard
