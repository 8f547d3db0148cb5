"""The launch plan: all that an executor and a worker may know of a job.

Owns: the plan's fields and their one JSON form.
Leaves: making a plan to jobs/, acting on it to executors/ and worker/.
Always: standard library only, Python 3.9 and later; a plan read back equals the plan written.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class InputPlan:
    """One input. `kind` is literal, uri_file, uri_folder, mltable or a type of model.

    A literal carries its text in `value`; a file or folder names the snapshot that holds it, or
    is at `source`, a path of the node's own disk.
    """

    kind: str
    value: str = ""
    snapshot: str = ""
    mode: str = "ro_mount"
    source: str = ""


@dataclass(frozen=True)
class OutputPlan:
    """One named output. `kind` is uri_file, uri_folder, mltable or a type of model.

    `file` is the file's name for a uri_file, the output's own when empty. A direct output carries
    the text that the script gets in `value`; nothing of it is delivered.
    """

    kind: str = "uri_folder"
    mode: str = "rw_mount"
    file: str = ""
    value: str = ""


@dataclass(frozen=True)
class LaunchPlan:
    """What to run, and where to report.

    `environment` is the folder of a built environment, empty for the platform's own Python.
    `blobs` is the server's blob folder when the node can see it, else empty: then blobs come
    over HTTP. `scratch` is a folder of this attempt's own, shared by the nodes of a local engine.
    `server_id` is what the server signs with when it disowns a worker; `server_file` tells where
    it listens now, on nodes that see its disk.
    `variables` are the job variables that the server knows (AZUREML_*, MLFLOW_*); the worker adds
    those that only a node knows. `environment_variables` are the user's and win over both;
    `secrets` are the names among them whose values are masked, `not_secrets` those that only look
    as if.
    """

    attempt_id: str
    attempt: int
    job: str
    workspace: str
    experiment: str
    command: str
    server_url: str
    report_token: str
    run_token: str
    scratch: str
    distribution: str = ""
    node_count: int = 1
    processes_per_node: int = 1
    environment: str = ""
    environment_variables: dict[str, str] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    not_secrets: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    code: str = ""
    inputs: dict[str, InputPlan] = field(default_factory=dict)
    outputs: dict[str, OutputPlan] = field(default_factory=dict)
    blobs: str = ""
    single_host: bool = False
    grace_s: float = 10.0
    meeting_timeout_s: float = 600.0
    timeout_s: float = 0.0
    server_id: str = ""
    server_file: str = ""
    rendezvous_timeout_s: float = 0.0
    hang_after_s: float = 0.0
    hang_action: str = "dump"
    python: str = ""

    @property
    def world_size(self) -> int:
        """Processes over all nodes."""
        return self.node_count * self.processes_per_node

    def to_json(self) -> str:
        """One JSON object, keys as the fields."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)


def from_json(text: str) -> LaunchPlan:
    """Read what `to_json` wrote.

    Raises:
        TypeError: a key is unknown or missing.
    """
    body: dict[str, Any] = json.loads(text)
    body["inputs"] = {name: InputPlan(**value) for name, value in body["inputs"].items()}
    body["outputs"] = {name: OutputPlan(**value) for name, value in body["outputs"].items()}
    return LaunchPlan(**body)
