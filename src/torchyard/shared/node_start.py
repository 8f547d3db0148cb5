"""What a node of another machine is told, so that it can start an attempt's worker there.

Owns: the fields and their one JSON form.
Leaves: handing it over to executors/, acting on it to executors/bootstrap_program.py and
worker/node/starter.py.
Always: standard library only, Python 3.9 and later; it holds the attempt's report token, so it is
handed over where only the job's own Unix user reads it.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class NodeStart:
    """
    `server_urls` are tried in order; `server_certificate` is PEM, the only one that is trusted
    then, empty for what the machine trusts. `worker` is the sha256 of the worker's zip, which the
    server gives to anyone who has the `report_token`. `folder` is where the node keeps its files,
    empty for its default: `$TORCHYARD_NODE_FOLDER`, else `~/.cache/torchyard-node`.
    `variables` are added to the worker's environment.
    """

    attempt_id: str
    server_urls: list[str]
    report_token: str
    worker: str
    server_id: str = ""
    server_certificate: str = ""
    folder: str = ""
    variables: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """One JSON object, keys as the fields."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)


def from_json(text: str) -> NodeStart:
    """Read what `to_json` wrote.

    Raises:
        TypeError: a key is unknown or missing.
    """
    body: dict[str, Any] = json.loads(text)
    return NodeStart(**body)
